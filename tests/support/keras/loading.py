"""Loads saved models in a process of its own, which has made no optimizer."""

import concurrent.futures
import functools

import numpy as np
import tensorflow as tf

from legacy_opt import compat
from tests.support.keras.keras_apis import APIS
from tests.support.processes import programs


@functools.lru_cache()
def _executor():
    # One process for all files: importing Keras takes seconds.
    return concurrent.futures.ProcessPoolExecutor(1, programs.CONTEXT)


def load_model(api, path, *classes, imported=()):
    """Loads a model, and checks that another process loads the same.

    Args:
      api: the `KerasApi` of the model.
      path: the file.
      *classes: the user's classes in the file, which the other process imports. Those of v1 are
        registered, and the others passed as custom_objects.
      imported: classes with a decorator that registers them; they are only imported.
    """
    there = _executor().submit(_state_of_file, api.name, str(path), classes, imported).result()
    model = _load(api.name, str(path), classes)
    here = _state(model)
    for one, another in zip(here[:-1], there[:-1]):
        assert len(one) == len(another)
        for value, other in zip(one, another):
            np.testing.assert_array_equal(value, other)
    np.testing.assert_equal(here[-1], there[-1])  # NaN is equal to NaN
    return model


def _load(name, path, classes):
    known = compat.custom_objects(name)
    for cls in classes:
        if issubclass(cls, tf.compat.v1.train.Optimizer):
            compat.register_optimizer(cls)
        else:
            known[cls.__name__] = cls
    return APIS[name].keras.models.load_model(path, custom_objects=known)


def _state_of_file(name, path, classes, imported):
    del imported  # unpickling has imported them
    return _state(_load(name, path, classes))


def _state(model):
    """Returns the model's weights, the optimizer's state and the optimizer's configuration."""
    optimizer = model.optimizer
    if optimizer is None:
        return model.get_weights(), [], None
    is_of_keras_2 = hasattr(optimizer, "get_weights")
    state = optimizer.get_weights() if is_of_keras_2 else [v.numpy() for v in optimizer.variables]
    return model.get_weights(), state, optimizer.get_config()
