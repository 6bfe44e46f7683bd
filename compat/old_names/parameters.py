"""Names of tf.contrib that TensorFlow has with other names, or another order, of parameters.

The rows of `NAMES` have the form of the rows in `table.py`; their last part contains the parameters
of tf.contrib, as old=new if the new name differs, and "old=" for one that must be None now.
"""

import functools
import inspect
from typing import Any, Callable

ADVICE = "Its parameters have other names or another order: see its documentation."
_LOOKUP = "tf.python.ops.lookup_ops"
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
NAMES = (
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


@functools.lru_cache(maxsize=None)
def with_parameters(function: Callable[..., Any], parameters: str) -> Callable[..., Any]:
    """Returns a function, or a subclass of a class, that has the parameters of a row.

    Args:
      function: the function or class.
      parameters: the last part of a row. Defaults are those of `function`.
    """
    if isinstance(function, type):
        own = {"__init__": with_parameters(function.__init__, "self " + parameters)}
        return type(function)(function.__name__, (function,), own)
    known = inspect.signature(function).parameters
    new_names = {}
    for word in parameters.split():
        old, equals, new = word.partition("=")
        new_names[old] = new or (None if equals else old)
    missing = inspect.Parameter("none", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None)
    signature = inspect.Signature(
        [known.get(new, missing).replace(name=old) for old, new in new_names.items()]
    )

    @functools.wraps(function)
    def forward(*args, **kwargs):
        given = signature.bind(*args, **kwargs).arguments
        for old, value in given.items():
            if new_names[old] is None and value is not None:
                raise ValueError(f"{old} must be None, because TensorFlow 2 lacks it: {value!r}")
        return function(**{new_names[old]: given[old] for old in given if new_names[old]})

    forward.__signature__ = signature
    return forward
