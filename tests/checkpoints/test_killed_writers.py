"""Processes that replace files are killed at each change of the files.

Then the old or the new content is there, and the next process leaves no files of the killed one.
"""

import numpy as np
import pytest

from legacy_opt.compat.state.checkpoint_files.reader import open_checkpoint
from tests.support.processes import killing

V1 = """
from legacy_opt.compat.state.checkpoint_files.writer import CheckpointWriter
def write(folder, number):
    with CheckpointWriter(folder + "/saved", overwrite=True) as writer:
        writer.add("x", np.float32(number))
        writer.add("y", np.float32([number, number]))
"""
FROM_KERAS = """
from legacy_opt import compat
def write(folder, number):
    tf.compat.v1.enable_eager_execution()
    variables = {name: tf.Variable(float(number)) for name in "xy"}
    compat.save_v1_checkpoint(folder + "/saved", variables, None, overwrite=True)
"""
OBJECTS = """
from legacy_opt.compat.state.checkpoints import object_checkpoint
def write(folder, number):
    tf.compat.v1.enable_eager_execution()
    saved = tf.train.Checkpoint(x=tf.Variable(float(number)), y=tf.Variable([float(number)]))
    object_checkpoint.save(saved, folder + "/saved", overwrite=True)
"""
CONVERT = """
from legacy_opt.compat import cli, to_keras
from legacy_opt.compat.state.checkpoint_files.writer import CheckpointWriter
def build():
    keras, inputs = tf.keras, tf.keras.Input([1])
    model = keras.Model(inputs, keras.layers.Dense(1, name="layer")(inputs))
    optimizer = to_keras(tf.compat.v1.train.GradientDescentOptimizer(0.1))
    model.compile(optimizer, keras.losses.MeanSquaredError())
    return model
def write(folder, number):
    source = folder + "/.source/v1"
    with CheckpointWriter(source, overwrite=True) as writer:
        writer.add("layer/kernel", np.full([1, 1], number, np.float32))
        writer.add("layer/bias", np.full([1], number, np.float32))
        writer.add("global_step", np.int64(number))
    words = ["convert", source, folder + "/saved%s", "--model", "__main__:build"]
    assert cli.main([*words, "--to", "keras", "--overwrite"]) == 0
"""
OPTIMIZER_V2 = """
from legacy_opt import compat
import tf_keras
def write(folder, number):
    variable = tf.Variable(float(number))
    optimizer = compat.to_keras(tf_keras.optimizers.legacy.SGD(0.1, 0.9), api="keras3")
    optimizer.build([variable])
    compat.save_optimizer_v2(folder + "/saved", {"x": variable}, optimizer, overwrite=True)
"""
STATE = """
from legacy_opt.recorded import state_files
def write(folder, number):
    state_files.write_arrays(folder + "/saved.npz", [("x", np.float32(number))])
"""


def of_checkpoint(folder):
    checkpoint = open_checkpoint(folder / "saved")
    names = [name for name in checkpoint.tensors if "optimizer/" not in name]
    return [checkpoint.read(name) for name in names if "float" in checkpoint.tensors[name].dtype]


def of_h5(folder):
    h5py = pytest.importorskip("h5py")
    found = []

    def note(name, item):
        if name.endswith(("kernel:0", "kernel", "bias:0", "bias")) and hasattr(item, "shape"):
            found.append(item[()])

    with h5py.File(str(folder / "saved.h5"), "r") as file:
        file.visititems(note)
    return found


def of_npz(folder):
    return list(np.load(str(folder / "saved.npz")).values())


full, keras3 = pytest.mark.full, pytest.mark.keras3
WRITERS = {
    "CheckpointWriter": pytest.param(V1, of_checkpoint, marks=full),
    "save_v1_checkpoint": pytest.param(FROM_KERAS, of_checkpoint, marks=full),
    "objects": (OBJECTS, of_checkpoint),
    "convert": pytest.param(CONVERT % "", of_checkpoint, marks=full),
    "convert, .h5": pytest.param(CONVERT % ".h5", of_h5, marks=full),
    "save_optimizer_v2": pytest.param(OPTIMIZER_V2, of_checkpoint, marks=keras3),
    "state file": (STATE, of_npz),
}


@pytest.mark.parametrize("code, read", WRITERS.values(), ids=WRITERS)
def test_a_killed_process_leaves_the_old_or_the_new(code, read, tmp_path):
    killed, again = killing.folders_after_kills(code, tmp_path)
    seen = [numbers(read(folder)) for folder in killed]
    assert all(each in ({1.0}, {2.0}) for each in seen)
    assert seen[0] == {1.0} and seen[-1] == {2.0}
    for folder in again:
        assert numbers(read(folder)) == {2.0}
        names = {path.name for path in folder.iterdir()} - {"checkpoint", ".source"}
        counts = {int(name.rpartition("-")[2]) for name in names if ".data-" in name}
        assert len(names) == (sum(counts) + 1 if counts else 1), names


def numbers(arrays):
    return {float(each) for array in arrays for each in array.flat}
