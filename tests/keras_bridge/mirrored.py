"""Trains on two replicas and compares the results with a Session.

    python -m tests.keras_bridge.mirrored CHECK…

CHECK is the name of a function `check_…(strategy)` in this module, without "check_".

This is a separate program for two reasons: virtual devices must be configured before TensorFlow is
initialized, and from TensorFlow 2.15 on, a second MirroredStrategy in a process sometimes fails.
`tests.keras_bridge.test_mirrored` runs the program; the docstring of `mirrored_training` describes
the program's options.
"""

import glob
import io
import sys
import tempfile

import numpy as np
import tensorflow as tf

import legacy_opt
from legacy_opt.compat import estimator
from tests.support import problems
from tests.support.keras.mirrored_fit import check_fit_with, fit_unknown_length
from tests.support.keras.mirrored_training import (
    FEW,
    FULL,
    KERAS_3,
    OPTIMIZERS,
    POWERS,
    REPLICAS,
    SOME,
    STEPS,
    VALUES,
    Loop,
    apply_bridged,
    apply_v1,
    as_one,
    assert_equal,
    assert_everywhere,
    bridged,
    check_optimizer,
    check_powers,
    data,
    loss_here,
    power,
    run_checks,
    session,
    state_of_session,
    summed,
)

v1 = tf.compat.v1


def two_devices(**arguments):
    """Configures two virtual CPU devices, before TensorFlow is initialized; returns a strategy."""
    devices = tf.config.experimental
    (processor,) = devices.list_physical_devices("CPU")
    devices.set_virtual_device_configuration(
        processor, [devices.VirtualDeviceConfiguration()] * REPLICAS
    )
    return tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"], **arguments)


def check_bridge(strategy):
    """Trains with bridged optimizers (made by `to_keras`) in a custom loop."""
    for name in SOME:
        check_optimizer(Loop(strategy, bridged(OPTIMIZERS[name]), apply_bridged), name)
        print("bridge", name)


def check_v1(strategy):
    """Trains with v1 optimizers in a custom loop, without the bridge."""
    batches = data()
    for name in SOME:
        make = OPTIMIZERS[name]
        expected = session(make, [summed(batch) for batch in batches])
        loop = Loop(strategy, make, apply_v1)
        loop.train(batches, expected.steps)
        loop.check_slots(expected)
        assert_everywhere(strategy, loop.step, np.int64(STEPS), "global_step")
        # `variables()` omits distributed non-slot variables, even those of TensorFlow's optimizers.
        check_powers(strategy, loop.optimizer._non_slot_variables(), POWERS.get(name, ()))
        print("v1", name)


def multi(step):
    """Makes a MovingAverageOptimizer around a MultiOptimizer of three optimizers."""
    makers = {"table": "adagrad decay v2", "matrix": "adam", "scalar": "diffgrad"}
    several = legacy_opt.MultiOptimizer(
        [(OPTIMIZERS[name](step), key) for key, name in makers.items()]
    )
    return legacy_opt.MovingAverageOptimizer(several, 0.75, num_updates=step)


def periodic(step):
    """Makes an SWAOptimizer around a LookaheadOptimizer around a MultiOptimizer."""
    several = multi(step).wrapped[0]
    return legacy_opt.SWAOptimizer(legacy_opt.LookaheadOptimizer(several, 3, 0.25), 1, 2)


def check_multi(strategy):
    """Trains with wrappers of a MultiOptimizer in a custom loop, without the bridge."""
    batches = data()
    for make in multi, periodic:
        expected = session(make, [summed(batch) for batch in batches])
        loop = Loop(strategy, make, apply_v1)
        loop.train(batches, expected.steps)
        loop.check_slots(expected)
        assert_everywhere(strategy, loop.step, np.int64(STEPS), "global_step")


def check_names(strategy):
    """Checks that patterns for the end of a variable's name match on all replicas."""
    batches = data()
    makers = {
        "bert": lambda step: legacy_opt.AdamWeightDecayOptimizer(
            0.25, 0.5, exclude_from_weight_decay=["matrix$"]
        ),
        "lars": lambda step: legacy_opt.LARSOptimizer(
            0.25, weight_decay=0.5, eeta=0.5, skip_list=["matrix:0"]
        ),
    }
    for make in makers.values():
        expected = session(make, [summed(batch) for batch in batches])
        Loop(strategy, bridged(make), apply_bridged).train(batches, expected.steps)
        if not KERAS_3:
            Loop(strategy, make, apply_v1).train(batches, expected.steps)


def check_learning_rate(strategy):
    """Checks that setting the attribute `learning_rate` has an effect on all replicas."""
    batches, make = data(), OPTIMIZERS["adam"]

    def make_changing(step):
        return make(step, tf.compat.v2.where(step < STEPS // 2, 0.25, 0.125))

    expected = session(make_changing, [summed(batch) for batch in batches])
    loop = Loop(strategy, bridged(make), apply_bridged)
    loop.train(batches[: STEPS // 2], expected.steps)
    loop.optimizer.learning_rate = 0.125
    loop.train(batches[STEPS // 2 :], expected.steps[STEPS // 2 :])


def check_made_outside(strategy):
    """Checks optimizers created outside the strategy's scope; Keras 3 must raise an error."""
    optimizer = bridged(OPTIMIZERS["adam"])(None)
    if not KERAS_3:
        check_optimizer(Loop(strategy, lambda step: optimizer, apply_bridged), "adam")
        return
    for outside in (optimizer, legacy_opt.versions.keras_3().optimizers.Adam(0.25)):
        loop = Loop(strategy, lambda step: outside, apply_bridged)  # noqa: B023 - called at once
        ours = outside is optimizer
        message = "the optimizer in the strategy" if ours else "Mixing different tf.distribute"
        assert_refused(loop, data(), message, ValueError if ours else RuntimeError)


def check_own_sum(strategy):
    """Checks that gradients which the user has summed over replicas are not summed again."""
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
        return dict(gradients, table=problems.dense(gradients["table"], VALUES["table"]))

    for name in ("adam", "diffgrad"):
        make = OPTIMIZERS[name]
        expected = session(make, [dense(summed(batch)) for batch in batches], sparse=())
        loop = Loop(strategy, bridged(make), apply_summed)
        loop.train(batches, expected.steps)
        loop.check_slots(expected)
        check_powers(strategy, loop.optimizer.weights, POWERS[name])


def check_clipping(strategy):
    """Checks how gradients of several replicas are clipped.

    Keras 2 must clip the sum of the gradients. In versions of Keras 2 that clip before the sum, the
    bridge must raise an error. Keras 3 must sum the clipped gradients of the replicas.
    """
    batches, make = data(), OPTIMIZERS["momentum"]
    loop = Loop(strategy, bridged(make, clipvalue=0.5), apply_bridged)
    if not hasattr(legacy_opt.versions.optimizer_v2(), "_transform_gradients"):
        assert_refused(loop, batches, "need the gradient of all replicas")
        return
    clipped = sum_of_clipped if KERAS_3 else clipped_sum
    expected = session(make, [clipped(batch) for batch in batches])
    loop.train(batches, expected.steps)
    check_clipnorm(strategy, batches)


def clipped_sum(batch):
    """Sums the gradients of all replicas, then clips the sum at 0.5."""
    gradients = summed(batch)
    rows = gradients["table"]
    ids, table = np.unique(rows.ids), problems.dense(rows, VALUES["table"])
    result = {name: np.clip(gradients[name], -0.5, 0.5) for name in ("matrix", "scalar")}
    return dict(result, table=problems.Rows(np.clip(table[ids], -0.5, 0.5), ids))


def sum_of_clipped(batch):
    """Clips the gradients of each replica at 0.5, then sums them over the replicas."""
    one, two = [clipped_sum(alone) for alone in each_replica(batch)]
    both = zip(one["table"], two["table"])
    table = problems.Rows(*[np.concatenate(parts) for parts in both])
    return {
        "matrix": one["matrix"] + two["matrix"],
        "scalar": one["scalar"] + two["scalar"],
        "table": table,
    }


def each_replica(batch):
    """Splits a batch into batches for single replicas."""
    return [
        {name: value[replica : replica + 1] for name, value in batch.items()}
        for replica in range(REPLICAS)
    ]


def check_clipnorm(strategy, batches):
    """Checks clipnorm with a learning rate of 1, so that a step subtracts the clipped gradient."""
    loop = Loop(
        strategy,
        bridged(lambda step: OPTIMIZERS["gradient descent"](step, 1.0), clipnorm=0.5),
        apply_bridged,
    )
    loop.train_step({name: tf.constant(value) for name, value in batches[0].items()})
    parts = each_replica(batches[0]) if KERAS_3 else [batches[0]]
    wanted = VALUES["matrix"].copy()
    for gradient in [summed(part)["matrix"] for part in parts]:
        assert np.linalg.norm(gradient) > 0.5
        wanted -= gradient * 0.5 / np.linalg.norm(gradient)
    for part in strategy.experimental_local_results(loop.variables["matrix"]):
        # TensorFlow rounds the norm and the quotient differently than NumPy.
        np.testing.assert_allclose(part.numpy(), wanted, rtol=0, atol=1e-6)


class OverridingOptimizer(v1.train.GradientDescentOptimizer):
    """Overrides apply_gradients."""

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        return super().apply_gradients(grads_and_vars, global_step, name)


def check_refusal(strategy):
    """Checks that wrappers, and other v1 optimizers that override apply_gradients, raise errors.

    Otherwise, the overriding method would run on only one replica.
    """
    loop = Loop(strategy, bridged(lambda step: OverridingOptimizer(0.25)), apply_bridged)
    assert_refused(loop, data(), "overrides apply_gradients")
    for wrapped in WRAPPED:
        loop = Loop(strategy, bridged(lambda step: wrapped()), apply_bridged)  # noqa: B023
        assert_refused(loop, data(), "in one replica only")


def inside():
    return v1.train.MomentumOptimizer(0.25, 0.5)


WRAPPED = (
    lambda: legacy_opt.MultiOptimizer([(inside(), ".*")]),
    lambda: legacy_opt.MovingAverageOptimizer(inside(), 0.5),
    lambda: legacy_opt.GradientAccumulationOptimizer(inside(), 2),
    lambda: legacy_opt.MultitaskOptimizerWrapper(inside()),
    lambda: legacy_opt.VariableClippingOptimizer(inside(), {}, 1.0),
    lambda: legacy_opt.clip_gradients_by_norm(inside(), 0.5),
)


def assert_refused(loop, batches, message, kind=ValueError):
    try:
        loop.train(batches, batches)
    except kind as error:
        assert message in str(error), error
    else:
        raise AssertionError("no error was raised; expected an error with this message: " + message)


def check_checkpoint(strategy):
    """Checks that a checkpoint of two replicas can be restored on two replicas and on one device.

    The restored training must continue bit for bit.
    """
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
    """Trains with `model.fit`; compares the results with the v1 optimizer in a Session."""
    for name in FEW if FULL else FEW[1:]:
        check_fit_with(strategy, name)
        print("fit", name)


def check_fit_unknown_length(strategy):
    """Trains with `model.fit` on a dataset of unknown length."""
    check_fit_with(strategy, "adam", fit_unknown_length)


class Reader(v1.train.SessionRunHook):
    """When training ends, reads all variables of the graph, including both replicas' copies."""

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
    """Trains with v1 optimizers in an Estimator with `train_distribute`."""
    batches = data()
    halves = [
        {key: value * np.float32(0.5) for key, value in batch.items() if key != "ids"}
        for batch in batches
    ]
    # The Estimator's loss is the mean of the two replicas' losses, so each gradient is halved.
    gradients = [summed(dict(half, ids=b["ids"])) for half, b in zip(halves, batches)]
    makers = dict(OPTIMIZERS, multi=multi, periodic=periodic)
    for name in FEW + ("adagrad decay",) * FULL + ("multi", "periodic"):
        make = makers[name]
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
            optimizer = params["make"](step)
            train_op = optimizer.minimize(loss, global_step=step)
            hooks = [legacy_opt.SlotSummaryHook(optimizer, params["directory"])]
            return estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, training_hooks=hooks)

        with tempfile.TemporaryDirectory() as directory:
            config = estimator.RunConfig(directory, train_distribute=strategy)
            params = {"make": make, "directory": directory}
            trained, reader = estimator.Estimator(model_fn, None, config, params), Reader()
            shown = io.StringIO()
            bar = legacy_opt.ProgressBarHook(total_steps=STEPS, file=shown)
            trained.train(input_fn, hooks=[reader, bar], steps=STEPS)
            assert f" {STEPS}/{STEPS} " in shown.getvalue().split("\r")[-1]
            check_maxima(directory, expected)
            checkpoint = v1.train.NewCheckpointReader(trained.latest_checkpoint())
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


AVERAGING = {  # the gradient is the value, so that each step multiplies the value by 3 / 4
    "moving": (lambda inner: legacy_opt.MovingAverageOptimizer(inner, 0.5), [3.5, 2.875, 2.28125]),
    "snapshots": (
        lambda inner: legacy_opt.SWAOptimizer(inner, average_period=1),
        [3.0, 2.625, 2.3125],
    ),
}


def check_estimator_averages(strategy):
    """Trains, evaluates and continues in an Estimator with the Saver that swaps averages in."""
    for name, (make, averages) in AVERAGING.items():

        def model_fn(features, mode):
            w = v1.get_variable("w", initializer=[4.0, 4.0])
            loss = tf.reduce_sum(tf.square(w)) / 2 + 0 * tf.reduce_sum(features)
            if mode == "eval":
                metrics = {"w": v1.metrics.mean(w)}
                return estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops=metrics)
            optimizer = make(v1.train.GradientDescentOptimizer(0.25))  # noqa: B023
            train_op = optimizer.minimize(loss, v1.train.get_global_step())
            assert optimizer.average(w) is not None
            scaffold = v1.train.Scaffold(saver=optimizer.swapping_saver())
            return estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, scaffold=scaffold)

        def input_fn():
            return v1.data.Dataset.from_tensor_slices(np.zeros([16, 2], "f")).batch(1)

        with tempfile.TemporaryDirectory() as directory:
            config = estimator.RunConfig(directory, train_distribute=strategy)
            trained = estimator.Estimator(model_fn, None, config)
            for steps in 2, 3:
                trained.train(input_fn, max_steps=steps)
                reader = v1.train.NewCheckpointReader(trained.latest_checkpoint())
                shapes = reader.get_variable_to_shape_map()
                (slot,) = [key for key in shapes if key.startswith("w/")]
                assert_equal(reader.get_tensor("w"), np.float32([averages[steps - 1]] * 2), name)
                assert_equal(reader.get_tensor(slot), np.float32([4 * 0.75**steps] * 2), name)
                assert trained.evaluate(input_fn, steps=1)["w"] == averages[steps - 1]
        print("estimator", name)


def check_maxima(directory, expected):
    """Checks that SlotSummaryHook has summarized each slot once, not once for each replica."""
    maxima = {}
    for path in glob.glob(directory + "/events.out*"):
        for event in v1.train.summary_iterator(path):
            for value in event.summary.value:
                if value.tag.startswith("slots/") and value.tag.endswith("/max"):
                    maxima.setdefault(event.step, []).append(value.simple_value)
    slots = [value for key, value in expected.items() if np.ndim(value) and key not in VALUES]
    scalars = [value for key, value in expected.items() if key.startswith("scalar/")]
    assert sorted(maxima[STEPS]) == sorted(np.max(value) for value in slots + scalars)


def main(checks):
    """Runs checks on two replicas."""
    arguments = {}
    if any(check.startswith("estimator") for check in checks):
        # In Sessions of TensorFlow 2.15, the default (a sum by collective operations) hangs.
        arguments["cross_device_ops"] = tf.distribute.ReductionToOneDevice()
    strategy = two_devices(**arguments)
    run_checks([globals()["check_" + check] for check in checks], strategy)


if __name__ == "__main__":
    main([argument for argument in sys.argv[1:] if not argument.startswith("--")])
