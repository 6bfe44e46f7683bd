"""`optimize_loss`, which builds a training step in one call.

Source: `tf.contrib.layers.optimize_loss` of TensorFlow 1.15.
"""

from __future__ import annotations

from typing import Any, Callable, Collection, Iterable, List, Mapping, Optional, Union

import tensorflow as tf

from legacy_opt.core import argument_checks, gradient_values
from legacy_opt.core.global_step import find_global_step
from legacy_opt.core.types import (
    FunctionOfPairs,
    GradAndVar,
    Operation,
    Tensor,
    TensorLike,
    V1Optimizer,
    Variable,
)
from legacy_opt.training import gradient_functions, one_step
from legacy_opt.training.optimizers_by_name import check_optimizer, make_optimizer

v1 = tf.compat.v1
OPTIMIZER_SUMMARIES: List[str] = [
    "learning_rate",
    "loss",
    "gradients",
    "gradient_norm",
    "global_gradient_norm",
]
_DEFAULT_SUMMARIES = ("loss", "learning_rate", "global_gradient_norm")


def optimize_loss(
    loss: Tensor,
    global_step: Optional[Variable],
    learning_rate: Optional[TensorLike],
    optimizer: Union[str, V1Optimizer, Callable[..., V1Optimizer]],
    gradient_noise_scale: Optional[TensorLike] = None,
    gradient_multipliers: Optional[Mapping[Any, TensorLike]] = None,
    clip_gradients: Union[TensorLike, FunctionOfPairs, None] = None,
    learning_rate_decay_fn: Optional[Callable[[Any, Any], TensorLike]] = None,
    update_ops: Optional[Iterable[Union[Operation, Tensor]]] = None,
    variables: Optional[Iterable[Variable]] = None,
    name: Optional[str] = None,
    summaries: Optional[Iterable[str]] = None,
    colocate_gradients_with_ops: bool = False,
    increment_global_step: bool = True,
    check_numerics: bool = False,
) -> Tensor:
    """Creates a loss tensor whose evaluation runs one training step.

    Call this function only where a TF1 graph is built: in a `tf.Graph`, in a `model_fn`, or in a
    function that is passed to `tf.compat.v1.wrap_function`.
    Source: `tf.contrib.layers.optimize_loss`.
    `legacy-opt docs differences_from_originals` lists the differences.

    Args:
      loss: the loss, a floating point scalar.
      global_step: the integer variable to increment; None means the graph's global step, if the
        graph has one.
      learning_rate: a number; a scalar tensor or variable; or None if `optimizer` needs no learning
        rate. A number becomes the value of a new float32 variable `learning_rate`, which is saved
        in checkpoints.
      optimizer: a `tf.compat.v1.train.Optimizer`; a name in `OPTIMIZER_CLS_NAMES`; an optimizer
        class; or a function that returns an optimizer. A class is called with ``learning_rate=…``,
        and also with ``global_step=…`` if the constructor requires it. A function is called with
        the learning rate, or without arguments if `learning_rate` is None.
      gradient_noise_scale: a number or tensor by which random noise from a truncated normal
        distribution is multiplied. The noise is added to the gradients, and makes sparse gradients
        dense. None means no noise.
      gradient_multipliers: a dict whose values are the factors of the gradients, numbers or
        tensors. Its keys are variables, their `ref()`, or their names, for example `"w:0"`. Keys
        for variables that are not trained are ignored.
      clip_gradients: a number or tensor to which the global norm is clipped; or a function that
        takes and returns a list of (gradient, variable) pairs, for example the result of
        `adaptive_clipping_fn`.
      learning_rate_decay_fn: a function that takes the learning rate and the global step, and
        returns the decayed learning rate. It is ignored if `learning_rate` is None.
      update_ops: operations to run in each training step; None means the collection `UPDATE_OPS`.
      variables: the variables to train. A partitioned variable is replaced by its partitions. None
        means all trainable variables.
      name: the variable scope of everything that this function creates. None means "OptimizeLoss",
        with a suffix if this name is already used.
      summaries: names from `OPTIMIZER_SUMMARIES`; None means loss, learning rate and global norms.
        The learning rate is written only with a `learning_rate_decay_fn`.
      colocate_gradients_with_ops: whether to place gradients on the devices of their operations.
      increment_global_step: False if other code increments `global_step`.
      check_numerics: True or False, see `create_train_op`. tf.contrib has no such argument.

    Returns:
      The loss of the training step, a tensor. Evaluating this tensor runs the training step first.

    Raises:
      TypeError: an argument has the wrong type, or an optimizer class requires further arguments.
      ValueError: an argument is out of range; no variable has a gradient; or there is no global
        step, although `learning_rate_decay_fn` or the optimizer needs one.
      RuntimeError: the function is called in eager execution or in a `tf.function`.
    """
    gradient_values.check_mode("optimize_loss")
    loss = one_step.scalar_loss(loss)
    if global_step is None:
        global_step = find_global_step()
    argument_checks.boolean("increment_global_step", increment_global_step)
    one_step.check_step(global_step, is_incremented=increment_global_step)
    _check_learning_rate(learning_rate, learning_rate_decay_fn, global_step)
    check_optimizer(optimizer, learning_rate)
    summaries = _summaries(summaries)
    _check_changes(gradient_noise_scale, gradient_multipliers, clip_gradients)
    argument_checks.boolean("colocate_gradients_with_ops", colocate_gradients_with_ops)
    argument_checks.boolean("check_numerics", check_numerics)
    if update_ops is None:
        update_ops = v1.get_collection(v1.GraphKeys.UPDATE_OPS)
    update_ops = one_step.unique_operations(update_ops)
    if variables is None:
        variables = v1.trainable_variables()
    variables = one_step.some_variables("variables", variables)

    with v1.variable_scope(gradient_values.scope_name(name), "OptimizeLoss", [loss, global_step]):
        if update_ops:
            loss = one_step.copy_after(update_ops, loss)
        rate = _learning_rate(learning_rate, learning_rate_decay_fn, global_step, summaries)
        optimizer = make_optimizer(optimizer, rate, global_step)
        pairs = optimizer.compute_gradients(
            loss, variables, colocate_gradients_with_ops=colocate_gradients_with_ops
        )
        pairs = gradient_values.some_gradients("optimize_loss", pairs)
        if gradient_noise_scale is not None:
            pairs = gradient_functions.add_noise(pairs, gradient_noise_scale)
        if gradient_multipliers is not None:
            pairs = gradient_functions.multiply_by_full_names(pairs, gradient_multipliers)
        pairs = _clip_and_summarize(pairs, clip_gradients, loss, summaries)
        step = global_step if increment_global_step else None
        checked_loss = loss if check_numerics else None
        updates = one_step.apply(optimizer, pairs, step, checked_loss, name="train")
        return one_step.copy_after([updates], loss)


def _learning_rate(
    learning_rate: Optional[TensorLike],
    decay_fn: Optional[Callable[..., Any]],
    global_step: Any,
    summaries: Collection[str],
) -> Any:
    """Returns the learning rate for the optimizer as a tensor or variable, or None."""
    if learning_rate is None:
        return None
    if not argument_checks.is_tensor_like(learning_rate):
        learning_rate = v1.get_variable(
            "learning_rate", [], trainable=False, initializer=v1.constant_initializer(learning_rate)
        )
    if decay_fn is not None:
        learning_rate = decay_fn(learning_rate, global_step)
        if "learning_rate" in summaries:
            v1.summary.scalar("learning_rate", learning_rate)
    return learning_rate


def _clip_and_summarize(
    pairs: List[GradAndVar], clip_gradients: Any, loss: Tensor, summaries: Collection[str]
) -> List[GradAndVar]:
    writes_norms = "global_gradient_norm" in summaries or "gradient_norm" in summaries
    if writes_norms:
        v1.summary.scalar("global_norm/gradient_norm", gradient_values.global_norm(pairs))
    if argument_checks.is_function(clip_gradients):
        pairs = gradient_values.some_gradients("optimize_loss", clip_gradients(pairs))
    elif clip_gradients is not None:
        pairs = gradient_values.clip_by_global_norm(pairs, clip_gradients)
    if "loss" in summaries:
        v1.summary.scalar("loss", loss)
    for grad, variable in pairs:
        if grad is not None:
            values = gradient_values.values_of(grad)
            name = variable.name.replace(":", "_")
            if "gradients" in summaries:
                v1.summary.histogram("gradients/" + name, values)
            if "gradient_norm" in summaries:
                v1.summary.scalar("gradient_norm/" + name, tf.linalg.global_norm([values]))
    if clip_gradients is not None and writes_norms:
        v1.summary.scalar("global_norm/clipped_gradient_norm", gradient_values.global_norm(pairs))
    return pairs


def _check_learning_rate(learning_rate: Any, decay_fn: Any, global_step: Any) -> None:
    if decay_fn is not None:
        one_step.check_function("learning_rate_decay_fn", decay_fn)
    if learning_rate is None:
        return
    if argument_checks.is_function(learning_rate):
        raise argument_checks.WrongTypeError(
            "learning_rate must be a number, a scalar tensor or variable, or None, got the "
            f"function {learning_rate!r}: call it, or pass it as learning_rate_decay_fn."
        )
    argument_checks.not_negative("learning_rate", learning_rate)
    if decay_fn is not None and global_step is None:
        raise ValueError(
            "learning_rate_decay_fn needs a global_step, and this graph has none. Call tf.compat."
            "v1.train.get_or_create_global_step() before, or pass global_step=…"
        )


def _check_changes(
    gradient_noise_scale: Any, gradient_multipliers: Any, clip_gradients: Any
) -> None:
    if gradient_noise_scale is not None:
        gradient_values.scalar("gradient_noise_scale", gradient_noise_scale)
        argument_checks.not_negative("gradient_noise_scale", gradient_noise_scale)
    if gradient_multipliers is not None:
        gradient_functions.check_multipliers(gradient_multipliers)
    if clip_gradients is not None and not argument_checks.is_function(clip_gradients):
        gradient_values.positive_scalar("clip_gradients", clip_gradients)


def _summaries(summaries: Any) -> Collection[str]:
    if summaries is None:
        return _DEFAULT_SUMMARIES
    message = f"summaries must be a list of names in {OPTIMIZER_SUMMARIES}, got {summaries!r}."
    chosen = one_step.as_list(message, summaries)
    if any(each not in OPTIMIZER_SUMMARIES for each in chosen):
        raise ValueError(message)
    return chosen
