"""Tests ids of small integers and first steps in JAX, on the lane that has JAX."""

import numpy as np
import pytest

from legacy_opt import recorded
from legacy_opt.recorded.numpy import NumpyOptimizer
from legacy_opt.recorded.numpy import Rows as NumpyRows

pytestmark = pytest.mark.every_lane


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16"])
def test_small_ids_of_a_large_table(dtype):
    jax = pytest.importorskip("jax", reason="one lane has JAX")
    from legacy_opt.recorded.jax import JaxOptimizer, Rows

    record, values = recorded.load("MomentumOptimizer"), np.ones((4, 2), np.float32)
    weights = {"w": np.ones((70000, 2), np.float32)}
    ids, table = np.array([3, 100, 3, np.iinfo(dtype).max]), weights["w"].copy()
    NumpyOptimizer(record, weights).step({"w": NumpyRows(ids, values)})
    padding = [-1] if dtype.startswith("int") else []
    rows = Rows(jax.numpy.array([*ids, *padding], dtype), np.ones((4 + len(padding), 2), "f4"))
    optimizer = JaxOptimizer(record)
    found, _ = optimizer.step({"w": table}, optimizer.init({"w": table}), {"w": rows})
    assert np.array_equal(found["w"], weights["w"])


@pytest.mark.parametrize("name", ["MomentumOptimizer", "LazyAdamOptimizer"])
def test_a_first_step_in_the_function_that_makes_the_state(name):
    jax = pytest.importorskip("jax", reason="one lane has JAX")
    from legacy_opt.recorded.jax import JaxOptimizer

    draw, record = np.random.RandomState(0), recorded.load(name)
    gradients = draw.randn(3, 999).astype("f4")
    weights, w = {"w": np.ones(999, "f4")}, np.ones(999, "f4")
    optimizer, reference = JaxOptimizer(record), NumpyOptimizer(record, weights)

    @jax.jit
    def train(w, gradients):
        state = optimizer.init(w)
        for each in gradients:
            w, state = optimizer.step(w, state, each)
        return w

    for each in gradients:
        reference.step({"w": each})
    assert np.array_equal(train(w, gradients), weights["w"])
