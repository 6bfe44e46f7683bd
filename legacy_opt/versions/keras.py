"""Finds Keras 2 and Keras 3, hides their differences, and says how to install Keras 2."""

from __future__ import annotations

import functools
import importlib
import os
import sys
from types import ModuleType
from typing import Any, Dict, Hashable, Iterator, List, Optional, Union

import numpy as np
import tensorflow as tf

from legacy_opt.versions.modes import for_a_session

# Types of Keras 2 or Keras 3, which may not be installed.
KerasOptimizer = Any
KerasVariable = Any

ESTIMATOR_VERSION = "2.15.0"  # the last release of tensorflow-estimator


def pip_command(*packages: str, version: str = tf.__version__) -> str:
    """Returns the command that installs packages, and keeps the TensorFlow of this version."""
    minor = ".".join(version.split(".")[:2])
    keras_2 = "tf-keras-nightly" if "-dev" in version else "tf-keras"
    requirements = {
        "tensorflow-estimator": f"tensorflow-estimator=={ESTIMATOR_VERSION}",
        "tf-keras": f'"{keras_2}=={minor}.*"',
    }
    # --no-deps, because tf-keras requires `tensorflow`, which pip would install over the files of
    # `tensorflow-cpu`, `tf-nightly` and other distributions. There are no other dependencies.
    hint = f"  # tf-keras {minor} is released after TensorFlow {minor}" if "-rc" in version else ""
    return " ".join(["pip install --no-deps", *(requirements[each] for each in packages)]) + hint


def keras_facts() -> Dict[str, Union[str, int]]:
    """Imports `tf.keras` and returns its `version`, `generation` (2 or 3), `home` and `backend`.

    `home` is the package that contains `tf.keras`: "tensorflow", "keras" or "tf_keras".
    """
    keras = tf.keras
    try:
        home = keras.Model.__module__.split(".")[0]
    except (ImportError, RecursionError) as error:  # RecursionError: an earlier import failed
        raise ImportError(
            "tf.keras cannot be imported; KERAS_BACKEND is "
            f"{os.environ.get('KERAS_BACKEND')!r}. v1 optimizers need the TensorFlow backend: set "
            "the environment variable KERAS_BACKEND=tensorflow before Keras is imported."
        ) from error
    version = getattr(keras, "__version__", None)
    if version is None:  # TensorFlow 2.13 to 2.15 have no tf.keras.__version__
        version = importlib.import_module(home).__version__
    generation = 3 if hasattr(keras, "ops") else 2
    backend = keras.backend.backend() if generation == 3 else "tensorflow"
    return {"version": version, "generation": generation, "home": home, "backend": backend}


def optimizer_v2() -> type:
    """Imports Keras 2 and returns its class OptimizerV2.

    The class is `tf.keras.optimizers.Optimizer` up to TensorFlow 2.10,
    `tf.keras.optimizers.legacy.Optimizer` in 2.11 to 2.15, and part of tf_keras from 2.16 on.
    """
    keras = keras_2()
    for home in (keras.optimizers, getattr(keras.optimizers, "legacy", None)):
        candidate: Any = getattr(home, "Optimizer", None)
        if hasattr(candidate, "_resource_apply_dense"):
            return candidate
    raise ImportError(f"This Keras ({keras.__name__}) has no OptimizerV2.")


def keras_2() -> ModuleType:
    """Returns Keras 2: `tf.keras`, or the package tf_keras if `tf.keras` is Keras 3."""
    try:
        if keras_facts()["generation"] == 2:
            return tf.keras
    except ImportError:
        pass  # tf.keras is Keras 3 without its backend, which tf_keras does not need
    try:
        return importlib.import_module("tf_keras")
    except ImportError as error:
        raise ImportError(
            "tf.keras is Keras 3 here, and OptimizerV2 needs Keras 2. Install it with: "
            + pip_command("tf-keras")
        ) from error


def keras_1() -> ModuleType:
    """Returns `tf.compat.v1.keras` of `keras_2`, with the names and defaults of TensorFlow 1."""
    keras = keras_2()
    name = tf.compat.v1.keras.__name__ if keras is tf.keras else f"{keras.__name__}.api._v1.keras"
    return importlib.import_module(name)


def keras_optimizers_1() -> ModuleType:
    """Returns the module of `keras_1` with Keras' first optimizers, as in `tf.contrib.keras`."""
    home = keras_1().optimizers.get.__module__
    # Up to TensorFlow 2.8, keras.optimizer_v1 (without "s") is beside keras.optimizers.
    names = (home + ".optimizer_v1", home[:-1] + "_v1")
    return next(sys.modules[name] for name in names if name in sys.modules)


def keras_3() -> ModuleType:
    """Returns the package keras if it is Keras 3, new enough, with TensorFlow as the backend."""
    try:
        keras: Any = importlib.import_module("keras")
    except ImportError:
        keras = None
    if not hasattr(keras, "ops"):
        raise ImportError(
            f"Keras 3 is not installed; tf.keras is Keras {keras_facts()['version']}. Keras 3 "
            "needs TensorFlow 2.16 or newer. To use the installed Keras, pass api='optimizer_v2'."
        )
    if keras.backend.backend() != "tensorflow":
        raise ImportError(
            f"Keras has the backend {keras.backend.backend()}, but v1 optimizers need TensorFlow. "
            "Set the environment variable KERAS_BACKEND=tensorflow before Keras is imported."
        )
    if not isinstance(getattr(keras.optimizers.Optimizer, "iterations", None), property):
        raise ImportError(
            f"Keras {keras.__version__} is too old for the bridge: its optimizers do not support "
            "gradient accumulation. Install a newer one with: pip install -U keras"
        )
    return keras


def api_of(value: Any) -> Optional[str]:
    """Returns the `api` of a Keras optimizer or its class: "optimizer_v2", "keras3" or None."""
    cls = value if isinstance(value, type) else type(value)
    if any(base.__name__ == "OptimizerV2" for base in cls.__mro__):
        return "optimizer_v2"
    keras = sys.modules.get("keras")
    if hasattr(keras, "ops") and issubclass(cls, keras.optimizers.Optimizer):
        keras_3()
        return "keras3"
    return None


def with_wrapped(optimizer: KerasOptimizer) -> Iterator[KerasOptimizer]:
    """Yields an OptimizerV2 and all OptimizerV2s that it wraps, as in TensorFlow Addons."""
    yield optimizer
    for each in vars(optimizer).values():
        if api_of(each) == "optimizer_v2":
            yield from with_wrapped(each)


def create_optimizer_weights(optimizer: KerasOptimizer, variables: List[KerasVariable]):
    """Creates a Keras optimizer's state variables for `variables` if they do not exist yet."""
    if api_of(optimizer) == "keras3":
        optimizer.build(variables)
    elif hasattr(optimizer, "_create_all_weights"):
        optimizer._create_all_weights(variables)
    else:  # TensorFlow up to 2.2
        optimizer = getattr(optimizer, "_optimizer", optimizer)  # inside a LossScaleOptimizer
        _ = optimizer.iterations  # reading the property creates the variable
        optimizer._create_hypers()
        optimizer._create_slots(variables)


def keras_3_distributes(strategy: tf.distribute.Strategy) -> bool:
    """Whether Keras 3 divides the loss by the number of replicas before it sums the gradients.

    Tests have shown that Keras up to 3.7 does not, and `fit` trains with too large gradients.
    """
    if strategy.num_replicas_in_sync == 1:
        return True
    loss = keras_3().losses.MeanSquaredError()
    with tf.init_scope(), strategy.scope():
        return float(loss(tf.ones([1, 1]), tf.zeros([1, 1]))) < 1


def is_keras_3_variable(value: Any) -> bool:
    """Whether `value` is a Keras 3 variable (an object that contains a `tf.Variable`)."""
    # Up to Keras 3.6, isinstance(value, keras.Variable) is False for layers' variables. The dtype
    # is a string in Keras 3 variables, but not in tf.Variable.
    return isinstance(getattr(value, "dtype", None), str)


def tf_variable(value: Any) -> Any:
    """Returns the `tf.Variable` inside a Keras 3 variable. Returns other objects unchanged."""
    return value.value if is_keras_3_variable(value) else value


def tf_variable_without_cast(value: KerasVariable) -> tf.Variable:
    """Returns the `tf.Variable` inside a Keras 3 variable, even where a layer casts variables."""
    found = getattr(value, "_value", None)  # `value.value` would be the result of the cast
    return found if isinstance(found, tf.Variable) else tf_variable(value)


def value_of(variable: KerasVariable) -> np.ndarray:
    """Returns a variable's value as an array. In a TF1 graph, Keras' session reads the value."""
    variable = tf_variable(variable)
    if for_a_session():
        return np.asarray(keras_2().backend.get_value(variable))
    return variable.numpy()


def assign_to(variable: KerasVariable, value: np.ndarray):
    """Assigns a value to a variable. In a TF1 graph, Keras' session assigns the value."""
    variable = tf_variable(variable)
    if for_a_session():
        keras_2().backend.set_value(variable, value)
    else:
        variable.assign(value)


def in_stateless_scope() -> bool:
    """Whether a Keras 3 StatelessScope is active, which only records assignments to variables."""
    scope = sys.modules.get("keras.src.backend.common.stateless_scope")
    return scope is not None and scope.in_stateless_scope()


def slot_key(variable: KerasVariable) -> Hashable:
    """Returns the key under which OptimizerV2 keeps the slots of `variable`."""
    return _optimizer_v2_module()._var_key(variable)


@functools.lru_cache(maxsize=None)
def _optimizer_v2_module() -> ModuleType:
    (base,) = [cls for cls in optimizer_v2().__mro__ if cls.__name__ == "OptimizerV2"]
    return sys.modules[base.__module__]


def track_keras_variable(variable: KerasVariable):
    """Registers a variable with Keras in graph mode, so that Keras initializes the variable."""
    _optimizer_v2_module().backend.track_variable(variable)


KERAS_PACKAGE = "legacy_opt"  # prefix of registered class names in files that Keras saves


def register_with(keras: ModuleType, cls: type):
    """Registers `cls` so that Keras 2 or 3 can load it; Keras 2 also by the name of the class."""
    is_keras_3 = hasattr(keras, "ops")
    home = keras.saving if is_keras_3 else keras.utils
    if hasattr(home, "register_keras_serializable"):  # not in TensorFlow 1.15
        home.register_keras_serializable(package=KERAS_PACKAGE)(cls)
    if not is_keras_3:
        home.get_custom_objects()[cls.__name__] = cls
