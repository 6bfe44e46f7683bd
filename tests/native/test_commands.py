"""Tests `legacy-opt build-kernels`, and the facts that `legacy-opt doctor` prints about kernels."""

import json
import shutil

import legacy_opt
from legacy_opt.compat.cli import doctor_command, main, native_diagnosis
from legacy_opt.native.runtime import cache, tensorflow_operations


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
    assert len(list(tmp_path.glob("*.so"))) == 3
    facts = native_diagnosis.facts()
    assert facts["kernels"] == 2
    assert facts["optimizers"]["AdaMaxOptimizer"] is None
    assert facts["updates"] == {"all": 4, "with_kernels": 2, "stored": 2}
    text = "2 of 4 updates, dense and sparse, have kernels, 2 stored"
    assert text in doctor_command._native_texts(facts)
    assert "kernels do not support the slot layout" in facts["optimizers"]["ShampooOptimizer"]
