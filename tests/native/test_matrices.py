"""Tests native kernels of update rules with slots that have one value per row or column."""

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt.programs.program import UnsupportedError
from tests.native.training import is_native
from tests.support import running

v1 = tf.compat.v1


class Lines(legacy_opt.RuleOptimizer):
    """A rule with values per variable, matrix, row, column and element.

    All values are integers, so all sums are exact.
    """

    def __init__(self, rule=None):
        super().__init__(False, "Lines", learning_rate=2.0)
        self._rule = rule

    def slot_layouts(self, variable):
        rank = variable.shape.rank
        axes = {"row": (*range(rank - 2), rank - 2), "column": (*range(rank - 2), rank - 1)}
        return {
            name: legacy_opt.TensorSlot([variable.shape[i] for i in each], axes=each)
            for name, each in axes.items()
        }

    def needs_whole_tensor(self, variable):
        return True

    def rule(self, grad, value, slots, hyper):
        if self._rule is not None:
            return self._rule(grad, value, slots), {}
        row = slots.row + tf.reduce_sum(tf.square(grad), -1)
        column = slots.column + tf.reduce_sum(grad, -2)
        whole = row - 2 * tf.reduce_sum(row, -1, keepdims=True)
        unit = tf.expand_dims(whole, -1) + tf.expand_dims(column, -2) * grad
        change = hyper.learning_rate * unit + tf.reduce_sum(unit) + tf.reduce_sum(value)
        return change, {"row": row, "column": column}


def trained(optimizer, shape, use_resource=True, partitions=None, ids=None):
    """Returns all variables after three steps, and whether a kernel ran."""
    random = np.random.RandomState(0)
    grad = random.randint(-2, 3, shape).astype("float64")
    partitioner = partitions and v1.fixed_size_partitioner(partitions)
    with tf.Graph().as_default() as graph:
        variable = v1.get_variable(
            "w",
            shape,
            tf.float64,
            initializer=v1.ones_initializer(),
            use_resource=use_resource,
            partitioner=partitioner,
        )
        loss = tf.reduce_sum(tf.convert_to_tensor(variable) * grad)
        if ids is not None:
            loss = tf.reduce_sum(tf.gather(variable, ids) * grad[: len(ids)])
        train_op = optimizer.minimize(loss)
        values = running.after(train_op, v1.global_variables(), 3)
        return values, is_native({each.type for each in graph.get_operations()})


def assert_native_is_composed(make, shape, **options):
    composed, native = make(), make()
    composed.native, native.native = "off", "require"
    expected, _ = trained(composed, shape, **options)
    actual, ran = trained(native, shape, **options)
    assert ran
    for found, wanted in zip(actual, expected):
        np.testing.assert_array_equal(found, wanted)


# Kernels process 512 columns at a time. Only the last shape has more columns.
SHAPES = [(4, 8), (1, 1), (2, 3, 5, 6), (3, 1, 4), (700, 600)]


@pytest.mark.parametrize("use_resource", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_all_levels(shape, use_resource):
    make = Lines if np.prod(shape) < 1000 else lambda: Lines(_sum_of_columns)
    assert_native_is_composed(make, shape, use_resource=use_resource)


def _sum_of_columns(grad, value, slots):
    del value, slots
    return tf.expand_dims(tf.reduce_sum(grad, -2), -2) * tf.ones_like(grad)


class Columns(legacy_opt.RuleOptimizer):
    """A rule that copies the value of each row (or column) to elements of another slot."""

    slots = {"copy": legacy_opt.Slot()}

    def __init__(self, axis):
        super().__init__(False, "Columns", learning_rate=1.0)
        self.axis = axis

    def slot_layouts(self, variable):
        slot = legacy_opt.TensorSlot([variable.shape[self.axis]], axes=(self.axis,))
        return dict(super().slot_layouts(variable), line=slot)

    def needs_whole_tensor(self, variable):
        return True

    def rule(self, grad, value, slots, hyper):
        line = slots.line + 1
        wide = tf.expand_dims(line, 0 if self.axis else 1)
        return grad * wide, {"line": line, "copy": wide + tf.zeros_like(grad)}


@pytest.mark.parametrize("axis", [0, 1])
def test_an_element_that_is_a_value_of_its_line(axis):
    assert_native_is_composed(lambda: Columns(axis), (3, 5))


def test_variables_whose_slots_have_other_axes():
    """The optimizer needs one kernel for each axis, although all ranks are equal."""
    optimizer = Columns(0)
    optimizer.native = "require"
    for axis in 0, 1:
        optimizer.axis = axis
        for found, wanted in zip(trained(optimizer, (4, 4))[0], trained(Columns(axis), (4, 4))[0]):
            np.testing.assert_array_equal(found, wanted)


def test_partitions():
    assert_native_is_composed(Lines, (6, 4), partitions=3)


def test_rows_of_a_sparse_gradient():
    assert_native_is_composed(Lines, (6, 4), ids=[4, 1, 4])


REFUSED = {
    "a row's values as if they were columns": (
        lambda grad, value, slots: slots.row * grad,
        "kernels cannot combine the axes",
    ),
    "a sum over the stack": (
        lambda grad, value, slots: grad - tf.reduce_sum(grad, 0, keepdims=True),
        "kernels do not support Sum over some of the axes",
    ),
    "a sum over columns' values": (
        lambda grad, value, slots: grad - tf.reduce_sum(slots.column),
        "kernels do not support Sum over some of the axes",
    ),
    "a column that depends on the sum of all elements": (
        lambda grad, value, slots: grad - tf.expand_dims(slots.column * tf.reduce_sum(grad), -2),
        "kernels cannot compute a value per row or column from a sum over all elements",
    ),
    "a sum over the stack and the rows": (
        lambda grad, value, slots: grad - tf.reduce_sum(slots.row),
        "kernels do not support Sum over some of the axes",
    ),
    "a sum over a row of a constant": (
        lambda grad, value, slots: grad - tf.reduce_sum(tf.ones_like(grad), -1, keepdims=True),
        "kernels do not support Sum of a constant",
    ),
    "a sum that reads a row's slot": (
        lambda grad, value, slots: (
            grad - tf.reduce_sum(grad * tf.expand_dims(slots.row, -1), -1, keepdims=True)
        ),
        "kernels cannot read slots of rows or columns in a sum over rows or columns",
    ),
    "another shape": (
        lambda grad, value, slots: grad - tf.reshape(slots.column, [3, 1, 3]),
        "kernels do not support the operation Reshape",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_kernel_is_refused(name):
    rule, message = REFUSED[name]
    optimizer = Lines(rule)
    optimizer.native = "require"
    with pytest.raises(UnsupportedError, match=message):
        trained(optimizer, (3, 3, 3))
