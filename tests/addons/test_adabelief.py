"""Compares AdaBelief with the class of TensorFlow Addons."""

import pytest
import tensorflow_addons as tfa

import legacy_opt
from tests.addons.step_by_step import SHAPES, compare

ARGUMENTS = {
    "defaults": {},
    "not rectified": {"learning_rate": 0.1, "beta_1": 0.8, "beta_2": 0.98, "rectify": False},
    "weight decay and warmup": {
        "weight_decay": 0.01,
        "total_steps": 30,
        "warmup_proportion": 0.4,
        "min_lr": 1e-4,
    },
    "amsgrad and threshold": {
        "amsgrad": True,
        "beta_2": 0.9,
        "epsilon": 1e-3,
        "sma_threshold": 12.0,
    },
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_bits_of_addons(name):
    # Grappler regroups the sum of three terms in the new v.
    theirs, ours = tfa.optimizers.AdaBelief, legacy_opt.AdaBeliefOptimizer
    compare(theirs, ours, ARGUMENTS[name], regrouped=SHAPES)
