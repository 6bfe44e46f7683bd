"""Compiles rules: an optimizer's rule, written in Python, becomes a kernel in C.

`trace` reads the TensorFlow operations of a rule into a `Program`, `emit` writes the program as C,
and `cache` compiles the C code to a kernel. TensorFlow operations from `driver` run the kernel. A
kernel computes with IEEE operations alone, in a fixed order, so it returns the same bits on every
TensorFlow, with any number of threads and any instruction set.
"""

import importlib as _importlib
from typing import TYPE_CHECKING as _FOR_TOOLS

from legacy_opt.native.modes import enable

if _FOR_TOOLS:
    from legacy_opt.optimizers.acceleration import accelerate

__all__ = ["accelerate", "enable"]


def __getattr__(name):
    # Imported on first use, because it needs the optimizers, which need this package.
    if name == "accelerate":
        return _importlib.import_module("legacy_opt.optimizers.acceleration").accelerate
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
