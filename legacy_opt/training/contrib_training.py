"""A training step in one call: `optimize_loss` and `create_train_op`.

Source: `tf.contrib.layers.optimize_loss` and `tf.contrib.training.create_train_op` of TensorFlow
1.15, of which they make the same graph, operation by operation, but for `check_numerics=True`.
"""

import numpy as np
import tensorflow as tf

from legacy_opt.core import argument_checks, gradient_values
from legacy_opt.core.update import warn
from legacy_opt.core.variable_lists import variables_in
from legacy_opt.training.optimizers_by_name import check_optimizer, make_optimizer, v1_optimizer
from legacy_opt.wrappers.nested_optimizers import all_held_by
from legacy_opt.wrappers.sync_replicas import holds_sync_replicas

v1 = tf.compat.v1

OPTIMIZER_SUMMARIES = [
    "learning_rate",
    "loss",
    "gradients",
    "gradient_norm",
    "global_gradient_norm",
]
_DEFAULT_SUMMARIES = ("loss", "learning_rate", "global_gradient_norm")


def optimize_loss(
    loss,
    global_step,
    learning_rate,
    optimizer,
    gradient_noise_scale=None,
    gradient_multipliers=None,
    clip_gradients=None,
    learning_rate_decay_fn=None,
    update_ops=None,
    variables=None,
    name=None,
    summaries=None,
    colocate_gradients_with_ops=False,
    increment_global_step=True,
    check_numerics=False,
):
    """Returns an operation that trains one step and gives the loss.

    It builds a part of a TF1 graph: in a `tf.Graph`, a `model_fn`, or `wrap_function`. Source:
    `tf.contrib.layers.optimize_loss`; docs/training_helpers.md tells the differences.

    Args:
      loss: the loss, a floating point scalar.
      global_step: the integer variable to advance; None for the graph's own, if it has one.
      learning_rate: a number, which becomes the float32 variable `learning_rate` and is in
        checkpoints; a scalar tensor or variable; or None if `optimizer` needs none.
      optimizer: a name in `OPTIMIZER_CLS_NAMES`; a class that is called with
        ``learning_rate=…``, and with ``global_step=…`` if it cannot be without; a function of the
        learning rate, or of nothing if that is None; or a `tf.compat.v1.train.Optimizer`.
      gradient_noise_scale: if given, a number or tensor; noise from a truncated normal
        distribution, times this, is added to the gradients. Sparse ones become dense.
      gradient_multipliers: a dict from variables (or their `ref()`, or names, as `"w:0"`) to the
        numbers or tensors that their gradients are multiplied by. Those of variables that are not
        trained are left aside.
      clip_gradients: a number or tensor to which the global norm is clipped; or a function from a
        list of (gradient, variable) pairs to such a list, as `adaptive_clipping_fn` returns it.
      learning_rate_decay_fn: a function from learning rate and global step to the learning rate to
        use. It is left aside if `learning_rate` is None.
      update_ops: operations to run in each step; None for the collection `UPDATE_OPS`.
      variables: the variables to train, of partitioned ones the parts; None for all trainable ones.
      name: the variable scope of everything here, by default "OptimizeLoss", made unique.
      summaries: some of `OPTIMIZER_SUMMARIES`; None for loss, learning rate and global norms. The
        learning rate is written only if there is a `learning_rate_decay_fn`.
      colocate_gradients_with_ops: whether gradients are computed where their operations are.
      increment_global_step: False if something else advances `global_step`.
      check_numerics: see `create_train_op`; True or False. The original has no such argument.

    Returns:
      The loss of the step, a tensor that when evaluated has trained.

    Raises:
      TypeError: an argument has the wrong type, or a class of optimizers needs other arguments.
      ValueError: an argument is out of its range; no variable has a gradient; or there is no
        global step, and the decay or the optimizer needs one.
      RuntimeError: it is called eagerly or in a `tf.function`.
    """
    gradient_values.in_graphs_only("optimize_loss")
    loss = _scalar_loss(loss)
    if global_step is None:
        global_step = v1.train.get_global_step()
    _check_step(
        global_step, argument_checks.boolean("increment_global_step", increment_global_step)
    )
    _check_learning_rate(learning_rate, learning_rate_decay_fn, global_step)
    check_optimizer(optimizer, learning_rate)
    summaries = _summaries(summaries)
    _check_changes(gradient_noise_scale, gradient_multipliers, clip_gradients)
    argument_checks.boolean("colocate_gradients_with_ops", colocate_gradients_with_ops)
    argument_checks.boolean("check_numerics", check_numerics)
    if update_ops is None:
        update_ops = v1.get_collection(v1.GraphKeys.UPDATE_OPS)
    update_ops = _operations(update_ops)
    if variables is None:
        variables = v1.trainable_variables()
    variables = _some_variables("variables", variables)

    with v1.variable_scope(gradient_values.scope_name(name), "OptimizeLoss", [loss, global_step]):
        if update_ops:
            loss = _after(update_ops, loss)
        rate = _learning_rate(learning_rate, learning_rate_decay_fn, global_step, summaries)
        chosen = make_optimizer(optimizer, rate, global_step)
        pairs = chosen.compute_gradients(
            loss, variables, colocate_gradients_with_ops=colocate_gradients_with_ops
        )
        pairs = gradient_values.some_gradients("optimize_loss", pairs)
        if gradient_noise_scale is not None:
            pairs = gradient_values.add_noise(pairs, gradient_noise_scale)
        if gradient_multipliers is not None:
            pairs = gradient_values.multiply_by_full_names(pairs, gradient_multipliers)
        pairs = _clip_and_summarize(pairs, clip_gradients, loss, summaries)
        step = global_step if increment_global_step else None
        updates = _apply(chosen, pairs, step, loss if check_numerics else None, name="train")
        return _after([updates], loss)


_USE_GLOBAL_STEP = 0
_LOSS_ONLY = "loss"
_LOSS_SCALES = {"LossScaleOptimizer", "MixedPrecisionLossScaleOptimizer"}  # whosever they are


def create_train_op(
    total_loss,
    optimizer,
    global_step=_USE_GLOBAL_STEP,
    update_ops=None,
    variables_to_train=None,
    transform_grads_fn=None,
    summarize_gradients=False,
    gate_gradients=v1.train.Optimizer.GATE_OP,
    aggregation_method=None,
    colocate_gradients_with_ops=False,
    check_numerics=True,
):
    """Returns an operation that trains one step and gives the loss.

    It builds a part of a TF1 graph: in a `tf.Graph`, a `model_fn`, or `wrap_function`. Source:
    `tf.contrib.training.create_train_op`; docs/training_helpers.md tells the differences.

    Args:
      total_loss: the loss, a floating point tensor. The gradient of one that is no scalar is that
        of its sum.
      optimizer: a `tf.compat.v1.train.Optimizer`.
      global_step: the integer variable to advance; 0, the default, for the graph's own, which is
        made where there is none; None to advance nothing.
      update_ops: operations to run before the loss is given; None for the collection `UPDATE_OPS`.
        A warning tells if some of the collection's are left out.
      variables_to_train: the variables to train, of partitioned ones the parts; None for all
        trainable ones.
      transform_grads_fn: a function from a list of (gradient, variable) pairs to such a list, as
        `clip_gradient_norms_fn` returns it.
      summarize_gradients: whether to write a histogram and the norm of each gradient.
      gate_gradients: see `tf.compat.v1.train.Optimizer.compute_gradients`.
      aggregation_method: see there.
      colocate_gradients_with_ops: whether gradients are computed where their operations are.
      check_numerics: whether a step whose loss, or a gradient as it is to be applied, is NaN or
        infinite raises an InvalidArgumentError before a trained variable, a slot or the step is
        written; `update_ops` belong to the loss and may have run. The gradients of a
        LossScaleOptimizer, which leaves such steps out, are not checked. "loss" checks the loss
        alone, as True does in the original; the step may have been trained by then.

    Returns:
      The loss of the step, a tensor that when evaluated has trained. It is in the collection
      `TRAIN_OP`.

    Raises:
      TypeError: an argument has the wrong type.
      ValueError: there is nothing to train, a variable is not trainable, or none has a gradient.
      RuntimeError: it is called eagerly or in a `tf.function`.
    """
    gradient_values.in_graphs_only("create_train_op")
    total_loss = _loss("total_loss", total_loss)
    v1_optimizer("optimizer of create_train_op", optimizer)
    if transform_grads_fn is not None:
        _check_function("transform_grads_fn", transform_grads_fn)
    argument_checks.boolean("summarize_gradients", summarize_gradients)
    argument_checks.boolean("colocate_gradients_with_ops", colocate_gradients_with_ops)
    if check_numerics != _LOSS_ONLY and not isinstance(check_numerics, (bool, np.bool_)):
        raise TypeError("check_numerics must be True, False or 'loss', got %r." % (check_numerics,))
    if type(global_step) is int and global_step == _USE_GLOBAL_STEP:
        global_step = v1.train.get_or_create_global_step()
    _check_step(global_step, advanced=True)
    update_ops = _all_update_ops(update_ops)
    variables = _trainable(variables_to_train)

    if update_ops:
        with tf.control_dependencies(update_ops):
            barrier = tf.no_op(name="update_barrier")
        total_loss = _after([barrier], total_loss)
    pairs = optimizer.compute_gradients(
        total_loss,
        variables,
        gate_gradients=gate_gradients,
        aggregation_method=aggregation_method,
        colocate_gradients_with_ops=colocate_gradients_with_ops,
    )
    what = "create_train_op"
    if transform_grads_fn is not None:
        pairs, what = transform_grads_fn(pairs), what + ", after transform_grads_fn,"
    pairs = gradient_values.some_gradients(what, pairs)
    if summarize_gradients:
        with v1.name_scope("summarize_grads"):
            gradient_values.add_gradients_summaries(pairs)
    before_update = check_numerics and check_numerics != _LOSS_ONLY
    updates = _apply(optimizer, pairs, global_step, total_loss if before_update else None)
    with v1.name_scope("train_op"):
        if check_numerics == _LOSS_ONLY:
            total_loss = tf.debugging.check_numerics(total_loss, "LossTensor is inf or nan")
        train_op = _after([updates], total_loss)
    v1.add_to_collection(v1.GraphKeys.TRAIN_OP, train_op)
    return train_op


# The parts of optimize_loss.


def _learning_rate(learning_rate, decay_fn, global_step, summaries):
    """Returns the tensor or variable that the optimizer is made with, or None."""
    if learning_rate is None:
        return None
    if not argument_checks.is_tensor_like(learning_rate):
        learning_rate = v1.get_variable(
            "learning_rate",
            [],
            trainable=False,
            initializer=v1.constant_initializer(learning_rate),
        )
    if decay_fn is not None:
        learning_rate = decay_fn(learning_rate, global_step)
        if "learning_rate" in summaries:
            v1.summary.scalar("learning_rate", learning_rate)
    return learning_rate


def _clip_and_summarize(pairs, clip_gradients, loss, summaries):
    """Returns the clipped gradients, and writes the summaries that come before and after."""
    norms = "global_gradient_norm" in summaries or "gradient_norm" in summaries
    if norms:
        v1.summary.scalar("global_norm/gradient_norm", gradient_values.global_norm(pairs))
    if _is_function(clip_gradients):
        pairs = gradient_values.some_gradients("optimize_loss", clip_gradients(pairs))
    elif clip_gradients is not None:
        pairs = gradient_values.clip_by_global_norm(pairs, clip_gradients)
    if "loss" in summaries:
        v1.summary.scalar("loss", loss)
    for grad, variable in pairs:
        if grad is not None:
            values, name = gradient_values.values_of(grad), variable.name.replace(":", "_")
            if "gradients" in summaries:
                v1.summary.histogram("gradients/" + name, values)
            if "gradient_norm" in summaries:
                v1.summary.scalar("gradient_norm/" + name, tf.linalg.global_norm([values]))
    if clip_gradients is not None and norms:
        v1.summary.scalar("global_norm/clipped_gradient_norm", gradient_values.global_norm(pairs))
    return pairs


def _apply(optimizer, pairs, global_step, checked_loss, name=None):
    """Applies gradients; given a loss to check, once it and they are known to be finite."""
    if checked_loss is None:
        return optimizer.apply_gradients(pairs, global_step=global_step, name=name)
    is_scaled = any(map(_is_loss_scale, all_held_by(optimizer)))
    pairs, finite = gradient_values.check_numerics(
        checked_loss, pairs, with_gradients=not is_scaled
    )
    if holds_sync_replicas(optimizer):
        # Threads of their own run part of what it makes: that is not to compute a loss.
        finite = []
    # What an optimizer writes without regard to its gradients waits, too.
    with tf.control_dependencies(finite):
        return optimizer.apply_gradients(pairs, global_step=global_step, name=name)


def _is_loss_scale(optimizer):
    """Whether gradients overflow by design, and the optimizer leaves such steps out itself."""
    return any(each.__name__ in _LOSS_SCALES for each in type(optimizer).__mro__)


def _after(operations, tensor):
    """Returns a tensor, once operations have run."""
    scope = v1.name_scope(None, "control_dependency", operations + [tensor])
    place = v1.get_default_graph().colocate_with(tensor.op)
    with scope as name, place, tf.control_dependencies(operations):
        return tf.identity(tensor, name=name)


# Checks.


def _is_function(value):
    return callable(value) and not argument_checks.is_tensor_like(value)


def _check_function(name, value):
    if not _is_function(value):
        raise TypeError("%s must be a function or None, got %r." % (name, value))


def _loss(name, loss):
    if _is_function(loss):
        raise TypeError("%s must be a tensor, got the function %r: call it." % (name, loss))
    if loss is None:
        raise argument_checks.WrongTypeError("%s must be a tensor, got None." % name)
    loss = tf.convert_to_tensor(loss)
    if not loss.dtype.base_dtype.is_floating:
        raise argument_checks.WrongTypeError(
            "%s must be of a floating point dtype, got %s." % (name, loss.dtype.name)
        )
    return loss


def _scalar_loss(loss):
    loss = _loss("loss", loss)
    if loss.shape.rank != 0:
        raise ValueError(
            "loss must be a scalar, got shape %s: take its mean, or tf.reshape(loss, []) where the "
            "shape is not known." % (loss.shape,)
        )
    return loss


def _check_step(global_step, advanced):
    """Checks the global step, which must be a variable if it is to be advanced."""
    argument_checks.integer_step("global_step", global_step)
    # Not every variable of a distribution strategy is a tf.Variable.
    if not advanced or global_step is None or hasattr(global_step, "assign_add"):
        return
    if global_step.dtype == global_step.dtype.base_dtype:  # else it is a ref variable's memory
        raise TypeError(
            "global_step must be a variable to be advanced, got the tensor %r. Pass the variable; "
            "or, to optimize_loss, increment_global_step=False." % global_step.name
        )


def _check_learning_rate(learning_rate, decay_fn, global_step):
    if decay_fn is not None:
        _check_function("learning_rate_decay_fn", decay_fn)
    if learning_rate is None:
        return
    if _is_function(learning_rate):
        raise argument_checks.WrongTypeError(
            "learning_rate must be a number, a scalar tensor or variable, or None, got the "
            "function %r: call it, or pass it as learning_rate_decay_fn." % (learning_rate,)
        )
    argument_checks.not_negative("learning_rate", learning_rate)
    if decay_fn is not None and global_step is None:
        raise ValueError(
            "learning_rate_decay_fn needs a global_step, and there is none. Call tf.compat.v1."
            "train.get_or_create_global_step() before, or pass global_step=…"
        )


def _check_changes(gradient_noise_scale, gradient_multipliers, clip_gradients):
    if gradient_noise_scale is not None:
        gradient_values.scalar("gradient_noise_scale", gradient_noise_scale)
        argument_checks.not_negative("gradient_noise_scale", gradient_noise_scale)
    if gradient_multipliers is not None:
        gradient_values.check_multipliers(gradient_multipliers)
    if clip_gradients is not None and not _is_function(clip_gradients):
        gradient_values.positive_scalar("clip_gradients", clip_gradients)


def _listed(message, values):
    """Returns a list of values; raises a TypeError of this message if there is but one."""
    try:
        if isinstance(values, (str, tf.Variable)):
            raise TypeError
        return list(values)
    except TypeError:
        raise argument_checks.WrongTypeError(message) from None


def _summaries(summaries):
    if summaries is None:
        return _DEFAULT_SUMMARIES
    message = "summaries must be a list of some of %s, got %r." % (OPTIMIZER_SUMMARIES, summaries)
    chosen = _listed(message, summaries)
    if any(each not in OPTIMIZER_SUMMARIES for each in chosen):
        raise ValueError(message)
    return chosen


def _operations(update_ops):
    """Returns a list of operations, each once."""
    message = "update_ops must be a list of operations or None, got %r." % (update_ops,)
    listed = _listed(message, update_ops)
    return list({id(operation): operation for operation in listed}.values())


def _all_update_ops(update_ops):
    """Returns the operations that run in each step; warns about those that nobody runs."""
    collected = v1.get_collection(v1.GraphKeys.UPDATE_OPS)
    update_ops = _operations(collected if update_ops is None else update_ops)
    left_out = [each for each in collected if not any(each is other for other in update_ops)]
    if left_out:
        warn(
            "create_train_op runs the update_ops that it is given, and not these of the collection "
            "UPDATE_OPS: %s." % ", ".join(operation.name for operation in left_out),
            UserWarning,
        )
    return update_ops


def _some_variables(name, variables):
    message = "%s must be a list of variables or None, got %r." % (name, variables)
    variables = list(variables_in(_listed(message, variables), name))
    if not variables:
        raise ValueError("%s: there is no variable to train." % name)
    return variables


def _trainable(variables):
    """Returns the variables to train, all of which must be trainable."""
    trainable = v1.trainable_variables()
    variables = _some_variables("variables_to_train", trainable if variables is None else variables)
    for variable in variables:
        if not (variable.trainable or any(variable is each for each in trainable)):
            raise ValueError(
                "variables_to_train holds %r, which is not trainable. Make it with trainable=True, "
                "or add it to the collection TRAINABLE_VARIABLES." % variable.name
            )
    return variables
