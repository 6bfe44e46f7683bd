"""Whether optimizers use compiled kernels."""

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
    `tf.train.Server`, and must find the kernels in its folder of kernels (see docs/native.md).

    Args:
      require: whether an update without a kernel raises an error. By default, such an update runs
        as TensorFlow operations, with a `NativeKernelWarning`.
      target: a worker that builds a graph with variables on parameter servers passes the target of
        its sessions, for example ``server.target``. While the graph is built, the servers are asked
        whether they have the kernels. Without a target, these variables are updated without
        kernels.

    Returns:
      A function that undoes this call.
    """
    # Imported here, because `modes` must be importable without TensorFlow.
    from legacy_opt.native import driver

    with contextlib.suppress(UnsupportedError):  # the updates report this error
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
        used; without `enable`, the environment variable LEGACY_OPT_NATIVE.

    Raises:
      ValueError: the attribute or the environment variable has another value.
    """
    given = native or _mode or os.environ.get(VARIABLE) or "off"
    if given not in MODES:
        where = "native" if native else VARIABLE
        raise ValueError(f"{where} must be one of {', '.join(map(repr, MODES))}, got {given!r}.")
    return given
