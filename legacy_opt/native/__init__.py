"""Compiles an optimizer's update rule, which is written in Python, to a kernel in C.

The module `trace` converts the TensorFlow operations of a rule to a `Program`, `emit` writes the
program as C, and `cache` compiles the C code to a kernel. The TensorFlow operations of `driver` run
the kernel. A kernel uses only IEEE operations in a fixed order. Therefore, it returns the same bits
on every TensorFlow, with any number of threads and any instruction set.
"""

import importlib as _importlib
from typing import TYPE_CHECKING as _FOR_TOOLS

from legacy_opt.native.modes import enable

if _FOR_TOOLS:
    from legacy_opt.optimizers.acceleration import accelerate

__all__ = ["accelerate", "enable"]


def __getattr__(name):
    # Imported on first use, because `acceleration` imports the optimizers, and the optimizers
    # import this package.
    if name == "accelerate":
        return _importlib.import_module("legacy_opt.optimizers.acceleration").accelerate
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
