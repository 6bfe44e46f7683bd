"""Names of tf.contrib that TensorFlow has with other names, or another order, of parameters.

The rows of `NAMES` have the form of the rows in `table.py`; their last part contains the parameters
of tf.contrib, as old=new if the new name differs, and "old=" for one that must be None now. The
objects in `POSITIONS` take parameters that have another position now only by name. A test compares
the parameters of all forwarded names with those of TensorFlow 1.15.
"""

import functools
import inspect
from typing import Any, Optional

ADVICE = "Its parameters have other names or another order: see its documentation."
_LOOKUP, _TRAIN = "tf.python.ops.lookup_ops", "tf.compat.v1.train"
_COLLECTIONS = "metrics_collections updates_collections"
_LAST = f"weights {_COLLECTIONS} name"
_PAIR = "predictions labels"
_AT_VALUE = f"weights num_thresholds {_COLLECTIONS} name"
# Parameters of functions in tf.contrib.metrics, whose names begin with "streaming_".
_STREAMING = {
    "accuracy precision recall true_positives true_negatives false_positives false_negatives "
    "mean_absolute_error mean_squared_error root_mean_squared_error": f"{_PAIR} {_LAST}",
    "precision_at_thresholds recall_at_thresholds": f"{_PAIR} thresholds {_LAST}",
    "true_positives_at_thresholds true_negatives_at_thresholds false_positives_at_thresholds "
    "false_negatives_at_thresholds": f"{_PAIR} thresholds weights",
    "mean_cosine_distance": f"{_PAIR} dim {_LAST}",
    "mean_iou": f"{_PAIR} num_classes {_LAST}",
    "mean_relative_error": f"{_PAIR} normalizer {_LAST}",
    "mean mean_tensor": f"values {_LAST}",
    "percentage_less=percentage_below": f"values threshold {_LAST}",
    "auc": f"{_PAIR} weights num_thresholds {_COLLECTIONS} curve name",
    "sensitivity_at_specificity": f"{_PAIR} specificity {_AT_VALUE}",
    "specificity_at_sensitivity": f"{_PAIR} sensitivity {_AT_VALUE}",
    "sparse_precision_at_k=precision_at_k sparse_recall_at_k=recall_at_k": f"{_PAIR} k class_id "
    + _LAST,
    "sparse_average_precision_at_k=average_precision_at_k": f"{_PAIR} k {_LAST}",
    "sparse_precision_at_top_k=precision_at_top_k": "top_k_predictions=predictions_idx labels "
    f"class_id {_LAST}",
}
_PATH = "checkpoint_dir=ckpt_dir_or_file"
NAMES = (
    ("tf.contrib.framework", "init_from_checkpoint", _TRAIN, f"{_PATH} assignment_map"),
    ("tf.contrib.framework", "list_variables", _TRAIN, _PATH),
    ("tf.contrib.framework", "load_checkpoint", _TRAIN, "filepattern=ckpt_dir_or_file"),
    ("tf.contrib.framework", "load_variable", _TRAIN, f"{_PATH} name"),
    ("tf.contrib.lookup", "HashTable", _LOOKUP, "initializer default_value shared_name= name"),
    (
        "tf.contrib.lookup",
        "index_table_from_tensor",
        _LOOKUP,
        "mapping=vocabulary_list num_oov_buckets default_value hasher_spec dtype name",
    ),
    (
        "tf.contrib.lookup",
        "index_to_string_table_from_tensor",
        _LOOKUP,
        "mapping=vocabulary_list default_value name",
    ),
    (
        "tf.contrib.metrics",
        "sparse_recall_at_top_k=recall_at_top_k",
        "tf.compat.v1.metrics",
        f"labels top_k_predictions=predictions_idx class_id {_LAST}",
    ),
    *(
        (
            "tf.contrib.metrics",
            "streaming_" + (name if "=" in name else f"{name}={name}"),
            "tf.compat.v1.metrics",
            parameters,
        )
        for names, parameters in _STREAMING.items()
        for name in names.split()
    ),
)
_IMAGE = "tf.contrib.keras.preprocessing.image."
# {function, method or class: the number of parameters that have their old positions}
POSITIONS = {
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
    """Returns the object to which a name is forwarded, or a variant with the old parameters.

    Args:
      name: the old name.
      value: the object.
      row: the last part of the name's row in `NAMES`, or None. Defaults are those of the object.
    """
    keys = tuple(each for each in POSITIONS if f"{each}.".startswith(name + "."))
    return _variant(name, value, row, keys) if callable(value) and (row or keys) else value


@functools.lru_cache(maxsize=None)  # the same object each time
def _variant(name, value, row, keys):
    if row is not None:
        return _changed(value, {"__init__": functools.partial(_with_parameters, row)})
    changes = {key[len(name) + 1 :] or "__init__": functools.partial(_checked, key) for key in keys}
    return _changed(value, changes)


def _changed(value, changes):
    """Returns a changed function, or a subclass with changed methods.

    Args:
      value: the function or class.
      changes: a dict from a method to a function that changes it, and gets the number of its own
        parameters, such as `self`, too. `__init__` stands for the function itself.
    """
    if not isinstance(value, type):
        return changes["__init__"](value, 0)
    methods = {name: change(getattr(value, name), 1) for name, change in changes.items()}
    names = dict(methods, __module__=value.__module__, __doc__=value.__doc__)
    return type(value)(value.__name__, (value,), names)


def _with_parameters(row, function, own):
    known = inspect.signature(function).parameters
    new_names = {name: name for name in list(known)[:own]}  # "" for one that must be None
    for word in row.split():
        old, equals, new = word.partition("=")
        new_names[old] = new or ("" if equals else old)
    missing = inspect.Parameter("none", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None)
    signature = inspect.Signature(
        [known.get(new, missing).replace(name=old) for old, new in new_names.items()]
    )

    @functools.wraps(function)
    def forward(*args, **kwargs):
        given = signature.bind(*args, **kwargs).arguments
        for old, value in given.items():
            if value is not None and not new_names[old]:
                raise ValueError(f"{old} must be None, because TensorFlow 2 lacks it: {value!r}")
        return function(**{new_names[old]: given[old] for old in given if new_names[old]})

    forward.__signature__ = signature
    return forward


def _checked(name, function, own):
    """Returns a function that takes the parameters after those in `POSITIONS` only by name."""
    count = POSITIONS[name]

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
