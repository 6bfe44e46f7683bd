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
_by_name = False


def enable(
    require: bool = False, target: Optional[str] = None, by_name: bool = False
) -> Callable[[], None]:
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
      by_name: whether operations that update resource variables in a Session look them up by their
        names. A step then takes less time if there are hundreds of small variables, because
        TensorFlow does not run an operation per variable and slot to get their handles. Do not
        change the attribute ``shared_name`` of the variables in the finished graph.

    Returns:
      A function that undoes this call.
    """
    # Imported here, because `modes` must be importable without TensorFlow.
    from legacy_opt.native import driver

    with contextlib.suppress(UnsupportedError):  # the updates report this error
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
        used; without `enable`, the environment variable LEGACY_OPT_NATIVE.

    Raises:
      ValueError: the attribute or the environment variable has another value.
    """
    given = native or _mode or os.environ.get(VARIABLE) or "off"
    if given not in MODES:
        where = "native" if native else VARIABLE
        raise ValueError(f"{where} must be one of {', '.join(map(repr, MODES))}, got {given!r}.")
    return given
