"""`legacy-opt prove record`, and `prove replay` of a script, in their own processes."""

import subprocess
import sys

import pytest

from legacy_opt import proofs
from tests.support.paths import ROOT

SCRIPT = """
import os
import signal
import sys
import numpy as np
import tensorflow as tf

x = tf.placeholder(tf.float32, [4, 3], "x")
kernel = tf.get_variable("kernel", [3, 2], initializer=tf.ones_initializer())
step = tf.train.get_or_create_global_step()
loss = tf.reduce_sum(tf.square(tf.matmul(x, kernel)))
optimizer = tf.train.AdamOptimizer(float(sys.argv[1]))
train_op = optimizer.minimize(loss, global_step=step)
with tf.train.MonitoredTrainingSession() as session:
    for i in range(int(sys.argv[2])):
        session.run(train_op, {x: np.full([4, 3], i + 1.0)})
print("trained", flush=True)
if "kill" in sys.argv:
    os.kill(os.getpid(), signal.SIGTERM)
sys.exit(7)
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def prove(*words):
    command = [sys.executable, "-W", "ignore", "-m", "legacy_opt", "prove", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=str(ROOT))
    return done.returncode, done.stdout, done.stderr


def test_the_script_is_ended_after_the_last_step(script, tmp_path):
    out = tmp_path / "run.proof"
    words = "record", "--steps", 5, "--inputs", "--out", out, "--", script, 0.1, 50
    code, output, errors = prove(*words)
    assert (code, output) == (0, ""), errors
    assert (
        "Adam: AdamOptimizer, 1 variable, 5 steps" in errors
        and "inputs of the model: x:0" in errors
    )
    run = proofs.read_run(out)
    assert run.made["command"][1:] == ["0.1", "50"] and len(run.inputs) == 5
    code, _, errors = prove(*words)
    assert code == 2 and "exists already" in errors


@pytest.mark.one_lane
def test_a_script_that_ends_earlier_keeps_its_exit_code_and_is_replayed(script, tmp_path):
    out = tmp_path / "run.proof"
    code, output, errors = prove("record", "--inputs", "--out", out, "--", script, 0.1, 3)
    assert (code, output) == (7, "trained\n"), errors
    assert len(proofs.read_run(out).losses) == 3
    code, output, errors = prove("replay", out, "--", script, 0.2, 3)
    assert code == 1 and "DIFFERS: in step 1, 'kernel'" in output, errors
    assert "what differs first: the optimizer" in output


@pytest.mark.one_lane
def test_a_script_that_is_killed_by_sigterm(script, tmp_path):
    out = tmp_path / "run.proof"
    code, output, errors = prove("record", "--out", out, "--", script, 0.1, 3, "kill")
    assert (code, output) == (143, "trained\n"), errors
    assert len(proofs.read_run(out).losses) == 3


@pytest.mark.one_lane
def test_a_script_without_a_step(tmp_path):
    path, out = tmp_path / "empty.py", tmp_path / "run.proof"
    path.write_text("print('nothing')")
    code, output, errors = prove("record", "--out", out, "--", path)
    assert (code, output) == (2, "nothing\n") and "nothing was recorded" in errors
    assert not out.exists()
    assert prove("replay", out)[0] == 2
