"""Goes on, without Addons, from checkpoints that Addons' optimizers have written."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_addons as tfa

import legacy_opt
from legacy_opt import compat
from legacy_opt.compat.cli import main
from tests.addons import carried_on, trainings
from tests.support.processes import programs

v1 = tf.compat.v1
EXISTING = [name for name in carried_on.CASES if carried_on.exists(name)]
IN_NEW_PROCESS = "import sys; from tests.addons import carried_on; carried_on.check(*sys.argv[1:])"


@pytest.mark.parametrize("name", EXISTING)
def test_training_goes_on(name, tmp_path):
    folder = str(tmp_path)
    slots = carried_on.write(carried_on.CASES[name], folder, tfa.optimizers)
    carried_on.check(name, folder)
    done = programs.run("-c", IN_NEW_PROCESS, name, folder, seconds=120)
    assert done.returncode == 0, done.stderr
    reader = tf.train.load_checkpoint(str(tmp_path / "ours"))
    shapes = reader.get_variable_to_shape_map()
    for (variable, slot), value in slots.items():
        if np.any(value):
            of_variable = [reader.get_tensor(each) for each in shapes if f"{variable}/" in each]
            assert any(np.array_equal(each, value) for each in of_variable), (variable, slot)


MOMENTUM = {
    "SGDW": lambda: tfa.optimizers.SGDW(0.01, 0.1, momentum=0.9),
    "MovingAverage": lambda: tfa.optimizers.MovingAverage(trainings.KERAS.SGD(0.1, 0.9), 0.9),
    "Lookahead": lambda: tfa.optimizers.Lookahead(trainings.KERAS.SGD(0.1, 0.9)),
}


@pytest.mark.parametrize("name", MOMENTUM)
def test_momentum_that_contains_the_learning_rate_is_refused(name, tmp_path, capsys):
    case = carried_on.Case(
        lambda _: MOMENTUM[name](), lambda: v1.train.MomentumOptimizer(0.1, 0.9), 0
    )
    carried_on.write(case, str(tmp_path), tfa.optimizers)
    assert carried_on.convert(case, str(tmp_path)) == 2
    error = capsys.readouterr().err
    assert "momentum contains the learning rate" in error
    assert "TensorFlow Addons, assign -momentum / learning_rate to the slots" in error


def test_the_way_out_for_momentum():
    theirs, variables = MOMENTUM["SGDW"](), trainings.new_variables()
    trainings.train(theirs, variables, steps=3)
    ours = compat.to_keras(legacy_opt.MomentumWOptimizer(0.01, 0.1, 0.9))
    copies = {name: tf.Variable(each) for name, each in variables.items()}
    ours._create_all_weights(list(copies.values()))
    for name, variable in variables.items():
        slot = ours.get_slot(copies[name], "momentum")
        slot.assign(-theirs.get_slot(variable, "momentum") / 0.1)
    expected = trainings.train(theirs, variables, first=3)
    found = trainings.train(ours, copies, first=3)
    assert trainings.largest_difference(expected, found) <= 2e-6


@pytest.mark.parametrize("name", EXISTING)
def test_training_goes_on_from_an_h5_file(name, tmp_path):
    """Checks that the state is assigned by its names: the layers' kernels have equal shapes."""
    case = carried_on.CASES[name]
    model = compiled(case.theirs(tfa.optimizers))
    train(model)
    assert convert_h5(model, case.ours, tmp_path) == 0
    ours = model_of_this_package()
    compat.load_v1_checkpoint(str(tmp_path / "ours"), ours, ours.optimizer)
    assert all(map(np.array_equal, ours.get_weights(), model.get_weights()))
    for each in model, ours:
        train(each, first=3, steps=5)
    for one, other in zip(model.get_weights(), ours.get_weights()):
        np.testing.assert_allclose(other, one, rtol=0, atol=case.bound)


@pytest.mark.parametrize("name", MOMENTUM)
def test_momentum_in_an_h5_file_is_refused(name, tmp_path, capsys):
    model = compiled(MOMENTUM[name]())
    train(model)
    assert convert_h5(model, lambda: v1.train.MomentumOptimizer(0.1, 0.9), tmp_path) == 2
    assert "momentum contains the learning rate" in capsys.readouterr().err


def compiled(optimizer):
    layers = [tf.keras.layers.Dense(3, name=name) for name in ("one", "two")]
    model = tf.keras.Sequential([tf.keras.layers.InputLayer([3]), *layers])
    model.compile(optimizer, "mse")
    return model


def train(model, first=0, steps=3):
    for number in range(first, first + steps):
        random = np.random.RandomState(number)
        model.train_on_batch(*random.randn(2, 4, 3).astype("f"))


def convert_h5(model, ours, folder):
    """Saves the model as .h5, and converts the file; returns the exit code."""
    model.save(str(folder / "theirs.h5"))
    carried_on.chosen.make = ours
    words = [str(folder / "theirs.h5"), str(folder / "ours"), "--to", "v1"]
    return main(["convert", *words, "--model", f"{__name__}:model_of_this_package"])


def model_of_this_package():
    """Returns the model for `legacy-opt convert --model`."""
    return compiled(compat.to_keras(carried_on.chosen()))
