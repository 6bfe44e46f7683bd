"""Tests a SavedModel of a graph with kernels in a process that has none, and no compiler."""

import re
import shutil

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt.native.runtime import cache, tensorflow_operations
from tests.native.training import is_native
from tests.support.processes import programs

# TensorFlow's own files of SavedModels warn, and each TensorFlow has its own operations library.
pytestmark = [pytest.mark.every_lane, pytest.mark.filterwarnings("ignore:.*deprecated")]
v1 = tf.compat.v1
LOADING = """
import sys
import tensorflow as tf
if sys.argv[2] == "enabled":
    import legacy_opt
    legacy_opt.native.enable()
v1 = tf.compat.v1
with tf.Graph().as_default() as graph, v1.Session() as session:
    try:
        v1.saved_model.loader.load(session, ["serve"], sys.argv[1])
        print("sum:", session.run("y:0", {"x:0": [[1.0, 2.0]]}))
        (update,) = [each for each in graph.get_operations() if "LegacyOpt" in each.type]
        session.run(update, {"x:0": [[1.0, 2.0]]})
        print("trained")
    except tf.errors.OpError as error:
        print(error.message)
"""


@pytest.fixture
def saved_model(tmp_path, fresh):
    """Returns the path of a SavedModel, exported from a graph that trains with kernels."""
    path = str(tmp_path / "saved_model")
    legacy_opt.native.enable(require=True)
    with tf.Graph().as_default() as graph, v1.Session() as session:
        w = v1.get_variable("w", initializer=np.float32([1, 2]), use_resource=True)
        x = v1.placeholder(tf.float32, [None, 2], "x")
        y = tf.reduce_sum(x * w, name="y")
        legacy_opt.LazyAdamOptimizer(0.1).minimize(y)
        session.run(v1.global_variables_initializer())
        v1.saved_model.simple_save(session, path, {"x": x}, {"y": y})
        assert is_native({each.type for each in graph.get_operations()})
    return path


@pytest.mark.parametrize(
    "has", ["nothing", "no operations", "operations", "operations and kernels"]
)
def test_a_saved_model_elsewhere(has, saved_model, tmp_path, kernels_folder):
    folder = tmp_path / "kernels"
    folder.mkdir(mode=0o700)
    if has.startswith("operations"):
        shutil.copy(str(tensorflow_operations.path()), str(folder))
    if has == "operations and kernels":
        folder = kernels_folder
    way = "plain" if has == "nothing" else "enabled"
    without_compiler = {cache.FOLDER_VARIABLE: str(folder), "PATH": str(tmp_path)}
    done = programs.run("-c", LOADING, saved_model, way, seconds=120, environment=without_compiler)
    if not has.startswith("operations"):
        assert done.stdout.startswith("Op type not registered 'LegacyOptUpdate'"), done.stderr
        says = "this process cannot run native kernels: run `legacy-opt build-kernels` first"
        assert (says in done.stderr) == (way == "enabled")
        return
    lines = done.stdout.splitlines()
    assert lines[0] == "sum: 5.0", done.stderr
    if has == "operations":
        assert "There is no C compiler" in done.stderr
        assert re.search(r"\nlegacy_opt: the kernel [0-9a-f]{32} is not in ", done.stdout)
    else:
        assert lines[1:] == ["trained"], done.stderr
