"""The adapter of Keras 2: `OptimizerV2`."""

import tensorflow as tf

from legacy_opt import versions

from .base import KerasAdapter, other_variables


class Adapter(KerasAdapter):
    """See `KerasAdapter`."""

    generation, api, title = 2, "optimizer_v2", "Keras 2"

    @property
    def keras(self):
        return versions.keras_2()

    @property
    def base(self):
        return versions.optimizer_v2()

    @property
    def optimizers(self):
        home = self.keras.optimizers
        return getattr(home, "legacy", home)  # from Keras 2.11 on, OptimizerV2 is in `legacy`

    @property
    def name(self):
        return "tf_keras" if self.keras.__name__ == "tf_keras" else "tf.keras"

    def raw_rate(self, optimizer):
        return optimizer._hyper["learning_rate"]

    def rate_now(self, optimizer):
        return float(self.keras.backend.get_value(optimizer._decayed_lr(tf.float32)))

    def base_arguments(self, optimizer):
        names = ("clipnorm", "clipvalue", "global_clipnorm")
        found = {name: getattr(optimizer, name, None) for name in names}
        found["decay"] = optimizer._initial_decay or None
        found["gradient_aggregator"] = versions.own_aggregator(optimizer)
        found["gradient_transformers"] = getattr(optimizer, "gradient_transformers", None) or None
        return {name: given for name, given in found.items() if given is not None}

    def variables_of(self, bridged, given):
        if given is None:
            return bridged.trained_variables()
        started = bridged.keys_with_slots()
        keys = [bridged.variable_key(variable) for variable in given]
        if any(key not in keys for key in started):
            raise other_variables(len(started), len(given))
        self.build(bridged, given)  # creates slots for variables that have none
        return given

    def slots(self, plain, variables, names):
        return {
            name: [plain.get_slot(variable, name) for variable in variables]
            for name in names
            if name in plain.get_slot_names()
        }

    def trained_by(self, plain, given):
        is_awaited = any(plain._deferred_slot_restorations.values())
        if not plain._slots and not is_awaited and not given:
            return []
        if given is None:
            raise ValueError(
                "A Keras 2 optimizer does not store which variables its state belongs to. Pass "
                "these variables: variables=model.trainable_variables."
            )
        if is_awaited or not plain._slots:
            self.build(plain, given)
        keys = {versions.slot_key(variable) for variable in given}
        if plain._slots and set(plain._slots) != keys:
            raise other_variables(len(plain._slots), len(given))
        return given

    def pairs(self, source, target):
        yield source.iterations, target.iterations
