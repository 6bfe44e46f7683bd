"""Runs a script as `__main__`, with tf.compat.v1 imported as tensorflow."""

from __future__ import annotations

import builtins
import functools
import importlib
import importlib.util
import os
import runpy
import sys
import types
from importlib.machinery import SourceFileLoader
from typing import Any, Callable, List, Optional, Set, Tuple

from ... import special_files
from ..old_names import module_attributes
from ..source_analysis import missing_names, script_modules
from . import library_names, missing_errors, packages, user_imports

_INTERRUPTED = 130  # the exit code that shells report after Ctrl-C


def prepare(native: bool = False) -> types.ModuleType:
    """Sets up TensorFlow 1's names and behaviour, and returns what scripts import as tensorflow."""
    # From TensorFlow 2.16 on, tf.layers needs Keras 2 (tf_keras). TensorFlow reads this variable of
    # the environment during its import.
    if importlib.util.find_spec("tf_keras") is not None:
        os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    # Raises an ImportError with the pip command if TensorFlow is not installed.
    importlib.import_module("legacy_opt.public")
    import tensorflow as tf

    from legacy_opt import versions

    from ..old_names import patching

    user_imports.add_hook(library_names.import_with_names)
    patching.patch_tensorflow(native)
    if versions.remapping_crashes():
        versions.turn_remapping_off(_say_that_remapping_is_off)
    if versions.speaks_v1():
        return tf
    with missing_names.without_warnings():
        tf.compat.v1.disable_v2_behavior()  # warns that it is deprecated
    # Otherwise tf.compat.v1.compat may lack v1 and v2, or have copies of them.
    tf.compat.v1.compat = tf.compat
    user_imports.add_hook(functools.partial(_import, tf.compat.v1))
    return tf.compat.v1


@functools.lru_cache(maxsize=None)  # says it once
def _say_that_remapping_is_off() -> None:
    text = (
        "this TensorFlow crashes on layer normalization written by hand, so Sessions run without "
        "Grappler's remapping. Kernels are not fused, and last bits may change (`legacy-opt docs "
        "old_scripts`)."
    )
    print(f"legacy-opt run: {text}", file=sys.stderr)


def path_of_script(path: str) -> str:
    """Returns the path of a script after checking that it is a readable regular file."""
    special_files.refuse(path)
    if not os.path.exists(path):
        raise ImportError(f"There is no file {path!r}.")  # users see the message without the class
    with open(path, "rb"):
        if not os.path.isfile(path):
            raise OSError(f"{path!r} is not a file.")
    return path


def module_called(name: str) -> Tuple[str, str]:
    """Returns the path and the full name of a module; for a package, of its module `__main__`."""
    for each in (name + ".__main__", name):
        path = script_modules.file_of(each, sys.path)
        if path is not None:
            return path, each
    raise ImportError(f"There is no module named {name!r}.")


def _import(v1: Any, following: user_imports.Import, request: user_imports.Request) -> Any:
    """Imports `tf.compat.v1` as `tensorflow`. A hook for `user_imports.add_hook`."""
    root, *path = request.name.split(".")
    names = request.fromlist or ()
    if root == "tensorflow":
        module = _module(v1, path)
        if module and all(each == "*" or hasattr(module, each) for each in names):
            return module if names else v1
        if not names and not hasattr(v1, path[0]):  # v1 lacks, for example, python
            following(request)
            setattr(v1, path[0], sys.modules["tensorflow." + path[0]])
            return v1
    return following(request)


def _module(v1: Any, path: List[str]) -> Optional[types.ModuleType]:
    """Returns the submodule of `tf.compat.v1` at a path of names, or None."""
    module = v1
    for name in path:
        module = getattr(module, name, None)
    return module if isinstance(module, types.ModuleType) else None


def run_file(path: str) -> None:
    """Runs a file as the module `__main__`."""
    if sys.version_info >= (3, 9):  # from 3.9 on, `python script.py` makes the path absolute, too
        path = os.path.abspath(path)
    loader = SourceFileLoader("__main__", path)
    module = types.ModuleType("__main__")
    module.__file__ = path
    module.__loader__ = loader
    module.__builtins__ = builtins
    sys.modules["__main__"] = module
    exec(compile(loader.get_data(path), path, "exec", dont_inherit=True), vars(module))


def run_module(name: str) -> None:
    """Runs a module as `__main__`."""
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def outcome(start: Callable[[], Any]) -> int:
    """Calls `start`, which runs the script, and returns the exit code.

    Prints an uncaught exception as Python does. If `packages.include` would avoid the exception, a
    line says so. A SystemExit is raised again.
    """
    try:
        start()
    except SystemExit:
        raise
    except BaseException as error:
        _hide_our_frames(error, set())
        sys.excepthook(type(error), error, error.__traceback__)
        advice = library_names.way_out(error)
        if advice:
            print(f"legacy-opt run: {advice}", file=sys.stderr)
        package = packages.package_to_include(error)
        if package is not None:
            advice = f"add `--package {package}` before the script."
            text = f"the package {package} needs TensorFlow 1's names: {advice}"
            print(f"legacy-opt run: {text}", file=sys.stderr)
        return _INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _hide_our_frames(error: Optional[BaseException], seen: Set[int]) -> None:
    """Removes the frames of this package and runpy from the tracebacks of an error and causes."""
    if error is None or id(error) in seen:
        return
    seen.add(id(error))
    # Link the tracebacks of the other frames, behind an object that stands before the first one.
    before_first = types.SimpleNamespace(tb_next=error.__traceback__)
    last_kept = before_first
    traceback = before_first.tb_next
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename not in _OUR_FILES:
            last_kept.tb_next = traceback
            last_kept = traceback
        traceback = traceback.tb_next
    last_kept.tb_next = None
    error.__traceback__ = before_first.tb_next
    _hide_our_frames(error.__cause__, seen)
    _hide_our_frames(error.__context__, seen)


_OUR_FILES = {
    *(each.__code__.co_filename for each in (run_file, missing_errors.install, runpy.run_module)),
    *(library_names.__file__, module_attributes.__file__, user_imports.__file__),
}
