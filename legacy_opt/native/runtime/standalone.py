"""Builds and loads the library that runs kernels on arrays, without TensorFlow."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import platform
from pathlib import Path
from typing import List, Optional

from legacy_opt.native.runtime import cache

_SOURCES = ("standalone.cc", "update.h", "kernel.h")
_FLAGS = ["-std=c++14", "-O2", "-fPIC", "-shared", "-pthread", "-fvisibility=hidden", "-w"]
_INT, _SIZE, _POINTER = ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p
_ARRAYS = [_POINTER, _POINTER, _POINTER, _POINTER, _SIZE]  # kernel, value, slots, gradient, size


def name(machine: Optional[str] = None) -> str:
    """Returns the file name of the library for a type of processor, by default this machine's."""
    texts = [(cache.SOURCES / each).read_text() for each in _SOURCES]
    key = hashlib.sha256("\0".join([*_FLAGS, *texts]).encode()).hexdigest()
    return f"standalone-{key[:16]}-{machine or platform.machine()}.so"


@functools.lru_cache(maxsize=None)
def library() -> ctypes.CDLL:
    """Returns the library; compiles it if neither legacy-opt-native nor the cache has it.

    Raises:
      NoCompilerError: there is no C++ compiler, or it fails.
    """
    found = cache.opened(cache.prebuilt(name()) or _built())
    found.legacy_opt_update_array.argtypes = [*_ARRAYS, _SIZE, _SIZE, _POINTER, _INT]
    found.legacy_opt_update_rows.argtypes = [
        *[*_ARRAYS, _POINTER, _SIZE, _SIZE, _INT, _POINTER, _INT],
    ]
    found.legacy_opt_update_array.restype = found.legacy_opt_update_rows.restype = None
    return found


def _built() -> Path:
    path = cache.folder() / name()
    if not path.exists():
        compile_file(cache.find_compiler("C++", "CXX", "c++"), path)
    cache.check_owner(path)
    return path


def compile_file(command: List[str], path: Path) -> None:
    """Compiles the library with a C++ compiler; see `cache.compile_library`."""
    source = (cache.SOURCES / _SOURCES[0]).read_text()
    cache.compile_library([*command, *_FLAGS], source, ".cc", path)
