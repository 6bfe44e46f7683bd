"""Forwarded objects of which some arguments have other positions than in TensorFlow 1.15.

These arguments must be passed by name. A test compares all forwarded names with those of 1.15.
"""

import functools
import inspect

_IMAGE = "tf.contrib.keras.preprocessing.image."
# {function, method or class: the number of arguments that have their old positions}
POSITIONS = {
    "tf.contrib.eager.function": 3,
    "tf.contrib.keras.layers.ConvLSTM2D": 21,
    "tf.contrib.keras.layers.GRU": 16,
    "tf.contrib.keras.layers.LSTM": 17,
    "tf.contrib.keras.models.save_model": 3,
    _IMAGE + "DirectoryIterator": 16,
    _IMAGE + "ImageDataGenerator": 21,
    _IMAGE + "ImageDataGenerator.flow": 9,
    _IMAGE + "NumpyArrayIterator": 12,
    "tf.contrib.keras.utils.plot_model": 3,
    "tf.contrib.lookup.MutableHashTable.lookup": 1,
    **{
        f"tf.contrib.keras.layers.{name}{kind}": 6
        for name in ("Conv", "Convolution")
        for kind in ("1D", "2D", "3D", "3DTranspose")
    },
}


def as_in_1(name, value):
    """Returns the object to which a name is forwarded, or a variant of it that checks arguments."""
    keys = tuple(each for each in POSITIONS if f"{each}.".startswith(name + "."))
    return _with_checks(name, value, keys) if keys and callable(value) else value


@functools.lru_cache(maxsize=None)
def _with_checks(name, value, keys):
    if not isinstance(value, type):
        return _checked(value, name, POSITIONS[name])
    names = {"__module__": value.__module__, "__doc__": value.__doc__}
    for key in keys:
        method = key[len(name) + 1 :] or "__init__"
        names[method] = _checked(getattr(value, method), key, POSITIONS[key], own=1)
    return type(value)(value.__name__, (value,), names)


def _checked(function, name, count, own=0):
    """Returns a function of `count` positional arguments, besides `own` ones such as `self`."""

    @functools.wraps(function)
    def checked(*args, **kwargs):
        if len(args) > own + count:
            raise TypeError(
                f"{name} takes {count} arguments by position: pass the others by name, because "
                "they had another order in TensorFlow 1."
            )
        return function(*args, **kwargs)

    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    for index, each in enumerate(parameters):
        if index >= own + count and each.kind is each.POSITIONAL_OR_KEYWORD:
            parameters[index] = each.replace(kind=each.KEYWORD_ONLY)
    checked.__signature__ = signature.replace(parameters=parameters)
    return checked
