"""Finds the attributes of a v1 optimizer: learning rate, global step and hyperparameters."""

from __future__ import annotations

import contextlib
import functools
import inspect
import numbers
from typing import Any, Callable, Collection, Dict, Iterator, Mapping, Optional, Set, Tuple

import tensorflow as tf

from legacy_opt import RuleOptimizer
from legacy_opt.core import argument_checks, contract
from legacy_opt.core.types import DType, KerasOptimizer, V1Optimizer

from .copying import copied

BASE = tf.compat.v1.train.Optimizer
LEARNING_RATE_ATTRIBUTES = ("_learning_rate", "_lr", "learning_rate", "lr")
STEP_ATTRIBUTE = "_global_step"
# Arguments of Keras optimizers that a copy does not need.
_WITHOUT_EFFECT = ("name", "lr", "use_locking")
_UNKNOWN = object()
_BASE_ATTRIBUTES = frozenset(vars(BASE(use_locking=False, name="base")))


def learning_rate_attributes(optimizer: V1Optimizer, lr_attr: Any = None) -> Tuple[str, ...]:
    """Returns a tuple of the names of the attributes that contain the learning rate.

    The tuple is empty if the user's `lr_attr` is False, or if the learning rate of a
    `RuleOptimizer` is None, or if one of this package has no learning rate. Raises a ValueError if
    there is no attribute `lr_attr`, or if the search finds none, or several with different values.
    """
    if lr_attr is False:
        return ()
    state = vars(optimizer)
    name = type(optimizer).__name__
    if lr_attr is not None:
        if lr_attr not in state:
            raise ValueError(f"lr_attr={lr_attr!r}: {name} has no such attribute.")
        return (lr_attr,)
    names = tuple(key for key in LEARNING_RATE_ATTRIBUTES if state.get(key) is not None)
    # Adafactor's rate may be None, and COCOB has none. A user's rule may have another name for it.
    constructor = next(cls for cls in type(optimizer).__mro__ if "__init__" in vars(cls))
    may_have_none = "_learning_rate" in state or not contract.is_of_user(constructor)
    if not names and isinstance(optimizer, RuleOptimizer) and may_have_none:
        return ()
    if not names:
        raise ValueError(
            f"{name} has none of the attributes {', '.join(LEARNING_RATE_ATTRIBUTES)}, so its "
            "learning rate would never change. Name the right one with lr_attr=…, or pass "
            "lr_attr=False if it has no learning rate."
        )
    if any(state[key] is not state[names[0]] for key in names):
        raise ValueError(
            f"{name} has several attributes that could be its learning rate: "
            f"{', '.join(names)}. Name the right one with lr_attr=…."
        )
    return names


def step_attribute(
    optimizer: V1Optimizer, global_step_attr: Optional[str] = None, excluded: Collection[str] = ()
) -> Optional[str]:
    """Returns the name of the attribute that contains the global step, or None.

    The attributes `excluded` are known not to be the global step. Raises a ValueError if there is
    no attribute `global_step_attr`, or if one looks like a global step, but has an unknown name.
    """
    state = vars(optimizer)
    name = type(optimizer).__name__
    if global_step_attr is not None:
        if global_step_attr not in state:
            raise ValueError(
                f"global_step_attr={global_step_attr!r}: {name} has no such attribute."
            )
        return global_step_attr
    for key, value in state.items():
        if key == STEP_ATTRIBUTE or key in excluded or key in _BASE_ATTRIBUTES:
            continue
        if STEP_ATTRIBUTE in state and isinstance(value, tf.Tensor):
            continue  # the global step as a tensor, which an earlier call of _prepare assigned
        is_count = isinstance(value, numbers.Integral) and not isinstance(value, bool)
        if _is_integer_scalar(value) or ("global_step" in key and is_count):
            raise ValueError(
                f"{name}.{key} looks like a global step, but it is not known whether it is one. "
                f"If it is, pass global_step_attr={key!r}; if not, make it a plain number."
            )
    return STEP_ATTRIBUTE if STEP_ATTRIBUTE in state else None


def integer_variables(optimizer: V1Optimizer) -> Tuple[str, ...]:
    """Returns the names of the attributes that are integer scalar variables, like a global step."""
    return tuple(
        name
        for name, value in vars(optimizer).items()
        if isinstance(value, tf.Variable) and _is_integer_scalar(value)
    )


def _is_integer_scalar(value: Any) -> bool:
    if not isinstance(value, (tf.Variable, tf.Tensor)):
        return False
    return value.dtype.base_dtype.is_integer and value.shape.rank in (None, 0)


def hyperparameters(
    optimizer: V1Optimizer, set_in_each_step: Mapping[str, DType]
) -> Dict[str, Any]:
    """Returns a dict of the hyperparameters that can be set while training, by their arguments.

    These are the numbers that `_prepare` reads from attributes `_<argument>`, with two exceptions:
    numbers that `_prepare` compares or computes with in Python, and numbers that an update method
    reads. An update method runs only when the graph is built, so a later change of the number would
    have no effect. The update methods of Ftrl, for example, choose the kernel by the L2 shrinkage.

    `set_in_each_step` has the attributes that `to_keras` sets in each step, and their dtypes.
    """
    reads = _reads_of_prepare(optimizer, set_in_each_step)
    reads -= _names_in_update_methods(type(optimizer)) | set(set_in_each_step)
    reads &= {"_" + name for name in constructor_arguments(type(optimizer))}
    return {
        key[1:]: value
        for key, value in vars(optimizer).items()
        if key in reads and isinstance(value, numbers.Real) and not isinstance(value, bool)
    }


def constructor_arguments(cls: type) -> Set[str]:
    """Returns the names of the constructor arguments of a class and its base classes."""
    names = set()
    for ancestor in cls.__mro__[: cls.__mro__.index(BASE)]:
        if "__init__" in vars(ancestor):
            names.update(parameters_of(ancestor))
    return names


def parameters_of(cls: type) -> Dict[str, inspect.Parameter]:
    """Returns the parameters of a class' constructor, without the instance: a dict by name."""
    parameters = inspect.signature(cls.__init__).parameters
    return dict(list(parameters.items())[1:])


def missing_arguments(optimizer: KerasOptimizer, config: Collection[str]) -> Iterator[str]:
    """Yields the names of arguments, except those with default values, that a config lacks."""
    state = vars(optimizer)
    for name, parameter in parameters_of(type(optimizer)).items():
        is_starred = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if is_starred or name in config or name in _WITHOUT_EFFECT:
            continue
        value = state.get(name, state.get(f"_{name}", _UNKNOWN))
        if type(value) is not type(parameter.default) or value != parameter.default:
            yield name


class _Watched(float):
    """A number that calls `note` when Python compares it, or combines it with another number."""

    note = None


def _watch(operation: Callable) -> Callable:
    def watched(self: _Watched, *others: Any) -> Any:
        if all(isinstance(other, numbers.Real) for other in others):
            self.note()
        return operation(self, *others)

    return watched


_OPERATIONS = (
    "add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow neg pos abs "
    "lt le gt ge eq ne bool"
)
for _name in _OPERATIONS.split():
    setattr(_Watched, f"__{_name}__", _watch(getattr(float, f"__{_name}__")))
_Watched.__hash__ = float.__hash__


def _any_number(*_: Any, **__: Any) -> float:
    return 0.5


def _reads_of_prepare(optimizer: V1Optimizer, set_in_each_step: Mapping[str, DType]) -> Set[str]:
    """Returns the attributes that `_prepare` reads, without numbers used in Python computations."""
    reads, computed = set(), set()  # names of attributes

    class NotesReads(type(optimizer)):
        def __getattribute__(self, name: str) -> Any:
            reads.add(name)
            return super().__getattribute__(name)

    reader = object.__new__(NotesReads)
    arguments = {"_" + name for name in constructor_arguments(type(optimizer))}
    for name, value in vars(optimizer).items():
        if name in arguments and argument_checks.is_function(value):
            value = _any_number  # a user's function may have side effects or use another graph
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            value = _Watched(value)
            value.note = functools.partial(computed.add, name)
        vars(reader)[name] = copied(value)
    with tf.Graph().as_default():
        for name, dtype in set_in_each_step.items():
            vars(reader)[name] = tf.zeros([], dtype)
        # `_prepare` may need a training, and fail: `reads` then has the reads before the error.
        with contextlib.suppress(Exception):
            reads.clear()
            reader._prepare()
    return reads - computed


# Methods that run before the updates, or describe the optimizer. They are not update methods.
_PREPARING = ("__init__", "_prepare", "_create_slots", "slot_layouts", "non_slots", "get_config")


def _names_in_update_methods(cls: type) -> Set[str]:
    """Returns all names in the bytecode of a class's update methods."""
    names = set()
    for ancestor in cls.__mro__[: cls.__mro__.index(BASE)]:
        for name, method in vars(ancestor).items():
            for function in (
                inspect.unwrap(method),
                getattr(method, "fget", None),  # of a property
                getattr(method, "__func__", None),  # of a class method or static method
            ):
                if name in _PREPARING or not hasattr(function, "__code__"):
                    continue
                codes = [function.__code__]
                while codes:
                    code = codes.pop()
                    names.update(code.co_names)
                    codes.extend(item for item in code.co_consts if isinstance(item, type(code)))
    return names


def attributes(optimizer: V1Optimizer) -> Iterator[Tuple[str, Any]]:
    """Yields (name, value) of each attribute that `BASE` lacks; a pair per item of a container."""
    for attribute, value in vars(optimizer).items():
        if attribute not in _BASE_ATTRIBUTES:
            if isinstance(value, dict):
                value = list(value.values())
            if not isinstance(value, (list, tuple)):
                value = [value]
            for item in value:
                yield attribute, item
