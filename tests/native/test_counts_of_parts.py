"""Tests native kernels of AdagradDecay for partitioned variables."""

import numpy as np
import pytest

from legacy_opt.core.user_warnings import NativeKernelWarning, RepartitionWarning
from legacy_opt.programs.program import UnsupportedError
from tests.native.training import is_native
from tests.support.decays import InNumpy, InSession

pytestmark = pytest.mark.filterwarnings(
    "ignore::legacy_opt.core.user_warnings.NativeKernelWarning",
    "ignore::legacy_opt.RepartitionWarning",
)


@pytest.mark.parametrize("use_resource", [False, True])
@pytest.mark.parametrize("layout", ["V1", "V2"])
def test_counts_with_kernels_for_sparse_gradients(layout, use_resource, fresh):
    """There are kernels for sparse gradients; dense gradients run by TensorFlow's operations."""
    kinds = "dddddssssdds"
    expected, counts = InNumpy().train(kinds).state()
    for parts in (0, 3):
        training = InSession(layout, parts, use_resource, native="auto").train(kinds)
        np.testing.assert_array_equal(training.state()[1], counts)
        np.testing.assert_allclose(training.state()[0], expected, rtol=1e-5, atol=1e-6)
    assert is_native({each.type for each in training.graph.get_operations()})


def test_require(fresh):
    with pytest.raises(UnsupportedError, match="for a partition with a dense gradient"):
        InSession("V2", 3, native="require", kinds="d")
    training = InSession("V2", 3, native="require", kinds="s").train("sssssss")
    np.testing.assert_array_equal(training.state()[1], InNumpy().train("sssssss").state()[1])


def test_warnings(fresh):
    with pytest.warns(NativeKernelWarning, match="for a partition with a dense gradient"):
        InSession("V2", 3, native="auto", kinds="d")
    with pytest.warns(RepartitionWarning, match="AdagradDecayOptimizerV2 computes the same"):
        InSession("V1", 3, native="require", kinds="s")
