"""Computes the global norm of gradients by a native kernel.

TensorFlow runs one operation per gradient. With the kernel, a single operation reads all gradients,
and the result has the same bits on every version of TensorFlow.
"""

from __future__ import annotations

import functools
from typing import Any, Dict, Optional, Sequence

import tensorflow as tf

from legacy_opt.core.types import DType, Tensor
from legacy_opt.core.variable_access import on_any_device
from legacy_opt.native.runtime import tensorflow_operations
from legacy_opt.native.runtime.compiled_kernels import Kernel
from legacy_opt.native.updates import kernel_choice
from legacy_opt.programs.formulas import PureUpdate
from legacy_opt.programs.program import ELEMENT, GRADIENT, VALUE, Input, UnsupportedError
from legacy_opt.programs.trace import Results


def global_norm(tensors: Sequence[Tensor], native: Optional[str]) -> Optional[Tensor]:
    """Returns the square root of the sum of all elements' squares, or None if there is no kernel.

    The tensors have one dtype. Raises an UnsupportedError if `native` requires a kernel.
    """
    try:
        process = _process_of(tensors)
        for each in tensors:
            kernel_choice.check_place("a gradient", each.device)
        kernel = _kernel_for(tensors[0].dtype.base_dtype)
        kernel_choice.check_process(kernel, process)
    except UnsupportedError as error:
        kernel_choice.go_on_without(f"There is no native global norm: {error}", native)
        return None
    operations = tensorflow_operations.load()
    with on_any_device(), tf.device(process):
        total = tf.reshape(tensorflow_operations.sums(operations, kernel, tensors), [])
        return tf.cast(tf.sqrt(total), tensors[0].dtype)


def _process_of(tensors: Sequence[Tensor]) -> str:
    """Returns the job and task of the tensors, such as "/job:worker/task:1"; "" if local."""
    processes = set()
    for each in tensors:
        spec = tf.DeviceSpec.from_string(each.device or "")
        is_here = spec.job in (None, "localhost")
        processes.add("" if is_here else f"/job:{spec.job}/task:{spec.task or 0}")
    if len(processes) > 1:
        raise UnsupportedError(f"the gradients are in several processes: {sorted(processes)}")
    return processes.pop()


@functools.lru_cache(maxsize=None)
def _kernel_for(dtype: DType) -> Kernel:
    return kernel_choice.checked_kernel(formula(dtype))


def formula(dtype: DType) -> PureUpdate:
    """Returns a formula that computes the sum of the squares of all elements of the gradient."""
    grad = Input(GRADIENT, ELEMENT, dtype.name)
    value = Input(VALUE, ELEMENT, dtype.name)  # `trace` needs it; the formula does not read it

    def function(tensors: Dict[Input, Any]) -> Results:
        wide = tf.cast(tensors[grad], tf.float64 if dtype == tf.float64 else tf.float32)
        total = tf.reduce_sum(tf.square(wide))
        return Results(tf.cast(total, dtype), changes={})

    return PureUpdate([grad, value], shape=[None], function=function)
