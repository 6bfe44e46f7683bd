"""Hyperparameters and shared variables, from which records compute the scalars of a step."""

from __future__ import annotations

from typing import Any, Dict, NamedTuple, Optional, Tuple, Union

import numpy as np
import tensorflow as tf

from legacy_opt.core import argument_checks
from legacy_opt.core.types import Tensor, Variable


class Given(NamedTuple):
    """The scalars from which the result of `Formulas.scalars` is computed."""

    # For each name, its tensor in the optimizer, its value or None, and the optimizer's attribute.
    hyperparameters: Dict[str, Tuple[Tensor, Any, str]]
    shared: Dict[str, Variable]
    global_step: Optional[str]  # its dtype


def evaluated(tensor: Tensor) -> Any:
    """Returns the value of a scalar; None if it depends on placeholders or variables."""
    try:
        with tf.compat.v1.Session() as session:
            return session.run(tensor).item()
    except tf.errors.OpError:
        return None


def number(value: Any, dtype: str) -> Optional[Union[bool, int, float]]:
    """Returns a number or constant as a number of `dtype`; None for other hyperparameters."""
    if isinstance(value, tf.Tensor) and not tf.executing_eagerly() and value.op.type == "Const":
        return tf.make_ndarray(value.op.get_attr("value")).item()
    if value is None or argument_checks.is_tensor_like(value) or callable(value):
        return None
    numpy_dtype: Any = tf.as_dtype(dtype).as_numpy_dtype
    return np.asarray(value).astype(numpy_dtype).item()
