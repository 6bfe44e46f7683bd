"""Gradient accumulation: several small batches train as one large batch, up to rounding.

    total += g                                        in each batch
    optimizer.apply_gradients(total / steps)          in each batch of number steps, 2 * steps, …
    total = 0

Source: a technique of many names: `MultistepAdamOptimizer` of tensor2tensor, the gradient
aggregation of Lingvo, "accumulated SGD". Here it holds any v1 optimizer.
"""

from __future__ import annotations

from typing import ClassVar, Optional

import numpy as np
import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core import argument_checks, gradient_checks
from legacy_opt.core.gradient_pairs import checked
from legacy_opt.core.hyperparameters import wide_dtype
from legacy_opt.core.slots import Slot
from legacy_opt.core.types import GradsAndVars, Operation, V1Optimizer, Variable
from legacy_opt.core.variable_access import Rows, WholeVariable, after, is_resource, variable_shape
from legacy_opt.wrappers.accumulated_rows import (
    GrowingSlot,
    Homes,
    ids_and_rows,
    is_cut_by_rows,
    rows_shape,
)
from legacy_opt.wrappers.base import OptimizerWrapper, check_step_to_advance
from legacy_opt.wrappers.nested_optimizers import comes_from_sync_replicas, holds_sync_replicas

v1 = tf.compat.v1
_WHOLE = WholeVariable()
_SUM = ("gradient_sum",)
_ROWS = ("gradient_ids", "gradient_rows")
_ONE_EACH = ("gradient_sum", "gradient_ids")  # of which each variable has one
_NO_SYNC_REPLICAS = (
    "GradientAccumulationOptimizer cannot %s a SyncReplicasOptimizer, whose queues go by one "
    "update for each call. It accumulates itself: without this optimizer, pass it "
    "replicas_to_aggregate=steps * total_num_replicas."
)


class GradientAccumulationOptimizer(OptimizerWrapper):
    """Hands on the mean of `steps` gradients, in every `steps`-th call of `apply_gradients`.

    In the calls between nothing of the optimizer inside runs: its slots, powers of beta and the
    variables stay as they are. `global_step` counts updates, not batches, and with it all that goes
    by it: decays, schedules, `max_steps` of an Estimator. With ``steps=1`` this is the optimizer
    inside.

    Dense gradients are summed, those of 16-bit variables in float32. Sparse ones are kept as they
    come, ids and rows, and handed on as one `tf.IndexedSlices` with all of them, as one large
    batch has it: memory and time of a call go by the rows since the last update, not by the table,
    and rows that only an earlier batch touched are updated, too.

    A variable whose gradient is None is left out. One that has had a gradient in another call
    counts as zero in this one; pass it with None. All calls need the same variables: to train two
    lists of variables in turns, make two optimizers.

    The sums are slots and are in checkpoints, so that a restart in the middle of an accumulation
    loses nothing. Slots, each under the name of this optimizer (`w/GradientAccumulation/…`), next
    to those that the optimizer inside makes:

    * `gradient_sum`: of variables with dense gradients; the variable's shape and dtype (float32
      for 16-bit variables).
    * `gradient_ids`, `gradient_rows`: of variables with sparse gradients; ``[n]``, int64, and
      ``[n, …]``, of the variable's dtype. Empty after each update. The parts of a variable that is
      partitioned by rows keep theirs together, beside the first of them, so that a graph with other
      partitions goes on with them.

    The number of gradients in them is one more variable, `GradientAccumulation/count`.

    Workers that share variables without waiting for each other would share the sums, which nothing
    locks. Where SyncReplicasOptimizer is used, it accumulates itself: raise its
    `replicas_to_aggregate`.

    Args:
      optimizer: any `tf.compat.v1.train.Optimizer`.
      steps: of how many gradients the mean is taken, a positive integer. A checkpoint may be
        continued with another number above 1: an update takes the mean of what is there, as soon as
        these are as many or more. With 1 it does not read what is kept in the checkpoint.
      name: the name of this optimizer and its slots.

    Raises:
      TypeError: `optimizer` is no v1 optimizer, `steps` no integer, `name` no string.
      ValueError: `steps` is not positive; `optimizer` is or holds a SyncReplicasOptimizer.
    """

    # Whether there are dense gradients only, whose sums are made where slots are asked for; so
    # Keras wants it, which makes and saves all state before it knows any gradient.
    only_dense: ClassVar[bool] = False

    def __init__(
        self, optimizer: V1Optimizer, steps: int, name: str = "GradientAccumulation"
    ) -> None:
        super().__init__([optimizer], name=name)
        self._homes = Homes()
        self._steps = argument_checks.positive_integer("steps", steps)
        if self._steps > 1 and holds_sync_replicas(optimizer):
            raise ValueError(_NO_SYNC_REPLICAS % "hold")

    @property
    def steps(self) -> int:
        """Of how many gradients the mean is taken."""
        return self._steps

    def apply_gradients(
        self,
        grads_and_vars: GradsAndVars,
        global_step: Optional[Variable] = None,
        name: Optional[str] = None,
    ) -> Optional[Operation]:
        """Adds to the sums, and every `steps` calls applies their mean.

        Args:
          grads_and_vars: list of (gradient, variable) pairs.
          global_step: the variable to advance by one with each update, or None.
          name: the name of the returned operation.

        Returns:
          An operation that does both, for a Session; None when executing eagerly.

        Raises:
          TypeError: a gradient's dtype is not its variable's; a variable is one of Keras 3; or
            `global_step` is no variable.
          ValueError: no variable has a gradient; a gradient's shape does not fit its variable; the
            variables are not those of the calls before; a distribution strategy or
            SyncReplicasOptimizer calls; or XLA is to compile sparse gradients.
        """
        if self._steps == 1:
            return super().apply_gradients(grads_and_vars, global_step=global_step, name=name)
        check_step_to_advance(global_step)  # which is used only when an update is due
        pairs = self._checked(grads_and_vars)
        building = versions.building()
        with tf.init_scope():
            self._create_own(pairs, building == versions.EAGER)
        self._refuse_what_xla_cannot(pairs)
        with v1.name_scope(name or self.get_name()) as scope:
            count = self._accumulate(pairs)
            due = count >= self._steps
        variables = [variable for _, variable in pairs]
        if building == versions.EAGER:
            return self._flush(variables, count, global_step) if due.numpy() else None
        trained = v1.get_collection_ref(v1.GraphKeys.TRAIN_OP)
        before = list(trained)
        choose = _choose_in_a_function if building == versions.FUNCTION else _choose_in_a_graph
        done = choose(due, lambda: self._flush(variables, count, global_step))
        done = tf.group(done, name=scope)
        trained[:] = before + [done]  # not the operation inside, which is half of it
        return done

    # What is kept.

    def _create_slots(self, var_list):
        super()._create_slots(var_list)
        if self.only_dense and self._steps > 1 and var_list:
            for variable in var_list:
                self._create_kept(variable, _SUM)
            self._create_count(var_list)

    def _create_count(self, variables):
        first = min(variables, key=lambda variable: variable.name)
        self._create_non_slot_variable(np.int64(0), self._count_name(), colocate_with=first)

    def _create_own(self, pairs, eagerly):
        """Makes what is not there yet."""
        if self.only_dense:
            self._check_dense(pairs)
            return
        name, graph = self._count_name(), _graph_of_variables()
        counts = self._get_non_slot_variable(name, graph=graph) is not None
        trained = [(grad, variable) for grad, variable in pairs if grad is not None]
        new = [pair for pair in trained if not self._keeps(pair[1])]
        if new and counts and not eagerly:
            raise ValueError(
                f"{type(self).__name__} was called before without a gradient of the variable "
                f"{new[0][1].name!r}, and what was built then would not update it. Make one "
                "optimizer for each list of variables."
            )
        for grad, variable in new:
            self._create_kept(variable, _ROWS if isinstance(grad, tf.IndexedSlices) else _SUM)
        known = [variable for _, variable in pairs if self._keeps(variable)]
        homes = self._homes.group(pair for pair in pairs if self._keeps(pair[1]))
        left_out = any(len(members) < len(self._homes.together(home)) for home, members in homes)
        if left_out or self._number_of_variables_kept() > len(homes):
            raise ValueError(
                f"{type(self).__name__} keeps gradients of variables that this call leaves "
                "out. Pass them with None as gradient, or make one optimizer for each list "
                "of variables."
            )
        self._create_count(known)

    def _check_dense(self, pairs):
        """Checks what is summed where `_create_slots` has made the sums."""
        trained = [(grad, variable) for grad, variable in pairs if grad is not None]
        for grad, variable in trained:
            if isinstance(grad, tf.IndexedSlices):
                raise ValueError(
                    f"{type(self).__name__} cannot keep the sparse gradients of "
                    f"{variable.name!r} through to_keras: Keras saves no variables whose "
                    "number of rows changes. Accumulate the dense ones alone, inside a "
                    "MultiOptimizer whose other optimizer has the embeddings, or make these "
                    "dense: tf.convert_to_tensor(gradient)."
                )
        names = sorted(variable.name for _, variable in trained)
        if names != vars(self).setdefault("_names_of_trained", names):
            raise ValueError(
                f"{type(self).__name__} keeps gradients of other variables than those of this "
                f"call: {', '.join(self._names_of_trained)}, and here are {', '.join(names)}. "
                "Make one optimizer for each list of variables."
            )

    def _create_kept(self, variable, slot_names):
        if slot_names == _ROWS and is_cut_by_rows(variable):
            variable = self._homes.add(variable)
        for name in slot_names:
            op_name = f"{self._name}/{name}"
            _layout(name, variable).create(self, variable, name, op_name)

    def _keeps(self, variable):
        home = self._homes.of(variable)
        return any(self.own_slot(home, name) is not None for name in _ONE_EACH)

    def _number_of_variables_kept(self):
        graph = _graph_of_variables()
        keys = [key for name in _ONE_EACH for key in self._slot_dict(name)]
        return sum(graph is (key[0] if isinstance(key, tuple) else None) for key in keys)

    def _count_name(self):
        return self._name + "/count"

    def _count(self):
        with tf.init_scope():
            return self._get_non_slot_variable(self._count_name(), graph=_graph_of_variables())

    def _create_or_restore_slot_variable(self, slot_variable_position, slot_name, variable):
        # An object checkpoint meets a variable that has no slots yet. TensorFlow would make them
        # in the shape that they have there.
        if tf.executing_eagerly() and slot_name in _SUM + _ROWS:
            self._create_kept(variable, [slot_name])
        super()._create_or_restore_slot_variable(slot_variable_position, slot_name, variable)

    # One call.

    def _accumulate(self, pairs):
        """Adds the gradients to what is kept; returns the number of gradients in it by then."""
        added = []
        for home, members in self._homes.group(pair for pair in pairs if pair[0] is not None):
            with tf.device(home.device):
                added.append(self._add(home, members))
        with after(*added):
            counted = _WHOLE.add(self._count(), 1)
        with after(counted):
            return self._count().read_value()

    def _add(self, home, pairs):
        total = self.own_slot(home, "gradient_sum")
        if total is None:
            ids, rows = zip(self._kept_rows(home), *(ids_and_rows(*pair) for pair in pairs))
            ids, rows = tf.concat(ids, 0), tf.concat(rows, 0)
            with after(ids, rows):
                return tf.group(*self._keep_rows(home, ids, rows))
        ((grad, _),) = pairs
        if isinstance(grad, tf.IndexedSlices):
            return Rows(grad.indices).add(total, tf.cast(grad.values, total.dtype.base_dtype))
        return _WHOLE.add(total, tf.cast(grad, total.dtype.base_dtype))

    def _flush(self, variables, count, global_step):
        """Applies the means and forgets them."""
        pairs = []
        for variable in variables:
            with tf.device(variable.device):
                pairs.append((self._mean(variable, count), variable))
        applied = super().apply_gradients(pairs, global_step=global_step)
        forgotten = []
        with after(applied):
            for home, _ in self._homes.group(pair for pair in pairs if pair[0] is not None):
                with tf.device(home.device):
                    forgotten += self._forget(home)
            forgotten.append(_WHOLE.assign(self._count(), 0))
        return tf.group(*forgotten)

    def _mean(self, variable, count):
        if not self._keeps(variable):
            return None
        dtype = variable.dtype.base_dtype
        # A division by a constant is what graphs turn into a product with other last bits.
        divisor = tf.cast(count, wide_dtype(dtype))
        total = self.own_slot(variable, "gradient_sum")
        if total is not None:
            return tf.cast(total.read_value() / divisor, dtype)
        ids, rows = self._kept_rows_of(variable)
        rows = tf.cast(tf.cast(rows, divisor.dtype) / divisor, dtype)
        return tf.IndexedSlices(rows, ids, variable_shape(variable))

    def _forget(self, variable):
        total = self.own_slot(variable, "gradient_sum")
        if total is not None:
            return [_WHOLE.assign(total, tf.zeros_like(total.read_value()))]
        ids, rows = self._kept_rows(variable)
        return self._keep_rows(variable, ids[:0], rows[:0])

    def _kept_rows(self, variable):
        ids = self.own_slot(variable, "gradient_ids").read_value()
        rows = self.own_slot(variable, "gradient_rows").read_value()
        # A ref variable that changes its shape tells none.
        return tf.ensure_shape(ids, [None]), tf.ensure_shape(rows, rows_shape(variable))

    def _kept_rows_of(self, variable):
        """Returns the ids and rows that are a variable's own, of a part those of the part."""
        home = self._homes.of(variable)
        with tf.device(home.device):
            ids, rows = self._kept_rows(home)
            if not is_cut_by_rows(variable):
                return ids, rows
            part = versions.part_of(variable)
            begin, size = part.offset[0], part.shape[0]
            its = tf.logical_and(ids >= begin, ids < begin + size)
            return tf.boolean_mask(ids, its) - begin, tf.boolean_mask(rows, its)

    def _keep_rows(self, variable, ids, rows):
        writes = []
        for name, value in ("gradient_ids", ids), ("gradient_rows", rows):
            slot = self.own_slot(variable, name)
            if is_resource(slot):
                writes.append(slot.assign(value, read_value=False))
            else:
                writes.append(v1.assign(slot, value, validate_shape=False).op)
        return writes

    # What is refused.

    def _checked(self, grads_and_vars):
        me = type(self).__name__
        if tf.distribute.has_strategy():
            raise ValueError(
                f"{me} does not run in a tf.distribute strategy, as the replicas would need "
                "sums of their own. Use it without, or with steps=1."
            )
        pairs = checked(me, grads_and_vars)
        if not any(grad is not None for grad, _ in pairs):
            raise ValueError(
                f"{me} got no gradient for any of the variables: "
                f"{', '.join(variable.name for _, variable in pairs) or 'there are none'}."
            )
        seen = set()
        for _, variable in pairs:
            if id(variable) in seen:
                raise ValueError(f"{me} got the variable {variable.name!r} twice.")
            seen.add(id(variable))
        for grad, variable in pairs:
            if isinstance(grad, tf.IndexedSlices):
                gradient_checks.gradient(me, grad.values, variable, sparse=True)
        if versions.building() != versions.EAGER and comes_from_sync_replicas(pairs):
            raise ValueError(_NO_SYNC_REPLICAS % "be in")
        return pairs

    def _refuse_what_xla_cannot(self, pairs):
        if not versions.compiling_with_xla():
            return
        for _, variable in pairs:
            if self.own_slot(self._homes.of(variable), "gradient_ids") is not None:
                raise ValueError(
                    f"{type(self).__name__} keeps the sparse gradients of {variable.name!r} "
                    "in a variable whose shape changes, which XLA cannot compile. Compile "
                    "without XLA: jit_compile=False."
                )


def _layout(name, variable):
    if name == "gradient_ids":
        return GrowingSlot(of_rows=False, dtype=tf.int64)
    if name == "gradient_rows":
        return GrowingSlot(of_rows=True)
    return Slot(dtype=wide_dtype(variable.dtype.base_dtype))


def _graph_of_variables():
    """Returns the TF1 graph in which variables are made, None if they are made eagerly."""
    with tf.init_scope():
        return None if tf.executing_eagerly() else v1.get_default_graph()


def _choose_in_a_graph(due, flush):
    """Builds what runs if `due` in a TF1 graph; returns a tensor that waits for it.

    With a Switch by hand: tf.cond cannot hold ref variables when v2 control flow is on. What
    depends on `output_true` runs only if it is time.
    """
    switch = tf.raw_ops.Switch(data=due, pred=due)
    time = tf.identity(switch.output_true)
    with after(time):
        flushed = flush()
    with after(flushed):
        done = tf.identity(time)
    return tf.raw_ops.Merge(inputs=[switch.output_false, done]).output


def _choose_in_a_function(due, flush):
    """The same inside `tf.function` and the like, where all variables are resources."""

    def flushed():
        with after(flush()):
            return tf.constant(True)

    return tf.cond(due, flushed, lambda: tf.constant(False))
