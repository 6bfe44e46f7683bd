"""Finds out whether something has changed that a rule may have read while it was traced.

A kernel contains everything that its rule read in Python: numbers, flags and methods. If one of
these has changed since the rule was traced, the kernel is out of date.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import types
import weakref
from typing import Any, Dict, Iterator, List, Tuple

import numpy as np
import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core.types import V1Optimizer

# The state of a training step, which is not compared: a kernel gets it as inputs, or it is in
# `Formulas.flags`.
_STATE = ("_rule_step", "_new_steps", "_step_pairs", "_step_kernels", "_step_waits_for")
_STATE += ("_decay_step", "_slots", "_non_slot_dict", "_deferred_slot_restorations")
_IMMUTABLE = (bool, int, complex, str, bytes, range, slice, type(None), type(...))
# Objects of these packages are compared by identity.
_LIBRARIES = ("tensorflow", "tensorflow_core", "keras", "tf_keras", "numpy", "legacy_opt")
_LIBRARIES += ("_abc", "_thread", "logging", "re", "threading", "weakref")
_CODE = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, property)
_CODE += (classmethod, staticmethod)


def values_of(optimizer: V1Optimizer) -> Any:
    """Returns a snapshot, which equals a later snapshot if a rule would read the same attributes.

    A snapshot contains the attributes of the optimizer and of the optimizer's classes. Numbers,
    strings, arrays and containers are compared by value, other objects by identity and by their
    attributes. Eager tensors are compared by dtype and shape, because a rule cannot read their
    values while it is traced (see `without_eager_tensors`).
    """
    seen = {id(optimizer): 0}
    owners = [optimizer, *(cls for cls in type(optimizer).__mro__ if not _is_of_library(cls))]
    try:
        return [
            (name, _comparable_attribute(value, seen))
            for owner in owners
            for name, value in list(vars(owner).items())
            # TensorFlow's checkpoints use attributes that begin with "_self_".
            if name not in _STATE and not name.startswith(("__", "_self_"))
        ]
    except RecursionError:
        return object()  # equals nothing, so the rule is traced again


def same(value: Any, other: Any) -> bool:
    """Whether numbers, strings, arrays and containers are equal, and other objects identical."""
    return _comparable(value, {}) == _comparable(other, {})


@contextlib.contextmanager
def without_eager_tensors(optimizer: V1Optimizer) -> Iterator[None]:
    """Scope in which placeholders replace the eager tensors in the attributes of an optimizer.

    A rule that is traced in this scope may ask for the dtypes of these tensors, but not for their
    values, which may change until the next training step.
    """
    state = vars(optimizer)
    eager = {name: value for name, value in state.items() if _is_eager_tensor(value)}
    hidden = {
        name: tf.compat.v1.placeholder(value.dtype, value.shape) for name, value in eager.items()
    }
    state.update(hidden)
    try:
        yield
    finally:
        state.update({name: eager[name] for name in eager if state.get(name) is hidden[name]})


def _is_eager_tensor(value: Any) -> bool:
    return isinstance(value, tf.Tensor) and not versions.is_symbolic(value)


def _comparable_attribute(value: Any, seen: Dict[int, int]) -> Any:
    if _is_eager_tensor(value):
        return value.dtype, value.shape.as_list()
    return _comparable(value, seen)


class _Identity:
    """Compares an object by identity, because `==` of tensors and arrays compares elements.

    If possible, the reference is weak, because the object may refer to the optimizer.
    """

    def __init__(self, value: Any) -> None:
        try:
            self._value = weakref.ref(value)
        except TypeError:
            self._value = lambda: value

    def __eq__(self, other: object) -> bool:
        value = self._value()
        return type(other) is _Identity and value is not None and value is other._value()


def _comparable(value: Any, seen: Dict[int, int]) -> Any:
    """Returns an object to compare with `==`; `seen` numbers objects by id, in visiting order."""
    kind = type(value)
    if kind in (float, complex):
        return kind, repr(value)  # NaN equals NaN, and 0.0 does not equal -0.0
    if kind in _IMMUTABLE:
        return kind, value
    if id(value) in seen:
        return "seen", seen[id(value)]
    seen[id(value)] = len(seen)
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype != object:
        return kind, value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, types.MethodType):
        return kind, _Identity(value.__func__), _comparable(value.__self__, seen)
    if isinstance(value, functools.partial):
        return kind, [_comparable(each, seen) for each in (value.func, value.args, value.keywords)]
    if kind is object or isinstance(value, _CODE) or _is_of_library(kind):
        return _Identity(value)
    items = None
    if isinstance(value, dict):
        pairs = list(value.items())
        items = [(_comparable(key, seen), _comparable(item, seen)) for key, item in pairs]
    elif isinstance(value, (list, tuple, collections.deque)):
        items = [_comparable(each, seen) for each in value]
    elif isinstance(value, (set, frozenset)):
        items = [_comparable(each, seen) for each in sorted(value, key=repr)]
    elif not hasattr(value, "__dict__"):
        return object()  # it may have changed, and nothing tells whether it has
    content = _Identity(value) if items is None else items
    return kind, content, _comparable_state(value, seen)


def _comparable_state(value: Any, seen: Dict[int, int]) -> List[Tuple[str, Any]]:
    state = getattr(value, "__dict__", {})
    if any(_is_of_library(cls) for cls in type(value).__mro__):
        # All other attributes of such an object, e.g. a Keras model, belong to the library.
        state = {name: item for name, item in state.items() if type(item) in (*_IMMUTABLE, float)}
    return [(name, _comparable(item, seen)) for name, item in list(state.items())]


def _is_of_library(cls: type) -> bool:
    return cls.__module__.partition(".")[0] in _LIBRARIES
