"""The state of one training step of a `RuleOptimizer`."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional

from legacy_opt.core.native_updates import NativeStep
from legacy_opt.core.types import DType, GradAndVar, Tensor, Variable


class Step(NamedTuple):
    """The state of one training step.

    `RuleOptimizer._rule_step` is the state of the latest training step.

    Attributes:
      tensors: a dict from names of hyperparameters to their tensors in this training step. The
        tensors are kept after the training step, because TF1 programs read attributes such as
        `optimizer._lr_t` for summaries.
      prepared: the result of `RuleOptimizer.prepare_step`.
      native: the updates that native kernels run in this step; None if native kernels are off.
      pairs: all (gradient, variable) pairs; None if the update methods are called without
        `RuleOptimizer.applying`, so that the pairs are unknown.
      advanced: the global step variable that is incremented after the updates, or None.
      global_step: the value of the global step, a tensor; None if the optimizer does not need it.
      non_slots: a dict from names of non-slot variables to values to use instead of reading the
        variables; None to read the variables.
      exact: a dict from dtype to values to use instead of calling `RuleOptimizer._exact_values`;
        None to call the method.
    """

    tensors: Dict[str, Tensor]
    prepared: Dict[int, Any]
    native: Optional[NativeStep] = None
    pairs: Optional[List[GradAndVar]] = None
    advanced: Optional[Variable] = None
    global_step: Optional[Tensor] = None
    non_slots: Optional[Dict[str, Tensor]] = None
    exact: Optional[Dict[DType, Dict[str, Tensor]]] = None

    def with_tensor(self, name: str, tensor: Tensor) -> Step:
        """Returns this state with another tensor for a hyperparameter."""
        return self._replace(tensors=dict(self.tensors, **{name: tensor}))

    def after(self) -> Step:
        """Returns the state that is kept after the training step."""
        return self._replace(prepared={}, native=None, pairs=None, advanced=None)
