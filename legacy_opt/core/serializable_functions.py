"""Saves functions of the global step in an optimizer's configuration."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar, Dict, Mapping, Tuple, Type

from legacy_opt.core import argument_checks
from legacy_opt.core.types import Self


class StepFunction:
    """A function of the global step. Its attributes are the arguments of its constructor.

    A subclass defines `__call__(step)`, `kind` and `public_name`.
    """

    kind = None  # the name of the subclass in a configuration
    public_name = None  # the name of the public function that creates instances

    def __repr__(self):
        arguments = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{self.public_name}({arguments})"


class SavesStepFunctions:
    """Mixin that saves an optimizer's functions of the global step; list it before other bases.

    The constructor of the optimizer stores each argument as ``self._<argument>``. Arguments that
    are instances of the classes in `step_functions`, listed by argument, can be saved.
    """

    step_functions: ClassVar[Dict[str, Tuple[Type[StepFunction], ...]]] = {}

    def get_config(self) -> Dict[str, Any]:
        """Returns a dict of the constructor's arguments; a `StepFunction` is converted to a dict.

        Raises:
          ValueError: an argument is another function of the global step than `step_functions` list.
        """
        names = list(inspect.signature(type(self).__init__).parameters)[1:]
        config = {name: getattr(self, "_" + name) for name in names}
        for name, classes in self.step_functions.items():
            takes_no_step = name in self._hyperparameter_names  # is a number, or returns one
            if name in config and not takes_no_step:
                config[name] = _to_config(name, config[name], classes)
        return config

    @classmethod
    def from_config(cls: Type[Self], config: Mapping[str, Any]) -> Self:
        """Creates an optimizer from the result of `get_config`."""
        config = dict(config)
        for name, classes in cls.step_functions.items():
            if isinstance(config.get(name), dict):
                arguments = dict(config[name])
                kind = arguments.pop("kind")
                class_of_kind = {each.kind: each for each in classes}[kind]
                config[name] = class_of_kind(**arguments)
        return cls(**config)


def _to_config(name: str, value: Any, classes: Any) -> Any:
    if isinstance(value, classes):
        return dict(vars(value), kind=value.kind)
    if not argument_checks.is_function(value):
        return value
    public_names = " or ".join(each.public_name for each in classes)
    raise ValueError(
        f"{name}={value!r} is a function that cannot be saved. To save the optimizer, use "
        f"{public_names} of legacy_opt; or write a subclass of the optimizer whose constructor "
        "takes numbers and strings, keeps each as self._<argument>, and creates the function from "
        "them."
    )
