"""Hypothesis strategies that draw an optimizer, hyperparameters, a variable and its gradients."""

import inspect
import math
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

import legacy_opt
from tests.fuzz.wrapped import WRAPPERS
from tests.support.cases import CASES
from tests.support.problems import Rows

# Values that are repeated in DTYPES and WAYS are drawn more often.
DTYPES = ("float32", "float32", "float64", "float16")
WAYS = ("eager",) * 18 + ("session-ref", "session-resource") * 5 + ("function",)
# {way: the largest number of trainings in one draw}. In all other ways, a draw has one training.
# Building a graph takes as long as several eager trainings, so each graph is used for many
# trainings.
TRAININGS = {"session-ref": 32, "session-resource": 32}
MOST_STEPS = 4
WRONG = (
    *(math.nan, math.inf, -math.inf, np.float32(math.nan), "0.1", b"1", True, 1j),
    *([0.5], {}, object(), np.array([0.1]), lambda x, y: x),
)
# 1e-45 is left out: in float32, TensorFlow flushes this subnormal number to zero, but NumPy keeps
# it.
EXTREME = (
    *(0.0, -0.0, 1e-50, 1e-30, 1e-8, 0.5, 0.999999, 1.0, 1.5, 1e4, 1e30, 3e38, 4e38, 1e300),
    *(-1e-3, -1.0, -3e38, 0, 1, 2, -1, 10**9, 2**31, 2**63, 10**30, 10**400),
)
# Ranges in which results can be compared closely. `EXTREME` has values outside these ranges.
USUAL = {
    "learning_rate": (1e-4, 1.0),
    # TensorFlow's kernels compute v + (g * g - v) * (1 - beta2). If beta2 is small, v almost
    # cancels, but the rounding error of g * g - v remains.
    **dict.fromkeys(("beta1", "beta2", "beta_1", "beta_2"), (0.5, 0.99)),
    "epsilon": (1e-3, 1.0),
    "accumulator_decay_step": (1, 5),
    "initial_accumulator_value": (0.01, 2.0),
    "clipping_threshold": (0.1, 2.0),
    "weight_decay": (0.0, 0.5),
    "weight_decay_rate": (0.0, 0.5),
    "eeta": (1e-3, 1.0),
    "base": (1.1, 4.0),
    "alpha": (1.0, 2.0),
    "max_matrix_size": (1, 8),
    "svd_interval": (1, 4),
    "precond_update_interval": (1, 4),
}
UNIT = (0.01, 0.99)  # the range of the hyperparameters that are not in USUAL
# {hyperparameter: usual value}. These hyperparameters accept numbers, but may be None by default.
NUMBERS = {"decay_rate": 0.8, "clipping_threshold": 1.0}
ITERATIVE = "Shampoo svd_interval, use_iterative_root"
NOT_DRAWN = {
    # svd_interval: ShampooOptimizer computes the root of a matrix by iterations. If the norm of the
    # matrix is small, the iterations stop too early, like those of the original in tf.contrib.opt.
    # The case's svd_interval is 5. This is more than MOST_STEPS, so no root is computed.
    # alpha: the iterative root exists only for some exponents.
    ITERATIVE: ("svd_interval", "alpha"),
    # The case passes a function as decay_rate, and the oracle always uses the same function.
    "Adafactor factored=False": ("decay_rate",),
}
MOST_ELEMENTS = 300


class Gradient(NamedTuple):
    """The gradient of one step: the seed and scale of its values, and ids if it is sparse."""

    seed: int
    scale: float
    ids: Any = None


class Fuzzed(NamedTuple):
    """One or several trainings of a variable, each from the variable's initial value.

    Attributes:
      name: the name of a case in tests/support/cases.py.
      wrapper: the wrapper around the optimizer, a key in tests/fuzz/wrapped.py.
      way: the way to train, a key in tests/fuzz/training.py.
      dtype: the dtype of the variable.
      variable: the name of the variable.
      shape: the shape of the variable.
      trainings: for each training a tuple with one `Gradient` for each step.
      id_dtype: the dtype of all ids.
      step_dtype: the dtype of the global step.
      arguments: hyperparameters that override the case's hyperparameters.
      kind: whether the values in `arguments` are "usual", "extreme" or "wrong".
    """

    name: str
    wrapper: str
    way: str
    dtype: str
    variable: str
    shape: tuple
    trainings: tuple
    id_dtype: str
    step_dtype: str
    arguments: dict
    kind: str

    @property
    def sparse(self):
        return self.trainings[0][0].ids is not None

    @property
    def every(self):
        """The number of steps per update of the variable."""
        return WRAPPERS[self.wrapper].every

    def first_bad(self, gradients):
        """Returns the first step with an id that is out of range, or None."""
        for number, gradient in enumerate(gradients):
            if any(not 0 <= row < self.shape[0] for row in gradient.ids or ()):
                return number
        return None

    def make(self, step):
        optimizer = CASES[self.name].make(step, **self.arguments)
        return WRAPPERS[self.wrapper].make(optimizer, self.variable)

    def start(self):
        """Returns the variable's initial value."""
        random = np.random.RandomState(len(self.shape))
        return np.asarray(random.randn(*self.shape)).astype(self.dtype)

    def array(self, gradient):
        """Returns a `Gradient` as an array, or as `Rows` if it is sparse."""
        random = np.random.RandomState(gradient.seed)
        shape = ((len(gradient.ids),) + self.shape[1:]) if self.sparse else self.shape
        values = np.asarray(random.randn(*shape) * gradient.scale).astype(self.dtype)
        return Rows(values, np.array(gradient.ids, self.id_dtype)) if self.sparse else values


def oracle_arguments(name):
    """Returns the names of all arguments of a case's oracle."""
    oracle = CASES[name].oracle.func
    return {
        key
        for cls in oracle.__mro__
        if "__init__" in vars(cls)
        for key in inspect.signature(cls.__init__).parameters
    }


def numbers_of(name):
    """Returns a dict from numeric hyperparameters to usual values.

    The dict has only hyperparameters that legacy_opt checks. If the case's class is not in
    legacy_opt, but extends an optimizer of TensorFlow, legacy_opt checks only weight_decay.
    """
    case = CASES[name]
    signature = inspect.signature(case.optimizer.__init__).parameters
    values = {key: parameter.default for key, parameter in signature.items()}
    values = dict(NUMBERS, **{key: value for key, value in values.items() if value is not None})
    values = dict({key: values[key] for key in values if key in signature}, **case.arguments)
    base = getattr(case.optimizer, "base_optimizer", legacy_opt.RuleOptimizer)
    ours = hasattr(legacy_opt, case.optimizer.__name__) or base.__module__.startswith("legacy_opt.")
    return {
        key: value
        for key, value in values.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
        if ours or key == "weight_decay"
        if key not in NOT_DRAWN.get(name, ()) and key != "global_step"
    }


NUMBERS_OF = {name: numbers_of(name) for name in CASES}
# {case: names of the hyperparameters that are also arguments of the oracle}
KNOWN = {
    name: sorted(oracle_arguments(name).intersection(keys)) for name, keys in NUMBERS_OF.items()
}


def _usual(key, value):
    low, high = USUAL.get(key, UNIT)
    if isinstance(value, int):
        return st.integers(int(low), int(high))
    return st.floats(low, high).map(lambda x: float(f"{x:.3g}"))


def extremes_of(key):
    """Returns the values of `EXTREME` to try for a hyperparameter."""
    without = ()
    if key.endswith("_interval"):
        without = (1.5,)  # an interval of one and a half steps is not defined
    if key == "mat_gbar_weight":
        without = (3e38,)  # 3e38 times an interval is infinity, and infinity * 0 is NaN
    if key == "alpha":  # beyond 1e4, one rounding error decides between zero and infinity
        without = [number for number in EXTREME if abs(number) > 1e4]
    return [number for number in EXTREME if number not in without]


@st.composite
def arguments(draw, name, kind):
    """Draws hyperparameters: up to four usual values, or a single extreme or wrong value."""
    if kind == "usual":
        chosen = draw(st.lists(st.sampled_from(KNOWN[name]), unique=True, max_size=4))
        return {key: draw(_usual(key, NUMBERS_OF[name][key])) for key in chosen}
    if kind == "wrong":
        return {draw(st.sampled_from(list(NUMBERS_OF[name]))): draw(st.sampled_from(WRONG))}
    key = draw(st.sampled_from(KNOWN[name]))
    return {key: draw(st.sampled_from(extremes_of(key)))}


@st.composite
def shapes(draw, sparse):
    """Draws a shape of rank 0 to 8, or of rank 1 to 8 if the gradients are sparse."""
    rank = draw(st.integers(int(sparse), 4) | st.integers(5, 8))
    size = st.sampled_from((1, 2, 3, 5, 7, 0) if rank < 4 else (1, 2, 3))
    shape = tuple(draw(size) for _ in range(rank))
    while np.prod(shape, dtype=int) > MOST_ELEMENTS:
        shape = shape[:-1]
    return shape


@st.composite
def ids(draw, rows, may_be_bad):
    """Draws up to 7 ids for one step. Ids may repeat. Rarely, an id is out of range."""
    bad = draw(st.integers(0, 15)) == 15 and may_be_bad
    least, most = (-2, rows + 1) if bad else (0, rows - 1)
    return tuple(draw(st.lists(st.integers(least, most), max_size=7))) if rows or bad else ()


@st.composite
def trainings(draw, way, rows, wrapper):
    """Draws the gradients of some trainings.

    If `rows` is None, the gradients are dense; otherwise `rows` is the variable's number of rows.
    """
    made = []
    # With gradient accumulation, no id is out of range: the rows of a failed update would stay
    # accumulated, and the next update would fail, too.
    may_be_bad = WRAPPERS[wrapper].every == 1
    for _ in range(draw(st.integers(1, TRAININGS.get(way, 1)))):
        gradients = []
        for _ in range(draw(st.integers(1, MOST_STEPS))):
            chosen = None if rows is None else draw(ids(rows, may_be_bad))
            scale = draw(st.sampled_from((1.0, 0.1, 10.0, 0.0, 1e-5)))
            gradients.append(Gradient(draw(st.integers(0, 99)), scale, chosen))
        made.append(tuple(gradients))
    return tuple(made)


@st.composite
def draws(draw):
    """Draws a `Fuzzed`."""
    name = draw(st.sampled_from(list(CASES)))
    kind = draw(st.sampled_from(("usual",) * 4 + ("extreme", "wrong")))
    way = draw(st.sampled_from(WAYS))
    dtype = draw(st.sampled_from(DTYPES))
    wrapper = draw(st.sampled_from(("",) * 8 + tuple(WRAPPERS)))
    if dtype not in CASES[name].dtypes:
        dtype = "float32"
    if dtype not in WRAPPERS[wrapper].dtypes:
        wrapper = ""
    sparse = draw(st.booleans())
    shape = draw(shapes(sparse))
    chosen = draw(arguments(name, kind if KNOWN[name] else "usual"))
    if kind == "wrong":
        gradients = ((Gradient(0, 1.0, () if sparse else None),),)  # unused: the constructor fails
    else:
        gradients = draw(trainings(way, shape[0] if sparse else None, wrapper))
    return Fuzzed(
        name,
        wrapper,
        way,
        dtype,
        draw(st.sampled_from(("w", "bias_vector"))),  # some cases do not decay names with "bias"
        shape,
        gradients,
        draw(st.sampled_from(("int64", "int32"))),
        draw(st.sampled_from(("int64", "int32"))),
        chosen,
        kind,
    )
