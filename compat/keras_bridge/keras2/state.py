"""The state of the OptimizerV2 bridge: Keras owns it, the adopted optimizer says what there is."""

import contextlib
import weakref

import tensorflow as tf

from legacy_opt import versions

from ...v1_optimizers import copying
from .. import refusals
from . import clipping

Base = clipping.sums_duplicates_first(versions.optimizer_v2())


class OwnsState(Base):
    """An OptimizerV2 that owns the variables which an adopted v1 optimizer asks for.

    They may differ from the variable they belong to in dtype and shape, which Keras' own cannot.
    """

    creates_variables = False  # whether a variable that is being created is this optimizer's own
    _adopted = None
    _restoring = False

    def __init__(self, name, **keras_arguments):
        # Its variables belong there, even if a checkpoint creates them outside (as in later Keras).
        self._distribution_strategy = (
            tf.distribute.get_strategy() if tf.distribute.has_strategy() else None
        )
        super().__init__(name, **keras_arguments)
        self.non_slots = {}
        self._number_of_maker = {}  # by their names: which of several optimizers made them
        self._slot_order = {}  # its keys: those of the variables, in the order of training
        self._trained = _Variables()
        self._slots_unlike_variables = set()

    def _create_slots(self, var_list):
        for variable in var_list:
            if versions.is_keras_3_variable(variable):
                raise TypeError(
                    f"{variable.name!r} is a variable of Keras 3, and this optimizer is for "
                    "Keras 2: make it with to_keras(…, api='keras3')."
                )
            if variable.dtype != variable.dtype.base_dtype:
                raise ValueError(
                    f"{variable.name!r} is a ref variable, which Keras optimizers cannot "
                    "update. Make it with use_resource=True or "
                    "tf.compat.v1.enable_resource_variables()."
                )
        keys = [versions.slot_key(variable) for variable in var_list]
        new = [key for key in keys if key not in self._slot_order]
        with self.alone(), self._fed_for_slots(bool(new)):
            self._trained.update(zip(keys, var_list))
            with refusals.no_foreign_variables(self._adopted, self):
                self._adopted._create_slots(list(var_list))
            if new and not self._restoring:
                self._slot_order.update((key, None) for key in new)
                self._sort_weights()

    def _sort_weights(self):
        """Brings `weights` into the order of training, whatever a restore created first."""
        shared = sorted(self.non_slots, key=self._number_of_maker.get)
        ordered = [self.iterations] + [self.non_slots[name] for name in shared]
        for key in list(self._slot_order) + [k for k in self._slots if k not in self._slot_order]:
            ordered.extend(self._slots.get(key, {}).values())
        position = {id(weight): number for number, weight in enumerate(ordered)}
        self._weights.sort(key=lambda weight: position.get(id(weight), len(ordered)))

    def adopt_slot(self, variable, slot_name, shape, dtype, initial_value):
        """Returns the slot variable, which is created and restored if it is not there.

        Args:
          variable: the variable it belongs to.
          slot_name: its name.
          shape: its shape, which may differ from the variable's.
          dtype: its dtype, likewise.
          initial_value: called without arguments to get the tensor that it starts from.
        """
        if slot_name not in self._slot_names:
            self._slot_names.append(slot_name)
        if dtype != variable.dtype.base_dtype or shape.as_list() != variable.shape.as_list():
            self._slots_unlike_variables.add(slot_name)
        slots = self._slots.setdefault(versions.slot_key(variable), {})
        if slot_name not in slots:
            with self._creating(), _colocated(variable):
                slot = tf.compat.v2.Variable(
                    initial_value,
                    trainable=False,
                    name=f"{variable._shared_name}/{slot_name}",
                    dtype=dtype,
                    shape=shape,
                )
            versions.track_keras_variable(slot)
            slots[slot_name] = slot
            self._restore_slot_variable(slot_name, variable, slot)
            self._weights.append(slot)
        return slots[slot_name]

    def get_slot_names(self):
        """Returns the names of the slots; there are none before the first step."""
        names = super().get_slot_names()
        # Who loads a SavedModel makes slots of the variables' own shape and dtype, and fails to
        # restore any other. Keras starts with fresh slots there anyway.
        if self._slots_unlike_variables and versions.writing_saved_model():
            names = [name for name in names if name not in self._slots_unlike_variables]
        return names

    def adopt_non_slot(self, place, name, initial_value):
        """Returns the variable that all share, which is created and restored if need be.

        Args:
          place: the `Place` of the optimizer that asks for it.
          name: what it calls it.
          initial_value: the value to start from, or a function that returns it.
        """
        name = place.shared(name)
        if name not in self.non_slots:
            # Keras saves its own variables by these names, too.
            taken = name == "iter" or name in self._hyper
            value = copying.starting_value(initial_value)
            with self._creating():
                self.non_slots[name] = self.add_weight(
                    "v1_" + name if taken else name,
                    shape=value.shape,
                    dtype=value.dtype,
                    initializer=lambda shape, dtype=None, **_: value,
                    trainable=False,
                    aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
                )
            self._weights.append(self.non_slots[name])
            self._number_of_maker[name] = place.number
        return self.non_slots[name]

    def adopted_slot(self, variable, slot_name):
        """Returns the slot variable, or None."""
        return self._slots.get(versions.slot_key(variable), {}).get(slot_name)

    def name_of(self, variable):
        """Returns a variable's name, the same in all replicas."""
        return versions.distributed_variable(variable).name

    @contextlib.contextmanager
    def _creating(self):
        """The scope in which this optimizer's own variables are created."""
        before, self.creates_variables = self.creates_variables, True
        try:
            with self._distribution_strategy_scope():
                yield
        finally:
            self.creates_variables = before

    def _create_or_restore_slot_variable(self, slot_variable_position, slot_name, variable, **kw):
        # Keras would make a missing slot here in the variable's own shape and dtype, and whatever
        # slots the checkpoint names.
        if tf.executing_eagerly() and self.adopted_slot(variable, slot_name) is None:
            self._restoring = True
            try:
                self._create_all_weights([variable])
            finally:
                self._restoring = False
        if self.adopted_slot(variable, slot_name) is None:
            deferred = self._deferred_slot_restorations.setdefault(slot_name, {})
            deferred.setdefault(versions.slot_key(variable), []).append(slot_variable_position)
            return None
        return super()._create_or_restore_slot_variable(
            slot_variable_position=slot_variable_position,
            slot_name=slot_name,
            variable=variable,
            **kw,
        )

    if not hasattr(Base, "_create_all_weights"):

        def _create_all_weights(self, var_list):
            with self._distribution_strategy_scope():
                _ = self.iterations
                self._create_hypers()
                self._create_slots(var_list)

    if not hasattr(Base, "_distribution_strategy_scope"):

        def _distribution_strategy_scope(self):
            inside = self._distribution_strategy is None or tf.distribute.has_strategy()
            return contextlib.ExitStack() if inside else self._distribution_strategy.scope()


class _Variables(weakref.WeakValueDictionary):
    """Variables by their keys. It does not keep them alive, and a pickle does not hold them."""

    def __reduce__(self):
        return _Variables, ()


def _colocated(variable):
    return tf.distribute.get_strategy().extended.colocate_vars_with(variable)
