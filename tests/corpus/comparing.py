"""Compares states with those of the corpus."""

import numpy as np
import tensorflow as tf

from tests.support.corpus import files

# The largest difference after one step on another TensorFlow or processor, in units of the float's
# precision at the array's largest value. Between TensorFlows on one processor, up to 1 was measured
# (Adadelta's and Nadam's roots, and Shampoo's matrices). Other processors round sums of products
# and roots in other orders; a lost or doubled state would be thousands of units away.
UNITS = 8


def assert_same(found, expected, what):
    """Asserts that two states have the same bits."""
    assert found.keys() == expected.keys(), (what, found.keys() ^ expected.keys())
    wrong = [name for name, value in expected.items() if not same(found[name], value)]
    assert not wrong, (what, wrong)


def same(one, another):
    one, another = np.asarray(one), np.asarray(another)
    alike = (one.dtype, one.shape) == (another.dtype, another.shape)
    return alike and one.tobytes() == another.tobytes()


def assert_next(found, expected, version, what):
    """Asserts that a step leads to the recorded state.

    On the TensorFlow and the kind of processor that have recorded it, the bits are the same. Others
    round differently: by up to `UNITS`.
    """
    if (version.name, version.made["processor"]) == (tf.__version__, files.processor()):
        assert_same(found, expected, what)
        return
    assert found.keys() == expected.keys(), (what, found.keys() ^ expected.keys())
    far = {name: units for name, units in differences(found, expected) if not units <= UNITS}
    assert not far, (what, far)


def differences(found, expected):
    """Yields pairs (name, difference in units); infinity if shapes or integers differ."""
    for name, value in expected.items():
        other = np.asarray(found[name])
        if (other.dtype, other.shape) != (value.dtype, value.shape):
            yield name, np.inf
        elif value.dtype.kind != "f" or not value.size:
            yield name, 0.0 if same(other, value) else np.inf
        else:
            difference = np.max(np.abs(other.astype("float64") - value))
            unit = np.finfo(value.dtype).eps * np.max(np.abs(value))
            yield name, difference / unit if difference else 0.0
