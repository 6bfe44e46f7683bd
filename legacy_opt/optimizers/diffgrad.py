"""DiffGrad: Adam that brakes where the gradient hardly changes, as it does close to an optimum.

With ``g'`` the gradient of the step before, zero at first::

    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g**2
    friction = sigmoid(abs(g' - g))
    w -= learning_rate * sqrt(1 - beta2**t) / (1 - beta1**t) * friction * m / (sqrt(v) + epsilon)

Source: Dubey et al., "diffGrad: An Optimization Method for Convolutional Neural Networks" (2019).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Optional

import tensorflow as tf

from legacy_opt.core.slots import Slot
from legacy_opt.core.types import Hyperparameter, Operation, Tensor
from legacy_opt.core.update import RuleResult, Update
from legacy_opt.core.variable_access import after, is_resource
from legacy_opt.optimizers.adam_base import AdamBase, corrected_rate, moments


class DiffGradOptimizer(AdamBase):
    """Adam with friction where the gradient changes little (Dubey et al. 2019).

    The friction lies between 0.5, where the gradient is that of the step before, and 1. Sparse
    gradients move the touched rows only, of variable and slots; the powers of beta count all steps.

    Slots, in this order, all under the optimizer's name (`w/DiffGrad`, `w/DiffGrad_1`,
    `w/DiffGrad_2`): `m`, `v` and `prev_grad`, the gradient of the last visit, of the variable's
    shape and dtype, starting at zero. All variables share `beta1_power` and `beta2_power`, float32
    scalars that start at `beta1` and `beta2`.

    Args:
      learning_rate: a number, scalar tensor, variable, or callable that returns one; so are
        `beta1`, `beta2` and `epsilon`.
      beta1: how much of `m` stays, from 0 to below 1.
      beta2: how much of `v` stays, from 0 to below 1.
      epsilon: what is added to the root of `v`, not negative.
      use_locking: cannot be kept, since no kernel does the whole update; a `UseLockingWarning`
        tells.
      name: the name of the optimizer and its slots.

    Raises:
      TypeError: an argument has the wrong type.
      ValueError: an argument is NaN or out of its range.
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

    def rule(
        self, grad: Tensor, value: Tensor, slots: SimpleNamespace, hyper: SimpleNamespace
    ) -> RuleResult:
        m, v = moments(grad, slots, hyper)
        return _step(m, v, slots.prev_grad, grad, hyper), {"m": m, "v": v, "prev_grad": grad}

    # The fast way for dense gradients: TensorFlow's Adam kernel brings m and v up to date, in
    # place and in one pass; at a learning rate of zero it leaves the variable alone. The steps are
    # computed piece by piece, so that what lies between stays in the processor's cache.

    def fused(self, update: Update) -> Optional[Operation]:
        hyper, prev_grad = update.hyper, update.slots.prev_grad
        standing = SimpleNamespace(**vars(hyper))
        standing.learning_rate = tf.zeros_like(hyper.learning_rate)
        done = NotImplemented if self._use_locking else self.apply_kernel(update, standing)
        if done is NotImplemented:
            return done
        with after(done):
            # Read in place: of ref variables too, since nothing of it is used after the writes.
            seen = [slot.read_value() for slot in (update.slots.m, update.slots.v, prev_grad)]
        pieces = _pieces(update.variable.shape)
        steps = [_step(*(x[piece] for x in seen + [update.grad]), hyper) for piece in pieces]
        del seen  # executing eagerly, what is held would be copied before it is written
        with after(*steps):
            written = prev_grad.assign(update.grad, read_value=False)
            return tf.group(written, *_subtract(update.variable, pieces, steps))


def _step(m, v, prev_grad, grad, hyper):
    # SoftplusGrad(x, y) is x * sigmoid(y), in one pass.
    slowed = tf.raw_ops.SoftplusGrad(gradients=m, features=tf.abs(prev_grad - grad))
    return corrected_rate(hyper) * (slowed / (tf.sqrt(v) + hyper.epsilon))


PIECE = 1 << 20  # elements: the few temporaries of a piece stay in the cache


def _pieces(shape):
    """Returns the slices of the first axis that a variable is updated in."""
    if not shape.is_fully_defined() or shape.num_elements() <= PIECE:
        return [Ellipsis]
    rows = max(1, PIECE // shape[1:].num_elements())
    return [slice(first, first + rows) for first in range(0, shape.as_list()[0], rows)]


def _subtract(variable, pieces, steps):
    """Subtracts the steps, one a piece, from the variable; returns the operations."""
    if len(pieces) == 1:
        return [variable.assign_sub(steps[0], read_value=False)]
    if is_resource(variable):  # written in pieces, it would be copied whenever it is read
        return [variable.assign_sub(tf.concat(steps, axis=0), read_value=False)]
    value = variable.read_value()
    return [
        tf.raw_ops.StridedSliceAssign(
            ref=variable,
            begin=[piece.start],
            end=[piece.stop],
            strides=[1],
            value=value[piece] - step,
        ).op
        for piece, step in zip(pieces, steps)
    ]
