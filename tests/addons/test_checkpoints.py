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


@pytest.mark.parametrize("name", ["LazyAdam", "LAMB", "SGDW"])
def test_h5_files_are_refused(name, tmp_path, capsys, monkeypatch):
    """Checks that the arrays are not assigned by position: LAMB's order is another than ours."""
    makes = {
        "LazyAdam": (lambda: tfa.optimizers.LazyAdam(0.1), legacy_opt.LazyAdamOptimizer),
        "LAMB": (lambda: tfa.optimizers.LAMB(0.1), lambda: legacy_opt.LAMBOptimizer(0.1)),
        "SGDW": (MOMENTUM["SGDW"], lambda: legacy_opt.MomentumWOptimizer(0.01, 0.1, 0.9)),
    }
    theirs, ours = makes[name]
    model = compiled(theirs())
    model.fit(np.ones([4, 2]), np.ones([4, 1]), verbose=0)
    model.save(str(tmp_path / "theirs.h5"))
    monkeypatch.setattr(compiled, "make", lambda: compat.to_keras(ours()), raising=False)
    words = [str(tmp_path / "theirs.h5"), str(tmp_path / "ours"), "--to", "v1"]
    assert main(["convert", *words, "--model", f"{__name__}:model_of_this_package"]) == 2
    error = capsys.readouterr().err
    assert f"contains the state of {name}, not of an optimizer made by to_keras" in error
    # What the message advises:
    path = str(tmp_path / "theirs")
    tf.train.Checkpoint(model=model, optimizer=model.optimizer).write(path)
    carried_on.chosen.make = ours
    words[0] = path
    code = main(["convert", *words, "--optimizer", "tests.addons.carried_on:chosen"])
    assert code == (2 if name == "SGDW" else 0)


def compiled(optimizer):
    layers = [tf.keras.layers.InputLayer([2]), tf.keras.layers.Dense(1, name="score")]
    model = tf.keras.Sequential(layers)
    model.compile(optimizer, "mse")
    return model


def model_of_this_package():
    """Returns the model for `legacy-opt convert --model`."""
    return compiled(compiled.make())
