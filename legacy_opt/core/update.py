"""Classes for one update of a variable (`Update`) and for the results of rules."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Mapping, NamedTuple, Tuple, Union

from legacy_opt.core.types import Tensor, Variable
from legacy_opt.core.variable_access import Access


class Addition(NamedTuple):
    """A value to add to a slot, returned by a rule in place of the slot's new value.

    A new value would overwrite what concurrent workers have added since the slot was read.

    Example::

        class CountingOptimizer(legacy_opt.RuleOptimizer):
            slots = {"count": legacy_opt.Slot()}

            def rule(self, grad, value, slots, hyper):
                return 0.1 * grad, {"count": legacy_opt.Addition(tf.ones_like(grad))}
    """

    value: Tensor


class Fading(NamedTuple):
    """A slot's new value, and a factor for the rows that a sparse gradient does not touch.

    With a sparse gradient, the touched rows are set to `value`, and all other rows are multiplied
    by `factor`. So the whole slot is read and written. With a dense gradient, the slot is set to
    `value`. For example, Nadam's rule returns a `Fading` for both moments, which decay in all rows.

    Example::

        class DenseMomentumOptimizer(legacy_opt.RuleOptimizer):
            slots = {"momentum": legacy_opt.Slot()}

            def rule(self, grad, value, slots, hyper):
                momentum = 0.9 * slots.momentum + grad  # of the touched rows
                rest = tf.constant(0.9, grad.dtype)  # the factor of all other rows
                return 0.1 * momentum, {"momentum": legacy_opt.Fading(momentum, rest)}
    """

    value: Tensor
    factor: Tensor


class NewValue(NamedTuple):
    """A variable's new value, returned by a rule in place of the change.

    Without `NewValue`, the rule would return a difference, whose subtraction rounds once more.

    Example::

        class ShrinkingOptimizer(legacy_opt.RuleOptimizer):
            def rule(self, grad, value, slots, hyper):
                return legacy_opt.NewValue(0.5 * value - 0.1 * grad), {}
    """

    value: Tensor


# The values of slots or of hyperparameters, as attributes.
Values = SimpleNamespace
SlotChange = Union[Tensor, Addition, Fading]
# A Mapping, because type checkers do not accept a Dict[str, Tensor] as a Dict[str, SlotChange].
RuleResult = Tuple[Union[Tensor, NewValue], Mapping[str, SlotChange]]


class Update(NamedTuple):
    """One update of a variable.

    Example::

        class DescentOptimizer(legacy_opt.RuleOptimizer):
            def apply_update(self, update: legacy_opt.Update):
                change = update.hyper.learning_rate * update.grad
                return update.access.subtract(update.variable, change)

        w = tf.Variable([1.0, 2.0])
        optimizer = DescentOptimizer(use_locking=False, name="Descent", learning_rate=0.1)
        train_op = optimizer.apply_gradients([(tf.constant([1.0, 2.0]), w)])

    Attributes:
      grad: the gradient: a tensor of the variable's shape, or of the touched rows if `sparse`.
      variable: the variable, a ref variable or a resource variable.
      slots: the variable's slot variables, as attributes.
      hyper: hyperparameters, non-slot values and `global_step`, as attributes.
      access: an object with methods that read and write the variable and its slots:
        `legacy_opt.rule_writing.WholeVariable`, or `Rows` for a sparse gradient.
      prepared: the value that `prepare_step` returned for this variable, or None.
      densified: whether a sparse gradient was made dense, because the optimizer needs the whole
        tensor (`RuleOptimizer.needs_whole_tensor`).
    """

    grad: Tensor
    variable: Variable
    slots: Values
    hyper: Values
    access: Access
    prepared: Any = None
    densified: bool = False

    @property
    def sparse(self) -> bool:
        """Whether the gradient is sparse."""
        return self.access.indices is not None
