"""Tests records of optimizers that clip gradients by their global norm."""

import json
import types

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import recorded
from legacy_opt.recorded.neighbours import grading
from legacy_opt.recorded.numpy import NumpyOptimizer
from tests.recorded.numpy_training import trained
from tests.support import problems, running

v1 = tf.compat.v1
INNER = {
    "LazyAdam": lambda: legacy_opt.LazyAdamOptimizer(0.01),
    "Momentum": lambda: v1.train.MomentumOptimizer(0.1, 0.9),
}
BOTH = pytest.mark.parametrize("sum_duplicates", [True, False])


def clipped(name, limit, sum_duplicates):
    optimizer = legacy_opt.ClipByGlobalNormOptimizer(
        INNER[name](), limit, sum_duplicates=sum_duplicates
    )
    return legacy_opt.native.accelerate(optimizer, require=True)


def record_of(name, limit, sum_duplicates=True, dtype="float32"):
    with tf.Graph().as_default():
        record = recorded.record(clipped(name, limit, sum_duplicates), dtype=dtype)
    assert recorded.loads(recorded.dumps(record)) == record
    return record


@BOTH
@pytest.mark.parametrize("limit", [0.5, 1e6])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", sorted(INNER))
def test_the_bits_of_native_kernels(name, dtype, limit, sum_duplicates):
    problem = problems.everything(dtype, ("matrix", "scalar", "table", "bias"), steps=5)
    expected = running.session(
        problem, lambda step: clipped(name, limit, sum_duplicates), use_resource=True
    )
    found = trained(record_of(name, limit, sum_duplicates, dtype), problem)
    for number, (one, other) in enumerate(zip(found.steps, expected.steps)):
        for each in one:
            np.testing.assert_array_equal(one[each], other[each], f"{each}, step {number}")


def test_by_hand():
    record = record_of("Momentum", 5.0)
    weights = {"a": np.zeros([2], np.float32), "b": np.zeros([], np.float32)}
    optimizer = NumpyOptimizer(record, weights, learning_rate=1.0, momentum=0.0)
    gradients = {"a": np.float32([6, 0]), "b": np.float32(8), "c": None}
    optimizer.step(gradients)
    np.testing.assert_allclose(weights["a"], [-3, 0], rtol=1e-6)
    np.testing.assert_allclose(weights["b"], -4, rtol=1e-6)
    optimizer.hyperparameters["clip_norm"] = 100.0  # above the norm, which is 10
    optimizer.step(gradients)
    np.testing.assert_allclose(weights["a"], [-9, 0], rtol=1e-6)
    optimizer.step({"b": np.float32("inf")})
    assert np.isnan(weights["b"])


def test_a_limit_without_value():
    with tf.Graph().as_default():
        limit = v1.placeholder(tf.float32, [])
        record = recorded.record(clipped("LazyAdam", limit, True))
    weights = {"a": np.zeros([2], np.float32)}
    with pytest.raises(recorded.RecordError, match="clip_norm was no number"):
        NumpyOptimizer(record, weights)
    NumpyOptimizer(record, weights, clip_norm=1.0)


def test_no_other_library_has_the_optimizer():
    record = recorded.load("MomentumOptimizer")._replace(clipping=recorded.records.CLIPPINGS[0])
    state = types.SimpleNamespace(record=record)
    with pytest.raises(recorded.RecordError, match="PyTorch itself clips") as caught:
        grading.chosen(state, "PyTorch", "{}", str, {})
    assert "Momentum" not in str(caught.value)


def test_what_is_refused():
    twice = legacy_opt.ClipByGlobalNormOptimizer(clipped("LazyAdam", 1.0, True), 1.0)
    by_value = legacy_opt.ClipByValueOptimizer(INNER["LazyAdam"](), -1.0, 1.0)
    for optimizer, reason in (twice, "'clip_norm' of its own"), (by_value, "it is a wrapper"):
        with pytest.raises(recorded.RecordError, match=reason):
            recorded.record(optimizer)
    document = json.loads(recorded.dumps(record_of("LazyAdam", 1.0)))
    del document["hyperparameters"]["clip_norm"]
    with pytest.raises(recorded.RecordError, match="no hyperparameter 'clip_norm'"):
        recorded.loads(json.dumps(document))
