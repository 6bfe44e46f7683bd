"""Builds and loads a library that runs kernels in computations of XLA, for JAX."""

from __future__ import annotations

import ctypes
import platform
import re
from pathlib import Path
from typing import List, Optional

from legacy_opt.native.runtime import cache, standalone

_SOURCES = ("jax.cc", *standalone.SOURCES)
HEADER = Path("xla", "ffi", "api", "c_api.h")  # in a folder of jaxlib


def names(include: str, machine: Optional[str] = None) -> List[str]:
    """Returns the file names of the libraries that XLA accepts, the best first.

    XLA refuses a library that was compiled with the header of a newer interface than its own. The
    folder `include` contains the headers of the installed jaxlib.
    """
    pattern = r"#define XLA_FFI_API_M(?:AJ|IN)OR (\d+)"
    major, minor = map(int, re.findall(pattern, Path(include, HEADER).read_text()))
    key, machine = cache.hash_of(_SOURCES, standalone.FLAGS), machine or platform.machine()
    return [f"jax-{key}-{major}.{each}-{machine}.so" for each in range(minor, -1, -1)]


def target() -> str:
    """Returns the name under which XLA finds the function of the library.

    A computation that was stored with other sources does not find the function.
    """
    return f"legacy_opt_{cache.hash_of(_SOURCES, standalone.FLAGS)}"


def library(include: str) -> ctypes.CDLL:
    """Returns the library of `standalone.build`. Raises a NoCompilerError or an OSError."""
    return cache.opened(standalone.build(names(include), _SOURCES[0], f"-I{include}"))


def compile_file(command: List[str], folder: Path, include: str, machine: str) -> None:
    """Compiles the library into a folder; see `names` and `standalone.compile_file`."""
    path = folder / names(include, machine)[0]
    standalone.compile_file([*command, f"-I{include}"], path, _SOURCES[0])
