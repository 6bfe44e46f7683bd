"""Tests a training in JAX, on the lane that has JAX; tests/recorded/jax has all others."""

import numpy as np
import pytest

from legacy_opt import recorded
from legacy_opt.recorded.numpy import NumpyOptimizer, Rows


@pytest.mark.every_lane
@pytest.mark.parametrize("name", ["LazyAdamOptimizer", "MomentumOptimizer"])
def test_compiled_steps_have_the_bits_of_numpy(name):
    jax = pytest.importorskip("jax", reason="one lane has JAX")
    from legacy_opt.recorded import jax as recorded_jax

    random, record = np.random.RandomState(0), recorded.load(name)
    weights = {"table": np.ones((9, 3), np.float32), "w": np.ones(1000, np.float32)}
    params = {each: array.copy() for each, array in weights.items()}
    optimizer, reference = recorded_jax.JaxOptimizer(record), NumpyOptimizer(record, weights)
    state, step = optimizer.init(params), jax.jit(optimizer.step)
    for _ in range(5):
        w, rows = random.randn(1000).astype("f4"), random.randn(6, 3).astype("f4")
        ids = random.randint(0, 4, 6)
        reference.step({"table": Rows(ids, rows), "w": w})
        gradients = {"table": recorded_jax.Rows(ids, rows), "w": w}
        params, state = step(params, state, gradients)
    for each, array in weights.items():
        assert np.array_equal(params[each], array)
