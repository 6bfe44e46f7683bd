"""Computes moving averages of the trained variables, and saves them under the variables' names.

After the inner optimizer has updated a variable w::

    average -= (1 - average_decay) * (average - w)

Source: `tf.contrib.opt.MovingAverageOptimizer`. The constructor, the arithmetic, the variable names
and `swapping_saver` are the same.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, List, Optional, Sequence, Tuple

import tensorflow as tf

from legacy_opt.core import argument_checks
from legacy_opt.core.hyperparameters import current_value
from legacy_opt.core.kernel_hook import kernels_for
from legacy_opt.core.types import GradsAndVars, Hyperparameter, Tensor, V1Optimizer, Variable
from legacy_opt.core.variable_access import after
from legacy_opt.wrappers.averages import AveragingOptimizer
from legacy_opt.wrappers.shadows import WHOLE_VARIABLE

v1 = tf.compat.v1
_OP_NAME = "ExponentialMovingAverage"  # as in tf.train.ExponentialMovingAverage


class MovingAverageOptimizer(AveragingOptimizer):
    """Computes a moving average of each trained variable, for evaluation (tf.contrib.opt).

    A model with the averages is often better than a model with the last values of the variables.
    Use `swapping_saver` for training: in its checkpoints, each average has the name of its
    variable. Evaluation and export, which restore such a checkpoint with an ordinary Saver, then
    use the averages.

    The average of `w` is the variable ``w/ExponentialMovingAverage`` with the same shape and dtype.
    It is not trainable; `average(w)` returns it. Its initial value is the initial value of `w`. In
    eager execution and in a `tf.function`, the initial value is the value of `w` before the first
    training step. A sparse gradient updates the averages of all rows.

    See `legacy-opt docs differences_from_originals` for differences from the class in tf.contrib.

    Example::

        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            w = tf.compat.v1.get_variable("w", initializer=[4.0])
            descent = tf.compat.v1.train.GradientDescentOptimizer(1.0)
            optimizer = legacy_opt.MovingAverageOptimizer(descent, average_decay=0.75)
            train_op = optimizer.minimize(tf.reduce_sum(w))
            saver = optimizer.swapping_saver()  # for training, also for continued training
            session.run(tf.compat.v1.global_variables_initializer())
            session.run(train_op)
            print(session.run(optimizer.average(w)))  # [3.75]

    Args:
      opt: the v1 optimizer that computes and applies gradients.
      average_decay: the decay factor of the average in each update, at least 0 and less than 1: a
        number, scalar tensor or variable, or a callable that returns one of these.
      num_updates: None, or the number of updates so far, such as the global step: a number, scalar
        tensor or variable, or a callable that returns one of these. If it is not None, the decay
        factor is at most ``(1 + num_updates) / (10 + num_updates)``, so that averages follow the
        variables faster in early training steps.
      sequential_update: whether averages use the variables' values after the training step. With
        False, the averages use the values before the training step, are updated in parallel with
        the variables, and lag behind by one training step.

    Raises:
      TypeError: `opt` is not a v1 optimizer, or another argument has the wrong type.
      ValueError: a number is out of its range, NaN or infinite.
    """

    _shadow = "moving_average"
    _op_name = _OP_NAME
    _optimizer = property(lambda self: self._wrapped[0])  # an attribute of the class in tf.contrib

    def __init__(
        self,
        opt: V1Optimizer,
        average_decay: Hyperparameter = 0.9999,
        num_updates: Optional[Hyperparameter] = None,
        sequential_update: bool = True,
    ) -> None:
        super().__init__([opt], name="MovingAverage")
        self._average_decay = argument_checks.decay_factor("average_decay", average_decay)
        self._num_updates = num_updates
        if num_updates is not None:
            self._num_updates = argument_checks.not_negative("num_updates", num_updates)
        self._sequential_update = argument_checks.boolean("sequential_update", sequential_update)

    def apply_gradients(
        self,
        grads_and_vars: GradsAndVars,
        global_step: Optional[Variable] = None,
        name: Optional[str] = None,
    ) -> Optional[tf.Operation]:
        """Applies gradients and updates the averages."""
        with self._step(grads_and_vars) as (pairs, variables):
            if self._sequential_update:
                updated = super().apply_gradients(pairs, global_step, name)
                with after(updated):
                    moves, remaining = self._move(variables)
            else:
                moves, remaining = self._move(variables)
                with after(*moves, *(amount for _, amount in remaining)):
                    updated = super().apply_gradients(pairs, global_step, name)
            subtract = _subtract
            if tf.distribute.has_strategy():
                subtract = functools.partial(in_all_replicas, _subtract)
            moves += [subtract(average, amount) for average, amount in remaining]
            return tf.group(updated, *moves, name="train_with_avg")

    def _move(
        self, variables: Sequence[Variable]
    ) -> Tuple[List[Any], List[Tuple[Variable, Tensor]]]:
        """Moves the averages for which there are kernels towards the values of the variables.

        Returns operations, and pairs (average, amount to subtract) for averages without kernels.
        """
        averages = self._shadows_of(variables)
        with v1.name_scope(_OP_NAME):
            rate = self._rate()
            values = []
            for variable in variables:
                with tf.device(variable.device):
                    values.append(variable.read_value())
            moves, without_kernel = kernels_for(self).move_averages(averages, values, rate)
            remaining = []
            for i in without_kernel:
                with tf.device(averages[i].device):
                    amount = difference(averages[i].read_value(), values[i], rate)
                    remaining.append((averages[i], amount))
        return moves, remaining

    def _rate(self) -> Tensor:
        """Returns 1 minus the current decay factor. Numbers become float32, as in TensorFlow."""
        decay = current_value("average_decay", self._average_decay)
        if not argument_checks.is_tensor_like(decay) or self._num_updates is not None:
            decay = tf.cast(decay, tf.float32)
        if self._num_updates is not None:
            count = _read_now(current_value("num_updates", self._num_updates))
            count = tf.cast(count, tf.float32)
            decay = tf.minimum(decay, (1.0 + count) / (10.0 + count))
        return 1.0 - decay


def difference(average: Tensor, value: Tensor, rate: Tensor) -> Tensor:
    """Returns the tensor to subtract from an average; `rate` is 1 minus the decay factor."""
    gap = average - value
    return gap * tf.cast(rate, gap.dtype)


def _subtract(average: Variable, amount: Tensor) -> Optional[tf.Operation]:
    with tf.device(average.device):
        return WHOLE_VARIABLE.subtract(average, amount)


def in_all_replicas(update: Callable[[Any, Any], Any], variable: Variable, value: Tensor) -> Any:
    """Updates all components of a distributed variable. All replicas must pass equal values."""

    def merge(strategy: Any, variable: Variable, value: Tensor) -> Any:
        value = strategy.extended.reduce_to(tf.distribute.ReduceOp.MEAN, value, variable)
        return strategy.extended.update(variable, update, args=(value,))

    return tf.distribute.get_replica_context().merge_call(merge, args=(variable, value))


def _read_now(value: Any) -> Any:
    """Reads a variable after the current control dependencies. Returns other values unchanged."""
    if not hasattr(value, "read_value"):
        return value
    value = value.read_value()
    # `value` may share the memory of a ref variable, which a cast might read too early. The maximum
    # equals `value`, but waits for the control dependencies and has its own memory.
    return tf.maximum(value, value.dtype.min)
