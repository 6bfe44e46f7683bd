"""What cells use: the linear layer of `tf.contrib.rnn`'s private module core_rnn_cell, a check."""

from __future__ import annotations

from typing import Any, List, Optional

import tensorflow as tf

__all__ = ["Linear", "linear"]

v1 = tf.compat.v1


class Linear:
    """The product of tensors, side by side, with the variable `kernel`, plus the variable `bias`.

    `args` are one or several tensors of shape [batch, size]. The bias begins with zeros by default.
    """

    def __init__(
        self,
        args: Any,
        output_size: int,
        build_bias: bool,
        bias_initializer: Optional[Any] = None,
        kernel_initializer: Optional[Any] = None,
    ) -> None:
        values = _listed(args)
        shapes = [value.shape for value in values]
        if not values or any(len(shape) != 2 or shape.as_list()[1] is None for shape in shapes):
            raise ValueError(
                "args must be tensors of shape [batch, size], whose size is known. Got shapes: "
                f"{shapes}"
            )
        dtype = values[0].dtype
        rows = sum(shape.as_list()[1] for shape in shapes)
        self._kernel = v1.get_variable("kernel", [rows, output_size], dtype, kernel_initializer)
        self._bias = None
        if build_bias:
            # The bias is not divided by the partitioner of the scope.
            with v1.variable_scope(v1.get_variable_scope()) as scope:
                scope.set_partitioner(None)
                start = bias_initializer or v1.zeros_initializer()
                self._bias = v1.get_variable("bias", [output_size], dtype, start)

    def __call__(self, args: Any) -> tf.Tensor:
        values = _listed(args)
        inputs = values[0] if len(values) == 1 else tf.concat(values, 1)
        outputs = tf.matmul(inputs, self._kernel)
        return outputs if self._bias is None else tf.nn.bias_add(outputs, self._bias)


def linear(
    args: Any,
    output_size: int,
    bias: bool,
    bias_initializer: Optional[Any] = None,
    kernel_initializer: Optional[Any] = None,
) -> tf.Tensor:
    """Returns `Linear(args, output_size, bias, bias_initializer, kernel_initializer)(args)`."""
    return Linear(args, output_size, bias, bias_initializer, kernel_initializer)(args)


def check_cell(cell: Any) -> None:
    """Raises a TypeError if an object cannot be used like an RNNCell."""
    if not (callable(cell) and hasattr(cell, "output_size") and hasattr(cell, "state_size")):
        raise TypeError(f"cell must be an RNNCell, got {cell!r}")


def _listed(args: Any) -> List[Any]:
    if args is None:
        return []
    return list(args) if isinstance(args, (list, tuple)) else [args]
