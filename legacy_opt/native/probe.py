"""Tests a prebuilt driver in a child process, because an incompatible driver may crash.

A driver is a library of TensorFlow operations that run kernels.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.native import cache, kernels
from legacy_opt.native.program import ELEMENT, GRADIENT, VALUE, Input, Program
from legacy_opt.native.trace import Results, trace

v1 = tf.compat.v1
_PROGRAM = f"""
import sys
sys.path[:] = sys.argv[2:]
from {__name__} import main
main(sys.argv[1])
"""
_SECONDS = 120  # importing TensorFlow from a network drive may take long


@functools.lru_cache(maxsize=None)
def failure(driver: Path) -> str:
    """Returns why a driver does not work with this TensorFlow; an empty string if it works.

    A child process imports TensorFlow and runs the driver. This takes some seconds. If the driver
    works, an empty file is created in the folder of kernels, so that other processes skip the test.

    Args:
      driver: the path of the driver.
    """
    record = None
    with contextlib.suppress(cache.NoCompilerError):
        record = cache.folder() / f"works-{_identity(driver)}"
    if record is not None and record.exists():
        return ""
    found = _failure_in_child(driver)
    if record is not None and not found:
        with contextlib.suppress(OSError):  # e.g. a full disk; then the next process tests again
            record.touch(mode=0o600)
    return found


def _identity(driver):
    """Returns a hash that changes if another driver or another TensorFlow is installed."""
    files = [str(driver), tf.__file__]
    states = [(name, os.stat(name).st_size, os.stat(name).st_mtime_ns) for name in files]
    return hashlib.sha256(repr(states).encode()).hexdigest()[:32]


def _failure_in_child(driver):
    environment = dict(os.environ, CUDA_VISIBLE_DEVICES="-1")
    with contextlib.suppress(cache.NoCompilerError):
        environment[cache.FOLDER_VARIABLE] = str(cache.folder())
    paths = map(os.path.abspath, [str(driver), *sys.path])
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM, *paths],
            env=environment,
            cwd=str(driver.parent),  # otherwise -c could import modules from the user's folder
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, TypeError, subprocess.SubprocessError) as error:
        return str(error)
    if done.returncode == 0:
        return ""
    if done.returncode < 0:
        return f"it crashes with signal {-done.returncode}"
    return (done.stdout.decode(errors="replace").strip().splitlines() or ["no message"])[-1]


def program() -> Program:
    """Returns the program that the child process runs: gradient descent with the rate 1."""
    inputs = [Input(name, ELEMENT, "float32") for name in (GRADIENT, VALUE)]
    return trace(inputs, [None, None], lambda tensors: Results(tensors[inputs[0]], {}))


def main(path: str) -> None:
    """Updates variables with a driver. This function runs in the child process.

    Args:
      path: the path of the driver.

    Raises:
      RuntimeError: the driver computes wrong values.
    """
    from legacy_opt.native import driver  # imported here, because `driver` imports this module

    loaded, kernel = driver.opened(Path(path)), kernels.compiled(program())
    driver.register(loaded, kernel)
    for use_resource in False, True:
        with tf.Graph().as_default(), v1.Session() as session:
            start = tf.constant([[1.0, 2.0], [3.0, 4.0]])
            variable = v1.get_variable("w", initializer=start, use_resource=use_resource)
            target = [variable.handle if use_resource else versions.ref_of(variable)]
            dense = driver.update(loaded, kernel, target, [], [start / 4], True)
            rows = driver.update_rows(loaded, kernel, target, [], start[:1], tf.constant([1]), True)
            session.run(v1.global_variables_initializer())
            session.run(dense)
            session.run(rows)
            value = session.run(variable).tolist()
        if value != [[0.75, 1.5], [1.25, 1.0]]:
            raise RuntimeError(f"it computes wrong values: {value}")
