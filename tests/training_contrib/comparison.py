"""Compares variables trained by legacy_opt with variables trained by tf.contrib."""

import numpy as np

from tests.support import running


def assert_same(actual, expected):
    assert len(actual) == len(expected)
    for number, (one, other) in enumerate(zip(actual, expected)):
        assert list(one) == list(other)
        for name, value in other.items():
            assert np.all(np.isfinite(value)), f"not finite in tf.contrib: {name}, step {number}"
            running.assert_equal(one[name], value, f"{name} after step {number}")
