"""Checks (gradient, variable) pairs, and protects the gradients from writes to variables."""

from __future__ import annotations

import contextlib
from typing import Any, Iterator, List, Optional

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core import gradient_checks
from legacy_opt.core.gradient_values import map_values, pairs_of
from legacy_opt.core.types import GradAndVar, Gradient, GradsAndVars, Tensor, Variable
from legacy_opt.core.variable_access import after, copied, in_session_graph, may_share_memory
from legacy_opt.core.variable_lists import is_partitioned, is_variable

v1 = tf.compat.v1


@contextlib.contextmanager
def protected(optimizer: str, grads_and_vars: GradsAndVars) -> Iterator[List[GradAndVar]]:
    """Scope in which an optimizer applies gradients; yields the pairs that `checked` returns.

    A gradient may share the memory of a variable or slot, for example `tf.identity(w)`. Such
    gradients are computed before any operation of the scope runs. If the variable is a ref
    variable, the gradient is copied, so that later writes do not change the gradient.
    """
    read_first = []

    def protect(tensor: Tensor) -> Tensor:
        if in_session_graph(tensor) and may_share_memory(tensor):
            tensor = copied(tensor)
            read_first.append(tensor)
        return tensor

    pairs = checked(optimizer, grads_and_vars)
    pairs = [(map_values(protect, grad), variable) for grad, variable in pairs]
    with after(*read_first):
        yield pairs


def checked(optimizer: str, grads_and_vars: GradsAndVars) -> List[GradAndVar]:
    """Checks the pairs, and returns them with gradients as tensors or `tf.IndexedSlices`.

    A dense gradient is the output of its runtime check, because a check whose output is not used
    would be pruned from the graph. Sparse gradients are checked when they are applied.
    """
    pairs = pairs_of(optimizer, grads_and_vars)
    for grad, variable in pairs:
        _check_variable(optimizer, variable, grad)
    return [(_as_gradient(optimizer, grad, variable), variable) for grad, variable in pairs]


def _as_gradient(optimizer: str, grad: Any, variable: Variable) -> Optional[Gradient]:
    if grad is None:
        return None
    grad = v1.convert_to_tensor_or_indexed_slices(grad)
    if isinstance(grad, tf.IndexedSlices):
        return grad
    return gradient_checks.gradient(optimizer, grad, variable, sparse=False)


def check_variables(optimizer: str, var_list: Any):
    """Raises a TypeError if `var_list` of `minimize`, which may be nested, cannot be trained."""
    for each in [] if var_list is None else tf.nest.flatten(var_list):
        _refuse_keras_3(optimizer, each)
        if not (tf.is_tensor(each) or is_variable(each) or is_partitioned(each)):
            raise TypeError(f"{optimizer}: var_list must contain only variables, got {each!r}.")


def _check_variable(optimizer: str, variable: Any, grad: Any):
    _refuse_keras_3(optimizer, variable)
    if is_variable(variable):
        return
    hint = ""
    if versions.is_keras_3_variable(grad) or is_variable(grad):
        hint = " Pass the gradient first, then the variable."
    elif is_partitioned(variable):
        hint = " Pass the partitions of a partitioned variable."
    raise TypeError(
        f"{optimizer} takes (gradient, variable) pairs, and {variable!r} is not a variable.{hint}"
    )


def _refuse_keras_3(optimizer: str, variable: Any):
    if versions.is_keras_3_variable(variable):
        raise TypeError(
            f"{optimizer} got {variable.name!r}, a variable of Keras 3, which v1 optimizers "
            "cannot update. Convert the optimizer to Keras: "
            "legacy_opt.compat.to_keras(optimizer)."
        )
