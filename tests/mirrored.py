"""Two replicas, checked against a Session: ``python -m tests.mirrored [--full] <check>…``.

A program of its own, because TensorFlow wants its devices before anything else, and because a
second MirroredStrategy in one process fails now and then from TensorFlow 2.15 on.
`tests.test_mirrored` runs it.

All gradients are small multiples of 1/8. Their sums are exact in whatever order, so that two
replicas have to end in the bits of the same v1 optimizer that gets the sum in a Session.
"""

import sys
import tempfile

import numpy as np
import tensorflow as tf

from legacy_opt import AdagradDecayOptimizer, AdagradDecayOptimizerV2, versions
from legacy_opt.compat import to_keras
from tests import problems, running
from tests.rules import DiffGradOptimizer

v1 = tf.compat.v1
STEPS, REPLICAS = 8, 2
DECAY = {"accumulator_decay_step": 3, "accumulator_decay_rate": 0.5}
OPTIMIZERS = {
    "gradient descent": lambda step, rate=0.25: v1.train.GradientDescentOptimizer(rate),
    "momentum": lambda step, rate=0.25: v1.train.MomentumOptimizer(rate, 0.9, use_nesterov=True),
    "adam": lambda step, rate=0.25: v1.train.AdamOptimizer(rate),
    "rmsprop": lambda step, rate=0.25: v1.train.RMSPropOptimizer(rate, momentum=0.5, centered=True),
    "ftrl": lambda step, rate=0.25: v1.train.FtrlOptimizer(rate, l1_regularization_strength=0.01),
    "adagrad": lambda step, rate=0.25: v1.train.AdagradOptimizer(rate),
    "adagrad decay": lambda step, rate=0.25: AdagradDecayOptimizer(rate, step, **DECAY),
    "adagrad decay v2": lambda step, rate=0.25: AdagradDecayOptimizerV2(rate, step, **DECAY),
    "adagrad da": lambda step, rate=0.25: v1.train.AdagradDAOptimizer(rate, step),
    "diffgrad": lambda step, rate=0.25: DiffGradOptimizer(rate),
}
FEW = ("adam", "adagrad decay v2", "diffgrad")  # for every day; --full takes all
POWERS = {"adam": (0.9, 0.999), "diffgrad": (0.9, 0.999)}


def two_devices(**arguments):
    """Makes two devices of one processor; the first thing that TensorFlow is asked for."""
    devices = tf.config.experimental
    (processor,) = devices.list_physical_devices("CPU")
    devices.set_virtual_device_configuration(
        processor, [devices.VirtualDeviceConfiguration()] * REPLICAS
    )
    return tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"], **arguments)


def data(steps=STEPS):
    """Returns for each step a dict of arrays whose first axis is the replica."""
    random = np.random.RandomState(0)

    def draw(*shape):
        return random.randint(-8, 9, size=(REPLICAS,) + shape).astype("f") / 8

    found = []
    for _ in range(steps):
        ids = random.randint(0, 7, size=(REPLICAS, 4))
        ids[:, 0] = ids[0, 1]  # twice on the first replica, and on the second as well
        found.append({"matrix": draw(4, 3), "scalar": draw(), "table": draw(4, 2), "ids": ids})
    return found


VALUES = {
    "matrix": np.linspace(-1, 1, 12).reshape(4, 3).astype("f"),
    "scalar": np.float32(0.3),
    "table": np.linspace(1, -1, 14).reshape(7, 2).astype("f"),
}


def summed(batch, replicas=REPLICAS):
    """Returns the gradient of all replicas."""
    return {
        "matrix": batch["matrix"][:replicas].sum(axis=0),
        "scalar": batch["scalar"][:replicas].sum(axis=0),
        "table": problems.Rows(
            np.concatenate(batch["table"][:replicas]), np.concatenate(batch["ids"][:replicas])
        ),
    }


def session(make, gradients, sparse=("table",)):
    """Trains in a Session; what all else is compared with."""
    problem = problems.Problem(VALUES, gradients, sparse, "float32")
    return running.session(problem, make, use_resource=True)


def state_of_session(make, gradients):
    """Returns all variables of a Session by name after the last gradient."""
    found = {}

    def look(sess, optimizer, variables, number):
        if number == len(gradients):
            found.update((item.op.name, sess.run(item)) for item in v1.global_variables())

    problem = problems.Problem(VALUES, gradients + gradients[:1], ("table",), "float32")
    running.session(problem, make, use_resource=True, between=look)
    return found


def loss_here(variables, mine):
    """A loss whose gradients are what `mine` holds."""
    loss = tf.reduce_sum(variables["matrix"] * mine["matrix"])
    loss += variables["scalar"] * mine["scalar"]
    return loss + tf.reduce_sum(tf.gather(variables["table"], mine["ids"]) * mine["table"])


def gradients_here(variables, batch):
    """Computes this replica's gradients."""
    replica = tf.distribute.get_replica_context().replica_id_in_sync_group
    mine = {name: tf.gather(value, replica) for name, value in batch.items()}
    with tf.GradientTape() as tape:
        loss = loss_here(variables, mine)
    gradients = tape.gradient(loss, list(variables.values()))
    return list(zip(gradients, variables.values()))


class Loop:
    """A custom training loop: variables and an optimizer under a strategy.

    Args:
      strategy: the strategy.
      make: returns the optimizer, given a step variable.
      apply: called with (optimizer, pairs, step variable) in each replica.
    """

    def __init__(self, strategy, make, apply):
        self.strategy = strategy
        with strategy.scope():
            self.variables = {name: tf.Variable(value, name=name) for name, value in VALUES.items()}
            self.step = tf.Variable(
                np.int64(0),
                trainable=False,
                name="global_step",
                aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
            )
            self.optimizer = make(self.step)
        run = getattr(strategy, "run", None) or strategy.experimental_run_v2

        def in_replica(batch):
            apply(self.optimizer, gradients_here(self.variables, batch), self.step)

        self.train_step = tf.function(lambda batch: run(in_replica, args=(batch,)))

    def train(self, batches, expected):
        """Trains and compares all variables with the steps of a trace."""
        for batch, wanted in zip(batches, expected):
            self.train_step({name: tf.constant(value) for name, value in batch.items()})
            for name, variable in self.variables.items():
                assert_everywhere(self.strategy, variable, wanted[name], name)

    def check_slots(self, trace):
        """Compares all slots with a trace."""
        assert {slot_name for _, slot_name in trace.slots} == set(self.optimizer.get_slot_names())
        for (name, slot_name), value in trace.slots.items():
            variable, optimizer = self.variables[name], self.optimizer
            if isinstance(optimizer, v1.train.Optimizer):  # 1.15 hands out one component
                parts = self.strategy.experimental_local_results(variable)
                for part in parts:
                    assert_equal(optimizer.get_slot(part, slot_name).numpy(), value, slot_name)
            else:
                slot = optimizer.get_slot(variable, slot_name)
                assert_everywhere(self.strategy, slot, value, (name, slot_name))


def assert_equal(value, expected, what):
    """Asserts that two arrays have the same bits."""
    assert value.dtype == expected.dtype and value.shape == expected.shape, what
    if not np.array_equal(value, expected):
        gap = np.max(np.abs(np.asarray(value, "d") - expected))
        raise AssertionError("%s is off by %g" % (what, gap))


def assert_everywhere(strategy, variable, expected, what):
    """Asserts that each replica's component has these bits."""
    parts = strategy.experimental_local_results(variable)
    assert len(parts) == strategy.num_replicas_in_sync, what
    for replica, part in enumerate(parts):
        value = versions.keras_2().backend.get_value(part)
        assert_equal(value, np.asarray(expected), "%s on replica %d" % (what, replica))


def power(beta, steps=STEPS):
    """Returns what a power of beta is after some steps."""
    result = np.float32(beta)
    for _ in range(steps):
        result *= np.float32(beta)
    return result


def check_powers(strategy, variables, betas):
    """Asserts that the powers of beta have advanced once a step."""
    for beta, name in zip(betas, ("beta1_power", "beta2_power")):
        (variable,) = [item for item in variables if name in item.name]
        assert_everywhere(strategy, variable, power(beta), name)


def bridged(make, **arguments):
    """Returns a maker of the bridged optimizer."""
    return lambda step: to_keras(make(step), api="optimizer_v2", **arguments)


def apply_bridged(optimizer, pairs, step):
    del step
    optimizer.apply_gradients(pairs)


def apply_v1(optimizer, pairs, step):
    optimizer.apply_gradients(pairs, global_step=step)


def check_bridge(strategy):
    """Every optimizer through the bridge, in a custom loop."""
    batches = data()
    for name in OPTIMIZERS if "--full" in sys.argv else FEW:
        make = OPTIMIZERS[name]
        expected = session(make, [summed(batch) for batch in batches])
        loop = Loop(strategy, bridged(make), apply_bridged)
        loop.train(batches, expected.steps)
        loop.check_slots(expected)
        assert_everywhere(strategy, loop.optimizer.iterations, np.int64(STEPS), "iterations")
        check_powers(strategy, loop.optimizer.weights, POWERS.get(name, ()))
        print("bridge", name)


def check_v1(strategy):
    """v1 optimizers themselves, in a custom loop."""
    batches = data()
    for name in OPTIMIZERS if "--full" in sys.argv else FEW:
        make = OPTIMIZERS[name]
        expected = session(make, [summed(batch) for batch in batches])
        loop = Loop(strategy, make, apply_v1)
        loop.train(batches, expected.steps)
        loop.check_slots(expected)
        assert_everywhere(strategy, loop.step, np.int64(STEPS), "global_step")
        # `variables()` leaves distributed non-slot variables out, TensorFlow's own as well.
        check_powers(strategy, loop.optimizer._non_slot_variables(), POWERS.get(name, ()))
        print("v1", name)


def check_learning_rate(strategy):
    """A learning rate set by attribute reaches all replicas, in the graph that is there."""
    batches, make = data(), OPTIMIZERS["adam"]

    def make_changing(step):
        return make(step, tf.compat.v2.where(step < STEPS // 2, 0.25, 0.125))

    expected = session(make_changing, [summed(batch) for batch in batches])
    loop = Loop(strategy, bridged(make), apply_bridged)
    loop.train(batches[: STEPS // 2], expected.steps)
    loop.optimizer.learning_rate = 0.125
    loop.train(batches[STEPS // 2 :], expected.steps[STEPS // 2 :])


def check_made_outside(strategy):
    """An optimizer made outside of the scope trains like one made inside."""
    batches, make = data(), OPTIMIZERS["adam"]
    optimizer = bridged(make)(None)
    expected = session(make, [summed(batch) for batch in batches])
    loop = Loop(strategy, lambda step: optimizer, apply_bridged)
    loop.train(batches, expected.steps)
    loop.check_slots(expected)
    check_powers(strategy, optimizer.weights, POWERS["adam"])


def check_own_sum(strategy):
    """The user sums over replicas and says so."""
    if not hasattr(strategy, "run"):
        return
    batches = data()

    def apply_summed(optimizer, pairs, step):
        context = tf.distribute.get_replica_context()
        gradients = [tf.convert_to_tensor(gradient) for gradient, _ in pairs]
        gradients = context.all_reduce(tf.distribute.ReduceOp.SUM, gradients)
        pairs = list(zip(gradients, [variable for _, variable in pairs]))
        optimizer.apply_gradients(pairs, experimental_aggregate_gradients=False)

    def dense(gradients):
        table = np.zeros_like(VALUES["table"])
        np.add.at(table, gradients["table"].ids, gradients["table"].values)
        return dict(gradients, table=table)

    for name in ("adam", "diffgrad"):
        make = OPTIMIZERS[name]
        expected = session(make, [dense(summed(batch)) for batch in batches], sparse=())
        loop = Loop(strategy, bridged(make), apply_summed)
        loop.train(batches, expected.steps)
        loop.check_slots(expected)
        check_powers(strategy, loop.optimizer.weights, POWERS[name])


def check_clipping(strategy):
    """Clipping takes the gradient of all replicas; where Keras has only one's, it is refused."""
    batches, make = data(), OPTIMIZERS["momentum"]
    loop = Loop(strategy, bridged(make, clipvalue=0.5), apply_bridged)
    if not hasattr(versions.optimizer_v2(), "_transform_gradients"):
        assert_refused(loop, batches, "take the gradient of all replicas")
        return

    def clipped(gradients):
        rows = gradients["table"]
        ids, table = np.unique(rows.ids), np.zeros_like(VALUES["table"])
        np.add.at(table, rows.ids, rows.values)
        result = {name: np.clip(gradients[name], -0.5, 0.5) for name in ("matrix", "scalar")}
        return dict(result, table=problems.Rows(np.clip(table[ids], -0.5, 0.5), ids))

    expected = session(make, [clipped(summed(batch)) for batch in batches])
    loop.train(batches, expected.steps)
    check_clipnorm(strategy, batches)


def check_clipnorm(strategy, batches):
    """One step of gradient descent at rate 1 shows the gradient that was applied."""
    loop = Loop(
        strategy,
        bridged(lambda step: OPTIMIZERS["gradient descent"](step, 1.0), clipnorm=0.5),
        apply_bridged,
    )
    loop.train_step({name: tf.constant(value) for name, value in batches[0].items()})
    gradient = summed(batches[0])["matrix"]
    wanted = VALUES["matrix"] - gradient * 0.5 / np.linalg.norm(gradient)
    for part in strategy.experimental_local_results(loop.variables["matrix"]):
        # The norm and the quotient are rounded in other places than NumPy's.
        np.testing.assert_allclose(part.numpy(), wanted, rtol=0, atol=1e-6)


class OverridingOptimizer(v1.train.GradientDescentOptimizer):
    """Does something of its own in apply_gradients."""

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        return super().apply_gradients(grads_and_vars, global_step, name)


def check_refusal(strategy):
    """A class with an apply_gradients of its own is refused, not run on one replica."""
    loop = Loop(strategy, bridged(lambda step: OverridingOptimizer(0.25)), apply_bridged)
    assert_refused(loop, data(), "overrides apply_gradients")


def assert_refused(loop, batches, message):
    try:
        loop.train(batches, batches)
    except ValueError as error:
        assert message in str(error), error
    else:
        raise AssertionError("not refused: " + message)


def as_one(batch):
    """Returns the data of all replicas for a single one."""
    gradients = summed(batch)
    table, ids = gradients.pop("table")
    return {name: value[None] for name, value in dict(gradients, table=table, ids=ids).items()}


def check_checkpoint(strategy):
    """What was saved on two replicas goes on with the same bits on two and on one."""
    batches, half = data(), STEPS // 2
    for name in ("adam", "adagrad decay v2", "diffgrad"):
        make = OPTIMIZERS[name]
        expected = session(make, [summed(batch) for batch in batches])
        loop = Loop(strategy, bridged(make), apply_bridged)
        loop.train(batches[:half], expected.steps)
        with tempfile.TemporaryDirectory() as directory:
            path = as_checkpoint(loop).save(directory + "/model")
            one = tf.distribute.get_strategy()
            for there, convert in ((strategy, dict), (one, as_one)):
                again = Loop(there, bridged(make), apply_bridged)
                status = as_checkpoint(again).restore(path)
                again.train([convert(b) for b in batches[half:]], expected.steps[half:])
                status.assert_consumed()
                again.check_slots(expected)
                assert_everywhere(there, again.optimizer.iterations, np.int64(STEPS), name)
                check_powers(there, again.optimizer.weights, POWERS.get(name, ()))


def as_checkpoint(loop):
    return tf.train.Checkpoint(optimizer=loop.optimizer, **loop.variables)


def check_fit(strategy):
    """`model.fit`, in graph-mode Keras as well: sums over replicas, slots and powers."""
    keras, batch = versions.keras_2(), 8
    random = np.random.RandomState(1)
    x = random.randint(-4, 5, size=(STEPS * batch, 3)).astype("f")
    ids = random.randint(0, 7, size=(STEPS * batch, 2))
    y = random.randint(-4, 5, size=(STEPS * batch, 1)).astype("f")
    values = {"kernel": np.float32([[0.5], [-0.25], [1.0]]), "table": VALUES["table"][:, :1]}
    gradients = []
    for start in range(0, len(x), batch):
        part = slice(start, start + batch)
        rows = problems.Rows(np.repeat(y[part], 2, axis=0) / batch, ids[part].ravel())
        gradients.append({"kernel": x[part].T @ y[part] / batch, "table": rows})
    problem = problems.Problem(values, gradients, ("table",), "float32")
    for name in FEW if "--full" in sys.argv else FEW[1:]:
        expected = running.session(problem, OPTIMIZERS[name], use_resource=True)
        with strategy.scope():
            inputs = [keras.Input([3]), keras.Input([2], dtype="int32")]
            dense = keras.layers.Dense(1, use_bias=False)
            embedding = keras.layers.Embedding(7, 1)
            rows = keras.layers.Lambda(lambda rows: tf.reduce_sum(rows, axis=1))
            output = keras.layers.Add()([dense(inputs[0]), rows(embedding(inputs[1]))])
            model = keras.Model(inputs, output)
            optimizer = bridged(OPTIMIZERS[name])(None)
            model.compile(optimizer, loss=lambda true, predicted: (true * predicted)[:, 0])
        dense.set_weights([values["kernel"]])
        embedding.set_weights([values["table"]])
        model.fit([x, ids], y, batch_size=batch, shuffle=False, verbose=0)
        variables = {"kernel": dense.kernel, "table": embedding.embeddings}
        for key, variable in variables.items():
            assert_everywhere(strategy, variable, expected.steps[-1][key], key)
        for (key, slot_name), value in expected.slots.items():
            slot = optimizer.get_slot(variables[key], slot_name)
            assert_everywhere(strategy, slot, value, (key, slot_name))
        assert_everywhere(strategy, optimizer.iterations, np.int64(STEPS), "iterations")
        check_powers(strategy, optimizer.weights, POWERS.get(name, ()))
        print("fit", name)


class Reader(v1.train.SessionRunHook):
    """Reads every variable that the graph has at the end, those of other replicas too."""

    def begin(self):
        self.tensors, self.values = {}, {}
        for op in v1.get_default_graph().get_operations():
            if op.type == "VarHandleOp":
                self.tensors[op.name] = tf.raw_ops.ReadVariableOp(
                    resource=op.outputs[0], dtype=op.get_attr("dtype")
                )

    def end(self, session):
        self.values = session.run(self.tensors)


def check_estimator(strategy):
    """v1 optimizers themselves in an Estimator with train_distribute."""
    batches = data()
    halves = [
        {key: value * np.float32(0.5) for key, value in batch.items() if key != "ids"}
        for batch in batches
    ]
    # An Estimator takes the mean of the replicas' losses.
    gradients = [summed(dict(half, ids=b["ids"])) for half, b in zip(halves, batches)]
    for name in FEW + ("adagrad decay",) if "--full" in sys.argv else FEW:
        make = OPTIMIZERS[name]
        expected = state_of_session(make, gradients)

        def input_fn():
            examples = {key: np.concatenate([b[key] for b in batches]) for key in batches[0]}
            return tf.compat.v1.data.Dataset.from_tensor_slices(examples)

        def model_fn(features, mode, params):
            variables = {
                key: v1.get_variable(key, initializer=value) for key, value in VALUES.items()
            }
            loss = loss_here(variables, features)
            step = v1.train.get_global_step()
            train_op = params["make"](step).minimize(loss, global_step=step)
            return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

        with tempfile.TemporaryDirectory() as directory:
            config = tf.estimator.RunConfig(directory, train_distribute=strategy)
            estimator, reader = (
                tf.estimator.Estimator(model_fn, None, config, {"make": make}),
                Reader(),
            )
            estimator.train(input_fn, hooks=[reader], steps=STEPS)
            checkpoint = v1.train.NewCheckpointReader(estimator.latest_checkpoint())
            assert set(checkpoint.get_variable_to_shape_map()) == set(expected)
            for key, value in expected.items():
                assert_equal(checkpoint.get_tensor(key), value, "checkpoint's " + key)
        assert expected["global_step"] == STEPS
        for key, value in expected.items():
            for component in (key, key + "/replica_1"):
                assert_equal(reader.values[component], value, component)
        for beta, key in zip(POWERS.get(name, ()), ("beta1_power", "beta2_power")):
            assert_equal(expected[key], power(beta), key)
        print("estimator", name)


def main(checks):
    """Runs checks on two replicas."""
    arguments = {}
    if "estimator" in checks:
        # In the Sessions of 2.15 the collective sum, which is the default, waits for ever.
        arguments["cross_device_ops"] = tf.distribute.ReductionToOneDevice()
    strategy = two_devices(**arguments)
    for check in checks:
        globals()["check_" + check](strategy)
        print(check, "passed", flush=True)


if __name__ == "__main__":
    main([check for check in sys.argv[1:] if check != "--full"])
