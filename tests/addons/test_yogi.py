"""Compares Yogi with the class of TensorFlow Addons."""

import pytest
import tensorflow_addons as tfa

import legacy_opt
from tests.addons.step_by_step import compare

ARGUMENTS = {
    "defaults": {},
    "another rate": {"learning_rate": 0.1, "beta1": 0.8, "beta2": 0.98, "epsilon": 1e-2},
    "tanh": {"activation": "tanh", "initial_accumulator_value": 0.1},
    "no m": {"beta1": 0.0},
    "l1": {"learning_rate": 0.1, "l1_regularization_strength": 0.1},
    "l2": {"learning_rate": 0.1, "l2_regularization_strength": 0.5},
    "both, no m": {
        "learning_rate": 0.1,
        "l1_regularization_strength": 0.1,
        "l2_regularization_strength": 0.5,
        "beta1": 0.0,
    },
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_bits_of_addons(name):
    compare(tfa.optimizers.Yogi, legacy_opt.YogiOptimizer, ARGUMENTS[name])
