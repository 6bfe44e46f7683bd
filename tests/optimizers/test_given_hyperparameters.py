"""Tests functions, tensors and variables as hyperparameters, where the v1 optimizer accepts them.

The Keras optimizer that `to_keras` makes from a v1 optimizer must compute the same values as the v1
optimizer, or raise an error.
"""

import functools
import numbers

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt.compat import save_v1_checkpoint, to_keras, to_plain_keras, to_v1
from tests.support import running
from tests.support.arguments import changed
from tests.support.checkpoints.v1_checkpoint_cases import moved_over
from tests.support.checkpoints.v1_checkpoints import (
    APIS,
    EVERY_API,
    KerasTraining,
    assert_equal,
    problem,
)
from tests.support.keras import keras_ways
from tests.support.keras.keras_cases import CASES

v1 = tf.compat.v1
CLASSES = {case.optimizer: name for name, case in reversed(list(CASES.items()))}


GIVEN = {
    "function": lambda value: lambda: value,
    "function of a tensor": lambda value: lambda: tf.constant(value),
    "tensor": lambda value: tf.constant(np.float32(value)),
    "variable": lambda value: tf.compat.v2.Variable(np.float32(value), trainable=False),
}


def giving(case, names, given):
    return changed(
        case,
        lambda arguments: {
            name: given(value) if name in names else value for name, value in arguments.items()
        },
    )


def taken(case, one_problem, given):
    """Returns the names of the numeric arguments whose value `given(value)` may replace.

    The replacement is allowed if one training step of the v1 optimizer raises no error.
    """
    found = []

    def note(arguments):
        found.extend(
            name
            for name, value in arguments.items()
            if isinstance(value, numbers.Real) and not isinstance(value, bool)
        )
        return arguments

    changed(case, note)(None)
    refusals = (TypeError, ValueError, tf.errors.OpError)
    if case is CASES.get("contrib.opt Shampoo"):  # it looks up a slot that does not exist
        refusals += (AttributeError,)
    short = one_problem._replace(gradients=one_problem.gradients[:1])
    names = []
    for name in found:
        try:
            running.eager(short, giving(case, [name], given))
        except refusals:
            continue
        names.append(name)
    return names


@pytest.mark.in_turn(name=CLASSES.values(), kind=list(GIVEN), api=APIS)
def test_every_argument_of_every_class(name, kind, api, full):
    case = CASES[name]
    one_problem = keras_ways.mixed("float32", case.only, 6 if full else 2)
    names = taken(case, one_problem, GIVEN[kind])
    make = giving(case, names, GIVEN[kind])
    expected = running.eager(one_problem, make)
    actual = keras_ways.eager(one_problem, make, api=api)
    slots = {key: actual.slots[key] for key in expected.slots}
    running.assert_same(actual._replace(slots=slots), expected, names)


@pytest.mark.parametrize("kind", ["function", "function of a tensor"])
@pytest.mark.parametrize("name", ["Adam", "LazyAdam", "AdamW"])
@EVERY_API
def test_betas_that_are_functions(api, name, kind):
    """Compares the Keras optimizer in a tf.function with the v1 optimizer in a Session."""
    case, one_problem = CASES[name], keras_ways.mixed("float32", (), 3)
    make = giving(case, ("beta1", "beta2"), GIVEN[kind])
    running.assert_same(
        keras_ways.function(one_problem, make, api=api), keras_ways.session(one_problem, make)
    )


# Checkpoints, conversions and configs of optimizers with such hyperparameters.


def adam(given, step=None):
    del step
    return v1.train.AdamOptimizer(0.1, beta1=given, beta2=0.5)


@pytest.mark.parametrize("kind", GIVEN)
@EVERY_API
def test_v1_checkpoints(api, kind, tmp_path):
    make = functools.partial(adam, GIVEN[kind](0.75))
    training = KerasTraining(problem(), make, api, start=1)
    training.train(0, 2, "eager")
    path = str(tmp_path / "model")
    save_v1_checkpoint(path, training.variables, training.optimizer)
    assert_equal(moved_over(path, make, api).state(), training.state())


@pytest.mark.parametrize("kind", GIVEN)
@EVERY_API
def test_to_v1_returns_the_same_hyperparameters(api, kind):
    given = GIVEN[kind](0.75)
    assert to_v1(to_keras(adam(given), api=api))._beta1 is given


@pytest.mark.parametrize("kind", GIVEN)
@pytest.mark.parametrize("what", ["get_config", "to_plain_keras"])
@EVERY_API
def test_configs_that_cannot_be_saved(api, what, kind):
    optimizer = to_keras(adam(GIVEN[kind](0.75)), api=api)
    with pytest.raises(ValueError, match="argument beta1 is .*Or pass a number"):
        optimizer.get_config() if what == "get_config" else to_plain_keras(optimizer)


@EVERY_API
def test_functions_are_not_called_before_there_is_training(api):
    """Checks that beta2 can be set even if beta1 is a function that cannot be called yet."""
    calls = []

    def beta1():
        calls.append(None)
        raise RuntimeError("not yet")

    optimizer = to_keras(adam(beta1), api=api)
    assert not calls
    optimizer.beta2 = 0.25
    assert to_v1(optimizer)._beta2 == 0.25
