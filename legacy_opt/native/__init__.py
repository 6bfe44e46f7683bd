"""Compiles rules: an optimizer's rule, written in Python, becomes a kernel in C.

`trace` reads the TensorFlow operations of a rule into a `Program`, `emit` writes the program as C,
and `cache` compiles the C code to a kernel. TensorFlow operations from `driver` run the kernel. A
kernel computes with IEEE operations alone, in a fixed order, so it returns the same bits on every
TensorFlow, with any number of threads and any instruction set.
"""

from legacy_opt.native.modes import enable

__all__ = ["enable"]
