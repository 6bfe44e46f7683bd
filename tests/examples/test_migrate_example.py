"""Tests that examples_graph_mode/migrate_to_keras.py accepts equal runs, but not differences."""

from tests.examples import flights_modules  # noqa: F401 - must be imported first

# isort: split
import os

import numpy as np
import pytest

import migrate_to_keras
from legacy_opt import versions
from tests.support.paths import EXAMPLES
from tests.support.processes import programs

# Pairs: a value of TF_USE_LEGACY_KERAS, and the version of tf.keras that this value selects.
KERAS = [(os.environ.get("TF_USE_LEGACY_KERAS", "0"), versions.keras_facts()["version"])]
if versions.keras_facts()["generation"] == 3:
    KERAS.append(pytest.param("1", versions.keras_2().__version__, marks=pytest.mark.full))


@pytest.mark.parametrize("legacy, version", KERAS)
def test_program_finds_equal_bits(legacy, version, tmp_path):
    program = EXAMPLES / "migrate_to_keras.py"
    quick = ["--out", tmp_path, "--steps", "40", "--decay-step", "7"]
    keras = {"TF_USE_LEGACY_KERAS": legacy}
    done = programs.run_in_new_python(program, *quick, seconds=120, environment=keras)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f", Keras {version}.\n" in done.stdout
    assert "equal bit for bit: 2560 predictions and 22 variables and slots." in done.stdout
    assert (tmp_path / "session_and_keras.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_a_difference_fails_the_program(tmp_path, monkeypatch):
    flights = migrate_to_keras.load_flights().first(64)
    other = np.full(64, 0.5, np.float32)
    other[9] = 0.25
    monkeypatch.setattr(migrate_to_keras, "load_flights", lambda: flights)
    session, keras = {"predictions": np.full(64, 0.5, np.float32)}, {"predictions": other}
    monkeypatch.setattr(migrate_to_keras, "train_in_session", lambda *_: (session, {}))
    monkeypatch.setattr(migrate_to_keras, "train_in_keras", lambda *_: keras)
    with pytest.raises(SystemExit, match="predictions, in 1 of 64 numbers, by up to 0.25"):
        migrate_to_keras.main(["--out", str(tmp_path)])
