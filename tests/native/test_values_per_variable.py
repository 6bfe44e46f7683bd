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
from tests.support.cases import CASES, one_of_each_class, why_no_kernel
from tests.support.keras import keras_ways

# Powers of two, so that products are exact.
FACTORS = {"first": 0.5, "second": 2.0}


def _names():
    names = [
        "Adafactor learning_rate, beta1" if name == "Adafactor" else name
        for name in one_of_each_class()
    ]
    # Classes with weight decay around TensorFlow's optimizers have no `hyper_for`.
    return [name for name in names if issubclass(CASES[name].optimizer, RuleOptimizer)]


NAMES = _names()


def changing(name):
    """Returns a case's hyperparameter that differs between variables, and its value."""
    arguments = CASES[name].arguments
    key = "learning_rate" if "learning_rate" in arguments else "alpha"  # of COCOB
    return key, arguments[key]


def multiplied(optimizer, hyper, factor):
    key, _ = changing(optimizer.case)
    setattr(hyper, key, getattr(hyper, key) * factor)


def everything_multiplied(optimizer, hyper, factor):
    for name, value in vars(hyper).items():
        if getattr(value, "dtype", tf.int64).is_floating:
            setattr(hyper, name, value * factor / 2)


def a_number(optimizer, hyper, factor):
    key, value = changing(optimizer.case)
    setattr(hyper, key, value * factor)


def a_numpy_value(optimizer, hyper, factor):
    key, value = changing(optimizer.case)
    setattr(hyper, key, getattr(hyper, key).dtype.as_numpy_dtype(value * factor))


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


def problem(kind):
    """Returns a problem with two variables of the same shape; `kind` is "dense" or "duplicates"."""
    key = "matrix" if kind == "dense" else "table"
    both = [problems.make(kind, steps=3, seed=seed) for seed in (0, 1)]

    def chosen(*found):
        return {name: each[key] for name, each in zip(FACTORS, found)}

    return problems.Problem(
        chosen(*(each.values for each in both)),
        [chosen(*pair) for pair in zip(*(each.gradients for each in both))],
        () if kind == "dense" else tuple(FACTORS),
        "float32",
    )


def maker(name, change, setting):
    def make(step):
        optimizer = CASES[name].construct(subclass(name, change), step)
        optimizer.native = setting
        return optimizer

    return make


@functools.lru_cache(maxsize=None)
def expected(name, change, kind):
    """Returns the steps of a training without native kernels.

    If only one hyperparameter changes, each variable is trained by an optimizer of the original
    class, with the variable's value.
    """
    whole = problem(kind)
    if change == "everything_multiplied":
        return running.eager(whole, maker(name, change, "off")).steps
    steps = [{} for _ in range(whole.steps)]
    for key, factor in FACTORS.items():
        changed, value = changing(name)
        alone = whole._replace(
            values={key: whole.values[key]},
            gradients=[{key: step[key]} for step in whole.gradients],
            sparse=tuple({key} & set(whole.sparse)),
        )
        make = functools.partial(CASES[name].make, **{changed: value * factor})
        for step, values in zip(steps, running.eager(alone, make).steps):
            step.update(values)
    return steps


WAYS = {
    "session-ref": running.session_ref,
    "function": running.function,
    "eager": running.eager,
    "optimizer_v2": keras_ways.function,
    "keras3": functools.partial(keras_ways.function, api="keras3"),
}

SETTINGS = ["off", "auto", "require"]
HOW = turns.pairwise_first(
    {"change": CHANGES, "way": WAYS, "setting": SETTINGS, "kind": ["dense", "duplicates"]}
)


@pytest.mark.filterwarnings("ignore::legacy_opt.core.user_warnings.NativeKernelWarning")
@pytest.mark.in_turn(name=NAMES, how=HOW)
def test_each_variable_is_updated_with_its_own_values(name, how):
    change, way, setting, kind = how
    train = functools.partial(WAYS[way], problem(kind), maker(name, change, setting))
    if setting == "require" and why_no_kernel(name, sparse=kind == "duplicates"):
        with pytest.raises(Exception, match="runs without a native kernel"):
            train()
        return
    running.assert_steps_close(
        train().steps, expected(name, change, kind), 3e-5, 1e-6, what=str(how)
    )
