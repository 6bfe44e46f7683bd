"""The settings of kernels in this process: off, auto or require."""

from __future__ import annotations

import os
from typing import NamedTuple, Optional

from legacy_opt.core import kernel_hook
from legacy_opt.core.kernel_hook import VARIABLE

SETTINGS = ("off", "auto", "require")


class Settings(NamedTuple):
    """The settings that `legacy_opt.native.enable` changes."""

    setting: Optional[str] = None  # None: the environment variable decides
    target: Optional[str] = None
    by_name: bool = False


_current = Settings()


def current() -> Settings:
    """Returns the settings of this process."""
    return _current


def change(settings: Settings) -> None:
    """Changes the settings of this process."""
    global _current
    _current = settings
    kernel_hook.set_enabled(settings.setting is not None)


def setting_of(native: Optional[str]) -> str:
    """Returns "off", "auto" or "require"; raises a ValueError for another setting.

    If the attribute `native` of the optimizer is None, the setting of `enable` is used; if `enable`
    has not been called, the environment variable LEGACY_OPT_NATIVE.
    """
    if native is None:
        name = VARIABLE
        setting = _current.setting or os.environ.get(VARIABLE) or "off"
    else:
        name, setting = "native", native
    if setting not in SETTINGS:
        known = ", ".join(map(repr, SETTINGS))
        raise ValueError(f"{name} must be one of {known}, got {setting!r}.")
    return setting
