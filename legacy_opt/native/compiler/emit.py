"""Writes a `Program` as the C source of a kernel."""

from __future__ import annotations

from typing import Sequence

from legacy_opt.native.compiler.emitter import Emitter
from legacy_opt.native.compiler.inputs import inputs_of
from legacy_opt.native.compiler.matrix_emitter import MatrixEmitter
from legacy_opt.programs.program import Input, Program


def emit(program: Program, slots: Sequence[Input] = ()) -> str:
    """Returns the C source of a kernel, or raises an UnsupportedError; see `inputs_of`."""
    inputs = inputs_of(program, slots)
    has_matrices = program.has_matrices or inputs.have_matrices
    emitter_class = MatrixEmitter if has_matrices else Emitter
    return emitter_class(program, inputs).source()
