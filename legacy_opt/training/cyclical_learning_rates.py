"""Learning rates that rise and fall in cycles, for v1 optimizers and, by `to_keras`, for Keras.

The learning rate at the step t, where a cycle has ``2 * step_size`` steps::

    cycle = floor(1 + t / (2 * step_size))
    x = |t / step_size - 2 * cycle + 1|
    rate = initial + (maximal - initial) * max(0, 1 - x) * scale_fn(cycle or t)

Source: Smith, "Cyclical Learning Rates for Training Neural Networks"
(https://arxiv.org/abs/1506.01186). The constructors and results are those of `tfa.optimizers`.
"""

from __future__ import annotations

import inspect
import numbers
from typing import Any, Callable, Dict, Optional

import tensorflow as tf

from legacy_opt.core import argument_checks
from legacy_opt.core.global_step import find_global_step
from legacy_opt.core.types import Tensor, TensorLike


class CyclicalLearningRate:
    """A learning rate that rises and falls linearly (Smith 2017).

    Pass the object as the learning rate of a v1 optimizer. It reads the global step. In Keras, it
    reads `iterations`: `compat.to_keras` converts it with its optimizer, or alone for Keras' own
    optimizers. Keras saves only the subclasses, because `scale_fn` is a function.

    Example::

        rate = legacy_opt.CyclicalLearningRate(0.0, 1.0, step_size=2, scale_fn=lambda cycle: 0.5)
        print(rate(2).numpy(), rate(4).numpy())  # 0.5 0.0

    Args:
      initial_learning_rate: the lowest learning rate, a number or a float32 or float64 scalar
        tensor. Its dtype is that of the result; a Python number is float32.
      maximal_learning_rate: the learning rate in the middle of a cycle, before it is scaled.
      step_size: half the number of steps in a cycle, above 0.
      scale_fn: a function of the cycle's number (from 1) or of the step (from 0), a tensor of the
        result's dtype. It returns the factor of the cycle's height.
      scale_mode: the argument of `scale_fn`, "cycle" or "iterations".
      name: the name of the operations; None means that of the class.

    Raises:
      TypeError: an argument has the wrong type.
      ValueError: a number is NaN, infinite or out of range, or `scale_mode` is another string.
    """

    def __init__(
        self,
        initial_learning_rate: TensorLike,
        maximal_learning_rate: TensorLike,
        step_size: TensorLike,
        scale_fn: Callable[[Any], TensorLike],
        scale_mode: str = "cycle",
        name: Optional[str] = None,
    ) -> None:
        if not argument_checks.is_function(scale_fn):
            raise TypeError(f"scale_fn must be a function of one argument, got {scale_fn!r}.")
        if scale_mode not in ("cycle", "iterations"):
            raise ValueError(f"scale_mode must be 'cycle' or 'iterations', got {scale_mode!r}.")
        self.initial_learning_rate = _number("initial_learning_rate", initial_learning_rate)
        self.maximal_learning_rate = _number("maximal_learning_rate", maximal_learning_rate)
        self.step_size = _number("step_size", step_size, argument_checks.positive_hyperparameter)
        self.scale_fn, self.scale_mode = scale_fn, scale_mode
        self.name = argument_checks.text("name", type(self).__name__ if name is None else name)

    def __call__(self, step: Optional[TensorLike] = None) -> Tensor:
        """Returns the learning rate of a step. Without a `step`, reads the global step.

        Raises:
          RuntimeError: there is neither a `step` nor a global step.
        """
        step = find_global_step() if step is None else step
        if step is None:
            raise RuntimeError(
                f"{self.name} needs a global step. Create one with "
                "tf.compat.v1.train.get_or_create_global_step(), and pass it to minimize(). For an "
                "optimizer of Keras, convert the schedule with legacy_opt.compat.to_keras."
            )
        with tf.name_scope(self.name):
            dtype = tf.convert_to_tensor(self.initial_learning_rate).dtype
            t = tf.cast(step, dtype)
            given = self.initial_learning_rate, self.maximal_learning_rate, self.step_size
            # A Session regroups operations with constants, which changes the last bits. The maximum
            # of a number and -t is the number, but it is not a constant.
            initial, maximal, size, one = (tf.maximum(tf.cast(x, dtype), -t) for x in (*given, 1))
            cycle = tf.floor(one + t / (2 * size))
            x = tf.abs(t / size - 2 * cycle + one)
            scale = self.scale_fn(cycle if self.scale_mode == "cycle" else t)
            return initial + (maximal - initial) * tf.maximum(tf.zeros_like(x), one - x) * scale

    def get_config(self) -> Dict[str, Any]:
        """Returns a dict of the constructor's arguments; raises a ValueError for a `scale_fn`."""
        names = list(inspect.signature(type(self).__init__).parameters)[1:]
        if "scale_fn" in names:
            raise ValueError(
                f"{self.name} cannot be saved, because its scale_fn is a function. Save a "
                "TriangularCyclicalLearningRate, Triangular2… or Exponential… of legacy_opt."
            )
        return {name: getattr(self, name) for name in names}


class TriangularCyclicalLearningRate(CyclicalLearningRate):
    """A `CyclicalLearningRate`, see there, whose cycles all have the same height.

    Example::

        rate = legacy_opt.TriangularCyclicalLearningRate(0.0, 1.0, step_size=2)
        print(rate(2).numpy(), rate(6).numpy())  # 1.0 1.0
    """

    def __init__(
        self,
        initial_learning_rate: TensorLike,
        maximal_learning_rate: TensorLike,
        step_size: TensorLike,
        scale_mode: str = "cycle",
        name: Optional[str] = None,
    ) -> None:
        bounds = initial_learning_rate, maximal_learning_rate, step_size
        super().__init__(*bounds, self._scale, scale_mode, name)

    def _scale(self, _: Tensor) -> TensorLike:
        return 1.0


class Triangular2CyclicalLearningRate(TriangularCyclicalLearningRate):
    """A `CyclicalLearningRate`, see there; each cycle has half the height of the one before.

    Example::

        rate = legacy_opt.Triangular2CyclicalLearningRate(0.0, 1.0, step_size=2)
        print(rate(2).numpy(), rate(6).numpy())  # 1.0 0.5
    """

    def _scale(self, cycle: Tensor) -> TensorLike:
        return 1 / (2.0 ** (cycle - 1))


class ExponentialCyclicalLearningRate(CyclicalLearningRate):
    """A `CyclicalLearningRate`, see there; `gamma` to the power of the step scales its height.

    Example::

        rate = legacy_opt.ExponentialCyclicalLearningRate(0.0, 1.0, step_size=2, gamma=0.5)
        print(rate(2).numpy(), rate(4).numpy())  # 0.25 0.0
    """

    def __init__(
        self,
        initial_learning_rate: TensorLike,
        maximal_learning_rate: TensorLike,
        step_size: TensorLike,
        scale_mode: str = "iterations",
        gamma: TensorLike = 1.0,
        name: Optional[str] = None,
    ) -> None:
        self.gamma = _number("gamma", gamma)
        bounds = initial_learning_rate, maximal_learning_rate, step_size
        super().__init__(*bounds, self._scale, scale_mode, name)

    def _scale(self, step: Tensor) -> Tensor:
        gamma = tf.cast(self.gamma, step.dtype) if tf.is_tensor(self.gamma) else self.gamma
        return gamma**step


def _number(name: str, value: TensorLike, check: Any = argument_checks.not_negative) -> TensorLike:
    """Returns a tensor or a number that passes the check; an integer becomes a float."""
    if argument_checks.is_function(value):
        raise TypeError(f"{name} must be a number or a scalar tensor, got {value!r}.")
    check(name, value)
    return float(value) if isinstance(value, numbers.Integral) else value
