"""Adagrad whose accumulator decays, so that learning on a long stream does not stall.

Each time a gradient is applied, with ``p = (global_step + 1) // accumulator_decay_step``::

    if p > power:
        accumulator = max(accumulator * accumulator_decay_rate, initial_accumulator_value)
        power += 1
    accumulator += g * g
    w -= learning_rate * g / sqrt(accumulator)

Source: `AdagradDecayOptimizer` and `AdagradDecayOptimizerV2` of Alibaba's DeepRec (and PAI), with
the same constructors, slots, variable names and arithmetic. TensorFlow has no kernel for the decay.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Dict, List, Optional, Tuple

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core import argument_checks, fused_kernels
from legacy_opt.core.rule_optimizer import RuleOptimizer
from legacy_opt.core.slots import RowSlot, Slot, as_column
from legacy_opt.core.types import (
    GlobalStep,
    Gradient,
    Hyperparameter,
    Operation,
    Tensor,
    Variable,
)
from legacy_opt.core.update import Addition, RuleResult, Update
from legacy_opt.core.user_warnings import RepartitionWarning, warn
from legacy_opt.core.variable_access import (
    Access,
    Rows,
    WholeVariable,
    after,
    gather_nd,
    variable_op,
    variable_shape,
)

_MOST_AXES = 7  # GatherNd and ScatterNdAdd accept no variables with more axes.


class AdagradDecayOptimizer(RuleOptimizer):
    """Adagrad with a decaying accumulator (DeepRec).

    Slots, in this order, named after the optimizer (`w/AdagradDecay`, `w/AdagradDecay_1`):

    * `accumulator`: shape and dtype of the variable, initialized to `initial_accumulator_value`.
    * `accumulator_decay_power`: the number of decays so far; shape of the variable, dtype of the
      global step, initialized to zero. In dense updates, element 0 of the flattened slot counts the
      decays of the whole variable. (In a partition of a partitioned variable, a decay also sets
      every element whose value is below the new count to the new count.) In sparse updates, element
      r of the flattened slot counts the decays of row r.

    The accumulator decays at most once in an update. For example, a row without gradients for three
    periods decays once at each of its next three updates. The training has to increment the global
    step; a `GlobalStepWarning` is issued if no global step is passed to `minimize` or
    `apply_gradients`. In a training that is shorter than `accumulator_decay_step` (by default
    100,000 steps) nothing decays, and the results are bit for bit those of Adagrad.

    If two workers share a variable without locks, both workers may detect the same due decay, and
    apply or count it twice. This is rare, because the count is read immediately before the decay is
    written.

    Args:
      learning_rate: a number, scalar tensor or variable, or a callable that returns one of these.
      global_step: the scalar int32 or int64 variable that counts training steps; None means the
        graph's global step (`tf.compat.v1.train.get_global_step`).
      initial_accumulator_value: initial value and lower bound of the accumulator, above zero.
      accumulator_decay_step: the length of a period in steps, a positive integer.
      accumulator_decay_rate: the factor of the accumulator at each decay, between 0 and 1.
      use_locking: whether TensorFlow's Adagrad kernel and native kernels lock the variables while
        they write. (The decay before TensorFlow's kernel does not lock.)
      name: the name of the optimizer and its slots.

    Raises:
      TypeError: an argument has the wrong type.
      ValueError: an argument is NaN or out of range.
    """

    uses_global_step = True

    def __init__(
        self,
        learning_rate: Hyperparameter,
        global_step: Optional[GlobalStep],
        initial_accumulator_value: float = 0.1,
        accumulator_decay_step: int = 100000,
        accumulator_decay_rate: float = 0.9,
        use_locking: bool = False,
        name: str = "AdagradDecay",
    ) -> None:
        argument_checks.positive("initial_accumulator_value", initial_accumulator_value)
        argument_checks.open_unit_interval("accumulator_decay_rate", accumulator_decay_rate)
        self._accumulator_decay_step = argument_checks.positive_integer(
            "accumulator_decay_step", accumulator_decay_step
        )
        super().__init__(
            use_locking,
            name,
            global_step,
            learning_rate=learning_rate,
            initial_accumulator_value=initial_accumulator_value,
            accumulator_decay_rate=accumulator_decay_rate,
        )

    def slot_layouts(self, variable: Variable) -> Dict[str, Slot]:
        power = self._power_layout()
        if (variable.shape.rank or 0) > _MOST_AXES and not isinstance(power, RowSlot):
            raise ValueError(
                f"{type(self).__name__}: variable {variable.name!r} has more than "
                f"{_MOST_AXES} axes, too many for TensorFlow's operations on single elements: "
                "use AdagradDecayOptimizerV2, or reshape the variable."
            )
        return {
            "accumulator": Slot(self._initial_accumulator_value),
            "accumulator_decay_power": power,
        }

    def _power_layout(self):
        return FlatElement(0, dtype=self.global_step_variable().dtype.base_dtype)

    def rule(
        self, grad: Tensor, value: Tensor, slots: SimpleNamespace, hyper: SimpleNamespace
    ) -> RuleResult:
        due = self._period(hyper.global_step) > slots.accumulator_decay_power
        accumulator = tf.compat.v2.where(
            due, self._decayed(slots.accumulator, hyper), slots.accumulator
        )
        accumulator += grad * grad
        step = grad * hyper.learning_rate * tf.math.rsqrt(accumulator)
        return step, {
            "accumulator": accumulator,
            "accumulator_decay_power": Addition(tf.cast(due, hyper.global_step.dtype)),
        }

    def scalars_of_step(self) -> Dict[str, Tensor]:
        # Native kernels get the period as a scalar. If they computed it, its length would be a
        # constant, and each length would need another kernel.
        scalars = super().scalars_of_step()
        return dict(scalars, period=self._period(scalars["global_step"]))

    def _period(self, step):
        if "period" in self._rule_step.tensors:  # in a native kernel
            return self._rule_step.tensors["period"]
        longest = step.dtype.max  # A longer period would not fit into the dtype.
        return (step + 1) // min(self._accumulator_decay_step, longest)

    @staticmethod
    def _decayed(accumulator, hyper):
        return tf.maximum(
            accumulator * hyper.accumulator_decay_rate, hyper.initial_accumulator_value
        )

    # `fused` computes the same as `rule`: first the decays that are due, then TensorFlow's Adagrad
    # kernel.

    def fused(self, update: Update) -> Optional[Operation]:
        if fused_kernels.find("Adagrad", update.variable, update.sparse) is None:
            return NotImplemented
        if update.sparse:
            decayed = self._decay_rows(update)
        elif update.prepared is not None:
            decayed = update.prepared
        else:
            decayed = self._decay_whole([update])
        with after(*decayed):
            return fused_kernels.apply(
                "Adagrad",
                update,
                use_locking=self._use_locking,
                accum=update.slots.accumulator,
                lr=update.hyper.learning_rate,
            )

    def prepare_step(self, grads_and_vars: List[Tuple[Gradient, Variable]]) -> Dict[int, Any]:
        """Decays the accumulators of variables with dense gradients, together for each device."""
        if not self.use_fused_kernels or versions.building() == versions.EAGER:
            return {}
        by_device, seen = {}, set()
        for grad, variable in grads_and_vars:
            if isinstance(grad, tf.IndexedSlices) or variable.shape.num_elements() == 0:
                continue
            if id(variable) not in seen:  # a variable passed twice decays once
                seen.add(id(variable))
                update = self.update_for(grad, variable, WholeVariable())
                by_device.setdefault(variable.device, []).append(update)
        prepared = {}
        for device, updates in by_device.items():
            with tf.device(device):
                decayed = self._decay_whole(updates)
            prepared.update((id(update.variable), decayed) for update in updates)
        return prepared

    def _decay_whole(self, updates):
        """Decays the accumulators of variables with dense gradients where a decay is due.

        Returns:
          A list of operations or tensors. Wait for them before you use the accumulators.
        """
        period = self._period(updates[0].hyper.global_step)
        # The decay waits for the gradients. So the state does not change if the computation of a
        # gradient fails. In a TF1 graph, training steps without a due decay do not wait.
        grads = [update.grad for update in updates if tf.is_tensor(update.grad)]
        building = versions.building()
        if building == versions.GRAPH:
            # Switch and Merge are used because, with v2 control flow, tf.cond does not accept ref
            # variables. Operations that depend on output_true run only if a decay is due.
            due = self._due(period, updates)
            switch = tf.raw_ops.Switch(data=period, pred=tf.reduce_any(due))
            with after(*grads):
                due_period = tf.identity(switch.output_true)
            with after(due_period):
                # Read the counts again, because another worker may just have applied the decay.
                decayed = self._decay_due(updates, self._due(due_period, updates))
            with after(*decayed):
                done = tf.identity(due_period)
            return [tf.raw_ops.Merge(inputs=[switch.output_false, done]).output]
        with after(*grads):
            due = self._due(period, updates)
        if building == versions.EAGER:
            return self._decay_due(updates, due) if tf.reduce_any(due).numpy() else []
        if building == versions.FUNCTION:

            def decay():
                with after(*self._decay_due(updates, due)):
                    return tf.constant(True)

            return [tf.cond(tf.reduce_any(due), decay, lambda: tf.constant(False))]
        return self._decay_due(updates, due)

    def _due(self, period, updates):
        return period > tf.stack([self._read_power(update) for update in updates])

    def _decay_due(self, updates, due):
        written = []
        count = len(updates)
        # An accumulator without a due decay is multiplied by 1, and its lower bound is 0. So only
        # scalars are selected by `due`, not tensors of the accumulators' size.
        once = tf.split(tf.cast(due, updates[0].hyper.global_step.dtype), count)
        rates, floors = {}, {}
        for i, update in enumerate(updates):
            slots, access, hyper = update.slots, update.access, update.hyper
            dtype = update.variable.dtype.base_dtype
            if dtype not in rates:
                rate = tf.compat.v2.where(due, hyper.accumulator_decay_rate, 1)
                floor = tf.compat.v2.where(due, hyper.initial_accumulator_value, 0)
                rates[dtype], floors[dtype] = tf.unstack(rate, count), tf.unstack(floor, count)
            decayed = slots.accumulator.read_value() * rates[dtype][i]
            written.append(access.assign(slots.accumulator, tf.maximum(decayed, floors[dtype][i])))
            written.append(self._count(update, access, once[i]))
        return written

    def _decay_rows(self, update):
        # tf.cond is not used, because after the first period some rows decay in nearly every step.
        # The counts are read as late as possible, because other workers also decay rows.
        with after(update.grad):
            power = tf.reshape(self._read_power(update), [-1])
        due = self._period(update.hyper.global_step) > power
        overdue = Rows(tf.boolean_mask(update.access.indices, due))
        decayed = self._decayed(overdue.read(update.slots.accumulator), update.hyper)
        once = tf.ones_like(overdue.indices, dtype=update.hyper.global_step.dtype)
        with after(decayed):
            return [
                overdue.assign(update.slots.accumulator, decayed),
                self._count(update, overdue, once),
            ]

    def _read_power(self, update):
        return self._power_layout().read(
            update.slots.accumulator_decay_power, update.access, update.grad
        )

    def _count(self, update, access, times):
        return self._power_layout().add(update.slots.accumulator_decay_power, access, times)


class AdagradDecayOptimizerV2(AdagradDecayOptimizer):
    """`AdagradDecayOptimizer` with one decay count per row instead of one per element.

    Results, arguments and variable names are those of `AdagradDecayOptimizer`. The slot
    `accumulator_decay_power` has shape ``[rows]`` (``[]`` for a scalar variable). For an embedding
    table of 10 million rows of 16 elements, the slot takes 80 MB instead of 1.28 GB. The name V2 is
    DeepRec's, and is unrelated to Keras' OptimizerV2.
    """

    def _power_layout(self):
        return FlatElementOfRows(0, dtype=self.global_step_variable().dtype.base_dtype)


class FlatElement(Slot):
    """A slot with the variable's shape, of which an update uses only some elements.

    A flat element is an element of the flattened slot. A dense update uses flat element 0. A sparse
    update uses flat element r for row r. Rules may add to the slot, but not assign the slot. In a
    partition of a partitioned variable, an addition to flat element 0 also sets every element whose
    value is below the new count to the new count. So the count is not lost if the variable is later
    partitioned differently.
    """

    is_flat_element = True

    def read(self, slot: Variable, access: Access, like: Tensor) -> Tensor:
        if access.indices is not None:
            positions = self._positions(slot, access.indices)
            if versions.compiling_with_xla():  # XLA has no kernel for ResourceGatherNd
                return as_column(tf.gather_nd(slot.read_value(), positions), like)
            return as_column(gather_nd(slot, positions), like)
        if slot.shape.rank == 0:
            return access.read(slot)
        if slot.shape.is_fully_defined():
            # XLA may compile the function, but has no kernel for ResourceGatherNd.
            if versions.building() == versions.FUNCTION:
                return tf.reshape(tf.gather(slot, [0]), [-1])[0]
            return gather_nd(slot, tf.zeros([slot.shape.rank], tf.int32))
        # At runtime, the variable may have no elements. The minimum of an empty tensor is the
        # largest integer, so no decay is due then.
        return tf.reduce_min(tf.reshape(access.read(slot), [-1])[:1])

    def add(self, slot: Variable, access: Access, value: Tensor) -> Optional[Operation]:
        part = versions.part_of(slot)
        is_cut = part is not None and part.axis is not None
        if is_cut and access.indices is None:
            times = tf.reshape(value, [])
            reached = times * (self.read(slot, access, None) + times)
            return access.assign(slot, tf.maximum(slot.read_value(), reached))
        if is_cut and slot.shape.rank > 1:  # in a vector the flat elements are the rows
            warn(
                "AdagradDecayOptimizer counts the decays of rows by their position in each "
                "partition of a partitioned variable: continue from its checkpoints with the same "
                "partitions only. AdagradDecayOptimizerV2 computes the same and has no such limit.",
                RepartitionWarning,
            )
        if access.indices is not None:
            positions, updates = self._positions(slot, access.indices), tf.reshape(value, [-1])
        elif slot.shape.rank == 0:
            return access.add(slot, tf.reshape(value, []))
        elif slot.shape.is_fully_defined():
            positions, updates = tf.zeros([1, slot.shape.rank], tf.int32), tf.reshape(value, [1])
        else:
            shape = variable_shape(slot)
            first = tf.equal(tf.range(tf.reduce_prod(shape)), 0)
            return access.add(slot, tf.reshape(tf.cast(first, value.dtype) * value, shape))
        return variable_op("ScatterNdAdd", slot, indices=positions, updates=updates)

    @staticmethod
    def _positions(slot, rows):
        """Returns the indices of flat element r for each r in `rows`, shape ``[n, rank]``."""
        if slot.shape.rank == 1:
            return rows[:, tf.newaxis]
        # tf.unravel_index is not used, because in some TensorFlow versions it needs a known number
        # of rows. Of the alternatives, one division per axis was the fastest.
        known = slot.shape.is_fully_defined()
        sizes = tf.cast(slot.shape.as_list() if known else variable_shape(slot), rows.dtype)
        strides = tf.math.cumprod(sizes, exclusive=True, reverse=True)
        # A row number that is out of range must raise an error, even if the slot has a flat element
        # with this number.
        first = tf.compat.v2.where(rows < sizes[0], rows // strides[0], rows)
        if slot.shape.rank is None:
            inner = rows[:, tf.newaxis] // strides[1:] % sizes[1:]
            return tf.concat([first[:, tf.newaxis], inner], axis=1)
        positions, rest = [first], rows - first * strides[0]
        for axis in range(1, slot.shape.rank):
            positions.append(rest // strides[axis] if axis < slot.shape.rank - 1 else rest)
            rest -= positions[-1] * strides[axis]
        return tf.stack(positions, axis=1)


class FlatElementOfRows(FlatElement, RowSlot):
    """One value per row, with the same `read` and `add` as `FlatElement`."""
