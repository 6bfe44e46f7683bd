"""The state of one training step of a `RuleOptimizer`."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional

from legacy_opt.core.types import GradAndVar, Tensor, Variable


class Step(NamedTuple):
    """The state of one training step; `RuleOptimizer._rule_step` is that of the latest step.

    Attributes:
      tensors: a dict from names of hyperparameters to their tensors in this step. They are kept
        after the step, because TF1 programs read `optimizer._lr_t` for summaries.
      prepared: what `prepare_step` returned.
      pairs: all (gradient, variable) pairs; None where variables are updated one by one.
      advanced: the variable that is incremented after the step, or None.
      global_step: the value of the global step, a tensor; None if the rule does not need it.
    """

    tensors: Dict[str, Tensor]
    prepared: Dict[int, Any]
    pairs: Optional[List[GradAndVar]] = None
    advanced: Optional[Variable] = None
    global_step: Optional[Tensor] = None

    def with_tensor(self, name: str, tensor: Tensor) -> Step:
        """Returns this step with another tensor for a hyperparameter."""
        return self._replace(tensors=dict(self.tensors, **{name: tensor}))

    def after(self) -> Step:
        """Returns the state that is kept after the step has been applied."""
        return self._replace(prepared={}, pairs=None, advanced=None)
