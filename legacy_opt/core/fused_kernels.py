"""Finds TensorFlow's fused kernels by name, and applies them.

A fused kernel is one op that does the whole update of a variable. TensorFlow's own optimizers use
the ops ``[Resource][Sparse]Apply<Name>`` of `tf.raw_ops`, which have the same names from 1.15 on.
Adam, AddSign, PowerSign and AdaMax have no sparse kernel.
"""

from __future__ import annotations

from typing import Any, Callable, Optional

import tensorflow as tf

from legacy_opt.core.types import Variable
from legacy_opt.core.update import Update
from legacy_opt.core.variable_access import is_resource

_NOT_IN_BFLOAT16 = ("AdaMax",)  # no TensorFlow version has a bfloat16 kernel of AdaMax for CPUs


def find(kernel: str, variable: Variable, sparse: bool) -> Optional[Callable]:
    """Returns the raw op that updates this kind of variable, or None if there is no kernel for it.

    Args:
      kernel: the kernel's name without its prefixes, for example "Adagrad".
      variable: the variable to update; ref and resource variables have different ops.
      sparse: whether the gradient is sparse.
    """
    if kernel in _NOT_IN_BFLOAT16 and variable.dtype.base_dtype == tf.bfloat16:
        return None
    prefix = ("Resource" if is_resource(variable) else "") + ("Sparse" if sparse else "")
    return getattr(tf.raw_ops, prefix + "Apply" + kernel, None)


def apply(kernel: str, update: Update, use_locking: bool = False, **arguments: Any) -> Any:
    """Updates one variable with a fused kernel.

    Args:
      kernel: the kernel's name without its prefixes, for example "Adagrad".
      update: the `legacy_opt.Update`; its gradient, variable and indices are passed to the kernel.
      use_locking: whether the kernel locks the variables while it writes.
      **arguments: the kernel's other arguments by their names in `tf.raw_ops`: slot variables,
        and hyperparameters as tensors of the variable's dtype.

    Returns:
      The operation; None when executing eagerly; `NotImplemented` if there is no such kernel.
    """
    op = find(kernel, update.variable, update.sparse)
    if op is None:
        return NotImplemented
    arguments.update(var=update.variable, grad=update.grad, use_locking=use_locking)
    if is_resource(update.variable):
        arguments = {name: getattr(value, "handle", value) for name, value in arguments.items()}
    if update.sparse:
        arguments["indices"] = update.access.indices
    result = op(**arguments)
    return getattr(result, "op", result)  # ops for ref variables return a tensor
