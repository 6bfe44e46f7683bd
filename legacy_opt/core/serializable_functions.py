"""Saves functions of the global step in an optimizer's configuration."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar, Dict, Mapping, Tuple, Type

from legacy_opt.core import argument_checks
from legacy_opt.core.types import Self


class StepFunction:
    """A function of the global step that stores its parameters as attributes.

    A subclass defines `__call__(step)`, and two attributes: `kind` is the name of the subclass in a
    configuration, and `maker` is the name of the public function that creates instances.
    """

    kind = None
    maker = None

    def __repr__(self):
        arguments = ", ".join("{}={!r}".format(*item) for item in vars(self).items())
        return f"{self.maker}({arguments})"


class SavesStepFunctions:
    """Mixin that saves an optimizer's functions of the global step.

    List the mixin before the optimizer's other base class. The optimizer's class defines
    `step_functions`, a dict from the name of a constructor argument to a tuple of `StepFunction`
    classes. Arguments that are instances of these classes can be saved.
    """

    step_functions: ClassVar[Dict[str, Tuple[Type[StepFunction], ...]]] = {}

    def get_config(self) -> Dict[str, Any]:
        """Returns a dict of the constructor's arguments; a `StepFunction` is converted to a dict.

        Raises:
          ValueError: an argument is a function of the global step, but not an instance of a class
            in `step_functions`.
        """
        names = list(inspect.signature(type(self).__init__).parameters)[1:]
        config = {name: getattr(self, "_" + name) for name in names}
        for name, classes in self.step_functions.items():
            if name in config and name not in self._hyperparameter_names:
                config[name] = _to_config(name, config[name], classes)
        return config

    @classmethod
    def from_config(cls: Type[Self], config: Mapping[str, Any]) -> Self:
        """Creates an optimizer from the result of `get_config`."""
        config = dict(config)
        for name, classes in cls.step_functions.items():
            if isinstance(config.get(name), dict):
                arguments = dict(config[name])
                kinds = {each.kind: each for each in classes}
                config[name] = kinds[arguments.pop("kind")](**arguments)
        return cls(**config)


def _to_config(name, function, classes):
    if isinstance(function, classes):
        return dict(vars(function), kind=function.kind)
    if not callable(function) or argument_checks.is_tensor_like(function):
        return function
    makers = " or ".join(each.maker for each in classes)
    raise ValueError(
        f"{name}={function!r} is a function that cannot be saved. To save the "
        f"optimizer, use {makers} of legacy_opt; or "
        "write a subclass of the optimizer whose constructor takes numbers and strings, keeps each "
        "as self._<argument>, and creates the function from them."
    )
