"""Tests the program flights/cluster_worker.py, which the example parameter_servers.py starts."""

from tests.support.paths import EXAMPLES
from tests.support.processes import programs


def test_it_finds_the_modules_of_the_examples():
    program = EXAMPLES / "flights" / "cluster_worker.py"
    done = programs.run_in_new_python(program, "--help", seconds=120)
    assert done.returncode == 0, done.stderr
