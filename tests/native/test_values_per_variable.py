"""Tests rules whose hyperparameters differ between variables, such as layer-wise learning rates.

Each class gets a subclass that changes the result of `hyper_for`. Variables of the same rank, with
gradients of the same kind, have different values, so that a kernel of one variable would compute
wrong values for another variable.
"""

import functools

import pytest
import tensorflow as tf

from legacy_opt import RuleOptimizer
from tests.support import problems, running, turns
from tests.support.cases import CASES, one_of_each_class
from tests.support.keras import keras_ways

# Powers of two, so that products are exact.
FACTORS = {"first": 1.0, "second": 0.5, "table": 0.25, "other": 2.0}


def _names():
    names = [
        "Adafactor learning_rate, beta1" if name == "Adafactor" else name
        for name in one_of_each_class()
    ]
    # Classes with weight decay around TensorFlow's optimizers have no `hyper_for`.
    return [name for name in names if issubclass(CASES[name].optimizer, RuleOptimizer)]


NAMES = _names()
WITHOUT_KERNELS = ("Shampoo",)


def multiplied(optimizer, hyper, factor):
    hyper.learning_rate *= factor


def everything_multiplied(optimizer, hyper, factor):
    for name, value in vars(hyper).items():
        if getattr(value, "dtype", tf.int64).is_floating:
            setattr(hyper, name, value * min(factor, 1.0))


def a_number(optimizer, hyper, factor):
    hyper.learning_rate = CASES[optimizer.case].arguments["learning_rate"] * factor


def a_numpy_value(optimizer, hyper, factor):
    dtype = hyper.learning_rate.dtype.as_numpy_dtype
    hyper.learning_rate = dtype(CASES[optimizer.case].arguments["learning_rate"] * factor)


CHANGES = {
    change.__name__: change
    for change in (multiplied, everything_multiplied, a_number, a_numpy_value)
}


@functools.lru_cache(maxsize=None)
def subclass(name, change):
    cls = CASES[name].optimizer

    class PerVariable(cls):
        case = name

        def hyper_for(self, variable):
            hyper = super().hyper_for(variable)
            key = next(key for key in FACTORS if key in self.variable_name(variable))
            CHANGES[change](self, hyper, FACTORS[key])
            return hyper

    return PerVariable


def problem():
    """Returns a problem with two dense and two sparse variables of the same rank."""
    dense, other = (problems.make("dense", steps=3, seed=seed) for seed in (0, 1))
    rows, more = (problems.make("duplicates", steps=3, seed=seed) for seed in (2, 3))

    def chosen(*found):
        return dict(zip(FACTORS, (each[key] for each, key in zip(found, KEYS))))

    return problems.Problem(
        chosen(dense.values, other.values, rows.values, more.values),
        [chosen(*four) for four in zip(*(each.gradients for each in (dense, other, rows, more)))],
        ("table", "other"),
        "float32",
    )


KEYS = ("matrix", "matrix", "table", "table")


def maker(name, change, mode):
    def make(step):
        optimizer = CASES[name].construct(subclass(name, change), step)
        optimizer.native = mode
        return optimizer

    return make


@functools.lru_cache(maxsize=None)
def expected(name, change):
    """Returns the steps of a training without native kernels.

    If only the learning rate changes, each variable is trained by an optimizer of the original
    class, with the variable's learning rate.
    """
    whole = problem()
    if change == "everything_multiplied":
        return running.eager(whole, maker(name, change, "off")).steps
    steps = [{} for _ in range(whole.steps)]
    for key, factor in FACTORS.items():
        rate = CASES[name].arguments["learning_rate"] * factor
        alone = whole._replace(
            values={key: whole.values[key]},
            gradients=[{key: step[key]} for step in whole.gradients],
            sparse=tuple({key} & set(whole.sparse)),
        )
        make = functools.partial(CASES[name].make, learning_rate=rate)
        for step, values in zip(steps, running.eager(alone, make).steps):
            step.update(values)
    return steps


WAYS = {
    "session-ref": running.session_ref,
    "session-resource": running.session_resource,
    "function": running.function,
    "eager": running.eager,
    "optimizer_v2": keras_ways.function,
    "keras3": functools.partial(keras_ways.function, api="keras3"),
    "optimizer_v2 eager": keras_ways.eager,
}


MODES = ["off", "auto", "require"]
HOW = [
    pytest.param(cell, marks=[pytest.mark.keras3] * ("keras3" in cell))
    for cell in turns.pairwise({"change": list(CHANGES), "way": list(WAYS), "mode": MODES})
]


@pytest.mark.filterwarnings("ignore::legacy_opt.core.user_warnings.NativeKernelWarning")
@pytest.mark.in_turn(how=HOW, name=NAMES)
def test_each_variable_is_updated_with_its_own_values(name, how):
    change, way, mode = how
    train = functools.partial(WAYS[way], problem(), maker(name, change, mode))
    if mode == "require" and name.split()[0] in WITHOUT_KERNELS:
        with pytest.raises(Exception, match="runs without a native kernel"):
            train()
        return
    running.assert_steps_close(train().steps, expected(name, change), 3e-5, 1e-6, what=str(how))
