"""Processes that replace files are killed at each change of the files.

Then the old or the new content is there, and the next process leaves no files of the killed one.
"""

import pathlib

import numpy as np
import pytest

from legacy_opt.compat.state.checkpoint_files.reader import open_checkpoint
from tests.support.processes import programs

# The processes are forked before TensorFlow runs an operation, because its threads would be missing
# in a fork. Changes inside hidden folders do not count.
PROGRAM = """
import itertools, os, shutil, signal, sys
import numpy as np
import tensorflow as tf
home, code = sys.argv[1:]
exec(code)  # defines write(folder, number)

def dying(change, left):
    def changing(*paths, **options):
        if "/." not in os.path.dirname(str(paths[-1])):
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
        return change(*paths, **options)
    return changing

def status(folder, number, instant=None):
    if os.fork():
        return os.wait()[1]
    left = [instant]
    for place in (os, tf.io.gfile) if instant is not None else ():
        for name in {"replace", "rename", "remove"} & set(dir(place)):
            setattr(place, name, dying(getattr(place, name), left))
    failed = 1
    try:
        write(folder, number)
        failed = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(failed)

old = os.path.join(home, "old")
os.mkdir(old)
assert status(old, 1) == 0
for instant in itertools.count():
    killed, again = (os.path.join(home, kind, str(instant)) for kind in ("killed", "again"))
    shutil.copytree(old, killed)
    ended = status(killed, 2, instant)
    if ended == 0:
        break
    assert ended == signal.SIGKILL, ended
    shutil.copytree(killed, again)
    assert status(again, 2) == 0
"""
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


def folders_after_kills(code, home):
    """Kills processes that replace files, at each change of the files.

    Args:
      code: Python code that defines a function `write(folder, number)`. The files contain the
        number 1 before, and 2 afterwards.
      home: a new folder.

    Returns:
      Two lists of folders: after each kill, the last one after a process that was not killed; and
      after each kill and another process that was not killed.
    """
    done = programs.run("-c", PROGRAM, home, code, seconds=300)
    assert done.returncode == 0, done.stderr
    kinds = (pathlib.Path(str(home), kind) for kind in ("killed", "again"))
    return [sorted(kind.iterdir(), key=lambda path: int(path.name)) for kind in kinds]


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


full, keras3 = pytest.mark.full, pytest.mark.keras3
WRITERS = {
    "CheckpointWriter": pytest.param(V1, of_checkpoint, marks=full),
    "save_v1_checkpoint": pytest.param(FROM_KERAS, of_checkpoint, marks=full),
    "objects": (OBJECTS, of_checkpoint),
    "convert": pytest.param(CONVERT % "", of_checkpoint, marks=full),
    "convert, .h5": pytest.param(CONVERT % ".h5", of_h5, marks=full),
    "save_optimizer_v2": pytest.param(OPTIMIZER_V2, of_checkpoint, marks=keras3),
    "state file": (STATE, lambda folder: list(np.load(str(folder / "saved.npz")).values())),
}


@pytest.mark.parametrize("code, read", WRITERS.values(), ids=WRITERS)
def test_a_killed_process_leaves_the_old_or_the_new(code, read, tmp_path):
    killed, again = folders_after_kills(code, tmp_path)
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
