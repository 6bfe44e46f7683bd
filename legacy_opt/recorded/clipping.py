"""Clips gradients by their global norm, with the bits of `tf.clip_by_global_norm`."""

from __future__ import annotations

from typing import Any, Sequence

from legacy_opt.recorded.interpreter import Library, compute
from legacy_opt.recorded.records import SCALAR


def global_norm(library: Library, gradients: Sequence[Any], dtype: str) -> Any:
    """Returns the norm of all elements of all gradients.

    Args:
      library: the array library.
      gradients: arrays, or the values of the rows of sparse gradients, in the order in which the
        squares are added.
      dtype: the dtype of the gradients.
    """
    total = library.constant(0, "float64")
    for each in gradients:
        if 0 in each.shape:  # a sparse gradient may have no rows
            continue
        square = library.cast(compute(library, "Square", [each], dtype), "float64")
        total = total + library.sum(square, SCALAR, False)
    return library.cast(library.sqrt(total), dtype)


def factor(library: Library, norm: Any, limit: Any, dtype: str) -> Any:
    """Returns the number by which gradients are multiplied; NaN if the norm is not finite."""

    def do(operation: str, *operands: Any) -> Any:
        return compute(library, operation, operands, dtype)

    shorter = do("Mul", limit, do("Minimum", do("RealDiv", 1, norm), do("RealDiv", 1, limit)))
    return do("Add", shorter, do("Sub", norm, norm))
