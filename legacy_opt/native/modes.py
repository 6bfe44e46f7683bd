"""Switches compiled kernels on and off."""

from __future__ import annotations

import contextlib
import functools
import os
from typing import Callable, Optional

from legacy_opt.native.program import UnsupportedError

MODES = ("off", "auto", "require")
VARIABLE = "LEGACY_OPT_NATIVE"

_mode: Optional[str] = None  # None: `enable` has not been called
_target: Optional[str] = None


def enable(require: bool = False, target: Optional[str] = None) -> Callable[[], None]:
    """Enables compiled kernels in this process, for optimizers whose attribute `native` is None.

    The process of a parameter server must call this function before it creates its
    `tf.train.Server`, and must have the kernels in its folder of kernels (see docs/native.md).

    Args:
      require: whether an update without a kernel raises an error. By default, such an update runs
        as TensorFlow operations, with a `NativeKernelWarning`.
      target: the target of the program's sessions, for example ``server.target``. Pass the target
        if variables are on parameter servers. While the graph is built, sessions with this target
        check whether the servers have the kernels. Without a target, variables on parameter servers
        are updated without kernels.

    Returns:
      A function that undoes this call.
    """
    # Imported here, because `modes` must be importable without TensorFlow.
    from legacy_opt.native import driver

    with contextlib.suppress(UnsupportedError):  # each update reports the error again
        driver.load()
    undo = functools.partial(_set, _mode, _target)
    _set("require" if require else "auto", target or _target)
    return undo


def _set(mode, target):
    global _mode, _target
    _mode, _target = mode, target


def target_of_sessions() -> Optional[str]:
    """Returns the `target` that was passed to `enable`."""
    return _target


def mode_of(native: Optional[str]) -> str:
    """Returns "off", "auto" or "require".

    Args:
      native: the attribute `native` of the optimizer. If it is None, the mode set by `enable` is
        used. If `enable` has not been called, the environment variable LEGACY_OPT_NATIVE is used.

    Raises:
      ValueError: the attribute or the environment variable has another value.
    """
    given = native or _mode or os.environ.get(VARIABLE) or "off"
    if given not in MODES:
        where = "native" if native else VARIABLE
        raise ValueError(f"{where} must be one of {', '.join(map(repr, MODES))}, got {given!r}.")
    return given
