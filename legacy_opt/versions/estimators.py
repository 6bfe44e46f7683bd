"""Estimators for all TensorFlow versions, from TensorFlow or the package tensorflow-estimator.

TensorFlow 2.16 removed `tf.estimator`. The last release of the package tensorflow-estimator is pure
Python. It works with newer versions of TensorFlow if Keras 2 and some names that TensorFlow has
removed are available. Therefore this module makes tensorflow-estimator import a view of TensorFlow:
a module object that has Keras 2 and the removed names. TensorFlow itself is not changed, and
`tf.keras` may be Keras 3.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import importlib
import importlib.abc
import importlib.machinery
import inspect
import os
import sys
import types
from typing import Any, Callable, List, Mapping, NamedTuple, NoReturn, Optional, Sequence, TypeVar

import tensorflow as tf

from legacy_opt.versions.keras import ESTIMATOR_VERSION, pip_command
from legacy_opt.versions.modes import modules_v1

_DISTRIBUTION = "tensorflow-estimator"
_PACKAGE = "tensorflow_estimator"
_TPU_ESTIMATOR = _PACKAGE + ".python.estimator.tpu.tpu_estimator"
_TPU_EMBEDDING = _PACKAGE + ".python.estimator.tpu._tpu_estimator_embedding"


def has_own_estimator() -> bool:
    """Whether TensorFlow itself has `tf.estimator`, and can import it."""
    try:
        return not isinstance(tf.estimator, LazyModule) and hasattr(tf.estimator, "Estimator")
    except (AttributeError, ImportError):
        return False


def estimator(api: str = "v1") -> types.ModuleType:
    """Returns TensorFlow 2.15's `tf.compat.v1.estimator` ("v1") or `tf.estimator` ("v2").

    In a newer TensorFlow, the module is from tensorflow-estimator, which needs tf-keras. The
    ImportError for a missing or wrong package contains the pip command.
    """
    if has_own_estimator():
        return getattr(tf.compat, api).estimator
    problem = estimator_problem()
    if problem is not None:
        raise ImportError(problem)
    return _import_package(api)


def estimator_problem() -> Optional[str]:
    """Returns why Estimators are not available, and the pip command; None if they are available."""
    if has_own_estimator():
        return None
    command = pip_command(_DISTRIBUTION, "tf-keras")
    for package, required in (_DISTRIBUTION, ESTIMATOR_VERSION), ("tf-keras", _minor()):
        installed = _installed_version(package)
        if installed is None:
            problem = f"TensorFlow {_minor()} has no Estimators, and {package} is not installed."
            return f"{problem} Run: {command}"
        if not (installed + ".").startswith(required + "."):
            problem = f"{package} {installed} does not work with TensorFlow {_minor()}."
            return f"{problem} Run: {command}"
    return None


def _minor() -> str:
    return ".".join(tf.__version__.split(".")[:2])


def _installed_version(package: str) -> Optional[str]:
    from importlib import metadata  # missing in Python 3.7, which has no TensorFlow 2.16

    for name in (package, package + "-nightly"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            return metadata.version(name)
    return None


@functools.lru_cache(maxsize=None)
def _import_package(api: str) -> types.ModuleType:
    if not any(isinstance(each, _EstimatorFinder) for each in sys.meta_path):
        # An earlier import, without the view, may have failed and left modules in sys.modules.
        for name in list(sys.modules):
            if name.partition(".")[0] == _PACKAGE:
                del sys.modules[name]
        sys.meta_path.insert(0, _EstimatorFinder(_view_of_tensorflow()))
    return importlib.import_module(f"{_PACKAGE}._api.{api}.estimator")


class LazyModule(types.ModuleType):
    """Replaces a module that TensorFlow has removed, and finds attributes when they are read.

    `find` returns the module with the attributes; those in `known` are available without it.
    """

    def __init__(self, name: str, find: Callable[[], types.ModuleType], **known: Any):
        super().__init__(name)
        vars(self).update(known, _find=find)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__path__":
            raise AttributeError(name)
        try:
            return getattr(self._find(), name)
        except ImportError as error:
            raise AttributeError(f"{self.__name__}.{name}: {error}") from None

    def __dir__(self) -> List[str]:
        return dir(self._find())


class RemovedModule(NamedTuple):
    """A module that TensorFlow 2.16 or newer lacks, and the replacement."""

    home: types.ModuleType  # of TensorFlow; the removed module was an attribute of it
    path: str  # the dotted name under which `home` is imported
    name: str  # of the attribute
    origin: str  # the package from which the replacement takes its attributes
    stand_in: LazyModule  # the replacement


def removed_modules() -> List[RemovedModule]:
    """Returns a list of `RemovedModule`: `tf.estimator`, and modules that Keras 3 lacks."""
    if hasattr(tf, "estimator"):
        return []
    v1_homes = [(each, "tensorflow.compat.v1") for each in modules_v1()]
    train = tf.compat.v1.train
    hooks = {name: getattr(train, name) for name in dir(train) if "SessionRun" in name}
    removed = []
    for home, path in [(tf, "tensorflow"), (tf.compat.v2, "tensorflow.compat.v2"), *v1_homes]:
        api = "v1" if path.endswith("v1") else "v2"
        find = functools.partial(estimator, api)
        stand_in = LazyModule(path + ".estimator", find, **hooks)
        removed.append(RemovedModule(home, path, "estimator", _PACKAGE, stand_in))
    legacy_layers = [(home, path, "layers") for home, path in v1_homes]
    rnn_cell = (tf.compat.v1.nn, "tensorflow.compat.v1.nn", "rnn_cell")
    for home, path, name in [*legacy_layers, rnn_cell]:
        if _needs_keras_2(getattr(home, name)):
            stand_in = LazyModule(f"{path}.{name}", functools.partial(_legacy_keras, name))
            removed.append(RemovedModule(home, path, name, "tf_keras", stand_in))
    return removed


def _needs_keras_2(lazy_module: types.ModuleType) -> bool:
    """Whether TensorFlow looks for a lazily loaded module in Keras 3, which lacks the module."""
    # `vars`, because `getattr` would make TensorFlow import Keras.
    is_keras_3 = vars(lazy_module).get("_tfll_keras_version") == "keras_3"
    return is_keras_3 or os.environ.get("TF_USE_LEGACY_KERAS") not in ("true", "True", "1")


def rnn_cell() -> types.ModuleType:
    """Returns the module `tf.compat.v1.nn.rnn_cell`, or the same module of the package tf_keras."""
    return _of_keras_2(tf.compat.v1.nn, "rnn_cell")


def layers() -> types.ModuleType:
    """Returns the module `tf.compat.v1.layers`; see `rnn_cell`."""
    return _of_keras_2(tf.compat.v1, "layers")


def _of_keras_2(home: types.ModuleType, name: str) -> types.ModuleType:
    module = getattr(home, name)
    is_removed = not hasattr(tf, "estimator") and _needs_keras_2(module)
    return _legacy_keras(name) if is_removed else module


def _legacy_keras(name: str) -> types.ModuleType:
    return getattr(_keras_2_of("v1").__internal__.legacy, name)


def _keras_2_of(api: str) -> types.ModuleType:
    try:
        return importlib.import_module(f"tf_keras.api._{api}.keras")
    except ImportError as error:
        command = pip_command("tf-keras")
        raise ImportError(f"this module needs tf-keras. Run: {command}") from error


class _EstimatorFinder(importlib.abc.MetaPathFinder):
    """Finds the modules of tensorflow-estimator, and makes them import a view of TensorFlow."""

    def __init__(self, view: types.ModuleType):
        self.builtins = dict(vars(builtins), __import__=functools.partial(_import, view))

    def find_spec(
        self, name: str, path: Optional[Sequence[str]], target: Optional[types.ModuleType] = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        if name == _TPU_EMBEDDING:
            return importlib.machinery.ModuleSpec(name, _RemovedLoader())
        if name.partition(".")[0] != _PACKAGE:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _Loader(name, spec.loader.path)
            spec.loader.builtins = self.builtins
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads a module. Import statements of the module call `builtins["__import__"]`."""

    builtins: Mapping[str, Any]

    def exec_module(self, module: types.ModuleType):
        vars(module)["__builtins__"] = self.builtins
        super().exec_module(module)
        if module.__name__ == _TPU_ESTIMATOR:
            _refuse_tpus(module.TPUEstimator)


class _RemovedLoader(importlib.abc.Loader):
    def exec_module(self, module: types.ModuleType):
        module.__getattr__ = _removed_class


def _removed_module(name: str) -> types.ModuleType:
    """Returns a module whose attributes are classes that cannot be instantiated."""
    module = types.ModuleType(name)
    module.__getattr__ = _removed_class
    return module


@functools.lru_cache(maxsize=None)
def _removed_class(name: str) -> type:
    if name.startswith("__"):
        raise AttributeError(name)

    def refuse(cls: type, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"{name} is not available with {_NO_TPUS}")

    return type(name, (), {"__new__": refuse})


_NO_TPUS = (
    f"TensorFlow {tf.__version__}: TensorFlow 2.16 removed modules that it needs. Use "
    "TensorFlow 2.15 or tf.distribute.TPUStrategy for TPUs."
)


def _refuse_tpus(cls: type):
    """Makes the constructor of TPUEstimator raise an error if `use_tpu` is true, the default."""
    original = cls.__init__
    signature = inspect.signature(original)

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any):
        if signature.bind(self, *args, **kwargs).arguments.get("use_tpu", True):
            raise NotImplementedError(
                f"{cls.__name__} with use_tpu=True (the default) is not available with "
                f"{_NO_TPUS} Pass use_tpu=False to train on CPUs or GPUs."
            )
        original(self, *args, **kwargs)

    cls.__init__ = __init__


class _View(types.ModuleType):
    """A module with the attributes of another module, of which some are replaced."""

    def __init__(self, module: types.ModuleType, **replaced: Any):
        super().__init__(module.__name__)
        vars(self).update(replaced, _module=module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def _import(
    view: types.ModuleType,
    name: str,
    globals: Optional[Mapping[str, Any]] = None,
    locals: Optional[Mapping[str, Any]] = None,
    fromlist: Sequence[str] = (),
    level: int = 0,
) -> types.ModuleType:
    """Imports like `__import__`, but returns views of TensorFlow and of modules in `_REPLACED`."""
    module = builtins.__import__(name, globals, locals, fromlist, level)
    if name == "tensorflow" and not fromlist:
        return view
    if name in _REPLACED and not level:
        return _View(module, **_REPLACED[name])
    return module


def _view_of_tensorflow() -> _View:
    """Returns a view of `tensorflow` in which Keras is Keras 2."""
    v1, v2 = _keras_2_of("v1"), _keras_2_of("v2")
    names = ("initializers", "losses", "metrics", "optimizers")
    replaced = dict({name: getattr(v2, name) for name in names}, keras=v2)
    legacy = v1.__internal__.legacy
    apis = {
        "v1": _View(
            tf.compat.v1,
            keras=v1,
            layers=legacy.layers,
            nn=_View(tf.compat.v1.nn, rnn_cell=legacy.rnn_cell),
        ),
        "v2": _View(tf.compat.v2, **replaced),
    }
    return _View(tf, compat=_View(tf.compat, **apis), **replaced)


_Exported = TypeVar("_Exported")


class _Export:
    """Replaces a decorator that registers public names with TensorFlow. Registers nothing."""

    def __init__(self, *names: str, **options: Any):
        pass

    def __call__(self, exported: _Exported) -> _Exported:
        return exported

    def export_constant(self, module: str, name: str):
        pass


def _init_run_config(config: Any, tf_config: Mapping[str, Any]):
    """Initializes a `RunConfig` with a distribution strategy. Raises a ValueError in clusters."""
    if tf_config.get("cluster"):
        raise ValueError(
            "RunConfig: train_distribute, eval_distribute and experimental_distribute cannot be "
            f"used in a cluster (TF_CONFIG) with TensorFlow {tf.__version__}. Remove the cluster "
            "to train in one process, or remove the strategy to train with parameter servers."
        )
    distribution = config._experimental_distribute
    if distribution:
        config._train_distribute = distribution.train_distribute
        config._eval_distribute = distribution.eval_distribute
    config._distribute_coordinator_mode = None
    config._init_distributed_setting_from_environment_var({})


# {module: {name that TensorFlow has removed from the module: replacement}}
_REPLACED = {
    "tensorflow.python.distribute": {
        "estimator_training": types.SimpleNamespace(
            init_run_config=_init_run_config, should_run_distribute_coordinator=lambda config: False
        )
    },
    "tensorflow.python.tpu": {
        name: _removed_module(name) for name in ("session_support", "tpu_embedding_gradient")
    },
    "tensorflow.python.util": {
        "tf_export": types.SimpleNamespace(api_export=_Export, ESTIMATOR_API_NAME="estimator")
    },
}
