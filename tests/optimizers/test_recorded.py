"""Ours follow the trajectories of the originals that were recorded on TensorFlow 1.15.

They were recorded on another processor, and no two of these have to round alike, with the same
TensorFlow: its square roots take the processor's approximation, its matrix products the widest
instructions that there are. Bits are compared within one TensorFlow on one processor, with an
original that runs beside ours: tests/contrib/test_contrib.py, test_bert_original.py. Here is a
bound.
"""

import numpy as np
import pytest

from legacy_opt import versions
from tests.support import recorded
from tests.support.cases import CASES
from tests.support.fed_training import FedTraining

RECORDED = recorded.load()
# How far all variables may be off after 24 steps, in terms of the largest element of each (or 1).
# Measured on TensorFlow 1.15 between two processors: the originals and ours are off by the same, up
# to 1.3e-7 (Adagrad); Adafactor, which multiplies in another order than its original, by 1.8e-7.
# Between TensorFlows: up to 2.4e-7 from 1.15 to 2.21.
TOLERANCE = 1e-6
# What only adds, multiplies, divides and compares, as IEEE 754 says, so that TensorFlow 1.15, which
# fuses none of it, computes the same bits everywhere.
ON_EVERY_PROCESSOR = ("AdaMax", "AddSign", "MomentumW use_nesterov")


def tolerance(name):
    return 0 if versions.has_contrib() and name in ON_EVERY_PROCESSOR else TOLERANCE


def assert_followed(name, moments, expected):
    """Asserts that the variables at each of `recorded.MOMENTS` are near enough those recorded."""
    for number, values, wanted in zip(recorded.MOMENTS, moments, expected):
        assert set(values) == set(wanted) | {"global_step"}
        for variable, value in wanted.items():
            actual = values[variable]
            assert actual.dtype == value.dtype and actual.shape == value.shape, variable
            gap = np.max(np.abs(actual.astype("d") - value))
            bound = tolerance(name) * max(1.0, np.max(np.abs(value)))
            assert gap <= bound, f"{variable} after {number} steps: {gap:g}"


def trained(name, **changed):
    """Returns all variables at each of `recorded.MOMENTS`."""
    case = CASES[name]
    training = FedTraining(lambda step: case.make(step, **changed), RECORDED[name].problem())
    values = training.train(0, recorded.STEPS)
    return [values[number - 1] for number in recorded.MOMENTS]


def test_every_case_with_an_original_was_recorded():
    assert set(RECORDED) >= {name for name, case in CASES.items() if case.original is not None}
    for name, one in RECORDED.items():
        arguments = recorded.plain(CASES[name].arguments)
        assert one.arguments == arguments, "record anew: tests/tools/record_originals.py"


@pytest.mark.parametrize("name", RECORDED)
def test_ours_goes_where_the_original_went(name):
    assert_followed(name, trained(name), RECORDED[name].moments)


# What the bound lets through, and what it does not.


def moved(name, share):
    """Returns the recorded values, each moved by a share of its bound, and a step."""
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
def test_another_processors_rounding_is_no_error_and_more_is(name):
    if tolerance(name):
        assert_followed(name, moved(name, 0.8), RECORDED[name].moments)
    for share in (1.3, -1.3):
        with pytest.raises(AssertionError, match="after 1 steps"):
            assert_followed(name, moved(name, share), RECORDED[name].moments)


def arguments_of_the_rules():
    """Yields each case with each of its numbers that the rule computes with; daily, one of them."""
    for name in RECORDED:
        marks = ()
        for key, value in sorted(CASES[name].arguments.items()):
            if isinstance(value, float) and value not in (0, 1):
                yield pytest.param(name, key, id=f"{name}-{key}", marks=marks)
                marks = pytest.mark.full


@pytest.mark.parametrize("name, argument", list(arguments_of_the_rules()))
def test_a_number_that_is_off_by_a_thousandth_is_noticed(name, argument):
    changed = trained(name, **{argument: CASES[name].arguments[argument] * 0.999})
    with pytest.raises(AssertionError, match="after"):
        assert_followed(name, changed, RECORDED[name].moments)
