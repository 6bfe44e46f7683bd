"""Runs all kernels with sanitizers for addresses and undefined behaviour (`make sanitize`).

A C++ program without TensorFlow and Python calls the checks in checks.h and the loops in update.h,
which the library for TensorFlow uses, too. Then sanitize_arrays.py trains NumPy arrays.
"""

import contextlib
import functools
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import tensorflow as tf

from legacy_opt.compat.cli import native_diagnosis
from legacy_opt.core.argument_checks import WrongTypeError
from legacy_opt.native.compiler.emit import emit
from legacy_opt.native.runtime import cache
from legacy_opt.native.updates import kernel_choice
from legacy_opt.programs.program import UnsupportedError
from tests.support import native_corners
from tests.support.paths import ROOT

DTYPES = (tf.float32, tf.float64, tf.bfloat16, tf.float16)
SANITIZERS = ["-g", "-fsanitize=address,undefined,float-cast-overflow"]
SANITIZERS += ["-fno-sanitize-recover=all"]
SEEDS = range(5)


def sources():
    """Yields the C sources of the kernels of all public rules, and of operations with corners."""
    for dtype in native_corners.DTYPES:
        for group in native_corners.groups(dtype):
            yield emit(*native_corners.program(group, dtype))
    for cls in native_diagnosis.classes():
        for dtype in DTYPES:
            for sparse in (False, True):
                with contextlib.suppress(UnsupportedError, WrongTypeError):
                    make = functools.partial(native_diagnosis.made, cls)
                    yield kernel_choice.source_of(make, dtype, sparse)


def main():
    """Compiles and runs everything; returns the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        libraries = set()
        for source in sources():
            library = Path(folder, cache.key_of(source) + ".so")
            if library not in libraries:
                command = [*cache.compiler(), *SANITIZERS, "-UVECTORIZED", "-DVECTORIZED="]
                cache.compile_library(command, source, ".c", library)
                libraries.add(library)
        program = Path(folder, "program")
        subprocess.run(
            [*cache.find_compiler("C++", "CXX", "c++"), "-std=c++14", "-O1", *SANITIZERS]
            + [f"-I{cache.SOURCES}", str(ROOT / "tests" / "native" / "sanitize.cc")]
            + ["-o", str(program), "-ldl", "-pthread"],
            check=True,
        )
        for seed in SEEDS:
            done = subprocess.run([str(program), str(seed), *map(str, sorted(libraries))])
            if done.returncode:
                return 1
        return train_arrays(folder)


def train_arrays(folder):
    """Runs sanitize_arrays.py, with kernels in a folder; returns its exit code."""
    compilers = {
        variable: " ".join([*cache.find_compiler(language, variable, default), *SANITIZERS])
        for language, variable, default in (("C", "CC", "cc"), ("C++", "CXX", "c++"))
    }
    runtime = subprocess.run(
        [*cache.find_compiler("C", "CC", "cc"), "-print-file-name=libasan.so"],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    settings = {
        cache.FOLDER_VARIABLE: os.path.join(folder, "arrays"),
        "ASAN_OPTIONS": "detect_leaks=0",
        "LD_PRELOAD": runtime.stdout.strip(),
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": str(ROOT),
    }
    return subprocess.run(
        [sys.executable, str(ROOT / "tests" / "tools" / "sanitize_arrays.py")],
        env=dict(os.environ, **compilers, **settings),
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
