"""Optimizers and learning rate decays for tests of configs saved by Keras 2 or Keras 3."""

import textwrap

import numpy as np
import pytest
import tensorflow as tf

from tests.support.processes import programs

v1 = tf.compat.v1.train

EVERY_DECAY = pytest.mark.parametrize(
    "decay",
    [
        lambda step: v1.exponential_decay(0.5, step, 1, 0.5),
        lambda step: v1.piecewise_constant(step, [2, 4], [0.5, 0.25, 0.125]),
        lambda step: v1.polynomial_decay(0.5, step, 5, power=2.0),
        lambda step: v1.inverse_time_decay(0.5, step, 2, 0.5),
    ],
    ids=["exponential", "piecewise", "polynomial", "inverse time"],
)


class KeepsElsewhere(v1.GradientDescentOptimizer):
    """Does not keep its argument `factor` in an attribute."""

    def __init__(self, learning_rate, factor):
        super().__init__(learning_rate * factor)


class HoldsAFunction(v1.GradientDescentOptimizer):
    """Has an argument that is a function."""

    def __init__(self, learning_rate, function):
        super().__init__(learning_rate, name="HoldsAFunction")
        self._function = function


class Configured(v1.GradientDescentOptimizer):
    """Defines get_config and from_config."""

    def __init__(self, learning_rate, options):
        super().__init__(learning_rate, name="Configured")
        self._factor = options["factor"]

    def get_config(self):
        return {"learning_rate": self._learning_rate, "factor": np.float32(self._factor)}

    @classmethod
    def from_config(cls, config):
        return cls(config["learning_rate"], {"factor": config["factor"]})

    def _resource_apply_dense(self, grad, handle):
        return super()._resource_apply_dense(grad * self._factor, handle)


def run_python(code, *arguments):
    result = programs.run("-c", "import sys\n" + textwrap.dedent(code), *arguments, seconds=120)
    assert result.returncode == 0, result.stderr[-2000:]
    return result.stdout
