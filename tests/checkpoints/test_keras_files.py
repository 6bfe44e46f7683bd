"""Tests of untrusted Keras files: small files that would fill the memory, and damaged files."""

import shutil
import zipfile

import h5py
import numpy as np
import pytest

from legacy_opt.compat import CheckpointError
from legacy_opt.compat.state.checkpoint_contents import keras_2_state
from legacy_opt.compat.state.checkpoint_files import hdf5
from legacy_opt.compat.state.checkpoint_files.working_folder import WorkingFolder
from legacy_opt.compat.state.checkpoints import conversion_through_keras
from tests.support.checkpoints.checkpoint_arrays import files_in, write
from tests.support.paths import DATA
from tests.support.processes.command_line import with_users_module

USERS_MODULE = """
import tensorflow as tf
from legacy_opt.compat import to_keras
def build():
    inputs = tf.keras.Input((3,))
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(2, name="layer")(inputs))
    optimizer = to_keras(tf.compat.v1.train.AdamOptimizer(0.01))
    model.compile(optimizer, tf.keras.losses.MeanSquaredError())
    return model
def without():
    return build(), None
"""
BOMB = 100 << 20  # bytes; too many for a model with eight weights


@pytest.fixture
def screen(capsys, tmp_path, monkeypatch):
    return with_users_module("model_of_files", USERS_MODULE, capsys, tmp_path, monkeypatch)


def refused(screen, name, function="build"):
    before = files_in(".")
    message = screen.refused("convert", name, "new", "--model", "model_of_files:" + function)
    assert name in message
    assert [each for each in files_in(".") if "__pycache__" not in each] == before
    return message


def write_bomb(path, written):
    """Writes an HDF5 file with a large dataset. The file is small if the data are not `written`."""
    with h5py.File(str(path), "w") as file:
        shape = (BOMB // 4,)
        chunks = None if written else (1 << 20,)
        dataset = file.create_dataset("optimizer_weights/a", shape, np.float32, chunks=chunks)
        if written:
            dataset[:] = 0


def zipped(path, members):
    with zipfile.ZipFile(str(path), "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


@pytest.mark.parametrize("function", ["build", "without"])
@pytest.mark.parametrize("member", ["model.weights.h5", "config.json"])
def test_a_zip_archive_that_would_fill_the_memory(tmp_path, screen, member, function):
    zipped(tmp_path / "small.keras", {member: bytes(BOMB)})
    assert (tmp_path / "small.keras").stat().st_size < BOMB / 500
    message = refused(screen, "small.keras", function)
    assert "would take 105 MB of memory" in message and "weights take 32 bytes" in message


@pytest.mark.parametrize("ending", [".h5", ".weights.h5", ".keras"])
def test_a_dataset_that_would_fill_the_memory(tmp_path, screen, ending):
    write_bomb(tmp_path / "bomb.h5", written=False)
    assert (tmp_path / "bomb.h5").stat().st_size < BOMB / 500
    if ending == ".keras":
        zipped(tmp_path / "small.keras", {"model.weights.h5": (tmp_path / "bomb.h5").read_bytes()})
    else:
        (tmp_path / "bomb.h5").rename(tmp_path / ("small" + ending))
    assert "would take 105 MB of memory" in refused(screen, "small" + ending)


def test_a_large_file_may_take_as_much_memory(tmp_path, screen):
    """The memory check accepts the file. Keras refuses it, because it does not fit the model."""
    write_bomb(tmp_path / "large.h5", written=True)
    assert "of memory" not in refused(screen, "large.h5")


@pytest.mark.parametrize("harm", ["checksum", "packing", "code", "member", "cut"])
def test_a_damaged_archive_is_named(tmp_path, screen, harm):
    path = tmp_path / "small.keras"
    zipped(path, {"model.weights.h5" if harm != "member" else "x": bytes(range(256)) * 9})
    content = bytearray(path.read_bytes())
    start = 30 + len("model.weights.h5")
    if harm == "checksum":
        content[content.index(b"PK\x01\x02") + 16] ^= 1
    elif harm == "packing":
        content[start + 4 : start + 40] = b"\xff" * 36
    elif harm == "code":  # marks the file in the archive as encrypted
        content[content.index(b"PK\x01\x02") + 8] |= 1
        content[6] |= 1
    path.write_bytes(bytes(content[: len(content) - 60 * (harm == "cut")]))
    message = refused(screen, "small.keras")
    assert "'small.keras' cannot be loaded by Keras" in message


@pytest.fixture
def saved(screen):
    """Writes two Keras files whose values differ from the model's initial values."""
    shapes = {"layer/kernel": (3, 2), "layer/bias": (2,)}
    for number in (1, 2):
        arrays = {
            name + slot: np.full(shape, number, np.float32)
            for name, shape in shapes.items()
            for slot in ("", "/Adam", "/Adam_1")
        }
        arrays.update(beta1_power=np.float32(0.9), beta2_power=np.float32(0.9))
        write("v1", dict(arrays, global_step=np.int64(number)), overwrite=True)
        words = ("v1", f"keras{number}.h5", "--to", "keras", "--model", "model_of_files:build")
        assert screen.run("convert", *words)[0] == 0


def test_a_dataset_without_a_shape_is_damage(tmp_path):
    path = tmp_path / "model.h5"
    shutil.copy(str(DATA / "optimizer_v2_tf115" / "model.h5"), str(path))
    with h5py.File(str(path), "r+") as file:
        found = []
        file["optimizer_weights"].visititems(
            lambda name, each: found.append(name) if isinstance(each, h5py.Dataset) else None
        )
        name = next(each for each in found if each.endswith("m:0"))
        del file["optimizer_weights"][name]
        file["optimizer_weights"].create_dataset(name, data=h5py.Empty("f"))
    with pytest.raises(CheckpointError, match="is damaged"):
        keras_2_state.saved_state(str(path))


@pytest.mark.parametrize("change", ["overwritten", "deleted"])
def test_a_file_that_changes_while_it_is_read(tmp_path, screen, saved, monkeypatch, change):
    """The file changes after the weights were read and before the optimizer's state is read."""
    is_hdf5 = h5py.is_hdf5

    def and_before(path):
        if change == "overwritten":
            (tmp_path / "keras2.h5").rename(tmp_path / "keras1.h5")
        else:
            (tmp_path / "keras1.h5").unlink()
        monkeypatch.setattr(h5py, "is_hdf5", is_hdf5)
        return is_hdf5(path)

    monkeypatch.setattr(h5py, "is_hdf5", and_before)
    message = screen.refused("convert", "keras1.h5", "new", "--model", "model_of_files:build")
    assert {"overwritten": "was overwritten", "deleted": "was deleted"}[change] in message
    assert "keras1.h5" in message and "new.index" not in files_in(".")


@pytest.mark.parametrize("ending", [".h5", ""])
def test_two_conversions_at_once(tmp_path, screen, saved, monkeypatch, ending):
    """A second conversion fails if it starts while the first conversion writes."""
    enter, words = WorkingFolder.__enter__, ("--to", "keras", "--model")
    words = ("convert", "v1", "out" + ending) + words + ("model_of_files:build", "--overwrite")

    def and_then(folder):
        entered = enter(folder)
        monkeypatch.setattr(WorkingFolder, "__enter__", enter)
        rival.append(screen.run(*words))
        return entered

    rival = []
    monkeypatch.setattr(WorkingFolder, "__enter__", and_then)
    assert screen.run(*words)[0] == 0
    assert rival[0][0] == 2 and "is being written by another process" in rival[0][2]
    assert not [name for name in files_in(".") if ".writing" in name]
    assert screen.run("convert", "out" + ending, "back", "--model", words[-2])[0] == 0


def test_a_file_that_was_created_meanwhile_is_not_replaced(tmp_path, screen, saved, monkeypatch):
    load = conversion_through_keras._load_v1

    def and_before(*arguments):
        (tmp_path / "out.h5").write_text("of somebody else")
        return load(*arguments)

    monkeypatch.setattr(conversion_through_keras, "_load_v1", and_before)
    words = ("v1", "out.h5", "--to", "keras", "--model", "model_of_files:build")
    assert "exists already" in screen.refused("convert", *words)
    assert (tmp_path / "out.h5").read_text() == "of somebody else"


def test_datasets_of_hostile_files(tmp_path):
    path = str(tmp_path / "x.h5")
    with h5py.File(path, "w") as file:
        file.create_dataset("a/large", (1 << 60, 4), "f4", chunks=(1 << 10, 4))
        found = hdf5.datasets_in(path, file)
        assert list(found) == ["a/large"] and hdf5.nbytes_of(found) == 1 << 64
        file.create_group("/".join("g" * 200))
        with pytest.raises(CheckpointError, match="x.h5.* more than 100 levels"):
            hdf5.datasets_in(path, file)
