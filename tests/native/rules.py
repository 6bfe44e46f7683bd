"""Traces update rules that tests define as functions of tensors."""

from legacy_opt.native.runtime import compiled_kernels
from legacy_opt.programs.program import ELEMENT, GRADIENT, SCALAR, VALUE, Input
from legacy_opt.programs.trace import Results, trace


def traced(update, dtype="float32", scalars=(), rank=1):
    """Returns the program that `trace` makes from an update rule without slots.

    Args:
      update: a function of the gradient, the value and the scalars; returns the update.
      dtype: the dtype of the variable and the scalars.
      scalars: the names of the scalars.
      rank: the rank of the variable.
    """
    gradient, value = Input(GRADIENT, ELEMENT, dtype), Input(VALUE, ELEMENT, dtype)
    others = [Input(name, SCALAR, dtype) for name in scalars]

    def rule(tensors):
        return Results(update(tensors[gradient], tensors[value], *map(tensors.get, others)), {})

    return trace([gradient, value, *others], [None] * rank, rule)


def kernel(function, dtype):
    """Returns a kernel that sets the variable to `function(gradient)`."""
    gradient, value = Input(GRADIENT, ELEMENT, dtype), Input(VALUE, ELEMENT, dtype)

    def rule(tensors):
        return Results(None, {}, function(tensors[gradient]))

    return compiled_kernels.compiled(trace([gradient, value], [None], rule))
