"""Tests that several batches with GradientAccumulationOptimizer train like one large batch."""

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import ClipByValueOptimizer, GlobalStepWarning, GradientAccumulationOptimizer
from tests.support import problems, running
from tests.support.fed_training import FedTraining
from tests.wrappers.accumulating import (
    BATCHES,
    INNER,
    ROWS,
    WAYS,
    accumulated,
    assert_as_large_batches,
    assert_equal,
    clipped_and_routed,
    large_batches,
    only,
    small_problem,
)

v1 = tf.compat.v1


@pytest.mark.in_turn(
    name=list(INNER),
    kind=["dense", "sparse", "duplicates"],
    way=list(WAYS),
    dtype=["float32", "float16", "float64"],
)
def test_equals_one_large_batch(name, kind, way, dtype):
    problem = small_problem(kind, dtype, name)
    # Eager execution is the cheapest reference. But functions may round differently, because
    # TensorFlow rewrites their graphs. Ref variables may round differently, too, because in old
    # versions (2.4) sparse SGD rounds the learning rate to float32 for ref variables only.
    is_like_eager = way in ("eager", "session-resource")
    expected = WAYS["eager" if is_like_eager else way](large_batches(problem), INNER[name])
    actual = WAYS[way](problem._replace(batches=BATCHES), accumulated(INNER[name]))
    assert_as_large_batches(actual, expected, problem.values)


@pytest.mark.parametrize("use_resource", [False, True])
def test_all_variables_equal_those_of_large_batches(use_resource):
    """After each update, variables have the same names and values as with large batches.

    The variables include slots, beta powers and the global step.
    """
    problem = problems.everything(only=("matrix", "bias", "cube"), steps=2 * BATCHES)
    large = FedTraining(clipped_and_routed, large_batches(problem), use_resource)
    small = FedTraining(accumulated(clipped_and_routed), problem, use_resource)
    expected = large.train(0, 2)
    actual = small.train(0, problem.steps)
    for number, values in enumerate(expected):
        assert_equal(actual[(number + 1) * BATCHES - 1], values, only=values)
    added = set(small.variables) - set(large.variables)
    sums = {"matrix": ["sum"], "bias": ["ids", "rows"], "cube": ["ids", "rows"]}
    assert added == {"GradientAccumulation/count"} | {
        f"{key}/GradientAccumulation/gradient_{each}" for key in sums for each in sums[key]
    }
    counts = [int(values["GradientAccumulation/count"]) for values in actual]
    assert counts == [1, 2, 0, 1, 2, 0]
    assert [int(values["global_step"]) for values in actual] == [0, 0, 1, 1, 1, 2]
    powers = [float(values["beta1_power"]) for values in actual]
    assert powers[0] == powers[1] != powers[2] == powers[4] != powers[5]


@pytest.mark.parametrize("way", WAYS)
def test_values_computed_by_hand(way):
    """Two batches make an update, and the third batch stays accumulated.

    Row 0 of the table has a gradient only in the first batch. Row 1 has gradients in the first two
    batches, and its id is repeated in the second batch.
    """

    def rows(values, ids):
        return problems.Rows(np.array(values, "f")[:, None], np.array(ids, np.int64))

    gradients = [
        {"w": np.array([2.0, 4.0], "f"), "table": rows([2, 4], [0, 1])},
        {"w": np.array([4.0, -4.0], "f"), "table": rows([1, 1], [1, 1])},
        {"w": np.array([8.0, 8.0], "f"), "table": rows([8], [2])},
    ]
    start = {"w": np.array([1.0, 1.0], "f"), "table": np.ones((4, 1), "f")}
    problem = problems.Problem(start, gradients, ("table",), "float32", batches=2)
    trace = WAYS[way](problem, accumulated(lambda _: v1.train.GradientDescentOptimizer(0.5), 2))
    assert [values["w"].tolist() for values in trace.steps] == [[1, 1], [-0.5, 1], [-0.5, 1]]
    tables = [values["table"].ravel().tolist() for values in trace.steps]
    assert tables == [[1, 1, 1, 1], [0.5, -0.5, 1, 1], [0.5, -0.5, 1, 1]]
    assert trace.slots["w", "gradient_sum"].tolist() == [8, 8]
    assert trace.slots["table", "gradient_ids"].tolist() == [2]
    assert trace.slots["table", "gradient_rows"].tolist() == [[8]]


class CountingOptimizer(v1.train.Optimizer):
    """Counts how often it updates a variable."""

    def __init__(self):
        super().__init__(False, "Counting")
        self.updates = 0

    def _apply(self, variable):
        def count(value):
            self.updates += 1
            return value

        with tf.control_dependencies([v1.py_func(count, [tf.constant(1.0)], tf.float32)]):
            return tf.group(variable.assign_sub(tf.ones_like(variable), read_value=False))

    def _apply_dense(self, grad, var):
        return self._apply(var)

    _resource_apply_dense = _apply_dense

    def _apply_sparse(self, grad, var):
        return self._apply(var)

    def _resource_apply_sparse(self, grad, handle, indices):
        return self._apply(handle)


@pytest.mark.parametrize("way", WAYS)
def test_the_inner_optimizer_runs_only_for_updates(way):
    """CountingOptimizer does not use gradients, so only the wrapper can prevent its updates."""
    counting = CountingOptimizer()
    problem = problems.everything(only=("vector", "bias"), steps=7)._replace(batches=BATCHES)
    WAYS[way](problem, accumulated(lambda _: counting))
    assert counting.updates == 2 * len(problem.values)


@pytest.mark.parametrize("use_resource", [False, True])
def test_a_batch_costs_accumulated_rows_not_the_table(use_resource):
    rows = 100000
    with tf.Graph().as_default(), v1.Session() as sess:
        table = v1.get_variable("table", initializer=tf.zeros([rows, 4]), use_resource=use_resource)
        ids = v1.placeholder(tf.int32, [None])
        optimizer = GradientAccumulationOptimizer(v1.train.AdagradOptimizer(1.0), 3)
        train_op = optimizer.minimize(tf.reduce_sum(tf.gather(table, ids)))
        slots = [optimizer.get_slot(table, "gradient_" + name) for name in ROWS]
        sess.run(v1.global_variables_initializer())
        shapes, sizes = [], []
        for touched in [7], [7, 99999], [5, 5, 5], [1], [2], []:
            sizes.append(sizes_of_outputs(sess, train_op, {ids: touched}))
            shapes.append([value.shape for value in sess.run(slots)])
        changed = np.flatnonzero(sess.run(table)[:, 0])
    assert shapes[:3] == [[(1,), (1, 4)], [(3,), (3, 4)], [(0,), (0, 4)]]
    assert shapes[3:] == [[(1,), (1, 4)], [(2,), (2, 4)], [(0,), (0, 4)]]
    assert changed.tolist() == [1, 2, 5, 7, 99999]
    # Only the outputs of these operations may be large: the operations read the table without a
    # copy, or update the table.
    whole = {"table", "table/read", "table/Read", "table/Adagrad"}
    whole.add("Adagrad/update_table/SparseApplyAdagrad")
    for number, of_batch in enumerate(sizes):
        assert any(name.startswith("GradientAccumulation/concat") for name in of_batch)
        large = {name.split("/ReadVariableOp")[0] for name in of_batch if of_batch[name] > 100}
        assert large <= whole, (number, large - whole)


def sizes_of_outputs(sess, operation, feed):
    """Runs an operation; returns the number of elements of each executed node's largest output."""
    trace, found = v1.RunMetadata(), {}
    options = v1.RunOptions(trace_level=v1.RunOptions.SOFTWARE_TRACE)
    sess.run(operation, feed, options=options, run_metadata=trace)
    for device in trace.step_stats.dev_stats:
        for node in device.node_stats:
            for output in node.output:
                sides = [dim.size for dim in output.tensor_description.shape.dim]
                size = int(np.prod(sides)) if sides else 1
                found[node.node_name] = max(found.get(node.node_name, 0), size)
    return found


@pytest.mark.parametrize("use_resource", [False, True])
def test_variables_of_unknown_shape(use_resource):
    with tf.Graph().as_default():
        ones = v1.placeholder_with_default(np.ones([3, 1], "f"), None)
        dense, table = (
            v1.Variable(ones, validate_shape=False, use_resource=use_resource) for _ in range(2)
        )
        gradient, ids = v1.placeholder(tf.float32, None), v1.placeholder(tf.int32, [None])
        optimizer = GradientAccumulationOptimizer(v1.train.GradientDescentOptimizer(1.0), 2)
        rows = tf.IndexedSlices(tf.gather(gradient, ids), ids)
        train_op = optimizer.apply_gradients([(gradient, dense), (rows, table)])
        feeds = [{gradient: [[2.0], [4.0], [6.0]], ids: each} for each in ([0], [2, 2], [1])]
        found = running.after(train_op, [dense, table], feeds=feeds)
    found = [value.ravel().tolist() for value in found]
    assert found == [[-1.0, -3.0, -5.0], [0.0, 1.0, -5.0]]


# In combination with other features.


@pytest.mark.parametrize("use_resource", [False, True])
def test_with_steps_1_the_graph_is_that_of_the_inner_optimizer(use_resource):
    problem = problems.everything(only=("matrix", "table"), steps=1)

    def graph(make):
        training = FedTraining(make, problem, use_resource)
        return training.session.graph.as_graph_def()

    # With an optimizer of TensorFlow the graphs would differ: TensorFlow's optimizers increment the
    # global step with use_locking=False, but the optimizers and wrappers of this package increment
    # it with use_locking=True.
    assert graph(accumulated(INNER["LazyAdam"], 1)) == graph(INNER["LazyAdam"])


@pytest.mark.parametrize("name", [None, "train"])
def test_train_op_is_a_single_named_operation(name):
    with tf.Graph().as_default():
        variable = v1.get_variable("w", initializer=[1.0])
        optimizer = GradientAccumulationOptimizer(v1.train.AdamOptimizer(), 2, name="Sum")
        train_op = optimizer.minimize(variable * variable, name=name)
        assert v1.get_collection(v1.GraphKeys.TRAIN_OP) == [train_op]
        assert train_op.name == (name or "Sum")
        slots = [optimizer.get_slot(variable, slot).op.name for slot in ("gradient_sum", "m", "v")]
        assert slots == ["w/Sum/gradient_sum", "w/Adam", "w/Adam_1"]
        names = {variable.op.name for variable in optimizer.variables()}
        assert names == set(slots) | {"Sum/count", "beta1_power", "beta2_power"}


@pytest.mark.parametrize("way", ["session-ref", "eager", "function"])
def test_schedules_of_the_global_step_count_updates(way):
    problem = small_problem("dense", "float32", "SGD")

    def make(step):
        if way == "eager":  # in eager execution, the schedule returns a number
            return v1.train.GradientDescentOptimizer(lambda: 2.0 ** -float(step.numpy()))
        return v1.train.GradientDescentOptimizer(lambda: 2.0 ** -tf.cast(step, tf.float32))

    expected = WAYS[way](large_batches(problem), make)
    actual = WAYS[way](problem._replace(batches=BATCHES), accumulated(make))
    assert_as_large_batches(actual, expected, problem.values)


@pytest.mark.parametrize("use_resource", [False, True])
def test_inside_clipping_and_itself(use_resource):
    """A clipping wrapper around accumulation clips the gradient of each batch.

    Accumulation of 3 batches around accumulation of 2 batches updates once in 6 batches.
    """
    problem = only(problems.make("dense", steps=6), ["vector"])
    small = problem._replace(
        gradients=[{k: np.clip(g, -0.5, 0.5) for k, g in s.items()} for s in problem.gradients]
    )
    sgd = INNER["SGD"]

    def clipping(step):
        return ClipByValueOptimizer(accumulated(sgd)(step), -0.5, 0.5)

    clipped = FedTraining(clipping, problem, use_resource).train(0, 6)
    expected = running.eager(large_batches(small), sgd).steps
    nested = FedTraining(accumulated(accumulated(sgd, 2)), problem, use_resource).train(0, 6)
    means = running.eager(large_batches(large_batches(problem), 2), sgd).steps
    for actual, value in (
        (clipped[2], expected[0]),
        (clipped[5], expected[1]),
        (nested[5], means[0]),
    ):
        assert_equal(actual, value, only=["vector"])
    assert_equal(nested[4], problem.values, only=["vector"])
    assert nested[5]["global_step"] == 1


@pytest.mark.parametrize("construct", ["cond", "while_loop"])
@pytest.mark.parametrize("use_resource", [False, True])
def test_inside_v1_control_flow(construct, use_resource):
    enabled = v1.control_flow_v2_enabled()
    v1.disable_control_flow_v2()
    try:
        with tf.Graph().as_default():
            optimizer = GradientAccumulationOptimizer(v1.train.MomentumOptimizer(0.5, 0.5), 2)
            found = _train_in(construct, optimizer, use_resource)
    finally:
        if enabled:
            v1.enable_control_flow_v2()
    # Five steps make two updates. The mean gradient of each update is 1.
    np.testing.assert_array_equal(found["w"], [1 - 0.5 - 0.75])
    np.testing.assert_array_equal(found["t"], [[1 - 0.5 - 0.75], [1.0]])


def _train_in(construct, optimizer, use_resource):
    w = v1.get_variable("w", initializer=[1.0], use_resource=use_resource)
    t = v1.get_variable("t", initializer=[[1.0], [1.0]], use_resource=use_resource)
    step = v1.get_variable("step", initializer=np.int64(0), use_resource=use_resource)
    grads = tf.constant([1.0]), tf.IndexedSlices(tf.constant([[0.5], [0.5]]), tf.constant([0, 0]))

    def train(*_):
        with tf.control_dependencies([optimizer.apply_gradients(zip(grads, [w, t]), step)]):
            return tf.constant(1)

    train_op = running.inside(construct, train)
    found = running.after(train_op, {"w": w, "t": t, "step": step}, 5)
    assert found["step"] == 2
    return found


def test_inside_the_mixed_precision_graph_rewrite():
    home = v1.train.experimental  # up to TensorFlow 2.3
    if hasattr(getattr(v1, "mixed_precision", None), "enable_mixed_precision_graph_rewrite"):
        home = v1.mixed_precision
    with tf.Graph().as_default(), v1.Session() as sess:
        w = v1.get_variable("w", initializer=[1.0], use_resource=True)
        optimizer = GradientAccumulationOptimizer(v1.train.GradientDescentOptimizer(0.5), 2)
        try:
            wrapped = home.enable_mixed_precision_graph_rewrite(optimizer, loss_scale="dynamic")
            factor = v1.placeholder(tf.float32, [])
            train_op = wrapped.minimize(w * factor)
        finally:
            home.disable_mixed_precision_graph_rewrite()
        sess.run(v1.global_variables_initializer())
        values = []
        for number in 1.0, np.inf, 2.0, 1.0:  # an infinite gradient is skipped
            sess.run(train_op, {factor: number})
            values += sess.run(w).tolist()
    assert values == [1.0, 1.0, 0.25, 0.25]


class _CountsNoStep(v1.train.GradientDescentOptimizer):
    """Like BERT's optimizer, ignores the global step."""

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        assert global_step is not None and global_step.read_value() is not None
        return super().apply_gradients(grads_and_vars, None, name)


class _CountsInCond(v1.train.GradientDescentOptimizer):
    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        done = super().apply_gradients(grads_and_vars, None, name)
        with tf.control_dependencies([done]):
            return v1.cond(
                tf.constant(True), lambda: v1.assign_add(global_step, 1), lambda: global_step + 0
            ).op


@pytest.mark.parametrize("use_resource", [False, True])
def test_an_inner_optimizer_that_counts_no_step_is_named(use_resource, recwarn):
    def train(optimizer, steps=2, count=True):
        with tf.Graph().as_default():
            with v1.variable_scope("", use_resource=use_resource):
                w = v1.get_variable("w", initializer=[1.0])
                step = v1.train.get_or_create_global_step() if count else None
            wrapper = GradientAccumulationOptimizer(optimizer, steps)
            done = wrapper.minimize(tf.reduce_sum(w * w), step)
            return running.after(done, step if count else [], 4)

    with pytest.warns(GlobalStepWarning, match="_CountsNoStep.apply_gradients does not increment"):
        assert train(_CountsNoStep(0.1)) == 0
    told_not_to = _CountsNoStep(0.1)
    told_not_to.global_step_is_advanced = True
    recwarn.clear()
    assert train(told_not_to) == 0
    assert train(v1.train.AdamOptimizer(0.1)) == 2
    assert train(ClipByValueOptimizer(v1.train.GradientDescentOptimizer(0.1), -1.0, 1.0)) == 2
    if use_resource:
        assert train(_CountsInCond(0.1)) == 2
    train(v1.train.GradientDescentOptimizer(0.1), count=False)
    assert not [each for each in recwarn if each.category is GlobalStepWarning]
