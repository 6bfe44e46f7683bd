"""Tests a prebuilt operations library in a child process, because an incompatible one may crash."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import tensorflow as tf

from legacy_opt.native.runtime import cache

_PROGRAM = """
import sys
sys.path[:] = sys.argv[2:]
from legacy_opt.native.runtime.probe_in_child import main
main(sys.argv[1])
"""
_SECONDS = 120  # importing TensorFlow from a network drive may take long


@functools.lru_cache(maxsize=None)
def failure(library: Path) -> str:
    """Returns why a library does not work with this TensorFlow; an empty string if it works.

    A child process imports TensorFlow and runs the operations, which takes some seconds. After a
    successful test, an empty file in the folder of kernels makes other processes skip the test.
    """
    mark = None
    with contextlib.suppress(cache.NoCompilerError):  # without a folder, each process tests again
        mark = cache.folder() / f"works-{_identity(library)}"
    if mark is not None and mark.exists():
        return ""
    reason = _failure_in_child(library)
    if mark is not None and not reason:
        with contextlib.suppress(OSError):  # e.g. a full disk; then the next process tests again
            mark.touch(mode=0o600)
    return reason


def _identity(library: Path) -> str:
    """Returns a hash that changes if another library or another TensorFlow is installed."""
    files = [str(library), tf.__file__]
    states = [(name, os.stat(name).st_size, os.stat(name).st_mtime_ns) for name in files]
    return hashlib.sha256(repr(states).encode()).hexdigest()[:32]


def _failure_in_child(library: Path) -> str:
    environment = dict(os.environ, CUDA_VISIBLE_DEVICES="-1")
    with contextlib.suppress(cache.NoCompilerError):
        environment[cache.FOLDER_VARIABLE] = str(cache.folder())
    paths = map(os.path.abspath, [str(library), *sys.path])
    try:
        result = subprocess.run(
            [sys.executable, "-c", _PROGRAM, *paths],
            env=environment,
            cwd=str(library.parent),  # otherwise -c could import modules from the user's folder
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, TypeError, subprocess.SubprocessError) as error:
        return str(error)
    if result.returncode == 0:
        return ""
    if result.returncode < 0:
        return f"it crashes with signal {-result.returncode}"
    lines = result.stdout.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "no message"
