"""Tests that the state of an OptimizerV2 crosses from Keras 2 to Keras 3, and back."""

import os
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt.compat import (
    CheckpointError,
    CheckpointMismatch,
    load_optimizer_v2,
    load_v1_checkpoint,
    save_optimizer_v2,
    to_keras,
)
from legacy_opt.compat.state.checkpoint_files import keras_files
from tests.support.keras.keras_apis import KERAS_3, OPTIMIZER_V2
from tests.support.keras.optimizers_v2 import MAKERS, Heavy, Lookahead, legacy
from tests.support.paths import DATA

pytestmark = pytest.mark.keras3

WAYS = ("checkpoint", "save_weights", "saved_model", "h5")
CLASSES = ["Adam amsgrad", "SGD", "Nadam", "Heavy", "Lookahead"]


def model(keras, optimizer=None, units=4, name="top", layers=("first", "norm", "last")):
    """Returns a compiled model, whose name begins the names of its variables in Keras 3."""
    first, norm, last = layers
    made = keras.Sequential(
        [
            keras.layers.Dense(units, name=first),
            keras.layers.BatchNormalization(name=norm),
            keras.layers.Dense(2, name=last),
        ],
        name=name,
    )
    made.build([None, 3])
    if optimizer is not None:
        made.compile(optimizer, "mse")
    return made


def model_3(name="Heavy", **options):
    optimizer = to_keras(MAKERS[name](), api="keras3", **options.pop("optimizer_options", {}))
    return model(KERAS_3.keras, optimizer, **options)


def train(trained, first, last):
    """Trains with gradients that depend on the number of the step alone."""
    for step in range(first, last):
        random = np.random.RandomState(step)
        variables = trained.trainable_variables
        grads = [tf.constant(random.randn(*each.shape).astype(np.float32)) for each in variables]
        trained.optimizer.apply_gradients(zip(grads, variables))


def model_2(name="Heavy", steps=5, **options):
    """Returns a trained model of Keras 2 with random weights."""
    made = model(OPTIMIZER_V2.keras, MAKERS[name](), **options)
    random = np.random.RandomState(7)
    made.set_weights([random.rand(*each.shape) for each in made.get_weights()])
    train(made, 0, steps)
    return made


def save(saved, way, folder):
    """Saves a model of Keras 2, and returns the path."""
    path = str(folder / "saved")
    if way == "checkpoint":
        return tf.train.Checkpoint(model=saved, optimizer=saved.optimizer).save(path)
    if way == "h5":
        saved.save(f"{path}.h5")
        return f"{path}.h5"
    (saved.save_weights if way == "save_weights" else saved.save)(path)
    return path


def state(of):
    """Returns the values of all variables of a model of Keras 3, and of its optimizer."""
    variables = [*of.variables, *of.optimizer.variables]
    return [each.numpy() for each in variables]


def assert_same(one, another):
    for mine, other in zip(one.get_weights(), another.get_weights()):
        np.testing.assert_array_equal(mine, other)
    assert int(one.optimizer.iterations) == int(another.optimizer.iterations)


@pytest.mark.in_turn(name=CLASSES, way=WAYS)
def test_continues_as_in_keras_2(name, way, tmp_path):
    old = model_2(name)
    new = model_3(name)
    report = load_optimizer_v2(save(old, way, tmp_path), new, new.optimizer)
    assert report.complete and "Hyperparameters" in "".join(report.notes)
    assert_same(new, old)
    for each in (old, new):
        train(each, 5, 10)
    assert_same(new, old)
    names = old.optimizer.get_slot_names()
    for mine, other in zip(new.trainable_variables, old.trainable_variables):
        for slot in names:
            np.testing.assert_array_equal(
                new.optimizer.get_slot(mine, slot), old.optimizer.get_slot(other, slot)
            )


@pytest.mark.parametrize("file", ["saved", "model.h5", "model.keras"])
@pytest.mark.parametrize("version", ["tf115", "tf210"])
def test_files_of_older_tensorflow(version, file, tmp_path):
    """`tests/tools/record_optimizer_v2.py` has recorded the files."""
    folder = DATA / f"optimizer_v2_{version}"
    path = folder / file
    if file == "model.keras":  # up to TensorFlow 2.10, an HDF5 file
        path = shutil.copy(str(folder / "model.h5"), str(tmp_path / file))
    layers = KERAS_3.keras.layers
    new = KERAS_3.keras.Sequential(
        [KERAS_3.keras.Input([3]), layers.Dense(2, name="first"), layers.Dense(1, name="last")]
    )
    new.compile(to_keras(MAKERS["Adam amsgrad"](), api="keras3"), "mse")
    report = load_optimizer_v2(path, new, new.optimizer)
    assert report.complete and len(report.transferred) == 4 * 4 + 1
    variables = new.trainable_variables
    slots = [
        new.optimizer.get_slot(each, slot) for slot in ("m", "v", "vhat") for each in variables
    ]
    with np.load(str(folder / "values.npz")) as expected:
        assert new.optimizer.iterations == expected["state_0"] == 3
        for number, each in enumerate(variables):
            np.testing.assert_array_equal(each.numpy(), expected[f"weight_{number}"])
        for number, each in enumerate(slots, 1):
            np.testing.assert_array_equal(each.numpy(), expected[f"state_{number}"])


@pytest.mark.one_lane
@pytest.mark.parametrize("name", CLASSES)
def test_back_to_keras_2(name, tmp_path):
    old, new = model_2(name), model_3(name)
    load_optimizer_v2(save(old, "h5", tmp_path), new, new.optimizer)
    train(new, 5, 8)
    new.optimizer.learning_rate = 0.03
    path = str(tmp_path / "back")
    report = save_optimizer_v2(path, new, new.optimizer)
    assert "top/first/kernel -> first/kernel" in re.sub(" +", " ", str(report))
    back = model(OPTIMIZER_V2.keras, MAKERS[name]())
    by_name = {each.name.split(":")[0]: each for each in back.weights}
    status = tf.train.Checkpoint(variables=by_name, optimizer=back.optimizer).restore(path)
    for each in (new, back):
        train(each, 8, 12)
    status.assert_consumed()
    assert_same(new, back)
    again = model_3(name)
    load_optimizer_v2(path, again, again.optimizer)
    again.optimizer.learning_rate = 0.03
    train(again, 8, 12)
    assert_same(again, new)


def test_back_with_an_attribute_that_was_set_later(tmp_path):
    new = model_3("Adam")
    new.optimizer.amsgrad = True
    train(new, 0, 2)
    save_optimizer_v2(str(tmp_path / "back"), new, new.optimizer)
    names = [name for name, _ in tf.train.list_variables(str(tmp_path / "back"))]
    assert sum("vhat" in name for name in names) == len(new.trainable_variables)


def test_back_refuses_existing_files(tmp_path):
    new = model_3()
    path = str(tmp_path / "back")
    save_optimizer_v2(path, new, new.optimizer)
    with pytest.raises(ValueError, match="exists already. Pass overwrite=True"):
        save_optimizer_v2(path, new, new.optimizer)
    save_optimizer_v2(path, new, new.optimizer, overwrite=True)
    names = ["back.data-00000-of-00002", "back.data-00001-of-00002", "back.index"]
    assert sorted(os.listdir(str(tmp_path))) == names  # data files with other names than before


def test_accumulation_and_averages(tmp_path):
    """Keras 3 counts batches, and its averages begin with the loaded values."""
    options = {"gradient_accumulation_steps": 2, "use_ema": True}
    old, new = model_2("Adam"), model_3("Adam", optimizer_options=options)
    train(new, 0, 3)
    load_optimizer_v2(save(old, "h5", tmp_path), new, new.optimizer)
    assert_same(new, old)
    averages = new.optimizer._model_variables_moving_average
    for one, other in zip(averages, new.trainable_variables):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    assert not any(np.any(each) for each in new.optimizer._accumulated_gradients)
    path = str(tmp_path / "back")
    save_optimizer_v2(path, new, new.optimizer)
    assert tf.train.load_variable(path, "optimizer/iter/.ATTRIBUTES/VARIABLE_VALUE") == 5
    train(new, 0, 1)
    report = save_optimizer_v2(path, new, new.optimizer, overwrite=True)
    assert "has accumulated, number of batches: 1." in "".join(report.notes)


@pytest.mark.parametrize("way", ["checkpoint", "h5"])
@pytest.mark.parametrize("name", ["Adam amsgrad", "Adagrad", "Heavy"])
def test_variables_without_a_gradient_so_far(name, way, tmp_path):
    """Keras 2 creates their slots later."""
    old, new = model_2(name, steps=0), model_3(name)
    variables = old.trainable_variables[1:]
    old.optimizer.apply_gradients([(tf.ones(each.shape), each) for each in variables])
    train(new, 0, 3)
    report = load_optimizer_v2(save(old, way, tmp_path), new, new.optimizer)
    assert "The file has no slots of top/first/kernel." in report.notes
    for each in (old, new):
        train(each, 1, 4)
    assert_same(new, old)


def test_a_scaled_loss(tmp_path):
    home = OPTIMIZER_V2.keras
    old = model(home, home.mixed_precision.LossScaleOptimizer(MAKERS["Adam"]()))
    train(old, 0, 3)
    for way in ("checkpoint", "h5"):
        new = model_3("Adam")
        load_optimizer_v2(save(old, way, tmp_path), new, new.optimizer)
        train(new, 3, 5)
        assert int(new.optimizer.iterations) == 5


@pytest.mark.parametrize("way", ["checkpoint", "h5"])
def test_names_of_variables(way, tmp_path):
    old = model_2()
    path = save(old, way, tmp_path)
    new = model_3(layers=("one", "two", "three"))
    before = state(new)
    with pytest.raises(CheckpointMismatch, match="A guess by order and shapes: name_map=") as error:
        load_optimizer_v2(path, new, new.optimizer)
    assert all(map(np.array_equal, state(new), before))
    guess = re.search("name_map=(.*)", str(error.value)).group(1)
    name_map = eval(guess, {})
    assert name_map["top/one/kernel"] == "first/kernel"
    load_optimizer_v2(path, new, new.optimizer, name_map)
    assert_same(new, old)
    variables = [each for each in new.weights if "two/moving" not in each.path]
    renamed = {each.path: name_map[each.path] for each in variables}
    load_optimizer_v2(path, variables, new.optimizer, renamed)
    named = {name_map[each.path]: each for each in variables}
    report = load_optimizer_v2(path, named, new.optimizer)
    assert "The model has no variable for norm/moving_mean in the file." in report.notes


# What is refused: nothing changes.


def damage(path, start, count):
    with open(path, "r+b") as file:
        file.seek(start)
        file.write(b"\x55" * count)


def refused(path, new, error, message, **arguments):
    new.optimizer.build(new.trainable_variables)
    before = state(new)
    with pytest.raises(error, match=message):
        load_optimizer_v2(path, new, new.optimizer, **arguments)
    assert all(map(np.array_equal, state(new), before))


@pytest.mark.parametrize("way", ["checkpoint", "h5"])
def test_another_class(way, tmp_path):
    path = save(model_2("Adam"), way, tmp_path)
    what = {"checkpoint": "name", "h5": "class"}[way]
    refused(path, model_3("Adamax"), CheckpointMismatch, f"the {what} of the OptimizerV2 is Adamax")
    refused(path, model_3("Adam amsgrad"), CheckpointMismatch, "slot vhat")
    refused(path, model_3("Heavy"), CheckpointMismatch, "first/kernel, slot m ")


@pytest.mark.parametrize("way", ["checkpoint", "h5"])
def test_state_of_its_own(way, tmp_path):
    """The variable of Nadam that is not a slot is missing, or is not known."""
    path = save(model_2("Nadam"), way, tmp_path)
    new = model(KERAS_3.keras, to_keras(legacy.Adam(name="Nadam"), api="keras3"))
    refused(path, new, CheckpointMismatch, "momentum_cache .*have no such variable")


@pytest.mark.parametrize("way", ["checkpoint", "h5"])
def test_another_name_of_the_same_class(way, tmp_path):
    old = model(OPTIMIZER_V2.keras, legacy.Adam(name="Other"))
    train(old, 0, 3)
    path, new = save(old, way, tmp_path), model_3("Adam")
    if way == "h5":
        load_optimizer_v2(path, new, new.optimizer)
        assert_same(new, old)
        return
    refused(path, new, CheckpointMismatch, "pass name='Other' to the OptimizerV2")
    new = model(KERAS_3.keras, to_keras(legacy.Adam(name="Other"), api="keras3"))
    load_optimizer_v2(path, new, new.optimizer)
    assert_same(new, old)


@pytest.mark.parametrize("way", ["checkpoint", "h5"])
def test_other_variables(way, tmp_path):
    path = save(model_2(units=5), way, tmp_path)
    refused(path, model_3(), CheckpointMismatch, r"it has shape \[3, 5\] in the file")
    path = save(model_2(), way, tmp_path)
    swapped = model_3(layers=("last", "norm", "first"))
    refused(path, swapped, CheckpointMismatch, r"it has shape")
    frozen = model_3()
    frozen.layers[0].trainable = False
    refused(path, frozen, CheckpointMismatch, "first/kernel, slot v .*have no such variable")
    new = model_3()
    refused(path, new, ValueError, "name_map has 'x', but", name_map={"x": "y"})
    two = {"top/first/kernel": "last/kernel"}
    refused(path, new, ValueError, "Two variables, .* have the name 'last/kernel'", name_map=two)
    left_out = {"top/first/kernel": None}
    refused(path, new, ValueError, "or that name_map leaves out", name_map=left_out)


def test_two_weights_of_one_name(tmp_path):
    home, path = OPTIMIZER_V2.keras, str(tmp_path / "saved.h5")

    def nested(shared=None):
        parts = [home.Sequential([shared or home.layers.Dense(3, name="same")]) for _ in range(2)]
        made = home.Sequential(parts)
        made.build([None, 3])
        made.compile(MAKERS["SGD"]())
        return made

    def named(of):
        return {each.path: each for each in of.weights}

    layers = KERAS_3.keras.layers
    new = KERAS_3.keras.Sequential([layers.Input([3]), layers.Dense(3, name="same")])
    new.compile(to_keras(MAKERS["SGD"](), api="keras3"))
    old = nested(home.layers.Dense(3, name="same"))
    train(old, 0, 2)
    old.save(path)
    load_optimizer_v2(path, new, new.optimizer)
    np.testing.assert_array_equal(new.get_weights()[0], old.get_weights()[0])
    nested().save(path)
    refused(path, new, CheckpointError, "two different weights have the name 'same/kernel'")


def test_damaged_files(tmp_path):
    old, new = model_2(), model_3()
    path = save(old, "checkpoint", tmp_path)
    file = tmp_path / "saved-1.data-00000-of-00001"
    last = old.optimizer.get_slot(old.trainable_variables[-1], "v").numpy().tobytes()
    damage(str(file), file.read_bytes().index(last), len(last))
    refused(path, new, CheckpointError, "is corrupt: the tensor 'model/layer_with_weights-2/bias")
    path = save(model_2(), "h5", tmp_path)
    shutil.copy(path, f"{path}.copy.h5")
    half = os.path.getsize(path) // 2
    damage(path, half, half)
    refused(path, new, CheckpointError, "is damaged, or not an HDF5 file")
    with open(f"{path}.copy.h5", "r+b") as file:
        file.truncate(4000)
    refused(f"{path}.copy.h5", new, CheckpointError, "is damaged, or not an HDF5 file")


def test_files_without_the_state(tmp_path):
    old, new = model_2(), model_3()
    old.save(str(tmp_path / "model.keras"))
    for name in ("model.keras", "weights.weights.h5", "weights.h5"):
        path = str(tmp_path / name)
        if not os.path.exists(path):
            old.save_weights(path)
        refused(path, new, CheckpointError, "contains no state of an OptimizerV2. Keras 2 writes")
    refused(str(tmp_path / "none.h5"), new, CheckpointError, "there is no such file")
    refused(str(tmp_path / "none"), new, CheckpointError, "there is no such checkpoint")
    path = tf.train.Checkpoint(v=old.weights).save(str(tmp_path / "weights"))
    refused(path, new, CheckpointError, "one OptimizerV2, but its optimizers are: none")
    path = tf.train.Checkpoint(model=new, optimizer=new.optimizer).save(str(tmp_path / "of_3"))
    refused(path, new, CheckpointError, r"optimizers are: optimizer \(named by number\)")
    plain = OPTIMIZER_V2.keras.optimizers.Adam()
    plain.build(old.trainable_variables)
    path = tf.train.Checkpoint(v=old.weights, optimizer=plain).save(str(tmp_path / "numbered"))
    refused(path, new, CheckpointError, r"optimizers are: optimizer \(numbered\)")


def test_v1_checkpoints(tmp_path):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = tf.compat.v1.get_variable("x", initializer=1.0)
        session.run(variable.initializer)
        path = tf.compat.v1.train.Saver().save(session, str(tmp_path / "v1"))
    new = model_3()
    refused(path, new, CheckpointError, "is a name-based v1 checkpoint. Load it with load_v1_check")
    with pytest.raises(TypeError, match="see load_optimizer_v2 and save_optimizer_v2"):
        load_v1_checkpoint(path, new, new.optimizer)


def test_other_optimizers(tmp_path):
    path = save(model_2(), "h5", tmp_path)
    scaling = KERAS_3.keras.optimizers.LossScaleOptimizer
    made = to_keras(Heavy(), api="keras3")
    for optimizer, message in (
        (None, r"must be made by to_keras\(an_optimizer_v2, api='keras3'\), got NoneType"),
        (KERAS_3.keras.optimizers.Adam(), "got Adam"),
        (scaling(made), "Pass the wrapped optimizer: optimizer.inner_optimizer"),
        (KERAS_3.bridged("Adam"), "This one was made from a v1 optimizer: see load_v1_checkpoint"),
    ):
        with pytest.raises(TypeError, match=message):
            load_optimizer_v2(path, model(KERAS_3.keras), optimizer)
        with pytest.raises(TypeError, match=message):
            save_optimizer_v2(str(tmp_path / "x"), model(KERAS_3.keras), optimizer)
    new = model_3()
    new.optimizer.build(new.trainable_variables)
    with pytest.raises(ValueError, match="trains variables that are not among model_or_variables"):
        load_optimizer_v2(path, new.weights[:2], new.optimizer)
    with pytest.raises(TypeError, match="path must be the path of a checkpoint"):
        load_optimizer_v2(new, path, new.optimizer)


def test_restoring_directly_names_the_function(tmp_path):
    old, new = model_2(), model_3()
    path = save(old, "checkpoint", tmp_path)
    for build in (False, True):
        if build:
            new.optimizer.build(new.trainable_variables)
        with pytest.raises(ValueError, match="legacy_opt.compat.load_optimizer_v2"):
            tf.train.Checkpoint(model=new, optimizer=new.optimizer).restore(path)


def test_a_wrapped_optimizer_with_slots_of_the_same_name(tmp_path):
    new = model(KERAS_3.keras, to_keras(Lookahead(Lookahead()), api="keras3"))
    path = save(model_2("Lookahead"), "checkpoint", tmp_path)
    message = "Lookahead and an optimizer that it wraps have slots of the name"
    with pytest.raises(TypeError, match=message):
        load_optimizer_v2(path, new, new.optimizer)
    with pytest.raises(TypeError, match=message):
        save_optimizer_v2(str(tmp_path / "back"), new, new.optimizer)


def test_a_file_that_is_replaced_while_it_is_read(tmp_path, monkeypatch):
    old, other, new = model_2("Adam"), model_2("Adam", steps=7), model_3("Adam")
    for folder in ("old", "other"):
        (tmp_path / folder).mkdir()
    path, later = save(old, "h5", tmp_path / "old"), save(other, "h5", tmp_path / "other")
    read = keras_files.read_h5

    def replaced(*arguments):
        arrays = read(*arguments)
        shutil.copy(later, path)
        return arrays

    expected = [each.numpy() for each in old.weights]
    monkeypatch.setattr(keras_files, "read_h5", replaced)
    load_optimizer_v2(path, new, new.optimizer)
    assert len(expected) == len(new.weights)
    for one, value in zip(new.weights, expected):
        np.testing.assert_array_equal(one.numpy(), value)
