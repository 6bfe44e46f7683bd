"""The hyperparameters and the buckets of `tf.contrib.training`."""

from __future__ import annotations

import json
import numbers
import re
from typing import Any, Dict, Mapping, Optional, Tuple

from legacy_opt.core.nearest_names import did_you_mean

from .training_buckets import bucket_by_sequence_length

__all__ = ["HParams", "bucket_by_sequence_length", "parse_values"]

# name=value, name=[value,value] or name[index]=value; a comma or the end of the text follows.
_ASSIGNMENT = re.compile(
    r"(?P<name>[a-zA-Z][\w.]*)(?:\[\s*(?P<index>\d+)\s*\])?\s*=\s*"
    r"(?:(?P<scalar>[^,\[]*)|\[(?P<elements>[^\]]*)\])(?:$|,\s*)"
)


class HParams:
    """Hyperparameters, as attributes with fixed types.

    The type of a hyperparameter is that of its first value: int, float, bool, str, or a list of one
    of these types. Values that do not fit raise a ValueError.

    Args:
      hparam_def: must be None: the protocol buffer HParamDef was part of `tf.contrib`.
      model_structure: any object, for `get_model_structure`.
      **kwargs: names and values.
    """

    def __init__(
        self, hparam_def: None = None, model_structure: Optional[Any] = None, **kwargs: Any
    ) -> None:
        if hparam_def:
            raise ValueError(
                "hparam_def must be None, because only tf.contrib has the protocol buffer "
                f"HParamDef. Pass names and values. Got: {hparam_def!r}"
            )
        self._hparam_types: Dict[str, Tuple[type, bool]] = {}  # name: (type, whether it is a list)
        self._model_structure = model_structure
        for name, value in kwargs.items():
            self.add_hparam(name, value)

    def add_hparam(self, name: str, value: Any) -> None:
        """Adds a hyperparameter."""
        if getattr(self, name, None) is not None:
            raise ValueError(f"Hyperparameter name is reserved: {name}")
        is_list = isinstance(value, (list, tuple))
        if is_list and not value:
            raise ValueError(f"Multi-valued hyperparameters cannot be empty: {name}")
        self._hparam_types[name] = (type(value[0] if is_list else value), is_list)
        setattr(self, name, value)

    def set_hparam(self, name: str, value: Any) -> None:
        """Sets a hyperparameter to a value, which is converted to its type if nothing is lost."""
        if name not in self._hparam_types:
            raise KeyError(f"{name}: no such hyperparameter.{did_you_mean(name, self.values())}")
        kind, is_list = self._hparam_types[name]
        if isinstance(value, list):
            if not is_list:
                raise ValueError(f"Must not pass a list for single-valued parameter: {name}")
            setattr(self, name, [_converted(name, kind, each) for each in value])
        elif is_list:
            raise ValueError(f"Must pass a list for multi-valued parameter: {name}.")
        else:
            setattr(self, name, _converted(name, kind, value))

    def del_hparam(self, name: str) -> None:
        """Removes a hyperparameter, if it exists."""
        if hasattr(self, name):
            delattr(self, name)
            del self._hparam_types[name]

    def parse(self, values: str) -> HParams:
        """Sets hyperparameters from a string such as "rate=0.1,units=[64,32]"; returns this object.

        `parse_values` reads the string. Assignments to single elements ("units[0]=64") are refused.
        """
        types = {name: kind for name, (kind, _) in self._hparam_types.items()}
        return self.override_from_dict(parse_values(values, types))

    def parse_json(self, values_json: str) -> HParams:
        """Sets hyperparameters from a JSON object, and returns this object."""
        return self.override_from_dict(json.loads(values_json))

    def override_from_dict(self, values_dict: Mapping[str, Any]) -> HParams:
        """Sets hyperparameters from a dict, and returns this object."""
        for name, value in values_dict.items():
            self.set_hparam(name, value)
        return self

    def set_from_map(self, values_map: Mapping[str, Any]) -> HParams:
        """The old name of `override_from_dict`."""
        return self.override_from_dict(values_map)

    def set_model_structure(self, model_structure: Any) -> None:
        """Sets the object that `get_model_structure` returns."""
        self._model_structure = model_structure

    def get_model_structure(self) -> Any:
        """Returns the object that was passed to the constructor or `set_model_structure`."""
        return self._model_structure

    def values(self) -> Dict[str, Any]:
        """Returns the hyperparameters as a dict."""
        return {name: getattr(self, name) for name in self._hparam_types}

    def to_json(
        self,
        indent: Optional[Any] = None,
        separators: Optional[Any] = None,
        sort_keys: bool = False,
    ) -> str:
        """Returns the hyperparameters as a JSON object; the arguments are those of `json.dumps`."""
        return json.dumps(self.values(), indent=indent, separators=separators, sort_keys=sort_keys)

    def get(self, key: str, default: Optional[Any] = None) -> Any:
        """Returns a hyperparameter, or `default` if it does not exist.

        A default that is not None must have the type of the hyperparameter.
        """
        if key not in self._hparam_types:
            return default
        if default is not None:
            kind, is_list = self._hparam_types[key]
            title = f"list<{kind}>" if is_list else str(kind)
            message = f"Hparam '{key}' of type '{title}' is incompatible with default={default}"
            if is_list != isinstance(default, list):
                raise ValueError(message)
            try:
                for value in default if is_list else [default]:
                    _converted(key, kind, value)
            except ValueError as error:
                raise ValueError(f"{message}. {error}") from error
        return getattr(self, key)

    def __contains__(self, key: str) -> bool:
        return key in self._hparam_types

    def __str__(self) -> str:
        return ",".join(f"{name}={value}" for name, value in self.values().items())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({sorted(self.values().items())})"


def parse_values(
    values: str, type_map: Mapping[str, type], ignore_unknown: bool = False
) -> Dict[str, Any]:
    """Reads assignments: "rate=0.1,units=[64,32],rates[1]=0.5".

    Args:
      values: assignments, separated by commas.
      type_map: {name: type of the value, or of its elements if it is a list}.
      ignore_unknown: whether to leave out names that `type_map` lacks.

    Returns:
      {name: value}, where a value may be a list; {name: {index: value}} for "name[index]=value".
    """
    results: Dict[Any, Any] = {}
    position = 0
    while position < len(values):
        match = _ASSIGNMENT.match(values, position)
        if match is None:
            raise ValueError(f"Malformed hyperparameter value: {values[position:]}")
        position = match.end()
        name, index, scalar, elements = match.group("name", "index", "scalar", "elements")
        if name in type_map:
            value = _parsed(name, type_map[name], index, scalar, elements, values)
            title = name
            if index is None:
                target, key = results, name
            else:
                target, key = results.setdefault(name, {}), int(index)
                if isinstance(target, dict):
                    title = f"{name}[{key}]"
            # The target is no dict if "name=value" precedes "name[index]=value".
            if not isinstance(target, dict) or key in target:
                raise ValueError(f"Multiple assignments to variable '{title}' in {values}")
            target[key] = value
        elif not ignore_unknown:
            raise ValueError(f"Unknown hyperparameter type for {name}")
    return results


def _parsed(
    name: str, kind: type, index: Optional[str], scalar: Optional[str], elements: Any, values: Any
) -> Any:
    """Returns the value of an assignment in the text `values`: a list if `scalar` is None."""
    if scalar is None and index is not None:
        raise ValueError("Assignment of a list to a list index.")
    convert = _bool if kind is bool else kind
    try:
        if scalar is not None:
            return convert(scalar)
        return [convert(each) for each in re.split("[ ,]", elements) if each]
    except ValueError:
        text = elements if scalar is None else scalar
        raise ValueError(
            f"Could not parse hparam '{name}' of type '{kind.__name__}' with value '{text}' "
            f"in {values}"
        ) from None


def _bool(text: str) -> bool:
    words = {"true": True, "True": True, "false": False, "False": False}
    return words[text] if text in words else bool(int(text))


def _converted(name: str, kind: type, value: Any) -> Any:
    """Returns `value` as an instance of the class `kind`, if nothing is lost."""
    if kind in (type(None), type(value)):  # if the first value was None, any value fits
        return value
    if not _fits(kind, value):
        raise ValueError(f"Could not cast hparam '{name}' of type '{kind}' from value {value!r}")
    return kind(value)


def _fits(kind: type, value: Any) -> bool:
    if issubclass(kind, bool) != isinstance(value, bool):  # a bool would count as an integer
        return False
    # An integer fits a float, but a float does not fit an integer.
    groups = (str, bytes), numbers.Integral, numbers.Number
    return all(isinstance(value, group) or not issubclass(kind, group) for group in groups)
