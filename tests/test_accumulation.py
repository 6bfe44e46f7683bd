"""GradientAccumulationOptimizer: several batches train as one large batch."""

import functools
import os

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import (
    AdagradDecayOptimizer,
    ClipByGlobalNormOptimizer,
    ClipByValueOptimizer,
    GradientAccumulationOptimizer,
    LazyAdamOptimizer,
    MultiOptimizer,
)
from tests import problems, running
from tests.fed_training import FedTraining

v1 = tf.compat.v1
# Sessions compute what is written: where graphs regroup products depends on what else is in them.
WAYS = dict(
    running.WAYS,
    **{
        "session-ref": functools.partial(running.session, config=running.AS_WRITTEN),
        "session-resource": functools.partial(
            running.session, use_resource=True, config=running.AS_WRITTEN
        ),
        "function": functools.partial(running.function, autograph=False),
    },
)
ROWS = ("ids", "rows")
BATCHES = 3  # no power of two: a product with 1/3 is another number than a third


def clipped_and_routed(step):
    names = ["matrix", "table", "cube"]
    adam, momentum = v1.train.AdamOptimizer(0.1, epsilon=1e-3), v1.train.MomentumOptimizer(0.1, 0.9)
    decaying = AdagradDecayOptimizer(0.1, step, accumulator_decay_step=2)
    routes = [(momentum, "vector|bias"), (decaying, "cube"), (adam, "|".join(names[:2]))]
    return ClipByGlobalNormOptimizer(MultiOptimizer(routes, v1.train.FtrlOptimizer(0.1)), 0.5)


INNER = {
    "SGD": lambda step: v1.train.GradientDescentOptimizer(0.1),
    "Momentum": lambda step: v1.train.MomentumOptimizer(0.1, 0.9),
    "Adam": lambda step: v1.train.AdamOptimizer(0.1, epsilon=1e-3),
    "AdagradDecay": lambda step: AdagradDecayOptimizer(0.1, step, accumulator_decay_step=2),
    "LazyAdam": lambda step: LazyAdamOptimizer(0.1, epsilon=1e-3),
    "accumulate(clip(multi))": clipped_and_routed,
}


def accumulated(make, steps=BATCHES, **arguments):
    return lambda step: GradientAccumulationOptimizer(make(step), steps, **arguments)


def some(kind, dtype, name):
    """Returns few batches, for two variables, or for one of each route."""
    problem = problems.make(kind, dtype, steps=2 * BATCHES)
    if "multi" in name:
        return problem
    return only(problem, ["matrix", "scalar"] if kind == "dense" else ["table", "bias"])


def only(problem, names):
    """The same problem with some of its variables."""
    return problem._replace(
        values={name: problem.values[name] for name in names},
        gradients=[{name: step[name] for name in names} for step in problem.gradients],
        sparse=tuple(name for name in problem.sparse if name in names),
    )


def large_batches(problem, batches=BATCHES):
    """The same problem in large batches, each of whose gradients is the mean of some."""
    gradients = []
    for first in range(0, problem.steps, batches):
        part = problem.gradients[first : first + batches]
        gradients.append({name: mean([step[name] for step in part]) for name in part[0]})
    return problem._replace(gradients=gradients)


def mean(gradients):
    dtype = getattr(gradients[0], "values", gradients[0]).dtype
    wide = np.float64 if dtype == np.float64 else np.float32

    def divided(total):
        return np.asarray(np.asarray(total, wide) / wide(len(gradients)), dtype)

    if isinstance(gradients[0], problems.Rows):
        values = divided(np.concatenate([gradient.values for gradient in gradients]))
        return problems.Rows(values, np.concatenate([gradient.ids for gradient in gradients]))
    total = np.zeros_like(gradients[0], wide)
    for gradient in gradients:
        total = total + gradient
    return divided(total)


def assert_as_large_batches(actual, expected, start, batches=BATCHES):
    """Asserts that values stay between the updates and have the expected bits after each."""
    before = start
    for number, values in enumerate(actual.steps):
        if (number + 1) % batches == 0:
            before = expected.steps[number // batches]
        for name, value in before.items():
            running._assert_equal(values[name], value, "%s after batch %d" % (name, number))
    for key, slot in expected.slots.items():
        running._assert_equal(actual.slots[key], slot, str(key))
    added = {name for _, name in set(actual.slots) - set(expected.slots)}
    assert added <= {"gradient_sum", "gradient_ids", "gradient_rows"} and added


@pytest.mark.in_turn(4)
@pytest.mark.cells(
    name=list(INNER),
    kind=["dense", "sparse", "duplicates"],
    way=list(WAYS),
    dtype=["float32", "float16", "float64"],
)
def test_equals_one_large_batch(name, kind, way, dtype):
    problem = some(kind, dtype, name)
    # What is cheapest to run; functions are rewritten, which changes bits.
    expected = WAYS[way if "function" in way else "eager"](large_batches(problem), INNER[name])
    actual = WAYS[way](problem._replace(batches=BATCHES), accumulated(INNER[name]))
    assert_as_large_batches(actual, expected, problem.values)


@pytest.mark.in_turn
@pytest.mark.parametrize("use_resource", [False, True])
def test_all_variables_equal_those_of_large_batches(use_resource):
    """Powers of beta and the global step too; all have the names that they have without."""
    problem = problems.everything(only=("matrix", "bias", "cube"), steps=2 * BATCHES)
    large = FedTraining(clipped_and_routed, large_batches(problem), use_resource)
    small = FedTraining(accumulated(clipped_and_routed), problem, use_resource)
    expected = large.train(0, 2)
    actual = small.train(0, problem.steps)
    for number, values in enumerate(expected):
        assert_equal(actual[(number + 1) * BATCHES - 1], values, only=values)
    added = set(small.variables) - set(large.variables)
    kept = {"matrix": ["sum"], "bias": ["ids", "rows"], "cube": ["ids", "rows"]}
    assert added == {"GradientAccumulation/count"} | {
        "%s/GradientAccumulation/gradient_%s" % (key, each) for key in kept for each in kept[key]
    }
    counts = [int(values["GradientAccumulation/count"]) for values in actual]
    assert counts == [1, 2, 0, 1, 2, 0]
    assert [int(values["global_step"]) for values in actual] == [0, 0, 1, 1, 1, 2]
    powers = [float(values["beta1_power"]) for values in actual]
    assert powers[0] == powers[1] != powers[2] == powers[4] != powers[5]


def assert_equal(actual, expected, only=None):
    """Asserts that values by name have the same bits; all, or only those of some names."""
    assert only is not None or set(actual) == set(expected)
    for key in only or expected:
        running._assert_equal(np.asarray(actual[key]), np.asarray(expected[key]), key)


@pytest.mark.in_turn
@pytest.mark.parametrize("way", WAYS)
def test_by_hand(way):
    """Row 0 is touched in the first batch only, row 1 in both and twice in one of them."""

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
    """Counts how often its updates run."""

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


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("way", WAYS)
def test_nothing_inside_runs_between_the_updates(way):
    """Its update depends on no gradient, and would not wait for one."""
    counting = CountingOptimizer()
    problem = problems.everything(only=("vector", "bias"), steps=7)._replace(batches=BATCHES)
    WAYS[way](problem, accumulated(lambda _: counting))
    assert counting.updates == 2 * len(problem.values)


@pytest.mark.parametrize("use_resource", [False, True])
def test_a_batch_costs_the_rows_that_are_kept_not_the_table(use_resource):
    rows = 100000
    with tf.Graph().as_default(), v1.Session() as sess:
        table = v1.get_variable("table", initializer=tf.zeros([rows, 4]), use_resource=use_resource)
        ids = v1.placeholder(tf.int32, [None])
        optimizer = GradientAccumulationOptimizer(v1.train.AdagradOptimizer(1.0), 3)
        train_op = optimizer.minimize(tf.reduce_sum(tf.gather(table, ids)))
        kept = [optimizer.get_slot(table, "gradient_" + name) for name in ROWS]
        sess.run(v1.global_variables_initializer())
        shapes, sizes = [], []
        for touched in [7], [7, 99999], [5, 5, 5], [1], [2], []:
            sizes.append(sizes_of_outputs(sess, train_op, {ids: touched}))
            shapes.append([value.shape for value in sess.run(kept)])
        changed = np.flatnonzero(sess.run(table)[:, 0])
    assert shapes[:3] == [[(1,), (1, 4)], [(3,), (3, 4)], [(0,), (0, 4)]]
    assert shapes[3:] == [[(1,), (1, 4)], [(2,), (2, 4)], [(0,), (0, 4)]]
    assert changed.tolist() == [1, 2, 5, 7, 99999]
    # The variables, which nobody copies; the last one returns that which it updates.
    whole = {"table", "table/read", "table/Read", "table/Adagrad"}
    whole.add("Adagrad/update_table/SparseApplyAdagrad")
    for number, of_batch in enumerate(sizes):
        assert any(name.startswith("GradientAccumulation/concat") for name in of_batch)
        large = {name.split("/ReadVariableOp")[0] for name in of_batch if of_batch[name] > 100}
        assert large <= whole, (number, large - whole)


def sizes_of_outputs(sess, operation, feed):
    """Runs an operation; returns of each node that ran how many elements its largest output has."""
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


# Restarts.


@pytest.mark.parametrize("use_resource", [True, pytest.param(False, marks=pytest.mark.full)])
def test_a_restart_loses_nothing(use_resource, tmp_path):
    problem = problems.everything(only=("matrix", "table"), steps=8)
    stopping = (1, 5)
    training = FedTraining(accumulated(INNER["Adam"]), problem, use_resource)
    expected, paths = [], []
    for first, last in (0, 1), (1, 5), (5, 8):
        expected += training.train(first, last)
        paths.append(training.save(str(tmp_path / ("after-%d" % last))))
    restarted = FedTraining(accumulated(INNER["Adam"]), problem, use_resource)
    for saved_after, path in zip(stopping, paths):  # the second time over what the first one left
        restarted.restore(path)
        for one, other in zip(restarted.train(saved_after, 8), expected[saved_after:]):
            assert_equal(one, other)


class SavesAtTheEnd(v1.train.SessionRunHook):
    """TensorFlow's own hook does so only if it has no checkpoint of this global step."""

    def __init__(self, saver, folder):
        self.saver, self.path = saver, os.path.join(folder, "model.ckpt")

    def end(self, session):
        step = v1.train.get_global_step()
        self.saver.save(session, self.path, step, write_meta_graph=False)


def test_sessions_that_end_in_the_middle(tmp_path):
    """At a global step that is in a checkpoint already, as the first Session does at 0."""
    problem = problems.everything(only=("matrix", "table"), steps=8)
    folder = str(tmp_path)
    training = FedTraining(accumulated(INNER["Adam"]), problem)
    expected = training.train(0, 8)[-1]
    with training.session.graph.as_default():
        for first, last in (0, 2), (2, 8):
            with v1.train.MonitoredTrainingSession(
                checkpoint_dir=folder,
                scaffold=v1.train.Scaffold(saver=training.saver),
                hooks=[SavesAtTheEnd(training.saver, folder)],
                save_summaries_steps=None,
                save_summaries_secs=None,
                log_step_count_steps=None,
            ) as sess:
                for gradients in problem.gradients[first:last]:
                    sess.run(training.train_op, running._feed(training.placeholders, gradients))
    reader = v1.train.NewCheckpointReader(v1.train.latest_checkpoint(folder))
    actual = {name: reader.get_tensor(name) for name in training.variables}
    assert_equal(actual, expected)
    assert actual["GradientAccumulation/count"] == 2


@pytest.mark.in_turn
@pytest.mark.parametrize("way", ["eager", "function"])
def test_an_object_checkpoint_loses_nothing(way, tmp_path):
    problem = only(problems.everything(steps=8), ["scalar", "bias"])

    def objects():
        variables = {name: tf.Variable(value) for name, value in problem.values.items()}
        step = tf.Variable(np.int64(0))
        optimizer = accumulated(INNER["Adam"])(step)
        checkpoint = tf.train.Checkpoint(optimizer=optimizer, step=step, **variables)

        def train(tensors):
            pairs = running._as_gradients(problem, tensors, variables)
            optimizer.apply_gradients(pairs, global_step=step)

        if way == "function":
            signature = [running.signature(problem)]
            train = tf.function(train, input_signature=signature, autograph=False)
        return variables, checkpoint, train

    def run(train, first, last):
        for gradients in problem.gradients[first:last]:
            train(tf.nest.map_structure(tf.constant, running._plain(gradients)))

    expected, checkpoint, train = objects()
    run(train, 0, 5)
    path = checkpoint.save(str(tmp_path / "model"))
    run(train, 5, 8)
    actual, checkpoint, train = objects()
    for before in 0, 2:  # at first before there is anything, then over other sums
        run(train, 0, before)
        checkpoint.restore(path).assert_existing_objects_matched()
        run(train, 5, 8)
        for name, variable in expected.items():
            running._assert_equal(actual[name].numpy(), variable.numpy(), name)
        assert int(checkpoint.step.numpy()) == 2


def test_a_checkpoint_goes_on_with_fewer_steps(tmp_path):
    """The update is due at once, and takes the mean of what is there."""
    problem = only(problems.make("dense", steps=5), ["vector"])
    sgd = INNER["SGD"]
    four = FedTraining(accumulated(sgd, 4), problem)
    four.train(0, 3)
    two = FedTraining(accumulated(sgd, 2), problem)
    two.restore(four.save(str(tmp_path / "model")))
    actual = two.train(3, 5)
    (expected,) = running.eager(large_batches(problem, 4)._replace(batches=1), sgd).steps[:1]
    assert_equal(actual[0], expected, only=["vector"])
    assert [int(values["GradientAccumulation/count"]) for values in actual] == [0, 1]


def test_partitioned_variables(tmp_path):
    """Each part keeps its own rows, and a restart has them."""
    path = str(tmp_path / "model")
    with tf.Graph().as_default(), v1.Session() as sess:
        ones, halves = v1.ones_initializer(), v1.fixed_size_partitioner(2)
        table = v1.get_variable("table", [6, 2], initializer=ones, partitioner=halves)
        dense = v1.get_variable("dense", [4, 1], initializer=ones, partitioner=halves)
        ids = v1.placeholder(tf.int64, [None])
        rows = v1.nn.embedding_lookup(table, ids, partition_strategy="div")
        loss = tf.reduce_sum(rows * rows) + tf.reduce_sum(tf.square(tf.convert_to_tensor(dense)))
        optimizer = GradientAccumulationOptimizer(v1.train.AdagradOptimizer(0.5), 2)
        train_op = optimizer.minimize(loss)
        saver, start = v1.train.Saver(), v1.global_variables_initializer()
        sess.run(start)
        sess.run(train_op, {ids: [0, 5]})
        saver.save(sess, path)
        sess.run(start)  # and nothing is kept any more
        saver.restore(sess, path)
        sess.run(train_op, {ids: [5, 3]})
        actual = sess.run([tf.convert_to_tensor(each) for each in (table, dense)])
    # The mean is half of the gradient of both batches, 2 for each touch. `dense` is in each.
    touches = np.array([[1], [0], [0], [1], [0], [2]])
    expected = 1 - 0.5 * touches / np.sqrt(0.1 + touches**2) * np.ones((6, 2))
    np.testing.assert_allclose(actual[0], expected, 1e-6)
    np.testing.assert_allclose(actual[1], 1 - 0.5 * 2 / np.sqrt(0.1 + 4) * np.ones((4, 1)), 1e-6)
    saved = {name for name, _ in v1.train.list_variables(path)}
    kept = {"table/part_%d/GradientAccumulation/gradient_%s" % (n, k) for n in (0, 1) for k in ROWS}
    assert kept | {"dense/GradientAccumulation/gradient_sum"} <= saved


@pytest.mark.in_turn
@pytest.mark.parametrize("use_resource", [False, True])
def test_variables_of_unknown_shape(use_resource):
    with tf.Graph().as_default(), v1.Session() as sess:
        ones = v1.placeholder_with_default(np.ones([3, 1], "f"), None)
        dense, table = (
            v1.Variable(ones, validate_shape=False, use_resource=use_resource) for _ in range(2)
        )
        gradient, ids = v1.placeholder(tf.float32, None), v1.placeholder(tf.int32, [None])
        optimizer = GradientAccumulationOptimizer(v1.train.GradientDescentOptimizer(1.0), 2)
        rows = tf.IndexedSlices(tf.gather(gradient, ids), ids)
        train_op = optimizer.apply_gradients([(gradient, dense), (rows, table)])
        sess.run(v1.global_variables_initializer())
        for touched in [0], [2, 2], [1]:
            sess.run(train_op, {gradient: [[2.0], [4.0], [6.0]], ids: touched})
        found = [value.ravel().tolist() for value in sess.run([dense, table])]
    assert found == [[-1.0, -3.0, -5.0], [0.0, 1.0, -5.0]]


# As one among others.


@pytest.mark.in_turn
@pytest.mark.parametrize("use_resource", [False, True])
def test_one_step_is_the_optimizer_itself(use_resource):
    problem = problems.everything(only=("matrix", "table"), steps=1)

    def graph(make):
        training = FedTraining(make, problem, use_resource)
        return training.session.graph.as_graph_def()

    assert graph(accumulated(INNER["Adam"], 1)) == graph(INNER["Adam"])


@pytest.mark.parametrize("name", [None, "train"])
def test_one_operation_is_the_step(name):
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


@pytest.mark.in_turn
@pytest.mark.parametrize("way", ["session-ref", "eager", "function"])
def test_schedules_see_the_updates(way):
    problem = some("dense", "float32", "SGD")

    def make(step):
        if way == "eager":  # where a schedule is a function
            return v1.train.GradientDescentOptimizer(lambda: 2.0 ** -float(step.numpy()))
        return v1.train.GradientDescentOptimizer(lambda: 2.0 ** -tf.cast(step, tf.float32))

    expected = WAYS[way](large_batches(problem), make)
    actual = WAYS[way](problem._replace(batches=BATCHES), accumulated(make))
    assert_as_large_batches(actual, expected, problem.values)


@pytest.mark.in_turn
@pytest.mark.parametrize("use_resource", [False, True])
def test_inside_clipping_and_itself(use_resource):
    """Clipped batch by batch; and two times three batches make six."""
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


@pytest.mark.in_turn
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
    # Two gradients of 1 a mean; then another one.
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
    with v1.Session() as sess:
        sess.run(v1.global_variables_initializer())
        for _ in range(5):
            sess.run(train_op)
        found = sess.run({"w": w, "t": t, "step": step})
    assert found["step"] == 2
    return found


def test_inside_the_mixed_precision_graph_rewrite():
    home = v1.mixed_precision if hasattr(v1, "mixed_precision") else v1.train.experimental
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
        for number in 1.0, np.inf, 2.0, 1.0:  # one that is not finite is skipped
            sess.run(train_op, {factor: number})
            values += sess.run(w).tolist()
    assert values == [1.0, 1.0, 0.25, 0.25]


# Gradients that are not there, or of another kind.


@pytest.mark.in_turn
@pytest.mark.parametrize("use_resource", [False, True])
def test_a_variable_without_a_gradient_is_left_out(use_resource):
    with tf.Graph().as_default(), v1.Session() as sess:
        a, b = (v1.get_variable(n, initializer=1.0, use_resource=use_resource) for n in "ab")
        optimizer = GradientAccumulationOptimizer(v1.train.AdamOptimizer(), 2)
        train_op = optimizer.minimize(a * a, var_list=[a, b])
        sess.run(v1.global_variables_initializer())
        sess.run(train_op)
        sess.run(train_op)
        assert sess.run(a) < 1 and sess.run(b) == 1
        assert optimizer.get_slot(b, "m") is None and optimizer.get_slot(b, "gradient_sum") is None


def test_gradients_that_come_and_go():
    """Where there is none it counts as zero, also in the batch with which the update comes."""
    a, b, c = (tf.Variable(1.0) for _ in "abc")
    optimizer = GradientAccumulationOptimizer(v1.train.GradientDescentOptimizer(1.0), 2)
    one = tf.constant(1.0)
    optimizer.apply_gradients([(one, a), (None, b), (None, c)])
    optimizer.apply_gradients([(None, a), (one, b), (None, c)])
    assert [v.numpy() for v in (a, b, c)] == [0.5, 0.5, 1.0]
    optimizer.apply_gradients([(None, a), (one, b), (None, c)])
    optimizer.apply_gradients([(None, a), (one, b), (None, c)])
    assert [v.numpy() for v in (a, b, c)] == [0.5, -0.5, 1.0]


@pytest.mark.parametrize("sparse_first", [True, False])
def test_a_variable_with_dense_and_sparse_gradients(sparse_first):
    table = tf.Variable(tf.ones([3, 1]))
    optimizer = GradientAccumulationOptimizer(v1.train.GradientDescentOptimizer(1.0), 2)
    grads = [
        tf.IndexedSlices(tf.ones([2, 1]), tf.constant([1, 1])),
        tf.constant([[2.0], [0.0], [4.0]]),
    ]
    for grad in grads if sparse_first else grads[::-1]:
        optimizer.apply_gradients([(grad, table)])
    np.testing.assert_array_equal(table.numpy(), [[0.0], [0.0], [-1.0]])


def test_small_gradients_of_16_bits_are_not_lost():
    """1 + 2**-11 is 1 in float16, as often as it is added."""
    w = tf.Variable(tf.constant([0.0], tf.float16))
    optimizer = GradientAccumulationOptimizer(v1.train.GradientDescentOptimizer(1.0), 7)
    for gradient in [1.0] + [2.0**-11] * 6:
        optimizer.apply_gradients([(tf.constant([gradient], tf.float16), w)])
    assert w.numpy()[0] == np.float16(-(1 + 6 * 2.0**-11) / 7) != np.float16(-1.0 / 7)


class RememberingOptimizer(v1.train.Optimizer):
    """Does nothing with the gradients; TensorFlow 1.15 has no optimizer for complex ones."""

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        self.gradients = [grad.numpy().tolist() for grad, _ in grads_and_vars]


def test_complex_gradients_keep_both_parts():
    w = tf.Variable([1 + 1j, 1 + 2j], dtype=tf.complex64)
    inner = RememberingOptimizer(False, "Remembering")
    optimizer = GradientAccumulationOptimizer(inner, 2)
    for gradient in 1 + 2j, 3 - 1j:
        optimizer.apply_gradients([(tf.constant([gradient, 0j], tf.complex64), w)])
    assert inner.gradients == [[2 + 0.5j, 0]]


def test_xla():
    w, table = tf.Variable([1.0]), tf.Variable([[1.0]])
    optimizer = GradientAccumulationOptimizer(v1.train.MomentumOptimizer(1.0, 0.5), 2)

    def dense(gradient):
        optimizer.apply_gradients([(gradient, w)])

    other = GradientAccumulationOptimizer(v1.train.GradientDescentOptimizer(1.0), 2)

    def sparse(gradient):
        other.apply_gradients([(tf.IndexedSlices(gradient[None], tf.constant([0])), table)])

    train = compiled(dense)
    for _ in range(4):
        train(tf.constant([1.0]))
    assert w.numpy() == 1 - 1 - 1.5
    # TensorFlow up to 2.1 does not tell for what it builds a function.
    errors, message = (
        (ValueError, tf.errors.InvalidArgumentError),
        "XLA cannot compile|not compilable",
    )
    with pytest.raises(errors, match=message):
        compiled(sparse)(tf.constant([1.0]))


def compiled(function):
    for name in ("jit_compile", "experimental_compile"):  # its name before TensorFlow 2.5
        try:
            return tf.function(function, autograph=False, **{name: True})
        except TypeError:
            continue
    return pytest.skip("this tf.function cannot ask for XLA")


# Errors.


@pytest.mark.parametrize(
    "optimizer, steps, name, error, message",
    [
        ("adam", 2, "A", TypeError, "holds tf.compat.v1.train.Optimizer instances, got 'adam'"),
        (v1.train.AdamOptimizer, 2, "A", TypeError, "Pass an instance, not the class"),
        (v1.train.AdamOptimizer(), 0, "A", ValueError, "steps must be positive, got 0"),
        (v1.train.AdamOptimizer(), -1, "A", ValueError, "steps must be positive, got -1"),
        (v1.train.AdamOptimizer(), 2.0, "A", TypeError, "steps must be an integer, got 2.0"),
        (v1.train.AdamOptimizer(), True, "A", TypeError, "steps must be a number, got True"),
        (v1.train.AdamOptimizer(), "2", "A", TypeError, "steps must be a number, got '2'"),
        (v1.train.AdamOptimizer(), 2, None, TypeError, "name must be a string"),
    ],
)
def test_wrong_arguments(optimizer, steps, name, error, message):
    with pytest.raises(error, match=message):
        GradientAccumulationOptimizer(optimizer, steps, name)


def test_wrong_gradients():
    a, b = tf.Variable([1.0], name="a"), tf.Variable([1.0], name="b")
    one = tf.constant([1.0])
    rows = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0]))

    def apply(*pairs):
        optimizer = GradientAccumulationOptimizer(v1.train.GradientDescentOptimizer(1.0), 2)
        optimizer.apply_gradients(pairs)

    for pairs, error, message in [
        ([(None, a), (None, b)], ValueError, "no gradient for any of the variables: a:0, b:0"),
        ([], ValueError, "no gradient for any of the variables: there are none"),
        ([(one, a), (one, a)], ValueError, "variable 'a:0' twice"),
        ([(tf.ones([2]), a)], ValueError, "variable 'a:0' has shape .*2.*expected .*1"),
        ([(rows, a)], ValueError, "sparse gradient of variable 'a:0' has shape"),
        ([(tf.constant([1]), a)], TypeError, "variable 'a:0' has dtype int32"),
        ([(one, "a")], TypeError, "'a' is no variable"),
    ]:
        with pytest.raises(error, match=message):
            apply(*pairs)


def test_a_wrong_step_is_told_before_it_is_needed():
    a, optimizer = tf.Variable([1.0]), GradientAccumulationOptimizer(v1.train.AdamOptimizer(), 2)
    with pytest.raises(TypeError, match="global_step must be a variable.*got 3"):
        optimizer.apply_gradients([(tf.constant([1.0]), a)], global_step=3)


def test_other_variables_than_before():
    """Neither of two steps would update all that is kept, and both would count."""
    message = "one optimizer for each list of variables"
    optimizer = GradientAccumulationOptimizer(v1.train.GradientDescentOptimizer(1.0), 2)
    with tf.Graph().as_default():
        a, b = (v1.get_variable(name, initializer=1.0) for name in "ab")
        optimizer.minimize(a * a, var_list=[a])
        with pytest.raises(
            ValueError, match="without a gradient of the variable 'b:0'.*" + message
        ):
            optimizer.minimize(a * b, var_list=[a, b])
        with pytest.raises(
            ValueError, match="without a gradient of the variable 'b:0'.*" + message
        ):
            optimizer.minimize(b * b, var_list=[b])
    a, b, one = tf.Variable(1.0), tf.Variable(1.0), tf.constant(1.0)
    optimizer.apply_gradients([(one, a)])  # another graph, or none, has nothing to do with it
    with pytest.raises(ValueError, match="variables that this call leaves out.*" + message):
        optimizer.apply_gradients([(one, b)])


def test_two_steps_of_one_graph_share_the_sums():
    with tf.Graph().as_default(), v1.Session() as sess:
        a, b = (v1.get_variable(name, initializer=1.0) for name in "ab")
        optimizer = GradientAccumulationOptimizer(v1.train.GradientDescentOptimizer(1.0), 2)
        both = optimizer.apply_gradients([(tf.constant(1.0), a), (tf.constant(1.0), b)])
        only_a = optimizer.apply_gradients([(tf.constant(3.0), a), (None, b)])
        sess.run(v1.global_variables_initializer())
        sess.run(both)
        sess.run(only_a)
        assert sess.run([a, b]) == [-1.0, 0.5]


def test_with_sync_replicas():
    """It waits for an update a call, so that everybody would wait for ever."""
    adam = v1.train.AdamOptimizer()
    with tf.Graph().as_default():
        sync = v1.train.SyncReplicasOptimizer(adam, replicas_to_aggregate=1)
        adam.itself = adam  # nobody goes round in circles
        for inner in sync, ClipByGlobalNormOptimizer(sync, 1.0):
            with pytest.raises(ValueError, match="cannot hold.*replicas_to_aggregate=steps"):
                GradientAccumulationOptimizer(inner, 2)
        step = v1.train.get_or_create_global_step()
        w = v1.get_variable("w", initializer=[[1.0]])
        inner = ClipByGlobalNormOptimizer(GradientAccumulationOptimizer(adam, 2), 1.0)
        for loss in w * w, tf.gather(w, [0]):
            sync = v1.train.SyncReplicasOptimizer(inner, replicas_to_aggregate=1)
            with pytest.raises(ValueError, match="cannot be in.*replicas_to_aggregate=steps"):
                sync.minimize(loss, step)
        inner = GradientAccumulationOptimizer(adam, 1)
        v1.train.SyncReplicasOptimizer(inner, replicas_to_aggregate=1).minimize(w * w, step)


def test_in_a_distribution_strategy():
    strategy = tf.distribute.MirroredStrategy(["cpu:0"])
    run = getattr(strategy, "run", None) or strategy.experimental_run_v2
    with strategy.scope():
        w = tf.Variable(1.0)

    def train(steps):
        optimizer = GradientAccumulationOptimizer(v1.train.GradientDescentOptimizer(0.5), steps)

        def replica():
            optimizer.apply_gradients([(tf.constant(1.0), w)])

        return lambda: run(replica)

    with pytest.raises(ValueError, match="does not run in a tf.distribute strategy"):
        train(2)()
    tf.function(train(1))()
    assert w.numpy() == 0.5
