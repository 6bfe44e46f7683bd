"""Compiles the loops of loops.c, and runs them over arrays of a case."""

import ctypes
import functools
import os
import subprocess
import tempfile

import numpy as np

_PIECE = 1 << 16  # elements
_FLAGS = ["-O3", "-march=native", "-fopenmp", "-shared", "-fPIC"]
# What gcc needs to vectorize square roots and sums.
_FLAGS += ["-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros", "-fassociative-math"]


class Piece(ctypes.Structure):
    """The struct `piece` of loops.c."""

    _fields_ = [(name, ctypes.c_void_p) for name in "wgmv"] + [("size", ctypes.c_long)]


@functools.lru_cache(maxsize=None)
def library():
    """Returns the compiled loops; their threads are those of the host's OpenMP, if it has one."""
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "loops.c")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "loops.so")
        subprocess.run([os.environ.get("CC", "cc"), *_FLAGS, source, "-o", path, "-lm"], check=True)
        return ctypes.CDLL(path)


def step(name, case):
    """Returns a function that runs a loop of loops.c over new arrays."""
    loop = getattr(library(), name.lower())
    arrays = [[case.numbers(i) for i in range(4)] for _ in range(case.count)]
    for _, _, _, v in arrays:
        np.square(v, out=v)
    starts = [(each, case.ids() * case.shape[1] if case.rows else [0]) for each in arrays]
    size = case.shape[1] if case.rows else arrays[0][0].size
    pieces = [
        Piece(
            *(array.ctypes.data + 4 * (start + first) for array in each), min(_PIECE, size - first)
        )
        for each, firsts in starts
        for start in map(int, firsts)
        for first in range(0, size, _PIECE)
    ]
    table = (Piece * len(pieces))(*pieces)

    def run(held=arrays):  # the arrays live as long as the function
        loop(table, ctypes.c_long(len(pieces)))

    return run
