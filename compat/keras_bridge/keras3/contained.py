"""What Keras 3 optimizers that contain another optimizer, of v1 or Keras 2, have in common."""

from __future__ import annotations

from typing import Any, Iterable, List, Optional, Tuple

from legacy_opt import versions
from legacy_opt.core.types import Gradient, KerasVariable

from .gradients import as_gradient, clipped


class ContainsOptimizer:
    """Mixin for a Keras 3 optimizer that updates variables by the code of a contained optimizer.

    Attributes:
      contained: the contained optimizer.
    """

    contained: Any

    @property
    def has_trained(self) -> bool:
        """Whether the optimizer was built for variables."""
        return bool(self._trainable_variables)

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
