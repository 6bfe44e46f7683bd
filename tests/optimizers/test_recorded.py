"""Compares our optimizers with values of the originals, recorded on TensorFlow 1.15.

Differences up to a bound are allowed, because one TensorFlow may round differently on two
processors: square roots and matrix products use instructions that depend on the processor.
tests/contrib/test_contrib.py and test_bert_original.py can compare bits, because they run both the
originals and our optimizers on one processor.
"""

import numpy as np
import pytest

from legacy_opt import versions
from tests.support import recorded
from tests.support.cases import CASES
from tests.support.fed_training import FedTraining

RECORDED = recorded.load()
# Bound of the difference, relative to the largest absolute element of each variable, or to 1 if all
# elements are smaller.
# Between two processors with TensorFlow 1.15, the originals differ by up to 1.3e-7 (Adagrad), and
# so do our optimizers. Our Adafactor differs from its original by 1.8e-7, because it multiplies in
# another order. Between TensorFlow 1.15 and 2.21, our optimizers differ by up to 2.4e-7.
TOLERANCE = 1e-6
# These optimizers use only additions, products, divisions and comparisons, whose results IEEE 754
# defines. TensorFlow 1.15 computes them separately (without fused multiply-add), so their bits are
# the same on every processor.
ON_EVERY_PROCESSOR = ("AdaMax", "AddSign", "MomentumW use_nesterov")


def tolerance(name):
    return 0 if versions.has_contrib() and name in ON_EVERY_PROCESSOR else TOLERANCE


def assert_followed(name, moments, expected):
    """Asserts that values after the steps in `recorded.MOMENTS` are close to `expected`."""
    for number, values, wanted in zip(recorded.MOMENTS, moments, expected):
        assert set(values) == set(wanted) | {"global_step"}
        for variable, value in wanted.items():
            actual = values[variable]
            assert actual.dtype == value.dtype and actual.shape == value.shape, variable
            gap = np.max(np.abs(actual.astype("d") - value))
            bound = tolerance(name) * max(1.0, np.max(np.abs(value)))
            assert gap <= bound, f"{variable} after {number} steps: {gap:g}"


def trained(name, **changed):
    """Returns all variables after each number of steps in `recorded.MOMENTS`."""
    case = CASES[name]
    training = FedTraining(lambda step: case.make(step, **changed), RECORDED[name].problem())
    values = training.train(0, recorded.STEPS)
    return [values[number - 1] for number in recorded.MOMENTS]


def test_every_case_with_an_original_was_recorded():
    assert set(RECORDED) >= {name for name, case in CASES.items() if case.original is not None}
    for name, one in RECORDED.items():
        arguments = recorded.plain(CASES[name].arguments)
        assert one.arguments == arguments, "run tests/tools/record_originals.py again"


@pytest.mark.parametrize("name", RECORDED)
def test_trajectories_of_the_originals(name):
    assert_followed(name, trained(name), RECORDED[name].moments)


# The bound itself: which differences pass, and which fail.


def moved(name, share):
    """Returns the recorded values, each moved by `share` times what `TOLERANCE` allows."""
    return [
        dict(
            {
                variable: value + np.float32(share * TOLERANCE * max(1.0, np.max(np.abs(value))))
                for variable, value in moment.items()
            },
            global_step=number,
        )
        for number, moment in zip(recorded.MOMENTS, RECORDED[name].moments)
    ]


@pytest.mark.parametrize("name", RECORDED)
def test_rounding_of_another_processor_passes_and_larger_differences_fail(name):
    if tolerance(name):
        assert_followed(name, moved(name, 0.8), RECORDED[name].moments)
    for share in (1.3, -1.3):
        with pytest.raises(AssertionError, match="after 1 steps"):
            assert_followed(name, moved(name, share), RECORDED[name].moments)


def arguments_of_the_rules():
    """Yields a case's name and an argument's name, for each float argument that is not 0 or 1.

    Only the first argument of each case runs daily.
    """
    for name in RECORDED:
        marks = ()
        for key, value in sorted(CASES[name].arguments.items()):
            if isinstance(value, float) and value not in (0, 1):
                yield pytest.param(name, key, id=f"{name}-{key}", marks=marks)
                marks = pytest.mark.full


@pytest.mark.parametrize("name, argument", list(arguments_of_the_rules()))
def test_a_hyperparameter_that_differs_by_a_thousandth_fails(name, argument):
    changed = trained(name, **{argument: CASES[name].arguments[argument] * 0.999})
    with pytest.raises(AssertionError, match="after"):
        assert_followed(name, changed, RECORDED[name].moments)
