"""A pytest mark for tests that need TensorFlow's Estimators."""

import pytest

from legacy_opt import versions

needed = pytest.mark.skipif(
    versions.estimator_problem() is not None, reason="tensorflow-estimator is not installed"
)
