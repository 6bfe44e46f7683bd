"""The formulas of `MovingAverageOptimizer`."""

from __future__ import annotations

from typing import Callable

from legacy_opt.core.types import DType, Tensor, V1Optimizer, Variable
from legacy_opt.programs.formulas import Formulas, Tensors
from legacy_opt.programs.trace import Results
from legacy_opt.wrappers.moving_average import difference


class AverageFormulas(Formulas):
    """The formulas of averages. A kernel gets the value of the averaged variable as the gradient.

    `rate` is 1 minus the decay factor, a scalar tensor.
    """

    def __init__(self, optimizer: V1Optimizer, rate: Tensor) -> None:
        super().__init__(optimizer)
        self._rate = rate

    def _scalars(self, dtype: DType) -> Tensors:
        return {"rate": self._rate}

    def function(self, variable: Variable, sparse: bool) -> Callable[..., Results]:
        def update(value: Tensor, average: Tensor, slots: Tensors, scalars: Tensors) -> Results:
            del slots
            return Results(difference(average, value, scalars["rate"]), {})

        return update
