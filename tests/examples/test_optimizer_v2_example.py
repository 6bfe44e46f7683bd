"""Tests examples_graph_mode/optimizer_v2_to_keras3.py."""

from tests.examples import flights_modules  # noqa: F401 - must be imported first

# isort: split
from legacy_opt import versions
from tests.support.paths import EXAMPLES
from tests.support.processes import programs


def test_it_is_equal_bit_for_bit_or_says_what_it_needs():
    done = programs.run_in_new_python(EXAMPLES / "optimizer_v2_to_keras3.py", seconds=120)
    if versions.keras_facts()["generation"] == 2:
        assert done.returncode == 1 and not done.stdout
        assert done.stderr.splitlines()[-1].startswith("Needs TensorFlow 2.16 or newer, keras 3")
        return
    assert done.returncode == 0, done.stdout + done.stderr
    assert "7 variables and slots loaded into Keras 3." in done.stdout
    assert "Equal bit for bit: all weights and slots." in done.stdout
    assert "in 100 further steps" in done.stdout
