"""What `make bench-leave` measures: cases, comparisons, and their goals.

The name of a contestant is a way to run an optimizer, and the optimizer. Ways are "torch", "torch
fused" and "optax" for an optimizer of the library, "native", "exact" and "fast" for a recorded
rule, and "C" for a loop of loops.c.
"""

from typing import Any, NamedTuple, Tuple

import numpy as np


class Case(NamedTuple):
    """The variables that a step updates.

    Attributes:
      name: the case's name in the report.
      shape: the shape of each variable.
      count: the number of variables.
      rows: the number of different ids of a sparse gradient; None if the gradient is dense.
    """

    name: str
    shape: Tuple[int, ...]
    count: int = 1
    rows: Any = None

    def scaled_down(self, factor):
        """Returns the case with variables that have fewer elements."""
        shape = (max(8, self.shape[0] // factor), *self.shape[1:])
        return self._replace(shape=shape, rows=self.rows and min(self.rows, shape[0]))

    def numbers(self, seed, rows_only=False):
        """Returns an array of the variables' shape or, if `rows_only`, of the gradient's rows."""
        shape = (self.rows, *self.shape[1:]) if rows_only else self.shape
        return np.random.default_rng(seed).standard_normal(shape, np.float32)

    def ids(self):
        """Returns the ids of the gradient's rows."""
        return np.random.default_rng(0).permutation(self.shape[0])[: self.rows]


class Comparison(NamedTuple):
    """Two contestants, and the largest accepted ratio of their times; None if it has no goal."""

    case: str
    contestant: str
    compared_with: str
    goal: Any = None


LIBRARIES = {"torch": "PyTorch", "jax": "JAX"}
LARGE, SMALL, ROWS = "10 M floats", "200 of 64 x 64", "4,096 rows"
CASES = {
    each.name: each
    for each in (
        Case(LARGE, (10_000_000,)),
        Case(SMALL, (64, 64), count=200),
        Case(ROWS, (500_000, 32), rows=4096),
    )
}
_FUSED = "torch fused Adam"
_OF_TORCH = [
    Comparison(LARGE, "C Adam", _FUSED),
    Comparison(LARGE, "torch Adam", _FUSED),
    Comparison(LARGE, "native LazyAdam", _FUSED, 1.05),
    Comparison(LARGE, "native AdamWeightDecay", _FUSED, 1.05),
    Comparison(LARGE, "native Momentum", "torch fused SGD", 1.05),
    Comparison(LARGE, "native Adagrad", "torch fused Adagrad", 1.05),
    Comparison(LARGE, "native AdagradDecay", "torch fused Adagrad"),
    Comparison(LARGE, "native LAMB", _FUSED),
    Comparison(LARGE, "native DiffGrad", _FUSED),
    Comparison(LARGE, "fast Adam", "torch Adam", 1.1),
    Comparison(LARGE, "exact Adam", "torch Adam"),
    # What it costs to read the arrays a second time.
    Comparison(LARGE, "C LAMB", "C Adam"),
    Comparison(LARGE, "C LARS", "C Momentum"),
    Comparison(SMALL, "C Adam", _FUSED),
    Comparison(SMALL, "torch Adam", _FUSED),
    Comparison(SMALL, "native LazyAdam", _FUSED, 1.0),
    Comparison(SMALL, "native AdamWeightDecay", _FUSED, 1.0),
    Comparison(SMALL, "native Momentum", _FUSED, 1.0),
    Comparison(SMALL, "native Adagrad", _FUSED, 1.0),
    Comparison(SMALL, "native AdagradDecay", _FUSED, 1.0),
    Comparison(SMALL, "native LAMB", _FUSED),
    Comparison(SMALL, "native DiffGrad", _FUSED, 1.3),
    Comparison(SMALL, "fast Adam", "torch Adam", 1.1),
    Comparison(SMALL, "exact Adam", "torch Adam"),
    Comparison(ROWS, "C Adam", "torch SparseAdam"),
    Comparison(ROWS, "native LazyAdam", "torch SparseAdam", 0.45),
    Comparison(ROWS, "native AdagradDecay", "torch SparseAdam", 0.42),
    Comparison(ROWS, "native Ftrl", "torch SparseAdam", 0.36),
]
_GOALS_IN_JAX = {"Adam": 1.0, "AdamWeightDecay": 1.0, "AdagradDecay": 1.0, "LAMB": 2.0}
# "exact LAMB" of 200 variables is left out, because XLA takes minutes to compile it.
_SMALL_IN_JAX = [f"native {name}" for name in _GOALS_IN_JAX]
_SMALL_IN_JAX += ["exact Adam", "exact AdamWeightDecay", "exact AdagradDecay", "fast Adam"]
_OF_JAX = [
    Comparison(LARGE, "C Adam", "optax adam"),
    *(
        Comparison(LARGE, f"native {key}", "optax adam", goal)
        for key, goal in _GOALS_IN_JAX.items()
    ),
    *(Comparison(LARGE, f"exact {name}", "optax adam") for name in _GOALS_IN_JAX),
    *(Comparison(LARGE, f"fast {name}", "optax adam") for name in _GOALS_IN_JAX),
    Comparison(LARGE, "C LAMB", "C Adam"),
    Comparison(SMALL, "C Adam", "optax adam"),
    *(Comparison(SMALL, name, "optax adam") for name in _SMALL_IN_JAX),
    # The gradient of optax' Adam is one of the whole table.
    *(Comparison(ROWS, f"{level} LazyAdam", "optax adam") for level in ("native", "exact", "fast")),
]
COMPARISONS = {"torch": _OF_TORCH, "jax": _OF_JAX}
