"""The TensorFlow operations that run kernels: builds, finds and calls them."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, List, NamedTuple, Optional, Sequence

import tensorflow as tf

from legacy_opt.native import cache
from legacy_opt.native.kernels import Kernel

_SOURCES = ("driver.cc", "update.h", "kernel.h")


class Driver(NamedTuple):
    """The loaded library of the operations.

    Attributes:
      operations: the module of operations, from `tf.load_op_library`.
      library: the same library, to register kernels.
    """

    operations: Any
    library: ctypes.CDLL


def _flags() -> List[str]:
    compile_flags = [
        flag for flag in tf.sysconfig.get_compile_flags() if not flag.startswith("--std")
    ]
    # TensorFlow 2.10 and newer need C++17; the compilers of their time built older ones with C++14.
    has_cpp17 = hasattr(tf, "types") and hasattr(tf.types.experimental, "ConcreteFunction")
    standard = "-std=c++17" if has_cpp17 else "-std=c++14"
    return [
        *(standard, "-O2", "-fPIC", "-shared", "-w"),
        *compile_flags,
        *tf.sysconfig.get_link_flags(),
    ]


def path() -> Path:
    """Returns the path of this TensorFlow's driver, whether it exists or not.

    Raises:
      NoCompilerError: see `cache.folder`.
    """
    texts = [(cache.SOURCES / name).read_text() for name in _SOURCES]
    key = hashlib.sha256("\0".join([tf.__version__, tf.version.GIT_VERSION, *texts]).encode())
    return cache.folder() / f"driver-{tf.__version__}-{key.hexdigest()[:16]}.so"


def build() -> Path:
    """Compiles the driver for this TensorFlow, which takes about 15 seconds. Returns its path.

    Raises:
      NoCompilerError: there is no C++ compiler, or it fails. Nothing is left half-written.
    """
    target = path()
    if target.exists():
        return target
    name = os.environ.get("CXX", "c++")
    compiler = shutil.which(name)
    if compiler is None:
        raise cache.NoCompilerError(f"There is no C++ compiler: {name!r} is not on PATH.")
    try:
        with tempfile.TemporaryDirectory(dir=target.parent, prefix="compiling-") as work:
            library = Path(work, "driver.so")
            command = [compiler, str(cache.SOURCES / "driver.cc"), "-o", str(library), *_flags()]
            done = subprocess.run(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
            )
            if done.returncode:
                output = done.stdout.decode(errors="replace").strip()
                raise cache.NoCompilerError(f"{name} cannot compile the driver: {output[-2000:]}")
            library.chmod(0o700)
            os.replace(library, target)
            load.cache_clear()
    except OSError as error:
        message = f"The driver cannot be stored in {target.parent}: {error}"
        raise cache.NoCompilerError(message) from None
    return target


@functools.lru_cache(maxsize=None)
def load() -> Optional[Driver]:
    """Returns the driver of this TensorFlow; None if it has not been built."""
    found = path()
    if not found.exists():
        return None
    cache.check_owner(found)
    # First, because TensorFlow lists only the operations that its own call registers.
    operations = tf.load_op_library(str(found))
    library = ctypes.CDLL(str(found))
    library.legacy_opt_register.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
    library.legacy_opt_set_folder.argtypes = [ctypes.c_char_p]
    library.legacy_opt_set_folder(str(found.parent).encode())
    return Driver(operations, library)


def update(
    driver: Driver,
    kernel: Kernel,
    variables: Sequence[Any],
    scalars: Sequence[Any],
    gradients: Sequence[Any],
    use_locking: bool,
) -> Any:
    """Updates whole variables with one operation.

    Args:
      driver: the driver.
      kernel: the kernel.
      variables: the handles or refs of all variables: each variable is followed by its slots.
      scalars: the values of the program's scalars.
      gradients: one gradient per variable.
      use_locking: whether to hold the locks of ref variables.

    Returns:
      The operation; None when executing eagerly.
    """
    _register(driver, kernel)
    given = {"scalars": list(scalars), "kernel": kernel.key, "use_locking": use_locking}
    call = driver.operations.legacy_opt_update
    if variables[0].dtype != tf.resource:
        call = driver.operations.legacy_opt_update_ref
    return call(variables=list(variables), gradients=list(gradients), **given)


def update_rows(
    driver: Driver,
    kernel: Kernel,
    variables: Sequence[Any],
    scalars: Sequence[Any],
    gradient: Any,
    ids: Any,
    use_locking: bool,
    all_rows: bool = False,
) -> Any:
    """Updates the rows of one variable; adds the rows of equal ids first.

    Args:
      driver: see `update`.
      kernel: see `update`.
      variables: the handles or refs of the variable and its slots.
      scalars: see `update`.
      gradient: the values of the sparse gradient, ``[n, …]``.
      ids: the row numbers, ``[n]``, int32 or int64.
      use_locking: whether to lock out other updates.
      all_rows: whether all other rows are updated, too, with a gradient of zero.

    Returns:
      The operation; None when executing eagerly.
    """
    _register(driver, kernel)
    given = {"scalars": list(scalars), "kernel": kernel.key, "use_locking": use_locking}
    call = driver.operations.legacy_opt_update_rows
    if variables[0].dtype != tf.resource:
        call = driver.operations.legacy_opt_update_rows_ref
    return call(variables=list(variables), gradient=gradient, ids=ids, all_rows=all_rows, **given)


def _register(driver, kernel):
    address = ctypes.addressof(kernel.table)
    if not driver.library.legacy_opt_register(kernel.key.encode(), address):
        raise cache.NoCompilerError(f"The kernel {kernel.key} does not fit this driver.")
