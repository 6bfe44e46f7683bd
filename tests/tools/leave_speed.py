"""Measures a step of recorded rules without TensorFlow, relative to other optimizers.

    python tests/tools/leave_speed.py

`make leave` runs this program. With PyTorch, a column is the time of a way to run the rule, divided
by that of PyTorch's own optimizer (`foreach`, PyTorch's default) in the same round; with JAX, by
that of optax' own optimizer, all compiled. Medians of the rounds. Ratios are unreliable if the
machine is busy.
"""

import importlib.util
import inspect
import math
import statistics
import time

import numpy as np

from legacy_opt import recorded
from legacy_opt.recorded.numpy import NumpyOptimizer, Rows

ROUNDS, SECONDS = 7, 0.3
SHAPE = (1000, 1000)
TABLE, IDS = (200_000, 32), 4096
# The names of the optimizers of PyTorch for dense and sparse gradients, and of optax.
RULES = {
    "AdamOptimizer": ("Adam", "SparseAdam", "adam"),
    "LazyAdamOptimizer": ("Adam", "SparseAdam", "adam"),
    "AdagradOptimizer": ("Adagrad", "Adagrad", "adagrad"),
    "MomentumOptimizer": ("SGD", "SGD", "sgd"),
    "AdagradDecayOptimizer": ("Adagrad", "Adagrad", "adagrad"),
    "AdamWOptimizer": ("AdamW", None, "adamw"),
    "LAMBOptimizer": ("AdamW", None, "lamb"),
}
IN_TORCH = ("own", "own, fused", "native", "exact", "fast")
IN_TORCH += ("exact, compiled", "fast, compiled", "NumPy")
IN_JAX = ("own", "exact", "fast", "NumPy")


def gradient(is_sparse):
    """Returns a gradient: an array, or a pair (ids, rows)."""
    random = np.random.RandomState(0)
    if not is_sparse:
        return random.randn(*SHAPE).astype("f4")
    return random.randint(0, TABLE[0], IDS), random.randn(IDS, TABLE[1]).astype("f4")


def in_numpy(name, is_sparse):
    """Returns a function that runs one step in NumPy."""
    weights = {"w": np.zeros(TABLE if is_sparse else SHAPE, np.float32)}
    optimizer, grad = NumpyOptimizer(recorded.load(name), weights), gradient(is_sparse)
    return lambda: optimizer.step({"w": Rows(*grad) if is_sparse else grad})


def in_torch(way, name, is_sparse):
    """Returns a function that runs one step in PyTorch."""
    import torch

    from legacy_opt.recorded.torch import RecordedOptimizer

    parameter = torch.nn.Parameter(torch.zeros(TABLE if is_sparse else SHAPE))
    if is_sparse:
        ids, rows = map(torch.from_numpy, gradient(is_sparse))
        parameter.grad = torch.sparse_coo_tensor(ids[None], rows, TABLE)
    else:
        parameter.grad = torch.from_numpy(gradient(is_sparse))
    if way == "own":
        return getattr(torch.optim, RULES[name][is_sparse])([parameter], lr=0.01).step
    if way == "own, fused":
        own = getattr(torch.optim, RULES[name][is_sparse])
        can = "fused" in inspect.signature(own).parameters and not is_sparse
        return own([parameter], lr=0.01, fused=True).step if can else None
    level, _, compiled = way.partition(", ")
    step = RecordedOptimizer([parameter], recorded.load(name), level=level).step
    return torch.compile(step) if compiled else step


def in_jax(way, name, is_sparse):
    """Returns a function that runs one step in JAX. optax' own optimizers are for dense gradients.

    The arrays of the last step are overwritten, as in training loops.
    """
    import jax
    import jax.numpy as jnp
    import optax

    from legacy_opt.recorded.jax import JaxOptimizer
    from legacy_opt.recorded.optax import from_record

    params = jnp.zeros(TABLE if is_sparse else SHAPE, "float32")
    grad = jax.tree.map(jnp.asarray, gradient(is_sparse))
    if way == "own" and is_sparse:
        grad = jnp.zeros_like(params).at[grad[0]].add(grad[1])
    if is_sparse and way != "own":
        optimizer = JaxOptimizer(recorded.load(name), way)

        def step(params, state, grad):
            return optimizer.update_rows(params, state, *grad)

    else:
        own = getattr(optax, RULES[name][2])
        optimizer = own(0.01) if way == "own" else from_record(recorded.load(name), way)

        def step(params, state, grad):
            updates, state = optimizer.update(grad, state, params)
            return optax.apply_updates(params, updates), state

    compiled = jax.jit(step, donate_argnums=(0, 1))
    held = [params, optimizer.init(params)]

    def run():
        held[:] = compiled(*held, grad)
        jax.block_until_ready(held)

    return run


def seconds(step):
    """Returns the seconds of a step, the mean of some."""
    started, count = time.perf_counter(), 0
    while time.perf_counter() - started < SECONDS / ROUNDS or count < 2:
        step()
        count += 1
    return (time.perf_counter() - started) / count


def table(ways, step_of, forget):
    """Prints a table.

    Args:
      ways: the columns.
      step_of: a function that returns the function that runs one step.
      forget: a function that forgets what was compiled.
    """
    print(f"{'rule':24}{'gradient':10}{'own, ms':>10}" + "".join(f"{w:>17}" for w in ways[1:]))
    for name, owns in RULES.items():
        for is_sparse in (False, True):
            if owns[is_sparse] is None:
                continue
            forget()
            steps = [
                in_numpy(name, is_sparse) if way == "NumPy" else step_of(way, name, is_sparse)
                for way in ways
            ]
            for step in filter(None, steps):
                for _ in range(3):
                    step()
            rounds = [
                [seconds(step) if step else math.nan for step in steps] for _ in range(ROUNDS)
            ]
            own_time = statistics.median(each[0] for each in rounds)
            ratios = [
                statistics.median(each[i] / each[0] for each in rounds) for i in range(1, len(ways))
            ]
            kind = "rows" if is_sparse else "dense"
            row = f"{name:24}{kind:10}{1e3 * own_time:10.2f}"
            print(row + "".join(f"{ratio:17.2f}" for ratio in ratios), flush=True)


def main():
    """Prints a table for each library."""
    if importlib.util.find_spec("torch"):
        import torch

        torch.manual_seed(0)
        print(f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads")
        table(IN_TORCH, in_torch, torch._dynamo.reset)  # it compiles a function only some times
    if importlib.util.find_spec("jax"):
        import jax

        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_enable_x64", True)
        print(f"JAX {jax.__version__}")
        table(IN_JAX, in_jax, jax.clear_caches)


if __name__ == "__main__":
    main()
