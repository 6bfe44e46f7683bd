"""Tests every class with hyperparameters that change between training steps.

The values change as `tests.native.changing_hyperparameters` explains: by attributes, or by
variables and callables that the constructor got; in a Session, in a tf.function, eagerly and in
Keras; without native kernels and with them. The expected values come from new optimizers.
"""

import numpy as np
import pytest

from tests.native.changing_hyperparameters import (
    NAMES,
    SETTINGS,
    WAYS,
    changes_of,
    fresh,
    plan,
    run,
)
from tests.support import running
from tests.support.cases import why_no_kernel
from tests.support.turns import pairwise_first

# Arguments without effect in the middle of a training: they initialize slots, or choose between two
# ways to compute the same.
WITHOUT_EFFECT = (
    "initial_accumulator_value",
    "initial_gradient_squared_accumulator_value",
    "use_iterative_root",
    "use_own_namescope_for_non_slot_vars",
)


def every_way(*sources):
    dtypes = ["float32", "float64"]
    return pairwise_first({"way": WAYS, "source": sources, "setting": SETTINGS, "dtype": dtypes})


def check(name, how):
    way, source, setting, _ = how
    if setting == "require" and why_no_kernel(name, sparse=True):
        with pytest.raises(Exception, match="runs without a native kernel"):
            run(name, *how)
        return
    dtype, steps, changed = run(name, *how)
    if source == "attribute" and (way == "eager" or way.startswith("keras")):
        assert "learning_rate" in changed or "learning_rate" not in changes_of(name)
    for number, (actual, expected) in enumerate(zip(steps, fresh(name, dtype, changed))):
        what = plan(name).what(number)
        # TensorFlow's kernels approximate square roots, as in test_acceleration.py.
        running.assert_steps_close([actual], [expected], 3e-5, 1e-6, what)


@pytest.mark.filterwarnings("ignore::legacy_opt.core.user_warnings.NativeKernelWarning")
@pytest.mark.in_turn(name=NAMES, how=every_way("attribute"))
def test_attributes_that_are_set_between_steps(name, how):
    """Setting an attribute has an effect from the next step on, or raises an error."""
    check(name, how)


@pytest.mark.filterwarnings("ignore::legacy_opt.core.user_warnings.NativeKernelWarning")
@pytest.mark.in_turn(name=NAMES, how=every_way("variable", "callable"))
def test_variables_and_callables_are_read_in_each_step(name, how):
    check(name, how)


@pytest.mark.parametrize(
    "name, how",
    [
        ("AdamWeightDecay", ("function", "variable", "require", "float32")),
        ("LAMB", ("session-resource", "variable", "require", "float32")),
        ("LARS", ("keras2 eager", "attribute", "require", "float64")),
    ],
)
def test_kernels_read_no_variable_past_the_scalars_of_the_step(name, how):
    """In these cells the rule once read the user's variable, or Keras' learning rate, itself."""
    check(name, how)


@pytest.mark.parametrize(
    "name, way",
    [
        ("Adafactor learning_rate, beta1", "eager"),
        ("AdamAsync", "eager"),
        ("Ftrl", "keras2 function"),
        ("LAMB", "eager"),
        ("LARS", "eager"),
    ],
)
def test_kernels_follow_the_attributes_that_a_rule_reads(name, way):
    """In these cells the kernel once had the value of the first step."""
    check(name, (way, "attribute", "require", "float32"))


@pytest.mark.once
@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_each_change_is_visible_in_the_expected_values(name):
    everything = tuple(changes_of(name))
    expected = fresh(name, "float32", everything)
    for argument in set(everything) - set(WITHOUT_EFFECT):
        others = fresh(name, "float32", tuple(each for each in everything if each != argument))
        gaps = [np.max(np.abs(a[key] - b[key])) for a, b in zip(expected, others) for key in a]
        assert max(gaps) > 2e-4, argument
