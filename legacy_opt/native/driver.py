"""Builds, loads and calls the driver: a library of TensorFlow operations that run kernels.

This driver has nothing to do with the `V1Driver` of `to_keras`.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
from pathlib import Path
from typing import Any, List, NamedTuple, Optional, Sequence

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.native import cache
from legacy_opt.native.kernels import Kernel
from legacy_opt.native.program import UnsupportedError

_SOURCES = ("driver.cc", "update.h", "kernel.h")


class Driver(NamedTuple):
    """The loaded driver.

    Attributes:
      operations: the module of operations, from `tf.load_op_library`.
      library: the loaded library, whose functions register kernels.
    """

    operations: Any
    library: ctypes.CDLL


_loaded: List[Driver] = []  # at most one: TensorFlow cannot unload operations


def _flags() -> List[str]:
    flags = [*tf.sysconfig.get_compile_flags(), *tf.sysconfig.get_link_flags()]
    own = [versions.cpp_standard(), "-O2", "-fPIC", "-shared", "-w"]
    return [*own, *(flag for flag in flags if not flag.startswith("--std"))]


def path() -> Path:
    """Returns the path of this TensorFlow's driver, whether it exists or not.

    Raises:
      NoCompilerError: see `cache.folder`.
    """
    version, revision = versions.tensorflow_build()
    texts = [(cache.SOURCES / name).read_text() for name in _SOURCES]
    key = hashlib.sha256("\0".join([version, revision, *texts]).encode()).hexdigest()
    return cache.folder() / f"driver-{version}-{key[:16]}.so"


def build() -> Path:
    """Compiles the driver for this TensorFlow if it does not exist. Returns its path.

    Raises:
      NoCompilerError: there is no C++ compiler, or it fails. No incomplete file is left.
    """
    target = path()
    if target.exists():
        return target
    command = [cache.find_compiler("C++", "CXX", "c++"), *_flags()]
    cache.compile_library(command, (cache.SOURCES / _SOURCES[0]).read_text(), ".cc", target)
    return target


def load() -> Optional[Driver]:
    """Returns the driver of this TensorFlow; None if it has not been built."""
    if _loaded:
        return _loaded[0]
    found = path()
    if not found.exists():
        return None
    cache.check_owner(found)
    # This precedes ctypes.CDLL, because TensorFlow lists only operations that its own call
    # registers.
    operations = tf.load_op_library(str(found))
    library = ctypes.CDLL(str(found))
    library.legacy_opt_register.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
    library.legacy_opt_set_folder.argtypes = [ctypes.c_char_p]
    library.legacy_opt_set_folder(str(found.parent).encode())
    _loaded.append(Driver(operations, library))
    return _loaded[0]


def check_server(driver: Driver, key: str, device: str, target: str) -> None:
    """Checks that another process has the driver and a kernel. Each process is asked once.

    Args:
      driver: the driver of this process.
      key: the kernel's key.
      device: a device of the other process.
      target: the target of sessions that reach the process.

    Raises:
      UnsupportedError: the process lacks the driver or the kernel.
    """
    reason = _lack_of_server(driver.operations, key, device.partition("/device:")[0], target)
    if reason:
        raise UnsupportedError(reason)


@functools.lru_cache(maxsize=None)
def _lack_of_server(operations, key, process, target):
    """Returns what a process lacks for a kernel, or an empty string."""
    config = tf.compat.v1.ConfigProto(device_filters=[process])
    try:
        with tf.Graph().as_default(), tf.device(process):
            found = operations.legacy_opt_has_kernel(kernel=key)
            with tf.compat.v1.Session(target, config=config) as session:
                has_kernel = session.run(found)
    except (tf.errors.NotFoundError, tf.errors.InvalidArgumentError):
        return (
            f"the process {process} has no driver: it must call legacy_opt.native.enable() before "
            "it creates its tf.train.Server"
        )
    if has_kernel:
        return ""
    return (
        f"the process {process} does not have the kernel {key}: let it use the same folder of "
        f"kernels, by {cache.FOLDER_VARIABLE}"
    )


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
      kernel: a kernel that `register` has registered.
      variables: the handles or refs of all variables and slots; the slots follow their variable.
      scalars: the values of the scalars of `kernel.program`, in the same order.
      gradients: one gradient per variable.
      use_locking: whether to lock ref variables. Resource variables are always locked.

    Returns:
      The operation; None when executing eagerly.
    """
    given = {"gradients": list(gradients)}
    return _run(driver, "legacy_opt_update", kernel, variables, scalars, use_locking, given)


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
    """Updates the rows of one variable, after summing the gradient's rows of equal ids.

    Args:
      driver: see `update`.
      kernel: see `update`.
      variables: the handles or refs of the variable and its slots.
      scalars: see `update`.
      gradient: the values of the sparse gradient, ``[n, …]``.
      ids: the row numbers, ``[n]``, int32 or int64.
      use_locking: whether other updates of the variable must wait.
      all_rows: whether all other rows are updated, too, with a gradient of zero. If so, pass the
        kernel of a dense gradient.

    Returns:
      The operation; None when executing eagerly.
    """
    given = {"gradient": gradient, "ids": ids, "all_rows": all_rows}
    return _run(driver, "legacy_opt_update_rows", kernel, variables, scalars, use_locking, given)


def _run(driver, operation, kernel, variables, scalars, use_locking, inputs):
    name = operation if variables[0].dtype == tf.resource else operation + "_ref"
    return getattr(driver.operations, name)(
        variables=list(variables),
        scalars=list(scalars),
        kernel=kernel.key,
        use_locking=use_locking,
        **inputs,
    )


def register(driver: Driver, kernel: Kernel) -> None:
    """Makes a kernel known to the operations of this process.

    Raises:
      NoCompilerError: the kernel was made for another version of the driver.
    """
    address = ctypes.addressof(kernel.table)
    if not driver.library.legacy_opt_register(kernel.key.encode(), address):
        raise cache.NoCompilerError(f"The kernel {kernel.key} does not fit this driver.")
