"""Checks of gradients, of the variables that they are of, and of classes that apply them."""

import tensorflow as tf

from legacy_opt.core.argument_checks import WrongTypeError


def refuse_hooks(cls, hooks):
    """Refuses a class that overrides what nobody would call, for `__init_subclass__`.

    Args:
      cls: the class.
      hooks: a dict from the name of a method that the original of the class calls, and this package
        does not, to what to do instead.

    Raises:
      TypeError: the class has one of these methods from outside of this package.
    """
    package = __name__.partition(".")[0] + "."
    theirs = [each for each in cls.__mro__ if not each.__module__.startswith(package)]
    for name, instead in hooks.items():
        if any(name in vars(each) for each in theirs):
            raise TypeError(
                f"{cls.__name__}.{name} would never be called here, unlike in the original: "
                f"{instead}."
            )


def gradient(optimizer_name, grad, variable, sparse):
    """Checks that a gradient fits its variable.

    Args:
      optimizer_name: for the message.
      grad: the gradient; the values of the rows if `sparse`.
      variable: the variable it is for.
      sparse: whether `grad` holds rows.

    Returns:
      The gradient; where its static shape does not tell, with a check that runs, because
      arithmetic would broadcast it silently.

    Raises:
      TypeError: if the dtypes differ.
      ValueError: if the shapes do not fit.
    """
    gradient_dtype(optimizer_name, grad, variable)
    expected, given = variable.shape, grad.shape
    if sparse and expected.rank is not None:
        expected = tf.TensorShape([None]).concatenate(expected[1:])
    if not given.is_compatible_with(expected):
        raise ValueError(
            f"{optimizer_name}: the {'sparse ' if sparse else ''}gradient of variable "
            f"{variable.name!r} has shape {given}, expected {expected}."
        )
    if given.rank is None or not given[int(sparse) :].is_fully_defined():
        return tf.ensure_shape(grad, expected)
    return grad


def gradient_dtype(optimizer_name, grad, variable):
    """Checks that a gradient has its variable's dtype.

    Raises:
      TypeError: if it has not.
    """
    # A mixed precision policy shows a variable in the dtype that it is cast to.
    expected = getattr(variable, "true_dtype", variable.dtype).base_dtype
    if grad.dtype.base_dtype != expected:
        raise TypeError(
            f"{optimizer_name}: the gradient of variable {variable.name!r} has dtype "
            f"{grad.dtype.base_dtype.name}, the variable {expected.name}: cast the gradient."
        )


def trainable_dtype(optimizer_name, variable, valid):
    """Checks that an optimizer can train a variable of this dtype.

    Raises:
      WrongTypeError: if it cannot.
    """
    if variable.dtype.base_dtype not in valid:
        raise WrongTypeError(
            f"{optimizer_name} cannot train variable {variable.name!r} of dtype "
            f"{variable.dtype.base_dtype.name}; it trains "
            f"{', '.join(sorted(dtype.name for dtype in valid))}."
        )
