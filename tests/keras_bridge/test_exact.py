"""Tests that v1 optimizers compute the same bits in Keras 2 and 3 (by `to_keras`) as in a Session.

`tests.support.exactness` compares the trained variables after each step, the slots and non-slot
variables before each step except the first, and the slots at the end. docs/keras.md shows the
results of all TensorFlow versions.
"""

import re

import numpy as np
import pytest
import tensorflow as tf

import lanes
from legacy_opt import versions
from tests.support import cases, exactness
from tests.support.exactness import EQUAL, UNSUPPORTED, is_known
from tests.support.keras import keras_cases
from tests.support.keras.keras_apis import OPTIMIZER_V2, of_each
from tests.support.keras.keras_cases import (
    CASES,
    CONTRIB,
    REFUSED,
    TENSORFLOW,
    number_of,
    ways_of_the_day,
)
from tests.support.keras.keras_ways import DTYPES, KERAS_3_WAYS, WAYS, WAYS_OF
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "keras.md").read_text(encoding="utf-8")


def test_every_optimizer_of_tensorflow_has_a_case():
    known = {case.optimizer for case in TENSORFLOW.values()}
    refused = {case.optimizer for case, _ in REFUSED.values()}
    found = set(cases.optimizers_in(tf.compat.v1.train).values())
    if versions.has_contrib():
        known |= {case.optimizer for case in CONTRIB.values()}
        found |= set(cases.optimizers_in(tf.contrib.opt).values())
    assert known | refused == found - {tf.compat.v1.train.Optimizer}


def test_every_optimizer_of_this_package_has_a_case():
    assert set(keras_cases.OURS) == set(cases.CASES)
    assert cases.public_optimizers_with_cases() == set(cases.public_optimizers())


def cells(every):
    """Returns pytest parameters. Cells that run only with --full have the mark `full`.

    Args:
      every: pairs (parameters of a cell, whether the cell also runs without --full).
    """
    return [
        pytest.param(*values, marks=() if is_daily else pytest.mark.full)
        for values, is_daily in every
    ]


def is_daily_in_float32(name, way):
    if way == "function" and (name in TENSORFLOW or name.startswith("AdagradDecay")):
        return True  # tests/tools/mutations.py runs these cells
    return way in ways_of_the_day(name, WAYS, 1)


@pytest.mark.one_lane
@of_each(
    "name, way",
    optimizer_v2=cells(
        ((name, way), is_daily_in_float32(name, way)) for name in CASES for way in WAYS
    ),
    keras3=cells(
        ((name, way), way in ways_of_the_day(name, KERAS_3_WAYS, 1))
        for name in CASES
        for way in KERAS_3_WAYS
    ),
)
def test_float32(api, name, way, cell):
    result = cell(name, way, "float32", api.name)
    # TensorFlow 1.15 rewrites the graphs of Sessions and functions differently, so bits may differ.
    if (name, way) == ("contrib.opt AdamW", "function"):
        assert same(result, way)
    else:
        assert result == EQUAL or is_known(name, way, "float32", result)


def same(result, way):
    """Returns whether the bridge equals v1 in a Session.

    If the way begins with "function", equality with v1 in a `tf.function` is sufficient.
    """
    return result == EQUAL or (way.startswith("function") and result.endswith("as v1 does"))


def cells_of_other_dtypes(api):
    """Returns the cells of one API. In the daily run, each case has one dtype, with one API."""
    return cells(
        ((name, dtype), name not in CONTRIB and (number_of(name) + turn) % 6 == 0)
        for name in CASES
        for turn, dtype in enumerate(DTYPES[1:], 3 * api)
    )


@of_each(
    "name, dtype",
    optimizer_v2=cells_of_other_dtypes(0),
    keras3=cells_of_other_dtypes(1),
)
def test_other_dtypes(api, name, dtype, full, cell):
    """With --full, trains in all ways; otherwise, in one way for each optimizer and dtype."""
    ways = [way for way, how in WAYS_OF[api.name].items() if dtype in how.dtypes]
    turn = (number_of(name) + DTYPES.index(dtype)) % len(ways)
    for way in ways if full else [ways[turn]]:
        result = cell(name, way, dtype, api.name)
        known = result == UNSUPPORTED or is_known(name, way, dtype, result)
        assert known or same(result, way), (way, result)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["Adagrad", "GradientDescent", "Momentum"])
def test_these_train_in_every_dtype(name, dtype, cell):
    assert cell(name, "graph", dtype) == EQUAL


class UsesRateInUpdates(tf.compat.v1.train.Optimizer):
    """Gradient descent that uses its learning rate attribute in its updates, not in `_prepare`.

    TensorFlow 1.15's GradientDescentOptimizer also uses its attribute to apply sparse gradients.
    """

    def __init__(self, learning_rate):
        super().__init__(False, "UsesRateInUpdates")
        self._learning_rate = learning_rate

    def _resource_apply_dense(self, grad, handle):
        return tf.raw_ops.AssignSubVariableOp(
            resource=handle.handle, value=grad * self._learning_rate
        )

    def _resource_apply_sparse(self, grad, handle, indices):
        return tf.raw_ops.ResourceScatterSub(
            resource=handle.handle, indices=indices, updates=grad * self._learning_rate
        )


@pytest.mark.parametrize("dtype", DTYPES)
@of_each(
    "way",
    optimizer_v2=["graph", "function", "eager"],
    keras3=["graph", "function, keras.Variable", "eager"],
)
def test_updates_that_read_the_learning_rate(api, dtype, way, cell, monkeypatch):
    case = keras_cases.KerasCase(UsesRateInUpdates, lambda step: UsesRateInUpdates(0.1))
    monkeypatch.setitem(CASES, "UsesRateInUpdates", case)
    assert cell("UsesRateInUpdates", way, dtype, api.name) == EQUAL


def train_in_a_graph(steps, folder, restored=None):
    """Restores a checkpoint before slots exist, trains, saves; returns all values and a path."""
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        variable = v1.get_variable("w", initializer=[1.0, 2.0, 3.0], use_resource=True)
        optimizer = OPTIMIZER_V2.bridged(v1.train.AdamOptimizer(0.1))
        checkpoint = v1.train.Checkpoint(w=variable, optimizer=optimizer)
        status = checkpoint.restore(restored)
        train_op = optimizer.apply_gradients([(variable * 2 - [1.0, 5.0, -3.0], variable)])
        status.initialize_or_restore(session)
        for _ in range(steps):
            session.run(train_op)
        path = checkpoint.save(str(folder / "state"), session=session)
        return session.run([variable] + optimizer.weights), path


def test_a_graph_is_restored_before_it_has_slots(tmp_path):
    whole, _ = train_in_a_graph(6, tmp_path)
    _, path = train_in_a_graph(2, tmp_path)
    parts, _ = train_in_a_graph(4, tmp_path, path)
    assert len(whole) == len(parts) == 6  # w, iterations, two beta powers, two slots
    assert all(np.array_equal(one, other) for one, other in zip(parts, whole))


@pytest.mark.parametrize("name", REFUSED)
def test_optimizers_that_contain_optimizers_are_refused(api, name):
    case, message = REFUSED[name]
    optimizer = case.make(None)
    with pytest.raises(ValueError, match=message):
        api.bridged(optimizer)


@of_each("way", WAYS, KERAS_3_WAYS)
def test_a_difference_is_reported(api, way, cell, monkeypatch):
    def make(step):  # the bridge passes None, so the learning rates differ
        return tf.compat.v1.train.GradientDescentOptimizer(0.1 if step is None else 0.2)

    case = keras_cases.KerasCase(tf.compat.v1.train.GradientDescentOptimizer, make)
    monkeypatch.setitem(CASES, "wrong", case)
    assert re.fullmatch(r"differs by \d\.\de[-+]\d\d", cell("wrong", way, "float32", api.name))


def test_a_failure_of_the_bridge_alone_is_reported(cell, monkeypatch):
    def make(step):
        if step is None:
            raise ValueError("no step")
        return tf.compat.v1.train.GradientDescentOptimizer(0.1)

    case = keras_cases.KerasCase(tf.compat.v1.train.GradientDescentOptimizer, make)
    monkeypatch.setitem(CASES, "refused", case)
    assert cell("refused", "graph", "float32") == "only the bridge fails: no step"


def test_the_summary_for_the_page_lists_what_is_not_equal():
    ways = dict.fromkeys(WAYS, EQUAL)
    lane = {
        "float32": ways,
        "float16": dict(ways, function="differs by 1.0e-07"),
        "bfloat16": dict.fromkeys(WAYS, UNSUPPORTED),
    }
    assert exactness.summary({"float32": ways}) == "all"
    expected = "function float16: differs by 1.0e-07; without bfloat16"
    assert exactness.summary(lane) == expected


def test_the_page_lists_the_optimizers():
    rows = set(exactness.rows_of(PAGE))
    contrib = {row for row in rows if row.startswith(keras_cases.OF_CONTRIB)}
    newer = {"Ftrl beta"}  # in TensorFlow 1.15, Ftrl has no argument `beta`
    assert newer <= rows
    expected = set(CASES) - set(CONTRIB) - newer
    assert rows - contrib - newer == expected, "run `make matrix`, which needs all lanes"
    if versions.has_contrib():
        assert contrib == set(CONTRIB)


def test_the_page_shows_every_lane():
    header = exactness.table_of(PAGE)[0]
    columns = [word.strip() for word in header.strip("| ").split("|")]
    assert columns[:-1] == ["optimizer"] + [lane.tensorflow for lane in lanes.LANES]
    assert columns[-1].startswith(lanes.LANES[-1].tensorflow + " Keras 3.")
