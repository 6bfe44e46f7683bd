"""The powers of betas in v1 optimizers, such as Adam's beta1_power."""

import numpy as np


def power(beta, steps):
    """Returns the value of v1 Adam's beta1_power or beta2_power after some steps.

    Like TensorFlow, this function multiplies float32 numbers once per training step, and flushes
    denormals to 0.

    Args:
      beta: Adam's beta, which is the power's value before the first training step.
      steps: the number of training steps done.
    """
    factor, smallest = np.float32(beta), np.finfo(np.float32).tiny
    result = factor
    for _ in range(steps):
        previous, result = result, result * factor
        if result < smallest:
            return np.float32(0)
        if result == previous:
            break
    return result
