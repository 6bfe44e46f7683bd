"""Functions shared by `optimize_loss` and `create_train_op`: argument checks, and the update."""

from __future__ import annotations

from typing import Any, List, Optional

import tensorflow as tf

from legacy_opt.core import argument_checks, gradient_values
from legacy_opt.core.types import GradAndVar, Operation, Tensor, V1Optimizer, Variable
from legacy_opt.core.variable_lists import variables_in
from legacy_opt.wrappers.nested_optimizers import all_optimizers_in, contains_sync_replicas

v1 = tf.compat.v1
_LOSS_SCALES = {"LossScaleOptimizer", "MixedPrecisionLossScaleOptimizer"}  # names of classes


def apply(
    optimizer: V1Optimizer,
    pairs: List[GradAndVar],
    global_step: Any,
    checked_loss: Optional[Tensor],
    name: Optional[str] = None,
) -> Operation:
    """Applies gradients, and returns the operation.

    If `checked_loss` is not None, the loss and the gradients are checked for NaN and infinity
    before any variable is written. If `optimizer` scales the loss, gradients are not checked.
    """
    if checked_loss is None:
        return optimizer.apply_gradients(pairs, global_step=global_step, name=name)
    is_scaled = any(map(_is_loss_scale, all_optimizers_in(optimizer)))
    pairs, checks = gradient_values.check_numerics(
        checked_loss, pairs, with_gradients=not is_scaled
    )
    if contains_sync_replicas(optimizer):
        # SyncReplicasOptimizer creates operations that run in other threads and must not depend on
        # the loss. Therefore only the gradients wait for the checks.
        checks = []
    # The control dependencies make writes that do not depend on gradients wait for the checks, too.
    with tf.control_dependencies(checks):
        return optimizer.apply_gradients(pairs, global_step=global_step, name=name)


def _is_loss_scale(optimizer: V1Optimizer) -> bool:
    """Whether an optimizer scales the loss, and skips training steps whose gradients overflow."""
    return any(each.__name__ in _LOSS_SCALES for each in type(optimizer).__mro__)


def copy_after(operations: List[Any], tensor: Tensor) -> Tensor:
    """Returns a copy of `tensor` that is made after `operations` have run."""
    scope = v1.name_scope(None, "control_dependency", operations + [tensor])
    device = v1.get_default_graph().colocate_with(tensor.op)
    with scope as name, device, tf.control_dependencies(operations):
        return tf.identity(tensor, name=name)


def check_function(name: str, value: Any) -> None:
    """Raises a TypeError if an argument is not a function."""
    if not argument_checks.is_function(value):
        raise TypeError(f"{name} must be a function or None, got {value!r}.")


def tensor_of_loss(name: str, loss: Any) -> Tensor:
    """Returns a loss as a tensor. Raises a TypeError if its dtype is not floating point."""
    if argument_checks.is_function(loss):
        raise TypeError(f"{name} must be a tensor, got the function {loss!r}: call it.")
    if loss is None:
        raise argument_checks.WrongTypeError(f"{name} must be a tensor, got None.")
    loss = tf.convert_to_tensor(loss)
    if not loss.dtype.base_dtype.is_floating:
        raise argument_checks.WrongTypeError(
            f"{name} must have a floating point dtype, got {loss.dtype.name}."
        )
    return loss


def scalar_loss(loss: Any) -> Tensor:
    """Returns a loss as a scalar tensor. Raises a ValueError if it is not a scalar."""
    loss = tensor_of_loss("loss", loss)
    if loss.shape.rank != 0:
        raise ValueError(
            f"loss must be a scalar, got shape {loss.shape}: take its mean, or "
            "tf.reshape(loss, []) if the shape is unknown."
        )
    return loss


def check_step(global_step: Any, is_incremented: bool) -> None:
    """Checks the global step, which must be a variable if it will be incremented."""
    argument_checks.integer_step("global_step", global_step)
    # Some variables of distribution strategies are not instances of tf.Variable.
    is_variable = hasattr(global_step, "assign_add")
    if not is_incremented or global_step is None or is_variable:
        return
    # A tensor with a ref dtype is accepted, because it refers to a variable.
    if global_step.dtype == global_step.dtype.base_dtype:
        raise TypeError(
            "global_step must be a variable to be incremented, got the tensor "
            f"{global_step.name!r}. Pass the variable, or pass increment_global_step=False to "
            "optimize_loss."
        )


def as_list(message: str, values: Any) -> List[Any]:
    """Returns `values` as a list. Raises a TypeError with `message` if that is impossible."""
    if isinstance(values, (str, tf.Variable)):  # list() would split these
        raise argument_checks.WrongTypeError(message)
    try:
        return list(values)
    except TypeError:
        raise argument_checks.WrongTypeError(message) from None


def unique_operations(update_ops: Any) -> List[Any]:
    """Returns `update_ops` as a list, without duplicates."""
    message = f"update_ops must be a list of operations or None, got {update_ops!r}."
    return list({id(each): each for each in as_list(message, update_ops)}.values())


def some_variables(name: str, variables: Any) -> List[Variable]:
    """Returns `variables` as a list. Raises a ValueError if the list is empty."""
    message = f"{name} must be a list of variables or None, got {variables!r}."
    variables = list(variables_in(as_list(message, variables), name))
    if not variables:
        raise ValueError(f"{name}: there is no variable to train.")
    return variables
