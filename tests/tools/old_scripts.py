"""Compares the losses of old scripts on newer TensorFlows with those on TensorFlow 1.15.

    python -m tests.tools.old_scripts OUT.json           trains on this TensorFlow
    python -m tests.tools.old_scripts PAGE.md JSON…      writes the table; 1.15 is the first JSON

On TensorFlow 1.15, `python` runs the scripts. On newer versions, `legacy-opt run` runs them. `make
scripts` runs the first command on every lane (an environment with one TensorFlow version), then the
second.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.pages import with_part

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "tests" / "scripts"
# The scripts that need only names of TensorFlow 1.15, and print the same losses in each run.
NAMES = (
    "bert_style_classifier.py",
    "nmt_style_attention.py",
    "din_style_ranking.py",
    "slim_style_classifier.py",
    "gat_style_nodes.py",
)


def losses_in(output):
    """Returns the losses that a script has printed in the form "loss = 0.1"."""
    return [float(each) for each in re.findall(r"\bloss = (\S+)", output)]


def sentences_in(output):
    """Returns the sentences that a script has printed in the form "nmt: a b c"."""
    return re.findall(r"\bnmt: (.*)", output)


def run_lane(path):
    """Runs the scripts, and writes their losses and the results of operations to a JSON file."""
    import tensorflow as tf

    from legacy_opt import versions

    way = [] if versions.has_contrib() else ["-m", "legacy_opt", "run"]
    results = {"tensorflow": tf.__version__, "operations": operations(), "losses": {}}
    results["sentences"] = []
    for name in NAMES:
        command = [sys.executable, *way, str(SCRIPTS / name)]
        environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3")
        output = subprocess.check_output(command, env=environment, universal_newlines=True)
        found = results["losses"][name] = losses_in(output)
        results["sentences"] += sentences_in(output)
        print(
            f"{tf.__version__} {name}: {len(found)} losses, {found[0]} to {found[-1]}", flush=True
        )
    Path(path).write_text(json.dumps(results, indent=1), encoding="utf-8")


def operations():
    """Returns the results of operations that the scripts use, as {name: bytes in hexadecimal}."""
    import numpy as np
    import tensorflow as tf

    random = np.random.RandomState(0)
    matrix, other = (random.randn(16, size).astype(np.float32) for size in (13, 32))
    image = random.rand(4, 8, 8, 3).astype(np.float32)
    kernel = random.randn(3, 3, 3, 4).astype(np.float32)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float32, matrix.shape)
        tensors = {
            "matmul": tf.matmul(x, other, transpose_a=True),
            "conv2d": tf.nn.conv2d(image * x[0, 0], kernel, strides=[1, 1, 1, 1], padding="SAME"),
            "exp": tf.exp(x),
            "log": tf.math.log(tf.abs(x)),
            "tanh": tf.tanh(x),
            "sigmoid": tf.sigmoid(x),
            "softmax": tf.nn.softmax(x),
            "log_softmax": tf.nn.log_softmax(x),
            "sqrt": tf.sqrt(tf.abs(x)),
            "rsqrt": tf.math.rsqrt(tf.abs(x)),
            "reduce_mean over rows": tf.reduce_mean(x, 0),
            "reduce_mean over columns": tf.reduce_mean(x, 1),
            "l2_loss": tf.nn.l2_loss(x),
        }
        values = session.run(tensors, {x: matrix})
    return {name: value.tobytes().hex() for name, value in values.items()}


def entry(losses, originals):
    """Returns the page's entry for the losses of a script on one version of TensorFlow."""
    if losses == originals:
        return "all equal"
    if len(losses) != len(originals):
        return f"{len(losses)} losses"
    gaps = [abs(one - other) / abs(other) for one, other in zip(losses, originals)]
    first, last, largest = (
        f"{gap:.0e}" if gap else "equal" for gap in (gaps[0], gaps[-1], max(gaps))
    )
    return f"{first}, {last} (up to {largest})"


def table(lanes):
    """Returns the table in Markdown; the first lane is that of TensorFlow 1.15."""
    original, *others = lanes
    assert original["tensorflow"].startswith("1.15."), original["tensorflow"]
    for lane in others:
        assert lane["sentences"] == original["sentences"], lane["tensorflow"]
    rows = [["script", f"losses on {original['tensorflow']}"]]
    rows[0] += [lane["tensorflow"] for lane in others]
    rows.append(["---"] * len(rows[0]))
    for name, losses in original["losses"].items():
        entries = [entry(lane["losses"][name], losses) for lane in others]
        rows.append([f"`{name}`", f"{losses[0]:.9g} to {losses[-1]:.9g}", *entries])
    differing = [
        ", ".join(name for name, value in lane["operations"].items() if value != expected[name])
        for expected in [original["operations"]]
        for lane in others
    ]
    rows.append(["operations with other last bits", "–", *(each or "none" for each in differing)])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


if __name__ == "__main__":
    first, *others = sys.argv[1:]
    if first.endswith(".md"):
        results = [json.loads(Path(path).read_text(encoding="utf-8")) for path in others]
        page = Path(first)
        text = with_part(page.read_text(encoding="utf-8"), "losses", table(results))
        page.write_text(text, encoding="utf-8")
    else:
        run_lane(first)
