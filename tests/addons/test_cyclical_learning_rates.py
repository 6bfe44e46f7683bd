"""Compares the cyclical learning rates with those of Addons."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_addons as tfa

import legacy_opt

SCHEDULES = {
    "TriangularCyclicalLearningRate": {},
    "Triangular2CyclicalLearningRate": {},
    "ExponentialCyclicalLearningRate": {"gamma": 0.9995},
    "CyclicalLearningRate": {"scale_fn": lambda cycle: 1 / cycle},
}


@pytest.mark.parametrize("size", [7, 333, 2000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", SCHEDULES)
def test_rates_have_the_bits_of_addons(name, dtype, size):
    arguments = dict(SCHEDULES[name], step_size=size)
    theirs, ours = (
        getattr(home, name)(dtype(1e-4), dtype(1e-2), **arguments)
        for home in (tfa.optimizers, legacy_opt)
    )
    # Keras casts the step to the dtype of the variables. The power of a NumPy array is NumPy's.
    expected = theirs(tf.range(10001, dtype=dtype)).numpy()
    assert expected.dtype == dtype and len(np.unique(expected)) > 2
    np.testing.assert_array_equal(ours(tf.range(10001)).numpy(), expected)


@pytest.mark.parametrize("name", [name for name in SCHEDULES if name != "CyclicalLearningRate"])
def test_arguments_are_those_of_addons(name):
    theirs = getattr(tfa.optimizers, name)(1e-4, 1e-2, 2000)
    ours = getattr(legacy_opt, name)(1e-4, 1e-2, 2000)
    assert {**ours.get_config(), **theirs.get_config()} == ours.get_config()
    assert ours.name == theirs.name
    assert getattr(legacy_opt, name)(**theirs.get_config()).get_config() == ours.get_config()
