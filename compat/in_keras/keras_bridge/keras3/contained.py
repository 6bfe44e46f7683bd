"""The common base of Keras 3 optimizers that contain another optimizer, of v1 or of Keras 2."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core.types import KerasOptimizer, KerasVariable, Variable

from ...keras_adapters import KERAS_3
from .gradients import Gradients, as_gradient, clipped

_EXCLUDED = "exclude_from_weight_decay"
CLIPPING = ("clipnorm", "clipvalue", "global_clipnorm")
EMA = ("ema_momentum", "ema_overwrite_frequency")
# Options of Keras whose names hyperparameters may have: Keras then does not read the options.
SHARED_WITH_KERAS = ("weight_decay", *CLIPPING, *EMA)


class ContainsOptimizer:
    """Mixin for a Keras 3 optimizer that updates variables by the code of a contained optimizer."""

    contained: Any
    # Excluded from weight decay: a pattern of names, and positions in a list of "of" variables.
    _undecayed: Any = {"names": None, "numbers": [], "of": 0}

    @property
    def has_trained(self) -> bool:
        """Whether the optimizer was built for variables."""
        return bool(self._trainable_variables)

    def build(self, variables: Iterable[KerasVariable]):
        """Creates all state for these variables; no other variables can be trained afterwards.

        Args:
          variables: a list of keras.Variable or tf.Variable. When Keras loads a model from
            .h5, it passes an empty list, for which no slots are created.
        """
        self._check_stateful()
        variables = list(variables)
        if self.built and self._trainable_variables:
            self._check_variables_are_known(variables)
            return
        if tf.distribute.has_strategy() and not tf.distribute.in_cross_replica_context():
            # In a replica, restoring cannot assign a checkpoint's values to the variables of all
            # replicas, so switch to the cross-replica context first.
            context = tf.distribute.get_replica_context()
            context.merge_call(lambda strategy: self._build_for(variables))
        else:
            self._build_for(variables)

    def _build_for(self, variables: List[KerasVariable]):
        with tf.init_scope(), KERAS_3.scope(self), self._saved.restoring_what_is_created():
            self._restore_exclusions(variables)  # Keras 3.16's `build` reads them
            super().build(variables)
            if variables:
                self._create_state([versions.tf_variable(each) for each in variables])

    def _create_state(self, targets: List[Variable]):
        """Creates the state of the contained optimizer."""
        raise NotImplementedError

    def _restore_exclusions(self, variables: List[KerasVariable]):
        """Excludes the variables from weight decay that the configuration excludes."""
        if variables and "_exclude_from_weight_decay" not in vars(self):
            numbers = self._undecayed["numbers"]
            count = self._undecayed["of"]
            if numbers and count != len(variables):
                raise ValueError(
                    f"The configuration is for {count} variables, of which it excludes some from "
                    f"weight decay, and not for {len(variables)}. Call exclude_from_weight_decay."
                )
            keys = {self._var_key(variables[number]) for number in numbers}
            vars(self)["_exclude_from_weight_decay"] = keys

    def get_config(self) -> Dict[str, Any]:
        excluded = dict(self._undecayed)
        config = super().get_config()
        pattern = vars(self).get("_exclude_from_weight_decay_pattern")
        keys = vars(self).get("_exclude_from_weight_decay")
        if keys and not self.has_trained:
            raise ValueError(
                "exclude_from_weight_decay(var_list=…) cannot be saved before the optimizer is "
                "built. Call optimizer.build(model.trainable_variables) first, or pass var_names."
            )
        if keys is not None:
            trained_keys = [self._var_key(each) for each in self._trainable_variables]
            numbers = [number for number, key in enumerate(trained_keys) if key in keys]
            names = None if pattern is None else pattern.pattern
            excluded.update(names=names, numbers=numbers, of=len(trained_keys))
        if excluded["names"] or excluded["numbers"]:
            return dict(config, **{_EXCLUDED: excluded})
        return config

    @classmethod
    def from_config(
        cls, config_: Dict[str, Any], custom_objects: Optional[Dict[str, Any]] = None
    ) -> KerasOptimizer:
        config = dict(config_)
        excluded = config.pop(_EXCLUDED, cls._undecayed)
        optimizer = super().from_config(config, custom_objects=custom_objects)
        if excluded["names"]:
            optimizer.exclude_from_weight_decay(var_names=[excluded["names"]])
            del optimizer._exclude_from_weight_decay  # `build` sets it
        vars(optimizer)["_undecayed"] = excluded
        return optimizer

    def _reader(self, name: str) -> Optional[Callable[[str], Any]]:
        """Returns a function that reads the contained optimizer's option; None if it has none."""
        raise NotImplementedError

    def _check_stateful(self):
        if versions.in_stateless_scope():
            raise ValueError(
                f"{type(self.contained).__name__} keeps and updates variables in place, so it "
                "cannot be used statelessly. Call build and apply_gradients outside of a "
                "StatelessScope."
            )

    def _prepared(
        self, grads: Iterable[Any], trainable_variables: Optional[Iterable[KerasVariable]]
    ) -> Tuple[Gradients, Optional[List[KerasVariable]]]:
        """Returns the arguments of `apply` as lists; builds again after Keras' call `build([])`."""
        self._check_stateful()
        variables = None if trainable_variables is None else list(trainable_variables)
        if self.built and variables and not self._trainable_variables:
            self.build(variables)  # Keras calls `build([])` when it loads a model from .h5
        return [as_gradient(grad) for grad in grads], variables

    def _clip_gradients(self, grads: Gradients) -> Gradients:
        return clipped(self, grads, super()._clip_gradients)


def _shared(name: str) -> property:
    """Returns a property that reads and sets the contained optimizer's option, or else Keras'."""

    def get(self: ContainsOptimizer) -> Any:
        read = self._reader(name) or vars(self).get
        return read(name)

    def set_(self: Any, value: Any):
        if self._reader(name):
            self._set_plain(name, value)
        else:
            vars(self)[name] = value

    return property(get, set_)


for _name in SHARED_WITH_KERAS:
    setattr(ContainsOptimizer, _name, _shared(_name))
