"""Keeps moving averages of what another optimizer trains, and saves these in place of it.

    the step of the optimizer inside
    average -= (1 - average_decay) * (average - w)

Source: `tf.contrib.opt.MovingAverageOptimizer`, whose constructor, arithmetic, variable names and
`swapping_saver` are kept.
"""

from __future__ import annotations

from typing import Any, Iterable, Mapping, Optional, Union

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core import argument_checks, gradient_pairs
from legacy_opt.core.hyperparameters import current
from legacy_opt.core.slots import first_value
from legacy_opt.core.types import (
    GradsAndVars,
    Hyperparameter,
    Operation,
    Saver,
    V1Optimizer,
    Variable,
)
from legacy_opt.core.variable_access import WholeVariable, after
from legacy_opt.core.variable_lists import is_partitioned
from legacy_opt.wrappers.base import OptimizerWrapper

v1 = tf.compat.v1
_AVERAGE = "moving_average"
_OP_NAME = "ExponentialMovingAverage"  # what tf.train.ExponentialMovingAverage calls them
_WHOLE = WholeVariable()


class MovingAverageOptimizer(OptimizerWrapper):
    """Keeps an average of each variable that it trains, for evaluation (tf.contrib.opt).

    Averages are often better models than the last values. Train with `swapping_saver`, whose
    checkpoints have the averages under the variables' own names; whatever reads such a checkpoint
    without knowing of averages (evaluation, export) works with them::

        optimizer = MovingAverageOptimizer(tf.compat.v1.train.MomentumOptimizer(0.1, 0.9))
        train_op = optimizer.minimize(loss, global_step)
        saver = optimizer.swapping_saver()     # for training: also when training is continued

    The average of `w` is the variable ``w/ExponentialMovingAverage`` of the same shape and dtype,
    not trainable; `average(w)` returns it. It starts at the variable's initial value; executing
    eagerly and in a `tf.function`, at the value before the first step. Sparse gradients average the
    whole table all the same.

    Done better than in the original: with `sequential_update=False` there is no race; it has slots,
    a name and `variables()` as every optimizer; variables of a second call of `apply_gradients` do
    not make it forget those of the first; the saver swaps by variable, so also in a dict of other
    names and under a `tf.distribute` strategy; and it runs eagerly and with ref variables under v2
    control flow.

    Args:
      opt: the v1 optimizer that computes and applies gradients.
      average_decay: how much of the average each step keeps, at least 0 and less than 1: a number,
        scalar tensor, variable, or callable that returns one.
      num_updates: None, or a count of updates, as the global step, in the same forms. Then the
        decay is not more than ``(1 + num_updates) / (10 + num_updates)``, so that averages leave
        the initial values behind early.
      sequential_update: whether averages take the values after the step. If not, they take those
        before it, side by side with the step, and lag behind by one.

    Raises:
      TypeError: `opt` is no v1 optimizer, or another argument has the wrong type.
      ValueError: a number is out of its range, NaN or infinite.
    """

    _optimizer = property(lambda self: self._wrapped[0])  # as the original keeps it

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
        """Returns the variable that holds the average of another; None if there is none yet."""
        return self.own_slot(variable, _AVERAGE)

    def apply_gradients(
        self,
        grads_and_vars: GradsAndVars,
        global_step: Optional[Variable] = None,
        name: Optional[str] = None,
    ) -> Optional[Operation]:
        """Applies gradients and moves the averages.

        See `tf.compat.v1.train.Optimizer.apply_gradients`.
        """
        with gradient_pairs.given(type(self).__name__, grads_and_vars) as given:
            return self._apply_and_average(given, global_step, name)

    def _apply_and_average(self, grads_and_vars, global_step, name):
        variables = [variable for grad, variable in grads_and_vars if grad is not None]
        if not versions.for_a_session():
            self._make_averages(variables)  # of the values before the first step
        if self._sequential_update:
            updated = super().apply_gradients(grads_and_vars, global_step=global_step, name=name)
            with after(updated):
                moved = self._move(self._surpluses(variables))
        else:
            surpluses = self._surpluses(variables)
            with after(*(surplus for _, surplus in surpluses)):
                updated = super().apply_gradients(grads_and_vars, global_step, name)
            moved = self._move(surpluses)
        return tf.group(updated, *moved, name="train_with_avg")

    def _surpluses(self, variables):
        """Returns pairs of an average and what it has too much."""
        averages = self._make_averages(variables)
        with v1.name_scope(_OP_NAME):
            rate = self._rate()
            surpluses = []
            for average, variable in zip(averages, variables):
                with tf.device(variable.device):
                    gap = average.read_value() - variable.read_value()
                    surpluses.append((average, gap * tf.cast(rate, gap.dtype)))
        return surpluses

    def _rate(self):
        """Returns 1 minus the decay of this step, of a number in float32, as TensorFlow does."""
        decay = current("average_decay", self._average_decay)
        if not argument_checks.is_tensor_like(decay) or self._num_updates is not None:
            decay = tf.cast(decay, tf.float32)
        if self._num_updates is not None:
            count = _value_now(current("num_updates", self._num_updates))
            count = tf.cast(count, tf.float32)
            decay = tf.minimum(decay, (1.0 + count) / (10.0 + count))
        return 1.0 - decay

    @staticmethod
    def _move(surpluses):
        if tf.distribute.has_strategy():
            return [_in_all_replicas(_subtract, *pair) for pair in surpluses]
        return [_subtract(*pair) for pair in surpluses]

    # The averages are slots.

    def _make_averages(self, variables):
        """Makes the averages that are not there yet; returns those of all."""
        if not tf.distribute.has_strategy():
            return self._create_averages(variables)
        # An Estimator makes an optimizer in each replica, of which the first has the slots.
        context = tf.distribute.get_replica_context()
        return context.merge_call(lambda _: self._create_averages(variables))

    def _create_averages(self, variables):
        with tf.init_scope():
            for variable in variables:
                if self.average(variable) is None:
                    with versions.v1_control_flow():  # also for what TensorFlow adds to the value
                        value = first_value(variable)
                        self._get_or_make_slot(variable, value, _AVERAGE, _OP_NAME)
                    if versions.for_a_session():
                        v1.add_to_collection(v1.GraphKeys.MOVING_AVERAGE_VARIABLES, variable)
            return [self.average(variable) for variable in variables]

    def _create_slots(self, var_list):
        super()._create_slots(var_list)
        self._create_averages(var_list)

    # Saving.

    def swapping_saver(
        self,
        var_list: Union[Iterable[Variable], Mapping[str, Variable], None] = None,
        name: str = "swapping_saver",
        **kwargs: Any,
    ) -> Saver:
        """Returns a Saver that saves each average under its variable's name, and vice versa.

        It restores as it saves, so training continues with the values that it had. Use it for
        training, a plain Saver for evaluation. It is to be made after all variables are.

        Args:
          var_list: the variables to save, a list, or a dict from names in the checkpoint; None
            means all global variables.
          name: the name of the Saver's operations.
          **kwargs: other arguments of `tf.compat.v1.train.Saver`.

        Returns:
          A `tf.compat.v1.train.Saver`.

        Raises:
          RuntimeError: nothing has been trained yet in this graph; or it is called eagerly or in a
            function, where TensorFlow 1's Savers are of no use.
          TypeError: `var_list` holds what is no variable.
          ValueError: a variable is to be saved without its average, or vice versa.
        """
        if versions.building() not in (versions.GRAPH, versions.CONTROL_FLOW):
            raise RuntimeError(
                "swapping_saver makes a Saver of a TF1 graph. In eager code assign "
                "optimizer.average(variable) to the variable before saving it."
            )
        swapped = {}
        for variable in v1.moving_average_variables():
            average = self.average(variable)
            if average is not None:
                swapped.update({variable.op.name: average, average.op.name: variable})
        if not swapped:
            raise RuntimeError(
                "swapping_saver must be called after minimize() or apply_gradients(), which make "
                "the averages."
            )
        entries = _by_name(v1.global_variables() if var_list is None else var_list)
        saved = {_op_name(part) for parts in entries.values() for part in _as_list(parts)}
        for each in sorted(saved.intersection(swapped)):
            if swapped[each].op.name not in saved:
                raise ValueError(
                    f"var_list of swapping_saver has {each!r}, and not "
                    f"{swapped[each].op.name!r}, with which it is swapped. Put both into it, "
                    "or neither."
                )
        content = {}
        for key, parts in entries.items():
            others = [
                versions.saveable(key, swapped.get(_op_name(part), part))
                for part in _as_list(parts)
            ]
            content[key] = others if isinstance(parts, list) else others[0]
        return v1.train.Saver(content, name=name, **kwargs)


def _subtract(average, surplus):
    with tf.device(average.device):
        return _WHOLE.subtract(average, surplus)


def _in_all_replicas(update, variable, value):
    """Updates all components of a variable; the replicas have equal values."""

    def merge(strategy, variable, value):
        value = strategy.extended.reduce_to(tf.distribute.ReduceOp.MEAN, value, variable)
        return strategy.extended.update(variable, update, args=(value,))

    return tf.distribute.get_replica_context().merge_call(merge, args=(variable, value))


def _value_now(value):
    """Returns the value that a variable has after what is waited for; any other as it is."""
    if not hasattr(value, "read_value"):
        return value
    value = value.read_value()
    # Graphs would cast the memory of a ref variable before they copy, and so wait for, its value.
    return tf.maximum(value, value.dtype.min)


def _by_name(var_list):
    """Returns a dict from names in a checkpoint to variables or, if partitioned, lists of parts."""
    if isinstance(var_list, dict):
        return {key: _parts(value) for key, value in var_list.items()}
    found = {}
    for each in var_list:
        if not hasattr(each, "name"):
            raise TypeError(f"var_list of swapping_saver holds {each!r}, which is no variable.")
        part = versions.part_of(each)
        if part is not None:
            found.setdefault(part.full_name, []).append(each)
        else:
            parts = _parts(each)
            found[each.name if isinstance(parts, list) else _op_name(each) or each.name] = parts
    return found


def _parts(variable):
    if isinstance(variable, (list, tuple)) or is_partitioned(variable):
        return list(variable)
    return variable


def _as_list(parts):
    return parts if isinstance(parts, list) else [parts]


def _op_name(variable):
    """Returns the name of a variable in a graph, None for what is to be saved besides."""
    return variable.op.name if hasattr(variable, "read_value") else None
