"""AdamGS and LazyAdamGS: Adam that computes the powers of beta from the global step.

The update of a variable w with the gradient g::

    t = global_step + 1
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g**2
    w -= learning_rate * sqrt(1 - beta2**t) / (1 - beta1**t) * m / (sqrt(v) + epsilon)

Source: `tf.contrib.opt.AdamGSOptimizer` and `LazyAdamGSOptimizer` of TensorFlow 1.15.
"""

from __future__ import annotations

from typing import Dict, Tuple, Union

import tensorflow as tf

from legacy_opt.core import argument_checks
from legacy_opt.core.named_values import changed
from legacy_opt.core.types import DType, GlobalStep, Hyperparameter, Tensor
from legacy_opt.core.update import Values
from legacy_opt.optimizers.adam_base import AdamBase


class AdamGSOptimizer(AdamBase):
    """Adam without variables for powers of beta (tf.contrib.opt).

    The powers are ``beta ** (global_step + 1)``, computed in float32. So the optimizer has no
    variables except slots, and no variables that all workers would update in each training step.
    The training has to increment the global step, so pass it to `minimize` or `apply_gradients`,
    too. The default ``global_step=0``, as in tf.contrib, is a constant and rarely useful: every
    training step has the bias correction of the first, and a `GlobalStepWarning` is issued.

    A sparse gradient changes all rows, as in `tf.compat.v1.train.AdamOptimizer`, so each update
    takes time for the whole table. `LazyAdamGSOptimizer` changes only the rows in the gradient.

    Slots, in this order, named after the optimizer (`w/Adam`, `w/Adam_1`, because the default name
    is "Adam"): `m` and `v`, with the variable's shape and dtype, initialized to zero.

    Example::

        with tf.Graph().as_default():
            w = tf.compat.v1.get_variable("w", initializer=[1.0, 2.0])
            step = tf.compat.v1.train.get_or_create_global_step()
            optimizer = legacy_opt.AdamGSOptimizer(step, 0.001)
            train_op = optimizer.minimize(tf.reduce_sum(w * w), global_step=step)
            print([slot.op.name for slot in optimizer.variables()])  # ['w/Adam', 'w/Adam_1']

    Args:
      global_step: the scalar int32 or int64 variable that counts training steps, or a number that
        is not negative; None means the graph's global step
        (`tf.compat.v1.train.get_global_step`). As in tf.contrib, the variable may also be floating
        point, but a float32 variable stops counting at `2**24`.
      learning_rate: see `LazyAdamOptimizer`, also for `beta1`, `beta2` and `epsilon`.
      use_locking: see `LazyAdamOptimizer`.
      name: the name of the optimizer and its slots.

    Raises:
      TypeError: an argument has the wrong type.
      ValueError: an argument is NaN or out of range.
    """

    uses_global_step = True
    allows_constant_step = True
    whole_tensor = True

    def __init__(
        self,
        global_step: Union[GlobalStep, float, None] = 0,
        learning_rate: Hyperparameter = 0.001,
        beta1: Hyperparameter = 0.9,
        beta2: Hyperparameter = 0.999,
        epsilon: Hyperparameter = 1e-8,
        use_locking: bool = False,
        name: str = "Adam",
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, use_locking, name)
        self._global_step = argument_checks.integer_step("global_step", global_step, constant=True)

    def non_slots(self) -> Dict[str, Hyperparameter]:
        return {}

    def _get_beta_accumulators(self) -> Tuple[Tensor, Tensor]:
        """Returns the powers of beta from the last `apply_gradients`, as float32 scalars."""
        if self._rule_step.global_step is None:
            raise ValueError(f"{type(self).__name__} has applied no gradients yet.")
        hyper = self.hyperparameters(tf.float32)
        return hyper.beta1_power, hyper.beta2_power

    def hyperparameters(self, dtype: DType, non_slots: bool = True) -> Values:
        hyper = super().hyperparameters(dtype, non_slots)
        # As in tf.contrib, the powers are computed in float32 for variables of every dtype.
        betas = hyper if dtype == tf.float32 else super().hyperparameters(tf.float32)
        step = tf.cast(hyper.global_step + 1, tf.float32)
        return changed(
            hyper,
            beta1_power=tf.cast(tf.pow(betas.beta1, step), dtype),
            beta2_power=tf.cast(tf.pow(betas.beta2, step), dtype),
        )


class LazyAdamGSOptimizer(AdamGSOptimizer):
    """`AdamGSOptimizer` whose sparse gradients update only the rows they contain (tf.contrib.opt).

    The arguments, slots and global step are those of `AdamGSOptimizer`.

    Example::

        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            table = tf.compat.v1.get_variable("table", initializer=[1.0, 1.0, 1.0])
            step = tf.compat.v1.train.get_or_create_global_step()
            optimizer = legacy_opt.LazyAdamGSOptimizer(step, 0.1)
            train_op = optimizer.minimize(tf.reduce_sum(tf.gather(table, [0, 2])), global_step=step)
            session.run(tf.compat.v1.global_variables_initializer())
            session.run(train_op)
            print(session.run(table).round(3))  # [0.9 1.  0.9]
    """

    whole_tensor = False
