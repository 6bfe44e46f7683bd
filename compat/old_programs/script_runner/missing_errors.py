"""Error messages for the use of names that neither TensorFlow nor legacy_opt has."""

from __future__ import annotations

import functools
import os
import sys
import types
from typing import Any, Dict, List, NoReturn, Optional, Sequence, Tuple

from .. import old_names
from ..old_names import module_attributes
from ..source_analysis import missing_names
from ..source_analysis.missing_names import Missing
from . import user_imports

_OPERATORS = """
abs add and bool call contains delitem enter eq float floordiv ge getitem gt hash index
instancecheck int invert iter le len lt mod mro_entries mul ne neg next or pow radd reduce_ex rmul
rsub rtruediv setattr setitem sub subclasscheck truediv
"""
_Uses = Dict[str, Tuple[str, List[Missing]]]  # {name: (full name, uses)}
_GENERATED = "__autograph_generated_file"  # in the names of files that AutoGraph generates


class _StandIn:
    """Takes the place of a missing name that a module imports; each use of it raises an error."""

    _use: Missing

    def __init__(self, use: Missing) -> None:
        vars(self)["_use"] = use  # the use that imports the name

    def __getattr__(self, name: str) -> _StandIn:
        if self._use is _use_at(sys._getframe(1), [self._use]):
            return self  # `import tensorflow.missing.module as m` looks up `module`, too
        raise AttributeError(self._use.text)

    def __repr__(self) -> str:
        return f"<{self._use.text}>"  # for errors of functions to which this object is passed

    def _raise(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise AttributeError(self._use.text)

    vars().update(dict.fromkeys((f"__{name}__" for name in _OPERATORS.split()), _raise))


def install(missing: List[Missing], tensorflow: types.ModuleType) -> None:
    """Replaces Python's errors for missing names by messages with file, line and advice.

    If a module imports a missing name, the error is raised when the name is used. The replacement
    lasts as long as the process. Installed packages keep Python's own errors. `tensorflow` is the
    module that the script's `import tensorflow` returns.
    """
    missing_in: Dict[Any, _Uses] = {}  # {module: its missing names}
    for each in missing:
        if old_names.is_of_library(each.full_name):
            continue  # Python's own error says enough
        module, full_name = missing_names.look_up(each.full_name, tensorflow)
        if full_name is not None:
            names = missing_in.setdefault(_plain(module), {})
            _, uses = names.setdefault(full_name.rpartition(".")[2], (full_name, []))
            uses.append(each)
    for module, names in missing_in.items():
        _explain_missing_attributes(module, names)
    if missing:  # otherwise imports need no hook
        user_imports.add_hook(functools.partial(_import, missing))


def _plain(module: Any) -> Any:
    """Returns the module that TensorFlow's module wrapper contains, or the module itself."""
    from legacy_opt import versions  # not above: `legacy-opt doctor` imports this file without TF

    try:
        return versions.plain_module(module)
    except Exception:  # a lazy loader may raise any exception
        return module


def _explain_missing_attributes(module: Any, names: _Uses) -> None:
    """Gives a module of TensorFlow a `__getattr__` whose error explains each missing name."""

    def find(name: str, as_before: module_attributes.Lookup) -> Any:
        frame = user_imports.users_frame() if name in names else None
        if frame is None:
            return as_before(name)
        full_name, uses = names[name]
        imported = _import_at(frame, uses)
        if imported:
            return _StandIn(imported)
        raise AttributeError(_message(frame, full_name, uses))

    class_lookup = getattr(type(module), "__getattr__", None)
    if class_lookup is None:
        module_attributes.intercept(module, find)
        return

    def __getattr__(self: Any, name: str) -> Any:
        lookup = functools.partial(class_lookup, self)
        return find(name, lookup) if self is module else lookup(name)

    # A lazy module of TensorFlow: the `__getattr__` of its class loads the real module.
    type(module).__getattr__ = __getattr__


def _import(
    missing: List[Missing], following: user_imports.Import, request: user_imports.Request
) -> Any:
    """Imports a module, with stand-ins for missing names, or raises an error that explains them."""
    frame = user_imports.users_frame()
    if frame is None:
        return following(request)
    name, fromlist = request.name, request.fromlist or ()
    is_library = old_names.is_of_library(name)
    uses = _uses_of(missing, name)
    is_put_off = _import_at(frame, uses) is not None  # errors wait until the names are used
    try:
        module = following(request)
    except ImportError as error:
        if is_put_off:
            # Import the parent modules that exist, because `import a.b` binds `a`.
            parent = request._replace(name=name.rpartition(".")[0])
            module = None if fromlist else _import(missing, following, parent)
        elif is_library or not uses:
            raise
        else:
            raise type(error)(_message(frame, name, uses), name=error.name) from None
    if is_put_off:
        return _imported(frame, module, name, fromlist, uses) if fromlist else module
    if is_library:
        return module
    for each in fromlist:
        full_name = f"{name}.{each}"
        uses = _uses_of(missing, full_name)
        if uses and not hasattr(module, each):
            raise ImportError(_message(frame, full_name, uses), name=name)
    return module


def _imported(
    frame: types.FrameType, module: Any, name: str, fromlist: Sequence[str], missing: List[Missing]
) -> types.SimpleNamespace:
    """Returns an object with the attributes that `from … import` reads: values or stand-ins."""
    found = {each: getattr(module, each) for each in fromlist if hasattr(module, each)}
    for each in set(fromlist).difference(found):
        use = _import_at(frame, _uses_of(missing, f"{name}.{each}"))
        if use:
            found[each] = _StandIn(use)
    return types.SimpleNamespace(**found)


def _uses_of(missing: List[Missing], name: str) -> List[Missing]:
    """Returns the uses of a name, or of names in the module with this name."""
    return [each for each in missing if (each.full_name + ".").startswith(name + ".")]


def _message(frame: types.FrameType, full_name: str, uses: List[Missing]) -> str:
    """Returns the message for the use of a missing name in a frame.

    `full_name` ends with the word that TensorFlow lacks; the names of all `uses` begin with it.
    """
    file, line = frame.f_code.co_filename, frame.f_lineno
    use = uses[0] if _GENERATED in file else _use_at(frame, uses)
    return (use or missing_names.missing_at(full_name, file, line)).text


def _use_at(frame: types.FrameType, uses: List[Missing]) -> Optional[Missing]:
    """Returns the first use in the line that a frame executes, or None."""
    file, line = os.path.realpath(frame.f_code.co_filename), frame.f_lineno
    for each in uses:
        if os.path.realpath(each.path) == file and each.line <= line <= each.last_line:
            return each
    return None


def _import_at(frame: types.FrameType, uses: List[Missing]) -> Optional[Missing]:
    """Returns the import that a module executes in a frame, or None; see `_use_at`."""
    if frame.f_code.co_name != "<module>":
        return None
    return _use_at(frame, [each for each in uses if each.is_import])
