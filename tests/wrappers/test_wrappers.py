"""Compares clipping wrappers, and wrappers from tf.contrib, with NumPy references."""

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from tests.support import problems, running
from tests.support.problems import Rows
from tests.support.running import WAYS
from tests.wrappers.inner_optimizers import RATE, momentum, sgd

v1 = tf.compat.v1


# NumPy references (oracles) of the wrappers.


def by_norm(gradient, limit, norm):
    return gradient * limit / max(norm, limit)


def train_clipped(problem, clip):
    """Trains by gradient descent; `clip` is called with a dict of all gradients of a step."""
    values, steps = {name: value.copy() for name, value in problem.values.items()}, []
    for step in problem.gradients:
        whole = {name: problems.dense(gradient, values[name]) for name, gradient in step.items()}
        for name, gradient in clip(whole).items():
            values[name] = values[name] - RATE * gradient
        steps.append(dict(values))
    return steps, {}


def clip_value(grads):
    return {name: np.clip(gradient, -0.5, 0.75) for name, gradient in grads.items()}


def clip_norm(grads):
    return {name: by_norm(grad, 0.8, np.linalg.norm(grad)) for name, grad in grads.items()}


def clip_global_norm(grads):
    norm = np.sqrt(sum(np.sum(np.square(gradient)) for gradient in grads.values()))
    return {name: by_norm(gradient, 1.5, norm) for name, gradient in grads.items()}


def train_with_clipped_rows(problem):
    values, steps = {name: value.copy() for name, value in problem.values.items()}, []
    for step in problem.gradients:
        for name, gradient in step.items():
            value = values[name] - RATE * problems.dense(gradient, values[name])
            for row in set(gradient.ids) if isinstance(gradient, Rows) else range(len(value)):
                value[row] = by_norm(value[row], 0.7, np.linalg.norm(value[row]))
            values[name] = value
        steps.append(dict(values))
    return steps, {}


def train_averaged(problem, sequential, counted):
    steps, _ = train_clipped(problem, dict)
    averages = {name: value.copy() for name, value in problem.values.items()}
    before = problem.values
    for number, after in enumerate(steps):
        count = number + 1 if sequential else number
        decay = min(0.6, (1 + count) / (10 + count)) if counted else 0.6
        for name, average in averages.items():
            value = (after if sequential else before)[name]
            averages[name] = average - np.float32(1 - decay) * (average - value)
        before = after
    return steps, {(name, "moving_average"): value for name, value in averages.items()}


def train_with_lookahead(problem):
    """Synchronizes the slow weights after the second and the fourth step."""
    values, steps = {name: value.copy() for name, value in problem.values.items()}, []
    slow = dict(values)
    for number, step in enumerate(problem.gradients, 1):
        for name, gradient in step.items():
            values[name] = values[name] - RATE * problems.dense(gradient, values[name])
            if number % 2 == 0:
                slow[name] = slow[name] + np.float32(0.3) * (values[name] - slow[name])
                values[name] = slow[name]
        steps.append(dict(values))
    return steps, {(name, "slow"): value for name, value in slow.items()}


def train_with_snapshots(problem):
    """Averages snapshots after the steps 1 and 3, which are counted from 0."""
    steps, _ = train_clipped(problem, dict)
    means = {name: (steps[1][name] + steps[3][name]) / 2 for name in problem.values}
    return steps, {(name, "average"): value for name, value in means.items()}


def train_multitask(problem):
    values, steps = {name: value.copy() for name, value in problem.values.items()}, []
    velocity = {name: np.zeros_like(value) for name, value in values.items()}
    for step in problem.gradients:
        for name, gradient in step.items():
            whole = problems.dense(gradient, values[name])
            if np.any(whole != 0):
                rows = sorted(set(gradient.ids)) if isinstance(gradient, Rows) else slice(None)
                velocity[name][rows] = 0.9 * velocity[name][rows] + whole[rows]
                values[name] = values[name].copy()
                values[name][rows] -= RATE * velocity[name][rows]
        steps.append(dict(values))
    return steps, {(name, "momentum"): value for name, value in velocity.items()}


def averaging(sequential, counted):
    def make(step):
        return legacy_opt.MovingAverageOptimizer(sgd(), 0.6, step if counted else None, sequential)

    return make, lambda problem: train_averaged(problem, sequential, counted)


class ClipsRows:
    """Creates a VariableClippingOptimizer in the first step, when the variables are known."""

    def __init__(self):
        self.optimizer = None

    def apply_gradients(self, grads_and_vars, global_step):
        if self.optimizer is None:
            dims = [(variable, [-1]) for _, variable in grads_and_vars]
            self.optimizer = legacy_opt.VariableClippingOptimizer(sgd(), dims, 0.7)
        return self.optimizer.apply_gradients(grads_and_vars, global_step=global_step)

    def get_slot_names(self):
        return self.optimizer.get_slot_names()


WRAPPERS = {
    "value": (
        lambda step: legacy_opt.ClipByValueOptimizer(sgd(), -0.5, 0.75),
        lambda problem: train_clipped(problem, clip_value),
    ),
    "norm": (
        lambda step: legacy_opt.ClipByNormOptimizer(sgd(), tf.constant(0.8, tf.float64)),
        lambda problem: train_clipped(problem, clip_norm),
    ),
    "global-norm": (
        lambda step: legacy_opt.ClipByGlobalNormOptimizer(sgd(), lambda: 1.5),
        lambda problem: train_clipped(problem, clip_global_norm),
    ),
    "variables": (lambda step: ClipsRows(), train_with_clipped_rows),
    "average": averaging(True, False),
    "average-counted": averaging(True, True),
    "average-beside": averaging(False, True),
    "lookahead": (
        lambda step: legacy_opt.LookaheadOptimizer(sgd(), 2, slow_step_size=0.3),
        train_with_lookahead,
    ),
    "snapshots": (lambda step: legacy_opt.SWAOptimizer(sgd(), 1, 2), train_with_snapshots),
    "multitask": (
        lambda step: legacy_opt.MultitaskOptimizerWrapper(momentum()),
        train_multitask,
    ),
}


def problem_with_zeros():
    """Returns a problem of three variables; in each step, one variable has a zero gradient."""
    problem = problems.everything(only=("vector", "matrix", "table"), steps=5)
    gradients = []
    for number, step in enumerate(problem.gradients):
        step = dict(step)
        zeros = sorted(step)[number % 3]
        if isinstance(step[zeros], Rows):  # rows of equal ids, whose sum is zero
            values, ids = step[zeros]
            step[zeros] = Rows(np.concatenate([values, -values]), np.concatenate([ids, ids]))
        else:
            step[zeros] = np.zeros_like(step[zeros])
        gradients.append(step)
    return problem._replace(gradients=gradients)


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_run_equals_numpy(wrapper, way):
    make, train = WRAPPERS[wrapper]
    problem = problem_with_zeros()
    if wrapper == "variables":
        kept = {name: value for name, value in problem.values.items() if name != "vector"}
        steps = [{name: step[name] for name in kept} for step in problem.gradients]
        problem = problem._replace(values=kept, gradients=steps)
    steps, slots = train(problem)
    trace = WAYS[way](problem, make)
    running.assert_close(trace, running.Trace(steps, slots), 2e-6, 2e-6)


# Variable clipping.


@pytest.mark.parametrize("use_resource", [False, True])
def test_only_rows_leave_the_parameter_server(use_resource):
    setter = v1.train.replica_device_setter(cluster={"ps": ["ps:1"], "worker": ["worker:1"]})
    with tf.Graph().as_default() as graph, v1.device(setter):
        table = v1.get_variable("t", [9, 2], use_resource=use_resource)
        optimizer = legacy_opt.VariableClippingOptimizer(sgd(), [(table, [1])], 1.0)
        grad = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([3]), [9, 2])
        step = optimizer.apply_gradients([(grad, table)], name="step")
        gathers = [op for op in graph.get_operations() if "Gather" in op.type]
        sources = [op.inputs[0].op for op in gathers]
        assert gathers and all("/job:ps" in op.device for op in gathers + sources)
        assert step.name == "step"


@pytest.mark.parametrize("use_resource", [False, True])
def test_a_row_with_a_repeated_id_is_clipped_once(use_resource):
    with tf.Graph().as_default():
        table = v1.get_variable("t", initializer=tf.fill([3, 2], 2.0), use_resource=use_resource)
        optimizer = legacy_opt.VariableClippingOptimizer(sgd(), [(table, [1])], 1.0)
        grad = tf.IndexedSlices(tf.constant([[0.0, 1.0], [0.0, 1.0]]), tf.constant([1, 1]), [3, 2])
        step = optimizer.apply_gradients([(grad, table)])
        value = running.after(step, table)
    expected = np.array([[2, 2], np.array([2, 1]) / np.sqrt(5), [2, 2]])
    np.testing.assert_allclose(value, expected, rtol=1e-6)


def test_dimensions_from_the_end_and_references_as_keys():
    table = tf.Variable([[3.0, 4.0], [0.3, 0.4]])
    reference = table.ref() if hasattr(table, "ref") else table.experimental_ref()
    optimizer = legacy_opt.VariableClippingOptimizer(sgd(), {reference: [-2]}, 2.5)
    grad = tf.IndexedSlices(tf.constant([[0.0, 0.0]]), tf.constant([1]), [2, 2])
    optimizer.apply_gradients([(grad, table)])
    np.testing.assert_allclose(np.linalg.norm(table.numpy(), axis=0), [2.5, 2.5], rtol=1e-6)


def test_a_dimension_from_the_end_of_an_unknown_rank():
    """Dimension -2 may be the first dimension, so the norm includes rows without a gradient."""
    with tf.Graph().as_default():
        table = v1.Variable(
            v1.placeholder_with_default([[3.0], [4.0]], None), validate_shape=False, trainable=False
        )
        optimizer = legacy_opt.VariableClippingOptimizer(sgd(), [(table, [-2])], 1.0)
        gradient = tf.IndexedSlices(tf.zeros([1, 1]), tf.constant([1]), tf.constant([2, 1]))
        train_op = optimizer.apply_gradients([(gradient, table)])
        value = running.after(train_op, table)
    np.testing.assert_allclose(value, [[0.6], [0.8]], rtol=1e-6)


def test_clipping_of_a_partitioned_variable():
    with tf.Graph().as_default():
        partitioner = v1.fixed_size_partitioner(2)
        table = v1.get_variable(
            "t", [4, 2], initializer=v1.ones_initializer(), partitioner=partitioner
        )
        optimizer = legacy_opt.VariableClippingOptimizer(sgd(), [(table, [1])], 1.0)
        step = optimizer.apply_gradients([(tf.zeros([2, 2]), part) for part in table])
        with pytest.raises(ValueError, match="has 0, along which the variable is partitioned"):
            legacy_opt.VariableClippingOptimizer(sgd(), [(table, [0])], 1.0)
        rows = np.concatenate(running.after(step, list(table)))
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), np.ones(4), rtol=1e-6)


# Multitask.


def test_the_inner_optimizer_is_not_changed():
    inner = momentum()
    variable = tf.Variable([1.0])
    wrapper = legacy_opt.MultitaskOptimizerWrapper(inner)
    wrapper.apply_gradients([(tf.constant([1.0]), variable)])
    wrapper.apply_gradients([(tf.constant([0.0]), variable)])
    assert variable.numpy() == [0.5]
    assert not [name for name in vars(inner) if name.startswith(("_apply", "_resource_apply"))]
    inner.apply_gradients([(tf.constant([0.0]), variable)])  # the momentum changes the variable
    np.testing.assert_allclose(variable.numpy(), [0.5 - 0.5 * 0.9], rtol=1e-5)


def test_nan_gradients_are_applied():
    variable = tf.Variable([1.0])
    wrapper = legacy_opt.MultitaskOptimizerWrapper(sgd())
    wrapper.apply_gradients([(tf.constant([np.nan]), variable)])
    assert np.isnan(variable.numpy())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("inside", ["alone", "clipped", "multi"])
def test_slots_do_not_change_for_zero_gradients_also_in_other_wrappers(inside, way):
    def make(step):
        inner = legacy_opt.AdagradDecayOptimizer(0.5, step, 1.0, accumulator_decay_step=1)
        if inside == "clipped":
            inner = legacy_opt.clip_gradients_by_norm(inner, 100.0)
        elif inside == "multi":
            inner = legacy_opt.MultiOptimizer([(inner, "matrix")], default=momentum())
        return legacy_opt.MultitaskOptimizerWrapper(inner)

    shape = (2, 2)
    zeros, ones = np.zeros(shape, np.float32), np.full(shape, 1.0, np.float32)
    steps = [{"matrix": grad, "other": grad} for grad in (ones, zeros, zeros, ones)]
    start = {"matrix": ones, "other": ones}
    trace = WAYS[way](problems.Problem(start, steps, (), "float32"), make)
    # The first step makes the accumulator 1.0 + 1. The two steps with zero gradients do not change
    # it. The last step multiplies it by the decay rate 0.9 only once, and adds 1.
    expected = np.full(shape, 2.0 * 0.9 + 1.0, np.float32)
    np.testing.assert_allclose(trace.slots["matrix", "accumulator"], expected, rtol=1e-6)
    for name in start:
        assert np.array_equal(trace.steps[0][name], trace.steps[2][name])


def test_public_attributes_of_the_inner_optimizer():
    inner = legacy_opt.AdamWOptimizer(0.1, 0.01)
    wrapper = legacy_opt.MultitaskOptimizerWrapper(inner)
    assert wrapper.get_name() == "AdamW" and wrapper.decays.__self__ is inner
    assert isinstance(wrapper, v1.train.Optimizer)
    with pytest.raises(AttributeError, match="nothing"):
        wrapper.nothing  # noqa: B018


def test_clip_gradients_by_global_norm():
    a, b, c = (tf.Variable([0.0, 0.0]) for _ in range(3))
    slices = tf.IndexedSlices(tf.constant([4.0]), tf.constant([1]), [2])
    pairs = [(tf.constant([3.0, 0.0]), a), (None, b), (slices, c)]
    clipped, norm = legacy_opt.clip_gradients_by_global_norm(pairs, 2.5)
    assert float(norm) == 5.0
    assert all(pair[1] is var for pair, var in zip(clipped, (a, b, c)))
    np.testing.assert_allclose(clipped[0][0].numpy(), [1.5, 0.0])
    assert clipped[1][0] is None
    np.testing.assert_allclose(clipped[2][0].values.numpy(), [2.0])
    with pytest.raises(ValueError, match="no variable has a gradient"):
        legacy_opt.clip_gradients_by_global_norm([(None, b)])


# Clipping.


def test_names_and_slots_of_clipping_wrappers():
    adam = v1.train.AdamOptimizer(0.1)
    clips = legacy_opt.clip_gradients_by_norm(adam, 1.0)
    assert clips.get_name() == "ClipByNormAdam" and clips.wrapped == (adam,)
    assert legacy_opt.ClipByValueOptimizer(clips, -1, 1).get_name() == "ClipByValueClipByNormAdam"
    assert legacy_opt.ClipByGlobalNormOptimizer(adam, 1.0, name="Short").get_name() == "Short"
    variable = tf.Variable([1.0])
    clips.apply_gradients([(tf.constant([1.0]), variable)])
    assert clips.get_slot_names() == adam.get_slot_names() == ["m", "v"]
    assert clips.get_slot(variable, "m") is adam.get_slot(variable, "m")


def test_clip_gradients_by_norm_does_not_sum_repeated_ids():
    results = []
    for make in legacy_opt.clip_gradients_by_norm, legacy_opt.ClipByGlobalNormOptimizer:
        table = tf.Variable([[0.0], [0.0]])
        grad = tf.IndexedSlices(tf.constant([[3.0], [4.0]]), tf.constant([1, 1]), [2, 1])
        make(sgd(), 1.0).apply_gradients([(grad, table)])
        results.append(table.numpy()[1, 0])
    np.testing.assert_allclose(results, [-RATE * 7 / 5, -RATE])


def test_rows_emptied_by_summing_repeated_ids_stay_zero():
    table = tf.Variable([[0.0], [0.0]])
    grad = tf.IndexedSlices(tf.constant([[1.0], [1.0], [1.0]]), tf.constant([1, 1, 1]), [2, 1])
    legacy_opt.ClipByValueOptimizer(sgd(), 0.5, 2.0).apply_gradients([(grad, table)])
    np.testing.assert_allclose(table.numpy(), [[0.0], [-RATE * 2]])


def test_a_norm_of_gradients_of_different_dtypes():
    wide, narrow = tf.Variable([0.0], dtype=tf.float64), tf.Variable([0.0], dtype=tf.float16)
    pairs = [(tf.constant([3.0], tf.float64), wide), (tf.constant([4.0], tf.float16), narrow)]
    legacy_opt.ClipByGlobalNormOptimizer(sgd(), 1.0).apply_gradients(pairs)
    np.testing.assert_allclose([wide.numpy()[0], narrow.numpy()[0]], [-0.3, -0.4], rtol=1e-3)


def test_gradients_of_none_are_passed_on():
    first, second = tf.Variable([1.0]), tf.Variable([1.0])
    clips = legacy_opt.ClipByNormOptimizer(sgd(), 1.0)
    clips.apply_gradients([(None, first), (tf.constant([4.0]), second)])
    assert (first.numpy(), second.numpy()) == ([1.0], [0.5])
    with pytest.raises(ValueError, match="No gradients provided for any variable"):
        clips.apply_gradients([(None, first)])


# Wrappers in wrappers.


@pytest.mark.parametrize("way", WAYS)
def test_nested_wrappers(way):
    def make(step):
        multi = legacy_opt.MultiOptimizer([(sgd(), "matrix")], default=sgd())
        clips = legacy_opt.ClipByGlobalNormOptimizer(multi, 1.5)
        return legacy_opt.GradientAccumulationOptimizer(clips, 2)

    problem = problems.everything(only=("vector", "matrix"), steps=6)
    problem = problem._replace(batches=2)
    means = [
        {name: (one[name] + other[name]) / 2 for name in one}
        for one, other in zip(problem.gradients[::2], problem.gradients[1::2])
    ]
    expected, _ = train_clipped(problem._replace(gradients=means), clip_global_norm)
    trace = WAYS[way](problem, make)
    running.assert_steps_close(trace.steps[1::2], expected)


@pytest.mark.parametrize("way", WAYS)
def test_averages_of_clipped_variables(way):
    class Averages(ClipsRows):
        def apply_gradients(self, grads_and_vars, global_step):
            if self.optimizer is None:
                dims = [(variable, [1]) for _, variable in grads_and_vars]
                inner = legacy_opt.VariableClippingOptimizer(sgd(), dims, 0.7)
                self.optimizer = legacy_opt.MovingAverageOptimizer(inner, 0.0)
            return self.optimizer.apply_gradients(grads_and_vars, global_step=global_step)

        def get_slot(self, variable, name):
            return self.optimizer.get_slot(variable, name)

    problem = problems.everything(only=("matrix", "table"), steps=4)
    trace = WAYS[way](problem, lambda step: Averages())
    running.assert_steps_close(trace.steps, train_with_clipped_rows(problem)[0])
    for (name, _), average in trace.slots.items():  # with a decay of 0, the average is the value
        np.testing.assert_allclose(average, trace.steps[-1][name], rtol=1e-6)


def accumulated(optimizer):
    return legacy_opt.GradientAccumulationOptimizer(optimizer, 2)


def decayed():
    extended = legacy_opt.extend_with_decoupled_weight_decay(v1.train.MomentumOptimizer)
    return extended(0.1, 0.1, 0.9)


NESTS = {
    "accumulate(multitask)": (lambda: accumulated(legacy_opt.MultitaskOptimizerWrapper(sgd())), 2),
    "multitask(accumulate)": (lambda: legacy_opt.MultitaskOptimizerWrapper(accumulated(sgd())), 2),
    "multitask(decayed)": (lambda: legacy_opt.MultitaskOptimizerWrapper(decayed()), 1),
    "accumulate(average)": (lambda: accumulated(legacy_opt.MovingAverageOptimizer(sgd(), 0.5)), 2),
    "accumulate(lookahead)": (lambda: accumulated(legacy_opt.LookaheadOptimizer(sgd(), 2)), 2),
    "multitask(snapshots)": (
        lambda: legacy_opt.MultitaskOptimizerWrapper(legacy_opt.SWAOptimizer(sgd(), 0, 2)),
        1,
    ),
}


@pytest.mark.parametrize("way", [way for way in WAYS if way != "eager"])
@pytest.mark.parametrize("nest", NESTS)
def test_nested_conditions_equal_eager_execution(nest, way):
    make, batches = NESTS[nest]
    problem = problem_with_zeros()
    problem = problem._replace(gradients=problem.gradients[:4], batches=batches)
    eager, trace = (WAYS[each](problem, lambda step: make()) for each in ("eager", way))
    running.assert_close(trace, eager, 1e-5, 1e-6)


# Errors.


def variable_clipping(dims, max_norm=1.0):
    return legacy_opt.VariableClippingOptimizer(sgd(), dims, max_norm)


class UpdatesAllItself(v1.train.Optimizer):
    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        pass


WRONG = {
    "class": (lambda: legacy_opt.MovingAverageOptimizer(v1.train.AdamOptimizer), "not the class"),
    "no optimizer": (lambda: legacy_opt.clip_gradients_by_norm("adam", 1.0), "'adam' of type str"),
    "multitask": (lambda: legacy_opt.MultitaskOptimizerWrapper(3), "got 3 of type int"),
    "decay of 1": (lambda: legacy_opt.MovingAverageOptimizer(sgd(), 1.0), "average_decay .* 1.0"),
    "count": (lambda: legacy_opt.MovingAverageOptimizer(sgd(), 0.9, "s"), "num_updates must be"),
    "negative": (lambda: legacy_opt.MovingAverageOptimizer(sgd(), 0.9, -1), "num_updates must not"),
    "sequential": (
        lambda: legacy_opt.MovingAverageOptimizer(sgd(), sequential_update=None),
        "sequential_update must be True or False",
    ),
    "no period": (lambda: legacy_opt.LookaheadOptimizer(sgd(), 0), "sync_period must be positive"),
    "half": (lambda: legacy_opt.SWAOptimizer(sgd(), 0, 0.5), "average_period must be an integer"),
    "start": (lambda: legacy_opt.SWAOptimizer(sgd(), -1), "start_averaging must not be negative"),
    "backwards": (
        lambda: legacy_opt.LookaheadOptimizer(sgd(), slow_step_size=-0.5),
        "slow_step_size must not be negative",
    ),
    "counts batches": (
        lambda: legacy_opt.LookaheadOptimizer(
            legacy_opt.MovingAverageOptimizer(accumulated(sgd()))
        ),
        r"GradientAccumulationOptimizer\(LookaheadOptimizer\(optimizer\), steps=2\)",
    ),
    "no norm": (lambda: legacy_opt.clip_gradients_by_norm(sgd(), 0), "clip_norm must be positive"),
    "nan": (lambda: legacy_opt.ClipByNormOptimizer(sgd(), np.nan), "clip_norm must be finite"),
    "limits": (lambda: legacy_opt.ClipByValueOptimizer(sgd(), 1, -1), "must be less than"),
    "max_norm": (lambda: variable_clipping([], -1.0), "max_norm must be positive"),
    "no dict": (lambda: variable_clipping(3), "vars_to_clip_dims must be a dict"),
    "no list": (lambda: variable_clipping([(tf.Variable([1.0]), 0)]), "lists of dimensions"),
    "a name": (lambda: variable_clipping({"w": [0]}), "must have variables as keys, got 'w'"),
    "twice": (
        lambda: (lambda v: variable_clipping([(v, [0]), (v, [0])]))(tf.Variable([1.0])),
        "has the variable .* twice",
    ),
    "dimension": (lambda: variable_clipping([(tf.Variable([1.0]), [1])]), "has 1, but its shape"),
    "no integer": (lambda: variable_clipping([(tf.Variable([1.0]), [0.0])]), "integers, got 0.0"),
    "updates all itself": (
        lambda: legacy_opt.MultitaskOptimizerWrapper(
            legacy_opt.clip_gradients_by_norm(UpdatesAllItself(False, "U"), 1.0)
        ),
        "cannot skip updates of UpdatesAllItself",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_errors_of_constructors(wrong):
    make, message = WRONG[wrong]
    with pytest.raises((TypeError, ValueError), match=message):
        make()
