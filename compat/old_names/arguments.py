"""Forwarded objects whose arguments have other positions or defaults than in TensorFlow 1.15.

Such an object does not take an argument that would get another meaning: it must be passed by its
name. A test compares the arguments of all forwarded names with those of 1.15.
"""

import functools
import inspect

# {name, of a class its constructor: the number of arguments that have their old positions}
POSITIONS = {
    "tf.contrib.cluster_resolver.SlurmClusterResolver": 2,
    "tf.contrib.eager.function": 3,
    "tf.contrib.keras.callbacks.TensorBoard": 2,
    "tf.contrib.keras.layers.Conv1D": 6,
    "tf.contrib.keras.layers.Conv2D": 6,
    "tf.contrib.keras.layers.Conv3D": 6,
    "tf.contrib.keras.layers.Conv3DTranspose": 6,
    "tf.contrib.keras.layers.ConvLSTM2D": 21,
    "tf.contrib.keras.layers.Convolution1D": 6,
    "tf.contrib.keras.layers.Convolution2D": 6,
    "tf.contrib.keras.layers.Convolution3D": 6,
    "tf.contrib.keras.layers.Convolution3DTranspose": 6,
    "tf.contrib.keras.layers.GRU": 16,
    "tf.contrib.keras.layers.LSTM": 17,
    "tf.contrib.keras.models.save_model": 3,
    "tf.contrib.keras.preprocessing.image.DirectoryIterator": 16,
    "tf.contrib.keras.preprocessing.image.ImageDataGenerator": 21,
    "tf.contrib.keras.preprocessing.image.ImageDataGenerator.flow": 9,
    "tf.contrib.keras.preprocessing.image.NumpyArrayIterator": 12,
    "tf.contrib.keras.utils.plot_model": 3,
    "tf.contrib.lookup.MutableHashTable.lookup": 1,
}
# {name: defaults of TensorFlow 1.15}
DEFAULTS = {
    "tf.contrib.cluster_resolver.SlurmClusterResolver": {"gpus_per_node": 1, "gpus_per_task": 1},
}


def as_in_1(name, value):
    """Returns the object to which a name is forwarded, with its arguments checked if necessary.

    Args:
      name: the name in the table of old names.
      value: the object.
    """
    names = tuple(each for each in POSITIONS if f"{each}.".startswith(name + "."))
    return _with_checks(name, value, names) if names and callable(value) else value


@functools.lru_cache(maxsize=None)
def _with_checks(name, value, names):
    if not isinstance(value, type):
        return _checked(name, value, POSITIONS[name])
    methods = {each[len(name) + 1 :] or "__init__": each for each in names}
    checked = {
        method: _checked(each, getattr(value, method), POSITIONS[each] + 1)
        for method, each in methods.items()
    }
    checked.update(__module__=value.__module__, __doc__=value.__doc__)
    return type(value)(value.__name__, (value,), checked)


def _checked(name, function, positions):
    """Returns a function that takes arguments after the first ones only by their names."""
    defaults = DEFAULTS.get(name, {})
    signature = inspect.signature(function)
    parameters = [
        each.replace(default=defaults.get(each.name, each.default), kind=inspect.Parameter.KEYWORD_ONLY)
        if index >= positions and each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        else each
        for index, each in enumerate(signature.parameters.values())
    ]

    @functools.wraps(function)
    def checked(*args, **kwargs):
        if len(args) > positions:
            following = parameters[positions].name
            raise TypeError(
                f"{name}: pass {following} and what follows by name: TensorFlow 1 had another order."
            )
        return function(*args, **{**defaults, **kwargs})

    checked.__signature__ = signature.replace(parameters=parameters)
    return checked
