"""Reads and writes variables and slots, for optimizers that override `apply_update`."""

from legacy_opt.core.variable_access import (
    Rows,
    WholeVariable,
    after,
    gather_nd,
    here,
    is_resource,
    variable_op,
    variable_shape,
)

__all__ = [
    "Rows",
    "WholeVariable",
    "after",
    "gather_nd",
    "here",
    "is_resource",
    "variable_op",
    "variable_shape",
]
