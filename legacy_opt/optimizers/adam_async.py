"""AdamAsync: Adam for asynchronous workers.

Dense gradients g, and sparse gradients by default, are applied to a variable w by Adam::

    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g**2
    w -= learning_rate * sqrt(1 - beta2_power) / (1 - beta1_power) * m / (sqrt(v) + epsilon)
    beta1_power *= beta1;  beta2_power *= beta2

With `apply_sparse_rmsprop`, sparse gradients are applied by RMSProp with momentum::

    v = beta2 * v + (1 - beta2) * g**2
    m = beta1 * m + learning_rate * g / sqrt(v + epsilon)
    w -= m

Source: `AdamAsyncOptimizer` of Alibaba's DeepRec, with the same arguments, slots and arithmetic.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Dict, Optional

import tensorflow as tf

from legacy_opt.core.argument_checks import boolean
from legacy_opt.core.hyperparameters import wide_dtype
from legacy_opt.core.named_values import changed
from legacy_opt.core.slots import ScalarSlot, Slot
from legacy_opt.core.types import DType, Hyperparameter, Operation, Tensor, Variable
from legacy_opt.core.update import RuleResult, Update, Values
from legacy_opt.core.variable_access import after
from legacy_opt.optimizers.adam_base import AdamBase


class AdamAsyncOptimizer(AdamBase):
    """Adam with separate powers of beta for each variable (DeepRec).

    Each update of a variable multiplies the variable's powers by beta1 and beta2. So no worker
    waits until all variables are updated, and the powers of a variable without a gradient do not
    change. A sparse gradient updates only its own rows of the variable, `m` and `v`.

    Slots, in this order, named after the optimizer (`w/AdamAsync`, `w/AdamAsync_1`, …):

    * `m`, `v`: shape and dtype of the variable, initialized to zero.
    * `beta1_power`, `beta2_power`: float32 scalars, initialized to `beta1` and `beta2`. Sparse
      updates with `apply_sparse_rmsprop` do not change them.

    If every training step has dense gradients for all variables, the results are bit for bit those
    of `tf.compat.v1.train.AdamOptimizer`.

    Example::

        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            a, b = (tf.compat.v1.get_variable(name, initializer=[1.0]) for name in "ab")
            optimizer = legacy_opt.AdamAsyncOptimizer(0.1, beta1=0.5)
            train_a, _ = (optimizer.minimize(tf.reduce_sum(w * w), var_list=[w]) for w in (a, b))
            session.run(tf.compat.v1.global_variables_initializer())
            session.run(train_a)
            powers = tf.stack([optimizer.get_slot(w, "beta1_power") for w in (a, b)])
            print(session.run(powers))  # [0.25 0.5 ]

    Args:
      learning_rate: see `LazyAdamOptimizer`, also for `beta1`, `beta2` and `name`.
      epsilon: added to the square root of `v`, or to `v` itself in RMSProp; not negative. For
        float16 variables pass 1e-4 or more: the default rounds to 0 in float16, and 0 / 0 is NaN.
      use_locking: whether native kernels, and TensorFlow's Adam kernel for dense gradients, lock
        the variables while they write. (TensorFlow's kernel does not lock the powers.)
      apply_sparse_rmsprop: whether to apply sparse gradients by RMSProp with momentum.

    Raises:
      TypeError: an argument has the wrong type.
      ValueError: an argument is NaN or out of range.
    """

    def __init__(
        self,
        learning_rate: Hyperparameter = 0.001,
        beta1: Hyperparameter = 0.9,
        beta2: Hyperparameter = 0.999,
        epsilon: Hyperparameter = 1e-8,
        use_locking: bool = False,
        apply_sparse_rmsprop: bool = False,
        name: str = "AdamAsync",
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, use_locking, name)
        self._apply_sparse_rmsprop = boolean("apply_sparse_rmsprop", apply_sparse_rmsprop)

    def non_slots(self) -> Dict[str, Hyperparameter]:
        return {}

    def slot_layouts(self, variable: Variable) -> Dict[str, Slot]:
        return dict(
            self.slots,
            beta1_power=ScalarSlot(self._beta1, tf.float32),
            beta2_power=ScalarSlot(self._beta2, tf.float32),
        )

    def _rule(self, grad: Tensor, slots: Values, hyper: Values, rounding: str) -> RuleResult:
        hyper = _with_powers(hyper, slots, grad.dtype)
        change, changes = super()._rule(grad, slots, hyper, rounding)
        return change, dict(changes, **self._next_powers(slots))

    def sparse_rule(self, grad: Tensor, value: Tensor, slots: Values, hyper: Values) -> RuleResult:
        if not self._apply_sparse_rmsprop:
            return self.rule(grad, value, slots, hyper)
        v = slots.v * hyper.beta2 + tf.square(grad) * (1 - hyper.beta2)
        # In graphs, Grappler replaces x / sqrt(y) by x * rsqrt(y); so eager execution rounds alike.
        # The cast is needed, because TensorFlow 1.15 has no Rsqrt for bfloat16.
        root = tf.math.rsqrt(tf.cast(v + hyper.epsilon, wide_dtype(grad.dtype)))
        m = slots.m * hyper.beta1 + grad * hyper.learning_rate * tf.cast(root, grad.dtype)
        return m, {"m": m, "v": v}

    def fused(self, update: Update) -> Optional[Operation]:
        if update.sparse:
            return NotImplemented
        slots = update.slots
        access = update.access
        beta1_power = access.read(slots.beta1_power)
        beta2_power = access.read(slots.beta2_power)
        powers = SimpleNamespace(beta1_power=beta1_power, beta2_power=beta2_power)
        hyper = _with_powers(update.hyper, powers, update.grad.dtype)
        done = self.apply_kernel(update, hyper)
        if done is NotImplemented:
            return done
        with after(done):
            next_powers = self._next_powers(powers).items()
            writes = [access.assign(getattr(slots, name), power) for name, power in next_powers]
            return tf.group(*writes)

    def _next_powers(self, powers: Values) -> Dict[str, Tensor]:
        hyper = self.hyperparameters(tf.float32)
        return {
            "beta1_power": powers.beta1_power * hyper.beta1,
            "beta2_power": powers.beta2_power * hyper.beta2,
        }


def _with_powers(hyper: Values, powers: Values, dtype: DType) -> Values:
    beta1_power = tf.cast(powers.beta1_power, dtype)
    beta2_power = tf.cast(powers.beta2_power, dtype)
    return changed(hyper, beta1_power=beta1_power, beta2_power=beta2_power)
