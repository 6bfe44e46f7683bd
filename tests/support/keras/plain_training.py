"""Training that is handed over between bridged optimizers and Keras' own."""

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt.compat import to_plain_keras
from legacy_opt.compat.native_keras.counterparts import COUNTERPARTS
from tests.support import problems, running
from tests.support.keras import keras_cases, keras_models
from tests.support.keras.keras_apis import KERAS_3

HALF = 6

# The v1 optimizers that have a relative among Keras' own.
CASES = {
    name: case
    for name, case in keras_cases.CASES.items()
    if case.optimizer.__name__ in COUNTERPARTS and "locking" not in name
}
# Every day one set of arguments for each class, and what has its own way of being translated.
DAILY = (
    "Adadelta rho, epsilon",
    "Adagrad",
    "Adam",
    "AdaMax",
    "AdamGS",
    "Ftrl l2_shrinkage",
    "GradientDescent",
    "LazyAdam",
    "Momentum nesterov",
    "RMSProp",
    "RMSProp centered, momentum",
    "RegAdagrad",
)
EVERY_CASE = [
    pytest.param(name, marks=[] if name in DAILY else [pytest.mark.full]) for name in CASES
]
# With the wrong order of steps, a wrong start or a lost slot, they would differ by more than 0.01.
TOLERANCE = {"rtol": 1e-4, "atol": 2e-5}


def dense_problem(steps=2 * HALF):
    """A problem without sparse gradients."""
    return problems.make("dense", steps=steps)


def sparse_problem(steps=2 * HALF):
    """A problem whose table gets repeated ids."""
    return keras_models.problem(steps=steps)


def session(case, problem):
    """Returns what the v1 optimizer computes in a Session: a `Trace`."""
    return running.session(problem, case.make, use_resource=True)


def train(optimizer, variables, problem, first, last):
    """Trains with some of a problem's steps, and returns the values after each of them."""

    @tf.function(input_signature=[running.signature(problem)], autograph=False)
    def step(gradients):
        optimizer.apply_gradients(keras_models.pairs(gradients, variables))

    values = []
    for gradients in problem.gradients[first:last]:
        step(tf.nest.map_structure(tf.constant, running._plain(gradients)))
        values.append({name: variable.numpy() for name, variable in variables.items()})
    return values


def to_plain(api, optimizer, **options):
    """Returns the `Translation` of a bridged or v1 optimizer; in Keras 3 that for dense gradients.

    Its optimizers treat sparse ones differently from v1: nearly all are graded "differs" there.
    """
    if isinstance(optimizer, tf.compat.v1.train.Optimizer):
        options["api"] = api.name
    return to_plain_keras(optimizer, **{"sparse": api is not KERAS_3, **options})


# Keras 3's names of the slots of Keras 2.
IN_KERAS_3 = {"m": "momentum", "v": "velocity", "rms": "velocity"}


def slots(api, plain, name, variables):
    """Returns the slots of Keras' own optimizer of this name in Keras 2, one for each variable."""
    if api is not KERAS_3:
        return [plain.get_slot(variable, name).numpy() for variable in variables]
    found = state(plain, IN_KERAS_3.get(name, name))
    assert len(found) == len(variables)
    return found


def arrays(optimizer):
    """Returns the values of a Keras optimizer's variables."""
    if hasattr(optimizer, "get_weights"):
        return optimizer.get_weights()
    return [each.numpy() for each in optimizer.variables]


def state(plain, suffix):
    """Returns the variables of one of Keras 3's own whose names end so."""
    return [each.numpy() for each in plain.variables if each.name.endswith(suffix)]


def steps(optimizer, variables, *gradients):
    """Applies gradients, one a step, that are the same number everywhere."""
    for gradient in gradients:
        optimizer.apply_gradients([(tf.fill(each.shape, gradient), each) for each in variables])


def ones(*shape):
    return tf.compat.v2.Variable(np.ones(shape, "f"))


def handed_over(case, problem, bridged, translate):
    """Trains one half bridged, and the other half with what `translate` makes of the optimizer.

    Returns:
      The `Translation`, the variables' values after each step of the second half, and the
      variables.
    """
    variables = keras_models.variables_of(problem)
    train(bridged, variables, problem, 0, HALF)
    translation = translate(bridged, list(variables.values()))
    after = train(translation.optimizer, variables, problem, HALF, problem.steps)
    return translation, after, variables


def assert_equal_steps(after, expected):
    """Asserts that values after each step are those of a Session, bit for bit."""
    assert len(after) == len(expected)
    for one, other in zip(after, expected):
        for name in other:
            assert np.array_equal(one[name], other[name]), name


def assert_as_graded(translation, after, expected):
    """Asserts that values equal those of a Session as closely as the grade promises."""
    if translation.grade == "exact":
        assert_equal_steps(after, expected)
    else:
        assert translation.grade == "rounding"
        running.assert_steps_close(after, expected, **TOLERANCE)


def figures(translation):
    """Returns a translation's grades by kind."""
    return {figure.kind: figure.grade for figure in translation.report.measurements}


# A script for a Python in which this package cannot be imported.
WITHOUT_THE_PACKAGE = """
import sys

sys.modules["legacy_opt"] = None  # importing it is an error
import numpy as np
import pytest
import tensorflow as tf

keras = {keras}
"""


def assert_same_state(name, after, before, variables, unused=None):
    """Asserts that a bridged optimizer has the state of the one that was translated there and back.

    Args:
      name: the case.
      after: the optimizer that came back.
      before: the one that was translated.
      variables: those they train.
      unused: a slot that v1 multiplies by 0, and Keras does not have.
    """
    for slot in before.get_slot_names():
        for variable in variables:
            expected, actual = (each.get_slot(variable, slot).numpy() for each in (before, after))
            if "Momentum" in name:  # divided by what it was multiplied by
                np.testing.assert_allclose(actual, expected, rtol=3e-7)
            elif slot == unused:
                assert not actual.any()
            else:
                assert np.array_equal(actual, expected), slot
    shared = [{n: each.numpy() for n, each in one.non_slots.items()} for one in (after, before)]
    assert shared[0] == shared[1]
