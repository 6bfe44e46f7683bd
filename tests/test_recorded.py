"""Ours follow the trajectories of the originals that were recorded on TensorFlow 1.15."""

import numpy as np
import pytest

from legacy_opt import versions
from tests import recorded
from tests.cases import CASES
from tests.fed_training import FedTraining

RECORDED = recorded.load()
# How far all variables may be off after 24 steps, in terms of the largest element of each (or 1).
# Other versions of TensorFlow compute the same kernels with other instructions: stock Adagrad
# differs by 2.4e-7 between 1.15 and 2.4, Adam and Ftrl by up to 7e-7 until 2.15.
TOLERANCE = 1e-6
# What multiplies in another order than its original, so that all ways of running give equal bits.
REORDERED = ("Adafactor", "Adafactor factored=False", "Adafactor learning_rate, beta1")


def test_every_case_with_an_original_was_recorded():
    assert set(RECORDED) >= {name for name, case in CASES.items() if case.original is not None}
    for name, one in RECORDED.items():
        arguments = recorded.plain(CASES[name].arguments)
        assert one.arguments == arguments, "record anew: tests/record_originals.py"


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("name", RECORDED)
def test_ours_goes_where_the_original_went(name):
    one = RECORDED[name]
    training = FedTraining(CASES[name].make, one.problem())
    values = training.train(0, recorded.STEPS)
    exact = versions.has_contrib() and name not in REORDERED
    tolerance = 0 if exact else TOLERANCE
    for number, expected in zip(recorded.MOMENTS, one.moments):
        assert set(values[number - 1]) == set(expected) | {"global_step"}
        for variable, value in expected.items():
            actual = values[number - 1][variable]
            assert actual.dtype == value.dtype and actual.shape == value.shape, variable
            gap = np.max(np.abs(actual.astype("d") - value))
            bound = tolerance * max(1.0, np.max(np.abs(value)))
            assert gap <= bound, "%s after %d steps: %g" % (variable, number, gap)
