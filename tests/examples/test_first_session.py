"""Tests examples_graph_mode/first_session.py, which needs only TensorFlow and legacy_opt."""

import re

from tests.support.paths import EXAMPLES
from tests.support.processes import programs


def test_it_learns_and_prints_the_loss():
    done = programs.run(EXAMPLES / "first_session.py", seconds=60)
    assert done.returncode == 0, done.stdout + done.stderr
    losses = [float(loss) for loss in re.findall(r"^step \d+: loss (.+)$", done.stdout, re.M)]
    assert len(losses) == 5
    assert 1.0 < losses[0] < 1.2 and losses[-1] < 0.001
