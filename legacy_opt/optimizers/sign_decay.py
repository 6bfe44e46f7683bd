"""Sign decays: functions of the global step for the factor ``d(t)`` in AddSign and PowerSign.

The decays at step t, where ``t = min(global_step, decay_steps)``::

    linear:   max(0, 1 - t / decay_steps)
    cosine:   (1 + cos(2 * pi * num_periods * t / decay_steps)) / 2
    restart:  (1 + cos(pi * ((num_periods * t) mod decay_steps) / decay_steps)) / 2

Source: Bello et al., "Neural Optimizer Search with Reinforcement Learning"
(https://arxiv.org/abs/1709.07417). The functions return the same bits as TensorFlow 1's
`tf.contrib.opt.python.training.sign_decay` in a Session.

A Session optimizes the graph: it multiplies by 1 / decay_steps instead of dividing by decay_steps,
and combines constant factors. Eager execution does not. Therefore this module computes the
reciprocal and combines the constants in Python, in float32. As a result, Sessions, `tf.function`
and eager execution return the same bits.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Optional

import numpy as np
import tensorflow as tf

from legacy_opt.core import argument_checks
from legacy_opt.core.serializable_functions import StepFunction
from legacy_opt.core.types import DecayFunction, Tensor, TensorLike


def get_linear_decay_fn(decay_steps: int) -> DecayFunction:
    """Returns a function of the global step that decreases linearly from 1 to 0.

    Args:
      decay_steps: the number of steps after which the result is 0, a positive integer.

    Returns:
      A function from an int32 or int64 step (tensor, variable or number) to a float32 scalar. The
      function raises a ValueError if the step is None.

    Raises:
      TypeError: decay_steps is not an integer.
      ValueError: decay_steps is not positive, or does not fit into int64.
    """
    return _LinearDecay(decay_steps=decay_steps)


def get_cosine_decay_fn(
    decay_steps: int, num_periods: float = 0.5, zero_after: Optional[float] = None
) -> DecayFunction:
    """Returns a function of the global step that starts at 1 and follows a cosine.

    Args:
      decay_steps: the number of steps after which the result is constant, a positive integer.
      num_periods: the periods of the cosine in `decay_steps` steps. With 0.5 the last value is 0.
      zero_after: the number of periods after which the result is 0, or None.

    Returns:
      A function of the step, see `get_linear_decay_fn`.

    Raises:
      TypeError: an argument has the wrong type.
      ValueError: decay_steps is not positive or does not fit into int64, or a number is NaN or
        infinite.
    """
    return _CosineDecay(decay_steps, num_periods, zero_after)


def get_restart_decay_fn(
    decay_steps: int, num_periods: float = 1, zero_after: Optional[float] = None
) -> DecayFunction:
    """Returns a function of the global step that decreases from 1 to 0 and restarts at 1.

    Args:
      decay_steps: the number of steps after which the result is constant, a positive integer. If
        `num_periods` is whole, the constant is 1: another decrease starts at the last step.
      num_periods: the number of decreases in `decay_steps` steps, each half a period of a cosine.
      zero_after: the number of decreases after which the result is 0, or None.

    Returns:
      A function of the step, see `get_linear_decay_fn`.

    Raises:
      TypeError, ValueError: see `get_cosine_decay_fn`.
    """
    return _RestartDecay(decay_steps, num_periods, zero_after)


class _Decay(StepFunction):
    """Base class: `value_at` of a subclass returns the decay at a step up to `decay_steps`."""

    def __init__(self, decay_steps: int) -> None:
        self.decay_steps = argument_checks.positive_integer("decay_steps", decay_steps)
        if self.decay_steps > tf.int64.max:
            raise ValueError(f"decay_steps must be an int64, got {decay_steps!r}.")

    def __call__(self, global_step: Optional[TensorLike]) -> Tensor:
        if global_step is None:
            raise ValueError(
                f"The {self.kind} decay needs a global_step, got None: pass global_step=… to "
                "minimize() or apply_gradients()."
            )
        step = tf.convert_to_tensor(global_step)
        if step.dtype.is_integer:
            step = tf.cast(step, tf.int64)  # decay_steps may not fit into int32
        return self.value_at(tf.minimum(step, self.decay_steps))

    @property
    def reciprocal_steps(self) -> np.float32:
        """1 / decay_steps, in float32."""
        return np.float32(1) / np.float32(self.decay_steps)


class _LinearDecay(_Decay):
    kind = "linear"
    public_name = "get_linear_decay_fn"

    def value_at(self, step: Tensor) -> Tensor:
        if step.dtype.is_floating:
            step = tf.cast(step, tf.int64)  # tf.contrib subtracts integers
        return tf.cast(self.decay_steps - step, tf.float32) * self.reciprocal_steps


class _PeriodicDecay(_Decay):
    def __init__(
        self, decay_steps: int, num_periods: float, zero_after: Optional[float] = None
    ) -> None:
        super().__init__(decay_steps)
        self.num_periods = argument_checks.number("num_periods", num_periods)
        self.zero_after = zero_after
        if zero_after is not None:
            self.zero_after = argument_checks.number("zero_after", zero_after)


class _CosineDecay(_PeriodicDecay):
    kind = "cosine"
    public_name = "get_cosine_decay_fn"

    def value_at(self, step: Tensor) -> Tensor:
        step = tf.cast(step, tf.float32)
        pi = np.float32(math.pi)
        half_periods_per_step = np.float32(2 * self.num_periods) * self.reciprocal_steps
        if self.zero_after is None:
            return 0.5 * (1 + tf.cos(step * (pi * half_periods_per_step)))
        # Here a Session does not combine the constants, because two operations use `half_periods`.
        half_periods = step * half_periods_per_step
        decay = 0.5 * (1 + tf.cos(half_periods * pi))
        return tf.compat.v2.where(half_periods >= 2 * self.zero_after, 0.0, decay)


class _RestartDecay(_PeriodicDecay):
    kind = "restart"
    public_name = "get_restart_decay_fn"

    def value_at(self, step: Tensor) -> Tensor:
        scaled_step = tf.cast(step, tf.float32) * np.float32(self.num_periods)
        since_restart = tf.math.floormod(scaled_step, float(self.decay_steps))
        angle_per_step = np.float32(math.pi) * self.reciprocal_steps
        decay = 0.5 * (1 + tf.cos(since_restart * angle_per_step))
        if self.zero_after is None:
            return decay
        decreases = scaled_step * self.reciprocal_steps
        return tf.compat.v2.where(decreases >= self.zero_after, 0.0, decay)


DECAYS = (_LinearDecay, _CosineDecay, _RestartDecay)


def checked_sign_decay_fn(function: Any) -> Optional[Callable[[Any], Any]]:
    """Checks `sign_decay_fn`: a decay or None, and not `get_linear_decay_fn`, which creates one."""
    if function in (get_linear_decay_fn, get_cosine_decay_fn, get_restart_decay_fn):
        raise TypeError(
            f"sign_decay_fn must be a function of the global step, got {function.__name__}, "
            f"which creates one: pass sign_decay_fn={function.__name__}(decay_steps)."
        )
    if function is not None and not callable(function):
        raise TypeError(
            "sign_decay_fn must be None or a function of the global step, such as "
            f"get_linear_decay_fn(decay_steps), got {function!r}."
        )
    return function
