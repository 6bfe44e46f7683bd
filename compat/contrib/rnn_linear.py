"""A check of cells, and the linear layer of `core_rnn_cell`, a private module of `contrib.rnn`."""

from __future__ import annotations

from typing import Any, List, Optional

import tensorflow as tf

__all__ = ["Linear", "linear"]

v1 = tf.compat.v1


class Linear:
    """The product of concatenated tensors and the variable `kernel`, plus the variable `bias`.

    `args` are one or several tensors of shape [batch, size]. By default, `bias` begins with zeros.
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
        has_sizes = all(len(shape) == 2 and shape.as_list()[1] is not None for shape in shapes)
        if not values or not has_sizes:
            raise ValueError(
                "args must be tensors of shape [batch, size], whose size is known. Got shapes: "
                f"{shapes}"
            )
        dtype = values[0].dtype
        rows = sum(shape.as_list()[1] for shape in shapes)
        self._kernel = v1.get_variable("kernel", [rows, output_size], dtype, kernel_initializer)
        self._bias = None
        if build_bias:
            # The partitioner of the scope divides only the kernel.
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
    has_sizes = hasattr(cell, "output_size") and hasattr(cell, "state_size")
    if not callable(cell) or not has_sizes:
        raise TypeError(f"cell must be an RNNCell, got {cell!r}")


def _listed(args: Any) -> List[Any]:
    if args is None:
        return []
    return list(args) if isinstance(args, (list, tuple)) else [args]
