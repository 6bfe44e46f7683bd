"""Functions of the step that can be saved: they know their arguments, and their optimizers too."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar, Dict, Mapping, Tuple, Type

from legacy_opt.core import argument_checks
from legacy_opt.core.types import Self


class StepFunction:
    """A function of the global step whose attributes are its arguments.

    A subclass defines `kind`, what it is called in a configuration, `maker`, the name of the public
    function that makes it, and `__call__(step)`.
    """

    kind = None
    maker = None

    def __repr__(self):
        arguments = ", ".join("{}={!r}".format(*item) for item in vars(self).items())
        return f"{self.maker}({arguments})"


class SavesStepFunctions:
    """An optimizer whose configuration tells its step functions; mixed in before its base.

    A subclass defines `step_functions`, a dict from the name of an argument to the `StepFunction`
    classes that it may be of.
    """

    step_functions: ClassVar[Dict[str, Tuple[Type[StepFunction], ...]]] = {}

    def get_config(self) -> Dict[str, Any]:
        """Returns the constructor's arguments as plain data.

        Raises:
          ValueError: one of them is a function of the user's own.
        """
        names = list(inspect.signature(type(self).__init__).parameters)[1:]
        config = {name: getattr(self, "_" + name) for name in names}
        for name, classes in self.step_functions.items():
            if name in config and name not in self._hyperparameter_names:
                config[name] = _to_config(name, config[name], classes)
        return config

    @classmethod
    def from_config(cls: Type[Self], config: Mapping[str, Any]) -> Self:
        """Returns the optimizer that `get_config` described."""
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
    makers = [each.maker for each in classes]
    raise ValueError(
        f"{name}={function!r} is a function of your own, which is no plain data. To save the "
        f"optimizer, use one of {', '.join(makers[:-1])} and {makers[-1]} of legacy_opt; or "
        "write a subclass whose constructor takes plain arguments, keeps each as "
        "self._<argument>, and makes the function of them."
    )
