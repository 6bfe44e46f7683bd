"""Multiplies gradients inside native kernels, not by TensorFlow operations before the kernels.

For example, `tf.clip_by_global_norm` multiplies each gradient by a scalar, and so writes a tensor
of the gradient's size. This tensor is not needed if the kernel gets the original gradient and the
scalar, and multiplies them itself.
"""

from __future__ import annotations

from typing import Any, Callable, List, NamedTuple, Optional, Tuple

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core.types import DType, Operation, Tensor, Variable
from legacy_opt.core.variable_access import may_share_ref_memory
from legacy_opt.programs.formulas import ChangedFormulas, Formulas, Tensors
from legacy_opt.programs.trace import Results

_MOST_FACTORS = 4
_OPERATIONS = {"Mul": tf.multiply, "RealDiv": tf.divide}


class Factor(NamedTuple):
    """A scalar, with one element, by which a gradient is multiplied or divided."""

    operation: str  # "Mul" or "RealDiv", the type of the TensorFlow operation
    scalar: Tensor


class ScaledFormulas(ChangedFormulas):
    """Formulas that first multiply or divide the gradient by the factors, in their order."""

    def __init__(self, base: Formulas, factors: List[Factor]) -> None:
        super().__init__(base)
        self.factors = factors

    def _scalars(self, dtype: DType) -> Tensors:
        factors = {_factor_name(i): factor.scalar for i, factor in enumerate(self.factors)}
        return dict(super()._scalars(dtype), **factors)

    def flags(self, variable: Variable) -> Any:
        return tuple(factor.operation for factor in self.factors), super().flags(variable)

    def function(self, variable: Variable, sparse: bool) -> Callable[..., Results]:
        base_update = super().function(variable, sparse)

        def update(grad: Tensor, value: Tensor, slots: Tensors, scalars: Tensors) -> Results:
            for i, factor in enumerate(self.factors):
                grad = _OPERATIONS[factor.operation](grad, scalars[_factor_name(i)])
            return base_update(grad, value, slots, scalars)

        return update


def _factor_name(i: int) -> str:
    return f"gradient_factor_{i}"


def split_factors(formulas: Formulas, grad: Tensor) -> Tuple[Formulas, Tensor]:
    """Finds the tensor that was multiplied or divided by scalars to compute a dense gradient.

    Returns a `ScaledFormulas`, and the tensor before the multiplications and divisions. Without
    such operations, and when executing eagerly, returns `formulas` and `grad` themselves.
    """
    factors = []
    unscaled = grad
    while versions.is_symbolic(unscaled) and len(factors) < _MOST_FACTORS:
        operation = unscaled.op
        if operation.control_inputs:
            break
        if operation.type == "Identity":
            unscaled = operation.inputs[0]
            continue
        operands = _operands(operation)
        if operands is None:
            break
        tensor, scalar = operands
        if may_share_ref_memory(scalar):  # a variable that may change before the kernel reads it
            break
        unscaled = tensor
        factors.append(Factor(operation.type, scalar))
    if not factors or may_share_ref_memory(unscaled) or unscaled.dtype != grad.dtype:
        return formulas, grad
    factors.reverse()  # the last operation was found first
    return ScaledFormulas(formulas, factors), unscaled


def _operands(operation: Operation) -> Optional[Tuple[Tensor, Tensor]]:
    """Returns the tensor and the scalar that an operation multiplies or divides, or None."""
    if operation.type not in _OPERATIONS:
        return None
    first, second = operation.inputs
    if _is_scaled(operation, first, second):
        return first, second
    if operation.type == "Mul" and _is_scaled(operation, second, first):
        return second, first
    return None


def _is_scaled(operation: Operation, tensor: Tensor, scalar: Tensor) -> bool:
    """Whether an operation scales `tensor`, which has the shape of the result, by `scalar`."""
    result = operation.outputs[0].shape
    if result.rank is None or tensor.shape.rank is None or scalar.shape.num_elements() != 1:
        return False
    return result.as_list() == tensor.shape.as_list()


def identity_of(scalar: Tensor) -> Any:
    """Returns a key of a scalar tensor. Equal constants have equal keys."""
    operation = scalar.op
    if operation.type != "Const" or operation.control_inputs:
        return id(scalar)
    return tf.make_ndarray(operation.get_attr("value")).tobytes()
