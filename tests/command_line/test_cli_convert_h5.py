"""Tests of `legacy-opt convert --model` from .h5 files of Keras' own optimizers."""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import versions
from legacy_opt.compat import load_v1_checkpoint, to_keras
from tests.support.checkpoints.v1_checkpoints import tensors
from tests.support.processes.command_line import with_users_module

h5py = pytest.importorskip("h5py")
v1, keras = tf.compat.v1, tf.keras
KERAS_3 = versions.keras_facts()["generation"] == 3
HOMES = [keras.optimizers]  # the modules of Keras' optimizers
# TensorFlow 2.11 to 2.15 have other optimizers beside those of Keras 2.
HAS_OTHERS = not KERAS_3 and not hasattr(keras.optimizers.Adam, "get_slot")
if HAS_OTHERS:
    HOMES.append(keras.optimizers.legacy)
OURS = {
    "SGD": lambda: v1.train.GradientDescentOptimizer(0.1),
    "Momentum": lambda: v1.train.MomentumOptimizer(0.1, 0.9),
    "Adam": lambda: v1.train.AdamOptimizer(0.1, epsilon=1e-7),
    "Adagrad": lambda: v1.train.AdagradOptimizer(0.1),
    "Adadelta": lambda: v1.train.AdadeltaOptimizer(0.1, epsilon=1e-7),
    "Adamax": lambda: legacy_opt.AdaMaxOptimizer(0.1, epsilon=1e-7),
    "Ftrl": lambda: v1.train.FtrlOptimizer(0.1),
    "RMSprop": lambda: v1.train.RMSPropOptimizer(0.1, epsilon=1e-7),
    "RMSpropMomentum": lambda: v1.train.RMSPropOptimizer(0.1, momentum=0.9, epsilon=1e-7),
    "RMSpropCentered": lambda: v1.train.RMSPropOptimizer(0.1, epsilon=1e-7, centered=True),
}
USERS_MODULE = """
import functools
from tests.command_line import test_cli_convert_h5 as tests
for name in [*tests.OURS, "renamed"]:
    globals()[name] = functools.partial(tests.model_of_this_package, name)
"""
THEIRS = {
    "RMSpropMomentum": lambda home: home.RMSprop(0.1, momentum=0.9, epsilon=1e-7),
    "RMSpropCentered": lambda home: home.RMSprop(0.1, epsilon=1e-7, centered=True),
    "Adadelta": lambda home: home.Adadelta(0.1, epsilon=1e-7),
    "RMSprop": lambda home: home.RMSprop(0.1, epsilon=1e-7),
    "Adagrad": lambda home: home.Adagrad(0.1),
    "Adamax": lambda home: home.Adamax(0.1),
    "Adam": lambda home: home.Adam(0.1),
    "Ftrl": lambda home: home.Ftrl(0.1),
    "SGD": lambda home: home.SGD(0.1),
}


@pytest.fixture
def screen(capsys, tmp_path, monkeypatch):
    return with_users_module("users_module", USERS_MODULE, capsys, tmp_path, monkeypatch)


def model_with(optimizer, names=("one", "two")):
    def dense(name, seed):  # the kernels have equal shapes
        start = keras.initializers.glorot_uniform(seed)  # roundings grow with some kernels
        return keras.layers.Dense(3, name=name, kernel_initializer=start)

    inputs = keras.Input((3,))
    model = keras.Model(inputs, dense(names[1], 2)(dense(names[0], 1)(inputs)))
    # What is tested is the state, so no time is spent on graphs.
    model.compile(optimizer, keras.losses.MeanSquaredError(), run_eagerly=True)
    return model


def model_of_this_package(name):
    """Returns a model for `legacy-opt convert --model`."""
    names = ("other", "one") if name == "renamed" else ("one", "two")
    return model_with(to_keras(OURS.get(name, OURS["Adagrad"])()), names)


def train(model, first=0, steps=3):
    for number in range(first, first + steps):
        random = np.random.RandomState(number)
        model.train_on_batch(random.randn(4, 3).astype("f"), random.randn(4, 3).astype("f"))


def write(optimizer, path):
    """Trains a model with an optimizer of Keras, and writes it to an .h5 file."""
    keras.backend.clear_session()  # in a graph, the names of variables would get numbers
    model = model_with(optimizer)
    train(model)
    model.save(str(path))
    return model


def words(function, source="own.h5"):
    return "convert", source, "back", "--to", "v1", "--model", f"users_module:{function}"


def some_on_every_lane(names):
    """Yields parameters: the two with most state on every lane, each other on one lane a day."""
    for name in names:
        often = name in ("Adam", "RMSpropCentered")
        yield pytest.param(name, marks=pytest.mark.every_lane if often else pytest.mark.one_lane)


@pytest.mark.parametrize("name", some_on_every_lane(THEIRS))
@pytest.mark.parametrize("home", HOMES, ids=["now", "legacy"][: len(HOMES)])
def test_training_goes_on(home, name, screen, tmp_path):
    theirs = write(THEIRS[name](home), tmp_path / "own.h5")
    train(theirs, first=3)
    expected = theirs.get_weights()
    if (
        HAS_OTHERS and home is HOMES[0] and name in ("SGD", "Adamax")
    ):  # SGD has a slot for the momentum 0
        assert screen.run(*words(name))[0] == {"SGD": 2, "Adamax": 1}[name]
        return
    assert screen.json(*words(name))["complete"]
    assert tensors(tmp_path / "back")["global_step"] == 3
    keras.backend.clear_session()
    ours = model_of_this_package(name)
    load_v1_checkpoint(str(tmp_path / "back"), ours, ours.optimizer)
    train(ours, first=3)
    # Steps are about 0.1. Some RMSprops of Keras add epsilon outside of the root.
    for one, other in zip(expected, ours.get_weights()):
        np.testing.assert_allclose(other, one, rtol=0, atol=1e-4)


def test_layers_with_other_names(screen, tmp_path):
    """Like Keras, takes the variables by their positions: a name may belong to another layer."""
    write(HOMES[-1].Adagrad(0.1), tmp_path / "own.h5")
    screen.json(*words("Adagrad"))
    expected = tensors(tmp_path / "back")
    screen.json(*words("renamed"), "--overwrite")
    found = tensors(tmp_path / "back")
    for own, other in (("one", "other"), ("two", "one")):
        for each in ("kernel", "kernel/Adagrad", "bias/Adagrad"):
            np.testing.assert_array_equal(found[f"{other}/{each}"], expected[f"{own}/{each}"])


@pytest.mark.parametrize("home", HOMES, ids=["now", "legacy"][: len(HOMES)])
def test_momentum_is_refused(home, screen, tmp_path):
    """Keras' momentum has another meaning."""
    write(home.SGD(0.1, momentum=0.9), tmp_path / "own.h5")
    assert "whose momentum contains the learning rate" in screen.refused(*words("Momentum"))
    assert not (tmp_path / "back.index").exists()


def test_another_beta_is_refused(screen, tmp_path):
    write(HOMES[-1].Adam(0.1, beta_1=0.8), tmp_path / "own.h5")
    message = screen.refused(*words("Adam"))
    assert "was trained with beta_1=0.8, and the v1 optimizer has 0.9" in message


def test_another_optimizer(screen, tmp_path):
    write(HOMES[-1].Adam(0.1), tmp_path / "own.h5")
    result = screen.json(*words("Adagrad"), code=1)
    assert not result["written"] and "own.h5' contains the state of Adam, which" in result["error"]
    assert "write tf.train.Checkpoint(model=model, " in result["error"]
    missing = [each["name"] for each in result["missing_in_source"]]
    assert "one/kernel, slot accumulator" in missing and len(missing) == 4
    assert len(result["left_in_source"]) == 8
    assert not (tmp_path / "back.index").exists()


def names_of_state(group):
    names = group.attrs["weight_names"]
    return [name.decode() if isinstance(name, bytes) else name for name in names]


def replaced(group, index, make):
    """Replaces one array of the state by the result of a function."""
    name = names_of_state(group)[index]
    value = np.array(group[name])
    del group[name]
    group[name] = make(value)


def renamed(group, index, name):
    """Gives one array of the state another name."""
    names = names_of_state(group)
    group[name] = np.array(group[names[index]])
    names[index] = name
    group.attrs["weight_names"] = [each.encode() for each in names]


def with_beta(file, value):
    training = file.attrs["training_config"]
    training = json.loads(training if isinstance(training, str) else training.decode())
    training["optimizer_config"]["config"]["beta_1"] = value
    file.attrs["training_config"] = json.dumps(training)


TAMPERED = {
    "a fractional step": (
        lambda file: replaced(file["optimizer_weights"], 0, lambda value: np.float64(2.5)),
        "the optimizer's state has no number of steps",
    ),
    "a vector of steps": (
        lambda file: replaced(file["optimizer_weights"], 0, lambda value: np.arange(3)),
        "the optimizer's state has no number of steps",
    ),
    "a slot of another shape": (
        lambda file: replaced(file["optimizer_weights"], 1, lambda value: value[:2]),
        "one/kernel, slot m",
    ),
    "a slot of another dtype": (
        lambda file: replaced(file["optimizer_weights"], 1, lambda value: value.astype("f8")),
        "one/kernel, slot m",
    ),
    "an unknown variable": (
        lambda file: renamed(file["optimizer_weights"], 1, "Adam/three/kernel/m:0"),
        "one/kernel, slot m",
    ),
    "a slot twice": (
        lambda file: renamed(file["optimizer_weights"], 1, "Other/one/bias/m:0"),
        "two states called 'm' of 'one/bias'",
    ),
    "no number as beta": (lambda file: with_beta(file, "0.9"), "beta1_power"),
    "NaN as beta": (lambda file: with_beta(file, float("nan")), "beta1_power"),
    "no configuration": (
        lambda file: file.attrs.__setitem__("training_config", '{"optimizer_config": [1]}'),
        "is damaged, or not an HDF5 file",
    ),
}


@pytest.fixture(scope="module")
def of_adam(tmp_path_factory):
    """The path of an .h5 file."""
    path = tmp_path_factory.mktemp("of_adam") / "own.h5"
    write(HOMES[-1].Adam(0.1), path)
    return path


@pytest.mark.every_lane
@pytest.mark.parametrize("what", TAMPERED)
def test_tampered_files_are_refused(what, screen, of_adam, tmp_path):
    if KERAS_3:
        return  # it has other names of the state
    shutil.copy(str(of_adam), str(tmp_path / "own.h5"))
    change, message = TAMPERED[what]
    with h5py.File(str(tmp_path / "own.h5"), "r+") as file:
        change(file)
    code, output, errors = screen.run(*words("Adam"))
    assert code in (1, 2) and message in output + errors
    assert "Traceback" not in output + errors
    assert not (tmp_path / "back.index").exists()
