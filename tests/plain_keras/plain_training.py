"""Trains with a bridged optimizer, then with its translation.

A bridged optimizer is a Keras optimizer made by `to_keras` from a v1 optimizer. Its translation by
`to_plain_keras` is one of Keras' own optimizers, such as keras.optimizers.Adam.
"""

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt.compat import to_plain_keras
from legacy_opt.compat.in_keras.plain_keras.counterparts import COUNTERPARTS
from legacy_opt.compat.in_keras.side_by_side import training_function
from tests.support import problems, running
from tests.support.keras import keras_cases, keras_models
from tests.support.keras.keras_apis import KERAS_3

HALF = 6  # the number of training steps in each half

# The v1 optimizers with a counterpart among Keras' own optimizers.
CASES = {
    name: case
    for name, case in keras_cases.CASES.items()
    if case.optimizer.__name__ in COUNTERPARTS and "locking" not in name
}
# The cases of the daily test run: one of each class, but two of RMSProp.
DAILY = (
    "Adadelta rho, epsilon",
    "Adagrad",
    "Adam",
    "AdaMax",
    "AdamGS",
    "Ftrl l2_shrinkage",
    "GradientDescent",
    "LazyAdam",
    "LazyAdamGS",
    "Momentum nesterov",
    "RMSProp",
    "RMSProp centered, momentum",
    "RegAdagrad",
)
EVERY_CASE = [
    pytest.param(name, marks=[] if name in DAILY else [pytest.mark.full]) for name in CASES
]
# Wrong initial values, a lost slot or a wrong order of steps would change values by more than 0.01.
TOLERANCE = {"rtol": 1e-4, "atol": 2e-5}


def dense_problem(steps=2 * HALF):
    """Returns a problem without sparse gradients."""
    return problems.make("dense", steps=steps)


def sparse_problem(steps=2 * HALF):
    """Returns a problem with dense gradients, and with sparse gradients whose ids are repeated."""
    return keras_models.problem(steps=steps)


def session(case, problem):
    """Trains with the v1 optimizer in a Session; returns the `Trace`."""
    return running.session(problem, case.make, use_resource=True)


def train(optimizer, variables, problem, first, last):
    """Runs the training steps `first`, …, `last` - 1; returns the values after each step."""

    def step(gradients):
        optimizer.apply_gradients(keras_models.pairs(gradients, variables))

    step = training_function(step, [running.signature(problem)], autograph=False)
    values = []
    for gradients in problem.gradients[first:last]:
        step(tf.nest.map_structure(tf.constant, running._plain(gradients)))
        values.append({name: variable.numpy() for name, variable in variables.items()})
    return values


def to_plain(api, optimizer, **options):
    """Returns the `Translation` of a bridged or v1 optimizer.

    On Keras 3, translates for dense gradients only, because Keras 3's optimizers treat sparse
    gradients differently from v1 optimizers. Nearly all translations for sparse gradients would
    have the grade "differs".
    """
    if isinstance(optimizer, tf.compat.v1.train.Optimizer):
        options["api"] = api.name
    return to_plain_keras(optimizer, **{"sparse": api is not KERAS_3, **options})


# A dict from slot names in Keras 2 to slot names in Keras 3, for the slots whose names differ.
IN_KERAS_3 = {"m": "momentum", "v": "velocity", "rms": "velocity"}


def slots(api, plain, name, variables):
    """Returns the values of one slot for all variables.

    Args:
      api: the Keras API.
      plain: one of Keras' own optimizers.
      name: the slot's name in Keras 2; Keras 3 may have another name.
      variables: the trained variables.
    """
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
    """Returns the values of those variables of a Keras 3 optimizer whose names end in `suffix`."""
    return [each.numpy() for each in plain.variables if each.name.endswith(suffix)]


def steps(optimizer, variables, *gradients):
    """Runs a step for each number in `gradients`; all gradient elements equal this number."""
    for gradient in gradients:
        optimizer.apply_gradients([(tf.fill(each.shape, gradient), each) for each in variables])


def ones(*shape):
    return tf.compat.v2.Variable(np.ones(shape, "f"))


def handed_over(case, problem, bridged, translate):
    """Trains the first half with a bridged optimizer and the second half with its translation.

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
    """Asserts that the values after each step are equal bit for bit to those of a Session."""
    assert len(after) == len(expected)
    for one, other in zip(after, expected):
        for name in other:
            assert np.array_equal(one[name], other[name]), name


def assert_as_graded(translation, after, expected):
    """Asserts that values are as close to those of a Session as the translation's grade says.

    If the grade is "exact", the values must be equal. If the grade is "rounding", the values must
    be equal within `TOLERANCE`. Any other grade is an error.
    """
    if translation.grade == "exact":
        assert_equal_steps(after, expected)
    else:
        assert translation.grade == "rounding"
        running.assert_steps_close(after, expected, **TOLERANCE)


def figures(translation):
    """Returns a dict from each kind of gradient to the grade that the translation has for it."""
    return {each.kind: each.grade for each in translation.report.measurements}


# The start of a script in which this package cannot be imported.
WITHOUT_THE_PACKAGE = """
import sys

sys.modules["legacy_opt"] = None  # importing it is an error
import numpy as np
import pytest
import tensorflow as tf

keras = {keras}
"""


def assert_same_state(name, after, before, variables, unused=None):
    """Asserts that the translation to Keras' own optimizer and back has kept the state.

    Args:
      name: the case.
      after: the bridged optimizer that the translation back has made.
      before: the bridged optimizer that was translated.
      variables: the trained variables.
      unused: a slot that Keras does not have, because the v1 optimizer multiplies it by 0.
    """
    for slot in before.get_slot_names():
        for variable in variables:
            expected, actual = (each.get_slot(variable, slot).numpy() for each in (before, after))
            # Both translations round Momentum's slot: one multiplies it by the learning rate, the
            # other divides it by the learning rate.
            if "Momentum" in name:
                np.testing.assert_allclose(actual, expected, rtol=3e-7)
            elif slot == unused:
                assert not actual.any()
            else:
                assert np.array_equal(actual, expected), slot
    shared = [{n: each.numpy() for n, each in one.non_slots.items()} for one in (after, before)]
    assert shared[0] == shared[1]
