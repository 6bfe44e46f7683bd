"""Whether optimizers use compiled kernels."""

from __future__ import annotations

import functools
import os
from typing import Callable, Optional

MODES = ("off", "auto", "require")
VARIABLE = "LEGACY_OPT_NATIVE"

_enabled: Optional[str] = None


def enable(require: bool = False) -> Callable[[], None]:
    """Enables compiled kernels in this process, for optimizers whose attribute `native` is None.

    Args:
      require: whether an update without a kernel raises an error. By default, such an update runs
        as TensorFlow operations, with a `NativeKernelWarning`.

    Returns:
      A function that undoes this call.
    """
    before = _enabled
    _set("require" if require else "auto")
    return functools.partial(_set, before)


def _set(mode):
    global _enabled
    _enabled = mode


def mode_of(native: Optional[str]) -> str:
    """Returns "off", "auto" or "require".

    Args:
      native: the attribute `native` of the optimizer. If it is None, `enable` decides, and then the
        environment variable LEGACY_OPT_NATIVE.

    Raises:
      ValueError: the attribute or the environment variable has another value.
    """
    given = native or _enabled or os.environ.get(VARIABLE) or "off"
    if given not in MODES:
        where = "native" if native else VARIABLE
        raise ValueError(f"{where} must be one of {', '.join(map(repr, MODES))}, got {given!r}.")
    return given
