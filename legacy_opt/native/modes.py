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
_by_name = False


def enable(
    require: bool = False, target: Optional[str] = None, by_name: bool = False
) -> Callable[[], None]:
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
      by_name: whether kernels in a Session find small resource variables by their names. A step
        with hundreds of such variables then takes less time, because TensorFlow does not run an
        operation per variable and slot to get their handles. Do not change the attribute
        ``shared_name`` of the variables in the finished graph.

    Returns:
      A function that undoes this call.
    """
    # Imported here, because `modes` must be importable without TensorFlow.
    from legacy_opt.native import driver

    with contextlib.suppress(UnsupportedError):  # each update reports the error again
        driver.load()
    undo = functools.partial(_set, _mode, _target, _by_name)
    _set("require" if require else "auto", target or _target, by_name or _by_name)
    return undo


def _set(mode, target, by_name):
    global _mode, _target, _by_name
    _mode, _target, _by_name = mode, target, by_name


def target_of_sessions() -> Optional[str]:
    """Returns the `target` that was passed to `enable`."""
    return _target


def is_by_name() -> bool:
    """Returns the `by_name` that was passed to `enable`."""
    return _by_name


def mode_of(native: Optional[str]) -> str:
    """Returns "off", "auto" or "require".

    Args:
      native: the attribute `native` of the optimizer. If it is None, the mode set by `enable` is
        used. If `enable` has not been called, the environment variable LEGACY_OPT_NATIVE is used.

    Raises:
      ValueError: the attribute or the environment variable has another value.
    """
    given = (_mode or os.environ.get(VARIABLE) or "off") if native is None else native
    if given not in MODES:
        where = VARIABLE if native is None else "native"
        raise ValueError(f"{where} must be one of {', '.join(map(repr, MODES))}, got {given!r}.")
    return given
