"""Tests that Keras 3 saves an OptimizerV2 and loads it again."""

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt.compat import to_keras
from tests.support.keras import keras_models
from tests.support.keras.keras_apis import KERAS_3, OPTIMIZER_V2
from tests.support.keras.loading import load_model
from tests.support.keras.optimizers_v2 import MAKERS, Gravity, Heavy, Lookahead, legacy, schedules

pytestmark = pytest.mark.keras3

keras = KERAS_3.keras
PROBLEM = keras_models.problem()


def crossed(name, **arguments):
    return to_keras(MAKERS[name](), api="keras3", **arguments)


@pytest.mark.in_turn(
    ending=["keras", "h5", "weights.h5", "checkpoint"],
    name=["Heavy", "Adam amsgrad", "SGD, schedule"],
)
def test_training_continues_from_files(name, ending, tmp_path):
    train_save_and_go_on(name, ending, tmp_path)


@pytest.mark.parametrize("name", ["Adam", "Nadam", "Lookahead"])
def test_a_checkpoint_is_restored_before_the_variables_are_known(name, tmp_path):
    train_save_and_go_on(name, "checkpoint", tmp_path, is_built=False)


@pytest.mark.parametrize("ending", ["keras", "h5", "checkpoint"])
def test_a_schedule_that_was_set_later_is_saved(ending, tmp_path):
    def change(optimizer):
        optimizer.learning_rate = schedules.ExponentialDecay(0.1, 3, 0.5)

    train_save_and_go_on("Adam", ending, tmp_path, change=change)


@pytest.mark.in_turn(name=["Lookahead", "Adam", "Nadam"], ending=["keras", "h5", "checkpoint"])
def test_reading_the_rate_changes_no_file(name, ending, tmp_path):
    """As callbacks do: before the optimizer is built, and before a checkpoint is restored."""
    train_save_and_go_on(
        name, ending, tmp_path, is_built=False, change=lambda optimizer: float(optimizer.lr)
    )


def test_a_restored_rate_is_read_before_the_optimizer_is_built(tmp_path):
    saved = crossed("Adam")
    saved.learning_rate = 0.25
    path = tf.train.Checkpoint(optimizer=saved).save(str(tmp_path / "saved"))
    other = crossed("Adam")
    tf.train.Checkpoint(optimizer=other).restore(path)
    assert float(other.learning_rate) == 0.25


def test_a_variable_of_the_user_is_in_checkpoints(tmp_path):
    rate = tf.Variable(0.5)
    path = tf.train.Checkpoint(o=to_keras(legacy.SGD(rate), api="keras3")).save(str(tmp_path / "x"))
    rate.assign(0.25)
    tf.train.Checkpoint(o=to_keras(legacy.SGD(rate), api="keras3")).restore(path)
    assert rate.numpy() == 0.5


def test_the_variable_of_another_optimizer_is_the_learning_rate():
    other = legacy.Adam(0.1)
    optimizer, variable = to_keras(legacy.SGD(other.learning_rate), api="keras3"), tf.Variable(1.0)
    other.learning_rate = 0.5
    optimizer.apply_gradients([(tf.constant(1.0), variable)])
    assert variable.numpy() == 0.5


def train_save_and_go_on(name, ending, tmp_path, is_built=True, change=lambda optimizer: None):
    """Compares a training with one that is saved and loaded.

    Args:
      name: the name of the optimizer in `MAKERS`.
      ending: the kind of the file.
      tmp_path: a new folder.
      is_built: whether the optimizer is built before a checkpoint is restored.
      change: called with the optimizer in the middle of the training, before it is saved, and, if
        the file is a checkpoint, with the other optimizer before it is restored.
    """
    x, y = np.random.RandomState(0).rand(2, 8, 3)
    y = y[:, :1]

    def made():
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input([3]), keras.layers.Dense(4), keras.layers.Dense(1)])
        model.compile(crossed(name), keras.losses.MeanSquaredError())
        return model

    model = made()
    model.fit(x, y, verbose=0, shuffle=False, epochs=2)
    change(model.optimizer)
    model.train_function = None  # it was traced with the hyperparameters before `change`
    path = str(tmp_path / f"model.{ending}")
    if ending == "checkpoint":
        path = tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(path)
        other = made()
        if is_built:
            other.optimizer.build(other.trainable_variables)
        change(other.optimizer)
        tf.train.Checkpoint(model=other, optimizer=other.optimizer).restore(path)
    elif ending == "weights.h5":
        model.save_weights(path)
        other = made()
        other.optimizer.build(other.trainable_variables)
        other.load_weights(path)
    else:
        model.save(path)
        other = load_model(KERAS_3, path, Heavy, Lookahead)
    for each in (model, other):
        each.fit(x, y, verbose=0, shuffle=False, epochs=2)
    assert other.optimizer.iterations.numpy() == model.optimizer.iterations.numpy()
    for one, another in zip(other.get_weights(), model.get_weights()):
        np.testing.assert_array_equal(one, another)


@pytest.mark.parametrize(
    "name",
    [
        each
        for each in MAKERS
        if "function" not in each and "transformer" not in each and each != "Lookahead"
    ],
)
def test_a_configuration_makes_the_same_optimizer(name):
    optimizer = crossed(name, use_ema=True)
    with keras.utils.custom_object_scope({"Heavy": Heavy, "Gravity": Gravity}):
        config = keras.optimizers.serialize(optimizer)
        other = keras.optimizers.deserialize(config)
    assert other.use_ema
    assert other._inner.get_config() == optimizer._inner.get_config()


def test_an_unknown_class_cannot_be_loaded():
    config = crossed("Heavy").get_config()
    with pytest.raises(ValueError, match="OptimizerV2 class 'Heavy' is not registered"):
        type(crossed("Adam")).from_config(config)


class Slower(OPTIMIZER_V2.keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step):
        return 0.5 / (1 + tf.cast(step, tf.float32))

    def get_config(self):
        return {}


@pytest.mark.parametrize("wrapped", [False, True])
def test_classes_inside_a_configuration_are_found_in_keras_3(wrapped):
    given = Lookahead(Heavy(momentum=0.5)) if wrapped else legacy.SGD(Slower())
    config = keras.saving.serialize_keras_object(to_keras(given, api="keras3"))
    known = {each.__name__: each for each in (Heavy, Slower, Lookahead)}
    made = keras.saving.deserialize_keras_object(config, custom_objects=known)
    assert made._inner.get_config() == to_keras(given, api="keras3")._inner.get_config()
    found = made._inner._optimizer if wrapped else made._inner._hyper["learning_rate"]
    assert type(found) is (Heavy if wrapped else Slower)


def test_a_class_with_the_name_of_another():
    """It would be loaded as TensorFlow's."""
    other = type("Adam", (legacy.SGD,), {})
    optimizer = to_keras(other(0.1), api="keras3")
    with pytest.raises(ValueError, match="Adam cannot be saved: another class of that name"):
        optimizer.get_config()
    other = keras.saving.register_keras_serializable("mine")(other)
    made = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(optimizer))
    assert type(made._inner) is other


class ForgetsDefaults(legacy.SGD):
    """Its get_config lacks an argument, as that of TensorFlow Addons' NovoGrad does."""

    def __init__(self, amsgrad=False, use_locking=True):
        super().__init__()
        self.amsgrad = amsgrad

    def get_config(self):
        return {}


def test_arguments_with_defaults_need_not_be_in_a_configuration():
    assert to_keras(ForgetsDefaults(), api="keras3").get_config()
    with pytest.raises(ValueError, match="does not include the argument amsgrad"):
        to_keras(ForgetsDefaults(amsgrad=True), api="keras3").get_config()
