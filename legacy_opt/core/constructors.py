"""Checks calls of constructors: the arguments, and whether subclasses call `super().__init__`."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, Callable, ClassVar, Dict

from legacy_opt.core.nearest_names import did_you_mean

# {an argument's name in other classes: the name to suggest}. Similar names need no entry.
_SYNONYMS = {"lr": "learning_rate", "rho": "decay", "opt": "optimizer", "optimizer": "opt"}


class CheckedConstructors:
    """Base class of optimizers that checks all calls of its subclasses' constructors.

    For wrong arguments, Python's own error names the class that defines the constructor, which may
    be a base class that the user does not know. This class raises a TypeError that names the class
    that was called, its arguments, and the argument that may have been meant.
    """

    # The attribute that tells that a class's own constructor has run; "" if it has no constructor.
    _set_by_constructor: ClassVar[str] = ""

    if TYPE_CHECKING:  # subclasses have another base class, whose constructor takes arguments

        def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        init = vars(cls).get("__init__")
        # A decorated constructor is not checked, because it may take other arguments.
        if inspect.isfunction(init) and not hasattr(init, "__wrapped__"):
            cls.__init__ = checked(init)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__"):
            _check_that_base_classes_are_constructed(self)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def checked(init: Callable[..., None]) -> Callable[..., None]:
    """Returns a constructor that checks its call (see `CheckedConstructors`), then calls `init`."""
    signature = inspect.signature(init)

    @functools.wraps(init)
    def constructor(*args: Any, **kwargs: Any) -> None:
        cls = type(args[0])
        caller = cls.__name__
        if cls.__init__ is not constructor:  # a subclass has called this constructor
            caller = f"super().__init__ of {caller}"
        _check_arguments(caller, signature, args, kwargs)
        return init(*args, **kwargs)

    vars(constructor)["__signature__"] = signature  # for inspect.getfullargspec
    return constructor


def _check_arguments(caller: str, signature: inspect.Signature, args: Any, kwargs: Dict[str, Any]):
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        parameters = list(signature.parameters.values())[1:]  # without `self`
        variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        known = [each.name for each in parameters if each.kind not in variadic]
        takes_any_keyword = any(each.kind == each.VAR_KEYWORD for each in parameters)
        unknown = [name for name in kwargs if name not in known]
        problem = error
        hint = ""
        if unknown and not takes_any_keyword:
            problem = f"got an unexpected keyword argument {unknown[0]!r}"
            synonym = _SYNONYMS.get(unknown[0])
            similar_to = synonym if synonym in known else unknown[0]
            hint = did_you_mean(similar_to, known)
        arguments = f"The arguments are {', '.join(known)}." if known else "It has no arguments."
        raise TypeError(f"{caller}: {problem}.{hint} {arguments}") from None


def _check_that_base_classes_are_constructed(optimizer: Any):
    """Raises an AttributeError if a user's constructor has not called `super().__init__`."""
    classes = type(optimizer).__mro__
    for position, base in enumerate(classes):
        attribute = vars(base).get("_set_by_constructor")
        if attribute and attribute not in vars(optimizer):
            subclasses = [
                each.__name__
                for each in classes[:position]
                if "__init__" in vars(each) and each.__module__.partition(".")[0] != "legacy_opt"
            ]
            raise AttributeError(
                f"The __init__ of {' or '.join(subclasses)} must call super().__init__(…): the "
                f"constructor of {base.__name__} has not run."
            )
