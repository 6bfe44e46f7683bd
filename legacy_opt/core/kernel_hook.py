"""Asks `legacy_opt.native` for kernels, which run updates instead of TensorFlow's operations.

This is the only module below `legacy_opt.native` that imports it, and only if the user has enabled
native kernels. Otherwise `NO_KERNELS` answers, and all updates run as TensorFlow's operations.
"""

from __future__ import annotations

import importlib
import os
from typing import Any, List, Optional, Sequence, Tuple

VARIABLE = "LEGACY_OPT_NATIVE"  # the environment variable that enables kernels in a process

_PROVIDER = "legacy_opt.native.updates.one_step"
_enabled = False


class StepKernels:
    """The kernels of an optimizer in one training step; this base class has no kernels."""

    are_on = False  # whether the user has enabled kernels for the optimizer
    has_started = True  # False if `start` must be called before the first update

    def start(self) -> List[Tuple[Any, Any]]:
        """Runs updates before their update methods are called; returns pairs without a kernel."""
        return []

    def started(self, variable: Any) -> Any:
        """Returns the operation with which `start` updates a variable; NotImplemented if none."""
        return NotImplemented

    def update(self, grad: Any, variable: Any, indices: Any) -> Any:
        """Updates a variable from a dense gradient (`indices` is None), or rows without duplicates.

        Returns the operation (None when executing eagerly); NotImplemented if there is no kernel.
        """
        return NotImplemented

    def move_averages(
        self, averages: Sequence[Any], values: Sequence[Any], rate: Any
    ) -> Tuple[List[Any], List[int]]:
        """Moves variables towards tensors: ``average -= (average - value) * rate``.

        Returns the operations ([] when executing eagerly), and the positions without a kernel.
        """
        return [], list(range(len(averages)))

    def warn_of_operations(self, what: str) -> None:
        """Warns, if kernels are required, that operations do `what`, such as "clips values"."""

    def global_norm(self, tensors: Sequence[Any]) -> Any:
        """Returns the global norm of tensors of one dtype; None if there is no kernel."""
        return None


NO_KERNELS = StepKernels()


def kernels_for(
    optimizer: Any,
    pairs: Optional[Sequence[Any]] = None,
    base: Optional[type] = None,
    waits_for: Sequence[Any] = (),
) -> StepKernels:
    """Returns the kernels of an optimizer (or None) in a step; `NO_KERNELS` if they are off.

    The update methods of `base`, a base class of the optimizer's class, call the kernels. Variables
    change after the operations in `waits_for`.
    """
    native = getattr(optimizer, "native", None)
    is_enabled = _enabled or os.environ.get(VARIABLE)
    if native == "off" or (native is None and not is_enabled):
        return NO_KERNELS
    return importlib.import_module(_PROVIDER).kernels_for(optimizer, pairs, base, waits_for)


def set_enabled(enabled: bool) -> None:
    """Enables or disables kernels for optimizers whose `native` is None; see `native.enable`."""
    global _enabled
    _enabled = enabled
