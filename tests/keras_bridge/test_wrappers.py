"""Tests wrappers (optimizers that contain v1 optimizers), bridged to Keras 2 and 3 by `to_keras`.

A wrapper accumulates or clips gradients, averages variables, or routes them to several optimizers.
"""

import copy
import json
import pickle

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import (
    AdagradDecayOptimizer,
    ClipByGlobalNormOptimizer,
    ClipByNormOptimizer,
    ClipByValueOptimizer,
    GradientAccumulationOptimizer,
    LookaheadOptimizer,
    MovingAverageOptimizer,
    MultiOptimizer,
    MultitaskOptimizerWrapper,
    OptimizerWrapper,
    SWAOptimizer,
    VariableClippingOptimizer,
)
from legacy_opt.compat import CheckpointMismatch, load_v1_checkpoint, save_v1_checkpoint, to_v1
from legacy_opt.compat.in_keras.v1_optimizers import serialization
from tests.keras_bridge import keras_wrappers
from tests.support import running
from tests.support.keras import keras_ways
from tests.support.keras.keras_apis import KERAS_3, OPTIMIZER_V2
from tests.support.keras.keras_ways import KERAS_3_WAYS, WAYS
from tests.support.keras.loading import load_model

v1 = tf.compat.v1


def cells_of_keras_3():
    """Yields test cases (wrapper, way to train, dtype). Two thirds have the mark `full`."""
    # Loops with tf.Variable are left out, because loops with keras.Variable run the same code.
    ways = [way for way in KERAS_3_WAYS if way not in ("function", "eager")]
    for number, name in enumerate(keras_wrappers.WRAPPERS):
        for other, way in enumerate(ways):
            dtype = ("float32", "float64")[(number + other // 2) % 2]
            marks = pytest.mark.full if (number + other) % 3 else ()
            yield pytest.param(name, way, dtype, marks=marks)


@pytest.mark.in_turn(
    name=list(keras_wrappers.WRAPPERS), way=list(WAYS), dtype=["float32", "float64"]
)
def test_equals_the_wrapper_in_a_session(name, way, dtype):
    keras_wrappers.assert_equal_in_a_session(name, WAYS[way], dtype)


@pytest.mark.keras3
@pytest.mark.parametrize("name, way, dtype", cells_of_keras_3())
def test_equals_the_wrapper_in_a_session_with_keras_3(name, way, dtype):
    keras_wrappers.assert_equal_in_a_session(name, KERAS_3_WAYS[way], dtype)


def sgd(rate=0.5):
    return v1.train.GradientDescentOptimizer(rate)


def variable(api, value=(1.0,), name="w"):
    return api.variable(value, name=name)


def test_iterations_count_updates(api):
    optimizer = api.bridged(GradientAccumulationOptimizer(sgd(), 2))
    w = variable(api)
    seen = []
    for gradient in 1.0, 3.0, 2.0, 2.0:
        optimizer.apply_gradients([(tf.constant([gradient]), w)])
        seen.append((float(w.numpy()[0]), int(optimizer.iterations.numpy())))
    assert seen == [(1.0, 0), (0.0, 1), (0.0, 1), (-1.0, 2)]
    assert optimizer.get_slot(w, "gradient_sum").numpy() == 0


# Continuing from saved state.


class Training:
    """Trains two variables with gradients that depend only on the number of the step."""

    def __init__(self, optimizer, start=0.0):
        self.optimizer = optimizer
        self.variables = [
            tf.compat.v2.Variable(start + np.arange(6.0).reshape(3, 2).astype("f"), name="matrix"),
            tf.compat.v2.Variable(start + np.ones(2, "f"), name="vector"),
        ]

    def steps(self, first, last):
        for number in range(first, last):
            random = np.random.RandomState(number)
            grads = [random.randn(*each.shape.as_list()).astype("f") for each in self.variables]
            self.optimizer.apply_gradients(zip(map(tf.constant, grads), self.variables))
        return self

    def checkpoint(self):
        variables = dict(zip(("matrix", "vector"), self.variables))
        return tf.train.Checkpoint(optimizer=self.optimizer, **variables)

    def values(self):
        return [each.numpy() for each in self.variables]


SAVED = ["accumulate(clip(multi))", "multi(accumulate, accumulate)", "average(Momentum)"]
SAVED += ["SWA(lookahead(multi))"]
HALF = 4  # the tests save after 4 steps, in the middle of an accumulation of 3 gradients


def made(name):
    return OPTIMIZER_V2.bridged(keras_wrappers.WRAPPERS[name].make(None))


def by_checkpoint(training, path, name):
    path = training.checkpoint().save(str(path / "training"))
    other = Training(made(name))
    other.checkpoint().restore(path)
    return other


def by_weights(training, path, name):
    other = Training(made(name)).steps(0, 1)
    other.optimizer.set_weights(training.optimizer.get_weights())
    return other


def by_v1_checkpoint(training, path, name):
    names = dict(zip(("matrix", "vector"), training.variables))
    save_v1_checkpoint(str(path / "v1"), names, training.optimizer)
    other = Training(made(name))
    names = dict(zip(("matrix", "vector"), other.variables))
    load_v1_checkpoint(str(path / "v1"), names, other.optimizer)
    return other


GO_ON = [by_checkpoint, by_weights, by_v1_checkpoint]


@pytest.mark.pairwise(name=SAVED, way=GO_ON)
def test_training_continues_from_saved_state(name, way, tmp_path):
    expected = Training(made(name)).steps(0, 2 * HALF)
    first = Training(made(name)).steps(0, HALF)
    other = way(first, tmp_path, name)
    for ours, saved in zip(other.variables, first.variables):
        ours.assign(saved)
    other.steps(HALF, 2 * HALF)
    for one, two in zip(other.values(), expected.values()):
        np.testing.assert_array_equal(one, two)
    for one, two in zip(other.optimizer.get_weights(), expected.optimizer.get_weights()):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("file, kept", [("model.h5", 3), ("SavedModel", 0)])
def test_a_model_is_saved_with_its_wrapper(file, kept, tmp_path):
    """Saves in the middle of an accumulation. A SavedModel keeps no optimizer state."""
    model = compiled()
    train(model)
    model.save(str(tmp_path / file), save_format="tf" if file == "SavedModel" else "h5")
    again = load_model(OPTIMIZER_V2, tmp_path / file)
    assert again.optimizer.get_config() == model.optimizer.get_config()
    if not kept:
        weights, model = model.get_weights(), compiled()
        model.set_weights(weights)
    for each in model, again:
        train(each)
        assert int(each.optimizer.iterations.numpy()) == (kept + 3) // 2
    for actual, expected in zip(again.get_weights(), model.get_weights()):
        np.testing.assert_array_equal(actual, expected)


def compiled():
    keras = OPTIMIZER_V2.keras
    model = keras.Sequential([keras.layers.Dense(2, input_shape=[3], name="hidden")])
    model.set_weights([np.ones([3, 2]), np.ones([2])])
    inside = MultiOptimizer([(v1.train.AdamOptimizer(0.1), "hidden.*kernel")], sgd(0.25))
    model.compile(OPTIMIZER_V2.bridged(GradientAccumulationOptimizer(inside, 2)), "mse")
    return model


def train(model):
    model.run_eagerly = True  # because building a graph takes longer than a few eager steps
    for _ in range(3):
        model.train_on_batch(np.arange(12.0).reshape(4, 3) / 8, np.ones([4, 2]))


def test_a_copy_is_independent(api):
    optimizer = api.bridged(keras_wrappers.multi(None))
    one, other = (Training(each).steps(0, 3) for each in (optimizer, copy.deepcopy(optimizer)))
    for actual, expected in zip(other.values(), one.values()):
        np.testing.assert_array_equal(actual, expected)
    copied = other.optimizer._v1.optimizer
    assert all(each._driver.owner is other.optimizer for each in (copied, *copied.wrapped))


def test_routes_may_list_variables(api):
    """In Keras 2, this test trains with a deep copy, which routes the same variables."""
    a, b = variable(api, [2.0], "a"), variable(api, [2.0], "b")
    multi = MultiOptimizer([(sgd(1.0), [a])], sgd(0.25))
    optimizer = api.bridged(VariableClippingOptimizer(multi, [(b, [0])], 1.0))
    pairs = [(tf.constant([0.5]), a), (tf.constant([0.0]), b)]
    (copy.deepcopy(optimizer) if api is OPTIMIZER_V2 else optimizer).apply_gradients(pairs)
    assert a.numpy() == 1.5 and b.numpy() == 1.0
    with pytest.raises(
        pickle.PicklingError, match="variables, which do not exist in another process"
    ):
        pickle.dumps(optimizer._v1.optimizer)


# Configurations.

CONFIGURED = {
    "clip by value": lambda: ClipByValueOptimizer(sgd(), -0.5, 0.25),
    "clip by norm": lambda: ClipByNormOptimizer(sgd(), 0.5),
    "clip by global norm": lambda: ClipByGlobalNormOptimizer(sgd(), 0.5, sum_duplicates=False),
    "accumulate": lambda: GradientAccumulationOptimizer(sgd(), 2, name="Mine"),
    "average": lambda: MovingAverageOptimizer(sgd(), 0.5, sequential_update=False),
    "lookahead": lambda: LookaheadOptimizer(sgd(), 2, 0.25, name="Mine"),
    "snapshots": lambda: SWAOptimizer(sgd(), 1, 2),
    "multitask": lambda: MultitaskOptimizerWrapper(v1.train.AdamOptimizer(0.1)),
    "nested": lambda: keras_wrappers.nested(None),
    "a schedule inside": lambda: MultiOptimizer(
        [(sgd(v1.train.exponential_decay(0.5, tf.Variable(0), 2, 0.5)), "matrix")], sgd(0.1)
    ),
}


def through_json(api, optimizer):
    saved = json.loads(json.dumps(api.keras.optimizers.serialize(optimizer)))
    return api.keras.optimizers.deserialize(saved)


@pytest.mark.parametrize("name", list(CONFIGURED))
def test_a_saved_configuration_makes_the_same_wrapper(api, name):
    optimizer = api.bridged(CONFIGURED[name]())
    again = through_json(api, optimizer)
    assert again.get_config() == optimizer.get_config()
    one, other = (Training(each).steps(0, 4) for each in (optimizer, again))
    for actual, expected in zip(other.values(), one.values()):
        np.testing.assert_array_equal(actual, expected)


def test_an_optimizer_of_two_routes_is_saved_once(api):
    adam = v1.train.AdamOptimizer(0.1)
    optimizer = through_json(api, api.bridged(MultiOptimizer([(adam, "matrix"), (adam, "vector")])))
    assert len(optimizer._v1.optimizer.wrapped) == 1
    Training(optimizer).steps(0, 1)
    assert sorted(optimizer.non_slots) == ["beta1_power", "beta2_power"]


def test_wrappers_that_cannot_be_saved(api):
    w = variable(api)
    for which in [w], (lambda each: True), MultiOptimizer.collection("tables"):
        optimizer = api.bridged(MultiOptimizer([(sgd(), which)]))
        with pytest.raises(
            ValueError, match="MultiOptimizer cannot be saved: its route .* regular"
        ):
            optimizer.get_config()
    with pytest.raises(ValueError, match="VariableClippingOptimizer cannot be saved: vars_to_clip"):
        api.bridged(VariableClippingOptimizer(sgd(), [(w, [0])], 1.0)).get_config()
    with pytest.raises(ValueError, match="MovingAverageOptimizer cannot be saved.*num_updates"):
        api.bridged(keras_wrappers.averaged(None)).get_config()


class Scaled(OptimizerWrapper):
    """A user-defined wrapper that scales gradients and counts its calls in a slot."""

    def __init__(self, optimizer, factor, name="Scaled"):
        super().__init__([optimizer], name=name)
        self._factor = factor

    def _create_slots(self, var_list):
        super()._create_slots(var_list)
        for each in var_list:
            self._zeros_slot(each, "calls", self._name)

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        for _, each in grads_and_vars:
            self.own_slot(each, "calls").assign_add(tf.ones_like(each))
        scaled = [(self._factor * grad, each) for grad, each in grads_and_vars]
        return super().apply_gradients(scaled, global_step, name)


def test_a_user_defined_wrapper_is_bridged_and_saved(api, monkeypatch):
    monkeypatch.setattr(serialization, "_registered", dict(serialization._registered))
    w = variable(api, [4.0])
    optimizer = through_json(api, api.bridged(Scaled(sgd(0.5), 0.5)))
    for _ in range(2):
        optimizer.apply_gradients([(tf.constant([4.0]), w)])
    assert w.numpy() == 2.0 and optimizer.get_slot(w, "calls").numpy() == 2.0


# Learning rates, and other hyperparameters.


def test_a_wrapper_has_the_learning_rate_of_its_nested_optimizer(api):
    optimizer = api.bridged(ClipByValueOptimizer(v1.train.MomentumOptimizer(0.5, 0.5), -1.0, 1.0))
    w = variable(api, [0.0])
    gradient = [(tf.constant([5.0]), w)]
    optimizer.apply_gradients(gradient)
    assert w.numpy() == -0.5
    optimizer.learning_rate, optimizer.momentum = 2.0, 0.0
    optimizer.apply_gradients(gradient)
    assert w.numpy() == -2.5
    other = api.bridged(ClipByValueOptimizer(sgd(), -1.0, 1.0), learning_rate=3.0)
    assert api.number(other.learning_rate) == 3.0
    assert to_v1(optimizer).wrapped[0]._learning_rate == 2.0
    with pytest.raises(AttributeError, match="does not read clip_value_min in each step"):
        optimizer.clip_value_min = -2.0


def test_schedules_count_updates(api):
    decay = v1.train.exponential_decay(1.0, tf.Variable(0), 1, 0.5)
    schedule = api.keras.optimizers.schedules.ExponentialDecay(1.0, 1, 0.5)
    for arguments in {"optimizer": sgd(decay)}, {"optimizer": sgd(), "learning_rate": schedule}:
        optimizer = GradientAccumulationOptimizer(arguments.pop("optimizer"), 2)
        optimizer, w, seen = api.bridged(optimizer, **arguments), variable(api, [0.0]), []
        for _ in range(6):
            optimizer.apply_gradients([(tf.constant([1.0]), w)])
            seen.append(float(w.numpy()[0]))
        assert seen == [0.0, -1.0, -1.0, -1.5, -1.5, -1.75]


def test_nested_optimizers_use_their_own_schedules(api):
    decay = v1.train.exponential_decay(1.0, tf.Variable(0), 1, 0.5)
    rate = tf.Variable(1.0)
    optimizer = api.bridged(MultiOptimizer([(sgd(decay), "a"), (sgd(rate), "b")], sgd(0.25)))
    variables = [variable(api, 0.0, name) for name in "abc"]
    for _ in range(2):
        optimizer.apply_gradients([(tf.constant(1.0), each) for each in variables])
        rate.assign(3.0)
    assert [float(each.numpy()) for each in variables] == [-1.5, -4.0, -0.5]
    assert api is KERAS_3 or not hasattr(optimizer, "learning_rate")
    for name in ["learning_rate"] + ["lr"] * (api is OPTIMIZER_V2):
        with pytest.raises(AttributeError, match="each has its own learning rate"):
            setattr(optimizer, name, 0.1)


def test_a_decay_in_a_graph_counts_updates():
    seen = {}
    for keras_too in False, True:
        with tf.Graph().as_default(), v1.Session() as sess:
            step = v1.train.get_or_create_global_step()
            rate = v1.train.exponential_decay(1.0, step, 1, 0.5)
            inside = MultiOptimizer([(sgd(rate), "a"), (sgd(rate), "b")])
            optimizer = GradientAccumulationOptimizer(inside, 2)
            variables = [v1.get_variable(name, [], use_resource=True) for name in "ab"]
            pairs = [(tf.constant(1.0), each) for each in variables]
            if keras_too:
                train = OPTIMIZER_V2.bridged(optimizer, global_step=step).apply_gradients(pairs)
            else:
                train = optimizer.apply_gradients(pairs, step)
            sess.run(v1.global_variables_initializer())
            sess.run([each.assign(0.0).op for each in variables])
            values = []
            for _ in range(5):
                sess.run(train)
                values.append(sess.run(variables + [step]))
            seen[keras_too] = values
    assert seen[True] == seen[False]
    assert [int(values[-1]) for values in seen[True]] == [0, 1, 1, 2, 2]


# Errors.


def test_no_common_learning_rate_for_several_optimizers(api):
    several = MultiOptimizer([(sgd(), "a")], v1.train.AdamOptimizer())
    with pytest.raises(ValueError, match="learning_rate=0.1: MultiOptimizer contains 2 opt"):
        api.bridged(several, learning_rate=0.1)
    for name in "lr_attr", "global_step_attr":
        with pytest.raises(ValueError, match=f"{name}='_x': MultiOptimizer contains 2 optimizers"):
            api.bridged(several, **{name: "_x"})


def test_sparse_gradients_are_not_accumulated(api):
    table = variable(api, np.zeros([3, 2], "f"), "table")
    slices = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([1]), [3, 2])
    optimizer = api.bridged(GradientAccumulationOptimizer(sgd(), 2))
    with pytest.raises(ValueError, match="sparse gradients of 'table:0'.*Use a MultiOptimizer"):
        optimizer.apply_gradients([(slices, table)])
    assert int(optimizer.iterations.numpy()) == 0
    once = api.bridged(GradientAccumulationOptimizer(sgd(), 1))  # nothing to accumulate
    once.apply_gradients([(slices, table)])
    assert table.numpy().tolist() == [[0, 0], [-0.5, -0.5], [0, 0]]


def test_all_calls_accumulate_the_same_variables():
    one, other = variable(OPTIMIZER_V2), variable(OPTIMIZER_V2, name="other")
    optimizer = OPTIMIZER_V2.bridged(GradientAccumulationOptimizer(sgd(), 2))
    optimizer.apply_gradients([(tf.constant([1.0]), one)])
    with pytest.raises(ValueError, match="gradients of w:0, but this call has .* other:0"):
        optimizer.apply_gradients([(tf.constant([1.0]), other)])


def test_other_peoples_wrappers_are_refused(api):
    sync = v1.train.SyncReplicasOptimizer(sgd(), replicas_to_aggregate=1)
    for optimizer in sync, ClipByNormOptimizer(sync, 1.0):
        with pytest.raises(ValueError, match="SyncReplicasOptimizer.* is another optimizer"):
            api.bridged(optimizer)

    class Scaled(v1.train.GradientDescentOptimizer):
        def compute_gradients(self, *args, **kwargs):
            return super().compute_gradients(*args, **kwargs)

    with pytest.raises(ValueError, match="Scaled overrides compute_gradients"):
        api.bridged(MultiOptimizer([(Scaled(0.1), "a")], sgd()))


def test_variables_without_a_route_are_named(api):
    optimizer = api.bridged(MultiOptimizer([(sgd(), "deep")]))
    with pytest.raises(ValueError, match="No route matches 'w:0'"):
        optimizer.apply_gradients([(tf.constant([1.0]), variable(api))])


# Conversions back to v1 optimizers.


def test_to_v1_returns_the_wrapper(api):
    optimizer = api.bridged(ClipByValueOptimizer(v1.train.MomentumOptimizer(0.5, 0.5), -1.0, 1.0))
    optimizer.momentum = 0.25
    back = to_v1(optimizer)
    assert type(back) is ClipByValueOptimizer
    (inner,) = back.wrapped
    assert type(inner) is v1.train.MomentumOptimizer and inner._momentum == 0.25


def test_to_v1_returns_the_nested_optimizers(api):
    back = to_v1(api.bridged(keras_wrappers.WRAPPERS["accumulate(clip(multi))"].make(None)))
    assert type(back) is GradientAccumulationOptimizer and not back.only_dense
    ((multi,),) = (clip.wrapped for clip in back.wrapped)
    assert [type(each).__name__ for each in multi.wrapped] == [
        "AdagradDecayOptimizer",
        "AdamGSOptimizer",
    ]
    made = keras_ways.mixed("float32", keras_wrappers.DENSE, steps=6)
    expected = running.session(made, keras_wrappers.nested)
    running.assert_same(running.session(made, lambda step: back), expected)


def test_training_continues_in_keras_from_a_sessions_checkpoint(api, tmp_path):
    """The routes list variables, because the names in the graph differ from those in Keras."""
    random = np.random.RandomState(0)
    gradients = random.randn(6, 2, 3).astype("f")

    def wrapped(first, step=None):
        decaying = AdagradDecayOptimizer(0.1, step, accumulator_decay_step=2)
        multi = MultiOptimizer([(decaying, first)], v1.train.AdamOptimizer(0.1))
        return GradientAccumulationOptimizer(multi, 2)

    with tf.Graph().as_default(), v1.Session() as sess:
        step = v1.train.get_or_create_global_step()
        ones = v1.ones_initializer()
        weights = [v1.get_variable(name, [3], initializer=ones) for name in ("one", "two")]
        fed = v1.placeholder(tf.float32, [2, 3])
        pairs = list(zip(tf.unstack(fed), weights))
        train = wrapped([weights[0]], step).apply_gradients(pairs, step)
        saver = v1.train.Saver()
        sess.run(v1.global_variables_initializer())
        for gradient in gradients[:3]:
            sess.run(train, {fed: gradient})
        path = saver.save(sess, str(tmp_path / "session"))
        for gradient in gradients[3:]:
            sess.run(train, {fed: gradient})
        expected = sess.run(weights)

    variables = [variable(api, np.zeros(3, "f"), f"v{number}") for number in range(2)]
    optimizer = api.bridged(wrapped([variables[0]]))
    load_v1_checkpoint(path, dict(zip(("one", "two"), variables)), optimizer)
    assert int(optimizer.iterations.numpy()) == 1
    for gradient in gradients[3:]:
        optimizer.apply_gradients(zip(tf.unstack(tf.constant(gradient)), variables))
    for actual, value in zip(variables, expected):
        np.testing.assert_allclose(actual.numpy(), value, rtol=1e-6)
    other = api.bridged(ClipByNormOptimizer(v1.train.MomentumOptimizer(0.1, 0.9), 1.0))
    message = (
        "another optimizer .name='GradientAccumulation'.* ClipByNormOptimizer .* around Momentum"
    )
    with pytest.raises(CheckpointMismatch, match=message):
        load_v1_checkpoint(path, dict(zip(("one", "two"), variables)), other)
