"""Object checkpoints, copies and pickles of bridged optimizers, apart from any model."""

import copy
import pickle

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import AdagradDecayOptimizer, AdagradDecayOptimizerV2, versions
from tests.support import rules, running
from tests.support.keras import keras_models
from tests.support.keras.goes_on import assert_goes_on
from tests.support.keras.keras2_saving import RowAdagrad, native, same
from tests.support.keras.keras_apis import OPTIMIZER_V2

bridged = OPTIMIZER_V2.bridged

v1 = tf.compat.v1
keras = versions.keras_2()

OPTIMIZERS = {
    "Adam": lambda: bridged("Adam"),
    "Momentum": lambda: bridged("Momentum"),
    "AdagradDecay": lambda: bridged(AdagradDecayOptimizer(0.1, None, 0.1, 4, 0.5)),
    "AdagradDecayV2": lambda: bridged(AdagradDecayOptimizerV2(0.1, None, 0.1, 4, 0.5)),
    "DiffGrad": lambda: bridged(rules.MyDiffGradOptimizer(0.1)),
    "RowAdagrad": lambda: bridged(RowAdagrad(0.1)),
}
PROBLEM = keras_models.problem(steps=8)
every_optimizer = pytest.mark.parametrize("name", OPTIMIZERS)


class Training:
    """An optimizer, its variables and their checkpoint."""

    def __init__(self, optimizer, start=0.0):
        self.optimizer = optimizer
        self.variables = {
            name: tf.compat.v2.Variable(value * start, name=name)
            for name, value in PROBLEM.values.items()
        }
        self.checkpoint = tf.train.Checkpoint(optimizer=optimizer, **self.variables)

    def steps(self, first, last):
        for gradients in PROBLEM.gradients[first:last]:
            self.optimizer.apply_gradients(keras_models.pairs(gradients, self.variables))
        return self

    def values(self):
        return [variable.numpy() for variable in self.variables.values()]

    def assert_same(self, other):
        assert same(self.values(), other.values())
        assert same(self.optimizer.get_weights(), other.optimizer.get_weights())


def saved(name, path):
    """Returns the path of a checkpoint after four steps, and the run that went on."""
    training = Training(OPTIMIZERS[name](), start=1.0).steps(0, 4)
    path = training.checkpoint.save(str(path / "saved"))
    return path, training.steps(4, 8)


@every_optimizer
@pytest.mark.parametrize("steps_before", [0, 2], ids=["deferred", "immediate"])
def test_training_goes_on_with_the_same_bits(name, steps_before, tmp_path):
    path, unstopped = saved(name, tmp_path)
    assert_goes_on(Training(OPTIMIZERS[name]()).steps(0, steps_before), path, unstopped)


@every_optimizer
def test_what_is_restored_and_saved_again_before_a_step_is_whole(name, tmp_path):
    path, unstopped = saved(name, tmp_path)
    training = Training(OPTIMIZERS[name]())
    training.checkpoint.restore(path)
    again = training.checkpoint.save(str(tmp_path / "again"))
    reader, other = tf.train.load_checkpoint(path), tf.train.load_checkpoint(again)
    names = set(reader.get_variable_to_shape_map())
    assert names == set(other.get_variable_to_shape_map())
    assert len([key for key in names if ".OPTIMIZER_SLOT" in key]) == 2 * len(
        unstopped.optimizer.get_slot_names()
    )
    for key in names:
        if "VARIABLE_VALUE" in key and "save_counter" not in key:
            assert np.array_equal(reader.get_tensor(key), other.get_tensor(key)), key
    last = Training(OPTIMIZERS[name]())
    last.checkpoint.restore(again)
    last.steps(4, 8).assert_same(unstopped)


@every_optimizer
@pytest.mark.parametrize("first", [["matrix"], ["matrix", "table"]], ids=str)
def test_weights_are_in_the_order_of_training_whatever_was_restored_first(name, first, tmp_path):
    path, unstopped = saved(name, tmp_path)
    optimizer = OPTIMIZERS[name]()
    training = Training(optimizer)
    for variable in first:  # parts of the checkpoint, in another order
        part = {variable: training.variables[variable]}
        tf.train.Checkpoint(optimizer=optimizer, **part).restore(path)
    training.checkpoint.restore(path)
    training.steps(4, 8).assert_same(unstopped)


def test_a_checkpoint_of_another_optimizer_brings_no_foreign_slots(tmp_path):
    path, _ = saved("Adam", tmp_path)
    training = Training(bridged("Adagrad"))
    training.checkpoint.restore(path)
    training.steps(4, 8)
    assert training.optimizer.get_slot_names() == ["accumulator"]
    assert len(training.optimizer.get_weights()) == 1 + len(training.variables)
    again = training.checkpoint.save(str(tmp_path / "again"))
    slots = [key for key, _ in tf.train.list_variables(again) if ".OPTIMIZER_SLOT" in key]
    assert len(slots) == 2 and all("accumulator" in key for key in slots)


@pytest.mark.parametrize("make", [native, OPTIMIZERS["Adam"]], ids=["Keras' Adam", "Adam"])
def test_the_learning_rate_comes_back_as_with_keras_own_optimizer(make, tmp_path):
    training = Training(make(), start=1.0).steps(0, 1)
    training.optimizer.learning_rate = 0.375
    path = training.checkpoint.save(str(tmp_path / "saved"))
    other = Training(make())
    other.checkpoint.restore(path)
    other.steps(1, 2)
    assert other.optimizer.learning_rate.numpy() == np.float32(0.375)
    assert same(other.values(), training.steps(1, 2).values())


@every_optimizer
def test_a_session_restores(name, tmp_path):
    def run(restore_from=None, save_to=None, first=0, last=8):
        with tf.Graph().as_default(), v1.Session() as session:
            variables = keras_models.variables_of(PROBLEM)
            optimizer = OPTIMIZERS[name]()
            placeholders = running._placeholders(PROBLEM)
            train_op = optimizer.apply_gradients(keras_models.pairs(placeholders, variables))
            checkpoint = v1.train.Checkpoint(optimizer=optimizer, **variables)
            if restore_from is not None:
                status = checkpoint.restore(restore_from)
                status.assert_consumed()
                status.initialize_or_restore(session)
            else:
                session.run([v1.global_variables_initializer()])
                session.run([weight.initializer for weight in optimizer.weights])
                session.run([checkpoint.save_counter.initializer] if save_to else [])
            for gradients in PROBLEM.gradients[first:last]:
                session.run(train_op, running._feed(placeholders, gradients))
            path = checkpoint.save(str(save_to), session=session) if save_to else None
            return path, session.run([list(variables.values()), optimizer.weights])

    path, _ = run(save_to=tmp_path / "saved", last=4)
    _, unstopped = run()
    _, restored = run(restore_from=path, first=4)
    assert same(restored[0], unstopped[0]) and same(restored[1], unstopped[1])


# Copies.


def through_pickle(optimizer):
    return pickle.loads(pickle.dumps(optimizer))


def native_can(copied):
    """Whether Keras' own optimizer, fresh or trained, can be copied so."""
    try:
        copied(native())
        copied(Training(native()).steps(0, 1).optimizer)
    except (AttributeError, TypeError, NotImplementedError, ValueError, pickle.PicklingError):
        return False
    return True


COPIES = {"deepcopy": copy.deepcopy, "pickle": through_pickle}


def test_keras_own_optimizer_can_be_copied_deeply():
    assert native_can(copy.deepcopy)


@every_optimizer
@pytest.mark.parametrize("way", COPIES)
def test_a_fresh_optimizer_can_be_copied_where_keras_own_can(name, way):
    if not native_can(COPIES[way]):
        with pytest.raises((AttributeError, pickle.PicklingError)):
            COPIES[way](OPTIMIZERS[name]())
        return
    original = OPTIMIZERS[name]()
    copied = COPIES[way](original)
    assert copied.get_config() == original.get_config()
    copied.learning_rate = 0.5
    assert original.get_config()["learning_rate"] != 0.5
    copied.learning_rate = original.get_config()["learning_rate"]
    one = Training(copied, start=1.0).steps(0, 8)
    assert original.weights == []
    one.assert_same(Training(original, start=1.0).steps(0, 8))


@every_optimizer
@pytest.mark.parametrize("way", COPIES)
def test_a_trained_optimizer_is_copied_with_its_state(name, way):
    if not native_can(COPIES[way]):
        return
    training = Training(OPTIMIZERS[name](), start=1.0).steps(0, 4)
    before = training.optimizer.get_weights()
    copied = COPIES[way](training.optimizer)
    assert copied.get_config() == training.optimizer.get_config()
    assert same(copied.get_weights(), before)
    copied.iterations.assign(99)
    copied.set_weights([weight * 0 for weight in before])
    assert same(training.optimizer.get_weights(), before)


@every_optimizer
def test_a_copy_of_a_trained_optimizer_trains_on_alone(name):
    training = Training(OPTIMIZERS[name](), start=1.0).steps(0, 4)
    original, copied = training.optimizer, copy.deepcopy(training.optimizer)
    at_four = training.values()
    expected = training.steps(4, 8).values()
    state = original.get_weights()
    for variable, value in zip(training.variables.values(), at_four):
        variable.assign(value)
    training.optimizer = copied
    assert same(training.steps(4, 8).values(), expected)
    assert same(copied.get_weights(), state)
    training.steps(0, 1)
    assert same(original.get_weights(), state)
