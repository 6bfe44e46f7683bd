"""Moves a training from a TensorFlow 1 graph to PyTorch and JAX, with its optimizer and state.

    python examples_graph_mode/leave_tensorflow.py --old python3.7 --torch python3.11 \
        --jax python3.13

--old is a Python with TensorFlow, --torch one with PyTorch; TensorFlow need not be installed there.
The default of both is this Python. Without --jax, there is no training in JAX. The model of
flights_session.py is trained in time order:

* tensorflow: a Session trains with AdagradDecay and saves a checkpoint. Its largest variable, the
  embedding table, has three partitions. The rule of the optimizer is recorded. The Session then
  goes on, and keeps its losses, and the gradients of the next 100 steps.
* torch: `legacy-opt export` reads the checkpoint. The recorded rule trains on the gradients of the
  100 steps, and must have the weights of the Session bit for bit. Then a model in PyTorch goes on
  from the checkpoint, with the recorded rule, with PyTorch's own Adagrad, which gets the same
  accumulators, and with PyTorch's Adam.
* jax: the same in JAX, with the recorded rule.

leave.png shows the log-loss of these trainings minus that of the training that stayed in
TensorFlow. The exit code is 1 if a bit differs after the 100 steps.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

from flights.arguments import new_parser
from flights.data import load_flights

ROOT = Path(__file__).resolve().parents[1]
WINDOW = 50  # batches in the plot's running mean


def parse_arguments(argv=None):
    """Returns the command line as a namespace."""
    parser = new_parser(__doc__, "leave_tensorflow_out")
    add = parser.add_argument
    add("--old", metavar="PYTHON", default=sys.executable, help="a Python with TensorFlow")
    add("--torch", metavar="PYTHON", default=sys.executable, help="a Python with PyTorch")
    add("--jax", metavar="PYTHON", help="a Python with JAX (default: none)")
    add("--steps", type=int, default=1500, help="before and after the move (default: %(default)s)")
    return parser.parse_args(argv)


def run(python, *words):
    """Runs a program with this checkout on its path; raises an error if it fails."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "examples_graph_mode")])
    environment = dict(os.environ, PYTHONPATH=path)
    subprocess.run([python, *map(str, words)], check=True, env=environment)


def smooth(losses):
    """Returns running means."""
    return np.convolve(losses, np.ones(WINDOW) / WINDOW, "valid")


def plot(losses, path):
    """Draws the losses of the trainings that moved minus those of the Session."""
    from flights.report import new_figure

    figure = new_figure(8, 4)
    axes = figure.add_subplot(1, 1, 1)
    stayed = smooth(losses.pop("TensorFlow"))
    for name, values in losses.items():
        difference = np.abs(smooth(values) - stayed)
        axes.semilogy(np.arange(len(stayed)) + WINDOW, np.maximum(difference, 1e-9), label=name)
    axes.set_xlabel("steps after the move")
    axes.set_ylabel("distance of the log-loss from TensorFlow's")
    axes.legend(loc=(0.13, 0.21), ncol=2)
    axes.set_title("A training leaves TensorFlow 1", loc="left")
    figure.tight_layout()
    figure.savefig(str(path), dpi=120)


def main(arguments):
    """Runs both stages and draws the plot; returns the exit code."""
    out = Path(arguments.out).absolute()
    out.mkdir(parents=True, exist_ok=True)
    load_flights().first(2 * arguments.steps * arguments.batch_size).save(str(out / "flights.npz"))
    sizes = arguments.steps, arguments.batch_size
    run(arguments.old, "-m", "leaving.in_tensorflow", out, *sizes)
    state = out / "state.npz"
    export = ["-m", "legacy_opt", "export", out / "model.ckpt", "--rule", out / "rule.json"]
    run(arguments.torch, *export, "--out", state, "--overwrite")
    run(arguments.torch, "-m", "leaving.in_torch", out, *sizes)
    with np.load(str(out / "losses.npz")) as file:
        losses = dict(file)
    result = json.loads((out / "result.json").read_text())
    if arguments.jax:
        run(arguments.jax, "-m", "leaving.in_jax", out, *sizes)
        with np.load(str(out / "losses_in_jax.npz")) as file:
            losses.update(file)
        result["bits"] += json.loads((out / "result_in_jax.json").read_text())["bits"]
    with np.load(str(out / "stayed.npz")) as file:
        losses["TensorFlow"] = file["losses"]
    for name, values in losses.items():
        print(f"{name:34} log-loss {values.mean():.6f}")
    plot(losses, out / "leave.png")
    print(f"After 100 steps, {result['bits']} bits of {result['numbers']:,} numbers differ.")
    print(f"The plot is in {out / 'leave.png'}")
    return int(result["bits"] > 0)


if __name__ == "__main__":
    sys.exit(main(parse_arguments()))
