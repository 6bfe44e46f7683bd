"""Gradient accumulation: several small batches train like one large batch, up to rounding.

The algorithm::

    total += g                                        in each batch
    optimizer.apply_gradients(total / steps)          in every steps-th batch
    total = 0                                         in every steps-th batch

Other implementations are `MultistepAdamOptimizer` in tensor2tensor, and the gradient aggregation in
Lingvo. The technique is also called "accumulated SGD".
"""

from __future__ import annotations

from typing import Any, ClassVar, List, Optional, Sequence, Tuple

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core import argument_checks, conditions, dynamic_embeddings, gradient_checks
from legacy_opt.core.global_step import warn_if_step_is_not_counted
from legacy_opt.core.gradient_pairs import checked
from legacy_opt.core.gradient_values import some_gradients
from legacy_opt.core.hyperparameters import wide_dtype
from legacy_opt.core.slots import Slot
from legacy_opt.core.types import (
    GradAndVar,
    Gradient,
    GradsAndVars,
    Operation,
    Tensor,
    V1Optimizer,
    Variable,
)
from legacy_opt.core.variable_access import Rows, WholeVariable, after, is_resource, variable_shape
from legacy_opt.wrappers import accumulated_rows
from legacy_opt.wrappers.base import OptimizerWrapper, check_step_to_increment, graph_of_variables
from legacy_opt.wrappers.nested_optimizers import comes_from_sync_replicas, contains_sync_replicas

v1 = tf.compat.v1
_WHOLE_VARIABLE = WholeVariable()
_SUM_SLOTS = ("gradient_sum",)
_ROW_SLOTS = ("gradient_ids", "gradient_rows")
# A variable has exactly one of these slots. If the variable is partitioned by rows, the first
# partition has the slot for all partitions (see `Homes`).
_ONE_PER_VARIABLE = ("gradient_sum", "gradient_ids")
_NO_SYNC_REPLICAS = (
    "GradientAccumulationOptimizer cannot %s a SyncReplicasOptimizer, whose queues expect one "
    "update per call. SyncReplicasOptimizer accumulates gradients itself: use it alone, with "
    "replicas_to_aggregate=steps * total_num_replicas."
)


class GradientAccumulationOptimizer(OptimizerWrapper):
    """Applies the mean of `steps` gradients in every `steps`-th call of `apply_gradients`.

    In the other calls, the inner optimizer does not run. Its slots, its powers of beta and the
    variables do not change. `global_step` counts updates, not batches. Therefore learning rate
    schedules and `max_steps` of an Estimator count updates, too. With ``steps=1`` this optimizer
    behaves like the inner optimizer.

    Dense gradients are summed, in float32 if the variable has a 16-bit dtype. The ids and rows of
    sparse gradients are stored. The update passes all stored rows to the inner optimizer as one
    `tf.IndexedSlices`. Therefore the memory and time of a call depend on the number of stored rows,
    not on the size of the variable. Rows that occur only in an earlier batch are updated, too.

    A variable whose gradient is None in all calls is ignored. If a variable had a gradient in an
    earlier call, None means zero in later calls. All calls must have the same variables. To train
    two lists of variables alternately, create two optimizers.

    The accumulated gradients are slots and are saved in checkpoints, so that a restart in the
    middle of an accumulation loses nothing. These slots are created in addition to the slots of the
    inner optimizer, under this optimizer's name (`w/GradientAccumulation/…`):

    * `gradient_sum`, for variables with dense gradients, has the variable's shape and dtype
      (float32 for 16-bit variables).
    * `gradient_ids`, shape ``[n]``, int64, for variables with sparse gradients.
    * `gradient_rows`, shape ``[n, …]``, with the variable's dtype, for variables with sparse
      gradients. Ids and rows are empty after each update. If a variable is partitioned by rows, its
      first partition has the ids and rows of all partitions, so that a graph with other partitions
      can restore them.

    Another variable, `GradientAccumulation/count`, is the number of accumulated gradients.

    Do not use this optimizer with asynchronous workers that share variables, because the workers
    would also share the accumulated gradients, without locks. Do not combine it with
    SyncReplicasOptimizer, which accumulates gradients itself: increase its `replicas_to_aggregate`
    instead.

    Example::

        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            w = tf.compat.v1.get_variable("w", initializer=[1.0])
            descent = tf.compat.v1.train.GradientDescentOptimizer(0.1)
            optimizer = legacy_opt.GradientAccumulationOptimizer(descent, steps=2)
            grad = tf.compat.v1.placeholder(tf.float32, [1])
            train_op = optimizer.apply_gradients([(grad, w)])
            session.run(tf.compat.v1.global_variables_initializer())
            for value in 1.0, 3.0:
                session.run(train_op, {grad: [value]})
            print(session.run(w))  # [0.8]

    Args:
      optimizer: any `tf.compat.v1.train.Optimizer`.
      steps: the number of gradients in a mean, a positive integer. Training that continues from
        a checkpoint may use another number above 1. The next update is then applied when at least
        `steps` gradients are accumulated, with the mean of all accumulated gradients. With
        ``steps=1``, accumulated gradients in a checkpoint are ignored.
      name: the name of this optimizer and its slots.

    Raises:
      TypeError: `optimizer` is not a v1 optimizer, `steps` is not an integer, or `name` is not a
        string.
      ValueError: `steps` is not positive; or `steps` is above 1 and `optimizer` is or contains a
        SyncReplicasOptimizer.
    """

    _work_without_kernel = "adds up gradients"

    # Whether all gradients are dense. If so, `_create_slots` creates the sums before any gradient
    # is computed. `to_keras` sets this attribute, because Keras requires this order.
    only_dense: ClassVar[bool] = False

    def __init__(
        self, optimizer: V1Optimizer, steps: int, name: str = "GradientAccumulation"
    ) -> None:
        super().__init__([optimizer], name=name)
        self._homes = accumulated_rows.Homes()
        self._steps = argument_checks.positive_integer("steps", steps)
        if self._steps > 1 and contains_sync_replicas(optimizer):
            raise ValueError(_NO_SYNC_REPLICAS % "wrap")

    @property
    def steps(self) -> int:
        """The number of gradients in a mean."""
        return self._steps

    def apply_gradients(
        self,
        grads_and_vars: GradsAndVars,
        global_step: Optional[Variable] = None,
        name: Optional[str] = None,
    ) -> Optional[Operation]:
        """Accumulates the gradients, and applies their mean in every `steps`-th call.

        Args:
          grads_and_vars: a list of (gradient, variable) pairs.
          global_step: the variable to increment with each update, or None.
          name: the name of the returned operation.

        Returns:
          An operation that accumulates the gradients, and applies their mean in every `steps`-th
          run; None when executing eagerly.

        Raises:
          TypeError: a gradient and its variable differ in dtype; a variable is a Keras 3 variable;
            or `global_step` is not a variable.
          ValueError: no variable has a gradient; a gradient's shape does not fit its variable; an
            earlier call had other variables; the method is called in a distribution strategy or by
            SyncReplicasOptimizer; or XLA would have to compile sparse gradients.
        """
        if self._steps == 1:
            return super().apply_gradients(grads_and_vars, global_step=global_step, name=name)
        check_step_to_increment(global_step)  # the inner optimizer would check it only in updates
        pairs = self._checked_pairs(grads_and_vars)
        building = versions.building()
        with tf.init_scope():
            self._create_own_slots(pairs, building == versions.EAGER)
        self._refuse_sparse_gradients_in_xla(pairs)
        with v1.name_scope(name or self.get_name()) as scope:
            count = self._accumulate(pairs)
            due = count >= self._steps

        def flush() -> List[Operation]:
            return [self._flush([variable for _, variable in pairs], count, global_step)]

        if building == versions.EAGER:
            return flush()[0] if due.numpy() else None
        train_ops = v1.get_collection_ref(v1.GraphKeys.TRAIN_OP)
        before = list(train_ops)
        graph = v1.get_default_graph()
        first_new = len(graph.get_operations())
        done = conditions.run_if(due, flush)
        if global_step is not None and building == versions.GRAPH:
            operations = graph.get_operations()[first_new:]
            warn_if_step_is_not_counted(self.wrapped[0], global_step, operations)
        done = tf.group(done, name=scope)
        train_ops[:] = before + [done]  # instead of the inner optimizer's operation
        return done

    def _create_slots(self, var_list: Sequence[Variable]) -> None:
        super()._create_slots(var_list)
        if self.only_dense and self._steps > 1 and var_list:
            for variable in var_list:
                self._create_gradient_slots(variable, _SUM_SLOTS)
            self._create_count("count", var_list)

    def _create_own_slots(self, pairs: List[GradAndVar], eagerly: bool) -> None:
        """Creates the slots for gradients, and the count, if they do not exist yet."""
        if self.only_dense:
            self._check_dense(pairs)
            return
        is_later_call = self._own_count("count") is not None
        trained = [(grad, variable) for grad, variable in pairs if grad is not None]
        new_pairs = [pair for pair in trained if not self._accumulates(pair[1])]
        if new_pairs and is_later_call and not eagerly:
            _, new_variable = new_pairs[0]
            raise ValueError(
                f"{type(self).__name__} was called earlier without a gradient of the variable "
                f"{new_variable.name!r}. The operations of the earlier call would not update this "
                "variable. Make one optimizer for each list of variables."
            )
        for grad, variable in new_pairs:
            slot_names = _ROW_SLOTS if isinstance(grad, tf.IndexedSlices) else _SUM_SLOTS
            self._create_gradient_slots(variable, slot_names)
        accumulated = [pair for pair in pairs if self._accumulates(pair[1])]
        homes = self._homes.group(accumulated)
        lacks_partitions = any(
            len(members) < len(self._homes.partitions(home)) for home, members in homes
        )
        if lacks_partitions or self._number_of_accumulated_variables() > len(homes):
            raise ValueError(
                f"{type(self).__name__} accumulates gradients of variables that this call leaves "
                "out. Pass them with None as gradient, or make one optimizer for each list "
                "of variables."
            )
        self._create_count("count", [variable for _, variable in accumulated])

    def _check_dense(self, pairs: List[GradAndVar]) -> None:
        """Checks that all gradients are dense, and that no variable is new or missing."""
        trained = [(grad, variable) for grad, variable in pairs if grad is not None]
        for grad, variable in trained:
            if isinstance(grad, tf.IndexedSlices):
                raise ValueError(
                    f"{type(self).__name__} cannot accumulate the sparse gradients of "
                    f"{variable.name!r} through to_keras: Keras saves no variables whose "
                    "number of rows changes. Use a MultiOptimizer, with this optimizer for "
                    "variables with dense gradients and another optimizer for the embeddings; or "
                    "make the sparse gradients dense: tf.convert_to_tensor(gradient)."
                )
        names = sorted(variable.name for _, variable in trained)
        first_names = vars(self).setdefault("_names_of_trained", names)  # of the first call
        if names != first_names:
            raise ValueError(
                f"{type(self).__name__} accumulates gradients of {', '.join(first_names)}, "
                f"but this call has gradients of {', '.join(names)}. Make one optimizer for each "
                "list of variables."
            )

    def _create_gradient_slots(self, variable: Variable, slot_names: Sequence[str]) -> None:
        if slot_names == _ROW_SLOTS and accumulated_rows.is_cut_by_rows(variable):
            variable = self._homes.add(variable)
        for name in slot_names:
            op_name = f"{self._name}/{name}"
            _layout_of(name, variable).create(self, variable, name, op_name)

    def _accumulates(self, variable: Variable) -> bool:
        home = self._homes.home_of(variable)
        return any(self.own_slot(home, name) is not None for name in _ONE_PER_VARIABLE)

    def _number_of_accumulated_variables(self) -> int:
        graph = graph_of_variables()
        keys = [key for name in _ONE_PER_VARIABLE for key in self._slot_dict(name)]
        # In a TF1 graph, the key of a slot is a tuple that begins with the graph.
        graphs = [key[0] if isinstance(key, tuple) else None for key in keys]
        return sum(each is graph for each in graphs)

    def _create_or_restore_slot_variable(
        self, slot_variable_position: Any, slot_name: str, variable: Variable
    ) -> None:
        # For new slots of an object-based checkpoint, whose shape the base class would fix.
        if tf.executing_eagerly() and slot_name in _SUM_SLOTS + _ROW_SLOTS:
            self._create_gradient_slots(variable, [slot_name])
        super()._create_or_restore_slot_variable(slot_variable_position, slot_name, variable)

    def _accumulate(self, pairs: List[GradAndVar]) -> Tensor:
        """Accumulates the gradients. Returns the number of batches since the last update."""
        added = []
        for home, members in self._homes.group(pair for pair in pairs if pair[0] is not None):
            with tf.device(home.device):
                added.append(self._add(home, members))
        with after(*added):
            counted = _WHOLE_VARIABLE.add(self._own_count("count"), 1)
        with after(counted):
            return self._own_count("count").read_value()

    def _add(self, home: Variable, pairs: List[Tuple[Gradient, Variable]]) -> Optional[Operation]:
        total = self.own_slot(home, "gradient_sum")
        if total is None:
            stored = [self._stored_rows(home)]
            stored += [accumulated_rows.ids_and_rows(grad, variable) for grad, variable in pairs]
            ids = tf.concat([ids for ids, _ in stored], 0)
            rows = tf.concat([rows for _, rows in stored], 0)
            with after(ids, rows):
                return tf.group(*self._store_rows(home, ids, rows))
        ((grad, _),) = pairs  # partitions share only slots for rows
        if isinstance(grad, tf.IndexedSlices):
            return Rows(grad.indices).add(total, tf.cast(grad.values, total.dtype.base_dtype))
        return _WHOLE_VARIABLE.add(total, tf.cast(grad, total.dtype.base_dtype))

    def _flush(
        self, variables: Sequence[Variable], count: Tensor, global_step: Optional[Variable]
    ) -> Operation:
        """Applies the means and resets the accumulated gradients."""
        pairs = []
        for variable in variables:
            with tf.device(variable.device):
                pairs.append((self._mean(variable, count), variable))
        applied = super().apply_gradients(pairs, global_step=global_step)
        reset = []
        with after(applied):
            for home, _ in self._homes.group(pair for pair in pairs if pair[0] is not None):
                with tf.device(home.device):
                    reset += self._reset(home)
            reset.append(_WHOLE_VARIABLE.assign(self._own_count("count"), 0))
        return tf.group(*reset)

    def _mean(self, variable: Variable, count: Tensor) -> Optional[Gradient]:
        if not self._accumulates(variable):
            return None
        dtype = variable.dtype.base_dtype
        # The divisor is not the constant `steps`, because graphs replace division by a constant
        # with multiplication by its reciprocal, which rounds differently.
        divisor = tf.cast(count, wide_dtype(dtype))
        total = self.own_slot(variable, "gradient_sum")
        if total is not None:
            return tf.cast(total.read_value() / divisor, dtype)
        ids, rows = self._stored_rows_of(variable)
        rows = tf.cast(tf.cast(rows, divisor.dtype) / divisor, dtype)
        return tf.IndexedSlices(rows, ids, variable_shape(variable))

    def _reset(self, variable: Variable) -> List[Optional[Operation]]:
        total = self.own_slot(variable, "gradient_sum")
        if total is not None:
            return [_WHOLE_VARIABLE.assign(total, tf.zeros_like(total.read_value()))]
        ids, rows = self._stored_rows(variable)
        return self._store_rows(variable, ids[:0], rows[:0])

    def _stored_rows(self, variable: Variable) -> Tuple[Tensor, Tensor]:
        ids = self.own_slot(variable, "gradient_ids").read_value()
        rows = self.own_slot(variable, "gradient_rows").read_value()
        # A ref variable whose shape changes has no static shape, so the shape is set here.
        shape = accumulated_rows.rows_shape(variable)
        return tf.ensure_shape(ids, [None]), tf.ensure_shape(rows, shape)

    def _stored_rows_of(self, variable: Variable) -> Tuple[Tensor, Tensor]:
        """Returns a variable's stored ids and rows; a partition's ids count from its first row."""
        home = self._homes.home_of(variable)
        with tf.device(home.device):
            ids, rows = self._stored_rows(home)
            if not accumulated_rows.is_cut_by_rows(variable):
                return ids, rows
            part = versions.part_of(variable)
            begin, size = part.offset[0], part.shape[0]
            mask = tf.logical_and(ids >= begin, ids < begin + size)
            return tf.boolean_mask(ids, mask) - begin, tf.boolean_mask(rows, mask)

    def _store_rows(
        self, variable: Variable, ids: Tensor, rows: Tensor
    ) -> List[Optional[Operation]]:
        writes = []
        for name, value in ("gradient_ids", ids), ("gradient_rows", rows):
            slot = self.own_slot(variable, name)
            if is_resource(slot):
                writes.append(slot.assign(value, read_value=False))
            else:
                writes.append(v1.assign(slot, value, validate_shape=False).op)
        return writes

    def _checked_pairs(self, grads_and_vars: GradsAndVars) -> List[GradAndVar]:
        class_name = type(self).__name__
        if tf.distribute.has_strategy():
            raise ValueError(
                f"{class_name} does not run in a tf.distribute strategy, where each replica would "
                "need separate sums. Use it without a strategy, or with steps=1."
            )
        pairs = some_gradients(class_name, checked(class_name, grads_and_vars))
        seen = set()
        for _, variable in pairs:
            if id(variable) in seen:
                raise ValueError(f"{class_name} got the variable {variable.name!r} twice.")
            seen.add(id(variable))
            dynamic_embeddings.refuse(class_name, variable, "each batch looks up other rows")
        for grad, variable in pairs:
            if isinstance(grad, tf.IndexedSlices):
                gradient_checks.gradient(class_name, grad.values, variable, sparse=True)
        if versions.building() != versions.EAGER and comes_from_sync_replicas(pairs):
            raise ValueError(_NO_SYNC_REPLICAS % "be in")
        return pairs

    def _refuse_sparse_gradients_in_xla(self, pairs: List[GradAndVar]) -> None:
        if not versions.compiling_with_xla():
            return
        for _, variable in pairs:
            if self.own_slot(self._homes.home_of(variable), "gradient_ids") is not None:
                raise ValueError(
                    f"{type(self).__name__} stores the sparse gradients of {variable.name!r} "
                    "in a variable whose shape changes, which XLA cannot compile. Compile "
                    "without XLA: jit_compile=False."
                )


def _layout_of(name: str, variable: Variable) -> Slot:
    if name == "gradient_ids":
        return accumulated_rows.GrowingSlot(has_rows=False, dtype=tf.int64)
    if name == "gradient_rows":
        return accumulated_rows.GrowingSlot(has_rows=True)
    return Slot(dtype=wide_dtype(variable.dtype.base_dtype))
