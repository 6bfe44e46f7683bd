"""Records which attributes of an optimizer a rule reads while it is traced, and their values.

A kernel contains everything that its rule read in Python: numbers, flags and methods. If one of
these has changed since the rule was traced, the kernel is out of date.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import types
from typing import Any, Dict, Iterator, List, Set, Tuple

import numpy as np
import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core.types import V1Optimizer

# Attributes that do not affect a kernel: a kernel gets the scalars and slots of a training step as
# inputs.
_STATE = frozenset(
    ["_rule_step", "_new_steps", "_pairs", "_native_step"]
    + ["_slots", "_non_slot_dict", "_deferred_slot_restorations"]
)
_MISSING = object()
_LIBRARIES = ("tensorflow", "tensorflow_core", "keras", "tf_keras", "numpy", "legacy_opt")
_IMMUTABLE = (bool, int, str, bytes, type(None))

# For the dict of an optimizer's attributes (by its id): the sets of names that are being recorded.
# There are several sets if several threads trace rules of the same optimizer.
_recorded: Dict[int, List[Set[str]]] = {}


@contextlib.contextmanager
def recorded(optimizer: V1Optimizer) -> Iterator[Tuple[V1Optimizer, Set[str]]]:
    """Scope that yields a recorder, and the set of the names of all attributes read through it.

    The recorder is an object with the attributes and methods of the optimizer. Attributes that are
    assigned to the recorder are assigned to the optimizer.

    Args:
      optimizer: the optimizer.
    """
    recorder = object.__new__(_class_of_recorders(type(optimizer)))
    object.__setattr__(recorder, "__dict__", vars(optimizer))
    names: Set[str] = set()
    sets = _recorded.setdefault(id(vars(optimizer)), [])
    sets.append(names)
    try:
        yield recorder, names
    finally:
        sets[:] = [each for each in sets if each is not names]
        if not sets:
            _recorded.pop(id(vars(optimizer)), None)


@functools.lru_cache(maxsize=None)
def _class_of_recorders(cls):
    def __getattribute__(self, name):
        for names in _recorded.get(id(cls.__getattribute__(self, "__dict__")), ()):
            names.add(name)
        value = cls.__getattribute__(self, name)
        if is_eager_tensor(value) and versions.building() == versions.GRAPH:
            # The rule is being traced. It may ask for the dtype, but not for the value.
            return tf.compat.v1.placeholder(value.dtype, value.shape)
        return value

    names = ("__doc__", "__module__", "__qualname__")
    members = {name: getattr(cls, name) for name in names}
    return type(cls.__name__, (cls,), dict(members, __getattribute__=__getattribute__))


def values_of(optimizer: V1Optimizer, names: Set[str]) -> Any:
    """Returns an object that equals a later one if the attributes have not changed in between.

    Numbers, strings, arrays and containers are compared by value, other objects by identity and by
    their attributes. Of eager tensors only the dtype counts, because rules cannot read their values
    while they are traced.

    Args:
      optimizer: the optimizer.
      names: the names of the attributes.
    """
    if "__dict__" in names:  # for example by vars(optimizer)
        names = names.union(vars(optimizer))
    used = sorted(name for name in names - _STATE if name[:2] != "__" and name[:6] != "_self_")
    found = [(name, _attribute(optimizer, name)) for name in used]
    return [
        (name, value.dtype if is_eager_tensor(value) else _value(value, {id(optimizer)}))
        for name, value in found
    ]


def is_eager_tensor(value: Any) -> bool:
    """Whether a value is a tensor that does not belong to a graph."""
    return isinstance(value, tf.Tensor) and not versions.is_symbolic(value)


def _attribute(optimizer, name):
    """Returns an attribute. Of the attributes of classes, properties and methods are not called."""
    for home in (optimizer, *type(optimizer).__mro__):
        if name in vars(home):
            return vars(home)[name]
    return _MISSING


class _Same:
    """Equals the wrapper of the same object; the `==` of tensors and arrays is another."""

    def __init__(self, value):
        self._value = value

    def __eq__(self, other):
        return type(other) is _Same and self._value is other._value


def _value(value, above):
    """Returns an object for comparison with `==`.

    Args:
      value: the value.
      above: the ids of all objects that contain the value.
    """
    kind = type(value)
    if kind in _IMMUTABLE:
        return kind, value
    if kind is float:
        return kind, value.hex()  # so that NaN equals NaN, and 0.0 does not equal -0.0
    if id(value) in above:
        return "contains itself"
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype != object:
        return kind, value.dtype.str, value.shape, value.tobytes()
    above = above | {id(value)}
    if isinstance(value, dict):
        return kind, [(_value(key, above), _value(item, above)) for key, item in value.items()]
    if isinstance(value, (set, frozenset)):
        value = sorted(value, key=repr)
    if isinstance(value, (list, tuple, collections.deque)):
        return kind, [_value(each, above) for each in value]
    if isinstance(value, functools.partial):
        return kind, [_value(each, above) for each in (value.func, value.args, value.keywords)]
    if isinstance(value, types.MethodType):
        return kind, _Same(value.__func__), _value(value.__self__, above)
    return _Same(value), _state(value, above)


def _state(value, above):
    """Returns the attributes of an object that a user can change; None if there are none."""
    is_code = isinstance(value, (type, types.ModuleType, types.FunctionType))
    if is_code or not hasattr(value, "__dict__") or _is_of_library(type(value)):
        return None
    state = vars(value)
    if any(_is_of_library(cls) for cls in type(value).__mro__):  # for example a Keras model
        state = {name: item for name, item in state.items() if type(item) in (*_IMMUTABLE, float)}
    return [(name, _value(item, above)) for name, item in state.items()]


def _is_of_library(cls):
    return cls.__module__.partition(".")[0] in _LIBRARIES
