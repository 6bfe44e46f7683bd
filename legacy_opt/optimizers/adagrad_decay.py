"""Adagrad whose accumulator decays, so that learning on a long stream does not stall.

Each time a gradient g is applied to a variable w, with the number of the current period
``p = (global_step + 1) // accumulator_decay_step`` and the number of decays so far, `power`::

    if p > power:
        accumulator = max(accumulator * accumulator_decay_rate, initial_accumulator_value)
        power += 1
    accumulator += g * g
    w -= learning_rate * g / sqrt(accumulator)

Source: `AdagradDecayOptimizer` and `AdagradDecayOptimizerV2` of Alibaba's DeepRec (and PAI), with
the same constructors, slots, variable names and arithmetic. TensorFlow has no kernel for the decay.
"""

from __future__ import annotations

import contextlib
import itertools
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, Union

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core import argument_checks, conditions, fused_kernels
from legacy_opt.core.rule_optimizer import RuleOptimizer
from legacy_opt.core.slots import RowSlot, Slot
from legacy_opt.core.types import GlobalStep, Gradient, Hyperparameter, Operation, Tensor, Variable
from legacy_opt.core.update import Addition, RuleResult, Update, Values
from legacy_opt.core.variable_access import Access, Rows, WholeVariable, after, on_any_device
from legacy_opt.optimizers import flat_elements

_MOST_AXES = 7  # GatherNd and ScatterNdAdd accept no variables with more axes.


class AdagradDecayOptimizer(RuleOptimizer):
    """Adagrad with a decaying accumulator (DeepRec).

    Slots, in this order, named after the optimizer (`w/AdagradDecay`, `w/AdagradDecay_1`):

    * `accumulator`: shape and dtype of the variable, initialized to `initial_accumulator_value`.
    * `accumulator_decay_power`: the number of decays so far; shape of the variable, dtype of the
      global step, initialized to zero. In dense updates, element 0 of the flattened slot counts the
      decays of the whole variable; the partitions of a partitioned variable share the element 0 of
      the first partition. In sparse updates, element r of the flattened slot counts the decays of
      row r (of the partition).

    The accumulator decays at most once in an update. For example, a row without gradients for three
    periods decays once at each of its next three updates. The training has to increment the global
    step; a `GlobalStepWarning` is issued if no global step is passed to `minimize` or
    `apply_gradients`. In a training that is shorter than `accumulator_decay_step` (by default
    100,000 steps) nothing decays, and the results are bit for bit the same as with Adagrad.

    If two workers share a variable without locks, both may detect the same due decay, and apply or
    count the decay twice. This is rare, because the decay is written as soon as the count is read.

    Example::

        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            w = tf.compat.v1.get_variable("w", initializer=[1.0])
            step = tf.compat.v1.train.get_or_create_global_step()
            optimizer = legacy_opt.AdagradDecayOptimizer(
                0.1, step, accumulator_decay_step=1, accumulator_decay_rate=0.5
            )
            train_op = optimizer.apply_gradients([(tf.constant([2.0]), w)], global_step=step)
            session.run(tf.compat.v1.global_variables_initializer())
            for _ in range(2):  # 0.1 + 2**2 = 4.1, then 0.5 * 4.1 + 2**2 = 6.05
                session.run(train_op)
            print(session.run(optimizer.get_slot(w, "accumulator")))  # [6.05]

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
    _layout_of_counts = flat_elements.FlatElement

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
        power = self._power_layout(self._rule_step.prepared.get(id(variable)))
        rank = variable.shape.rank or 0  # None if unknown
        if rank > _MOST_AXES and not isinstance(power, RowSlot):
            raise ValueError(
                f"{type(self).__name__}: variable {variable.name!r} has more than "
                f"{_MOST_AXES} axes, too many for TensorFlow's operations on single elements: "
                "use AdagradDecayOptimizerV2, or reshape the variable."
            )
        return {
            "accumulator": Slot(self._initial_accumulator_value),
            "accumulator_decay_power": power,
        }

    def _power_layout(self, prepared: Any = None) -> flat_elements.FlatElement:
        shared = prepared if isinstance(prepared, flat_elements.SharedCount) else None
        dtype = self.global_step_variable().dtype.base_dtype
        return self._layout_of_counts(0, dtype=dtype, shared=shared)

    def rule(self, grad: Tensor, value: Tensor, slots: Values, hyper: Values) -> RuleResult:
        due = hyper.period > slots.accumulator_decay_power
        decayed = self._decayed(slots.accumulator, hyper)
        accumulator = tf.compat.v2.where(due, decayed, slots.accumulator)
        accumulator += grad * grad
        change = grad * hyper.learning_rate * tf.math.rsqrt(accumulator)
        count = Addition(tf.cast(due, hyper.global_step.dtype))
        return change, {"accumulator": accumulator, "accumulator_decay_power": count}

    def once_per_step(self, hyper: Values) -> Dict[str, Tensor]:
        step = hyper.global_step
        decay_step = min(self._accumulator_decay_step, step.dtype.max)  # must fit into the dtype
        return {"period": (step + 1) // decay_step}

    def pure_rule(self, variable: Variable, sparse: bool) -> Callable[..., RuleResult]:
        if sparse:  # without kernels `FlatElement.add` warns, but a pure function does not call it
            flat_elements.warn_of_counts_by_position(self._power_layout(), variable)
        return super().pure_rule(variable, sparse)

    @staticmethod
    def _decayed(accumulator: Tensor, hyper: Values) -> Tensor:
        decayed = accumulator * hyper.accumulator_decay_rate
        return tf.maximum(decayed, hyper.initial_accumulator_value)

    # `fused` computes the same as `rule`: the due decays, then TensorFlow's Adagrad kernel.

    def fused(self, update: Update) -> Optional[Operation]:
        if not self._has_kernel(update.variable, update.sparse):
            return NotImplemented
        if update.sparse:
            decayed = self._decay_rows(update)
        elif update.prepared is not None:
            decayed = update.prepared
        else:
            decayed = self._decay_whole([[update]])
        with after(*decayed):
            return fused_kernels.apply(
                "Adagrad",
                update,
                use_locking=self._use_locking,
                accum=update.slots.accumulator,
                lr=update.hyper.learning_rate,
            )

    def _has_kernel(self, variable: Variable, sparse: bool) -> bool:
        kernel = fused_kernels.find("Adagrad", variable, sparse)
        return self.use_fused_kernels and kernel is not None

    def prepare_step(self, grads_and_vars: List[Tuple[Gradient, Variable]]) -> Dict[int, Any]:
        """Decays the accumulators of variables with dense gradients, together for each device.

        If TensorFlow has no kernel, only reads the counts that the parts of a variable share.
        """
        if versions.building() == versions.EAGER:
            return {}
        updates = {}  # by id of the variable: a variable that is passed twice decays once
        for grad, variable in grads_and_vars:
            if isinstance(grad, tf.IndexedSlices) or variable.shape.num_elements() == 0:
                continue
            may_share_count = versions.part_of(variable) is not None
            is_needed = may_share_count or self._has_kernel(variable, sparse=False)
            if is_needed and id(variable) not in updates:
                updates[id(variable)] = self._update_for(grad, variable, WholeVariable())
        groups_by_device = {}
        prepared = {}
        for group in flat_elements.group_by_variable(updates.values()):
            first = group[0]
            if self._has_kernel(first.variable, sparse=False):
                groups_by_device.setdefault(first.variable.device, []).append(group)
            elif first.prepared is not None:
                with tf.device(first.variable.device):
                    count = self._read_power(first)
                for update in group:
                    prepared[id(update.variable)] = update.prepared._replace(value=count)
        for device, groups in groups_by_device.items():
            with tf.device(device):
                decayed = self._decay_whole(groups)
            prepared.update((id(each.variable), decayed) for each in itertools.chain(*groups))
        return prepared

    def _decay_whole(self, groups: List[List[Update]]) -> Sequence[Union[Operation, Tensor, None]]:
        """Decays the accumulators of variables with dense gradients where a decay is due.

        A group contains one variable's updates. Users of the accumulators must wait for the result.
        """
        updates = list(itertools.chain(*groups))
        period = updates[0].hyper.period
        # The decay waits for the gradients, so that nothing changes if computing a gradient fails.
        # In a TF1 graph, training steps without a due decay do not wait.
        grads = [update.grad for update in updates if tf.is_tensor(update.grad)]
        building = versions.building()
        if building == versions.GRAPH:

            def decay_now(due_period: Tensor) -> Sequence[Union[Operation, Tensor, None]]:
                # Read the counts again, because another worker may just have applied the decay.
                return self._decay_due(groups, self._due(due_period, groups))

            is_any_due = tf.reduce_any(self._due(period, groups))
            return [conditions.run_by_switch(is_any_due, period, decay_now, waits_for=grads)]
        with after(*grads):
            due = self._due(period, groups)
        if building in (versions.EAGER, versions.FUNCTION):
            return [conditions.run_if(tf.reduce_any(due), lambda: self._decay_due(groups, due))]
        return self._decay_due(groups, due)

    def _due(self, period: Tensor, groups: List[List[Update]]) -> Tensor:
        """Returns a tensor that is True for each variable with a due decay."""
        return period > tf.stack([self._read_power(group[0]) for group in groups])

    def _decay_due(
        self, groups: List[List[Update]], due: Tensor
    ) -> Sequence[Union[Operation, Tensor, None]]:
        writes = []
        step = groups[0][0].hyper.global_step
        # An accumulator without a due decay is multiplied by 1, and its lower bound is 0. So only
        # scalars are selected by `due`, not tensors of the accumulators' size.
        increments = tf.split(tf.cast(due, step.dtype), len(groups))
        rates = {}  # {dtype: [a scalar for each group]}
        floors = {}  # in the same form
        for i, group in enumerate(groups):
            for update in group:
                accumulator = update.slots.accumulator
                hyper = update.hyper
                dtype = update.variable.dtype.base_dtype
                if dtype not in rates:
                    rate = tf.compat.v2.where(due, hyper.accumulator_decay_rate, 1)
                    floor = tf.compat.v2.where(due, hyper.initial_accumulator_value, 0)
                    rates[dtype] = tf.unstack(rate, len(groups))
                    floors[dtype] = tf.unstack(floor, len(groups))
                with _on_device_of(update):
                    decayed = accumulator.read_value() * rates[dtype][i]
                    decayed = tf.maximum(decayed, floors[dtype][i])
                    writes.append(update.access.assign(accumulator, decayed))
                    writes.append(self._add_to_power(update, update.access, increments[i]))
        return writes

    def _decay_rows(self, update: Update) -> Sequence[Union[Operation, Tensor, None]]:
        # tf.cond is not used, because after the first period some rows decay in nearly every step.
        # The counts are read as late as possible, because other workers also decay rows.
        with after(update.grad):
            power = tf.reshape(self._read_power(update), [-1])
        due = update.hyper.period > power
        overdue = Rows(tf.boolean_mask(update.access.indices, due))
        decayed = self._decayed(overdue.read(update.slots.accumulator), update.hyper)
        ones = tf.ones_like(overdue.indices, dtype=update.hyper.global_step.dtype)
        with after(decayed):
            return [
                overdue.assign(update.slots.accumulator, decayed),
                self._add_to_power(update, overdue, ones),
            ]

    def _read_power(self, update: Update) -> Tensor:
        slot = update.slots.accumulator_decay_power
        return self._power_layout().read(slot, update.access, update.grad)

    def _add_to_power(
        self, update: Update, access: Access, increment: Tensor
    ) -> Optional[Operation]:
        layout = self._power_layout(update.prepared)
        return layout.add(update.slots.accumulator_decay_power, access, increment)


@contextlib.contextmanager
def _on_device_of(update: Update) -> Iterator[None]:
    """A scope on the device of a part; other variables are already on the current device."""
    with contextlib.ExitStack() as scope:
        if update.prepared is not None:
            scope.enter_context(on_any_device())
            scope.enter_context(tf.device(update.variable.device))
        yield


class AdagradDecayOptimizerV2(AdagradDecayOptimizer):
    """`AdagradDecayOptimizer` with one decay count per row instead of one per element.

    Results, arguments and variable names are those of `AdagradDecayOptimizer`. The slot
    `accumulator_decay_power` has shape ``[rows]`` (``[]`` for a scalar variable). For an embedding
    table of 10 million rows of 16 elements, the slot takes 80 MB instead of 1.28 GB. The name V2 is
    DeepRec's, and is unrelated to Keras' OptimizerV2.

    Example::

        with tf.Graph().as_default():
            table = tf.compat.v1.get_variable("table", [1000, 300])
            step = tf.compat.v1.train.get_or_create_global_step()
            optimizer = legacy_opt.AdagradDecayOptimizerV2(0.1, step)
            train_op = optimizer.minimize(tf.reduce_sum(tf.gather(table, [3, 9])), global_step=step)
            print(optimizer.get_slot(table, "accumulator_decay_power").shape.as_list())  # [1000]
    """

    _layout_of_counts = flat_elements.FlatElementOfRows
