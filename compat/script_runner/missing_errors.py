"""The errors of a script that uses a name of TensorFlow that nobody provides."""

import builtins
import functools
import os
import sys

from ..source_analysis import missing_names, script_modules

_GENERATED = "__autograph_generated_file"  # by TensorFlow, from a function of a file that was read


def install(missing, tensorflow):
    """Makes the errors of missing names tell where they are used, and what to do.

    It lasts as long as the process. Installed packages get the errors that Python gives.

    Args:
      missing: a list of `missing_names.Missing`.
      tensorflow: the module that `import tensorflow` gives to the script.
    """
    lacking = {}  # module: name in it: list of `Missing`
    for each in missing:
        module, name = missing_names.look_up(each.full_name, tensorflow)
        lacking.setdefault(_plain(module), {}).setdefault(name, []).append(each)
    for module, names in lacking.items():
        _let_attributes_tell(module, names)
    if missing:
        builtins.__import__ = _importing(builtins.__import__, missing)


def is_users_own(names):
    """Whether the module with these global names is neither installed nor one of ours."""
    if str(names.get("__name__")).partition(".")[0] == "legacy_opt":
        return False
    return "__file__" not in names or _is_local(names["__file__"])


_is_local = functools.lru_cache(maxsize=None)(script_modules.is_local)


def _plain(module):
    """Returns the module whose `__getattr__` is asked, of one that TensorFlow may have wrapped."""
    from legacy_opt import versions  # the command line imports this file without TensorFlow

    try:
        return versions.plain_module(module)
    except Exception:  # of lazy loaders: any may come
        return module


def _let_attributes_tell(module, names):
    """Gives a module a `__getattr__` that knows the names that the module lacks."""
    lazy = getattr(type(module), "__getattr__", None)
    before = functools.partial(lazy, module) if lazy else vars(module).get("__getattr__")

    def tell(name):
        frame = _users_frame() if name in names else None
        if frame is not None:
            raise AttributeError(_line(names[name], frame))
        if before is not None:
            return before(name)
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

    if lazy:  # of TensorFlow's lazy modules; they load what they stand for in their classes' own
        type(module).__getattr__ = lambda self, name: (
            tell(name) if self is module else lazy(self, name)
        )
    else:
        vars(module)["__getattr__"] = tell


def _importing(import_, missing):
    """Returns an `__import__` whose errors tell of missing names."""

    def __import__(name, globals=None, locals=None, fromlist=(), level=0):
        if level or name.partition(".")[0] != "tensorflow" or not is_users_own(globals or {}):
            return import_(name, globals, locals, fromlist, level)
        try:
            module = import_(name, globals, locals, fromlist, level)
        except ImportError as error:
            found = _of_full_name(missing, name)
            if not found:
                raise
            raise type(error)(_line(found, _users_frame()), name=error.name) from None
        for each in fromlist or ():
            found = _of_full_name(missing, f"{name}.{each}")
            if found and not hasattr(module, each):
                raise ImportError(_line(found, _users_frame()), name=name)
        return module

    return __import__


def _of_full_name(missing, name):
    return [each for each in missing if (each.full_name + ".").startswith(name + ".")]


def _users_frame():
    """Returns the frame that uses a name, or None if that is not one of a user's own modules."""
    frame = sys._getframe(1)
    while frame is not None and _is_on_the_way(str(frame.f_globals.get("__name__"))):
        frame = frame.f_back
    return frame if frame is not None and is_users_own(frame.f_globals) else None


def _is_on_the_way(module):
    return module.partition(".")[0] in ("importlib", "legacy_opt", "tensorflow", "tensorflow_core")


def _line(uses, frame):
    """Returns what is told of the use, among uses of one name, that a frame is at."""
    file, number = frame.f_code.co_filename, frame.f_lineno
    here = [each for each in uses if os.path.realpath(each.path) == os.path.realpath(file)]
    if here:
        return min(here, key=lambda each: abs(each.line - number)).text
    if _GENERATED in file:
        return uses[0].text
    return uses[0]._replace(path=file, line=number).text
