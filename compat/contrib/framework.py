"""The function of `tf.contrib.framework` that the package tf_slim lacks."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

import tensorflow as tf

__all__ = ["py_func"]

v1 = tf.compat.v1


def py_func(
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Optional[Dict[str, Any]] = None,
    output_types: Optional[Any] = None,
    output_shapes: Optional[Any] = None,
    stateful: bool = True,
    name: Optional[str] = None,
) -> Any:
    """Calls a Python function with arrays when the graph runs.

    Args:
      func: the function.
      args: the positional arguments of `func`, a list of tensors.
      kwargs: the keyword arguments of `func`, a dict of tensors.
      output_types: the dtype of the result, a structure of dtypes, or a function of `args` and
        `kwargs` that returns one of these.
      output_shapes: the same with shapes; None if the shapes are unknown.
      stateful: whether `func` has effects, or depends on more than its arguments.
      name: the name of the operation.

    Returns:
      A structure of tensors, as in `output_types`.
    """
    kwargs = {} if kwargs is None else kwargs
    if not (isinstance(args, (list, tuple)) and isinstance(kwargs, dict)):
        raise TypeError(f"args must be a list, and kwargs must be a dict, got {args!r}, {kwargs!r}")
    if callable(output_types):
        output_types = output_types(*args, **kwargs)
    if callable(output_shapes):
        output_shapes = output_shapes(*args, **kwargs)
    structure = args, kwargs

    def call_flat(*arrays: Any) -> List[Any]:
        array_args, array_kwargs = tf.nest.pack_sequence_as(structure, arrays)
        result = func(*array_args, **array_kwargs)
        if tf.nest.is_nested(output_types):  # a single dtype also allows a tuple with one value
            tf.nest.assert_same_structure(output_types, result)
        return tf.nest.flatten(result)

    dtypes = tf.nest.flatten(output_types)
    values = v1.py_func(call_flat, tf.nest.flatten(structure), dtypes, stateful, name)
    if output_shapes is not None:
        for value, shape in zip(values, _shapes(output_types, output_shapes)):
            value.set_shape(shape)
    return tf.nest.pack_sequence_as(output_types, values)


def _shapes(types: Any, shapes: Any) -> Iterator[tf.TensorShape]:
    """Yields the shape of each dtype. `tf.nest` cannot flatten shapes that are lists."""
    if isinstance(types, dict):
        for key in sorted(types):
            yield from _shapes(types[key], shapes[key])
    elif isinstance(types, (list, tuple)):
        for types_of_item, shapes_of_item in zip(types, shapes):
            yield from _shapes(types_of_item, shapes_of_item)
    else:
        yield tf.TensorShape(shapes)
