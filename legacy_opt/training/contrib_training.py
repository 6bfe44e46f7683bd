"""`create_train_op`, which builds a training step in one call.

Source: `tf.contrib.training.create_train_op` of TensorFlow 1.15.
"""

from __future__ import annotations

from typing import Any, Iterable, List, Optional, Union

import numpy as np
import tensorflow as tf

from legacy_opt.core import argument_checks, gradient_values
from legacy_opt.core.shortened import quoted
from legacy_opt.core.types import FunctionOfPairs, Operation, Tensor, V1Optimizer, Variable
from legacy_opt.core.user_warnings import warn
from legacy_opt.training import gradient_functions, one_step
from legacy_opt.training.optimizers_by_name import v1_optimizer

v1 = tf.compat.v1
_USE_GLOBAL_STEP = 0  # a value of `global_step`
_LOSS_ONLY = "loss"  # a value of `check_numerics`


def create_train_op(
    total_loss: Tensor,
    optimizer: V1Optimizer,
    global_step: Union[Variable, int, None] = _USE_GLOBAL_STEP,
    update_ops: Optional[Iterable[Union[Operation, Tensor]]] = None,
    variables_to_train: Optional[Iterable[Variable]] = None,
    transform_grads_fn: Optional[FunctionOfPairs] = None,
    summarize_gradients: bool = False,
    gate_gradients: int = v1.train.Optimizer.GATE_OP,
    aggregation_method: Optional[int] = None,
    colocate_gradients_with_ops: bool = False,
    check_numerics: Union[bool, str] = True,
) -> Tensor:
    """Creates a loss tensor whose evaluation runs one training step.

    Call this function only where a TF1 graph is built: in a `tf.Graph`, in a `model_fn`, or in a
    function that is passed to `tf.compat.v1.wrap_function`.
    Source: `tf.contrib.training.create_train_op`.
    `legacy-opt docs differences_from_originals` lists the differences.

    Args:
      total_loss: the loss, a floating point tensor. If it is not a scalar, the sum of its elements
        is differentiated.
      optimizer: a `tf.compat.v1.train.Optimizer`.
      global_step: the integer variable to increment. The default, 0, means the graph's global step,
        which is created if necessary; None means that nothing is incremented.
      update_ops: operations to run in each training step; None means the collection `UPDATE_OPS`.
        If the collection has operations that are not in `update_ops`, a warning lists them.
      variables_to_train: the variables to train. A partitioned variable is replaced by its
        partitions. None means all trainable variables.
      transform_grads_fn: a function that takes and returns a list of (gradient, variable) pairs,
        for example the result of `clip_gradient_norms_fn`.
      summarize_gradients: whether to write summaries: a histogram and the norm of each gradient.
      gate_gradients: see `tf.compat.v1.train.Optimizer.compute_gradients`.
      aggregation_method: see `tf.compat.v1.train.Optimizer.compute_gradients`.
      colocate_gradients_with_ops: whether to place gradients on the devices of their operations.
      check_numerics: True checks the loss and the gradients (after `transform_grads_fn`). If one of
        these values is NaN or infinite, the training step raises an InvalidArgumentError, and
        changes no trained variable, no slot and no global step, but `update_ops` may have run. If
        the optimizer is a LossScaleOptimizer, gradients are not checked, because this optimizer
        skips steps with NaN or infinite gradients itself. "loss" checks only the loss, like True in
        tf.contrib; the variables may have been updated before the error is raised. False checks
        nothing.

    Returns:
      The loss of the training step, a tensor, which is added to the collection `TRAIN_OP`.
      Evaluating this tensor runs the training step first.

    Raises:
      TypeError: an argument has the wrong type.
      ValueError: there is nothing to train, a variable is not trainable, or no variable has a
        gradient.
      RuntimeError: the function is called in eager execution or in a `tf.function`.
    """
    gradient_values.check_mode("create_train_op")
    total_loss = one_step.tensor_of_loss("total_loss", total_loss)
    v1_optimizer("optimizer of create_train_op", optimizer)
    if transform_grads_fn is not None:
        one_step.check_function("transform_grads_fn", transform_grads_fn)
    argument_checks.boolean("summarize_gradients", summarize_gradients)
    argument_checks.boolean("colocate_gradients_with_ops", colocate_gradients_with_ops)
    if check_numerics != _LOSS_ONLY and not isinstance(check_numerics, (bool, np.bool_)):
        raise TypeError(f"check_numerics must be True, False or 'loss', got {check_numerics!r}.")
    if type(global_step) is int and global_step == _USE_GLOBAL_STEP:
        global_step = v1.train.get_or_create_global_step()
    one_step.check_step(global_step, is_incremented=True)
    update_ops = _all_update_ops(update_ops)
    variables = _trainable(variables_to_train)

    if update_ops:
        with tf.control_dependencies(update_ops):
            barrier = tf.no_op(name="update_barrier")
        total_loss = one_step.copy_after([barrier], total_loss)
    pairs = optimizer.compute_gradients(
        total_loss,
        variables,
        gate_gradients=gate_gradients,
        aggregation_method=aggregation_method,
        colocate_gradients_with_ops=colocate_gradients_with_ops,
    )
    caller = "create_train_op"
    if transform_grads_fn is not None:
        pairs = transform_grads_fn(pairs)
        caller += ", after transform_grads_fn,"
    pairs = gradient_values.some_gradients(caller, pairs)
    if summarize_gradients:
        with v1.name_scope("summarize_grads"):
            gradient_functions.add_gradients_summaries(pairs)
    checked_loss = None if check_numerics in (False, _LOSS_ONLY) else total_loss
    updates = one_step.apply(optimizer, pairs, global_step, checked_loss)
    with v1.name_scope("train_op"):
        if check_numerics == _LOSS_ONLY:
            total_loss = tf.debugging.check_numerics(total_loss, "LossTensor is inf or nan")
        train_op = one_step.copy_after([updates], total_loss)
    v1.add_to_collection(v1.GraphKeys.TRAIN_OP, train_op)
    return train_op


def _all_update_ops(update_ops: Any) -> List[Any]:
    """Returns the operations to run. Warns about other operations in the collection UPDATE_OPS."""
    collected = v1.get_collection(v1.GraphKeys.UPDATE_OPS)
    update_ops = one_step.unique_operations(collected if update_ops is None else update_ops)
    left_out = [each for each in collected if not any(each is other for other in update_ops)]
    if left_out:
        warn(
            "create_train_op runs only the update_ops passed to it, and not these of the "
            f"collection UPDATE_OPS: {quoted(operation.name for operation in left_out)}.",
            UserWarning,
        )
    return update_ops


def _trainable(variables: Any) -> List[Variable]:
    trainable = v1.trainable_variables()
    variables = trainable if variables is None else variables
    variables = one_step.some_variables("variables_to_train", variables)
    for variable in variables:
        if not (variable.trainable or any(variable is each for each in trainable)):
            raise ValueError(
                f"variables_to_train has {variable.name!r}, which is not trainable. Create it "
                "with trainable=True, or add it to the collection TRAINABLE_VARIABLES."
            )
    return variables
