"""Compares ConditionalGradientOptimizer with ConditionalGradient of TensorFlow Addons.

With the Frobenius norm, Addons computes `reduce_sum(g**2) ** 0.5`, and ours the square root, which
may round differently.
"""

import numpy as np
import pytest
import tensorflow_addons as tfa

import legacy_opt
from tests.addons import follows
from tests.support import problems


@pytest.mark.parametrize("kind", ["dense", "sparse", "duplicates"])
@pytest.mark.parametrize("ord", ["fro", "nuclear"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values_and_checkpoints(dtype, ord, kind, tmp_path):
    problem = problems.make(kind, dtype)
    if ord == "nuclear" and kind != "dense":  # the nuclear norm needs at most two axes
        del problem.values["cube"]
        problem = problem._replace(
            gradients=[{key: step[key] for key in problem.values} for step in problem.gradients]
        )
    arguments = {"learning_rate": 0.9, "lambda_": 3.0, "epsilon": 0.01, "ord": ord}
    theirs = tfa.optimizers.ConditionalGradient(**arguments)
    states, ours, restored = follows.addons_and_ours(
        problem, theirs, lambda: legacy_opt.ConditionalGradientOptimizer(**arguments), tmp_path
    )
    for state in states:  # Addons never writes its slot
        for key in [key for key in state if key[1] == "conditional_gradient"]:
            assert not state.pop(key).any()
    if ord == "nuclear":
        np.testing.assert_equal(ours, states)
        np.testing.assert_equal(restored, states[len(states) // 2 :])
    else:
        assert follows.largest_ulps(ours, states) <= 2
        assert follows.largest_ulps(restored, states[len(states) // 2 :]) <= 2
