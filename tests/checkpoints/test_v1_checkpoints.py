"""Tests that load_v1_checkpoint continues the training of a TF1 graph in Keras, bit for bit.

Most expected values come from a Session of the installed TensorFlow, in which TensorFlow's own
Saver has restored the same checkpoint (`continued_in_v1` in
tests/support/checkpoints/v1_checkpoints.py).
"""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import AdagradDecayOptimizer
from legacy_opt.compat import load_v1_checkpoint
from tests.support.checkpoints.v1_checkpoint_cases import (
    ALL,
    END,
    EVERY_OPTIMIZER,
    adam,
    assert_goes_on,
    counted_by_the_whole,
    momentum,
    problem_for,
    round_trip,
    way_of,
)
from tests.support.checkpoints.v1_checkpoints import (
    AFTER,
    APIS,
    BEFORE,
    EVERY_API,
    KerasTraining,
    assert_equal,
    assert_same_steps,
    continued_in_v1,
    problem,
    tensors,
    trained_in_v1,
    v1_training,
)
from tests.support.keras import keras_apis, keras_models, keras_ways
from tests.support.keras.keras_cases import CASES
from tests.support.problems import Problem, Rows
from tests.tools import record_data

v1 = tf.compat.v1


# Every optimizer.


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Returns a function that trains with an optimizer of `ALL` in a Session.

    The function returns the checkpoint's path and the result of `continued_in_v1`. These results
    are cached.
    """
    known = {}

    def once(name, use_resource, dtype="float32", config=None):
        key = (name, use_resource, dtype, config is None)
        if key not in known:
            case = ALL[name]
            path = tmp_path_factory.mktemp("trained") / "model"
            made = problem_for(case, dtype), case.make
            path = trained_in_v1(path, *made, use_resource=use_resource)
            known[key] = path, continued_in_v1(path, *made, config=config)
        return known[key]

    return once


@pytest.mark.one_lane
@pytest.mark.in_turn(name=EVERY_OPTIMIZER, api=APIS, use_resource=[False, True])
def test_every_optimizer_goes_on(name, api, use_resource, trained):
    way, config = way_of(name)
    path, expected = trained(name, use_resource, config=config)
    training = KerasTraining(problem_for(ALL[name]), ALL[name].make, api)
    report = assert_goes_on(path, training, expected, way)
    assert {transfer.source for transfer in report.transferred} == set(tensors(path))


@pytest.mark.in_turn(name=["Adam", "RMSProp centered, momentum"], api=APIS)
def test_eagerly(name, api, trained):
    path, expected = trained(name, True, config=keras_ways.WITHOUT_REWRITING)
    training = KerasTraining(problem_for(ALL[name]), ALL[name].make, api)
    assert_goes_on(path, training, expected, "eager")


@pytest.mark.in_turn(case=[("Momentum", "float16"), ("Adam", "float64")], api=APIS)
def test_other_dtypes(case, api, trained):
    name, dtype = case
    path, expected = trained(name, True, dtype)
    training = KerasTraining(problem_for(ALL[name], dtype), ALL[name].make, api)
    assert_goes_on(path, training, expected)


@pytest.mark.in_turn(name=["Adam", "AdagradDecayV2"], api=APIS)
def test_into_an_optimizer_that_has_trained_already(name, api, trained):
    path, expected = trained(name, True)
    training = KerasTraining(problem_for(ALL[name]), ALL[name].make, api, start=1)
    training.train(0, 3)
    assert_goes_on(path, training, expected)


@EVERY_API
def test_a_decaying_learning_rate_goes_on_at_the_right_step(api, tmp_path):
    def make(step):
        step = tf.Variable(0, dtype=tf.int64, trainable=False) if step is None else step
        rate = v1.train.exponential_decay(0.5, step, 3, 0.5, staircase=True)
        return v1.train.MomentumOptimizer(rate, 0.9)

    round_trip(tmp_path / "model", problem(), make, api)


@pytest.mark.in_turn(compiled=["before", "after"], api=APIS)
def test_fit_goes_on(api, compiled, tmp_path):
    fed = keras_models.problem(END)
    path = trained_in_v1(tmp_path / "model", fed, adam)
    _, steps, end = continued_in_v1(path, fed, adam)
    home = keras_apis.APIS[api]
    optimizer, model, recorder = home.bridged(adam()), home.fed_model(fed), home.recorder()
    names = os.path.basename  # removes the layer's name, which is fed or fed_1
    if compiled == "before":
        model.compile(optimizer, keras_models.the_output)
    assert load_v1_checkpoint(path, model, optimizer, name_map=names).complete
    if compiled == "after":
        model.compile(optimizer, keras_models.the_output)
    rest = fed._replace(gradients=fed.gradients[BEFORE:])
    keras_models.fit_data(model, rest, 1, [recorder])
    assert_same_steps(recorder.steps, steps)
    layer = model.get_layer("fed")
    variables = {name: getattr(layer, name) for name in fed.values}
    for key, slot in keras_ways._slots(optimizer, variables).items():
        assert np.array_equal(slot.numpy(), end[key]), key
    assert optimizer.iterations.numpy() == END


# Formats and paths.


@pytest.mark.in_turn(use_resource=[False, True], api=APIS)
def test_the_v1_format(api, use_resource, tmp_path):
    options = {"saver": {"write_version": v1.train.SaverDef.V1}, "use_resource": use_resource}
    round_trip(tmp_path / "model", problem(), adam, api, options)
    assert not (tmp_path / "model.index").exists()


def what_path(path, kind):
    """Returns one of the paths by which a user may refer to a checkpoint."""
    if kind == "directory":
        return str(Path(path).parent)
    return {"str": path, "Path": Path(path), "index": path + ".index"}[kind]


@pytest.mark.parametrize("kind", ["str", "Path", "index", "directory"])
def test_paths_to_a_checkpoint(kind, tmp_path):
    path = trained_in_v1(tmp_path / "model-4", problem(), momentum)
    training = KerasTraining(problem(), momentum, APIS[0])
    given = what_path(path, kind)
    assert load_v1_checkpoint(given, training.variables, training.optimizer).complete
    assert np.array_equal(training.variables["table"].numpy(), tensors(path)["table"])


def test_a_directory_means_its_latest_checkpoint(tmp_path):
    with v1_training(problem(), momentum) as old:
        saver = v1.train.Saver()
        for step in range(2):
            old.train(step, step + 1)
            saver.save(old.session, str(tmp_path / "model"), global_step=old.step)
        expected = old.state()
    training = KerasTraining(problem(), momentum, APIS[0])
    load_v1_checkpoint(str(tmp_path), training.variables, training.optimizer)
    assert_equal(training.state(), expected)
    assert training.optimizer.iterations.numpy() == 2


# The global step.


@pytest.mark.in_turn(name=["Adam", "AdagradDecay"], api=APIS)
def test_a_global_step_of_32_bits(name, api, tmp_path):
    make = CASES[name].make

    def made_in_keras(step):
        del step  # `step` is None. AdagradDecay's counts have the dtype of the global step.
        return make(tf.Variable(0, dtype=tf.int32, name="step", trainable=False))

    options = {"step_dtype": "int32"}
    round_trip(tmp_path / "model", problem(), make, api, options, made_in_keras)


@EVERY_API
def test_a_global_step_of_another_name(api, tmp_path):
    options = {"step": "tower/steps"}
    names = {"global_step": "tower/steps"}
    round_trip(tmp_path / "model", problem(), adam, api, options, name_map=names)


@EVERY_API
def test_without_a_global_step_iterations_do_not_change(api, tmp_path):
    path = trained_in_v1(tmp_path / "model", problem(), adam, step=None)
    assert "global_step" not in tensors(path)
    expected = continued_in_v1(path, problem(), adam, step=None)
    training = KerasTraining(problem(), adam, api)
    training.optimizer.iterations.assign(70)
    load_v1_checkpoint(path, training.variables, training.optimizer, {"global_step": None})
    assert_equal(training.state(), {**expected[0], ("step",): np.int64(70)})
    assert_same_steps(training.train(BEFORE, END), expected[1])
    assert_equal(training.state(), {**expected[2], ("step",): np.int64(70 + AFTER)})


# Recorded and moved checkpoints.


def recorded_problem(recorded):
    """Returns a problem with the gradients of the training steps after the checkpoint."""
    gradients = []
    for batch in recorded.batches:
        step = {name: batch[name] for name in ("dense/kernel", "dense/bias")}
        step["embeddings"] = Rows(batch["rows"], batch["ids"])
        gradients.append(step)
    values = {name: recorded.saved[name] for name in record_data.SHAPES}
    return Problem(values, gradients, ("embeddings",), "float32")


def recorded_state(arrays, slots, scope=""):
    """Converts a dict of a checkpoint's arrays to the form of `KerasTraining.state()`."""
    state = {("step",): arrays["global_step"]}
    for name in record_data.SHAPES:
        state[(name,)] = arrays[name]
        for slot, end in slots.items():
            state[name, slot] = arrays[scope + name + "/" + end]
    for name in ("beta1_power", "beta2_power"):
        if scope + name in arrays:
            state["shared", name] = arrays[scope + name]
    counts = ("embeddings", "accumulator_decay_power")
    if counts in state:
        state[counts] = counted_by_the_whole(state[counts])
    return state


def recorded_adam(step):
    return v1.train.AdamOptimizer(**record_data.ADAM)


def recorded_adagrad_decay(step):
    return AdagradDecayOptimizer(global_step=step, **record_data.ADAGRAD_DECAY)


OF_ADAM = {"m": "Adam", "v": "Adam_1"}
OF_ADAGRAD_DECAY = {"accumulator": "AdagradDecay", "accumulator_decay_power": "AdagradDecay_1"}
RECORDED = {
    "adam_tf115": (recorded_adam, OF_ADAM, ""),
    "adam_tf115_v1_format": (recorded_adam, OF_ADAM, ""),
    "optimize_loss_tf115": (recorded_adam, OF_ADAM, "OptimizeLoss/"),
    "partitioned_tf115": (recorded_adagrad_decay, OF_ADAGRAD_DECAY, ""),
}


@pytest.mark.in_turn(name=list(RECORDED), api=APIS)
def test_checkpoints_of_tensorflow_1_15(name, api):
    make, slots, scope = RECORDED[name]
    recorded = record_data.load(name)
    rest = recorded_problem(recorded)
    variables = {each: tf.Variable(value * 0, name=each) for each, value in rest.values.items()}
    training = KerasTraining(rest, make, api, variables)
    # The checkpoint of tf.contrib.layers.optimize_loss also contains the learning rate.
    load_v1_checkpoint(
        recorded.prefix, variables, training.optimizer, ignore=["OptimizeLoss/learning_rate"]
    )
    saved = recorded_state(recorded.saved, slots, scope)
    assert_equal(training.state(), saved, "loaded")
    steps = training.train(0, len(rest.gradients))
    with v1_training(rest, make) as session:
        session.put(saved)
        for one, other in zip(session.train(0, len(rest.gradients)), steps):
            assert_equal(other, one)
        end = session.state()
    assert_equal(training.state(), end, "at the end")
    # Versions of TensorFlow round differently (measured: up to 7e-7 for Adam after many steps).
    later = recorded_state(recorded.later, slots, scope)
    for key, value in later.items():
        np.testing.assert_allclose(end[key], value, rtol=1e-5, atol=1e-6, err_msg=str(key))


@pytest.mark.parametrize("named", ["itself", "by its folder"])
def test_a_checkpoint_that_was_moved(named, tmp_path):
    # By default, the file `checkpoint` contains an absolute path, which is wrong after a move.
    saver = {"save_relative_paths": True} if named == "by its folder" else None
    path = trained_in_v1(tmp_path / "here" / "model", problem(), momentum, saver=saver)
    expected = tensors(path)
    there = tmp_path / "there"
    shutil.move(str(tmp_path / "here"), str(there))
    path = there / "model" if named == "itself" else there
    training = KerasTraining(problem(), momentum, APIS[0])
    load_v1_checkpoint(str(path), training.variables, training.optimizer)
    assert np.array_equal(training.variables["table"].numpy(), expected["table"])
