"""Saves and restores the slots of bridged Keras 2 optimizers (made by `to_keras`)."""

import tensorflow as tf

from legacy_opt import versions

from . import gradients

Base = gradients.sums_duplicates_first(versions.optimizer_v2())


class Keras2Saving(Base):
    """An OptimizerV2 that restores slots in the dtypes and shapes that the v1 optimizer chooses."""

    _restoring = False

    def get_slot_names(self):
        """Returns the names of the slots that have been created."""
        names = super().get_slot_names()
        # When Keras loads a SavedModel, it creates each slot with the shape and dtype of the
        # trained variable, so restoring a slot of another shape or dtype would fail. Omit such
        # slots from a SavedModel: training that starts from a SavedModel begins with new slots
        # anyway.
        if self._slots_unlike_variables and versions.writing_saved_model():
            names = [name for name in names if name not in self._slots_unlike_variables]
        return names

    def _create_or_restore_slot_variable(self, slot_variable_position, slot_name, variable, **kw):
        # Keras would create each slot that the checkpoint contains, with the shape and dtype of the
        # variable, even if the optimizer does not use the slot. Create only the slots of the v1
        # optimizer instead.
        if tf.executing_eagerly() and self.existing_slot(variable, slot_name) is None:
            self._restoring = True
            try:
                self._create_all_weights([variable])
            finally:
                self._restoring = False
        if self.existing_slot(variable, slot_name) is None:
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
            with self._adapter.scope(self):
                _ = self.iterations
                self._create_hypers()
                self._create_slots(var_list)
