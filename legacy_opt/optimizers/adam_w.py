"""AdamW and MomentumW (SGDW): Adam and Momentum with decoupled weight decay.

For each gradient, the optimizers first compute ``w -= weight_decay * w``, then the update of Adam
or Momentum.

Source: `tf.contrib.opt`, after Loshchilov and Hutter 2019. The weight decay is in the module
`decoupled_weight_decay`.
"""

from __future__ import annotations

import tensorflow as tf

from legacy_opt.core import argument_checks
from legacy_opt.core.types import Hyperparameter
from legacy_opt.optimizers.decoupled_weight_decay import DecoupledWeightDecayExtension

v1 = tf.compat.v1.train


class AdamWOptimizer(DecoupledWeightDecayExtension, v1.AdamOptimizer):
    """Adam with decoupled weight decay.

    These are the same as in `tf.compat.v1.train.AdamOptimizer`: the slots `m` and `v` (`w/AdamW`,
    `w/AdamW_1`), the shared variables `beta1_power` and `beta2_power`, and the update after the
    weight decay. A sparse gradient decays only the rows in the gradient. Adam then changes all rows
    with nonzero `m`. For float16 variables pass an epsilon of 1e-4 or more, because the default
    rounds to 0 in float16, and 0 / 0 is NaN.

    Example::

        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            kernel, bias = (tf.compat.v1.get_variable(name, initializer=[1.0]) for name in "kb")
            optimizer = legacy_opt.AdamWOptimizer(weight_decay=0.01, learning_rate=0.1)
            pairs = optimizer.compute_gradients(tf.reduce_sum(kernel + bias))
            train_op = optimizer.apply_gradients(pairs, decay_var_list=[kernel])
            session.run(tf.compat.v1.global_variables_initializer())
            session.run(train_op)
            print(session.run(tf.concat([kernel, bias], 0)).round(3))  # [0.89 0.9 ]

    Args:
      weight_decay: see `DecoupledWeightDecayExtension`.
      learning_rate: see `tf.compat.v1.train.AdamOptimizer`, also for `beta1`, `beta2` and
        `epsilon`.
      use_locking: whether the weight decay and Adam's kernel lock the variables.
      name: the name of the optimizer and its slots.

    Raises:
      TypeError: an argument has the wrong type.
      ValueError: an argument is NaN or out of range.
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

    The slot `momentum` (`w/MomentumW`) and the update after the weight decay are the same as in
    `tf.compat.v1.train.MomentumOptimizer`.

    Example::

        with tf.Graph().as_default():
            w = tf.compat.v1.get_variable("w", initializer=[1.0, 2.0])
            step = tf.compat.v1.train.get_or_create_global_step()
            schedule = tf.compat.v1.train.cosine_decay(1.0, step, decay_steps=1000)
            optimizer = legacy_opt.MomentumWOptimizer(1e-4 * schedule, 0.1 * schedule, momentum=0.9)
            train_op = optimizer.minimize(tf.reduce_sum(w * w), global_step=step)

    Args:
      weight_decay: see `DecoupledWeightDecayExtension`.
      learning_rate: see `tf.compat.v1.train.MomentumOptimizer`, also for `momentum` and
        `use_nesterov`.
      use_locking: whether the weight decay and the kernels lock the variables.
      name: the name of the optimizer and its slots.

    Raises:
      TypeError: an argument has the wrong type.
      ValueError: an argument is NaN or out of range.
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
