"""DiffGrad: Adam with smaller updates where the gradient hardly changes (close to an optimum).

The update of a variable w with the gradient g, for the t-th time (from 1), where ``g'`` is the
gradient of the previous update, or zero in the first update::

    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g**2
    friction = sigmoid(abs(g' - g))
    w -= learning_rate * sqrt(1 - beta2**t) / (1 - beta1**t) * friction * m / (sqrt(v) + epsilon)

Source: Dubey et al., "diffGrad: An Optimization Method for Convolutional Neural Networks" (2019).
"""

from __future__ import annotations

from typing import Any, List, Optional, Sequence

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core.named_values import changed
from legacy_opt.core.slots import Slot
from legacy_opt.core.types import Hyperparameter, Operation, Tensor, Variable
from legacy_opt.core.update import RuleResult, Update, Values
from legacy_opt.core.variable_access import after, is_resource
from legacy_opt.optimizers.adam_base import AdamBase, corrected_rate, moments


class DiffGradOptimizer(AdamBase):
    """Adam with friction where the gradient changes little (Dubey et al. 2019).

    The friction is a factor of the update: 0.5 where the gradient equals the gradient of the
    previous update, and otherwise between 0.5 and 1. A sparse gradient updates only its own rows of
    the variable and slots. The powers of beta change in every training step.

    Slots, in this order, named after the optimizer (`w/DiffGrad`, `w/DiffGrad_1`, `w/DiffGrad_2`):
    `m`, `v` and `prev_grad`, the gradient of the previous update, with the variable's shape and
    dtype, initialized to zero. All variables share `beta1_power` and `beta2_power`, float32 scalars
    initialized to `beta1` and `beta2`.

    Example::

        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            w = tf.compat.v1.get_variable("w", initializer=[1.0])
            train_op = legacy_opt.DiffGradOptimizer(0.1).apply_gradients([(tf.constant([50.0]), w)])
            session.run(tf.compat.v1.global_variables_initializer())
            session.run(train_op)  # subtracts 0.1 * sigmoid(abs(0 - 50)), about 0.1
            session.run(train_op)  # subtracts 0.1 * sigmoid(abs(50 - 50)), 0.05
            print(session.run(w).round(3))  # [0.85]

    Args:
      learning_rate: see `LazyAdamOptimizer`, also for `beta1`, `beta2`, `epsilon` and `name`.
      use_locking: see `LionOptimizer`.

    Raises:
      TypeError: an argument has the wrong type.
      ValueError: an argument is NaN or out of range.
    """

    slots = {"m": Slot(), "v": Slot(), "prev_grad": Slot()}

    def __init__(
        self,
        learning_rate: Hyperparameter = 0.001,
        beta1: Hyperparameter = 0.9,
        beta2: Hyperparameter = 0.999,
        epsilon: Hyperparameter = 1e-8,
        use_locking: bool = False,
        name: str = "DiffGrad",
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, use_locking, name)

    def _rule(self, grad: Tensor, slots: Values, hyper: Values, rounding: str) -> RuleResult:
        m, v = moments(grad, slots, hyper, rounding)
        change = _change(hyper, m, v, slots.prev_grad, grad)
        return change, {"m": m, "v": v, "prev_grad": grad}

    # For dense gradients, TensorFlow's Adam kernel updates m and v in place, with a learning rate
    # of zero, which leaves the variable unchanged. The update of the variable is then computed
    # piece by piece, so that temporaries stay in the processor's cache.

    def fused(self, update: Update) -> Optional[Operation]:
        if self._use_locking:  # no operation below locks; `apply_update` warns of this
            return NotImplemented
        hyper = update.hyper
        slots = update.slots
        grad = update.grad
        hyper_with_rate_0 = changed(hyper, learning_rate=tf.zeros_like(hyper.learning_rate))
        done = self.apply_kernel(update, hyper_with_rate_0)
        if done is NotImplemented:
            return done
        with after(done):
            # Values of ref variables share the memory of the slots. No copies are needed, because
            # all changes are computed before `prev_grad` is written.
            m = versions.read_value(slots.m)
            v = versions.read_value(slots.v)
            prev_grad = versions.read_value(slots.prev_grad)
        pieces = _pieces(update.variable.shape)
        changes = [_change(hyper, m[p], v[p], prev_grad[p], grad[p]) for p in pieces]
        del prev_grad  # otherwise eager execution would copy the slot before the write
        with after(*changes):
            written = slots.prev_grad.assign(grad, read_value=False)
            return tf.group(written, *_subtract(update.variable, pieces, changes))


def _change(hyper: Values, m: Tensor, v: Tensor, prev_grad: Tensor, grad: Tensor) -> Tensor:
    """Returns the change of the variable, or of a piece of it; see `RuleOptimizer.rule`."""
    # The op SoftplusGrad computes gradients * sigmoid(features) in one pass.
    slowed = tf.raw_ops.SoftplusGrad(gradients=m, features=tf.abs(prev_grad - grad))
    return corrected_rate(hyper) * (slowed / (tf.sqrt(v) + hyper.epsilon))


PIECE = 1 << 20  # the number of elements whose temporaries fit into the processor's cache


def _pieces(shape: Any) -> List[Any]:
    """Returns the pieces: slices of the first axis, or [Ellipsis] for a single piece."""
    if not shape.is_fully_defined() or shape.num_elements() <= PIECE:
        return [Ellipsis]
    rows = max(1, PIECE // shape[1:].num_elements())
    return [slice(first, first + rows) for first in range(0, shape.as_list()[0], rows)]


def _subtract(
    variable: Variable, pieces: Sequence[Any], changes: Sequence[Tensor]
) -> List[Operation]:
    if len(pieces) == 1:
        return [variable.assign_sub(changes[0], read_value=False)]
    if is_resource(variable):  # after a write to a slice, every read would copy the variable
        return [variable.assign_sub(tf.concat(changes, axis=0), read_value=False)]
    value = variable.read_value()
    return [
        tf.raw_ops.StridedSliceAssign(
            ref=variable,
            begin=[piece.start],
            end=[piece.stop],
            strides=[1],
            value=value[piece] - change,
        ).op
        for piece, change in zip(pieces, changes)
    ]
