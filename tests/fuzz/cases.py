"""What is drawn: an optimizer, its hyperparameters, a variable and the gradients of some steps."""

import math
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from tests.cases import CASES
from tests.problems import Problem, Rows

DTYPES = ("float32", "float32", "float64", "float16")
# Eager code is quick; a graph is made for each of the other ways.
WAYS = ("eager",) * 28 + ("session-ref", "session-resource", "function")
WRONG = (math.nan, math.inf, -math.inf, "0.1", [0.5], True, {}, 1j, b"1", object())
EXTREME = (0.0, -0.0, 1e-30, 1e-8, 0.999999, 1.0, 1e4, 1e30, 3e38, 1e300, -1e-3, -1.0, 0, 1, 10**9)
# Ranges in which a result can be compared; other numbers are tried as extreme ones.
USUAL = {
    "learning_rate": (1e-4, 1.0),
    # TensorFlow's kernels add (g * g - v) * (1 - beta2), which cancels if beta2 is small.
    **dict.fromkeys(("beta1", "beta2", "beta_1", "beta_2"), (0.5, 0.99)),
    "epsilon": (1e-3, 1.0),
    "accumulator_decay_step": (1, 5),
    "initial_accumulator_value": (0.01, 2.0),
    "weight_decay": (0.0, 0.5),
    "weight_decay_rate": (0.0, 0.5),
    "eeta": (1e-3, 1.0),
    "base": (1.1, 4.0),
    "alpha": (0.5, 2.0),
    "max_matrix_size": (1, 8),
    "svd_interval": (1, 4),
    "precond_update_interval": (1, 4),
}
# By the original's rule for ending them, kept bit for bit, the iterations for the root of a small
# matrix end before they have begun. The case's own interval comes after the last step.
NOT_DRAWN = {"Shampoo svd_interval, use_iterative_root": ("svd_interval",)}
UNIT = (0.01, 0.99)  # of all other numbers
MOST_ELEMENTS = 300


class Gradient(NamedTuple):
    """The gradient of one step: random numbers, and the rows' ids if it is sparse."""

    seed: int
    scale: float
    ids: Any = None


class Fuzzed(NamedTuple):
    """One case.

    Attributes:
      name: of a case in tests/cases.py.
      way: how it is run: see tests/running.py.
      dtype: of the variable.
      shape: of the variable.
      gradients: one `Gradient` for each step.
      id_dtype: of all ids.
      arguments: hyperparameters in place of the case's own.
      kind: whether these are "usual", "extreme" or "wrong".
    """

    name: str
    way: str
    dtype: str
    shape: tuple
    gradients: tuple
    id_dtype: str
    arguments: dict
    kind: str

    @property
    def sparse(self):
        return self.gradients[0].ids is not None

    @property
    def bad_ids(self):
        """Whether a step names a row that the variable does not have."""
        return self.sparse and any(map(self.is_bad, self.gradients))

    def is_bad(self, gradient):
        """Whether a gradient does."""
        return any(not 0 <= row < self.shape[0] for row in gradient.ids)

    def make(self, step):
        return CASES[self.name].make(step, **self.arguments)

    def problem(self):
        """Returns the `Problem` with a variable named w."""
        cast = np.dtype(self.dtype).type
        random = np.random.RandomState(len(self.shape))
        steps = []
        for gradient in self.gradients:
            draw = np.random.RandomState(gradient.seed)
            shape = ((len(gradient.ids),) + self.shape[1:]) if self.sparse else self.shape
            values = np.asarray(draw.randn(*shape) * gradient.scale).astype(cast)
            if self.sparse:
                values = Rows(values, np.array(gradient.ids, self.id_dtype))
            steps.append({"w": values})
        start = np.asarray(random.randn(*self.shape)).astype(cast)
        return Problem({"w": start}, steps, ("w",) if self.sparse else (), self.dtype)


def numbers_of(name):
    """Returns the hyperparameters of a case that are numbers and checked by this package."""
    case = CASES[name]
    base = getattr(case.optimizer, "base_optimizer", None)
    theirs = base is not None and base.__module__.split(".")[0] != "legacy_opt"
    return [
        key
        for key, value in case.arguments.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
        if (not theirs or key == "weight_decay") and key not in NOT_DRAWN.get(name, ())
    ]


def _usual(key, value):
    low, high = USUAL.get(key, UNIT)
    if isinstance(value, int):
        return st.integers(int(low), int(high))
    return st.floats(low, high).map(lambda x: float("%.3g" % x))


@st.composite
def arguments(draw, name, kind):
    """Draws hyperparameters: any number of usual ones, or one of another kind."""
    keys = numbers_of(name)
    if not keys:
        return {}
    if kind == "usual":
        chosen = draw(st.lists(st.sampled_from(keys), unique=True))
        return {key: draw(_usual(key, CASES[name].arguments[key])) for key in chosen}
    key = draw(st.sampled_from(keys))
    return {key: draw(st.sampled_from(WRONG if kind == "wrong" else EXTREME))}


@st.composite
def shapes(draw, sparse):
    """Draws ranks 0 to 8, and sizes with 0, 1 and odd numbers."""
    rank = draw(st.integers(int(sparse), 4) | st.integers(5, 8))
    size = st.sampled_from((1, 2, 3, 5, 7, 0) if rank < 4 else (1, 2, 3))
    shape = tuple(draw(size) for _ in range(rank))
    while np.prod(shape, dtype=int) > MOST_ELEMENTS:
        shape = shape[:-1]
    return shape


@st.composite
def ids(draw, rows):
    """Draws the ids of one step: repeated, in no order, perhaps none, seldom such as are none."""
    least, most = draw(st.sampled_from([(0, rows - 1)] * 7 + [(-2, rows + 1)]))
    return tuple(draw(st.lists(st.integers(least, max(most, least)), max_size=7)))


@st.composite
def cases(draw):
    """Draws a `Fuzzed`."""
    name = draw(st.sampled_from(list(CASES)))
    kind = draw(st.sampled_from(("usual",) * 4 + ("extreme", "wrong")))
    kind = kind if numbers_of(name) else "usual"
    sparse = draw(st.booleans())
    shape = draw(shapes(sparse))
    gradients = []
    for _ in range(draw(st.integers(1, 4))):
        rows = draw(ids(shape[0])) if sparse else None
        scale = draw(st.sampled_from((1.0, 0.1, 10.0, 0.0)))
        gradients.append(Gradient(draw(st.integers(0, 99)), scale, rows))
    way = draw(st.sampled_from(WAYS))
    return Fuzzed(
        name,
        way,
        draw(st.sampled_from(DTYPES)),
        shape,
        tuple(gradients),
        "int64" if way != "eager" else draw(st.sampled_from(("int64", "int32"))),
        draw(arguments(name, kind)),
        kind,
    )
