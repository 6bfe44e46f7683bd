"""Clips gradients by their global norm, with the bits of `tf.clip_by_global_norm`."""

from __future__ import annotations

from typing import Any, Collection, Dict, List, Sequence

from legacy_opt.programs.program import SCALAR
from legacy_opt.recorded.arrays.interpreter import ArrayUpdate, Computation
from legacy_opt.recorded.arrays.library import Library
from legacy_opt.recorded.records import SUMMED_ROWS, Record


def clipped_by_global_norm(
    library: Library, record: Record, updates: Collection[ArrayUpdate], limits: Sequence[Any]
) -> List[ArrayUpdate]:
    """Returns updates whose gradients are multiplied so that their global norm is at most a limit.

    The squares are added in the order of `updates`. `limits` has the limit for each update.
    """
    dtype = record.dtype
    gradients = [each.gradient for each in updates]
    if record.clipping == SUMMED_ROWS:
        gradients = [
            library.summed_in_place(each) if isinstance(each, tuple) else each for each in gradients
        ]
    values = [each.values if isinstance(each, tuple) else each for each in gradients]
    do = Computation(library, dtype)
    arrays = [library.rounded(library.array(each), dtype) for each in values]
    norm = _global_norm(do, arrays)
    factors: Dict[int, Any] = {}  # by the id of a limit: updates of a group share the limit
    for limit in limits:
        if id(limit) not in factors:
            factors[id(limit)] = _factor(do, norm, limit)
    products = [
        library.plain(do("Mul", array, factors[id(limit)])) for array, limit in zip(arrays, limits)
    ]
    clipped = [
        each._replace(values=product) if isinstance(each, tuple) else product
        for each, product in zip(gradients, products)
    ]
    return [update._replace(gradient=each) for update, each in zip(updates, clipped)]


def _global_norm(do: Computation, gradients: Sequence[Any]) -> Any:
    """Returns the norm of all elements of all arrays."""
    library = do.library
    total = library.constant(0, "float64")
    for each in gradients:
        if 0 in each.shape:  # a sparse gradient may have no rows
            continue
        total = total + library.sum(library.cast(do("Square", each), "float64"), SCALAR, False)
    return library.cast(library.sqrt(total), do.dtype)


def _factor(do: Computation, norm: Any, limit: Any) -> Any:
    """Returns the number by which gradients are multiplied; NaN if the norm is not finite."""
    factor = do("Mul", limit, do("Minimum", do("RealDiv", 1, norm), do("RealDiv", 1, limit)))
    return do("Add", factor, do("Sub", norm, norm))  # adds 0, or NaN
