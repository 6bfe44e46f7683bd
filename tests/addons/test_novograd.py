"""Compares NovoGrad with the class of TensorFlow Addons."""

import pytest
import tensorflow_addons as tfa

import legacy_opt
from tests.addons.step_by_step import compare

ARGUMENTS = {
    "defaults": {},
    "weight decay": {"learning_rate": 0.1, "weight_decay": 0.01, "epsilon": 1e-3},
    "grad averaging": {"grad_averaging": True, "weight_decay": 0.01, "beta_1": 0.8},
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_bits_of_addons(name):
    compare(tfa.optimizers.NovoGrad, legacy_opt.NovoGradOptimizer, ARGUMENTS[name])


def test_bits_of_addons_with_amsgrad():
    # With a sparse gradient, Addons divides rows by the whole slot vhat, which is an error.
    arguments = {"amsgrad": True, "beta_2": 0.5}
    theirs, ours = tfa.optimizers.NovoGrad, legacy_opt.NovoGradOptimizer
    compare(theirs, ours, arguments, dense_only=True)
