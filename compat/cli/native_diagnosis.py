"""Finds the facts about native kernels for `diagnose`: compilers, files, supported optimizers."""

from __future__ import annotations

import functools
import inspect
import re
from typing import Any, Callable, Dict, List, Optional

import tensorflow as tf

from legacy_opt.native import settings
from legacy_opt.native.runtime import cache, tensorflow_operations
from legacy_opt.native.updates import kernel_choice
from legacy_opt.optimizers import catalogue
from legacy_opt.programs import optimizers
from legacy_opt.programs.program import UnsupportedError


def facts() -> Dict[str, Any]:
    """Returns the value of "native" in the result of `diagnose`."""
    return {
        "setting": _value_or_reason(settings.setting_of, None),
        "c_compiler": _value_or_reason(_command, "C", "CC", "cc"),
        "cpp_compiler": _value_or_reason(_command, "C++", "CXX", "c++"),
        "folder": _value_or_reason(lambda: str(cache.folder())),
        "operations": _value_or_reason(lambda: str(tensorflow_operations.find())),
        "kernels": _value_or_reason(lambda: len(cache.kernels_in(cache.folder()))),
        "prebuilt": _prebuilt(),
        "optimizers": {cls.__name__: reason(cls) for cls in classes()},
        "updates": _value_or_reason(_updates),
    }


def _updates() -> Dict[str, int]:
    """Returns the numbers of updates, dense and sparse: all, with kernels, with stored kernels."""
    compiled = {path.name for path in cache.kernels_in(cache.folder())}
    found = [each for cls in classes() if reason(cls) is None for each in sources(cls)]
    names = [cache.file_name(cache.key_of(each)) for each in found]
    stored = sum(name in compiled or cache.prebuilt(name) is not None for name in names)
    return {"all": 2 * len(classes()), "with_kernels": len(found), "stored": stored}


def _command(*names: str) -> str:
    return " ".join(cache.find_compiler(*names))


def _prebuilt() -> Optional[Dict[str, Any]]:
    folder = cache.prebuilt_folder()
    if folder is None:
        return None
    names = [path.name.partition("-")[2] for path in folder.glob("operations-*.so")]
    versions = [name.rpartition("-")[0] for name in names]  # such as 2.22.0-rc0
    versions.sort(key=lambda text: [int(number) for number in re.findall("[0-9]+", text)])
    return {"folder": str(folder), "kernels": len(cache.kernels_in(folder)), "operations": versions}


def _value_or_reason(function: Callable, *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except ValueError as error:  # such as a NoCompilerError
        return str(error)


def classes() -> list:
    """Returns the optimizers of this package that may have kernels."""
    public_classes = (getattr(catalogue, name) for name in catalogue.__all__)
    return list(filter(optimizers.may_have_kernels, public_classes))


def made(cls: type, **choices: Any) -> Any:
    """Creates an optimizer with some arguments of the constructor.

    Other required arguments are 0.1, but `global_step` is the graph's global step, or None.
    """
    required = {
        name: tf.compat.v1.train.get_global_step() if name == "global_step" else 0.1
        for name, parameter in inspect.signature(cls).parameters.items()
        if parameter.default is parameter.empty
    }
    return cls(**dict(required, **choices))


def reason(cls: type) -> Optional[str]:
    """Returns why a kernel for dense or sparse float32 gradients cannot be generated, or None."""
    try:
        sources(cls)
    except UnsupportedError as error:
        return str(error)
    return None


@functools.lru_cache(maxsize=None)
def sources(cls: type) -> List[str]:
    """Returns C sources for dense and sparse float32 gradients, or raises an UnsupportedError."""
    make = functools.partial(made, cls)
    return [kernel_choice.source_of(make, tf.float32, sparse) for sparse in (False, True)]
