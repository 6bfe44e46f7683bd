"""AdamW and MomentumW (SGDW): Adam and Momentum with decoupled weight decay.

For each visit ``w -= weight_decay * w``, then the update of Adam or Momentum. Source:
`tf.contrib.opt`, after Loshchilov and Hutter 2019; see `decoupled_weight_decay`.
"""

from __future__ import annotations

import tensorflow as tf

from legacy_opt.core import argument_checks
from legacy_opt.core.types import Hyperparameter
from legacy_opt.optimizers.decoupled_weight_decay import DecoupledWeightDecayExtension

v1 = tf.compat.v1.train


class AdamWOptimizer(DecoupledWeightDecayExtension, v1.AdamOptimizer):
    """Adam with decoupled weight decay.

    Slots `m` and `v` (`w/AdamW`, `w/AdamW_1`) and the shared `beta1_power` and `beta2_power` are
    `tf.compat.v1.train.AdamOptimizer`'s, and so is the update after the decay. A sparse gradient
    decays the rows that it touches; Adam then moves all rows that have momentum. For float16
    variables give an epsilon of 1e-4 or more: the default is 0 there, and 0 / 0 is NaN.

    Args:
      weight_decay: see `DecoupledWeightDecayExtension`.
      learning_rate: see `tf.compat.v1.train.AdamOptimizer`, as the other arguments.
      use_locking: whether the decay and Adam's kernel hold the variables' locks.
      name: the name of the optimizer and its slots.

    Raises:
      TypeError: an argument has the wrong type.
      ValueError: an argument is NaN or out of its range.
    """

    def __init__(
        self,
        weight_decay: Hyperparameter,
        learning_rate: Hyperparameter = 0.001,
        beta1: Hyperparameter = 0.9,
        beta2: Hyperparameter = 0.999,
        epsilon: Hyperparameter = 1e-8,
        use_locking: bool = False,
        name: str = "AdamW",
    ) -> None:
        super().__init__(
            weight_decay,
            learning_rate=argument_checks.hyperparameter("learning_rate", learning_rate),
            beta1=argument_checks.decay_factor("beta1", beta1),
            beta2=argument_checks.decay_factor("beta2", beta2),
            epsilon=argument_checks.not_negative("epsilon", epsilon),
            use_locking=argument_checks.boolean("use_locking", use_locking),
            name=argument_checks.text("name", name),
        )


class MomentumWOptimizer(DecoupledWeightDecayExtension, v1.MomentumOptimizer):
    """Gradient descent with momentum and decoupled weight decay (SGDW).

    The slot `momentum` (`w/MomentumW`) is `tf.compat.v1.train.MomentumOptimizer`'s, and so is the
    update after the decay.

    Args:
      weight_decay: see `DecoupledWeightDecayExtension`.
      learning_rate: see `tf.compat.v1.train.MomentumOptimizer`, as the other arguments.
      use_locking: whether the decay and the kernels hold the variables' locks.
      name: the name of the optimizer and its slots.

    Raises:
      TypeError: an argument has the wrong type.
      ValueError: an argument is NaN or out of its range.
    """

    def __init__(
        self,
        weight_decay: Hyperparameter,
        learning_rate: Hyperparameter,
        momentum: Hyperparameter,
        use_locking: bool = False,
        name: str = "MomentumW",
        use_nesterov: bool = False,
    ) -> None:
        super().__init__(
            weight_decay,
            learning_rate=argument_checks.hyperparameter("learning_rate", learning_rate),
            momentum=argument_checks.not_negative("momentum", momentum),
            use_locking=argument_checks.boolean("use_locking", use_locking),
            name=argument_checks.text("name", name),
            use_nesterov=argument_checks.boolean("use_nesterov", use_nesterov),
        )
