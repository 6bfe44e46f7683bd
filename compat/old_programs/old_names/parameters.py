"""Names of tf.contrib that TensorFlow has with other names, or another order, of parameters.

The rows of `NAMES` have the parameters in the place of advice. The objects in `POSITIONS` take a
parameter only by name if its position has changed. A test compares the parameters of all forwarded
names with those of TensorFlow 1.15.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any, Callable, Dict, Mapping, Optional, Tuple

from . import table

# From a function, and the number of leading parameters to keep (such as `self`), to a changed one.
_Change = Callable[[Callable[..., Any], int], Callable[..., Any]]
ADVICE = "Its parameters have other names or another order: see its documentation."
NAMES = table.rows("parameters.txt")
_IMAGE = "tf.contrib.keras.preprocessing.image."
# {function, method or class: the number of parameters that have their old positions}
POSITIONS: Dict[str, int] = {
    "tf.contrib.eager.function": 3,
    "tf.contrib.keras.callbacks.TensorBoard": 2,
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
    "tf.contrib.tpu.python.tpu.tpu_feed.InfeedQueue": 4,
    "tf.python.estimator.estimator_lib.DNNLinearCombinedEstimator": 11,
    **{
        f"tf.contrib.keras.layers.{name}{kind}": 6
        for name in ("Conv", "Convolution")
        for kind in ("1D", "2D", "3D", "3DTranspose")
    },
}


def as_in_1(name: str, value: Any, row: Optional[str]) -> Any:
    """Returns the object to which an old name is forwarded, or a variant with old parameters.

    `row` has the parameters in the name's row in `NAMES`, or is None. Defaults are from `value`.
    """
    keys = tuple(each for each in POSITIONS if f"{each}.".startswith(name + "."))
    is_changed = callable(value) and (row or keys)
    return _variant(name, value, row, keys) if is_changed else value


@functools.lru_cache(maxsize=None)  # an old name is the same object each time
def _variant(name: str, value: Any, row: Optional[str], keys: Tuple[str, ...]) -> Any:
    if row is not None:
        return _changed(value, {"__init__": functools.partial(_with_parameters, row)})
    # A key is `name`, or the full name of a method.
    changes = {key[len(name) + 1 :] or "__init__": functools.partial(_checked, key) for key in keys}
    return _changed(value, changes)


def _changed(value: Any, changes: Mapping[str, _Change]) -> Any:
    """Returns a changed function, or a subclass with changed methods.

    `changes` is {name of a method: its `_Change`}. For a function, the only key is `__init__`.
    """
    if not isinstance(value, type):
        return changes["__init__"](value, 0)
    methods = {name: change(getattr(value, name), 1) for name, change in changes.items()}  # 1: self
    names = dict(methods, __module__=value.__module__, __doc__=value.__doc__)
    return type(value)(value.__name__, (value,), names)


def _with_parameters(row: str, function: Callable[..., Any], kept: int) -> Callable[..., Any]:
    known = inspect.signature(function).parameters
    # {old parameter: new parameter}; "" for an old parameter that must be None now. A row has the
    # words "name", "old=new" and "old=".
    new_names = {name: name for name in list(known)[:kept]}
    for word in row.split():
        old, equals, new = word.partition("=")
        new_names[old] = new if equals else old
    missing = inspect.Parameter("none", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None)
    signature = inspect.Signature(
        [known.get(new, missing).replace(name=old) for old, new in new_names.items()]
    )

    @functools.wraps(function)
    def forward(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        for old, value in given.items():
            if value is not None and not new_names[old]:
                raise ValueError(f"{old} must be None, because TensorFlow 2 lacks it: {value!r}")
        return function(**{new_names[old]: given[old] for old in given if new_names[old]})

    forward.__signature__ = signature
    return forward


def _checked(name: str, function: Callable[..., Any], kept: int) -> Callable[..., Any]:
    """Returns a function that takes all parameters but the first `POSITIONS[name]` by name."""
    count = POSITIONS[name]

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        if len(args) > kept + count:
            raise TypeError(
                f"{name} takes {count} arguments by position: pass the others by name, because "
                "they had another order in TensorFlow 1."
            )
        return function(*args, **kwargs)

    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    for index, each in enumerate(parameters):
        if index >= kept + count and each.kind is each.POSITIONAL_OR_KEYWORD:
            parameters[index] = each.replace(kind=each.KEYWORD_ONLY)
    checked.__signature__ = signature.replace(parameters=parameters)
    return checked
