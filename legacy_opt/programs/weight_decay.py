"""The formulas of `DecoupledWeightDecayExtension`."""

from __future__ import annotations

from typing import Any, Callable, Dict

from legacy_opt.core.types import DType, Tensor, Variable
from legacy_opt.optimizers.decoupled_weight_decay import factor_of
from legacy_opt.programs.formulas import ChangedFormulas, PureUpdate, Tensors
from legacy_opt.programs.program import ELEMENT, GRADIENT, VALUE, Input
from legacy_opt.programs.scalars import Given
from legacy_opt.programs.trace import Results

_NAME = "decoupled_weight_decay"  # the name of the weight decay in the dict of scalars


class DecayedFormulas(ChangedFormulas):
    """Formulas that first decay the variable, or the rows in a sparse gradient."""

    def must_wait(self, variable: Variable) -> bool:
        """Whether a sparse gradient decays only some rows, although `base` updates all rows.

        A kernel that updates all rows cannot decay only some rows. So TensorFlow operations decay
        the rows before the kernel runs.
        """
        if self._decays(variable) and self.needs_whole_tensor(variable):
            return True
        return super().must_wait(variable)

    def _decays(self, variable: Variable) -> bool:
        """Whether the variable is in `decay_var_list` and has not been decayed in this step yet."""
        has_decayed = self.optimizer._decay_step.has_decayed
        return self.optimizer.decays(variable) and not has_decayed

    def flags(self, variable: Variable) -> Any:
        return self._decays(variable), super().flags(variable)

    def _scalars(self, dtype: DType) -> Tensors:
        factor = factor_of(self.optimizer, self.optimizer._weight_decay_tensor, dtype)
        return dict(super()._scalars(dtype), **{_NAME: factor})

    def given(self) -> Given:
        optimizer = self.optimizer
        given = self.base.given()
        weight_decay = optimizer._weight_decay_tensor, optimizer._weight_decay, "_weight_decay"
        hyperparameters = dict(given.hyperparameters, weight_decay=weight_decay)
        return given._replace(hyperparameters=hyperparameters)

    def before(self, given: Tensors, dtype: DType) -> Tensors:
        factor = factor_of(self.optimizer, given["weight_decay"], dtype)
        return dict(self.base.before(given, dtype), **{_NAME: factor})

    def after(self, given: Tensors) -> Tensors:
        return self.base.after(given)

    def function(self, variable: Variable, sparse: bool) -> Callable[..., Results]:
        base_update = super().function(variable, sparse)
        # TensorFlow operations decay the rows of such a sparse gradient; see `must_wait`.
        if not self._decays(variable) or (sparse and self.needs_whole_tensor(variable)):
            return base_update

        def update(grad: Tensor, value: Tensor, slots: Tensors, scalars: Tensors) -> Results:
            decayed = _decayed(value, scalars)
            results = base_update(grad, decayed, slots, scalars)
            return Results(None, results.changes, results.new_value(decayed))

        return update

    def decay_of_rows(self, variable: Variable) -> PureUpdate:
        """Returns the formula of the decay that must precede a sparse update; see `must_wait`."""
        dtype = variable.dtype.base_dtype
        inputs = [Input(name, ELEMENT, dtype.name) for name in (GRADIENT, VALUE)]
        inputs += self.scalar_inputs(dtype)

        def function(tensors: Dict[Input, Any]) -> Results:
            named = {each.name: tensor for each, tensor in tensors.items()}
            return Results(None, {}, _decayed(named[VALUE], named))

        return PureUpdate(inputs, [None, *variable.shape.as_list()[1:]], function, by_rows=True)


def _decayed(value: Tensor, scalars: Tensors) -> Tensor:
    return value - scalars[_NAME] * value
