"""Finds compiled kernels, or compiles kernels and stores them in a folder of the user."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import stat
import struct
import subprocess
import tempfile
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

from legacy_opt import durable_files
from legacy_opt.programs.program import UnsupportedError

SOURCES = Path(__file__).parents[1] / "sources"
HEADERS = ("kernel.h", "elementary.h")
FOLDER_VARIABLE = "LEGACY_OPT_KERNELS"
PREBUILT_PACKAGE = "legacy_opt_native"
# -ffp-contract=off forbids fused multiply-add, so that a kernel computes the same bits on every
# processor. -fno-math-errno and -fno-trapping-math allow vectorization and do not change results.
FLAGS = ["-O3", "-std=gnu11", "-fPIC", "-shared", "-fvisibility=hidden", "-fwrapv", "-w"] + [
    # The next flags override flags in CC, such as -freciprocal-math. -fno-trapping-math comes
    # later, because -fno-unsafe-math-optimizations also means -ftrapping-math.
    "-fno-unsafe-math-optimizations",
    "-fno-finite-math-only",
    "-fno-reciprocal-math",
    "-fno-associative-math",
    "-fsigned-zeros",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-strict-aliasing",
]
# Flags that FLAGS cannot undo: a library that is linked with one of them makes the whole process
# treat very small numbers as 0.
_INEXACT = ("-Ofast", "-ffast-math", "-funsafe-math-optimizations")
_CLONES = '__attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))'

_loaded: Dict[str, ctypes.CDLL] = {}


class NoCompilerError(UnsupportedError):
    """Kernels cannot be compiled or stored on this machine. The message says why."""


def folder() -> Path:
    """Returns the folder of compiled kernels; creates it, or raises a NoCompilerError."""
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    default = os.path.join(caches, "legacy-opt", "kernels")
    path = _absolute(os.environ.get(FOLDER_VARIABLE) or default)
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise NoCompilerError(
            f"The folder of kernels, {path}, cannot be created: {error}. Set {FOLDER_VARIABLE} to "
            "another folder."
        ) from None
    check_owner(path)
    return path


def kernels_in(folder_: Path) -> List[Path]:
    """Returns the paths of this machine's kernels in a folder."""
    return list(folder_.glob(file_name("[0-9a-f]" * 32)))


def check_supply() -> None:
    """Raises a NoCompilerError if there is no kernel, and none can be compiled and stored."""
    if prebuilt_folder() is not None or kernels_in(folder()):
        return
    find_compiler("C", "CC", "cc")
    if not os.access(folder(), os.W_OK):
        raise NoCompilerError(f"{folder()} has no kernels and is read-only. Set {FOLDER_VARIABLE}.")


@functools.lru_cache(maxsize=None)
def _absolute(path: str) -> Path:
    # Cached, because the program may change its working directory. A variable that no shell has
    # read may contain "~".
    return Path(os.path.expanduser(path)).absolute()


def prebuilt_folder() -> Optional[Path]:
    """Returns the folder of the package legacy-opt-native; None if it is not installed.

    The owner of this folder is not checked, as Python does not check the owners of modules.
    """
    spec = importlib.util.find_spec(PREBUILT_PACKAGE)
    return Path(spec.origin).parent if spec and spec.origin else None


def prebuilt(name: str) -> Optional[Path]:
    """Returns the path of a library in legacy-opt-native; None if the package lacks the library."""
    folder_ = prebuilt_folder()
    if folder_ is None or not (folder_ / name).exists():
        return None
    return folder_ / name


def check_owner(path: Path) -> None:
    """Raises a NoCompilerError for a link, or if another user owns the path or may write to it."""
    if not hasattr(os, "geteuid"):
        raise NoCompilerError(
            f"Native kernels run on Linux and macOS only: on {platform.system()}, the owner of "
            f"{path} is not known."
        )
    status = os.lstat(path)
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        reason = "it is a link, or no file or folder"
    elif status.st_uid != os.geteuid():
        reason = "it belongs to another user"
    elif status.st_mode & 0o022:
        reason = "other users may write to it"
    else:
        return
    raise NoCompilerError(
        f"{path} is not safe to use: {reason}. Delete it, or set {FOLDER_VARIABLE} to a folder of "
        "your own."
    )


def find_compiler(language: str, variable: str, default: str) -> List[str]:
    """Returns the command of the compiler, for example ``["/usr/bin/ccache", "gcc"]``.

    The environment variable may contain the command, with arguments. Raises a NoCompilerError if
    the program is not on PATH, or the variable is not a command, or has a flag that changes the
    results of floating-point operations. The message names the language.
    """
    command = os.environ.get(variable, "").strip() or default
    try:
        name, *arguments = shlex.split(command)
    except ValueError as error:
        raise NoCompilerError(f"{variable}={command!r} is not a command: {error}") from None
    for flag in set(arguments).intersection(_INEXACT):
        raise NoCompilerError(
            f"{variable}={command!r}: {flag} changes the results of kernels. Remove the flag."
        )
    path = shutil.which(name)
    if path is None:
        raise NoCompilerError(f"There is no {language} compiler: {name!r} is not on PATH.")
    return [path, *arguments]


@functools.lru_cache(maxsize=None)
def compiler() -> List[str]:
    """Returns the command of the C compiler with all flags; raises errors like `find_compiler`."""
    return with_flags(find_compiler("C", "CC", "cc"))


def with_flags(command: List[str]) -> List[str]:
    """Returns the command of a C compiler with the flags for all kernels.

    Kernels for x86-64 contain code for several instruction sets. A test compilation finds out
    whether the compiler writes code for x86-64, whatever the processor of this machine is.
    """
    command = [*command, *FLAGS]
    clones = [f"-DVECTORIZED={_CLONES}"]
    test = ["-x", "c", "-", "-o", os.devnull]
    # Compilers for other processors may ignore the attribute, so the code tests for x86-64.
    code = "#ifndef __x86_64__\n#error\n#endif\nVECTORIZED int f(void) { return 0; }"
    test_result = subprocess.run(
        [*command, *clones, *test], input=code.encode(), stderr=subprocess.DEVNULL, check=False
    )
    if test_result.returncode:  # another processor, or the compiler does not know target_clones
        clones = ["-DVECTORIZED="]
    return [*command, *clones]


def file_name(key: str, machine: Optional[str] = None) -> str:
    """Returns the name of a kernel's file; `machine` is a type of processor, by default this one's.

    Graphs contain the key, not this name: machines with another processor may run the graphs.
    """
    return f"{key}-{machine or platform.machine()}.so"


def key_of(source: str) -> str:
    """Returns the key of a kernel: 32 hexadecimal digits of a hash of sources and flags."""
    headers = [(SOURCES / name).read_text() for name in HEADERS]
    return hashlib.sha256("\0".join([source, *headers, *FLAGS]).encode()).hexdigest()[:32]


def hash_of(sources: Sequence[str], others: Sequence[str]) -> str:
    """Returns a hash of the sources of a C++ library and of other texts, such as flags."""
    texts = [(SOURCES / each).read_text() for each in sources]
    return hashlib.sha256("\0".join([*others, *texts]).encode()).hexdigest()[:16]


def load(source: str) -> Tuple[str, ctypes.CDLL]:
    """Returns the key and the library of a C source; compiles it, or raises a NoCompilerError."""
    key = key_of(source)
    if key not in _loaded:
        # The library must stay loaded: the operations library stores pointers to its functions.
        _loaded[key] = _prebuilt_library(key) or _library_in_folder(key, source)
    return key, _loaded[key]


def _prebuilt_library(key: str) -> Optional[ctypes.CDLL]:
    path = prebuilt(file_name(key))
    if path is not None:
        with contextlib.suppress(OSError):  # a damaged file
            return opened(path)
    return None


def _library_in_folder(key: str, source: str) -> ctypes.CDLL:
    path = folder() / file_name(key)
    if not path.exists():
        compile_library(compiler(), source, ".c", path)
    check_owner(path)
    try:
        return opened(path)
    except OSError as error:
        raise NoCompilerError(f"The kernel {path} cannot be loaded: {error}") from None


def opened(path: Path) -> ctypes.CDLL:
    """Opens a library. Raises an OSError if it is incomplete, and could crash the process."""
    with path.open("rb") as file:
        header = file.read(64)
    if header.startswith(b"\x7fELF") and len(header) == 64:  # of 64 bits, little-endian
        # The file ends with the table of sections.
        (table_start,) = struct.unpack_from("<Q", header, 40)
        entry_size, entries = struct.unpack_from("<HH", header, 58)
        if path.stat().st_size < table_start + entry_size * entries:
            raise OSError("the end of the file is missing; delete it")
    return ctypes.CDLL(str(path))


def compile_library(
    command: List[str], source: str, ending: str, path: Path, libraries: Sequence[str] = ()
) -> None:
    """Compiles a library in a temporary folder, then moves it to `path`.

    The name of the source file ends with `ending`. `libraries` are the flags of other libraries,
    which linkers need after the source. Raises a NoCompilerError, and leaves no incomplete file.
    """
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix="compiling-") as work:
            source_file, library = Path(work, "source" + ending), Path(work, "library.so")
            source_file.write_text(source)
            result = subprocess.run(
                [*command, f"-I{SOURCES}", str(source_file), "-o", str(library), *libraries],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                check=False,
            )
            if result.returncode:
                output = result.stdout.decode(errors="replace").strip()
                raise NoCompilerError(f"{command[0]} cannot compile {path.name}: {output[-2000:]}")
            library.chmod(0o700)
            durable_files.rename(library, path)
    except OSError as error:
        raise NoCompilerError(f"{path.name} cannot be stored in {path.parent}: {error}") from None
