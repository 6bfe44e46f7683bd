"""What passes between RuleOptimizer and an optimizer: one update."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Mapping, NamedTuple, Tuple, Union

from legacy_opt.core.types import Tensor, Variable
from legacy_opt.core.variable_access import Access


class Addition(NamedTuple):
    """A rule's way to say "add this to the slot" where others give the slot's new value.

    Concurrent steps on shared variables then lose no addition; see `RuleOptimizer.rule`.
    """

    value: Tensor


class Fading(NamedTuple):
    """A slot's new value, together with what happens to rows that are not touched.

    A sparse gradient sets the touched rows to `value` and multiplies all others by `factor`, as
    momentum does that decays everywhere: this reads and writes the whole slot. With a dense
    gradient it means `value` alone.
    """

    value: Tensor
    factor: Tensor


# What a rule says of one slot, and what it returns: a dict, which is called a Mapping so that one
# that holds tensors alone is one, too.
SlotChange = Union[Tensor, Addition, Fading]
RuleResult = Tuple[Tensor, Mapping[str, SlotChange]]


class Update(NamedTuple):
    """All there is to know about one variable's update.

    Attributes:
      grad: the gradient, a tensor of the variable's shape, or of its touched rows if `sparse`.
      variable: the variable, ref or resource.
      slots: the variable's slot variables, as attributes.
      hyper: hyperparameters, non-slot values and `global_step`, as attributes.
      access: reads and writes the whole variable or its touched rows: `legacy_opt.access`.
      prepared: what `prepare_step` returned for this variable, or None.
      densified: whether the gradient came as rows and was made dense for `whole_tensor`.
    """

    grad: Tensor
    variable: Variable
    slots: SimpleNamespace
    hyper: SimpleNamespace
    access: Access
    prepared: Any = None
    densified: bool = False

    @property
    def sparse(self) -> bool:
        """Whether the gradient comes as rows."""
        return self.access.indices is not None
