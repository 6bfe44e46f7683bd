"""Tests that the operations library refuses inputs that do not fit, and then changes no variable.

The inputs are those of graphs that no optimizer creates.
"""

import json
import time

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import versions
from legacy_opt.native.runtime import tensorflow_operations
from tests.native import crafted_graphs
from tests.native.crafted_graphs import FAULTS, GRADIENT_VALUE, HANDLES, START, registered
from tests.support import running
from tests.support.processes import programs

v1 = tf.compat.v1


@pytest.fixture(scope="module")
def outcomes(full):
    """Returns the outcomes of all cases. They run in a child process, which must not crash."""
    words = ("full", "2000") if full else ("daily", "40")
    done = programs.run("-m", "tests.native.crafted_graphs", *words, seconds=600)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert done.returncode == 0, f"after {found[-1:]}: {done.stderr[-2000:]}"
    return found


def test_valid_inputs_are_accepted(outcomes):
    valid = [each for each in outcomes if len(each[0]) == 1]
    assert {names[0] for names, *_ in valid} >= set(crafted_graphs.base_cases())
    for names, kind, message, is_same in valid:
        assert message is None and not is_same, (names, kind, message)


@pytest.mark.parametrize("fault", [*FAULTS, *HANDLES])
def test_a_fault_is_refused(fault, outcomes):
    found = [each for each in outcomes if each[0][1:] == [fault]]
    assert found
    for names, kind, message, is_same in found:
        assert message is not None and is_same, (names, kind)


def test_drawn_inputs_are_valid_or_change_nothing(outcomes):
    drawn = [each for each in outcomes if len(each[0]) > 2]
    assert len(drawn) > 20
    for names, kind, message, is_same in drawn:
        assert message is None or is_same, (names, kind, message)


def trained(variables, use_resource, update):
    """Runs an update of variables with these initial values; returns the new values."""
    with tf.Graph().as_default():
        made = [
            v1.get_variable(f"v{i}", initializer=tf.constant(each), use_resource=use_resource)
            for i, each in enumerate(variables)
        ]
        handles = [each.handle if use_resource else versions.ref_of(each) for each in made]
        operation = update(made, handles)
        return running.after(operation, made)


def values(variables, use_resource):
    """Returns the values of variables as gradients: for ref variables, their own memory."""
    return [each.value() if use_resource else versions.ref_of(each) for each in variables]


@pytest.mark.parametrize("use_resource", [False, True])
def test_gradients_that_are_the_variables_of_the_same_operation(use_resource):
    def update(variables, handles):
        first, _, second, _ = values(variables, use_resource)
        kernel = registered("fading")
        return tensorflow_operations.update(
            tensorflow_operations.load(), kernel, handles, [], [second, first], True
        )

    slot, other = np.ones_like(START), START**2
    found = trained([START, slot, other, slot], use_resource, update)
    expected = [START - other, slot / 2 + other, other - START, slot / 2 + START]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("use_resource", [False, True])
def test_ids_that_are_a_slot_of_the_same_operation(use_resource):
    """The slot counts the updates of each row, so it changes while rows are updated."""
    ids = np.array([1, 2, 0])

    def update(variables, handles):
        rows = values(variables, use_resource)[1]
        kernel = registered("rows")
        gradients = [tf.constant(GRADIENT_VALUE)]
        return tensorflow_operations.update(
            tensorflow_operations.load(), kernel, handles, [], gradients, False, rows
        )

    value, count = trained([START, ids], use_resource, update)
    np.testing.assert_array_equal(count, ids + 1)
    np.testing.assert_array_equal(value, START - GRADIENT_VALUE[[2, 0, 1]])


@pytest.mark.parametrize("shape", [(), (0, 2), (2, 0)])
@pytest.mark.parametrize("use_resource", [False, True])
def test_variables_without_axes_rows_or_columns(shape, use_resource):
    start = np.ones(shape, np.float32)

    def update(_, handles):
        scalars, gradients = [tf.constant(2.0)], [tf.ones(shape)]
        return tensorflow_operations.update(
            tensorflow_operations.load(), registered("dense"), handles, scalars, gradients, False
        )

    value, total, steps = trained([start, start, np.int64(0)], use_resource, update)
    np.testing.assert_array_equal(value, start - 2)
    np.testing.assert_array_equal(total, start + 1)
    assert steps == 1


@pytest.mark.parametrize("shape", [(0, 2), (2**44, 0)])
def test_rows_of_variables_without_elements(shape):
    """A variable without columns may have so many rows that a loop over them takes minutes."""
    before = time.time()
    count = min(shape[0], 1)
    with tf.Graph().as_default(), v1.Session() as session:
        start = tf.fill(tf.constant(shape, tf.int64), 0.0)
        variables = [
            v1.get_variable(name, initializer=start, use_resource=True)
            for name in ("value", "slot")
        ]
        operation = tensorflow_operations.update(
            tensorflow_operations.load(),
            registered("fading"),
            [each.handle for each in variables],
            [],
            [tf.zeros([count, shape[1]])],
            False,
            tf.zeros([count], tf.int64),
        )
        session.run(v1.global_variables_initializer())
        session.run(operation)
    assert time.time() - before < 20


@pytest.mark.parametrize("kernel", ["dense", "rows", "matrix"])
def test_sums_of_a_kernel_without_sums(kernel):
    with tf.Graph().as_default(), v1.Session() as session:
        sums = tensorflow_operations.sums(
            tensorflow_operations.load(), registered(kernel), [tf.ones([3])]
        )
        with pytest.raises(tf.errors.InvalidArgumentError, match="no sums over gradients"):
            session.run(sums)


def test_sums_of_gradients_of_another_dtype():
    with tf.Graph().as_default(), v1.Session() as session:
        found = tensorflow_operations.sums(
            tensorflow_operations.load(), registered("norm"), [tf.ones([3]), tf.ones([2, 2])]
        )
        np.testing.assert_array_equal(session.run(found), [7])
        sums = tensorflow_operations.sums(
            tensorflow_operations.load(), registered("norm"), [tf.ones([3], tf.float64)]
        )
        with pytest.raises(tf.errors.InvalidArgumentError, match="has the dtype 2"):
            session.run(sums)
