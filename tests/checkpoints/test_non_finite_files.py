"""Tests that checkpoints and Keras files with NaN and infinity are saved and loaded bit for bit.

In most tests, all float arrays of the variables and of the optimizer's state contain NaN and, if
they have more than one element, infinity. The learning rate and the integers are finite.
"""

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import LazyAdamOptimizer, versions
from legacy_opt.compat import load_v1_checkpoint, save_v1_checkpoint, to_keras, to_plain_keras
from tests.support.checkpoints.v1_checkpoint_cases import moved_over, trained_in_keras
from tests.support.checkpoints.v1_checkpoints import (
    APIS,
    BEFORE,
    EVERY_API,
    KerasTraining,
    problem,
    v1_training,
)
from tests.support.keras import keras2_saving
from tests.support.keras.keras_apis import KERAS_3
from tests.support.keras.row_adagrad import RowAdagrad
from tests.support.processes.command_line import Screen

v1 = tf.compat.v1
SAVERS = {"V2": {}, "V1": {"write_version": 1}}
# A variable is unpartitioned ("whole"), or partitioned and saved as one tensor ("in parts"), or
# partitioned and saved as one tensor for each partition ("part by part").
PARTS = ("whole", "in parts", "part by part")
ODD = (np.nan, np.inf, -np.inf)
if "keras3" in APIS:
    from tests.support.keras import keras3_saving

    WAYS_OF_KERAS_3 = list(keras3_saving.WAYS)
else:
    WAYS_OF_KERAS_3 = []


def adam(step):
    return v1.train.AdamOptimizer(0.05)


def lazy_adam(step):
    return LazyAdamOptimizer(0.05)


def row_adagrad(step):
    return RowAdagrad(0.1)


def spoiled(value):
    """Returns a copy of `value`. In a float array, the first elements become NaN and infinity."""
    value = np.array(value)
    if value.dtype.kind == "f":
        value.reshape(-1)[: len(ODD)] = ODD[: value.size]
    return value


def spoil(variables):
    for variable in map(versions.tf_variable, variables):
        variable.assign(spoiled(variable.numpy()))


def assert_same(actual, expected):
    """Asserts that two states are equal, and that their float arrays have non-finite elements."""
    assert set(actual) == set(expected)
    for key, value in expected.items():
        np.testing.assert_array_equal(actual[key], value, err_msg=str(key))
        assert np.asarray(actual[key]).dtype == np.asarray(value).dtype, key
        assert np.asarray(value).dtype.kind != "f" or not np.all(np.isfinite(value)), key


def spoiled_in_v1(path, make, how="whole", saver=None):
    """Saves a v1 checkpoint. Returns its path, and the state (None if `make` is row_adagrad)."""
    with v1_training(problem(), make, parts=0 if how == "whole" else 2) as training:
        training.train(0, BEFORE)
        for variable in v1.global_variables():
            variable.load(spoiled(training.session.run(variable)), training.session)
        state = None if make is row_adagrad else training.state()
        names = training.by_name() if how == "part by part" else None
        return training.save(path, names, **(saver or {})), state


def spoiled_in_keras(make, api):
    training = trained_in_keras(problem(), make, api, "eager")
    spoil(list(training.variables.values()))
    spoil([weight for weight in training.optimizer.weights if "learning_rate" not in weight.name])
    return training


# v1 checkpoints.


@pytest.mark.parametrize("how", PARTS)
@pytest.mark.parametrize("saver", SAVERS)
@EVERY_API
def test_loading_a_v1_checkpoint(api, saver, how, tmp_path):
    path, state = spoiled_in_v1(tmp_path / "model", adam, how, SAVERS[saver])
    training = KerasTraining(problem(), adam, api)
    assert load_v1_checkpoint(path, training.variables, training.optimizer).complete
    assert_same(training.state(), state)


@EVERY_API
def test_loading_what_was_saved(api, tmp_path):
    training = spoiled_in_keras(lazy_adam, api)
    path = str(tmp_path / "model")
    save_v1_checkpoint(path, training.variables, training.optimizer)
    assert_same(moved_over(path, lazy_adam, api).state(), training.state())


@pytest.mark.parametrize("how", PARTS)
@EVERY_API
def test_saving_like_another_checkpoint(api, how, tmp_path):
    training = spoiled_in_keras(adam, api)
    options = {} if how == "whole" else {"parts": 2}
    with v1_training(problem(), adam, **options) as session:
        names = session.by_name() if how == "part by part" else None
        like = session.save(tmp_path / "like", names)
    path, state = str(tmp_path / "model"), training.state()
    save_v1_checkpoint(path, training.variables, training.optimizer, like=like)
    with v1_training(problem(), adam, **options) as session:
        session.restore(path, session.by_name() if how == "part by part" else None)
        assert_same(session.state(), state)


@EVERY_API
def test_a_scalar_slot_of_each_part(api, tmp_path):
    """Each partition has a scalar slot `count`. The counts can be joined, because all are NaN."""
    path, _ = spoiled_in_v1(tmp_path / "model", row_adagrad, "part by part")
    training = moved_over(path, row_adagrad, api)
    state = training.state()
    for name in training.variables:
        assert np.isnan(state[name, "count"]) and np.isnan(state[name, "rows"][0])


# Conversions by `legacy-opt convert`.


@pytest.mark.parametrize("make, how", [(adam, "whole"), (row_adagrad, "part by part")])
def test_convert_to_another_format(make, how, tmp_path, capsys):
    source, _ = spoiled_in_v1(tmp_path / "old", make, how, SAVERS["V1" if how == "whole" else "V2"])
    screen = Screen(capsys)
    assert screen.json("convert", source, tmp_path / "new")["complete"]
    assert screen.json("inspect", tmp_path / "new")["step"] == BEFORE
    with v1_training(problem(), make) as session:
        session.restore(tmp_path / "new")
        for variable in v1.global_variables():
            value = session.session.run(variable)
            assert value.dtype.kind != "f" or not np.all(np.isfinite(value)), variable.name


@EVERY_API
def test_convert_an_object_based_checkpoint(api, tmp_path, capsys):
    training = spoiled_in_keras(adam, api)
    objects, state = dict(training.variables, optimizer=training.optimizer), training.state()
    source = tf.train.Checkpoint(**objects).save(str(tmp_path / "objects"))
    screen, made = Screen(capsys), "tensorflow:compat.v1.train.AdamOptimizer"
    assert screen.json("convert", source, tmp_path / "new", "--optimizer", made)["complete"]
    with v1_training(problem(), adam) as session:
        session.restore(tmp_path / "new")
        assert_same(session.state(), state)


# Keras' own files.


@EVERY_API
def test_object_based_checkpoints(api, tmp_path):
    training = spoiled_in_keras(adam, api)
    objects = dict(training.variables, optimizer=training.optimizer)
    path = tf.train.Checkpoint(**objects).save(str(tmp_path / "objects"))
    again = KerasTraining(problem(), adam, api)
    status = tf.train.Checkpoint(**dict(again.variables, optimizer=again.optimizer)).restore(path)
    versions.create_optimizer_weights(again.optimizer, list(again.variables.values()))
    status.assert_existing_objects_matched()
    assert_same(again.state(), training.state())


def assert_weights(actual, expected):
    assert len(actual) == len(expected)
    for one, other in zip(actual, expected):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("way", keras2_saving.WAYS)
def test_files_of_keras_2(way, tmp_path):
    make = keras2_saving.OPTIMIZERS["Adam"]
    model = keras2_saving.build_model(make())
    keras2_saving.train(model, epochs=1)
    for holder in (model, model.optimizer):
        holder.set_weights([spoiled(value) for value in holder.get_weights()])
    save, load = keras2_saving.WAYS[way]
    save(model, tmp_path)
    loaded = load(make, tmp_path)
    assert_weights(loaded.get_weights(), model.get_weights())
    if len(loaded.optimizer.get_weights()) > 1:
        assert_weights(loaded.optimizer.get_weights(), model.optimizer.get_weights())


@pytest.mark.keras3
@pytest.mark.parametrize("way", WAYS_OF_KERAS_3)
def test_files_of_keras_3(way, tmp_path):
    def make(step):
        return KERAS_3.bridged(keras3_saving.MAKERS["Adam"](step))

    model = keras3_saving.compiled(make(None))
    keras3_saving.train(model, 0, 1)
    model.set_weights([spoiled(value) for value in model.get_weights()])
    rate = model.optimizer.learning_rate
    spoil([each for each in model.optimizer.variables if each is not rate])
    expected, _ = keras3_saving.state(model)
    save, load = keras3_saving.WAYS[way]
    save(model, tmp_path)
    found, _ = keras3_saving.state(load(tmp_path, make))
    assert list(found) == list(expected)
    assert_weights(found.values(), expected.values())


# Keras' own optimizers.


@pytest.mark.parametrize("name", ["Adagrad", "Ftrl"])
@EVERY_API
def test_to_keras_own_and_back(api, name):
    makers = {"Adagrad": v1.train.AdagradOptimizer, "Ftrl": v1.train.FtrlOptimizer}
    variable = tf.compat.v2.Variable(np.ones([4, 3], "f"))
    optimizer = to_keras(makers[name](0.1), api=api)
    optimizer.apply_gradients([(tf.ones([4, 3]), variable)])
    slots = optimizer.get_slot_names()
    spoil([optimizer.get_slot(variable, slot) for slot in slots])
    plain = to_plain_keras(optimizer, variables=[variable]).optimizer
    moved = [np.asarray(each) for each in plain.variables] if api == "keras3" else None
    moved = moved or plain.get_weights()
    for slot in slots:
        value = versions.tf_variable(optimizer.get_slot(variable, slot)).numpy()
        assert any(np.array_equal(np.isnan(value), np.isnan(each)) for each in moved[1:])


@EVERY_API
def test_a_power_of_beta_that_is_nan_is_refused(api):
    """Keras computes the power from `iterations`, so the NaN would be lost without the error."""
    variable = tf.compat.v2.Variable(np.ones([4, 3], "f"))
    optimizer = to_keras(adam(None), api=api)
    optimizer.apply_gradients([(tf.ones([4, 3]), variable)])
    optimizer.non_slots["beta1_power"].assign(np.nan)
    with pytest.raises(ValueError, match="beta1_power is nan"):
        to_plain_keras(optimizer, variables=[variable])


def test_comparisons_treat_nan_as_equal():
    from legacy_opt.compat import arrays

    one = np.float32([np.nan, np.inf, 0.0, 1.0])
    assert arrays.same(one, -1 * np.float32([np.nan, -np.inf, 0.0, -1.0]))
    assert not arrays.same(one, one[:3]) and not arrays.same(one, one * 2)
    assert arrays.differences(one, one + np.float32([0, 0, 0, 0.5])).tolist() == [0, 0, 0, 0.5]
    for other in ([1, np.inf, 0, 1], [np.nan, -np.inf, 0, 1], [np.nan, 5, 0, 1]):
        assert np.max(arrays.differences(one, np.float32(other))) == np.inf
