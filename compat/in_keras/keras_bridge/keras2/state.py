"""The slots and shared variables of bridged Keras 2 optimizers (made by `to_keras`)."""

from __future__ import annotations

import contextlib
import weakref
from typing import Any, ContextManager, Hashable, List, Optional

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core.step import alone
from legacy_opt.core.types import KerasVariable, Tensor, Variable

from ...keras_adapters import KERAS_2
from ...keras_adapters.base import refuse_ref_variable
from ...v1_optimizers.nesting import NewVariable, StateKey
from ...v1_optimizers.temporary_attributes import with_attributes
from ..protocol import StepsDone
from ..v1_in_keras import V1InKeras
from . import gradients

Base = gradients.sums_duplicates_first(versions.optimizer_v2())


class Keras2State(V1InKeras, Base):
    """An OptimizerV2 that owns the variables of a v1 optimizer.

    A slot may have another dtype and shape than its variable, unlike in Keras' own optimizers.
    """

    _adapter = KERAS_2
    _restoring = False  # whether a checkpoint is creating slots

    def _init_state(self, **keras_arguments: Any):
        # Keep the strategy, as newer versions of Keras do: variables must belong to the strategy
        # even if restoring a checkpoint creates them outside of the strategy's scope.
        self._distribution_strategy = (
            tf.distribute.get_strategy() if tf.distribute.has_strategy() else None
        )
        super(V1InKeras, self).__init__(**keras_arguments)  # of Keras
        self.non_slots = {}
        self._number_of_maker = {}  # {name of a shared variable: `StateKey.number` of its creator}
        self._slot_order = {}  # {key of a variable: None}, in the order of first training
        self._trained = _Variables()
        self._slots_unlike_variables = set()

    def _create_slots(self, var_list: List[KerasVariable]):
        for variable in var_list:
            if versions.is_keras_3_variable(variable):
                raise TypeError(
                    f"{variable.name!r} is a variable of Keras 3, and this optimizer is for "
                    "Keras 2. Make the optimizer with to_keras(…, api='keras3')."
                )
            refuse_ref_variable(variable)
        keys = [versions.slot_key(variable) for variable in var_list]
        new = [key for key in keys if key not in self._slot_order]
        with alone(self._v1.optimizer):
            self._trained.update(zip(keys, var_list))
            self._v1.create_slots(var_list, are_new=bool(new))
            if new and not self._restoring:
                self._slot_order.update((key, None) for key in new)
                self._sort_weights()

    def _sort_weights(self):
        """Sorts the slots in `weights` in the order in which their variables were first trained.

        This is necessary because restoring a checkpoint creates slots in any order.
        """
        shared = sorted(self.non_slots, key=lambda name: self._number_of_maker[name])
        ordered = [self.iterations] + [self.non_slots[name] for name in shared]
        others = [key for key in self._slots if key not in self._slot_order]
        for key in [*self._slot_order, *others]:
            ordered.extend(self._slots.get(key, {}).values())
        position = {id(weight): number for number, weight in enumerate(ordered)}
        self._weights.sort(key=lambda weight: position.get(id(weight), len(ordered)))

    def get_or_create_slot(self, variable: Variable, slot_name: str, new: NewVariable) -> Variable:
        if slot_name not in self._slot_names:
            self._slot_names.append(slot_name)
        has_equal_shape = new.shape.as_list() == variable.shape.as_list()
        if new.dtype != variable.dtype.base_dtype or not has_equal_shape:
            self._slots_unlike_variables.add(slot_name)
        slots = self._slots.setdefault(versions.slot_key(variable), {})
        if slot_name not in slots:
            with self._creating(), _colocated(variable):
                slot = tf.compat.v2.Variable(
                    new.initial_value,
                    trainable=False,
                    name=f"{variable._shared_name}/{slot_name}",
                    dtype=new.dtype,
                    shape=new.shape,
                )
            versions.track_keras_variable(slot)
            slots[slot_name] = slot
            self._restore_slot_variable(slot_name, variable, slot)
            self._weights.append(slot)
        return slots[slot_name]

    def _new_shared(self, key: StateKey, name: str, value: Tensor) -> Variable:
        # Keras saves `iterations` as "iter", and each hyperparameter under its key in `_hyper`.
        taken = name == "iter" or name in self._hyper
        with self._creating():
            variable = self.add_weight(
                "v1_" + name if taken else name,
                shape=value.shape,
                dtype=value.dtype,
                initializer=lambda shape, dtype=None, **_: value,
                trainable=False,
                aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
            )
        self._weights.append(variable)
        self._number_of_maker[name] = key.number
        return variable

    def existing_slot(self, variable: Variable, slot_name: str) -> Optional[Variable]:
        return self._slots.get(versions.slot_key(variable), {}).get(slot_name)

    def variable_name(self, variable: KerasVariable) -> str:
        return versions.distributed_variable(variable).name

    def steps_done(self) -> StepsDone:
        steps = self.iterations
        now = steps.read_value() if tf.distribute.has_strategy() else steps
        return StepsDone(variable=steps, now=now)

    def variable_key(self, variable: KerasVariable) -> Hashable:
        return versions.slot_key(variable)

    def keys_with_slots(self) -> List[Hashable]:
        return list(self._slot_order)

    @property
    def has_trained(self) -> bool:
        return bool(self._slot_order)

    def trained_variables(self) -> List[KerasVariable]:
        known = [self._trained.get(key) for key in self._slot_order]
        if any(variable is None for variable in known):
            raise ValueError(
                "Variables that the optimizer has trained are deleted. Pass the remaining "
                "variables: variables=model.trainable_variables."
            )
        return known

    def awaits_state(self) -> bool:
        # This is called only before the first training step, so any slots are from a checkpoint.
        return bool(self._slots) or any(self._deferred_slot_restorations.values())

    @contextlib.contextmanager
    def _creating(self):
        """Marks variables that are created in this scope as created by this Keras optimizer."""
        with with_attributes(self, {"creates_variables": True}), self._adapter.scope(self):
            yield

    # Saving and restoring: overridden methods of Keras.

    def get_slot_names(self) -> List[str]:
        """Returns the names of the slots that have been created."""
        names = super().get_slot_names()
        # When Keras loads a SavedModel, it creates each slot with the shape and dtype of the
        # trained variable, so restoring a slot of another shape or dtype would fail. Omit such
        # slots from a SavedModel: training that starts from a SavedModel begins with new slots
        # anyway.
        if self._slots_unlike_variables and versions.writing_saved_model():
            names = [name for name in names if name not in self._slots_unlike_variables]
        return names

    def _create_or_restore_slot_variable(
        self, slot_variable_position: Any, slot_name: str, variable: Variable, **kw: Any
    ) -> Optional[Variable]:
        # Keras would create each slot that the checkpoint contains, with the shape and dtype of the
        # variable, even if the optimizer does not use the slot. Create only the slots of the v1
        # optimizer instead.
        if tf.executing_eagerly() and self.existing_slot(variable, slot_name) is None:
            with with_attributes(self, {"_restoring": True}):
                self._create_all_weights([variable])
        if self.existing_slot(variable, slot_name) is None:
            deferred = self._deferred_slot_restorations.setdefault(slot_name, {})
            deferred.setdefault(versions.slot_key(variable), []).append(slot_variable_position)
            return None
        return super()._create_or_restore_slot_variable(
            slot_variable_position, slot_name, variable, **kw
        )

    if not hasattr(Base, "_create_all_weights"):

        def _create_all_weights(self, var_list: List[Variable]):
            with self._adapter.scope(self):
                _ = self.iterations
                self._create_hypers()
                self._create_slots(var_list)


def _colocated(variable: Variable) -> ContextManager:
    """Returns the scope of a slot's device; call this function in the strategy's scope."""
    return tf.distribute.get_strategy().extended.colocate_vars_with(variable)


class _Variables(weakref.WeakValueDictionary):
    """A dict from keys to weak references to variables; it is pickled as an empty dict."""

    def __reduce__(self):
        return _Variables, ()
