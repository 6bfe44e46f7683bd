"""Tests `legacy-opt build-kernels`, and the facts that `legacy-opt doctor` prints about kernels."""

import json
import shutil

import legacy_opt
from legacy_opt.compat.cli import doctor_command, main, native_diagnosis
from legacy_opt.native.runtime import cache, tensorflow_operations
from tests.support.processes import programs

# A machine without compilers may get the folder of kernels from another one.
TRAIN = """
import legacy_opt
import tensorflow.compat.v1 as tf
optimizer = legacy_opt.AdaMaxOptimizer(0.1)
optimizer.native = "require"
with tf.Graph().as_default() as graph:
    variable = tf.get_variable("w", [4, 3])
    optimizer.apply_gradients([(tf.ones([4, 3]), variable)])
    assert any(each.type.startswith("LegacyOptUpdate") for each in graph.get_operations())
"""


def test_build_kernels(tmp_path, monkeypatch, capsys):
    """AdaMax has one kernel for dense and one for sparse gradients. Shampoo has no kernels."""
    built = tensorflow_operations.path()
    monkeypatch.setenv(cache.FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setattr(cache, "_loaded", {})  # forgets the kernels that were loaded
    shutil.copy(str(built), str(tmp_path))
    classes = [legacy_opt.AdaMaxOptimizer, legacy_opt.ShampooOptimizer]
    monkeypatch.setattr(native_diagnosis, "classes", lambda: classes)
    assert main(["build-kernels", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == {"operations": str(tmp_path / built.name), "kernels": 2}
    assert len(list(tmp_path.glob("*.so"))) == 4  # with the library that checks kernels
    without = {cache.FOLDER_VARIABLE: str(tmp_path), "CC": "none", "CXX": "none"}
    done = programs.run("-c", TRAIN, environment=without, seconds=120)
    assert done.returncode == 0, done.stderr
    facts = native_diagnosis.facts()
    assert facts["kernels"] == 2
    assert facts["optimizers"]["AdaMaxOptimizer"] is None
    assert facts["updates"] == {"all": 4, "with_kernels": 2, "stored": 2}
    text = "2 of 4 updates, dense and sparse, have kernels, 2 stored"
    assert text in doctor_command._native_texts(facts)
    assert "kernels do not support the slot layout" in facts["optimizers"]["ShampooOptimizer"]
