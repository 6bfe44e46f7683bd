"""Our optimizers inside optimizers of others that take one: the same bits as without them.

All optimizers train one small model in which no gradient reads a variable, since with ref variables
the updates would race with it. Operations are computed as they are written: TensorFlow regroups
some of them in one graph and not in another, and they are an ulp apart then.
"""

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from tests import running
from tests.cases import CASES, one_of_each_class

v1 = tf.compat.v1
STEPS = 4
DAILY = ["AdagradDecay", "AdamW", "LAMB", "LazyAdam", "AdamAsync", "Adafactor"]
EVERY = pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n in DAILY else pytest.mark.full) for n in one_of_each_class()],
)
KINDS = pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])
VALUES = {
    "weights": np.linspace(-1, 1, 3).reshape(3, 1),
    "table": np.linspace(1, -2, 5).reshape(5, 1),
    "bias": np.array([0.3]),
}


class Model:
    """The loss of two towers, each with a batch of its own, and the step."""

    def __init__(self, use_resource):
        weights, table, bias = (
            v1.get_variable(
                name,
                value.shape,
                initializer=v1.constant_initializer(value),
                use_resource=use_resource,
            )
            for name, value in VALUES.items()
        )
        self.features = v1.placeholder(tf.float32, [2, 6, 3])
        self.ids = v1.placeholder(tf.int64, [2, 6])
        self.losses = []
        for tower in range(2):
            output = tf.matmul(self.features[tower], weights) + bias
            output += tf.gather(table, self.ids[tower])
            self.losses.append(tf.reduce_mean(tf.square(output - 1.0)))
        self.step = v1.train.get_or_create_global_step()

    def feed(self, number):
        random = np.random.RandomState(number)
        return {self.features: random.randn(2, 6, 3), self.ids: random.randint(0, 5, [2, 6])}


def on_one_tower(optimizer, model):
    return optimizer.minimize(model.losses[0], global_step=model.step)


def trained(name, build, use_resource, session=v1.Session):
    """Trains in a graph of its own; returns all variables by name after each step.

    Args:
      name: the name of the case.
      build: called with the optimizer and the `Model`, returns the training operation, and perhaps
        what `session` is called with.
      use_resource: resource instead of ref variables.
      session: makes the session.
    """
    with tf.Graph().as_default(), v1.variable_scope("", use_resource=use_resource):
        model = Model(use_resource)
        built = build(CASES[name].make(model.step), model)
        train_op, arguments = built if isinstance(built, tuple) else (built, {})
        variables = {each.op.name: each for each in v1.global_variables()}
        initializer = v1.global_variables_initializer()
        with session(config=running.AS_WRITTEN, **arguments) as runs:
            if session is v1.Session:
                runs.run(initializer)
            return [
                (runs.run(train_op, model.feed(number)), runs.run(variables))[1]
                for number in range(STEPS)
            ]


def find(values, name):
    """Returns a value by name; what all variables share, as TensorFlow's own, is in name scopes."""
    (found,) = [key for key in values if key == name or key.endswith("/" + name)]
    assert found == name or "/" not in name
    return values[found]


def assert_same(inside, alone):
    """Compares all variables there are without the other optimizer, which may add its own."""
    for number, (one, other) in enumerate(zip(inside, alone)):
        assert other["global_step"] == number + 1
        for name, value in other.items():
            assert np.all(np.isfinite(value)), name
            same = find(one, name)
            assert same.dtype == value.dtype and np.array_equal(same, value), name
    assert not np.array_equal(alone[-1]["table"], alone[0]["table"])


@EVERY
@pytest.mark.in_turn
@KINDS
def test_a_fixed_loss_scale(name, use_resource):
    def scaled(optimizer, model):
        wrapper = v1.train.experimental.MixedPrecisionLossScaleOptimizer(optimizer, 128.0)
        return on_one_tower(wrapper, model)

    inside = trained(name, scaled, use_resource)
    assert_same(inside, trained(name, on_one_tower, use_resource))


def kinds_of_dynamic_scaling():
    """With v2 control flow no cond holds ref variables, of whatever optimizer."""
    return [True] if v1.control_flow_v2_enabled() else [False, True]


@EVERY
@pytest.mark.in_turn
@pytest.mark.parametrize("use_resource", kinds_of_dynamic_scaling())
def test_the_rewrite_for_mixed_precision(name, use_resource):
    experimental = v1.train.experimental

    def rewritten(optimizer, model):
        wrapper = experimental.enable_mixed_precision_graph_rewrite(optimizer)
        return on_one_tower(wrapper, model)

    try:
        inside = trained(name, rewritten, use_resource)
    finally:
        experimental.disable_mixed_precision_graph_rewrite()
    assert "current_loss_scale" in inside[0]
    assert_same(inside, trained(name, on_one_tower, use_resource))


def test_the_rewrite_leaves_out_a_step_that_overflows():
    def overflowing(optimizer, model):
        wrapper = v1.train.experimental.enable_mixed_precision_graph_rewrite(optimizer)
        big = tf.where(tf.equal(model.step, 2), np.float32(1e38), np.float32(1))
        with tf.control_dependencies([big]):
            return wrapper.minimize(model.losses[0] * big, global_step=model.step)

    try:
        values = trained("AdagradDecay", overflowing, True)
    finally:
        v1.train.experimental.disable_mixed_precision_graph_rewrite()
    assert [each["global_step"] for each in values] == [1, 2, 2, 2]
    assert values[2]["current_loss_scale"] == values[1]["current_loss_scale"] / 2
    for name in "table", "table/AdagradDecay", "table/AdagradDecay_1":
        assert np.array_equal(values[3][name], values[1][name])


@EVERY
@pytest.mark.in_turn
@KINDS
def test_the_optimizer_for_tpu_shards(name, use_resource):
    # There is no kernel of the sum over replicas but on TPUs. Of one replica it is the identity,
    # which the finished graph gets in its place.
    def sharded(optimizer, model):
        wrapper = v1.tpu.CrossShardOptimizer(optimizer)
        train_op = on_one_tower(wrapper, model)
        assert wrapper.get_slot_names() == optimizer.get_slot_names()
        exported = v1.train.export_meta_graph()
        sums = [node for node in exported.graph_def.node if node.op == "CrossReplicaSum"]
        assert len(sums) == len(VALUES)
        for node in sums:
            node.op = "Identity"
            del node.input[1:]
        return train_op, exported, model

    def dense(optimizer, model):
        pairs = optimizer.compute_gradients(model.losses[0])
        pairs = [(tf.convert_to_tensor(grad), variable) for grad, variable in pairs]
        return optimizer.apply_gradients(pairs, global_step=model.step)

    with tf.Graph().as_default(), v1.variable_scope("", use_resource=use_resource):
        model = Model(use_resource)
        train_op, exported, model = sharded(CASES[name].make(model.step), model)
    with tf.Graph().as_default() as graph:
        v1.train.import_meta_graph(exported)
        variables = {each.op.name: each for each in v1.global_variables()}
        with v1.Session(config=running.AS_WRITTEN) as session:
            session.run(v1.global_variables_initializer())
            inside = []
            for number in range(STEPS):
                feed = {tensor.name: value for tensor, value in model.feed(number).items()}
                session.run(graph.get_operation_by_name(train_op.name), feed)
                inside.append(session.run(variables))
    assert_same(inside, trained(name, dense, use_resource))


@EVERY
@pytest.mark.in_turn
@KINDS
def test_sync_replicas_with_one_replica(name, use_resource):
    def synchronized(optimizer, model):
        wrapper = v1.train.SyncReplicasOptimizer(optimizer, 1)
        train_op = on_one_tower(wrapper, model)
        assert wrapper.get_slot_names() == optimizer.get_slot_names()
        # Without a token in advance each step waits for its own update.
        hook = wrapper.make_session_run_hook(is_chief=True, num_tokens=0)
        # Its thread waits for gradients, and would be waited for at the end.
        return train_op, {"hooks": [hook], "stop_grace_period_secs": 0}

    inside = trained(name, synchronized, use_resource, v1.train.MonitoredTrainingSession)
    assert_same(inside, trained(name, on_one_tower, use_resource))


class DistributedOptimizer(v1.train.Optimizer):
    """Averages gradients of several towers, as Horovod's does of processes, and delegates."""

    def __init__(self, optimizer, name=None, use_locking=False):
        super().__init__(
            name=name or "Distributed" + type(optimizer).__name__, use_locking=use_locking
        )
        self._optimizer = optimizer

    def compute_gradients(self, losses, *args, **kwargs):
        towers = [self._optimizer.compute_gradients(loss, *args, **kwargs) for loss in losses]
        return [(allreduce([grad for grad, _ in each]), each[0][1]) for each in zip(*towers)]

    def apply_gradients(self, *args, **kwargs):
        return self._optimizer.apply_gradients(*args, **kwargs)

    def get_slot(self, *args, **kwargs):
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args, **kwargs):
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args, **kwargs):
        return self._optimizer.variables(*args, **kwargs)


def allreduce(gradients):
    """Averages dense gradients, and gathers sparse ones."""
    if not isinstance(gradients[0], tf.IndexedSlices):
        return tf.add_n(gradients) / len(gradients)
    values = tf.concat([grad.values for grad in gradients], 0) / len(gradients)
    ids = tf.concat([grad.indices for grad in gradients], 0)
    return tf.IndexedSlices(values, ids, gradients[0].dense_shape)


@EVERY
@pytest.mark.in_turn
@KINDS
def test_a_distributed_optimizer_that_delegates(name, use_resource):
    def distributed(optimizer, model):
        wrapper = DistributedOptimizer(optimizer)
        train_op = wrapper.minimize(model.losses, global_step=model.step)
        names = [each.op.name for each in wrapper.variables()]
        assert names and names == [each.op.name for each in optimizer.variables()]
        for slot in wrapper.get_slot_names():
            for variable in v1.trainable_variables():
                assert wrapper.get_slot(variable, slot) is optimizer.get_slot(variable, slot)
        return train_op

    def by_hand(optimizer, model):
        pairs = []
        for variable in v1.trainable_variables():
            gradients = [tf.gradients(loss, variable)[0] for loss in model.losses]
            pairs.append((allreduce(gradients), variable))
        return optimizer.apply_gradients(pairs, global_step=model.step)

    inside = trained(name, distributed, use_resource)
    assert_same(inside, trained(name, by_hand, use_resource))


def test_the_daily_optimizers_are_there():
    assert {CASES[name].optimizer.__name__ for name in DAILY} <= set(legacy_opt.__all__)
