"""Writes a `Program` as the C source of a kernel."""

from __future__ import annotations

from legacy_opt.native.compiler.emitter import Emitter
from legacy_opt.native.compiler.matrix_emitter import MatrixEmitter
from legacy_opt.programs.program import Program


def emit(program: Program) -> str:
    """Returns the C source of a program's kernel.

    Raises:
      UnsupportedError: an operation has no C code for its dtype, or there are too many inputs.
    """
    emitter = MatrixEmitter(program) if program.has_matrices else Emitter(program)
    return emitter.source()
