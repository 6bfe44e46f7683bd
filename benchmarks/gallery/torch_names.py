"""Trains with TF1's optimizers and with PyTorch's optimizers of the same names, in PyTorch.

python -m benchmarks.gallery.torch_names FOLDER

The folder is that of gallery.drift: its flights and initial values. Both optimizers of a pair get
the same hyperparameters. TF1's optimizer is its recorded rule, on the level "fast".
"""

import sys
from pathlib import Path

import numpy as np
import torch

from benchmarks.gallery.files import block_means, write
from leaving.in_torch import TABLES, forward
from legacy_opt import recorded
from legacy_opt.recorded.torch import RecordedOptimizer

STEPS, BATCH, BLOCKS = 1500, 64, 75
# {title: (the record and its hyperparameters, PyTorch's class and its hyperparameters)}
PAIRS = {
    "RMSProp": (
        ("RMSPropOptimizer", dict(learning_rate=0.003, decay=0.9, epsilon=1e-10)),
        (torch.optim.RMSprop, dict(lr=0.003, alpha=0.9, eps=1e-10)),
    ),
    "Adam, epsilon=0.1": (
        ("AdamOptimizer", dict(learning_rate=0.03, epsilon=0.1)),
        (torch.optim.Adam, dict(lr=0.03, eps=0.1)),
    ),
    "Adagrad": (
        ("AdagradOptimizer", dict(learning_rate=0.391)),
        (torch.optim.Adagrad, dict(lr=0.391)),
    ),
    "Momentum": (
        ("MomentumOptimizer", dict(learning_rate=0.02, momentum=0.9)),
        (torch.optim.SGD, dict(lr=0.02, momentum=0.9)),
    ),
}


def train(flights, start, make_optimizer):
    """Trains with gradients for whole tables; returns the loss of each batch."""
    weights = {
        name: torch.nn.Parameter(torch.from_numpy(value.copy()))
        for name, value in start.items()
        if "/" not in name and name not in ("global_step", "version")
    }
    optimizer = make_optimizer(weights)
    losses = []
    for step in range(STEPS):
        batch = slice(step * BATCH, (step + 1) * BATCH)
        ids, dense, late = (torch.from_numpy(flights[k][batch]) for k in ("ids", "dense", "late"))
        rows = {name: weights[name][ids.long()] for name in TABLES}
        optimizer.zero_grad()
        logits = forward(weights, rows, dense)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, late)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return np.float64(losses)


def main(folder):
    """Writes torch.json."""
    torch.set_flush_denormal(True)  # as native kernels do; denormal numbers are slow
    torch.set_num_threads(1)
    with np.load(str(Path(folder) / "flights.npz")) as file:
        flights = dict(file)
    with np.load(str(Path(folder) / "relu start.npz")) as file:
        start = dict(file)
    found = {}
    for title, ((rule, ours), (cls, theirs)) in PAIRS.items():
        record = recorded.load(rule)
        runs = {
            "tensorflow": train(
                flights,
                start,
                lambda weights, record=record, ours=ours: RecordedOptimizer(
                    list(weights.items()), record, level="fast", **ours
                ),
            ),
            "torch": train(
                flights,
                start,
                lambda weights, cls=cls, theirs=theirs: cls(weights.values(), **theirs),
            ),
        }
        found[title] = {
            "own": f"torch.optim.{cls.__name__}",
            "hyperparameters": theirs,
            "largest_difference": float(f"{np.abs(runs['torch'] - runs['tensorflow']).max():.3g}"),
            **{name: block_means(losses, BLOCKS)[0] for name, losses in runs.items()},
        }
        print(title, *(f"{name} {losses.mean():.5f}" for name, losses in runs.items()))
    write(
        "torch",
        {
            "what": f"PyTorch {torch.__version__}, the first {STEPS * BATCH:,} flights; log-loss, "
            f"means of {STEPS // BLOCKS} steps of {BATCH} flights",
            "steps": STEPS // BLOCKS,
            "pairs": found,
        },
    )


if __name__ == "__main__":
    main(sys.argv[1])
