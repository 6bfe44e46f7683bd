"""Compiles an optimizer's update rule, which is written in Python, to a kernel in C.

`updates` converts the update of each variable to a `PureUpdate`. `compiler` traces the TensorFlow
operations of a formula to a `Program`, and writes the program as C. `runtime` compiles the C code
to a kernel, and runs kernels by TensorFlow operations. A kernel uses only IEEE operations in a
fixed order. Therefore, it returns the same bits on every TensorFlow, with any number of threads and
any instruction set.
"""

import importlib as _importlib
from typing import TYPE_CHECKING as _FOR_TOOLS

if _FOR_TOOLS:
    from legacy_opt.native.enabling import enable
    from legacy_opt.native.updates.acceleration import accelerate

__all__ = ["accelerate", "enable"]

_HOMES = {
    "accelerate": "legacy_opt.native.updates.acceleration",
    "enable": "legacy_opt.native.enabling",
}


def __getattr__(name: str):
    # Imported on first use, so that some modules of this package can be used without TensorFlow.
    if name in _HOMES:
        return getattr(_importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
