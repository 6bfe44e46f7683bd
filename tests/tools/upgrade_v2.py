"""Compares TensorFlow's tf_upgrade_v2 with `legacy-opt audit` and `legacy-opt run` on old scripts.

    python -m tests.tools.upgrade_v2 [SCRIPT.py …]

The program prints the table of docs/comparison.md. Without arguments, it reads `NAMES`.
"""

import difflib
import os
import re
import sys
import tempfile
from pathlib import Path

import tensorflow as tf

from tests.support.paths import ROOT
from tests.support.processes import programs

SECONDS = 600  # of one program
CONVERTER = "tensorflow.tools.compatibility.tf_upgrade_v2_main"
# The scripts of tests/scripts that are for TensorFlow 1.15 alone, and need no other package.
NAMES = (
    "bert_style_classifier.py",
    "contrib_opt_style.py",
    "estimator_wide_deep.py",
    "nmt_style_attention.py",
)
COLUMNS = (
    "script, lines",
    "`tf_upgrade_v2`: lines changed",
    "errors, warnings",
    "the converted script",
    "`legacy-opt audit`: uses to change",
    "`legacy-opt run`, unchanged script",
)


def run(*words, folder):
    """Runs Python in a folder; returns (exit code, output and errors)."""
    places = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, places)), "TF_CPP_MIN_LOG_LEVEL": "3"}
    options = dict(folder=folder, environment=environment)
    done = programs.run_in_new_python(*words, seconds=SECONDS, **options)
    return done.returncode, done.stdout + done.stderr


def outcome(code, output):
    """Returns whether a program ended well, or the type and the text of its error."""
    if code == 0:
        return "runs"
    errors = re.findall(r"^(\w+(?:Error|Exit)\b.*)", output, re.M)
    return f"`{errors[-1][:90]}`" if errors else f"exit code {code}"


def row(script, folder):
    """Returns the row of a script as a list of texts."""
    new, report = folder / script.name, folder / "report.txt"
    code, output = run(
        *["-m", CONVERTER, "--infile", script, "--outfile", new, "--reportfile", report],
        folder=folder,
    )
    source = script.read_text(encoding="utf-8").splitlines()
    converted = [outcome(code, output), "–", "–"]
    if code == 0:
        changes = difflib.ndiff(source, new.read_text(encoding="utf-8").splitlines())
        text = report.read_text(encoding="utf-8")
        kinds = [len(re.findall(rf"^\d+:\d+: {kind}", text, re.M)) for kind in ("ERROR", "WARNING")]
        converted = [
            str(sum(line.startswith("- ") for line in changes)),
            ", ".join(map(str, kinds)),
            outcome(*run(new, folder=folder)),
        ]
    _, audit = run("-m", "legacy_opt", "audit", script, folder=folder)
    counts = re.findall(r"(\d+) to change, (\d+) manual", audit)
    uses = "{}, {} manual".format(*counts[-1]) if counts else "–"
    ran = outcome(*run("-m", "legacy_opt", "run", script, folder=folder))
    return [f"`{script.name}`, {len(source)}", *converted, uses, ran]


def main(names):
    """Prints the table."""
    scripts = [Path(name).resolve() for name in names]
    scripts = scripts or [ROOT / "tests" / "scripts" / name for name in NAMES]
    print(f"TensorFlow {tf.__version__}, Python {sys.version.split()[0]}")
    for cells in COLUMNS, ["---"] * len(COLUMNS):
        print(f"| {' | '.join(cells)} |")
    for script in scripts:
        with tempfile.TemporaryDirectory() as folder:
            print(f"| {' | '.join(row(script, Path(folder)))} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
