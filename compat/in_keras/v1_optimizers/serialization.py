"""Converts v1 optimizers to plain data (numbers, strings, lists and dicts) and back.

A saved file can only name classes of TensorFlow, classes of this package, and classes registered
with `register_optimizer`. Therefore reading a file never imports code.
"""

from __future__ import annotations

import inspect
import numbers
from types import ModuleType
from typing import Any, Callable, Collection, Dict, List, Mapping, Optional, Type, Union, overload

import numpy as np
import tensorflow as tf

import legacy_opt
from legacy_opt.core import argument_checks
from legacy_opt.core.types import OptimizerClass, V1Optimizer
from legacy_opt.optimizers import decay_of_contrib, decoupled_weight_decay
from legacy_opt.wrappers.base import OptimizerWrapper

from .inspection import BASE, parameters_of

Configuration = Dict[str, Any]
_registered = {}  # name -> class
# The constructor of a wrapper takes the nested optimizer under one of these argument names.
_NESTED_ARGUMENTS = ("optimizer", "opt")
# Prefix of classes of tf.contrib.opt and of `decay_of_contrib` in saved configurations. It
# distinguishes these classes from the public classes of this package that have the same names.
_CONTRIB = "contrib.opt>"
_EXTEND = {  # {end of a class name: the function that makes classes with such names}
    module.DecoupledWeightDecayExtension._suffix: module.extend_with_decoupled_weight_decay
    for module in (decoupled_weight_decay, decay_of_contrib)
}


@overload
def register_optimizer(cls: OptimizerClass, name: Optional[str] = None) -> OptimizerClass: ...


@overload
def register_optimizer(
    cls: None = None, name: Optional[str] = None
) -> Callable[[OptimizerClass], OptimizerClass]: ...


def register_optimizer(
    cls: Optional[OptimizerClass] = None, name: Optional[str] = None
) -> Union[OptimizerClass, Callable[[OptimizerClass], OptimizerClass]]:
    """Registers your own v1 optimizer class, so that saved models can name it.

    Can also be used as a decorator: ``@register_optimizer`` or
    ``@register_optimizer(name="acme>Sgd")``. When an optimizer is saved, the arguments of its
    constructor are read from its attributes `_<argument>` (or `<argument>`). TensorFlow's own
    classes have such attributes. A class that stores its arguments in attributes with other names
    needs a method ``get_config(self)``, which returns the constructor's arguments as plain numbers,
    strings, lists and dicts. If calling the class with these arguments is not enough, the class
    also needs a class method ``from_config(cls, config)``.

    Args:
      cls: the class.
      name: the name that saved models contain; None means the name of the class.

    Returns:
      The class; if `cls` is None, a decorator that returns the class.

    Raises:
      TypeError: `cls` is not a subclass of tf.compat.v1.train.Optimizer.
      ValueError: another class has that name.
    """
    if cls is None:
        return lambda cls: register_optimizer(cls, name)
    if not (isinstance(cls, type) and issubclass(cls, BASE)):
        raise TypeError(
            f"register_optimizer takes a subclass of tf.compat.v1.train.Optimizer, got {cls!r}."
        )
    name = cls.__name__ if name is None else name
    registered = _find(name)
    # The same class may be registered twice: a notebook cell that runs twice defines it again.
    if registered is not None and _origin(registered) != _origin(cls):
        raise ValueError(
            f"{name!r} is the name of {registered!r} already: pass another name=… for {cls!r}."
        )
    _registered[name] = cls
    return cls


def _origin(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def _find(name: str) -> Optional[Type[V1Optimizer]]:
    """Returns the class that is saved under a name, or None."""
    if name in _registered:
        return _registered[name]
    for suffix, extend in _EXTEND.items():
        if name.endswith(suffix):
            base = _find(name[: -len(suffix)])
            return None if base is None else extend(base)
    modules = _homes()
    if name.startswith(_CONTRIB):
        modules.reverse()
        name = name[len(_CONTRIB) :]
    for module in modules:
        cls = getattr(module, name, None)
        if isinstance(cls, type) and issubclass(cls, BASE):
            return cls
    return None


def _homes() -> List[ModuleType]:
    """Returns the modules whose classes need no registration."""
    contrib = [tf.contrib.opt] if legacy_opt.versions.has_contrib() else []
    return [legacy_opt, tf.compat.v1.train, decay_of_contrib] + contrib


def name_of(cls: Type[V1Optimizer]) -> str:
    """Returns the name under which `cls` is saved; registers a user's class."""
    for name, known in _registered.items():
        if known is cls:
            return name
    if "base_optimizer" in vars(cls):  # made by extend_with_decoupled_weight_decay
        return name_of(cls.base_optimizer) + cls._suffix
    if cls.__module__ == decay_of_contrib.__name__:
        return _CONTRIB + cls.__name__
    if _find(cls.__name__) is not cls:
        if _find(_CONTRIB + cls.__name__) is cls:
            return _CONTRIB + cls.__name__
        register_optimizer(cls)
    return cls.__name__


def to_config(
    optimizer: V1Optimizer,
    cls: Type[V1Optimizer],
    overrides: Mapping[str, Any],
    skip: Collection[str],
    nested_config: Optional[Callable[[V1Optimizer], Configuration]] = None,
) -> Configuration:
    """Returns a v1 optimizer as plain data, or raises a ValueError if that is impossible.

    `cls` is the class to save; for a copy that `to_keras` has made, that of the v1 optimizer.
    `overrides` has values of arguments that replace those in the attributes, unless the constructor
    lacks them. The arguments of the attributes `skip`, such as `_global_step`, are omitted.
    `nested_config` returns a nested optimizer as plain data.
    """
    if hasattr(cls, "get_config"):
        arguments = dict(cls.get_config(optimizer))
    else:
        omitted = {*overrides, *(attribute.lstrip("_") for attribute in skip)}
        arguments = _arguments(optimizer, cls, omitted)
    arguments.update({key: value for key, value in overrides.items() if key in parameters_of(cls)})

    def plain(value: Any, argument: str) -> Any:
        if nested_config is not None and isinstance(value, BASE):
            return nested_config(value)
        if isinstance(value, (list, tuple)) and any(isinstance(item, BASE) for item in value):
            return [plain(item, argument) for item in value]
        return _plain(value, argument, cls)

    config = {key: plain(value, key) for key, value in arguments.items()}
    return {"class_name": name_of(cls), "config": config}


def from_config(data: Configuration) -> V1Optimizer:
    """Returns a new v1 optimizer; the reverse of `to_config`."""
    cls = _find(data["class_name"])
    if cls is None:
        raise ValueError(
            f"The saved optimizer's class {data['class_name']!r} is not registered. "
            "Import its class, and call legacy_opt.compat.register_optimizer(the_class, "
            f"name={data['class_name']!r}) before loading."
        )
    # Ignore an argument that this version of the class lacks if it was off when it was saved.
    parameters = parameters_of(cls)
    arguments = {
        key: _with_optimizers(value)
        for key, value in data["config"].items()
        if value or key in parameters
    }
    if hasattr(cls, "from_config"):
        return cls.from_config(arguments)
    # Pass None for required arguments that were not saved, such as the global step.
    for name, parameter in parameters.items():
        if name not in arguments and parameter.default is inspect.Parameter.empty:
            arguments[name] = None
    return cls(**arguments)


def _with_optimizers(value: Any) -> Any:
    """Returns an argument in which optimizers saved as plain data are replaced by objects."""
    if isinstance(value, dict) and set(value) == {"class_name", "config"}:
        return from_config(value)
    return [_with_optimizers(item) for item in value] if isinstance(value, list) else value


def _arguments(
    optimizer: V1Optimizer, cls: Type[V1Optimizer], omitted: Collection[str]
) -> Dict[str, Any]:
    """Returns the constructor's arguments, except `omitted`, with the values in the attributes."""
    state = vars(optimizer)
    arguments = {}
    for name, parameter in parameters_of(cls).items():
        if name in omitted:
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise ValueError(_CANNOT_READ % (cls.__name__, "*" + name, cls.__name__))
        if name in _NESTED_ARGUMENTS and issubclass(cls, OptimizerWrapper):
            (inner,) = optimizer.wrapped
            arguments[name] = inner
            continue
        attribute = next((each for each in ("_" + name, name) if each in state), None)
        if attribute is None:
            raise ValueError(_CANNOT_READ % (cls.__name__, name, cls.__name__))
        value = state[attribute]
        is_default = type(value) is type(parameter.default) and value == parameter.default
        # Omit an option that is off, because other versions of the class may lack it.
        if not is_default or value:
            arguments[name] = value
    return arguments


_CANNOT_READ = (
    "%s cannot be saved: its constructor's argument %s is in no attribute of that name. Give %s a "
    "method get_config(self) that returns its arguments."
)


def _plain(value: Any, argument: str, cls: Type[V1Optimizer]) -> Any:
    """Converts `value` to a type that JSON can represent."""
    if isinstance(value, (np.bool_, np.integer, np.floating)):
        return value.item()
    if value is None or isinstance(value, (bool, str, numbers.Real)):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(item, argument, cls) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _plain(item, argument, cls) for key, item in value.items()}
    has_number = argument_checks.is_function(value) or argument_checks.is_tensor_like(value)
    raise ValueError(
        f"{cls.__name__} cannot be saved or translated: its argument {argument} is {value!r}, "
        "which is not plain data. Give your own class a method get_config(self) that returns its "
        f"arguments as numbers, strings, lists and dicts.{_OR_A_NUMBER if has_number else ''}"
    )


_OR_A_NUMBER = (
    " Or pass a number. Or save weights and state without the settings: tf.train.Checkpoint, "
    "model.save_weights, legacy_opt.compat.save_v1_checkpoint."
)
