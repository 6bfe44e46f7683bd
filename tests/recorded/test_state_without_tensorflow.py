"""Tests that `export` needs neither TensorFlow nor protobuf."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import recorded
from tests.support.checkpoints.v1_checkpoints import tensors
from tests.support.paths import DATA, ROOT

v1 = tf.compat.v1
pytestmark = pytest.mark.every_lane
_STUB = 'raise ImportError("this process has no " + __name__)\n'


def export(checkpoint, rule, out, folder):
    """Runs the command in a process that cannot import TensorFlow; returns its JSON."""
    stubs = folder / "stubs"
    for name in "tensorflow", "google":
        (stubs / name).mkdir(parents=True)
        (stubs / name / "__init__.py").write_text(_STUB)
    words = ["export", str(checkpoint), "--rule", str(rule), "--out", str(out), "--json"]
    code = (
        "import sys\n"
        # Old versions of protobuf import the package `google` when Python starts.
        "sys.modules.pop('google', None)\n"
        "for name in 'tensorflow', 'google.protobuf':\n"
        "    try:\n"
        "        __import__(name)\n"
        "    except ImportError:\n"
        "        continue\n"
        "    sys.exit(name + ' can be imported')\n"
        "from legacy_opt.compat import cli\n"
        f"sys.exit(cli.main({words!r}))\n"
    )
    path = os.pathsep.join([str(stubs), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=dict(os.environ, PYTHONPATH=path),
        capture_output=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def test_export_without_tensorflow(tmp_path):
    rule, out = tmp_path / "rule.json", tmp_path / "state.npz"
    recorded.save(recorded.record(v1.train.AdamOptimizer(0.01)), rule)
    facts = export(DATA / "adam_tf115", rule, out, tmp_path)
    expected = tensors(DATA / "adam_tf115")  # by TensorFlow's reader
    assert facts["variables"] == ["dense/bias", "dense/kernel", "embeddings"]
    assert facts["step"] == expected["global_step"]
    with np.load(out, allow_pickle=False) as found:
        names = {"global_step": "global_step"}
        for power in "beta1_power", "beta2_power":
            names["shared/" + power] = power
        for name in facts["variables"]:
            names["variable/" + name] = name
            names[f"slot/{name}/m"] = name + "/Adam"
            names[f"slot/{name}/v"] = name + "/Adam_1"
        assert set(found.files) == {*names, "record"}
        assert bytes(found["record"]) == rule.read_bytes()
        for key, name in names.items():
            assert found[key].dtype == expected[name].dtype
            np.testing.assert_array_equal(found[key], expected[name], key)
