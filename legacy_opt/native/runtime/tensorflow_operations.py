"""Builds, loads and calls the operations library: the TensorFlow operations that run kernels."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import platform
import time
from pathlib import Path
from typing import Any, List, NamedTuple, Optional, Sequence

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.native.runtime import cache, probe
from legacy_opt.native.runtime.compiled_kernels import Kernel
from legacy_opt.programs.program import UnsupportedError

_SOURCES = ("operations.cc", "checks.h", "update.h", "kernel.h")
_FLAGS = ["-O2", "-fPIC", "-shared", "-w"]
_SECONDS_UNTIL_RETRY = 1


class LoadedOperations(NamedTuple):
    """The loaded operations library."""

    operations: Any  # the module, from `tf.load_op_library`
    functions: ctypes.CDLL  # the same library, with the functions that register kernels


_loaded: List[LoadedOperations] = []  # at most one, because TensorFlow cannot unload operations


@functools.lru_cache(maxsize=None)
def name() -> str:
    """Returns the file name of this TensorFlow's operations library."""
    return file_name([*versions.tensorflow_build(), platform.machine()])


def file_name(build_: Sequence[str]) -> str:
    """Returns the file name for a version, source revision and C++ ABI, and type of processor."""
    return f"operations-{build_[0]}-{cache.hash_of(_SOURCES, build_)}.so"


def path() -> Path:
    """Returns the path at which `build` stores the operations library, whether it exists or not."""
    return cache.folder() / name()


def build() -> Path:
    """Returns the path of the operations library; compiles it, or raises a NoCompilerError."""
    with contextlib.suppress(UnsupportedError):
        return find()
    flags = [flag for flag in tf.sysconfig.get_compile_flags() if not flag.startswith("--std")]
    command = [*cache.find_compiler("C++", "CXX", "c++"), versions.cpp_standard(), *flags]
    compile_file(command, path(), tf.sysconfig.get_link_flags())
    return path()


def compile_file(command: List[str], path_: Path, link_flags: List[str]) -> None:
    """Compiles an operations library; see `cache.compile_library`."""
    source = (cache.SOURCES / _SOURCES[0]).read_text()
    cache.compile_library([*command, *_FLAGS], source, ".cc", path_, link_flags)


def find() -> Path:
    """Finds the library of legacy-opt-native or of `build`, or raises an UnsupportedError."""
    lack = ""  # what legacy-opt-native lacks
    prebuilt = cache.prebuilt(name())
    if prebuilt is not None:
        failure = probe.failure(prebuilt)
        if not failure:
            return prebuilt
        lack = "the operations library of legacy-opt-native does not work with this TensorFlow "
        lack += f"({failure}): "
    elif cache.prebuilt_folder() is not None:
        lack = "legacy-opt-native has no operations library for this build of TensorFlow "
        lack += f"{tf.__version__}: "
    built = path()
    if not built.exists():
        raise UnsupportedError(lack + "run `legacy-opt build-kernels` first")
    cache.check_owner(built)
    return built


def load() -> LoadedOperations:
    """Returns the operations library of this TensorFlow; raises the same errors as `find`."""
    if not _loaded:
        _loaded.append(load_file(find()))
    return _loaded[0]


def load_file(library_path: Path) -> LoadedOperations:
    """Loads an operations library. Raises an UnsupportedError if it cannot be loaded."""
    try:
        # First tf.load_op_library, which returns only the operations that its call registers: an
        # earlier ctypes.CDLL would register them too early.
        operations = tf.load_op_library(str(library_path))
        functions = ctypes.CDLL(str(library_path))
    except (tf.errors.OpError, OSError) as error:
        raise UnsupportedError(
            f"the operations library {library_path} cannot be loaded: {error}"
        ) from None
    functions.legacy_opt_register.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
    functions.legacy_opt_set_folders.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
    folder = ""
    with contextlib.suppress(cache.NoCompilerError):  # prebuilt kernels need no folder
        folder = str(cache.folder())
    functions.legacy_opt_set_folders(folder.encode(), str(cache.prebuilt_folder() or "").encode())
    return LoadedOperations(operations, functions)


@functools.lru_cache(maxsize=None)
def missing_in_process(operations: Any, key: str, process: str, target: Optional[str]) -> str:
    """Returns what a process, such as "/job:ps/task:0", lacks to run a kernel; "" if nothing.

    `target` is the target of sessions that can run operations in this process. If the process ends
    meanwhile, a new session waits until it has been started again, as in MonitoredTrainingSession.
    """
    config = tf.compat.v1.ConfigProto(device_filters=[process])
    has_kernel = None
    while has_kernel is None:
        try:
            with tf.Graph().as_default(), tf.device(process):
                answer = operations.legacy_opt_has_kernel(kernel=key)
                with tf.compat.v1.Session(target, config=config) as session:
                    has_kernel = session.run(answer)
        except (tf.errors.AbortedError, tf.errors.UnavailableError):
            time.sleep(_SECONDS_UNTIL_RETRY)
        except (tf.errors.NotFoundError, tf.errors.InvalidArgumentError):
            return (
                f"the process {process} has no operations library: the process must call "
                "legacy_opt.native.enable() before it creates its tf.train.Server"
            )
    if has_kernel:
        return ""
    return (
        f"the process {process} does not have the kernel {key}. Set the same folder of kernels "
        f"for that process ({cache.FOLDER_VARIABLE}), or install the same legacy-opt-native there"
    )


def update(
    library: LoadedOperations,
    kernel: Kernel,
    variables: Sequence[Any],
    scalars: Sequence[Any],
    gradients: Sequence[Any],
    use_locking: bool,
    ids: Any = None,
    all_rows: bool = False,
) -> Any:
    """Updates whole variables, or rows of one variable, with one operation.

    Args:
      library: the operations library.
      kernel: a kernel that `register` has registered.
      variables: the handles, refs or resource names of all variables and slots. Each variable is
        followed by its slots. With `ids`, resource names are not allowed.
      scalars: the values of `kernel.inputs.scalars`, in the same order.
      gradients: one gradient per variable; for a sparse gradient, only its values, ``[n, …]``.
      use_locking: whether to lock ref variables. Resource variables are always locked.
      ids: the row numbers of a sparse gradient, in which rows of equal ids are summed: ``[n]``,
        int32 or int64.
      all_rows: whether all other rows are also updated, with a gradient of zero. If so, `kernel`
        must be the kernel for dense gradients.

    Returns:
      The operation; None when executing eagerly.
    """
    inputs = {"kernel": kernel.key, "scalars": list(scalars), "use_locking": use_locking}
    operation = "legacy_opt_update"
    if ids is None:
        inputs.update(gradients=list(gradients))
    else:
        operation += "_rows"
        inputs.update(gradient=gradients[0], ids=ids, all_rows=all_rows)
    if isinstance(variables[0], str):
        operation += "_named"
        inputs.update(names=list(variables))
    else:
        operation += "" if variables[0].dtype == tf.resource else "_ref"
        inputs.update(variables=list(variables))
    return getattr(library.operations, operation)(**inputs)


def sums(library: LoadedOperations, kernel: Kernel, gradients: Sequence[Any]) -> Any:
    """Returns the sums over all elements of all gradients, a float64 tensor: one element per sum.

    The kernel is registered, has no slots and scalars, and its sums do not depend on the value. The
    gradients have the kernel's dtype, and any shapes.
    """
    return library.operations.legacy_opt_sums(gradients=list(gradients), kernel=kernel.key)


def register(library: LoadedOperations, kernel: Kernel) -> None:
    """Registers a kernel for the operations in this process, or raises a NoCompilerError."""
    if not library.functions.legacy_opt_register(kernel.key.encode(), kernel.address):
        raise cache.NoCompilerError(
            f"The kernel {kernel.key} does not fit this operations library."
        )
