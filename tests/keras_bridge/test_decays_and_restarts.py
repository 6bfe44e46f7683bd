"""Tests that hyperparameters computed from a global step follow Keras' `iterations`.

Expected are the weights of the same v1 optimizer in a Session, without a restart. A bridged
optimizer trains in a TF1 graph, also with a restart from a `tf.train.Checkpoint` that contains
`iterations` but not the graph's global step, and eagerly.
"""

import contextlib
import functools
import gc
import warnings

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import versions
from legacy_opt.compat import compare_with_session, load_v1_checkpoint, to_keras
from tests.support.keras.keras_apis import OPTIMIZER_V2

v1 = tf.compat.v1
STEPS = 6
GRADIENT = np.ones([1], np.float32)
Momentum = v1.train.MomentumOptimizer


def decayed(value, step):
    return v1.train.exponential_decay(value, step, 3, 0.5)


def multi(optimizer):
    return legacy_opt.MultiOptimizer([(optimizer, ".*")])


class Own(v1.train.Optimizer):
    """Momentum that keeps its momentum in a list, not in `_momentum`."""

    def __init__(self, learning_rate, momentum):
        super().__init__(False, "Own")
        self._learning_rate, self._settings = learning_rate, [momentum]

    def _create_slots(self, var_list):
        for variable in var_list:
            self._zeros_slot(variable, "m", "Own")

    def _resource_apply_dense(self, grad, handle):
        (momentum,) = self._settings
        momentum = momentum() if callable(momentum) else momentum
        slot = self.get_slot(handle, "m")
        with tf.control_dependencies([slot.assign(momentum * slot + grad)]):
            return handle.assign_sub(self._learning_rate * slot.read_value(), read_value=False)


class Halving(tf.keras.optimizers.schedules.LearningRateSchedule):
    """A schedule with state that its configuration lacks, and no configuration."""

    scale = 1.0

    def __call__(self, step):
        return self.scale * tf.pow(0.5, tf.cast(step, tf.float32))


def halving(step):
    schedule = Halving()
    schedule.scale = 0.5
    return functools.partial(schedule, step) if tf.executing_eagerly() else schedule(step)


# {name: a function of the global step that makes an optimizer}
MAKERS = {
    "learning rate": lambda step: Momentum(decayed(0.1, step), 0.9),
    "momentum": lambda step: Momentum(0.1, decayed(0.9, step)),
    "of another dtype": lambda step: Momentum(0.1, decayed(tf.constant(0.9, tf.float64), step)),
    "computed from another": lambda step: legacy_opt.PowerSignOptimizer(0.1, decayed(2.0, step)),
    "in a list": lambda step: Own(0.1, decayed(0.9, step)),
    "own schedule": lambda step: Momentum(0.1, halving(step)),
    "several optimizers": lambda step: legacy_opt.MultiOptimizer(
        [(Momentum(decayed(0.1, step), decayed(0.9, step)), ".*")]
    ),
    "accumulated": lambda step: legacy_opt.GradientAccumulationOptimizer(
        Momentum(decayed(0.1, step), decayed(0.9, step)), 2
    ),
}
# These are tensors of a graph, and have no counterpart in eager execution.
GRAPH_MAKERS = {
    "rate as a function": lambda step: Momentum(lambda: decayed(0.1, step), 0.9),
    "float64 rate": lambda step: Momentum(decayed(tf.constant(0.1, tf.float64), step), 0.9),
    "cond": lambda step: Momentum(
        0.1, tf.cond(step < 3, lambda: tf.constant(0.9), lambda: tf.constant(0.2))
    ),
    "function": lambda step: Momentum(0.1, functools.partial(tf.subtract, 1.0, decayed(0.9, step))),
}


def graph_run(make, train, steps=STEPS, path=None, save=None):
    """Trains in a new graph, and returns the weight after each step.

    Args:
      make: makes the optimizer.
      train: a function of the optimizer, the pairs and the global step that returns an operation.
      steps: the number of steps.
      path: the path of a checkpoint from which training continues.
      save: a folder for a checkpoint; then the result is the checkpoint's path as well.
    """
    with tf.Graph().as_default(), v1.Session() as session:
        step = v1.train.get_or_create_global_step()
        w = v1.get_variable("w", initializer=np.zeros([1], np.float32), use_resource=True)
        optimizer = make(step)
        train_op = train(optimizer, [(tf.constant(GRADIENT), w)], step)
        session.run(step.initializer)  # first, because initial values of slots may read it
        session.run(v1.global_variables_initializer())
        checkpoint = None
        if path or save:
            checkpoint = v1.train.Checkpoint(optimizer=optimizer, w=w)
        if path:
            checkpoint.restore(path).run_restore_ops(session)
        weights = []
        for _ in range(steps):
            session.run(train_op)
            weights.append(session.run(w)[0])
        counted = session.run(step)
        if save:
            return weights, checkpoint.save(str(save / "c"), session=session)
    return weights, counted


def expected_of(make):
    train = lambda optimizer, pairs, step: optimizer.apply_gradients(pairs, step)  # noqa: E731
    return graph_run(make, train)[0]


def by_keras(optimizer, pairs, step):
    return optimizer.apply_gradients(pairs)


def bridged(make):
    return lambda step: to_keras(make(step))


@pytest.mark.parametrize("name", [*MAKERS, *GRAPH_MAKERS])
def test_a_graph_and_a_restart(api, name, tmp_path):
    make = {**MAKERS, **GRAPH_MAKERS}[name]
    expected = expected_of(make)
    made = lambda step: api.bridged(make(step))  # noqa: E731
    actual, counted = graph_run(made, by_keras)
    np.testing.assert_array_equal(actual, expected)
    assert counted == (STEPS // 2 if name == "accumulated" else STEPS)
    first, path = graph_run(made, by_keras, 3, save=tmp_path)
    then, _ = graph_run(made, by_keras, STEPS - 3, path=path)
    np.testing.assert_array_equal(first + then, expected)


def test_a_constant_in_a_branch_of_v1_control_flow():
    with versions.v1_control_flow():
        expected = expected_of(GRAPH_MAKERS["cond"])
        actual, _ = graph_run(bridged(GRAPH_MAKERS["cond"]), by_keras)
    np.testing.assert_array_equal(actual, expected)


def test_a_read_in_a_branch_warns():
    make = lambda step: Momentum(  # noqa: E731
        0.1, tf.cond(step < 3, lambda: decayed(0.9, step), lambda: tf.constant(0.2))
    )
    expected = expected_of(make)
    with contextlib.ExitStack() as stack:
        if not versions.has_contrib():  # on TensorFlow 1.15, the global step is a ref variable
            stack.enter_context(
                pytest.warns(legacy_opt.GlobalStepWarning, match="in a branch, loop or function")
            )
        actual, _ = graph_run(bridged(make), by_keras)
    np.testing.assert_array_equal(actual, expected)


def test_iterations_may_be_the_global_step():
    def made(step):
        optimizer = OPTIMIZER_V2.bridged(MAKERS["momentum"](step))
        optimizer.iterations = step  # as TensorFlow's Estimators do
        return optimizer

    actual, counted = graph_run(made, by_keras)
    assert counted == STEPS
    np.testing.assert_array_equal(actual, expected_of(MAKERS["momentum"]))


@pytest.mark.parametrize("zero", [0, 0.0])
def test_a_resource_variable_named_global_step(zero):
    """`tf.compat.v1.train.get_global_step` raises a TypeError for it."""
    with tf.Graph().as_default(), v1.Session() as session:
        step = v1.get_variable("global_step", initializer=zero, use_resource=True)
        w = v1.get_variable("w", initializer=np.zeros([1], np.float32), use_resource=True)
        optimizer = OPTIMIZER_V2.bridged(MAKERS["learning rate"](step))
        train_op = by_keras(optimizer, [(tf.constant(GRADIENT), w)], step)
        session.run(v1.global_variables_initializer())
        weights = [(session.run(train_op), session.run(w))[1][0] for _ in range(STEPS)]
    np.testing.assert_array_equal(weights, expected_of(MAKERS["learning rate"]))


def test_a_placeholder_is_no_step():
    with tf.Graph().as_default(), v1.Session() as session:
        step = v1.placeholder(tf.int64, [], name="global_step")
        w = v1.get_variable("w", initializer=np.zeros([1], np.float32), use_resource=True)
        train_op = by_keras(to_keras(Momentum(decayed(0.1, step), 0.9)), [(tf.ones([1]), w)], step)
        session.run(v1.global_variables_initializer())
        weights = []
        for number in range(STEPS):
            session.run(train_op, {step: number})
            weights.append(session.run(w)[0])
    np.testing.assert_array_equal(weights, expected_of(MAKERS["learning rate"]))


def test_an_integer_variable_is_no_step():
    def make(step):
        layers = v1.get_variable("layers", initializer=2, trainable=False, use_resource=True)
        return legacy_opt.MomentumWOptimizer(0.01 * tf.cast(layers, tf.float32), 0.1, 0.9)

    np.testing.assert_array_equal(graph_run(bridged(make), by_keras)[0], expected_of(make))


@pytest.mark.parametrize("name", MAKERS)
def test_eager_execution(api, name):
    step = tf.Variable(0, dtype=tf.int64, trainable=False, name="global_step")
    optimizer = api.bridged(MAKERS[name](step))
    w = api.variable(np.zeros([1], np.float32))
    actual = []
    for _ in range(STEPS):
        optimizer.apply_gradients([(tf.constant(GRADIENT), w)])
        actual.append(np.asarray(tf.convert_to_tensor(w))[0])
    np.testing.assert_array_equal(actual, expected_of(MAKERS[name]))
    if name not in ("in a list", "own schedule", "several optimizers", "accumulated"):
        assert compare_with_session(MAKERS[name](step)).equal


def test_a_decay_reads_a_variable_in_each_step():
    base = tf.Variable(0.9, trainable=False)
    step = tf.Variable(0, dtype=tf.int64, trainable=False)
    optimizer, w = to_keras(Momentum(0.1, decayed(base, step))), tf.Variable([0.0])
    weights, slot, value = [], 0.0, 0.0
    for number in range(STEPS):
        if number == 3:
            base.assign(0.02)
        optimizer.apply_gradients([(tf.constant(GRADIENT), w)])
        slot = (0.9 if number < 3 else 0.02) * 0.5 ** (number / 3) * slot + 1
        value -= 0.1 * slot
        weights.append(value)
    np.testing.assert_allclose(w.numpy()[0], weights[-1], rtol=1e-5)  # computed in float64


class Counting:
    def __init__(self, step):
        self.step = step

    def __call__(self):
        return 0.9

    method = __call__


# {how a function refers to a step: a function of the step that makes it}
READERS = {
    "a decay inside": lambda step: (lambda decay: lambda: 1.0 - decay())(decayed(0.9, step)),
    "keyword": lambda step: functools.partial(lambda global_step: 0.9, global_step=step),
    "object": Counting,
    "method": lambda step: Counting(step).method,
    "attribute": lambda step: (lambda holder: lambda: holder.step and 0.9)(Counting(step)),
    "item": lambda step: (lambda items: lambda: items[0] and 0.9)([step]),
    "default": lambda step: lambda count=step: 0.9,
}


@pytest.mark.parametrize("how", READERS)
def test_a_function_that_may_read_a_step_warns(how):
    step = tf.Variable(0, dtype=tf.int64, trainable=False)
    for arguments in (0.1, READERS[how](step)), (READERS[how](step), 0.9):
        with pytest.warns(legacy_opt.GlobalStepWarning, match="stays constant"):
            to_keras(Momentum(*arguments))


def test_fit_initializes_the_global_step():
    home = OPTIMIZER_V2.keras
    with tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
        model = home.Sequential([home.layers.Dense(1, input_shape=(2,), use_bias=False)])
        model.compile(OPTIMIZER_V2.bridged(MAKERS["momentum"](step)), "mse")
        ones = np.ones([8, 2], np.float32)
        model.fit(ones, ones[:, :1], batch_size=4, epochs=2, verbose=0)
        assert home.backend.get_value(step) == 4


@pytest.mark.keras3
def test_a_checkpoint_is_loaded_before_the_optimizer_is_built(tmp_path):
    def make():
        routes = [(Momentum(0.1, 0.9), "a"), (Momentum(0.2, 0.5), "b")]
        return legacy_opt.MultiOptimizer(routes)

    with tf.Graph().as_default(), v1.Session() as session:
        pairs = [(tf.ones([2]), v1.get_variable(name, [2], use_resource=True)) for name in "ab"]
        train_op = make().apply_gradients(pairs, v1.train.get_or_create_global_step())
        session.run(v1.global_variables_initializer())
        session.run(train_op)
        path = v1.train.Saver().save(session, str(tmp_path / "model.ckpt"))
    variables = [tf.Variable(tf.zeros([2]), name=name) for name in "ab"]
    optimizer = to_keras(make(), api="keras3")
    load_v1_checkpoint(path, variables, optimizer)
    for variable in variables:
        assert optimizer.get_slot(variable, "momentum").numpy().tolist() == [1.0, 1.0]


def test_a_function_is_called_as_often_as_in_a_session():
    calls = []

    def make(step):
        return Momentum(0.1, lambda: calls.append(step) or decayed(0.9, step))

    expected = expected_of(make)
    alone = len(calls)
    actual, counted = graph_run(bridged(make), by_keras)
    np.testing.assert_array_equal(actual, expected)
    assert (len(calls), counted) == (2 * alone, STEPS)


def test_counters_of_models_are_no_steps(recwarn):
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(2,))])
    model.compile("sgd", "mse")
    model.fit(np.ones([4, 2]), np.ones([4, 1]), verbose=0)
    to_keras(Momentum(0.1, lambda: 0.9 if model else 0.5))
    assert not [each for each in recwarn if each.category is legacy_opt.GlobalStepWarning]


@pytest.mark.parametrize("wrap", [lambda each: each, multi], ids=["leaf", "wrapper"])
@pytest.mark.parametrize("every", [1, 3])
def test_two_optimizers_share_a_step(api, every, wrap):
    """As in a GAN: the optimizer that increments the global step may run more often."""
    results = []
    for bridged_ones in False, True:
        with tf.Graph().as_default(), v1.Session() as session:
            step = v1.train.get_or_create_global_step()
            pairs = [
                (tf.constant(GRADIENT), v1.get_variable(name, [1], use_resource=True))
                for name in "ab"
            ]
            optimizers = [wrap(Momentum(decayed(0.1, step), 0.9)) for _ in pairs]
            if bridged_ones:
                ops = [api.bridged(optimizers[0]).apply_gradients(pairs[:1])]
                gc.collect()  # only the operation still needs the optimizer
                with pytest.warns(legacy_opt.GlobalStepWarning, match="so train both"):
                    ops.append(api.bridged(optimizers[1]).apply_gradients(pairs[1:]))
            else:
                ops = [optimizers[0].apply_gradients(pairs[:1], step)]
                ops.append(optimizers[1].apply_gradients(pairs[1:]))
            session.run([step.initializer, v1.global_variables_initializer()])
            for variable in pairs[0][1], pairs[1][1]:
                session.run(variable.assign([0.0]))
            for number in range(STEPS):
                session.run(ops[0])
                if (number + 1) % every == 0:
                    session.run(ops[1])
            results.append(np.ravel(session.run([pairs[0][1], pairs[1][1], [step]])))
    np.testing.assert_array_equal(*results)


def test_a_step_that_something_else_increments(api):
    """A v1 optimizer increments the global step: Keras does not increment it again."""
    with tf.Graph().as_default(), v1.Session() as session:
        step = v1.train.get_or_create_global_step()
        one, other = (v1.get_variable(name, [1], use_resource=True) for name in "ab")
        rate = decayed(0.1, step)
        op = v1.train.GradientDescentOptimizer(rate).apply_gradients([(tf.ones([1]), one)], step)
        with tf.control_dependencies([op]):
            gradient = tf.ones([1])
        bridged = api.bridged(v1.train.GradientDescentOptimizer(0.1, name="Other"))
        follows = api.bridged(Momentum(decayed(0.1, bridged.iterations), 0.9))
        ops = [bridged.apply_gradients([(gradient, other)])]
        ops.append(follows.apply_gradients([(gradient, other)]))
        session.run([step.initializer, v1.global_variables_initializer()])
        for number in range(1, 4):
            session.run(ops)
            found = session.run([step, tf.convert_to_tensor(bridged.iterations)])
            assert found == [number, number], number


INCREMENTS = {
    "addition": lambda step: v1.assign_add(step, 1),
    "subtraction": lambda step: v1.assign_sub(step, tf.constant(-1, tf.int64)),
    "assignment": lambda step: v1.assign(step, step + 1),
    "limited": lambda step: step.count_up_to(100),
    "branch": lambda step: tf.cond(
        v1.placeholder_with_default(True, []),
        lambda: tf.identity(v1.assign_add(step, 1)),
        lambda: tf.constant(0, tf.int64),
    ),
    "loop": lambda step: tf.while_loop(
        lambda i: i < 1, lambda i: i + 1 + 0 * v1.assign(step, step + 1), [tf.constant(0, tf.int64)]
    ),
    "function": lambda step: tf.function(lambda: step.assign_add(1).value())(),
}


@pytest.mark.parametrize("how", INCREMENTS)
@pytest.mark.parametrize("control_flow", [contextlib.nullcontext, versions.v1_control_flow])
def test_a_step_that_the_program_increments(api, how, control_flow):
    results = []
    for bridge in lambda each: each, api.bridged:
        with tf.Graph().as_default(), v1.Session() as session, control_flow():
            step = v1.get_variable("step", initializer=np.int64(0), use_resource=True)
            w = v1.get_variable("w", initializer=np.zeros([1], np.float32), use_resource=True)
            increment = INCREMENTS[how](step)
            train_op = bridge(Momentum(decayed(0.1, step), 0.9)).apply_gradients(
                [(tf.ones([1]), w)]
            )
            session.run(v1.global_variables_initializer())
            for _ in range(STEPS):
                session.run(train_op)
                session.run(increment)
            results.append([session.run(step), session.run(w)[0]])
    np.testing.assert_array_equal(*results)


def test_assignments_that_are_no_increments():
    def train(optimizer, pairs, step):
        v1.assign(step, step % 1000)
        v1.assign(step, tf.maximum(step, tf.constant(0, tf.int64)))
        return by_keras(optimizer, pairs, step)

    for make in MAKERS["learning rate"], GRAPH_MAKERS["rate as a function"]:
        weights, counted = graph_run(bridged(make), train)
        np.testing.assert_array_equal(weights, expected_of(make))
        assert counted == STEPS


def trained(session, train_op, variables):
    """Returns the values of variables, zero before, after STEPS training steps."""
    session.run(v1.global_variables_initializer())
    session.run([variable.assign(tf.zeros_like(variable)) for variable in variables])
    for _ in range(STEPS):
        session.run(train_op)
    return np.concatenate([np.ravel(value) for value in session.run(variables)])


@pytest.mark.parametrize("order", ["at the same time", "one after the other"])
def test_optimizers_that_run_in_one_call(api, order):
    """One reads the global step as in v1, not after another has incremented it."""
    results = []
    for bridge in None, api.bridged:
        with tf.Graph().as_default(), v1.Session() as session, warnings.catch_warnings():
            warnings.simplefilter("ignore", legacy_opt.GlobalStepWarning)  # tested above
            step = v1.get_variable("my_step", initializer=np.int64(0), use_resource=True)
            rate = decayed(0.1, step)
            variables = [v1.get_variable(name, [1], use_resource=True) for name in "abc"]
            optimizers = [Momentum(rate, 0.9, name=each.op.name.upper()) for each in variables]
            if bridge is not None:
                optimizers = [bridge(each) for each in optimizers]
            ops = []
            for number, (optimizer, variable) in enumerate(zip(optimizers, variables)):
                arguments = [step] if bridge is None and number == 0 else []
                with tf.control_dependencies(ops if order == "one after the other" else []):
                    ops.append(optimizer.apply_gradients([(tf.ones([1]), variable)], *arguments))
            results.append(trained(session, ops, [*variables, step]))
    np.testing.assert_array_equal(*results)


def test_a_decay_that_waits_for_another_optimizer():
    results = []
    for bridge in None, to_keras:
        with tf.Graph().as_default(), v1.Session() as session, warnings.catch_warnings():
            warnings.simplefilter("ignore", legacy_opt.GlobalStepWarning)
            step = v1.get_variable("my_step", initializer=np.int64(0), use_resource=True)
            variables = [v1.get_variable(name, [1], use_resource=True) for name in "ab"]
            op = tf.no_op()
            for variable in variables:
                with tf.control_dependencies([op]):
                    optimizer = Momentum(decayed(0.1, step), 0.9, name=variable.op.name.upper())
                if bridge is not None:
                    optimizer = bridge(optimizer)
                arguments = [step] if bridge is None and variable is variables[0] else []
                op = optimizer.apply_gradients([(tf.ones([1]), variable)], *arguments)
            results.append(trained(session, op, [*variables, step]))
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("first", ["v1", "Keras"])
def test_an_optimizer_that_replaces_another(api, first):
    """As when a model is compiled again, or an imported graph with its optimizer is fine-tuned."""
    results = []
    for bridged_one in False, True:
        with tf.Graph().as_default(), v1.Session() as session:
            step = v1.train.get_or_create_global_step()
            pairs = [(tf.constant(GRADIENT), v1.get_variable("w", [1], use_resource=True))]
            old, new, third = (Momentum(decayed(0.1, step), 0.9, name=name) for name in "ABC")
            if bridged_one and first == "Keras":
                ops = [api.bridged(old).apply_gradients(pairs)]
            else:
                ops = [old.apply_gradients(pairs, step)]
            if bridged_one:
                with pytest.warns(legacy_opt.GlobalStepWarning, match="taken to replace it"):
                    ops.append(api.bridged(new).apply_gradients(pairs))
                last = api.bridged(third)
                with pytest.warns(legacy_opt.GlobalStepWarning, match="taken to replace it"):
                    ops += [last.apply_gradients(pairs), last.apply_gradients(pairs)]
            else:
                ops += [each.apply_gradients(pairs, step) for each in (new, third, third)]
            session.run([step.initializer, v1.global_variables_initializer()])
            session.run(pairs[0][1].assign([0.0]))
            for op in ops:
                for _ in range(STEPS):
                    session.run(op)
            results.append([session.run(step), session.run(pairs[0][1])[0]])
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("first", ["v1", "Keras"])
def test_an_imported_graph_is_trained_further(first, tmp_path):
    path = str(tmp_path / "model.ckpt")
    with tf.Graph().as_default(), v1.Session() as session:
        step = v1.train.get_or_create_global_step()
        w = v1.get_variable("w", initializer=np.zeros([1], np.float32), use_resource=True)
        optimizer, pairs = Momentum(decayed(0.1, step), 0.9), [(tf.constant(GRADIENT), w)]
        if first == "v1":
            train_op = optimizer.apply_gradients(pairs, step)
        else:
            train_op = OPTIMIZER_V2.bridged(optimizer).apply_gradients(pairs)
        session.run(v1.global_variables_initializer())
        session.run(train_op)
        v1.train.Saver().save(session, path)
    results = []
    for bridged_one in False, True:
        with tf.Graph().as_default(), v1.Session() as session:
            saver = v1.train.import_meta_graph(path + ".meta")
            step, pairs = v1.train.get_global_step(), [(tf.ones([1]), v1.trainable_variables()[0])]
            optimizer = v1.train.GradientDescentOptimizer(decayed(0.1, step))
            if bridged_one:
                with pytest.warns(legacy_opt.GlobalStepWarning, match="taken to replace it"):
                    train_op = to_keras(optimizer).apply_gradients(pairs)
            else:
                train_op = optimizer.apply_gradients(pairs, step)
            session.run(v1.global_variables_initializer())
            saver.restore(session, path)
            for _ in range(STEPS):
                session.run(train_op)
            results.append([session.run(step), session.run(pairs[0][1])[0]])
    np.testing.assert_array_equal(*results)


def test_an_integer_variable_can_still_be_loaded():
    with tf.Graph().as_default(), v1.Session() as session:
        epoch = v1.get_variable("epoch", initializer=0, trainable=False, use_resource=True)
        w = v1.get_variable("w", [1], use_resource=True)
        optimizer = to_keras(Momentum(decayed(0.1, epoch), 0.9))
        with pytest.warns(legacy_opt.GlobalStepWarning, match="an integer variable that begins"):
            optimizer.apply_gradients([(tf.ones([1]), w)])
        epoch.load(3, session)
        assert session.run(epoch) == 3


def test_an_optimizer_that_failed_does_not_increment_the_step(api):
    with tf.Graph().as_default(), v1.Session() as session:
        step = v1.train.get_or_create_global_step()
        w = v1.get_variable("w", [1], use_resource=True)
        failed = api.bridged(v1.train.GradientDescentOptimizer(decayed(0.1, step)))
        with pytest.raises(ValueError):
            failed.apply_gradients([(tf.ones([2]), w)])
        bridged = api.bridged(v1.train.GradientDescentOptimizer(decayed(0.1, step)))
        op = bridged.apply_gradients([(tf.ones([1]), w)])
        session.run([step.initializer, v1.global_variables_initializer()])
        session.run([op])
        assert session.run(step) == 1
        again = api.bridged(v1.train.GradientDescentOptimizer(decayed(0.1, step)))
        with pytest.warns(legacy_opt.GlobalStepWarning, match="which trains the same variables"):
            again.apply_gradients([(tf.ones([1]), w)])


def branch_run(make, train, inside):
    """Trains in a branch of the graph, like `graph_run`; makes the optimizer inside on request."""

    def branched(optimizer, pairs, step):
        def branch():
            with tf.control_dependencies([train(optimizer or make(step), pairs, step)]):
                return tf.constant(1)

        wanted = v1.placeholder_with_default(True, [])
        return tf.cond(wanted, branch, lambda: tf.constant(0))

    return graph_run((lambda step: None) if inside else make, branched)


@pytest.mark.parametrize("name", ["momentum", "learning rate", "rate as a function"])
def test_a_step_in_a_branch_of_the_graph(api, name):
    make = {**MAKERS, **GRAPH_MAKERS}[name]
    by_v1 = lambda optimizer, pairs, step: optimizer.apply_gradients(pairs, step)  # noqa: E731
    made = lambda step: api.bridged(make(step))  # noqa: E731
    for inside in (False, True) if api is OPTIMIZER_V2 else (False,):  # Keras 3 makes variables
        weights, counted = branch_run(made, by_keras, inside)
        np.testing.assert_array_equal(weights, branch_run(make, by_v1, inside)[0])
        assert counted == STEPS


def test_a_decay_with_a_loop_of_v1(api):
    def make(step):
        start = [tf.constant(0), 0.1 * tf.cast(step, tf.float32)]
        return Momentum(
            0.1, tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 0.9), start)[1]
        )

    with versions.v1_control_flow():
        expected = expected_of(make)
        with pytest.warns(legacy_opt.GlobalStepWarning, match="in a branch, loop or function"):
            actual, _ = graph_run(lambda step: api.bridged(make(step)), by_keras)
    np.testing.assert_array_equal(actual, expected)


def test_slots_that_begin_at_a_decay(api):
    make = lambda step: legacy_opt.AdamWOptimizer(0.1, 0.1, decayed(0.9, step))  # noqa: E731
    actual, _ = graph_run(lambda step: api.bridged(make(step)), by_keras)
    np.testing.assert_array_equal(actual, expected_of(make))
