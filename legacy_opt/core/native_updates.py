"""Runs updates with compiled kernels, if the user has enabled them."""

from __future__ import annotations

import weakref
from typing import Any

from legacy_opt import versions
from legacy_opt.core.native_rules import program_of
from legacy_opt.core.types import Variable
from legacy_opt.core.update import Update
from legacy_opt.core.user_warnings import NativeKernelWarning, warn
from legacy_opt.core.variable_access import is_resource
from legacy_opt.native import driver, kernels, modes
from legacy_opt.native.program import UnsupportedError

_warned = set()
# The kernels of each optimizer. They are no attribute of it, because they cannot be copied.
_kernels = weakref.WeakKeyDictionary()


def apply(optimizer: Any, update: Update) -> Any:
    """Runs an `Update` with a compiled kernel, if the user has enabled kernels.

    Args:
      optimizer: the `RuleOptimizer`.
      update: the update.

    Returns:
      The operation (None when executing eagerly); NotImplemented if there is no kernel.

    Raises:
      UnsupportedError: there is no kernel, and the optimizer's mode is "require".
    """
    mode = modes.mode_of(optimizer.native)
    if mode == "off":
        return NotImplemented
    try:
        return _apply(optimizer, update)
    except UnsupportedError as error:
        text = f"{type(optimizer).__name__} runs without a native kernel: {error}"
        if mode == "require":
            raise UnsupportedError(text) from None
        if text not in _warned:
            _warned.add(text)
            warn(text, NativeKernelWarning)
        return NotImplemented


def _apply(optimizer, update):
    if versions.compiling_with_xla():
        raise UnsupportedError("XLA compiles this function")
    loaded = driver.load()
    if loaded is None:
        raise UnsupportedError("run `legacy-opt build-kernels` first")
    kernel = _kernel(loaded, optimizer, update)
    slots = [getattr(update.slots, each.name) for each in kernel.program.all_slots]
    scalars = optimizer.scalars_of_step()
    given = {
        "variables": [_handle(each) for each in [update.variable, *slots]],
        "scalars": [scalars[each.name] for each in kernel.program.scalars],
        "use_locking": optimizer._use_locking,
    }
    if update.sparse:
        indices = update.access.indices
        return driver.update_rows(loaded, kernel, gradient=update.grad, ids=indices, **given)
    return driver.update(loaded, kernel, gradients=[update.grad], **given)


def _kernel(loaded, optimizer, update):
    flags = {
        name: value for name, value in vars(update.hyper).items() if not hasattr(value, "dtype")
    }
    layouts = {
        name: (type(layout), layout.dtype)
        for name, layout in optimizer.slot_layouts(update.variable).items()
    }
    variable: Variable = update.variable
    # A kernel of a slot that is partitioned may be impossible where that of others is not.
    is_part = versions.part_of(variable) is not None
    dtype = variable.dtype.base_dtype
    key = repr((variable.shape.rank, dtype, update.sparse, flags, layouts, is_part))
    known = _kernels.setdefault(optimizer, {})
    if key not in known:
        kernel = kernels.compiled(program_of(optimizer, update))
        driver.register(loaded, kernel)
        known[key] = kernel
    return known[key]


def _handle(variable):
    return variable.handle if is_resource(variable) else versions.ref_of(variable)
