"""Tools for the methods `apply_update` and `fused` of a `RuleOptimizer`.

The functions and classes read and write variables and slots, for `apply_update`. The module
`fused_kernels` finds and applies TensorFlow's fused kernels, for `fused`. A fused kernel is a
single TensorFlow operation for the whole update of a variable.
"""

from legacy_opt.core import fused_kernels
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
    "fused_kernels",
    "gather_nd",
    "here",
    "is_resource",
    "variable_op",
    "variable_shape",
]
