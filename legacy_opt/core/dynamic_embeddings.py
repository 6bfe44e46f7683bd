"""Refuses dynamic embedding tables in optimizers that cannot train them.

A dynamic embedding table of TensorFlow Recommenders Addons is a hash table. In each training step,
the optimizer gets a variable with the rows that the step looks up. Slots are hash tables, too, and
their rows have the shape and dtype of the table's rows.
"""

from __future__ import annotations

from typing import Any, Optional

from legacy_opt import versions
from legacy_opt.core.types import DType, Variable

_WRAPPER = "tensorflow_recommenders_addons.dynamic_embedding.DynamicEmbeddingOptimizer"
_OTHER_OPTIMIZER = (
    "Train the table with another optimizer, such as LazyAdamOptimizer, and the other variables "
    "with this one: see MultiOptimizer. `legacy-opt docs clients` lists the optimizers that train "
    "such tables."
)


def refuse(optimizer: str, variable: Variable, reason: str, advice: str = _OTHER_OPTIMIZER):
    """Raises a ValueError if `variable` is a dynamic embedding; `optimizer` is the class's name."""
    if versions.is_dynamic_embedding(variable):
        raise ValueError(
            f"{optimizer} cannot train the dynamic embedding table of {variable.name!r}: "
            f"{reason}. {advice}"
        )


def refuse_keras(function: str, variable: Any):
    """Refuses a dynamic embedding in an optimizer that `function` (`to_keras`, `to_v1`) made."""
    reason = "the table does not get the rows that the optimizer changes"
    advice = f"Train the table with a v1 optimizer without {function}: {_WRAPPER}(optimizer)."
    refuse(f"An optimizer that {function} has converted", variable, reason, advice)


def check_slot(
    optimizer: str, variable: Variable, slot_name: str, dtype: Optional[DType], has_shape: bool
):
    """Refuses a dynamic embedding if a slot lacks the table's shape, or has another dtype."""
    expected = variable.dtype.base_dtype
    if not has_shape:
        refuse(optimizer, variable, f"its slot {slot_name!r} does not have the shape of the table")
    if dtype not in (None, expected):
        dtypes = f"has dtype {dtype.name}, and the table {expected.name}"
        refuse(optimizer, variable, f"its slot {slot_name!r} {dtypes}")


def check_wrapped(optimizer: Any, variable: Variable):
    """Refuses a dynamic embedding in an optimizer that would create ordinary slots for it."""
    if not versions.creates_dynamic_slots(optimizer):
        name = type(optimizer).__name__
        advice = f"Wrap this optimizer, not a wrapper around it: {_WRAPPER}({name}(…))."
        refuse(name, variable, "its slots would be ordinary variables", advice)
