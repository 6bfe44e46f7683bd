"""`Update`, one update of a variable; `Addition` and `Fading`, changes of a slot."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Mapping, NamedTuple, Tuple, Union

from legacy_opt.core.types import Tensor, Variable
from legacy_opt.core.variable_access import Access


class Addition(NamedTuple):
    """A value to add to a slot, returned by a rule in place of the slot's new value.

    Then no addition is lost if concurrent workers train the same variables; see
    `RuleOptimizer.rule`.
    """

    value: Tensor


class Fading(NamedTuple):
    """A slot's new value, and the decay of the rows that a sparse gradient does not touch.

    With a sparse gradient the touched rows are set to `value`, and all other rows are multiplied by
    `factor`. Adam needs this, because its moments decay in all rows. The whole slot is then read
    and written. With a dense gradient the slot is set to `value`.
    """

    value: Tensor
    factor: Tensor


# A slot's change, and the result of a rule. A Mapping, because type checkers do not accept a
# Dict[str, Tensor] as a Dict[str, SlotChange].
SlotChange = Union[Tensor, Addition, Fading]
RuleResult = Tuple[Tensor, Mapping[str, SlotChange]]


class Update(NamedTuple):
    """One update of a variable.

    Attributes:
      grad: the gradient, a tensor of the variable's shape, or of its touched rows if `sparse`.
      variable: the variable, ref or resource.
      slots: the variable's slot variables, as attributes.
      hyper: hyperparameters, non-slot values and `global_step`, as attributes.
      access: reads and writes the whole variable or its touched rows: `legacy_opt.access`.
      prepared: the value that `prepare_step` returned for this variable, or None.
      densified: whether the gradient was sparse and was made dense for `whole_tensor`.
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
        """Whether the gradient is sparse."""
        return self.access.indices is not None
