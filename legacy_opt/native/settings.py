"""The settings of kernels in this process: off, auto or require."""

from __future__ import annotations

import os
from typing import Optional, Tuple

from legacy_opt.core import kernel_hook
from legacy_opt.core.kernel_hook import VARIABLE

SETTINGS = ("off", "auto", "require")

_setting: Optional[str] = None  # None: `enable` has not been called
_target: Optional[str] = None
_by_name = False


def current() -> Tuple[Optional[str], Optional[str], bool]:
    """Returns the settings, the arguments of `change`."""
    return _setting, _target, _by_name


def change(setting: Optional[str], target: Optional[str], by_name: bool) -> None:
    """Changes the settings of this process.

    Args:
      setting: the setting of optimizers whose attribute `native` is None; None means that the
        environment variable decides.
      target: see `legacy_opt.native.enable`.
      by_name: see `legacy_opt.native.enable`.
    """
    global _setting, _target, _by_name
    _setting, _target, _by_name = setting, target, by_name
    kernel_hook.set_enabled(setting is not None)


def target_of_sessions() -> Optional[str]:
    """Returns the `target` that was passed to `enable`."""
    return _target


def is_by_name() -> bool:
    """Returns the `by_name` that was passed to `enable`."""
    return _by_name


def setting_of(native: Optional[str]) -> str:
    """Returns "off", "auto" or "require".

    Args:
      native: the attribute `native` of the optimizer. If it is None, the setting of `enable` is
        used. If `enable` has not been called, the environment variable LEGACY_OPT_NATIVE is used.

    Raises:
      ValueError: the attribute or the environment variable has another value.
    """
    if native is None:
        name, setting = VARIABLE, _setting or os.environ.get(VARIABLE) or "off"
    else:
        name, setting = "native", native
    if setting not in SETTINGS:
        known = ", ".join(map(repr, SETTINGS))
        raise ValueError(f"{name} must be one of {known}, got {setting!r}.")
    return setting
