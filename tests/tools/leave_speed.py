"""Measures a step of recorded rules without TensorFlow, relative to PyTorch's own optimizers.

    python tests/tools/leave_speed.py

`make leave` runs this program. A column is the time of a way to run the rule, divided by that of
PyTorch's own optimizer (`foreach`, PyTorch's default) in the same round; medians of the rounds.
Ratios are unreliable if the machine is busy.
"""

import inspect
import math
import statistics
import time

import numpy as np
import torch

from legacy_opt import recorded
from legacy_opt.recorded.numpy import NumpyOptimizer, Rows
from legacy_opt.recorded.torch import RecordedOptimizer

ROUNDS, SECONDS = 7, 0.3
SHAPE = (1000, 1000)
TABLE, IDS = (200_000, 32), 4096
RULES = {
    "AdamOptimizer": (torch.optim.Adam, torch.optim.SparseAdam),
    "LazyAdamOptimizer": (torch.optim.Adam, torch.optim.SparseAdam),
    "AdagradOptimizer": (torch.optim.Adagrad, torch.optim.Adagrad),
    "MomentumOptimizer": (torch.optim.SGD, torch.optim.SGD),
    "AdagradDecayOptimizer": (torch.optim.Adagrad, torch.optim.Adagrad),
    "AdamWOptimizer": (torch.optim.AdamW, None),
    "LAMBOptimizer": (torch.optim.AdamW, None),
}
WAYS = (
    "own",
    "own, fused",
    "native",
    "exact",
    "fast",
    "exact, compiled",
    "fast, compiled",
    "NumPy",
)


def gradient(is_sparse):
    """Returns a gradient: a dense or a sparse tensor."""
    random = np.random.RandomState(0)
    if not is_sparse:
        return torch.from_numpy(random.randn(*SHAPE).astype("f4"))
    ids = torch.from_numpy(random.randint(0, TABLE[0], IDS))
    rows = torch.from_numpy(random.randn(IDS, TABLE[1]).astype("f4"))
    return torch.sparse_coo_tensor(ids[None], rows, TABLE)


def step_of(way, name, own, is_sparse):
    """Returns a function that runs one step."""
    record, grad = recorded.load(name), gradient(is_sparse)
    if way == "NumPy":
        weights = {"w": np.zeros(TABLE if is_sparse else SHAPE, np.float32)}
        optimizer = NumpyOptimizer(record, weights)
        if is_sparse:
            grads = {"w": Rows(grad._indices()[0].numpy(), grad._values().numpy())}
        else:
            grads = {"w": grad.numpy()}
        return lambda: optimizer.step(grads)
    parameter = torch.nn.Parameter(torch.zeros(TABLE if is_sparse else SHAPE))
    parameter.grad = grad
    if way == "own":
        return own([parameter], lr=0.01).step
    if way == "own, fused":
        can = "fused" in inspect.signature(own).parameters and not is_sparse
        return own([parameter], lr=0.01, fused=True).step if can else None
    level, _, compiled = way.partition(", ")
    step = RecordedOptimizer([parameter], record, level=level).step
    return torch.compile(step) if compiled else step


def seconds(step):
    """Returns the seconds of a step, the mean of some."""
    started, count = time.perf_counter(), 0
    while time.perf_counter() - started < SECONDS / ROUNDS or count < 2:
        step()
        count += 1
    return (time.perf_counter() - started) / count


def main():
    """Prints a table."""
    torch.manual_seed(0)
    print(f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads")
    print(f"{'rule':24}{'gradient':10}{'own, ms':>10}" + "".join(f"{w:>17}" for w in WAYS[1:]))
    for name, owns in RULES.items():
        for is_sparse, own in enumerate(owns):
            if own is None:
                continue
            torch._dynamo.reset()  # it compiles a function only some times
            steps = [step_of(way, name, own, is_sparse) for way in WAYS]
            for step in filter(None, steps):
                for _ in range(3):
                    step()
            rounds = [
                [seconds(step) if step else math.nan for step in steps] for _ in range(ROUNDS)
            ]
            own_time = statistics.median(each[0] for each in rounds)
            ratios = [
                statistics.median(each[i] / each[0] for each in rounds) for i in range(1, len(WAYS))
            ]
            kind = "rows" if is_sparse else "dense"
            row = f"{name:24}{kind:10}{1e3 * own_time:10.2f}"
            print(row + "".join(f"{ratio:17.2f}" for ratio in ratios), flush=True)


if __name__ == "__main__":
    main()
