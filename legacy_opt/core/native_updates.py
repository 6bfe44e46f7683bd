"""Runs updates with compiled kernels, if the user has enabled them."""

from __future__ import annotations

import collections
import weakref
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core import gradient_checks, native_check
from legacy_opt.core.native_rules import rule_of
from legacy_opt.core.types import GradAndVar, Tensor, Variable
from legacy_opt.core.user_warnings import NativeKernelWarning, warn
from legacy_opt.core.variable_access import here, is_resource, variable_shape
from legacy_opt.native import driver, kernels, modes
from legacy_opt.native.program import UnsupportedError

# One operation updates several small variables, which have at most this size in total. The size is
# limited because the operation locks all its variables, and waits for all their gradients.
GROUP_BYTES = 4 << 20

_warned = set()
# The kernels of each optimizer. Kernels in an attribute would prevent copies of the optimizer.
_kernels = weakref.WeakKeyDictionary()


class _Update(NamedTuple):
    """An update of a variable by a kernel.

    Attributes:
      kernel: the `Kernel`.
      grad: the gradient; for a sparse gradient its rows.
      variable: the variable.
      indices: the row numbers of a sparse gradient, perhaps with duplicates; None for a dense one.
    """

    kernel: Any
    grad: Tensor
    variable: Variable
    indices: Optional[Tensor]


def are_enabled(optimizer: Any) -> bool:
    """Whether the user has enabled kernels for a `RuleOptimizer`."""
    return modes.mode_of(optimizer.native) != "off"


def apply(optimizer: Any, grad: Tensor, variable: Variable, indices: Optional[Tensor]) -> Any:
    """Updates a variable with a compiled kernel, if the user has enabled kernels.

    Args:
      optimizer: the `RuleOptimizer`.
      grad: the gradient; for a sparse gradient its rows.
      variable: the variable.
      indices: the row numbers of a sparse gradient, without duplicates; None for a dense gradient.

    Returns:
      The operation (None when executing eagerly); NotImplemented if there is no kernel.

    Raises:
      UnsupportedError: there is no kernel, and the optimizer's mode is "require".
    """
    if not are_enabled(optimizer):
        return NotImplemented
    kernel = _kernel_or_none(optimizer, variable, indices is not None)
    if kernel is None:
        return NotImplemented
    if _needs_dense(optimizer, kernel, variable, indices):
        shape = tf.cast(variable_shape(variable), indices.dtype)
        grad, indices = tf.scatter_nd(indices[:, tf.newaxis], grad, shape), None
    return _run(optimizer, [_Update(kernel, grad, variable, indices)])


def apply_together(
    optimizer: Any, grads_and_vars: List[GradAndVar], alone: bool
) -> Tuple[Dict[int, Any], List[GradAndVar]]:
    """Updates variables before TensorFlow calls the update method of each variable.

    Small variables are updated together, and sparse gradients may have duplicate ids.

    Args:
      optimizer: the `RuleOptimizer`, for which the user has enabled kernels.
      grads_and_vars: a list of (gradient, variable) pairs in which no gradient is None.
      alone: whether all updates must wait until TensorFlow calls the update methods, because a
        subclass or wrapper runs code before or after these methods.

    Returns:
      A dict from the ``id`` of each updated variable to the operation (None when executing
      eagerly), and a list of the (gradient, variable) pairs for which there is no kernel.

    Raises:
      UnsupportedError: see `apply`.
    """
    uses = collections.Counter(id(variable) for _, variable in grads_and_vars)
    groups, done, others = {}, {}, []
    for grad, variable in grads_and_vars:
        if variable.shape.num_elements() == 0:
            continue
        indices = grad.indices if isinstance(grad, tf.IndexedSlices) else None
        kernel = _kernel_or_none(optimizer, variable, indices is not None)
        if kernel is None:
            others.append((grad, variable))
            continue
        # These updates wait until TensorFlow calls the update method with the rows of equal ids
        # summed. (In `apply`, scatter_nd would add rows of equal ids in any order.)
        if alone or uses[id(variable)] > 1 or _needs_dense(optimizer, kernel, variable, indices):
            continue
        values = tf.convert_to_tensor(grad) if indices is None else grad.values
        name = type(optimizer).__name__
        values = here(gradient_checks.gradient(name, values, variable, indices is not None))
        update = _Update(kernel, values, variable, here(indices))
        groups.setdefault(_group(update), []).append(update)
    for updates in groups.values():
        for part in _parts(updates):
            with tf.device(part[0].variable.device):
                operation = _run(optimizer, part)
            done.update((id(update.variable), operation) for update in part)
    return done, others


def _needs_dense(optimizer, kernel, variable, indices):
    """Whether a sparse gradient must be made dense, because the kernel has sums."""
    return indices is not None and optimizer.needs_whole_tensor(variable) and kernel.program.sums


def _kernel_or_none(optimizer, variable, sparse):
    try:
        _check_place(variable)
        return _kernel(optimizer, variable, sparse and not optimizer.needs_whole_tensor(variable))
    except UnsupportedError as error:
        text = f"{type(optimizer).__name__} runs without a native kernel: {error}"
        if modes.mode_of(optimizer.native) == "require":
            raise UnsupportedError(text) from None
        if text not in _warned:
            _warned.add(text)
            warn(text, NativeKernelWarning)
        return None


def _check_place(variable):
    if versions.compiling_with_xla():
        raise UnsupportedError("XLA compiles this function")
    if tf.distribute.has_strategy():
        raise UnsupportedError("a tf.distribute.Strategy distributes the training")
    device = tf.DeviceSpec.from_string(variable.device or "")
    if device.device_type not in (None, "CPU"):
        raise UnsupportedError(f"{variable.name!r} is on {variable.device}; kernels run on CPUs")
    if device.job not in (None, "localhost"):
        raise UnsupportedError(f"{variable.name!r} is on {variable.device}, in another process")


def _kernel(optimizer, variable, sparse):
    loaded = driver.load()
    if loaded is None:
        raise UnsupportedError("run `legacy-opt build-kernels` first")
    hyper = optimizer.hyper_for(variable)
    flags = {name: value for name, value in vars(hyper).items() if not hasattr(value, "dtype")}
    layouts = {
        name: (type(layout), layout.dtype)
        for name, layout in optimizer.slot_layouts(variable).items()
    }
    # For partitioned variables, `level_of` refuses slots that it accepts for other variables.
    is_part = versions.part_of(variable) is not None
    dtype = variable.dtype.base_dtype
    # In float64, the numbers of `full_precision` are constants of the kernel.
    constants = [repr(getattr(optimizer, "_" + name)) for name in optimizer.full_precision]
    key = variable.shape.rank, dtype, sparse, flags, layouts, is_part
    key = repr((key, constants if dtype == tf.float64 else ()))
    known = _kernels.setdefault(optimizer, {})
    if key not in known:
        rule = rule_of(optimizer, variable, sparse)
        kernel = kernels.compiled(rule.program())
        native_check.check(kernel, *rule)
        driver.register(loaded, kernel)
        known[key] = kernel
    return known[key]


def _group(update):
    """Returns a key that is equal for updates that one operation can do."""
    variable = update.variable
    if update.indices is not None or _bytes(update) > GROUP_BYTES:
        return id(variable)
    return update.kernel.key, variable.device, is_resource(variable)


def _bytes(update):
    count = update.variable.shape.num_elements()
    return GROUP_BYTES + 1 if count is None else count * update.variable.dtype.base_dtype.size


def _parts(updates):
    """Splits updates into lists: each has one update, or variables of at most `GROUP_BYTES`."""
    part, size = [], 0
    for update in updates:
        if part and size + _bytes(update) > GROUP_BYTES:
            yield part
            part, size = [], 0
        part.append(update)
        size += _bytes(update)
    yield part


def _run(optimizer, updates):
    """Runs one operation for updates with the same kernel."""
    kernel, grad, variable, indices = updates[0]
    slots = [each.name for each in kernel.program.all_slots]
    tensors = [
        _handle(each)
        for update in updates
        for each in [
            update.variable,
            *(optimizer.get_slot(update.variable, name) for name in slots),
        ]
    ]
    scalars = optimizer.scalars_of_step()
    given = {
        "variables": tensors,
        "scalars": [scalars[each.name] for each in kernel.program.scalars],
        "use_locking": optimizer._use_locking,
    }
    if indices is None:
        gradients = [update.grad for update in updates]
        return driver.update(driver.load(), kernel, gradients=gradients, **given)
    all_rows = optimizer.needs_whole_tensor(variable)
    return driver.update_rows(
        driver.load(), kernel, gradient=grad, ids=indices, all_rows=all_rows, **given
    )


def _handle(variable):
    return variable.handle if is_resource(variable) else versions.ref_of(variable)
