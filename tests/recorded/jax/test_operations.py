"""Tests each row of the table of operations in JAX."""

import jax
import numpy as np
import pytest

from legacy_opt.recorded.jax import JaxOptimizer
from tests.recorded import operation_records


@pytest.mark.parametrize("level", ["exact", "native", "fast"])
@operation_records.EVERY
def test_compiled_operations_have_the_bits_of_numpy(name, record, level):
    """The level "fast" must compute each, with any bits."""
    gradient, value = operation_records.operands(name, record.dtype)
    optimizer, params = JaxOptimizer(record, level), {"w": value}
    step, state = jax.jit(optimizer.step), optimizer.init(params)
    found = np.asarray(step(params, state, {"w": gradient})[0]["w"])
    expected = operation_records.in_numpy(name, record)
    assert level == "fast" or operation_records.same(found, expected)
