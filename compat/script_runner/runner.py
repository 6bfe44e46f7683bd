"""Runs a script as the main module, with TensorFlow 1's names."""

import builtins
import importlib
import importlib.util
import logging
import os
import runpy
import sys
import types
from importlib.machinery import SourceFileLoader

from .. import special_files
from ..source_analysis import script_modules
from . import missing_errors

_KEYBOARD = 130  # what a shell makes of Ctrl-C


def prepare():
    """Brings TensorFlow 1 back, as far as that goes, and returns it as a module."""
    # Keras 2, with tf.layers, which newer TensorFlow takes from there. It is asked for once, when
    # TensorFlow is imported.
    if importlib.util.find_spec("tf_keras") is not None:
        os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    importlib.import_module("legacy_opt.public")  # tells how to come by TensorFlow
    import tensorflow as tf

    from legacy_opt import versions

    from ..old_names import patching

    patching.patch_tensorflow()
    if versions.speaks_v1():
        return tf
    logger = logging.getLogger("tensorflow")
    level = logger.level
    logger.setLevel(logging.ERROR)  # not to be told that this is not what one does nowadays
    tf.compat.v1.disable_v2_behavior()
    tf.compat.v1.compat = tf.compat  # its own has other modules of the same names, or none
    logger.setLevel(level)
    builtins.__import__ = _importing(builtins.__import__, tf.compat.v1)
    return tf.compat.v1


def path_of_script(path):
    """Returns the path of a script that can be read, more than once."""
    special_files.refuse(path)
    with open(path, "rb"):
        if not os.path.isfile(path):
            raise OSError(f"{path!r} is no file.")
    return path


def module_called(name):
    """Returns the path and the full name of what runs as a module."""
    for each in (name + ".__main__", name):
        path = script_modules.file_of(each, sys.path)
        if path is not None:
            return path, each
    raise ImportError(f"There is no module named {name!r}.")


def _importing(import_, v1):
    """Returns an `__import__` that gives users' own modules `tf.compat.v1` for `tensorflow`.

    Installed packages expect the TensorFlow that is installed.

    Args:
      import_: the `__import__` there was.
      v1: `tf.compat.v1`.
    """

    def __import__(name, globals=None, locals=None, fromlist=(), level=0):
        root, *path = name.split(".")
        if root == "tensorflow" and not level and missing_errors.is_users_own(globals or {}):
            module = _module(v1, path)
            if module and all(each == "*" or hasattr(module, each) for each in fromlist or ()):
                return module if fromlist else v1
            if not (fromlist or hasattr(v1, path[0])):  # tensorflow.python
                import_(name, globals, locals, fromlist, level)
                setattr(v1, path[0], sys.modules["tensorflow." + path[0]])
                return v1
        return import_(name, globals, locals, fromlist, level)

    return __import__


def _module(v1, path):
    """Returns the module that `tf.compat.v1` has there, or None."""
    for name in path:
        v1 = getattr(v1, name, None)
    return v1 if isinstance(v1, types.ModuleType) else None


def run_file(path):
    """Runs a file as the module `__main__`."""
    if sys.version_info >= (3, 9):  # which says so in tracebacks, too
        path = os.path.abspath(path)
    loader = SourceFileLoader("__main__", path)
    module = types.ModuleType("__main__")
    module.__file__, module.__loader__, module.__builtins__ = path, loader, builtins
    sys.modules["__main__"] = module
    exec(compile(loader.get_data(path), path, "exec", dont_inherit=True), vars(module))


def run_module(name):
    """Runs a module as `__main__`."""
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def outcome(start):
    """Runs the script and returns its exit code; errors are told as Python tells them."""
    try:
        start()
    except SystemExit:
        raise
    except BaseException as error:
        _leave_out_our_frames(error, set())
        sys.excepthook(type(error), error, error.__traceback__)
        return _KEYBOARD if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _leave_out_our_frames(error, seen):
    """Takes the frames of this file and of runpy from an error's traceback, and of its causes."""
    if error is None or id(error) in seen:
        return
    seen.add(id(error))
    frames = []
    frame = error.__traceback__
    while frame is not None:
        frames.append(frame)
        frame = frame.tb_next
    kept = [each for each in frames if each.tb_frame.f_code.co_filename not in _OUR_FILES]
    for each, following in zip(kept, kept[1:] + [None]):
        each.tb_next = following
    error.__traceback__ = kept[0] if kept else None
    _leave_out_our_frames(error.__cause__, seen)
    _leave_out_our_frames(error.__context__, seen)


_OUR_FILES = {
    each.__code__.co_filename for each in (run_file, missing_errors.install, runpy.run_module)
}
