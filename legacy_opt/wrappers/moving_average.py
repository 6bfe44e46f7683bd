"""Computes moving averages of the trained variables, and saves them under the variables' names.

After the inner optimizer has updated a variable w::

    average -= (1 - average_decay) * (average - w)

Source: `tf.contrib.opt.MovingAverageOptimizer`. The constructor, the arithmetic, the variable names
and `swapping_saver` are the same.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core import argument_checks, dynamic_embeddings, gradient_pairs
from legacy_opt.core.gradient_order import writes_after
from legacy_opt.core.hyperparameters import current_value
from legacy_opt.core.kernel_hook import kernels_for
from legacy_opt.core.slots import first_value
from legacy_opt.core.types import (
    GradAndVar,
    GradsAndVars,
    Hyperparameter,
    Operation,
    Saver,
    Tensor,
    V1Optimizer,
    Variable,
)
from legacy_opt.core.variable_access import WholeVariable, after
from legacy_opt.core.variable_lists import is_partitioned
from legacy_opt.wrappers.base import OptimizerWrapper

v1 = tf.compat.v1
_AVERAGE = "moving_average"
_OP_NAME = "ExponentialMovingAverage"  # as in tf.train.ExponentialMovingAverage
_WHOLE_VARIABLE = WholeVariable()


class MovingAverageOptimizer(OptimizerWrapper):
    """Computes a moving average of each trained variable, for evaluation (tf.contrib.opt).

    A model with the averages is often better than a model with the last values of the variables.
    Use `swapping_saver` for training: in its checkpoints, each average has the name of its
    variable. Evaluation and export, which restore such a checkpoint with an ordinary Saver, then
    use the averages.

    The average of `w` is the variable ``w/ExponentialMovingAverage`` with the same shape and dtype.
    It is not trainable; `average(w)` returns it. Its initial value is the initial value of `w`. In
    eager execution and in a `tf.function`, the initial value is the value of `w` before the first
    training step. A sparse gradient updates the averages of all rows.

    Differences from the class in tf.contrib:

    * With `sequential_update=False`, the updates of variables and averages do not race.
    * This optimizer has slots, a name and `variables()`, like any optimizer.
    * A second call of `apply_gradients` with other variables keeps the averages of the first call.
    * The saver finds the average of a variable by the variable object, not by its name. Therefore
      `var_list` may be a dict with other names than in the graph, and a `tf.distribute` strategy
      works.
    * This optimizer works in eager execution, and with ref variables under v2 control flow.

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

    def average(self, variable: Variable) -> Optional[Variable]:
        """Returns the average of a variable, or None if the average does not exist yet."""
        return self.own_slot(variable, _AVERAGE)

    def apply_gradients(
        self,
        grads_and_vars: GradsAndVars,
        global_step: Optional[Variable] = None,
        name: Optional[str] = None,
    ) -> Optional[Operation]:
        """Applies gradients and updates the averages.

        See `tf.compat.v1.train.Optimizer.apply_gradients`.
        """
        class_name = type(self).__name__
        with contextlib.ExitStack() as stack:
            pairs = stack.enter_context(gradient_pairs.protected(class_name, grads_and_vars))
            stack.enter_context(writes_after([grad for grad, _ in pairs]))
            return self._apply_and_average(pairs, global_step, name)

    def _apply_and_average(
        self, grads_and_vars: List[GradAndVar], global_step: Optional[Variable], name: Optional[str]
    ) -> Operation:
        variables = [variable for grad, variable in grads_and_vars if grad is not None]
        for each in variables:
            dynamic_embeddings.refuse(type(self).__name__, each, "it averages all rows")
        if not versions.for_a_session():
            self._get_or_create_averages(variables)  # before the first update of the variables
        if self._sequential_update:
            updated = super().apply_gradients(grads_and_vars, global_step=global_step, name=name)
            with after(updated):
                moves, remaining = self._move(variables)
        else:
            moves, remaining = self._move(variables)
            with after(*moves, *(amount for _, amount in remaining)):
                updated = super().apply_gradients(grads_and_vars, global_step, name)
        moves += self._subtract_all(remaining)
        return tf.group(updated, *moves, name="train_with_avg")

    def _move(
        self, variables: Sequence[Variable]
    ) -> Tuple[List[Any], List[Tuple[Variable, Tensor]]]:
        """Moves the averages for which there are kernels towards the values of the variables.

        Returns:
          A list of operations; and a list of pairs (average, amount to subtract from the average)
          for the averages without kernels.
        """
        averages = self._get_or_create_averages(variables)
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

    @staticmethod
    def _subtract_all(pairs: List[Tuple[Variable, Tensor]]) -> List[Any]:
        if tf.distribute.has_strategy():
            return [in_all_replicas(_subtract, average, amount) for average, amount in pairs]
        return [_subtract(average, amount) for average, amount in pairs]

    def _get_or_create_averages(self, variables: Sequence[Variable]) -> List[Variable]:
        """Returns the averages of all variables. Creates averages that do not exist yet."""
        if not tf.distribute.has_strategy():
            return self._create_missing_averages(variables)
        # An Estimator creates an optimizer in each replica. `merge_call` calls only the function of
        # the first replica, and so creates slots only in the first optimizer.
        context = tf.distribute.get_replica_context()
        return context.merge_call(lambda _: self._create_missing_averages(variables))

    def _create_missing_averages(self, variables: Sequence[Variable]) -> List[Any]:
        with tf.init_scope():
            for variable in variables:
                if self.average(variable) is None:
                    # first_value and TensorFlow call tf.cond, which must accept ref variables.
                    with versions.v1_control_flow():
                        value = first_value(variable)
                        self._get_or_make_slot(variable, value, _AVERAGE, _OP_NAME)
                    if versions.for_a_session():
                        v1.add_to_collection(v1.GraphKeys.MOVING_AVERAGE_VARIABLES, variable)
            return [self.average(variable) for variable in variables]

    def _create_slots(self, var_list: Sequence[Variable]) -> None:
        super()._create_slots(var_list)
        self._create_missing_averages(var_list)

    def swapping_saver(
        self,
        var_list: Union[Iterable[Variable], Mapping[str, Variable], None] = None,
        name: str = "swapping_saver",
        **kwargs: Any,
    ) -> Saver:
        """Returns a Saver that swaps the names of each variable and its average.

        The Saver swaps the names when it saves and when it restores, so that training continues
        with the same values. Use this Saver for training, and an ordinary Saver for evaluation.
        Call this method after all variables have been created.

        Args:
          var_list: the variables to save: a list, or a dict from names in the checkpoint to
            variables; None means all global variables.
          name: the name of the Saver's operations.
          **kwargs: other arguments of `tf.compat.v1.train.Saver`.

        Returns:
          A `tf.compat.v1.train.Saver`.

        Raises:
          RuntimeError: the averages have not been created yet in this graph; or the method is
            called eagerly or in a function, where TensorFlow 1's Savers do not work.
          TypeError: an item of `var_list` is not a variable.
          ValueError: `var_list` has a variable without its average, or an average without its
            variable.
        """
        if versions.building() not in (versions.GRAPH, versions.CONTROL_FLOW):
            raise RuntimeError(
                "swapping_saver creates a Saver for a TF1 graph. In eager code assign "
                "optimizer.average(variable) to the variable before saving it."
            )
        partners = {}  # {name: the variable that is saved under this name}
        for variable in v1.moving_average_variables():
            average = self.average(variable)
            if average is not None:
                partners[variable.op.name] = average
                partners[average.op.name] = variable
        if not partners:
            raise RuntimeError(
                "swapping_saver must be called after minimize() or apply_gradients(), which "
                "create the averages."
            )
        entries = _by_name(v1.global_variables() if var_list is None else var_list)
        saved = {_op_name(part) for parts in entries.values() for part in _as_list(parts)}
        for op_name in sorted(saved.intersection(partners)):
            partner = partners[op_name].op.name
            if partner not in saved:
                raise ValueError(
                    f"var_list of swapping_saver has {op_name!r}, but not {partner!r}, "
                    "with which it is swapped. Pass both or neither."
                )
        content = {}
        for key, parts in entries.items():
            saveables = [
                versions.saveable(key, partners.get(_op_name(part), part))
                for part in _as_list(parts)
            ]
            content[key] = saveables if isinstance(parts, list) else saveables[0]
        return v1.train.Saver(content, name=name, **kwargs)


def difference(average: Tensor, value: Tensor, rate: Tensor) -> Tensor:
    """Returns the tensor to subtract from an average; `rate` is 1 minus the decay factor."""
    gap = average - value
    return gap * tf.cast(rate, gap.dtype)


def _subtract(average: Variable, amount: Tensor) -> Optional[Operation]:
    with tf.device(average.device):
        return _WHOLE_VARIABLE.subtract(average, amount)


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


def _by_name(var_list: Any) -> Dict[str, Any]:
    """Returns a dict from names in a checkpoint to variables or lists of partitions."""
    if isinstance(var_list, dict):
        return {key: _partitions_or_variable(value) for key, value in var_list.items()}
    by_name = {}
    for each in var_list:
        if not hasattr(each, "name"):
            raise TypeError(f"var_list of swapping_saver has {each!r}, which is not a variable.")
        part = versions.part_of(each)
        if part is not None:
            by_name.setdefault(part.full_name, []).append(each)
        elif isinstance(_partitions_or_variable(each), list):
            by_name[each.name] = list(each)
        else:
            by_name[_op_name(each) or each.name] = each
    return by_name


def _partitions_or_variable(variable: Any) -> Any:
    if isinstance(variable, (list, tuple)) or is_partitioned(variable):
        return list(variable)
    return variable


def _as_list(parts: Any) -> List[Any]:
    return parts if isinstance(parts, list) else [parts]


def _op_name(variable: Any) -> Any:
    """Returns the name of a variable in the graph, or None for other objects in `var_list`."""
    return variable.op.name if hasattr(variable, "read_value") else None
