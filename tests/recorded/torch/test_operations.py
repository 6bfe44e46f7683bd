"""Tests each row of the table of operations in PyTorch."""

import pytest
import torch

from legacy_opt.recorded.torch import RecordedOptimizer
from tests.recorded import operation_records


@pytest.mark.parametrize("level", ["exact", "native", "fast"])
@operation_records.EVERY
def test_operations_have_the_bits_of_numpy(name, record, level):
    """The level "fast" must compute each, with any bits."""
    gradient, value = map(torch.from_numpy, operation_records.operands(name, record.dtype))
    parameter = torch.nn.Parameter(value.clone())
    parameter.grad = gradient
    RecordedOptimizer([("w", parameter)], record, level=level).step()
    found, expected = parameter.detach().numpy(), operation_records.in_numpy(name, record)
    assert level == "fast" or operation_records.same(found, expected)
