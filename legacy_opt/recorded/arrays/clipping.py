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
    factors = factors_for(do, _sum_of_squares(do, arrays), limits)
    products = [library.plain(do("Mul", array, factor)) for array, factor in zip(arrays, factors)]
    clipped = [
        each._replace(values=product) if isinstance(each, tuple) else product
        for each, product in zip(gradients, products)
    ]
    return [update._replace(gradient=each) for update, each in zip(updates, clipped)]


def _sum_of_squares(do: Computation, gradients: Sequence[Any]) -> Any:
    """Returns the sum of the squares of all elements of all arrays, a float64."""
    library = do.library
    total = library.constant(0, "float64")
    for each in gradients:
        if 0 in each.shape:  # a sparse gradient may have no rows
            continue
        total = total + library.sum(library.cast(do("Square", each), "float64"), SCALAR, False)
    return total


def factors_for(do: Computation, sum_of_squares: Any, limits: Sequence[Any]) -> List[Any]:
    """Returns the factor for each limit of the norm; NaN if the norm is not finite."""
    norm = do.library.cast(do.library.sqrt(sum_of_squares), do.dtype)
    factors: Dict[int, Any] = {}  # by the id of a limit: updates of a group share the limit
    for limit in limits:
        if id(limit) not in factors:
            ratio = do("Minimum", do("RealDiv", 1, norm), do("RealDiv", 1, limit))
            # Adds 0, or NaN.
            factors[id(limit)] = do("Add", do("Mul", limit, ratio), do("Sub", norm, norm))
    return [factors[id(limit)] for limit in limits]
