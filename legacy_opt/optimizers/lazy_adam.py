"""LazyAdam: Adam that leaves alone, for sparse gradients, what they do not touch.

    m = beta1 * m + (1 - beta1) * g                     of touched rows
    v = beta2 * v + (1 - beta2) * g**2                  of touched rows
    w -= learning_rate * sqrt(1 - beta2**t) / (1 - beta1**t) * m / (sqrt(v) + epsilon)

Source: `tf.contrib.opt.LazyAdamOptimizer` of TensorFlow 1.15.
"""

from __future__ import annotations

from legacy_opt.optimizers.adam_base import AdamBase


class LazyAdamOptimizer(AdamBase):
    """Adam with sparse updates that cost what the touched rows cost (tf.contrib.opt).

    Dense gradients are updated as by `tf.compat.v1.train.AdamOptimizer`, bit for bit. For sparse
    ones that optimizer moves every row of the table in every step; this one only the touched rows
    and their moments. The powers of beta count all steps, also those in which a row was not
    touched.

    Slots, in this order, both under the optimizer's name (`w/Adam`, `w/Adam_1`): `m` and `v`, of
    the variable's shape and dtype, starting at zero. All variables share `beta1_power` and
    `beta2_power`, float32 scalars that start at `beta1` and `beta2`. These are the variables of
    `tf.compat.v1.train.AdamOptimizer`, so either goes on from the other's checkpoints.

    Args:
      learning_rate: a number, scalar tensor, variable, or callable that returns one; so are
        `beta1`, `beta2` and `epsilon`.
      beta1: how much of `m` stays, from 0 to below 1.
      beta2: how much of `v` stays, from 0 to below 1.
      epsilon: what is added to the root of `v`, not negative ("epsilon hat" in the paper). For
        float16 variables give 1e-4 or more: the default is 0 there, and 0 / 0 is NaN.
      use_locking: whether TensorFlow's Adam kernel holds the variables' locks while it writes;
        sparse updates take none.
      name: the name of the optimizer and its slots.

    Raises:
      TypeError: an argument has the wrong type.
      ValueError: an argument is NaN or out of its range.
    """
