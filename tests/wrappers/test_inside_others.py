"""Tests our optimizers and wrappers inside wrappers that are not ours, such as SyncReplicas.

The results must be equal, bit for bit, to those of training without the outer wrapper. In the
model's backward pass, reads of ref variables would race with the updates, so the backward pass does
not read variables. Sessions run without graph rewriting, because graph rewriting would regroup
products in some graphs only.
"""

import functools

import numpy as np
import pytest
import tensorflow as tf

from tests.support import running
from tests.support.cases import CASES, one_of_each_class
from tests.support.wrapped import WRAPPERS

v1 = tf.compat.v1
STEPS = 4


MAKERS = {name: CASES[name].make for name in one_of_each_class()}
MAKERS.update(WRAPPERS)
DAILY = ["AdagradDecay", "AdamW", "LAMB", "LazyAdam", "AdamAsync", "Adafactor", *WRAPPERS]
VALUES = {
    "weights": np.linspace(-1, 1, 3).reshape(3, 1),
    "table": np.linspace(1, -2, 5).reshape(5, 1),
}


class Model:
    """A small model with a global step and two towers; each tower has its own batch."""

    def __init__(self, use_resource):
        self.weights, self.table = (
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
        self.step = v1.train.get_or_create_global_step()

    def loss(self, tower):
        output = tf.matmul(self.features[tower], self.weights)
        output += tf.gather(self.table, self.ids[tower])
        return tf.reduce_mean(tf.square(output - 1.0))

    def feed(self, number):
        random = np.random.RandomState(number)
        return {self.features: random.randn(2, 6, 3), self.ids: random.randint(0, 5, [2, 6])}


def on_one_tower(optimizer, model):
    return optimizer.minimize(model.loss(0), global_step=model.step)


def trained(name, build, use_resource, session=v1.Session):
    """Trains in a new graph; returns all variables by name after each step.

    Args:
      name: the optimizer, a key in MAKERS.
      build: a function of the optimizer and the `Model` that returns the training operation, or a
        pair of this operation and keyword arguments for `session`.
      use_resource: whether to use resource variables instead of ref variables.
      session: the class of the session.
    """
    with tf.Graph().as_default(), v1.variable_scope("", use_resource=use_resource):
        model = Model(use_resource)
        built = build(MAKERS[name](model.step), model)
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


@functools.lru_cache(maxsize=None)
def trained_alone(name, use_resource):
    return trained(name, on_one_tower, use_resource)


def find(values, name):
    """Returns a value by name; in `values`, the name may begin with an additional name scope."""
    (found,) = [key for key in values if key == name or key.endswith("/" + name)]
    assert found == name or name.split("/")[0] not in VALUES
    return values[found]


def assert_same(inside, alone):
    """Asserts that all variables of `alone` have the same values in `inside`."""
    for one, other in zip(inside, alone):
        for name, value in other.items():
            assert np.all(np.isfinite(value)), name
            same = find(one, name)
            assert same.dtype == value.dtype and np.array_equal(same, value), name
    assert alone[-1]["global_step"] in (STEPS, STEPS // 2)  # half as many with accumulation
    assert not np.array_equal(alone[-1]["table"], alone[0]["table"])


def fixed_loss_scale(name, use_resource):
    def scaled(optimizer, model):
        wrapper = v1.train.experimental.MixedPrecisionLossScaleOptimizer(optimizer, 128.0)
        return on_one_tower(wrapper, model)

    assert_same(trained(name, scaled, use_resource), trained_alone(name, use_resource))


def mixed_precision_rewrite(name, use_resource):
    # With control flow v2, no optimizer can update ref variables inside a tf.cond.
    use_resource = use_resource or v1.control_flow_v2_enabled()
    experimental = v1.train.experimental

    def rewritten(optimizer, model):
        wrapper = experimental.enable_mixed_precision_graph_rewrite(optimizer)
        return on_one_tower(wrapper, model)

    try:
        inside = trained(name, rewritten, use_resource)
    finally:
        experimental.disable_mixed_precision_graph_rewrite()
    assert "current_loss_scale" in inside[0]
    assert_same(inside, trained_alone(name, use_resource))


def tpu_shards(name, use_resource):
    # CrossReplicaSum has a kernel only for TPUs. With one replica, it returns its input unchanged.
    # Therefore Identity replaces it in the finished graph.
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
        pairs = optimizer.compute_gradients(model.loss(0))
        pairs = [(tf.convert_to_tensor(grad), variable) for grad, variable in pairs]
        return optimizer.apply_gradients(pairs, global_step=model.step)

    with tf.Graph().as_default(), v1.variable_scope("", use_resource=use_resource):
        model = Model(use_resource)
        train_op, exported, model = sharded(MAKERS[name](model.step), model)
    with tf.Graph().as_default() as graph:
        v1.train.import_meta_graph(exported)
        variables = {each.op.name: each for each in v1.global_variables()}
        with running.started(config=running.AS_WRITTEN) as session:
            inside = []
            for number in range(STEPS):
                feed = {tensor.name: value for tensor, value in model.feed(number).items()}
                session.run(graph.get_operation_by_name(train_op.name), feed)
                inside.append(session.run(variables))
    assert_same(inside, trained(name, dense, use_resource))


def sync_replicas(name, use_resource):
    def synchronized(optimizer, model):
        wrapper = v1.train.SyncReplicasOptimizer(optimizer, 1)
        train_op = on_one_tower(wrapper, model)
        assert wrapper.get_slot_names() == optimizer.get_slot_names()
        # Without initial tokens, each step waits for its own update.
        hook = wrapper.make_session_run_hook(is_chief=True, num_tokens=0)
        # Without the argument stop_grace_period_secs, the session would wait at its end for the
        # hook's thread, which waits for gradients.
        return train_op, {"hooks": [hook], "stop_grace_period_secs": 0}

    inside = trained(name, synchronized, use_resource, v1.train.MonitoredTrainingSession)
    assert_same(inside, trained_alone(name, use_resource))


class DistributedOptimizer(v1.train.Optimizer):
    """Averages the towers' gradients, like Horovod's class; another optimizer applies the means."""

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
    """Returns the average of the towers' gradients; concatenates sparse gradients."""
    if not isinstance(gradients[0], tf.IndexedSlices):
        return tf.add_n(gradients) / len(gradients)
    values = tf.concat([grad.values for grad in gradients], 0) / len(gradients)
    ids = tf.concat([grad.indices for grad in gradients], 0)
    return tf.IndexedSlices(values, ids, gradients[0].dense_shape)


def distributed_that_delegates(name, use_resource):
    def distributed(optimizer, model):
        wrapper = DistributedOptimizer(optimizer)
        train_op = wrapper.minimize([model.loss(0), model.loss(1)], global_step=model.step)
        names = [each.op.name for each in wrapper.variables()]
        assert names == [each.op.name for each in optimizer.variables()]
        assert bool(names) == (name != "ConditionalGradient")  # has no variables
        for slot in wrapper.get_slot_names():
            for variable in v1.trainable_variables():
                assert wrapper.get_slot(variable, slot) is optimizer.get_slot(variable, slot)
        return train_op

    def by_hand(optimizer, model):
        variables = v1.trainable_variables()
        towers = [tf.gradients(model.loss(tower), variables) for tower in range(2)]
        pairs = [(allreduce(each), variable) for *each, variable in zip(*towers, variables)]
        return optimizer.apply_gradients(pairs, global_step=model.step)

    inside = trained(name, distributed, use_resource)
    assert_same(inside, trained(name, by_hand, use_resource))


OTHERS = [
    fixed_loss_scale,
    mixed_precision_rewrite,
    tpu_shards,
    sync_replicas,
    distributed_that_delegates,
]


def cells():
    """Yields the combinations of optimizer, outer wrapper, and ref or resource variables.

    The daily cells use the optimizers in `DAILY`, each with two or three of the outer wrappers,
    alternately with ref and resource variables.
    """
    for number, name in enumerate(sorted(MAKERS)):
        for place, other in enumerate(OTHERS):
            if (name, other) == ("GradientAccumulation", sync_replicas):
                continue  # raises an error, because SyncReplicas accumulates gradients itself
            for use_resource, kind in (False, "ref"), (True, "resource"):
                daily = name in DAILY and (number + 2 * place + use_resource) % 4 == 0
                marks = () if daily else pytest.mark.full
                cell_id = "-".join([name, other.__name__, kind])
                yield pytest.param(other, name, use_resource, id=cell_id, marks=marks)


@pytest.mark.parametrize("other, name, use_resource", list(cells()))
def test_inside(other, name, use_resource):
    other(name, use_resource)


@pytest.mark.parametrize("name", ["AdagradDecay", "MultiOptimizer"])
def test_the_graph_rewrite_skips_an_overflowing_step(name):
    def overflowing(optimizer, model):
        wrapper = v1.train.experimental.enable_mixed_precision_graph_rewrite(optimizer)
        big = tf.where(tf.equal(model.step, 2), np.float32(1e38), np.float32(1))
        with tf.control_dependencies([big]):
            return wrapper.minimize(model.loss(0) * big, global_step=model.step)

    try:
        values = trained(name, overflowing, True)
    finally:
        v1.train.experimental.disable_mixed_precision_graph_rewrite()
    assert [each["global_step"] for each in values] == [1, 2, 2, 2]
    assert values[2].pop("current_loss_scale") == values[1]["current_loss_scale"] / 2
    for key in set(values[2]) - {"good_steps"}:
        np.testing.assert_array_equal(values[2][key], values[1][key], err_msg=key)
    for name in "table", "table/AdagradDecay", "table/AdagradDecay_1":
        assert np.array_equal(values[3][name], values[1][name])
