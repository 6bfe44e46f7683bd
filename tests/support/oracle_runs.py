"""Runs NumPy references (oracles) and compares optimizers with them."""

import numpy as np
import pytest

from tests.support import running
from tests.support.cases import CASES


def refuses(name, problem, way, make):
    """Returns whether a case cannot train the problem's dtype; checks the error if so."""
    if problem.dtype in CASES[name].dtypes:
        return False
    # In a tf.function, AutoGraph raises an error of its own with the same message.
    with pytest.raises(Exception, match=f"cannot train variable .* of dtype {problem.dtype}"):
        running.WAYS[way](problem, make)
    return True


def run_oracles(name, problem):
    """Runs a case's oracle for each variable; does not update empty variables.

    Returns:
      The values of all variables after each step, and the final slots.
    """
    oracles = {key: CASES[name].oracle(value, key) for key, value in problem.values.items()}
    values = []
    for step, gradients in enumerate(problem.gradients):
        for key, oracle in oracles.items():
            if oracle.value.size:
                oracle.apply(gradients[key], step)
        values.append({key: oracle.value.copy() for key, oracle in oracles.items()})
    slots = {
        (key, slot): value
        for key, oracle in oracles.items()
        for slot, value in oracle.slots.items()
    }
    return values, slots


def assert_close(trace, values, slots, ulps, dtype):
    """Asserts that a trace is close to the values and slots of oracles.

    The allowed difference grows by `ulps` units in the last place with each training step. Integer
    slots must be equal.
    """
    eps = float(np.finfo(dtype).eps)
    for number, (actual, wanted) in enumerate(zip(trace.steps, values)):
        for key in wanted:
            bound = ulps * eps * (number + 1) * max(1.0, np.abs(wanted[key]).max(initial=0))
            gap = np.abs(actual[key].astype(np.float64) - wanted[key]).max(initial=0)
            assert gap <= bound, f"{key} after step {number}: {gap:g} > {bound:g}"
    assert set(trace.slots) == set(slots)
    for key, wanted in slots.items():
        assert trace.slots[key].dtype == wanted.dtype and trace.slots[key].shape == wanted.shape
        if np.issubdtype(wanted.dtype, np.integer):
            np.testing.assert_array_equal(trace.slots[key], wanted, err_msg=str(key))
        else:
            scale = max(1.0, np.abs(wanted).max(initial=0))
            gap = np.abs(trace.slots[key].astype(np.float64) - wanted).max(initial=0)
            assert gap <= ulps * eps * len(values) * scale, (key, gap)
