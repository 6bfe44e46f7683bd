"""Loss scaling, for float16 gradients, which would underflow.

Source: `LossScaleOptimizer` and the loss scale managers in `tf.contrib.mixed_precision`.
"""

from __future__ import annotations

from typing import Any, Iterable, List, Optional, Union

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core import argument_checks, conditions, gradient_pairs, gradient_values
from legacy_opt.core.types import GradAndVar, GradsAndVars, Loss, Tensor, V1Optimizer, Variable
from legacy_opt.core.variable_access import WholeVariable, after
from legacy_opt.wrappers.base import OptimizerWrapper

v1 = tf.compat.v1
# The originals use tf.cond, whose name begins the names of variables like "cond/beta1_power".
_SCOPE = "cond"


class LossScaleManager:
    """Base class of objects that choose the scale of the loss (tf.contrib.mixed_precision).

    Example::

        class Scale8(legacy_opt.LossScaleManager):
            get_loss_scale = staticmethod(lambda: tf.constant(8.0))
    """

    def get_loss_scale(self) -> Union[Tensor, Variable]:
        """Returns the scale of the loss, a float32 scalar."""
        raise NotImplementedError

    def update_loss_scale(self, finite_grads: Tensor) -> Optional[tf.Operation]:
        """Does nothing. `finite_grads` is a bool scalar: whether all gradients are finite."""
        return tf.no_op()


class FixedLossScaleManager(LossScaleManager):
    """Keeps the scale of the loss, a number of at least 1 (tf.contrib.mixed_precision).

    Example::

        manager = legacy_opt.FixedLossScaleManager(1024.0)

    Raises:
      ValueError: `loss_scale` is less than 1, or no finite number.
    """

    def __init__(self, loss_scale: float) -> None:
        if argument_checks.number("loss_scale", loss_scale) < 1:
            raise ValueError(f"loss_scale must be at least 1, got {loss_scale!r}.")
        self._loss_scale = loss_scale

    def get_loss_scale(self) -> Tensor:
        return tf.constant(self._loss_scale, tf.float32)


class ExponentialUpdateLossScaleManager(LossScaleManager):
    """Multiplies the scale of the loss by factors (tf.contrib.mixed_precision).

    After `incr_every_n_steps` consecutive steps with finite gradients, the scale is multiplied by
    `incr_ratio`, unless it would become infinite. After `decr_every_n_nan_or_inf` other steps,
    consecutive or not, it is multiplied by `decr_ratio`, but stays at least 1. The constructor
    creates the variables `loss_scale` (float32), `good_steps` and `bad_steps` (int32).

    Example::

        manager = legacy_opt.ExponentialUpdateLossScaleManager(1024.0, incr_every_n_steps=2000)

    Raises:
      ValueError: an argument is no positive number, or a number of steps is not an integer.
    """

    def __init__(
        self,
        init_loss_scale: float,
        incr_every_n_steps: int,
        decr_every_n_nan_or_inf: int = 2,
        incr_ratio: float = 2,
        decr_ratio: float = 0.8,
    ) -> None:
        count, positive = argument_checks.positive_integer, argument_checks.positive
        self._incr_every_n_steps = count("incr_every_n_steps", incr_every_n_steps)
        self._decr_every_n_nan_or_inf = count("decr_every_n_nan_or_inf", decr_every_n_nan_or_inf)
        self._incr_ratio = positive("incr_ratio", incr_ratio)
        self._decr_ratio = positive("decr_ratio", decr_ratio)
        scale = tf.constant(positive("init_loss_scale", init_loss_scale), tf.float32)
        self._loss_scale = v1.Variable(scale, trainable=False, name="loss_scale")
        self._num_good_steps = v1.Variable(0, trainable=False, name="good_steps")
        self._num_bad_steps = v1.Variable(0, trainable=False, name="bad_steps")

    def get_loss_scale(self) -> Variable:
        return self._loss_scale

    def update_loss_scale(self, finite_grads: Tensor) -> Optional[tf.Operation]:
        variables = self._loss_scale, self._num_good_steps, self._num_bad_steps
        with v1.name_scope(_SCOPE):
            scale, good, bad = (each.read_value() for each in variables)
            good = tf.where(finite_grads, good + 1, 0)
            bad = tf.where(finite_grads, bad, bad + 1)
            grows = tf.logical_and(finite_grads, good >= self._incr_every_n_steps)
            shrinks = tf.logical_and(~finite_grads, bad >= self._decr_every_n_nan_or_inf)
            larger, smaller = scale * self._incr_ratio, tf.maximum(1.0, scale * self._decr_ratio)
            grown = tf.where(tf.math.is_finite(larger), larger, scale)
            scale = tf.where(grows, grown, tf.where(shrinks, smaller, scale))
            changes = tf.logical_or(grows, shrinks)
            values = scale, tf.where(changes, 0, good), tf.where(changes, 0, bad)
            with after(*values):  # all reads, before all writes
                return tf.group(*map(WholeVariable().assign, variables, values))


class LossScaleOptimizer(OptimizerWrapper):
    """Scales the loss, so that float16 gradients do not underflow (tf.contrib.mixed_precision).

    `compute_gradients` multiplies the loss by the scale, and the gradients by its reciprocal. If a
    gradient is NaN or infinite, `apply_gradients` changes nothing but the scale. As in the
    original, sparse gradients become dense, and Adam's powers of beta are `cond/beta1_power` and
    `cond/beta2_power`.

    Example::

        adam = tf.compat.v1.train.AdamOptimizer(0.001)
        manager = legacy_opt.FixedLossScaleManager(1024.0)
        optimizer = legacy_opt.LossScaleOptimizer(adam, manager)

    Args:
      opt: the v1 optimizer that computes and applies gradients.
      loss_scale_manager: a `LossScaleManager`; one of tf.contrib may be passed, too.

    Raises:
      TypeError: `opt` is not a v1 optimizer, or `loss_scale_manager` is no loss scale manager.
    """

    _work_without_kernel = "tests whether gradients are finite"

    def __init__(self, opt: V1Optimizer, loss_scale_manager: LossScaleManager) -> None:
        super().__init__([opt], name="LossScale")
        self._loss_scale_manager = manager = loss_scale_manager
        if isinstance(manager, type) or not hasattr(manager, "update_loss_scale"):
            example = "FixedLossScaleManager(1024.0)"
            raise TypeError(f"loss_scale_manager must be one, such as {example}, got {manager!r}.")
        for name, value in vars(manager).items():  # for object-based checkpoints
            if isinstance(value, tf.Variable):
                self._track_trackable(value, name.lstrip("_"))

    def compute_gradients(
        self,
        loss: Loss,
        var_list: Optional[Iterable[Variable]] = None,
        gate_gradients: int = v1.train.Optimizer.GATE_OP,
        aggregation_method: Optional[int] = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: Optional[Tensor] = None,
    ) -> List[GradAndVar]:
        """Computes the gradients of the scaled loss, and divides them by the scale."""
        scale = self._loss_scale_manager.get_loss_scale()

        def scaled() -> Tensor:
            value = loss() if argument_checks.is_function(loss) else tf.convert_to_tensor(loss)
            return value * tf.cast(scale, value.dtype.base_dtype)

        is_called_later = argument_checks.is_function(loss) and versions.runs_in_order()
        scaled_loss = scaled if is_called_later else scaled()
        options = gate_gradients, aggregation_method, colocate_gradients_with_ops, grad_loss
        pairs = super().compute_gradients(scaled_loss, var_list, *options)
        inverse = tf.math.reciprocal(scale)
        dense = [grad if grad is None else tf.convert_to_tensor(grad) for grad, _ in pairs]
        return [(gradient_values.scaled(grad, inverse), v) for grad, (_, v) in zip(dense, pairs)]

    def apply_gradients(
        self,
        grads_and_vars: GradsAndVars,
        global_step: Optional[Variable] = None,
        name: Optional[str] = None,
    ) -> Optional[tf.Operation]:
        """Applies the gradients if all of them are finite, and updates the scale.

        Raises a ValueError if there is no gradient, or in a distribution strategy.
        """
        cls = type(self).__name__
        if tf.distribute.has_strategy():
            way_out = "tf.compat.v1.train.experimental.MixedPrecisionLossScaleOptimizer"
            raise ValueError(f"{cls} does not run in a tf.distribute strategy: use {way_out}.")
        pairs = gradient_values.some_gradients(cls, gradient_pairs.checked(cls, grads_and_vars))
        values = [gradient_values.values_of(grad) for grad, _ in pairs if grad is not None]
        finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(each)) for each in values])

        def apply() -> List[Any]:
            with v1.name_scope(_SCOPE):
                inner = super(LossScaleOptimizer, self)
                return [inner.apply_gradients(pairs, global_step=global_step, name=name)]

        updated = conditions.run_if(finite, apply)
        return tf.group(updated, self._loss_scale_manager.update_loss_scale(finite))
