"""Computes the global norm of gradients by a native kernel, if the user has enabled kernels.

TensorFlow reads the gradients by one operation per gradient. With the kernel, a single operation
reads all gradients, and the result has the same bits on every TensorFlow.
"""

from __future__ import annotations

import functools
from typing import Any, Dict, List, Optional

import tensorflow as tf

from legacy_opt.core import native_updates
from legacy_opt.core.native_rules import PureRule
from legacy_opt.core.types import DType, Tensor
from legacy_opt.core.variable_access import on_any_device
from legacy_opt.native import driver, modes
from legacy_opt.native.program import ELEMENT, GRADIENT, VALUE, Input, UnsupportedError
from legacy_opt.native.trace import Results


def global_norm(tensors: List[Tensor], native: Optional[str]) -> Optional[Tensor]:
    """Returns the square root of the sum of all elements' squares, or None if there is no kernel.

    Args:
      tensors: tensors of one dtype.
      native: the attribute `native` of the optimizer that uses the norm.

    Raises:
      UnsupportedError: kernels are required, but there is no kernel for these tensors.
    """
    if modes.mode_of(native) == "off":
        return None
    try:
        kernel = _kernel(tensors)
    except UnsupportedError as error:
        native_updates.go_on_without(f"There is no native global norm: {error}", native)
        return None
    with on_any_device(), tf.device(_process_of(tensors)):
        total = tf.reshape(driver.sums(driver.load(), kernel, tensors), [])
        return tf.cast(tf.sqrt(total), tensors[0].dtype)


def _kernel(tensors):
    process = _process_of(tensors)
    for each in tensors:
        native_updates.check_place("a gradient", each.device)
    kernel = _admitted(tensors[0].dtype.base_dtype)
    native_updates.check_process(kernel, process)
    return kernel


def _process_of(tensors):
    """Returns the job and task of the tensors, such as "/job:worker/task:1"; "" if local."""
    found = set()
    for each in tensors:
        spec = tf.DeviceSpec.from_string(each.device or "")
        is_here = spec.job in (None, "localhost")
        found.add("" if is_here else f"/job:{spec.job}/task:{spec.task or 0}")
    if len(found) > 1:
        raise UnsupportedError(f"the gradients are in several processes: {sorted(found)}")
    return found.pop()


@functools.lru_cache(maxsize=None)
def _admitted(dtype):
    return native_updates.admitted(rule(dtype))


def rule(dtype: DType) -> PureRule:
    """Returns a rule that computes the sum of the squares of all elements of the gradient."""
    grad, value = Input(GRADIENT, ELEMENT, dtype.name), Input(VALUE, ELEMENT, dtype.name)

    def function(tensors: Dict[Input, Any]) -> Results:
        wide = tf.cast(tensors[grad], tf.float64 if dtype == tf.float64 else tf.float32)
        return Results(tf.cast(tf.reduce_sum(tf.square(wide)), dtype), {})

    return PureRule([grad, value], [None], function)
