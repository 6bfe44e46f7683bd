"""The powers of betas in v1 optimizers, such as Adam's beta1_power."""

from __future__ import annotations

from typing import Union

import numpy as np


def power(beta: float, steps: Union[int, np.ndarray]) -> np.ndarray:
    """Returns the value of v1 Adam's beta1_power or beta2_power after some training steps.

    Before the first step, the value is `beta`. Like TensorFlow, this function multiplies float32
    numbers once per step, and flushes denormals to 0.
    """
    factor = np.float32(beta)
    smallest = np.finfo(np.float32).tiny
    result = factor
    for _ in range(steps):
        previous = result
        result = previous * factor
        if result < smallest:
            return np.float32(0)
        if result == previous:  # then all later products are equal, too
            break
    return result
