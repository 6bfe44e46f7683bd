"""Compares legacy_opt's optimizers with the originals, whose results were recorded.

The originals ran on TensorFlow 1.15. Small differences are allowed, because the same TensorFlow may
round differently on two processors: the instructions for square roots and matrix products depend on
the processor. tests/training_contrib/test_contrib.py and tests/optimizers/test_bert_original.py run
the originals and legacy_opt's optimizers on the same processor, so those tests compare bits.
"""

import numpy as np
import pytest

from legacy_opt import versions
from tests.support import recorded
from tests.support.cases import CASES
from tests.support.fed_training import FedTraining

RECORDED = recorded.load()
# The largest difference that is allowed. It is relative to the largest absolute value in the
# variable, or to 1 if this value is less than 1. These differences were measured:
# * between two processors, with TensorFlow 1.15: up to 1.3e-7 (Adagrad), for the originals and for
#   legacy_opt's optimizers
# * between the original Adafactor and legacy_opt's: 1.8e-7, because the order of products differs
# * between TensorFlow 1.15 and 2.21, for legacy_opt's optimizers: up to 2.4e-7
TOLERANCE = 1e-6
# These optimizers use only additions, products, divisions and comparisons, whose results IEEE 754
# defines. TensorFlow 1.15 rounds the result of each operation (it uses no fused multiply-add), so
# the bits are the same on every processor.
ON_EVERY_PROCESSOR = ("AdaMax", "AddSign", "MomentumW use_nesterov")


def tolerance(name):
    return 0 if versions.has_contrib() and name in ON_EVERY_PROCESSOR else TOLERANCE


def assert_followed(name, snapshots, expected):
    """Asserts that the values at the steps in `recorded.SNAPSHOTS_AFTER` are near `expected`."""
    for number, values, wanted in zip(recorded.SNAPSHOTS_AFTER, snapshots, expected):
        assert set(values) == set(wanted) | {"global_step"}
        for variable, value in wanted.items():
            actual = values[variable]
            assert actual.dtype == value.dtype and actual.shape == value.shape, variable
            gap = np.max(np.abs(actual.astype("d") - value))
            bound = tolerance(name) * max(1.0, np.max(np.abs(value)))
            assert gap <= bound, f"{variable} after {number} steps: {gap:g}"


def trained(name, **changed):
    """Trains a case; returns all variables at the steps in `recorded.SNAPSHOTS_AFTER`."""
    case = CASES[name]
    training = FedTraining(lambda step: case.make(step, **changed), RECORDED[name].problem())
    values = training.train(0, recorded.STEPS)
    return [values[number - 1] for number in recorded.SNAPSHOTS_AFTER]


def test_every_case_with_an_original_was_recorded():
    assert set(RECORDED) >= {name for name, case in CASES.items() if case.original is not None}
    for name, one in RECORDED.items():
        arguments = recorded.argument_text(CASES[name].arguments)
        assert one.arguments == arguments, "run tests/tools/record_originals.py again"


@pytest.mark.parametrize("name", RECORDED)
def test_trajectories_of_the_originals(name):
    assert_followed(name, trained(name), RECORDED[name].snapshots)


# Tests of the bound itself: smaller differences pass, larger differences fail.


def moved(name, share):
    """Returns the recorded values plus `share` times the difference that `TOLERANCE` allows."""
    return [
        dict(
            {
                variable: value + np.float32(share * TOLERANCE * max(1.0, np.max(np.abs(value))))
                for variable, value in snapshot.items()
            },
            global_step=number,
        )
        for number, snapshot in zip(recorded.SNAPSHOTS_AFTER, RECORDED[name].snapshots)
    ]


@pytest.mark.parametrize("name", RECORDED)
def test_rounding_of_another_processor_passes_and_larger_differences_fail(name):
    if tolerance(name):
        assert_followed(name, moved(name, 0.8), RECORDED[name].snapshots)
    for share in (1.3, -1.3):
        with pytest.raises(AssertionError, match="after 1 steps"):
            assert_followed(name, moved(name, share), RECORDED[name].snapshots)


def arguments_of_the_rules():
    """Yields (name of a case, name of an argument) for each float argument except 0 and 1."""
    for name in RECORDED:
        for key, value in sorted(CASES[name].arguments.items()):
            if isinstance(value, float) and value not in (0, 1):
                yield pytest.param(name, key, id=f"{name}-{key}")


@pytest.mark.full
@pytest.mark.parametrize("name, argument", list(arguments_of_the_rules()))
def test_a_hyperparameter_that_differs_by_a_thousandth_fails(name, argument):
    changed = trained(name, **{argument: CASES[name].arguments[argument] * 0.999})
    with pytest.raises(AssertionError, match="after"):
        assert_followed(name, changed, RECORDED[name].snapshots)
