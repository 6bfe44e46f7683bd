"""Functions of `tf.contrib.framework` that TensorFlow has with other arguments."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import tensorflow as tf

__all__ = [
    "init_from_checkpoint",
    "list_variables",
    "load_checkpoint",
    "load_variable",
    "py_func",
]

v1 = tf.compat.v1


def init_from_checkpoint(checkpoint_dir: str, assignment_map: Dict[str, Any]) -> None:
    """Calls `tf.compat.v1.train.init_from_checkpoint`."""
    v1.train.init_from_checkpoint(checkpoint_dir, assignment_map)


def list_variables(checkpoint_dir: str) -> List[Tuple[str, List[int]]]:
    """Returns `tf.train.list_variables(checkpoint_dir)`."""
    return v1.train.list_variables(checkpoint_dir)


def load_checkpoint(filepattern: str) -> Any:
    """Returns `tf.train.load_checkpoint(filepattern)`."""
    return v1.train.load_checkpoint(filepattern)


def load_variable(checkpoint_dir: str, name: str) -> Any:
    """Returns `tf.train.load_variable(checkpoint_dir, name)`."""
    return v1.train.load_variable(checkpoint_dir, name)


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
      args: a list of tensors, its positional arguments.
      kwargs: a dict of tensors, its keyword arguments.
      output_types: the dtype of its result, a structure of dtypes, or a function of `args` and
        `kwargs` that returns these.
      output_shapes: the same with shapes; not given if they are unknown.
      stateful: whether the function has effects, or depends on more than its arguments.
      name: the name of the operation.

    Returns:
      A structure of tensors, as in `output_types`.

    Raises:
      TypeError: `args` is no list, or `kwargs` no dict.
    """
    kwargs = {} if kwargs is None else kwargs
    if not isinstance(args, (list, tuple)):
        raise TypeError(f"args must be a list or tuple, got {args!r}")
    if not isinstance(kwargs, dict):
        raise TypeError(f"kwargs must be a dict, got {kwargs!r}")
    if callable(output_types):
        output_types = output_types(*args, **kwargs)
    if callable(output_shapes):
        output_shapes = output_shapes(*args, **kwargs)
    structure = args, kwargs

    def flat(*arrays):
        some_args, some_kwargs = tf.nest.pack_sequence_as(structure, arrays)
        result = func(*some_args, **some_kwargs)
        if tf.nest.is_nested(output_types):  # the only value may be in a tuple
            tf.nest.assert_same_structure(output_types, result)
        return tf.nest.flatten(result)

    dtypes = tf.nest.flatten(output_types)
    values = v1.py_func(flat, tf.nest.flatten(structure), dtypes, stateful, name)
    if output_shapes is not None:
        for value, shape in zip(values, _shapes(output_types, output_shapes)):
            value.set_shape(shape)
    return tf.nest.pack_sequence_as(output_types, values)


def _shapes(types, shapes):
    """Yields the shape of each dtype; a shape may be a list, too."""
    if isinstance(types, dict):
        for key in sorted(types):
            yield from _shapes(types[key], shapes[key])
    elif isinstance(types, (list, tuple)):
        for one, other in zip(types, shapes):
            yield from _shapes(one, other)
    else:
        yield tf.TensorShape(shapes)
