"""Tests checkpoints, weights and copies of Keras 3 optimizers made by `to_keras`.

Such an optimizer raises an error if it restores the state of another optimizer. Without this error,
TensorFlow and Keras would match variables by position and shape, or silently ignore the state.
"""

import copy
import functools
import pickle
import warnings

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import AdagradDecayOptimizer
from tests.keras_bridge import object_checkpoints
from tests.keras_bridge.object_checkpoints import MAKERS, PROBLEM, keras_variables, tf_variables
from tests.support.keras import keras_apis, keras_cases
from tests.support.keras.keras_apis import KERAS_3, OPTIMIZER_V2

bridged = KERAS_3.bridged

pytestmark = pytest.mark.keras3

v1 = tf.compat.v1.train
keras = KERAS_3.keras
make = functools.partial(object_checkpoints.make, KERAS_3)
saved = functools.partial(object_checkpoints.saved, make_variables=keras_variables)
Training = functools.partial(object_checkpoints.Training, make_variables=keras_variables)


@pytest.mark.full
@pytest.mark.parametrize("name", [n for n, case in keras_cases.CASES.items() if not case.only])
@pytest.mark.parametrize("steps_before", [0, 2], ids=["deferred", "immediate"])
def test_training_continues_with_every_optimizer(name, steps_before, tmp_path):
    case = keras_cases.CASES[name]
    make_optimizer = lambda: bridged(case.make(None))  # noqa: E731
    object_checkpoints.assert_goes_on(
        make_optimizer, case.make, keras_variables, steps_before, tmp_path
    )


@pytest.mark.parametrize("steps_before", [0, 2], ids=["deferred", "immediate"])
@pytest.mark.parametrize(
    "arguments",
    [
        {"gradient_accumulation_steps": 3},
        {"use_ema": True, "ema_momentum": 0.5, "ema_overwrite_frequency": 3},
    ],
    ids=lambda arguments: list(arguments)[0],
)
def test_keras_own_options_are_restored(arguments, steps_before, tmp_path):
    def optimizer():
        return make("Adam", **arguments)

    # The gradients are dense because Keras accumulates only dense gradients.
    dense = {"matrix": PROBLEM.values["matrix"]}

    def training(start):
        run = Training(optimizer(), start)
        run.variables = {"matrix": run.variables["matrix"]}
        run.checkpoint = tf.train.Checkpoint(optimizer=run.optimizer, **run.variables)
        return run

    assert set(dense) < set(PROBLEM.values)
    unstopped = training(1.0).steps(0, 4)
    path = unstopped.checkpoint.save(str(tmp_path / "saved"))
    other = training(0.0).steps(0, steps_before)
    status = other.checkpoint.restore(path)
    other.steps(4, 8).assert_same(unstopped.steps(4, 8))
    status.assert_consumed()


@pytest.mark.parametrize("steps_before", [0, 2], ids=["deferred", "immediate"])
def test_a_loss_scale_is_restored(steps_before, tmp_path):
    def optimizer():
        return keras.optimizers.LossScaleOptimizer(make("Adam"), dynamic_growth_steps=3)

    path, unstopped = saved(optimizer(), tmp_path)
    training = Training(optimizer()).steps(0, steps_before)
    training.checkpoint.restore(path)
    training.steps(4, 8).assert_same(unstopped)


def test_hyperparameters_and_the_rate_are_restored(tmp_path):
    training = Training(make("Momentum"), 1.0).steps(0, 1)
    training.optimizer.learning_rate = 0.375
    training.optimizer.momentum = 0.5
    path = training.checkpoint.save(str(tmp_path / "saved"))
    other = Training(make("Momentum"))
    other.checkpoint.restore(path)
    other.steps(1, 2).assert_same(training.steps(1, 2))
    assert other.optimizer.learning_rate.numpy() == 0.375
    assert other.optimizer.momentum.numpy() == 0.5


@pytest.mark.parametrize("schedule_first", [False, True])
def test_a_checkpoint_with_a_schedule_instead_of_a_number(schedule_first, tmp_path):
    """Restores the state of Adam with a schedule into Adam with a fixed rate, or the reverse.

    Keras' own optimizers fail here, because their checkpoints identify variables by position. The
    positions differ because an optimizer with a schedule has no variable for the learning rate.
    """
    schedule = keras.optimizers.schedules.ExponentialDecay(0.5, 1, 0.5)
    rates = [schedule, 0.25] if schedule_first else [0.25, schedule]
    training = Training(make("Adam", learning_rate=rates[0]), 1.0).steps(0, 4)
    path = training.checkpoint.save(str(tmp_path / "saved"))
    other = Training(make("Adam", learning_rate=rates[1])).steps(0, 1)
    other.checkpoint.restore(path)
    for one, another in zip(training.state()[-6:], other.state()[-6:]):
        assert np.array_equal(one, another)
    assert len(other.state()) - len(training.state()) == (1 if schedule_first else -1)
    later = Training(make("Adam"), 1.0)
    later.optimizer.learning_rate = schedule
    later.steps(0, 1).checkpoint.save(str(tmp_path / "later"))


# Restoring the state of another optimizer raises an error. The call that raises the error changes
# no variable.

OTHERS = {
    "v1 Adam": (lambda: v1.AdamOptimizer(0.1), "TensorFlow 1 or Keras 2"),
    "v1 Momentum": (lambda: v1.MomentumOptimizer(0.1, 0.9), "TensorFlow 1 or Keras 2"),
    "v1 AdagradDecay": (
        lambda: AdagradDecayOptimizer(0.1, tf.Variable(0, dtype=tf.int64), 0.1, 2, 0.5),
        "TensorFlow 1 or Keras 2",
    ),
    "OptimizerV2": (lambda: OPTIMIZER_V2.bridged("Adam"), "TensorFlow 1 or Keras 2"),
    "OptimizerV2 without slots": (
        lambda: OPTIMIZER_V2.bridged("GradientDescent"),
        "TensorFlow 1 or Keras 2",
    ),
    "Keras 2": (
        lambda: keras_apis.keras_2().optimizers.legacy.Adam(0.1),
        "TensorFlow 1 or Keras 2",
    ),
    "Keras 2, new": (lambda: keras_apis.keras_2().optimizers.Adam(0.1), "Keras' own"),
    "Keras 3": (lambda: keras.optimizers.Adam(0.1), "Keras' own"),
    "Keras 3 SGD": (lambda: keras.optimizers.SGD(0.1), "Keras' own"),
    "Momentum": (lambda: make("Momentum"), "hyper_.* missing"),
    "centered": (lambda: bridged(v1.RMSPropOptimizer(0.1, centered=True)), "slot_0_mg|hyper_"),
    "averages": (lambda: make("Adam", use_ema=True), "average_0|hyper_"),
}


@pytest.mark.filterwarnings("ignore::legacy_opt.GlobalStepWarning")
@pytest.mark.pairwise(
    other=OTHERS,
    target=["Adam", "RMSProp"],
    when=["not built", "built", "variables later"],
    status=["plain", "expect_partial"],
)
def test_the_state_of_another_optimizer_is_refused(other, target, when, status, tmp_path):
    make_other, message = OTHERS[other]
    path, _ = saved(make_other(), tmp_path, make_variables=tf_variables)
    target = make("Adam") if target == "Adam" else bridged(v1.RMSPropOptimizer(0.1))
    training = Training(target, 0.0, make_variables=tf_variables)
    if when == "built":
        training.steps(0, 1)
    if when == "variables later":
        training.checkpoint = tf.train.Checkpoint(optimizer=target)
    before = training.values() + training.state()
    with pytest.raises(ValueError, match=message) as error:
        restored = training.checkpoint.restore(path)
        if status == "expect_partial":
            restored.expect_partial()
        for name, variable in training.variables.items():
            setattr(training.checkpoint, name, variable)
        before = training.values() + training.state()
        training.steps(1, 2)
    assert "tf.train.Checkpoint(model=…)" in str(error.value)
    after = training.values() + training.state()
    assert all(np.array_equal(one, another) for one, another in zip(before, after))


def test_a_checkpoint_of_a_stateless_optimizer_is_restored(tmp_path):
    path, _ = saved(v1.GradientDescentOptimizer(0.1), tmp_path, make_variables=tf_variables)
    training = Training(make("Momentum"), 0.0, make_variables=tf_variables)
    status = training.checkpoint.restore(path)
    training.steps(0, 1)
    with pytest.raises(AssertionError):  # the checkpoint has no `iterations`
        status.assert_existing_objects_matched()


@pytest.mark.parametrize("steps_before", [0, 1], ids=["deferred", "immediate"])
def test_keras_own_optimizers_do_not_restore_bridged_state(steps_before, tmp_path):
    path, _ = saved(make("Momentum"), tmp_path)
    training = Training(keras.optimizers.Adam(0.1), 1.0).steps(0, steps_before)
    fresh = Training(keras.optimizers.Adam(0.1), 1.0).steps(0, steps_before)
    status = training.checkpoint.restore(path)
    training.optimizer.build(list(training.variables.values()))
    fresh.optimizer.build(list(fresh.variables.values()))
    assert all(np.array_equal(*pair) for pair in zip(training.state(), fresh.state()))
    with pytest.raises(AssertionError):
        status.assert_consumed()


def test_the_weights_can_be_restored_without_the_optimizer(tmp_path):
    path, unstopped = saved(v1.AdamOptimizer(0.1), tmp_path, make_variables=tf_variables)
    training = Training(make("Adam"), 0.0, make_variables=tf_variables)
    tf.train.Checkpoint(**training.variables).restore(path).expect_partial()
    assert all(value.any() for value in training.values())
    training.steps(0, 1)


# Weights and copies.


def test_set_weights_sets_all_or_nothing():
    training = Training(make("Adam"), 1.0).steps(0, 2)
    weights = training.state()
    with pytest.raises(ValueError, match="not yet been built|shapes"):
        make("Adam").set_weights(weights)
    for wrong in (weights[:-1], weights + weights[:1], weights[::-1]):
        with pytest.raises(ValueError, match="Nothing was set"):
            training.optimizer.set_weights([weight * 0 for weight in wrong])
        assert all(np.array_equal(*pair) for pair in zip(training.state(), weights))
    other = Training(make("Adam"), 1.0).steps(0, 1)
    other.optimizer.set_weights(weights)
    assert all(np.array_equal(*pair) for pair in zip(other.state(), weights))


def through_pickle(optimizer):
    return pickle.loads(pickle.dumps(optimizer))


@pytest.mark.in_turn(
    name=["Keras' own", *MAKERS], steps=[0, 3], way=[copy.copy, copy.deepcopy, through_pickle]
)
def test_a_copy_is_a_new_optimizer_of_the_same_configuration(name, steps, way):
    """A copy has no state. Copying a trained optimizer gives a warning, also with Keras' Adam."""
    own = keras.optimizers.Adam(0.1) if name == "Keras' own" else make(name)
    training = Training(own, 1.0).steps(0, steps)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        copied = way(training.optimizer)
    assert bool(steps) == any("Skipping variable loading" in str(w.message) for w in caught)
    assert copied.get_config() == training.optimizer.get_config()
    before = training.state()
    one = Training(copied, 1.0).steps(0, 8)
    fresh = keras.optimizers.Adam(0.1) if name == "Keras' own" else make(name)
    one.assert_same(Training(fresh, 1.0).steps(0, 8))
    assert all(np.array_equal(*pair) for pair in zip(training.state(), before))


def test_the_bridge_to_keras_2_does_not_restore_keras_3_state(tmp_path):
    path, _ = saved(make("Adam"), tmp_path, make_variables=tf_variables)
    training = Training(OPTIMIZER_V2.bridged("Adam"), 0.0, make_variables=tf_variables)
    status = training.checkpoint.restore(path)
    training.steps(0, 1)
    assert training.optimizer.iterations.numpy() == 1
    with pytest.raises(AssertionError):
        status.assert_consumed()
