"""Tests of `contrib.metrics`."""

import inspect

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt.compat.contrib import metrics
from legacy_opt.compat.old_programs import old_names
from tests.contrib.pieces import ORIGINS, OURS, piece, run

v1 = tf.compat.v1
RANDOM = np.random.RandomState(0)
SCORES = RANDOM.uniform(size=[20]).astype(np.float32)
LABELS = RANDOM.uniform(size=[20]) < 0.4
WEIGHTS = RANDOM.uniform(size=[20]).astype(np.float32)
GUESSES = SCORES > 0.5
TABLE = RANDOM.uniform(size=[20, 6]).astype(np.float32)
CLASSES = RANDOM.randint(6, size=[20])
TOP = np.argsort(-TABLE, 1)[:, :3]
THRESHOLDS = [0.2, 0.5]
ROOT = "streaming_"
# {name: arguments before `weights`}
CALLS = {
    **{
        ROOT + name: (GUESSES, LABELS)
        for name in (
            *("accuracy", "precision", "recall", "true_positives", "true_negatives"),
            *("false_positives", "false_negatives", "false_positive_rate", "false_negative_rate"),
        )
    },
    **{
        ROOT + name: (SCORES, WEIGHTS)
        for name in ("mean_absolute_error", "mean_squared_error", "root_mean_squared_error")
    },
    **{
        ROOT + name + "_at_thresholds": (SCORES, LABELS, THRESHOLDS)
        for name in (
            *("precision", "recall", "true_positives", "true_negatives"),
            *("false_positives", "false_negatives"),
        )
    },
    ROOT + "auc": (SCORES, LABELS),
    ROOT + "sensitivity_at_specificity": (SCORES, LABELS, 0.4),
    ROOT + "specificity_at_sensitivity": (SCORES, LABELS, 0.4),
    ROOT + "mean": (SCORES,),
    ROOT + "mean_tensor": (SCORES,),
    ROOT + "percentage_less": (SCORES, 0.3),
    ROOT + "mean_relative_error": (SCORES, WEIGHTS, 1 + SCORES),
    ROOT + "mean_iou": (CLASSES[::-1].copy(), CLASSES, 6),
    ROOT + "recall_at_k": (TABLE, CLASSES, 2),
    ROOT + "sparse_recall_at_k": (TABLE, CLASSES[:, None], 2, None),
    ROOT + "sparse_precision_at_k": (TABLE, CLASSES[:, None], 2, 3),
    ROOT + "sparse_average_precision_at_k": (TABLE, CLASSES[:, None], 2),
    ROOT + "sparse_precision_at_top_k": (TOP, CLASSES[:, None], None),
    "sparse_recall_at_top_k": (CLASSES[:, None], TOP, None),
    ROOT + "mean_cosine_distance": (TABLE, TABLE[::-1].copy(), 1),
}


def tensors(values):
    return [tf.constant(each) if isinstance(each, np.ndarray) else each for each in values]


def streamed(origin, name, weights):
    """Returns the value after three updates, and each update."""
    with tf.Graph().as_default(), v1.Session() as session:
        value, update = piece(origin, "metrics." + name)(
            *tensors([*CALLS[name], weights[:, None] if "cosine" in name else weights])
        )
        session.run(v1.local_variables_initializer())
        updates = [session.run(update) for _ in range(3)]
        return [session.run(value), *updates]


def rate(guesses, labels):
    return np.sum(WEIGHTS[guesses & labels]) / np.sum(WEIGHTS[labels])


def relative(true):
    errors = np.abs(SCORES - WEIGHTS)
    return np.sum(WEIGHTS * errors / true) / np.sum(WEIGHTS)


def mean(values):
    return np.sum(WEIGHTS * values) / np.sum(WEIGHTS)


EXPECTED = {
    "accuracy": lambda: mean(GUESSES == LABELS),
    "precision": lambda: rate(LABELS, GUESSES),
    "recall": lambda: rate(GUESSES, LABELS),
    "false_positive_rate": lambda: rate(GUESSES, ~LABELS),
    "false_negative_rate": lambda: rate(~GUESSES, LABELS),
    "true_positives": lambda: 3 * np.sum(WEIGHTS[GUESSES & LABELS]),
    "false_negatives_at_thresholds": lambda: [
        3 * np.sum(WEIGHTS[(each >= SCORES) & LABELS]) for each in THRESHOLDS
    ],
    "precision_at_thresholds": lambda: [rate(LABELS, each < SCORES) for each in THRESHOLDS],
    "mean": lambda: mean(SCORES),
    "mean_tensor": lambda: SCORES,
    "mean_absolute_error": lambda: relative(1),
    "mean_relative_error": lambda: relative(1 + SCORES),
    "root_mean_squared_error": lambda: np.sqrt(mean((SCORES - WEIGHTS) ** 2)),
    "percentage_less": lambda: mean(SCORES < 0.3),
    "mean_cosine_distance": lambda: 1 - mean(np.sum(TABLE * TABLE[::-1], 1)),
    "recall_at_k": lambda: mean(np.any(TOP[:, :2] == CLASSES[:, None], 1)),
    "sparse_recall_at_k": lambda: mean(np.any(TOP[:, :2] == CLASSES[:, None], 1)),
    "sparse_precision_at_top_k": lambda: mean(np.any(CLASSES[:, None] == TOP, 1)) / 3,
}


@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize("name", EXPECTED)
def test_value_after_three_batches(origin, name):
    value = streamed(origin, ROOT + name, WEIGHTS)[0]
    np.testing.assert_allclose(value, EXPECTED[name](), rtol=1e-5)


@pytest.mark.contrib
@pytest.mark.parametrize("name", CALLS)
def test_the_bits_of_contrib(name):
    # Weights that are powers of two have exact sums: a metric adds them up in the order in which
    # its threads come.
    weights = 2.0 ** (np.arange(20) % 3).astype(np.float32)
    for one, other in zip(streamed(OURS, name, weights), streamed("tf", name, weights)):
        assert np.array_equal(one, other)


@pytest.mark.contrib
@pytest.mark.parametrize("name", sorted({*metrics.__all__, *CALLS}))
def test_arguments_and_defaults_are_those_of_contrib(name):
    found, original = [
        [(each.name, each.default) for each in inspect.signature(function).parameters.values()]
        for function in (piece(OURS, "metrics." + name), getattr(tf.contrib.metrics, name))
    ]
    assert found == original


def test_every_metric_is_called():
    forwarded = {old.rpartition(".")[2] for old in old_names.PARAMETERS if ".metrics." in old}
    assert {*metrics.__all__, *forwarded} == {*CALLS, "accuracy"}


@pytest.mark.parametrize("origin", ORIGINS)
def test_collections_and_names(origin):
    with tf.Graph().as_default():
        for name in "streaming_false_positive_rate", "streaming_auc", "streaming_recall_at_k":
            value, update = piece(origin, "metrics." + name)(
                *tensors(CALLS[name]), None, name="own",
                metrics_collections=["values"], updates_collections=["updates"],
            )  # fmt: skip
            assert v1.get_collection("values")[-1] is value
            assert v1.get_collection("updates")[-1] is update
        names = [each.name for each in v1.local_variables()]
        assert names[:2] == [
            f"own/{each}/count:0" for each in ("false_positives", "true_negatives")
        ]
        assert all(name.startswith("own") for name in names)


@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize("name", ["false_positive_rate", "false_negative_rate"])
def test_a_rate_of_weights_below_zero(origin, name):
    """It is 0 where the sum of the weights is not above 0."""
    with tf.Graph().as_default(), v1.Session() as session:
        arguments = tensors([GUESSES, LABELS, -WEIGHTS])
        value, update = piece(origin, "metrics.streaming_" + name)(*arguments)
        assert [value.name, update.name] == [f"{name}/value:0", f"{name}/update_op:0"]
        session.run(v1.local_variables_initializer())
        assert session.run([update, value])[0] == session.run(value) == 0


@pytest.mark.parametrize("origin", ORIGINS)
def test_accuracy_of_one_batch(origin):
    accuracy = piece(origin, "metrics.accuracy")
    words = [["a", "b", "c"], ["a", "x", "c"]]
    plain, weighted = run(
        lambda: (
            accuracy(*map(tf.constant, words)),
            accuracy(*map(tf.constant, words), weights=tf.constant([3.0, 1.0, 0.0])),
        )
    )
    np.testing.assert_allclose([plain, weighted], [2 / 3, 3 / 4], rtol=1e-6)
    with tf.Graph().as_default():
        with pytest.raises(ValueError, match="dtype"):
            accuracy(tf.constant([1.0]), tf.constant([1.0]))
        with pytest.raises(ValueError, match="[dD]type"):
            accuracy(tf.constant([1]), tf.constant(["x"]))


def test_missing_and_unknown_arguments():
    assert "another order" in old_names.advice("tf.contrib.metrics.streaming_accuracy")
    with pytest.raises(TypeError, match="missing a required argument: '?labels"):
        piece(OURS, "metrics.streaming_accuracy")([1])
    with pytest.raises(TypeError, match="unexpected keyword argument 'thresholds'"):
        piece(OURS, "metrics.streaming_auc")([1], [1], thresholds=[1])
