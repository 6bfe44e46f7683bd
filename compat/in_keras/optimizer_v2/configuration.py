"""Writes an OptimizerV2 as plain data, and makes it again from these data."""

from __future__ import annotations

from typing import Any, Dict, Iterator, Optional

from legacy_opt import versions
from legacy_opt.core.types import KerasOptimizer

from ..keras_adapters import KERAS_2
from ..v1_optimizers import inspection

_MADE_BY_KERAS_3 = ("__numpy__", "__tensor__", "__tuple__", "function")
_REGISTER = "@keras.saving.register_keras_serializable()"


def configuration_of(optimizer: KerasOptimizer) -> Dict[str, Any]:
    """Returns the class name and configuration of an OptimizerV2, or raises a ValueError."""
    cls = type(optimizer)
    config = dict(optimizer.get_config())
    for name in inspection.missing_arguments(optimizer, config):  # the first is reported
        raise ValueError(
            f"{cls.__name__} cannot be saved: its get_config does not include the argument {name}. "
            "Return all arguments of the constructor from get_config."
        )
    name = _registered_name(cls)
    for each in versions.with_wrapped(optimizer):
        is_outer = each is optimizer
        KERAS_2.check_saves(each, config if is_outer else each.get_config())
        own_name = name if is_outer else versions.keras_2().utils.get_registered_name(type(each))
        if _class_named(own_name, custom_objects=None) not in (type(each), None):
            raise ValueError(
                f"{own_name} cannot be saved: another class of that name would be loaded. Register "
                f"your class with {_REGISTER}, or give it another name."
            )
    for nested_name in _class_names(config):
        _nested_class(nested_name, custom_objects=None)  # raises an error for an ambiguous name
    return {"class_name": name, "config": config}


def optimizer_from(
    data: Dict[str, Any], custom_objects: Optional[Dict[str, Any]]
) -> KerasOptimizer:
    """Returns a new OptimizerV2 from the data that `configuration_of` has returned."""
    cls = _class_named(data["class_name"], custom_objects)
    if cls is None:
        raise ValueError(
            f"The saved OptimizerV2 class {data['class_name']!r} is not registered. Register the "
            f"class before loading, with {_REGISTER}, or pass "
            f"custom_objects={{{data['class_name']!r}: the_class}}."
        )
    # Schedules and wrapped optimizers in the configuration are made by Keras 2, which does not know
    # the classes that are registered in Keras 3.
    known = {name: _nested_class(name, custom_objects) for name in _class_names(data["config"])}
    known = {name: each for name, each in known.items() if each is not None}
    with versions.keras_2().utils.custom_object_scope(known):
        return cls.from_config({name: _restored(each) for name, each in data["config"].items()})


def _restored(value: Any) -> Any:
    """Makes arrays, tuples and functions from the dicts that Keras 3 has saved instead of them."""
    if isinstance(value, list):
        return [_restored(each) for each in value]
    if not isinstance(value, dict):
        return value
    if value.get("class_name") in _MADE_BY_KERAS_3:
        return versions.keras_3().saving.deserialize_keras_object(value)
    return {name: _restored(each) for name, each in value.items()}


def _class_names(config: Any) -> Iterator[str]:
    """Yields the names of the classes in a configuration."""
    if isinstance(config, dict):
        yield from (config[key] for key in ("class_name", "registered_name") if config.get(key))
        config = list(config.values())
    if isinstance(config, (list, tuple)):
        for each in config:
            yield from _class_names(each)


def _nested_class(name: str, custom_objects: Optional[Dict[str, Any]]) -> Any:
    """Returns a class registered in Keras 3 by its name, which may lack the package; or None."""
    saving = versions.keras_3().saving
    found = saving.get_registered_object(name, custom_objects)
    if found is not None or hasattr(versions.keras_2().optimizers.schedules, name):
        return found
    if _class_named(name, custom_objects=None) is not None:
        return None
    known = {*saving.get_custom_objects().values(), *(custom_objects or {}).values()}
    named = [each for each in known if getattr(each, "__name__", None) == name]
    if len(named) > 1:
        raise ValueError(f"Several classes named {name} are registered in Keras 3. Rename them.")
    return named[0] if named else None


def _class_named(name: str, custom_objects: Optional[Dict[str, Any]]) -> Optional[type]:
    found = [
        versions.keras_3().saving.get_registered_object(name, custom_objects),
        versions.keras_2().utils.get_registered_object(name, custom_objects),
        getattr(KERAS_2.optimizers, name, None),
    ]
    return next((each for each in found if versions.api_of(each) == "optimizer_v2"), None)


def _registered_name(cls: type) -> str:
    """Returns the name under which a class is registered in Keras 3 or 2, or its own name."""
    for home in (versions.keras_3().saving, versions.keras_2().utils):
        if home.get_registered_object(home.get_registered_name(cls)) is cls:
            return home.get_registered_name(cls)
    return cls.__name__


def hyperparameter(name: str, value: Any) -> Any:
    """Returns a value that was set in Keras 3, in a form that an OptimizerV2 takes."""
    value = versions.tf_variable(value)
    keras_2 = versions.keras_2()
    schedules = keras_2.optimizers.schedules
    if not hasattr(value, "get_config") or isinstance(value, schedules.LearningRateSchedule):
        return value
    cls = getattr(schedules, type(value).__name__, None)
    if cls is None or not type(value).__module__.startswith("keras."):
        raise TypeError(
            f"{name}={value!r} is a schedule of Keras 3 that Keras 2 does not have. Pass one of "
            f"{keras_2.__name__}.optimizers.schedules."
        )
    return cls.from_config(value.get_config())
