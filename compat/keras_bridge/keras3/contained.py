"""What Keras 3 optimizers that contain another optimizer, of v1 or Keras 2, have in common."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, Optional, Sequence, Tuple

from legacy_opt import versions
from legacy_opt.core.types import Gradient, KerasOptimizer, KerasVariable

from .gradients import as_gradient, clipped


class ContainsOptimizer:
    """Mixin for a Keras 3 optimizer that updates variables by the code of a contained optimizer.

    Attributes:
      contained: the contained optimizer.
    """

    contained: Any
    _undecayed: Sequence[int] = ()  # numbers of variables, from `from_config`

    if TYPE_CHECKING:  # subclasses have another base class, whose constructor takes arguments

        def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    @property
    def has_trained(self) -> bool:
        """Whether the optimizer was built for variables."""
        return bool(self._trainable_variables)

    def build(self, variables: Iterable[KerasVariable]):
        variables = list(variables)
        super().build(variables)
        if variables and self._undecayed and not hasattr(self, "_exclude_from_weight_decay"):
            keys = {self._var_key(variables[number]) for number in self._undecayed}
            vars(self)["_exclude_from_weight_decay"] = keys

    def get_config(self) -> Dict[str, Any]:
        """Returns Keras' own configuration, and what is excluded from weight decay.

        Raises:
          ValueError: variables are excluded, and the optimizer is not built yet.
        """
        pattern = getattr(self, "_exclude_from_weight_decay_pattern", None)
        keys = getattr(self, "_exclude_from_weight_decay", None)
        if keys and not self.has_trained:
            raise ValueError(
                "exclude_from_weight_decay(var_list=…) cannot be saved before the optimizer is "
                "built. Call optimizer.build(model.trainable_variables) first, or pass var_names."
            )
        numbers = list(self._undecayed)
        if keys is not None:
            trained = enumerate(self._trainable_variables)
            numbers = [number for number, each in trained if self._var_key(each) in keys]
        config = super().get_config()
        if pattern is not None or numbers:
            pattern = pattern and pattern.pattern
            config["exclude_from_weight_decay"] = {"pattern": pattern, "numbers": numbers}
        return config

    @classmethod
    def from_config(
        cls, config_: Dict[str, Any], custom_objects: Optional[Dict[str, Any]] = None
    ) -> KerasOptimizer:
        config = dict(config_)
        excluded = config.pop("exclude_from_weight_decay", None)
        optimizer = super().from_config(config, custom_objects=custom_objects)
        if excluded:
            pattern = excluded["pattern"] and re.compile(excluded["pattern"])
            vars(optimizer)["_exclude_from_weight_decay_pattern"] = pattern
            vars(optimizer)["_undecayed"] = excluded["numbers"]
        return optimizer

    def _check_stateful(self):
        if versions.in_stateless_scope():
            raise ValueError(
                f"{type(self.contained).__name__} keeps and updates variables in place, so it "
                "cannot be used statelessly. Call build and apply_gradients outside of a "
                "StatelessScope."
            )

    def _prepared(
        self, grads: Iterable[Any], trainable_variables: Optional[Iterable[KerasVariable]]
    ) -> Tuple[List[Optional[Gradient]], Optional[List[KerasVariable]]]:
        """Returns the arguments of `apply` as lists; builds the optimizer if its file was .h5."""
        self._check_stateful()
        variables = None if trainable_variables is None else list(trainable_variables)
        if self.built and variables and not self._trainable_variables:
            self.build(variables)  # for a model from .h5, Keras has called `build([])`
        return [as_gradient(grad) for grad in grads], variables

    def _clip_gradients(self, grads: List[Optional[Gradient]]) -> List[Optional[Gradient]]:
        return clipped(self, grads, super()._clip_gradients)
