"""Tests that damaged checkpoints and wrong arguments cause a clear error and change no variable."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt.compat import CheckpointError, load_v1_checkpoint, save_v1_checkpoint, to_keras
from legacy_opt.compat.state.checkpoint_files.index import parse_index
from tests.support.checkpoints.v1_checkpoint_cases import (
    AVERAGES,
    USED,
    Net,
    adam,
    assert_refused,
    both,
    momentum,
    net_problem,
    training_of,
)
from tests.support.checkpoints.v1_checkpoints import (
    APIS,
    EVERY_API,
    KerasTraining,
    assert_equal,
    keras_of,
    problem,
    same,
    tensors,
    trained_in_v1,
    write_tensors,
)
from tests.support.keras import keras_ways

v1 = tf.compat.v1


# Damage.


def flip(path, position):
    """Flips the bits of one byte."""
    content = bytearray(Path(path).read_bytes())
    content[position] ^= 0xFF
    Path(path).write_bytes(bytes(content))


@pytest.mark.in_turn(position=[0.0, 0.3, 0.6, 0.999], used=USED, api=APIS)
def test_damaged_data_changes_nothing(position, api, used, tmp_path):
    path = trained_in_v1(tmp_path / "model", problem(), adam)
    data = path + ".data-00000-of-00001"
    flip(data, int(position * Path(data).stat().st_size))
    error = assert_refused(path, training_of(used, api), CheckpointError)
    assert path in str(error) and "\n" not in str(error)
    assert_refused(path, training_of(used, api), CheckpointError, strict=False)


@pytest.mark.in_turn(used=USED, api=APIS)
def test_damage_in_the_last_tensor_changes_nothing(api, used, tmp_path):
    path = trained_in_v1(tmp_path / "model", problem(), adam)
    loaded = load_v1_checkpoint(path, *both(training_of(used, api))).transferred
    assert loaded[-1].source == "global_step"
    (stored,) = parse_index(Path(path + ".index").read_bytes()).stored["global_step"]
    flip(path + ".data-00000-of-00001", stored.offset)
    error = assert_refused(path, training_of(used, api), CheckpointError)
    assert "the tensor 'global_step' cannot be read" in str(error)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
@pytest.mark.in_turn(part=["index", "data-00000-of-00001"], used=USED)
def test_truncated_files_change_nothing(part, share, used, tmp_path):
    path = trained_in_v1(tmp_path / "model", problem(), adam)
    file = Path(path + "." + part)
    content = file.read_bytes()
    file.write_bytes(content[: int(share * len(content))])
    error = assert_refused(path, training_of(used, APIS[-1]), CheckpointError)
    assert path in str(error) and "\n" not in str(error)


@pytest.mark.parametrize("used", ["trained"])
def test_a_damaged_file_of_the_v1_format_changes_nothing(used, tmp_path):
    saver = {"write_version": v1.train.SaverDef.V1}
    path = trained_in_v1(tmp_path / "model", problem(), adam, saver=saver)
    content = Path(path).read_bytes()
    Path(path).write_bytes(content[: len(content) // 2])
    assert path in str(assert_refused(path, training_of(used, APIS[-1]), CheckpointError))


@pytest.mark.parametrize("used", ["trained"])
def test_a_missing_data_file(used, tmp_path):
    path = trained_in_v1(tmp_path / "model", problem(), adam)
    Path(path + ".data-00000-of-00001").unlink()
    assert path in str(assert_refused(path, training_of(used, APIS[-1]), CheckpointError))


@pytest.mark.in_turn(kind=["file", "folder", "empty folder", "something else"], used=USED)
def test_there_is_no_checkpoint(kind, used, tmp_path):
    path = tmp_path / "nothing"
    if kind == "folder":
        path = path / "in" / "here"
    elif kind == "empty folder":
        path.mkdir()
    elif kind == "something else":
        path.write_text("a,b\n1,2\n")
    error = assert_refused(str(path), training_of(used, APIS[-1]), CheckpointError)
    assert str(path) in str(error)


# Other kinds of checkpoint.


@pytest.mark.parametrize("used", ["trained"])
def test_an_object_based_checkpoint_is_explained(used, tmp_path):
    training = training_of(used, APIS[0])
    path = tf.train.Checkpoint(**training.variables).save(str(tmp_path / "objects"))
    error = assert_refused(path, training, ValueError)
    assert "object-based" in str(error) and path in str(error)
    assert "tf.train.Checkpoint" in str(error) or "load_weights" in str(error)


# Arguments.


@pytest.mark.in_turn(call=[load_v1_checkpoint, save_v1_checkpoint], api=APIS)
def test_an_optimizer_that_is_not_bridged(call, api, tmp_path):
    path = trained_in_v1(tmp_path / "model", problem(), adam)
    training = training_of("fresh", api)
    before, files = training.arrays(), sorted(tmp_path.iterdir())
    where = path if call is load_v1_checkpoint else tmp_path / "out"
    for optimizer in (keras_of(api).optimizers.Adam(0.1), adam(), "adam"):
        with pytest.raises(TypeError, match="to_keras"):
            call(where, training.variables, optimizer)
    assert same(training.arrays(), before) and sorted(tmp_path.iterdir()) == files


@pytest.mark.in_turn(call=[load_v1_checkpoint, save_v1_checkpoint], api=APIS)
def test_two_variables_of_one_name(call, api, tmp_path):
    path = trained_in_v1(tmp_path / "model", problem(), momentum)
    training = training_of("fresh", api, momentum)
    other = tf.Variable(np.zeros([9, 3], "f"), name="table")
    where = path if call is load_v1_checkpoint else tmp_path / "out"
    given = list(training.variables.values()) + [other]
    with pytest.raises(ValueError, match="table.*dict"):
        call(where, given, training.optimizer)
    assert not other.numpy().any()
    assert np.array_equal(training.variables["table"].numpy(), problem().values["table"])
    # A dict gives the two variables different names, as the message suggests.
    one_by_one = dict(training.variables, other=other)
    if call is save_v1_checkpoint:
        save_v1_checkpoint(where, one_by_one, training.optimizer)
        assert "other/Momentum" in tensors(where)


@EVERY_API
def test_an_optimizer_that_trains_other_variables(api, tmp_path):
    path = trained_in_v1(tmp_path / "model", problem(), adam)
    elsewhere = keras_ways.mixed("float32", ("cube", "vector"), 2)
    busy = KerasTraining(elsewhere, adam, api, start=1)
    busy.train(0, 2)
    training = training_of("fresh", api)
    before = busy.arrays() + training.arrays()
    with pytest.raises(ValueError, match="variables"):
        load_v1_checkpoint(path, training.variables, busy.optimizer)
    with pytest.raises(ValueError, match="variables"):
        save_v1_checkpoint(tmp_path / "out", training.variables, busy.optimizer)
    assert same(busy.arrays() + training.arrays(), before)
    assert not list(tmp_path.glob("out*"))


@EVERY_API
def test_a_model_that_is_not_built_yet(api, tmp_path):
    path = trained_in_v1(tmp_path / "model", net_problem(), adam, extra=AVERAGES)
    keras = keras_of(api)
    model = keras.Sequential([keras.layers.Dense(3, name="dense")])
    with pytest.raises(ValueError, match="[Bb]uil[dt]"):
        load_v1_checkpoint(path, model, to_keras(adam(), api=api))


@EVERY_API
def test_a_model_of_another_shape(api, tmp_path):
    arrays = tensors(trained_in_v1(tmp_path / "model", net_problem(), adam, extra=AVERAGES))
    arrays["out/kernel"] = np.ones([3, 2], "f")
    del arrays["norm/moving_mean"]
    path = write_tensors(tmp_path / "other", arrays)
    net = Net(keras_of(api), "functional")
    training = KerasTraining(net_problem(), adam, api, net.trained())
    averages = net.averages()
    message = str(assert_refused(path, training, given=net.model, name_map=net.v1_name))
    assert "out/kernel" in message and "norm/moving_mean" in message
    assert_equal(net.averages(), averages)


@pytest.mark.parametrize("wrong", [3, "table", ["table"], {"table": 3}])
def test_what_is_no_model(wrong, tmp_path):
    path = trained_in_v1(tmp_path / "model", problem(), momentum)
    assert_refused(path, training_of("fresh", APIS[-1], momentum), TypeError, given=wrong)


def test_a_name_map_of_the_wrong_kind(tmp_path):
    path = trained_in_v1(tmp_path / "model", problem(), momentum)
    training = training_of("fresh", APIS[-1], momentum)
    error = assert_refused(path, training, TypeError, name_map=["table"])
    assert "name_map" in str(error)
