"""Tests of checkpoints, copies and pickles of bridged optimizers (made by `to_keras`)."""

import copy
import pickle

import numpy as np
import pytest
import tensorflow as tf

from tests.keras_bridge.object_checkpoints import (
    MAKERS,
    PROBLEM,
    Training,
    assert_goes_on,
    keras_variables,
    make,
    saved,
    tf_variables,
)
from tests.support import running
from tests.support.keras import keras_models
from tests.support.keras.keras2_saving import plain, same
from tests.support.keras.keras_apis import KERAS_3, OPTIMIZER_V2, of_each

v1 = tf.compat.v1
every_optimizer = pytest.mark.parametrize("name", MAKERS)


@every_optimizer
@pytest.mark.parametrize("steps_before", [0, 2], ids=["deferred", "immediate"])
@of_each("kind", optimizer_v2=[tf_variables], keras3=[keras_variables, tf_variables])
def test_training_continues_with_the_same_bits(api, name, kind, steps_before, tmp_path):
    assert_goes_on(lambda: make(api, name), MAKERS[name], kind, steps_before, tmp_path)


@every_optimizer
def test_a_checkpoint_saved_right_after_restoring_is_complete(api, name, tmp_path):
    path, unstopped = saved(make(api, name), tmp_path)
    training = Training(make(api, name))
    training.checkpoint.restore(path)
    if api is KERAS_3:
        training.optimizer.build(list(training.variables.values()))
    again = training.checkpoint.save(str(tmp_path / "again"))
    names = [key for key, _ in tf.train.list_variables(path)]
    assert tf.train.list_variables(path) == tf.train.list_variables(again)
    if api is OPTIMIZER_V2:
        slots = [key for key in names if ".OPTIMIZER_SLOT" in key]
        assert len(slots) == 2 * len(unstopped.optimizer.get_slot_names())
    for key in names:
        if "VARIABLE_VALUE" in key and "save_counter" not in key:
            values = [tf.train.load_variable(each, key) for each in (path, again)]
            assert np.array_equal(*values), key
    last = Training(make(api, name))
    last.checkpoint.restore(again)
    last.steps(4, 8).assert_same(unstopped)


@every_optimizer
@pytest.mark.parametrize("first", [["matrix"], ["matrix", "table"]], ids=str)
def test_the_order_of_weights_does_not_depend_on_the_order_of_restoring(name, first, tmp_path):
    path, unstopped = saved(make(OPTIMIZER_V2, name), tmp_path)
    optimizer = make(OPTIMIZER_V2, name)
    training = Training(optimizer)
    for variable in first:  # restores these variables before all others
        part = {variable: training.variables[variable]}
        tf.train.Checkpoint(optimizer=optimizer, **part).restore(path)
    training.checkpoint.restore(path)
    training.steps(4, 8).assert_same(unstopped)


def test_restoring_another_optimizers_checkpoint_adds_none_of_its_slots(tmp_path):
    path, _ = saved(make(OPTIMIZER_V2, "Adam"), tmp_path)
    training = Training(OPTIMIZER_V2.bridged("Adagrad"))
    training.checkpoint.restore(path)
    training.steps(4, 8)
    assert training.optimizer.get_slot_names() == ["accumulator"]
    assert len(training.optimizer.get_weights()) == 1 + len(training.variables)
    again = training.checkpoint.save(str(tmp_path / "again"))
    slots = [key for key, _ in tf.train.list_variables(again) if ".OPTIMIZER_SLOT" in key]
    assert len(slots) == 2 and all("accumulator" in key for key in slots)


def test_slots_restored_outside_of_a_strategys_scope_belong_to_the_strategy(tmp_path):
    strategy = tf.distribute.MirroredStrategy(["cpu:0"])

    def training(start):
        with strategy.scope():
            return Training(make(OPTIMIZER_V2, "Adam"), start)

    def slots(trained):
        each = trained.variables["matrix"]
        return [trained.optimizer.get_slot(each, name) for name in ("m", "v")]

    first, again = training(1.0), training(0.0)
    with strategy.scope():
        first.optimizer._create_all_weights(list(first.variables.values()))
    for number, slot in enumerate(slots(first)):
        slot.assign(slot + float(number + 1))
    again.checkpoint.restore(first.checkpoint.save(str(tmp_path / "saved"))).assert_consumed()
    assert [type(slot) for slot in slots(again)] == [type(slot) for slot in slots(first)]
    assert [slot.numpy().max() for slot in slots(again)] == [1.0, 2.0]


@pytest.mark.parametrize("is_plain", [True, False], ids=["Keras' Adam", "Adam"])
def test_the_learning_rate_is_restored_as_by_keras_own_optimizer(is_plain, tmp_path):
    made = plain if is_plain else lambda: make(OPTIMIZER_V2, "Adam")
    training = Training(made(), start=1.0).steps(0, 1)
    training.optimizer.learning_rate = 0.375
    path = training.checkpoint.save(str(tmp_path / "saved"))
    other = Training(made())
    other.checkpoint.restore(path)
    other.steps(1, 2)
    assert other.optimizer.learning_rate.numpy() == np.float32(0.375)
    assert same(other.values(), training.steps(1, 2).values())


@every_optimizer
def test_a_session_restores_a_checkpoint(name, tmp_path):
    def run(restore_from=None, save_to=None, first=0, last=8):
        with tf.Graph().as_default(), v1.Session() as session:
            variables = keras_models.variables_of(PROBLEM)
            optimizer = make(OPTIMIZER_V2, name)
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


def plain_can(copied):
    """Returns whether `copied` works for Keras' own Adam, both untrained and trained."""
    try:
        copied(plain())
        copied(Training(plain()).steps(0, 1).optimizer)
    except (AttributeError, TypeError, NotImplementedError, ValueError, pickle.PicklingError):
        return False
    return True


COPIES = {"deepcopy": copy.deepcopy, "pickle": lambda each: pickle.loads(pickle.dumps(each))}


def test_keras_own_optimizer_supports_deepcopy():
    assert plain_can(copy.deepcopy)


@every_optimizer
@pytest.mark.parametrize("way", COPIES)
def test_a_fresh_optimizer_can_be_copied_where_keras_own_can(name, way):
    if not plain_can(COPIES[way]):
        with pytest.raises((AttributeError, pickle.PicklingError)):
            COPIES[way](make(OPTIMIZER_V2, name))
        return
    original = make(OPTIMIZER_V2, name)
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
    if not plain_can(COPIES[way]):
        return
    training = Training(make(OPTIMIZER_V2, name), start=1.0).steps(0, 4)
    before = training.optimizer.get_weights()
    copied = COPIES[way](training.optimizer)
    assert copied.get_config() == training.optimizer.get_config()
    assert same(copied.get_weights(), before)
    copied.iterations.assign(99)
    copied.set_weights([weight * 0 for weight in before])
    assert same(training.optimizer.get_weights(), before)


@every_optimizer
def test_a_copy_of_a_trained_optimizer_is_independent(name):
    training = Training(make(OPTIMIZER_V2, name), start=1.0).steps(0, 4)
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
