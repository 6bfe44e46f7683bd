"""Records the flights graph on an old TensorFlow, and proves that others train the same.

    python examples_graph_mode/prove_demo.py --old python3.7 --new python3.13 --torch python3.11

--old and --new are Pythons with an old and a new TensorFlow, --torch one with PyTorch and without
TensorFlow (`make prove-demo` installs them). `legacy-opt prove record` runs flights_session.py with
--old, and writes flights.proof. The rows of the table are replays of this file by
`legacy-opt prove replay`: the first ones must train the same, the last four must differ.

The exit code is 1 if a row is not as it must be. The file, and a page of HTML for each row, are
written to --out. If Chromium is installed, it opens the page of the last row.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple, Tuple

FOLDER = Path(__file__).resolve().parent
V1 = "tensorflow:compat.v1.train.AdagradOptimizer"
KERAS = "tf:tensorflow:keras.optimizers.Adagrad"
START, EPSILON = "initial_accumulator_value=0.2", "epsilon=0.001"
SAME, DIFFERS = ("EQUAL", "ROUNDING"), ("DIFFERS",)


class Row(NamedTuple):
    """A replay, and what it must find: if it differs, the place and a part of the cause."""

    what: str
    python: str  # the name of an option
    words: str
    verdicts: Tuple[str, ...] = SAME
    step: int = 0
    variable: str = ""
    cause: str = ""
    keras: int = 3


ROWS = [
    Row("script", "new", "--"),
    Row("graph mode", "new", f"--with tf:{V1}"),
    Row("Keras 2", "new", f"--with to_keras:{V1}", keras=2),
    Row("Keras 3", "new", f"--with to_keras:{V1}"),
    Row("NumPy", "new", "--with legacy-opt:numpy"),
    Row("PyTorch", "torch", "--with legacy-opt:torch"),
    Row("PyTorch's", "torch", "--with torch:torch.optim:Adagrad"),
    # These are wrong in the first step, most in the smallest variable.
    Row("accumulator", "new", f"--with tf:{V1} --map {START}", DIFFERS, 1, "bias", "starts at 0.2"),
    Row(
        "epsilon", "new", f"--with {KERAS} --map {EPSILON}", DIFFERS, 1, "bias", "0.001 is added", 2
    ),
    # Its epsilon of 1e-7 shows after some steps.
    Row("Keras 2's", "new", f"--with {KERAS}", DIFFERS, 60, "embeddings", "1e-07", keras=2),
    # Keras 3 squares the gradients of a repeated id one by one.
    Row("Keras 3's", "new", f"--with {KERAS}", DIFFERS, 1, "wide"),
]


def call(python, *words, keras=3):
    """Runs `legacy-opt prove`, and returns its exit code and what it has printed."""
    environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="2", PYTHONPATH=str(FOLDER.parent))
    if keras == 2:
        environment["TF_USE_LEGACY_KERAS"] = "1"
    command = [python, "-m", "legacy_opt", "prove", *map(str, words)]
    done = subprocess.run(command, stdout=subprocess.PIPE, env=environment, check=False)
    return done.returncode, done.stdout.decode()


def replay(row, python, proof, script):
    """Returns the cells of a row, and whether they are as they must be."""
    page = proof.with_name(row.what.translate({32: "_", 39: ""}) + ".html")
    words = row.words.split() + (script if row.words == "--" else [])
    words = ("replay", proof, "--json", "--html", page, "--overwrite", *words)
    code, output = call(python, *words, keras=row.keras)
    facts = json.loads(output) if code < 2 else {}
    verdict, step, cause = (facts.get(name) for name in ("verdict", "step", "cause"))
    variable = facts.get("variable", "").split("/", 1)[-1]  # without the scope
    is_right = verdict in row.verdicts and code == int(row.verdicts == DIFFERS)
    if row.verdicts == DIFFERS:
        is_right &= (step, variable) == (row.step, row.variable) and row.cause in cause
    return [row.what, verdict, step or "", variable, cause, code], is_right


def open_page(page):
    """Opens a page in Chromium, and says where its picture is."""
    browser = shutil.which("chromium")
    if browser is None:
        print("Chromium is not installed: no page was opened.")
        return
    picture = page.with_suffix(".png")
    options = "--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=800,1600"
    command = [browser, *options, f"--screenshot={picture}", page.as_uri()]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    print(f"Opened in Chromium: {page}; its picture: {picture}")


def main(argv=None):
    """Records, replays and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for option in ("--old", "--new", "--torch"):
        parser.add_argument(option, metavar="PYTHON", default=sys.executable)
    parser.add_argument("--out", metavar="DIR", type=Path, default=Path("flights_proof_out"))
    arguments = parser.parse_args(argv)
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    script = [str(FOLDER / "flights_session.py"), "--optimizers", "Adagrad", "--out", str(out)]
    proof = out / "flights.proof"
    words = ("record", "--inputs", "--overwrite", "--out", proof, "--", *script)
    if call(arguments.old, *words)[0]:
        sys.exit("the training was not recorded")
    form, failed = "{:<16} {!s:<9} {!s:<5} {:<13} {:<50} {}", []
    print(form.format("what", "verdict", "step", "variable", "cause", "exit code"), flush=True)
    for row in ROWS:
        cells, is_right = replay(row, getattr(arguments, row.python), proof, script)
        failed += [] if is_right else [row.what]
        print(form.format(*cells) + ("" if is_right else "  WRONG"), flush=True)
    open_page(out / "epsilon.html")
    print(
        f"{proof.stat().st_size / 1e6:.1f} MB; " + (f"wrong: {failed}" if failed else "all right")
    )
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
