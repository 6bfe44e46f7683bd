"""The part of `diagnose` about native kernels: compilers, files, optimizers with kernels."""

from __future__ import annotations

import inspect
from typing import Any, Dict, List, Optional

import tensorflow as tf

from legacy_opt import public
from legacy_opt.core import native_rules
from legacy_opt.native import cache, driver, modes
from legacy_opt.native.program import UnsupportedError


def facts() -> Dict[str, Any]:
    """Returns the value of "native" in the result of `diagnose`."""
    return {
        "mode": _or_reason(modes.mode_of, None),
        "c_compiler": _or_reason(lambda: cache.compiler()[0]),
        "cpp_compiler": _or_reason(cache.find_compiler, "C++", "CXX", "c++"),
        "folder": _or_reason(lambda: str(cache.folder())),
        "driver": _or_reason(_driver),
        "kernels": _or_reason(lambda: len(list(cache.folder().glob("[0-9a-f]" * 32 + ".so")))),
        "optimizers": {cls.__name__: reason(cls) for cls in classes()},
    }


def _driver():
    path = driver.path()
    return str(path) if path.exists() else None


def _or_reason(function, *arguments):
    try:
        return function(*arguments)
    except ValueError as error:  # such as a NoCompilerError
        return str(error)


def classes() -> list:
    """Returns the public optimizers that may have kernels."""
    found = {
        value
        for value in vars(public).values()
        if isinstance(value, type)
        and issubclass(value, tf.compat.v1.train.Optimizer)
        and hasattr(value, "pure_update")
    }
    return sorted(found - {public.RuleOptimizer}, key=lambda cls: cls.__name__)


def made(cls: type) -> Any:
    """Creates an optimizer. Its required arguments are 0.1, except `global_step`, which is None."""
    required = {
        name: None if name == "global_step" else 0.1
        for name, parameter in inspect.signature(cls).parameters.items()
        if parameter.default is parameter.empty
    }
    return cls(**required)


def reason(cls: type) -> Optional[str]:
    """Returns why there is no kernel for dense or for sparse gradients (float32), or None."""
    try:
        sources(cls)
    except UnsupportedError as error:
        return str(error)
    return None


def sources(cls: type) -> List[str]:
    """Returns the C sources of the kernels for dense and for sparse gradients (float32).

    Raises:
      UnsupportedError: there is no kernel for one of these.
    """
    return [native_rules.source_of(made(cls), tf.float32, sparse) for sparse in (False, True)]
