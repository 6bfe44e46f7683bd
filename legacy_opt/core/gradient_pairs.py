"""The (gradient, variable) pairs that an optimizer is given: checked, and safe from its writes."""

import contextlib

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core import gradient_checks
from legacy_opt.core.gradient_values import changed, pairs_of
from legacy_opt.core.variable_access import after, copied, in_session_graph, is_value
from legacy_opt.core.variable_lists import is_partitioned, is_variable

v1 = tf.compat.v1


@contextlib.contextmanager
def given(optimizer, grads_and_vars):
    """The scope in which an optimizer applies gradients.

    A gradient may be a variable's or slot's own value, as `tf.identity(w)` is. Nothing in the scope
    runs before all such gradients are read, and where one is the memory of a ref variable it is
    copied, so that no write changes a gradient.

    Args:
      optimizer: the name of the optimizer's class, for messages.
      grads_and_vars: an iterable of (gradient, variable) pairs.

    Yields:
      A list of pairs, whose gradients are tensors, `tf.IndexedSlices` or None.

    Raises:
      TypeError: these are no pairs; a variable is none, or is Keras'; or a gradient's dtype is not
        its variable's.
      ValueError: a gradient's shape does not fit its variable.
    """
    values = []

    def safe(tensor):
        if in_session_graph(tensor) and is_value(tensor):
            tensor = copied(tensor)
            values.append(tensor)
        return tensor

    pairs = checked(optimizer, grads_and_vars)
    pairs = [(changed(grad, safe), variable) for grad, variable in pairs]
    with after(*values):
        yield pairs


def checked(optimizer, grads_and_vars):
    """Returns the pairs with gradients as tensors; see `given`.

    All who wait for a dense gradient wait for the check of its shape: the check alone may be left
    out of a graph, if nothing takes what it returns.
    """
    pairs = pairs_of(optimizer, grads_and_vars)
    for grad, variable in pairs:
        _only_variable(optimizer, variable, grad)
    return [(_as_gradient(optimizer, *pair), pair[1]) for pair in pairs]


def _as_gradient(optimizer, grad, variable):
    if grad is None:
        return None
    grad = v1.convert_to_tensor_or_indexed_slices(grad)
    if isinstance(grad, tf.IndexedSlices):
        return grad
    return gradient_checks.gradient(optimizer, grad, variable, sparse=False)


def check_variables(optimizer, var_list):
    """Refuses what cannot be trained in the `var_list` of `minimize`, which may be nested.

    Raises:
      TypeError: there is a variable of Keras 3, or what is no variable nor tensor.
    """
    for each in tf.nest.flatten(var_list):
        _refuse_keras_3(optimizer, each)
        trainable = tf.is_tensor(each) or is_variable(each) or is_partitioned(each)
        if var_list is not None and not trainable:
            raise TypeError(
                f"{optimizer}: var_list must hold variables, and {each!r} is no variable."
            )


def _only_variable(optimizer, variable, grad):
    """Refuses a variable of Keras 3, which is no `tf.Variable`, and what is none at all."""
    _refuse_keras_3(optimizer, variable)
    if is_variable(variable):
        return
    hint = ""
    if versions.is_keras_3_variable(grad) or is_variable(grad):
        hint = " The gradient comes first."
    elif is_partitioned(variable):
        hint = " Pass the parts of a partitioned one."
    raise TypeError(
        f"{optimizer} takes (gradient, variable) pairs, and {variable!r} is no variable.{hint}"
    )


def _refuse_keras_3(optimizer, variable):
    if versions.is_keras_3_variable(variable):
        raise TypeError(
            f"{optimizer} got {variable.name!r}, a variable of Keras 3, which v1 optimizers "
            "cannot update. Make a Keras optimizer of it: "
            "legacy_opt.compat.to_keras(optimizer)."
        )
