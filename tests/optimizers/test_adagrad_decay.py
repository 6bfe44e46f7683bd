"""Tests AdagradDecay with values computed by hand and with TensorFlow's AdagradOptimizer.

The slot accumulator_decay_power stores the number of decays so far. In AdagradDecayOptimizer, this
slot has the shape of the variable, and only some elements of the slot are used, as in DeepRec. In
AdagradDecayOptimizerV2, this slot has one element per row.
"""

import warnings

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import AdagradDecayOptimizer, AdagradDecayOptimizerV2, GlobalStepWarning
from tests.support import problems, running
from tests.support.oracles import sum_duplicates
from tests.support.running import REF_AND_RESOURCE
from tests.support.xla import with_xla

v1 = tf.compat.v1
BOTH = pytest.mark.parametrize("optimizer", [AdagradDecayOptimizer, AdagradDecayOptimizerV2])
DTYPES = ["float16", "bfloat16", "float32", "float64"]


def run_steps(train_op, count, feed=None):
    """Runs a train op several times in a new Session; returns the open Session."""
    sess = v1.Session()
    sess.run(v1.global_variables_initializer())
    for step in range(count):
        sess.run(train_op, feed(step) if feed else None)
    return sess


def test_two_steps_by_hand():
    # The learning rate is 1, the gradient 1.5. The accumulator starts at 0.25 and is multiplied by
    # 0.5 every 2 steps: whenever (step + 1) // 2 exceeds the number of decays so far.
    # Step 0: 0 > 0 is false; accumulator = 0.25 + 2.25 = 2.5;       w = 10 - 1.5 / sqrt(2.5)
    # Step 1: 1 > 0 is true;  accumulator = 0.5 * 2.5 + 2.25 = 3.5;  w -= 1.5 / sqrt(3.5)
    # Step 2: 1 > 1 is false; accumulator = 3.5 + 2.25 = 5.75;       w -= 1.5 / sqrt(5.75)
    with tf.Graph().as_default():
        w = v1.get_variable("w", initializer=[10.0])
        step = v1.train.get_or_create_global_step()
        optimizer = AdagradDecayOptimizer(1.0, step, 0.25, 2, 0.5)
        train_op = optimizer.apply_gradients([(tf.constant([1.5]), w)], global_step=step)
        sess = run_steps(train_op, 3)
        accumulator, power = (optimizer.get_slot(w, name) for name in optimizer.get_slot_names())
        assert sess.run(accumulator) == [5.75] and sess.run(power) == [1]
        # 1.5/1.58113883 + 1.5/1.87082869 + 1.5/2.39791576 = 0.94868330 + 0.80178373 + 0.62554324
        np.testing.assert_allclose(sess.run(w), [7.62398973], rtol=2e-7)


def test_the_lower_bound_of_the_accumulator():
    with tf.Graph().as_default():
        w = v1.get_variable("w", initializer=[1.0])
        step = v1.train.get_or_create_global_step()
        optimizer = AdagradDecayOptimizer(1.0, step, 0.25, 1, 0.5)
        train_op = optimizer.apply_gradients([(tf.constant([0.0]), w)], global_step=step)
        sess = run_steps(train_op, 9)
        assert sess.run(optimizer.get_slot(w, "accumulator")) == [0.25]  # not 0.25 / 2**9
        assert sess.run(optimizer.get_slot(w, "accumulator_decay_power")) == [9]


@REF_AND_RESOURCE
@BOTH
def test_a_row_without_gradients_for_three_periods_decays_once_at_each_of_its_next_updates(
    optimizer, use_resource
):
    with tf.Graph().as_default():
        w = v1.get_variable("w", initializer=tf.zeros([2, 1]), use_resource=use_resource)
        step = v1.train.get_or_create_global_step()
        made = optimizer(1.0, step, 1.0, 10, 0.5)
        ids = v1.placeholder(tf.int32, [None])
        gradient = tf.IndexedSlices(tf.zeros([tf.size(ids), 1]), ids)
        train_op = made.apply_gradients([(gradient, w)], global_step=step)
        accumulator = made.get_slot(w, "accumulator")
        set_accumulator = accumulator.assign([[64.0], [64.0]])
        power = made.get_slot(w, "accumulator_decay_power")
        sess = run_steps(train_op, 30, lambda _: {ids: [0]})
        sess.run(set_accumulator)
        seen = []
        for _ in range(5):
            sess.run(train_op, {ids: [1]})
            seen.append((sess.run(accumulator)[1, 0], sess.run(power).reshape(-1)[1]))
    assert seen == [(32.0, 1), (16.0, 2), (8.0, 3), (8.0, 3), (8.0, 3)]


@REF_AND_RESOURCE
def test_v1_counts_at_the_flat_element_of_the_row_and_dense_gradients_at_element_0(use_resource):
    with tf.Graph().as_default():
        table = v1.get_variable("table", [4, 3], use_resource=use_resource)
        dense = v1.get_variable("dense", [4, 3], use_resource=use_resource)
        step = v1.train.get_or_create_global_step()
        optimizer = AdagradDecayOptimizer(1.0, step, accumulator_decay_step=1)
        gradient = tf.IndexedSlices(tf.ones([3, 3]), tf.constant([1, 3, 1]))
        train_op = optimizer.apply_gradients(
            [(gradient, table), (tf.ones([4, 3]), dense)], global_step=step
        )
        sess = run_steps(train_op, 2)
        power = sess.run(optimizer.get_slot(table, "accumulator_decay_power"))
        # The counts of rows 1 and 3 are in the flat elements 1 and 3, which are [0, 1] and [1, 0].
        np.testing.assert_array_equal(power, [[0, 2, 0], [2, 0, 0], [0, 0, 0], [0, 0, 0]])
        power = sess.run(optimizer.get_slot(dense, "accumulator_decay_power"))
        assert power[0, 0] == 2 and power.sum() == 2


@REF_AND_RESOURCE
@pytest.mark.parametrize("step_dtype", ["int32", "int64"])
def test_names_shapes_and_dtypes_of_slots(use_resource, step_dtype):
    with tf.Graph().as_default() as graph:
        with v1.variable_scope("scope_emb/inputs"):
            weights = v1.get_variable("weights", [1000, 10], use_resource=use_resource)
        step = v1.get_variable("step", [], step_dtype, v1.zeros_initializer(), trainable=False)
        optimizer = AdagradDecayOptimizer(0.1, step)
        with v1.variable_scope("OptimizeLoss"):
            optimizer.minimize(tf.reduce_sum(tf.gather(weights, [1, 2])), global_step=step)
        prefix = "OptimizeLoss/scope_emb/inputs/weights/AdagradDecay"
        accumulator, power = optimizer.variables()
        assert (accumulator.name, power.name) == (prefix + ":0", prefix + "_1:0")
        assert accumulator.dtype.base_dtype == tf.float32 and power.dtype.base_dtype == step_dtype
        assert accumulator.shape == power.shape == (1000, 10)
        key = (graph, "scope_emb/inputs/weights")
        # In newer versions of TensorFlow, the key contains another object instead of the graph.
        if key not in optimizer._slots["accumulator"]:
            (key,) = optimizer._slots["accumulator"]
            assert key[1] == "scope_emb/inputs/weights"
        assert optimizer._slots == {
            "accumulator": {key: accumulator},
            "accumulator_decay_power": {key: power},
        }
        names = sorted(variable.op.name for variable in v1.global_variables())
        assert names == sorted(["scope_emb/inputs/weights", "step", prefix, prefix + "_1"])


def test_v2_keeps_one_count_per_row():
    with tf.Graph().as_default():
        shapes = {"table": [7, 3], "cube": [5, 2, 2], "vector": [4], "scalar": []}
        pairs = [(tf.ones(shape), v1.get_variable(name, shape)) for name, shape in shapes.items()]
        optimizer = AdagradDecayOptimizerV2(0.1, v1.train.get_or_create_global_step())
        optimizer.apply_gradients(pairs, global_step=v1.train.get_global_step())
        stored = {
            variable.op.name: optimizer.get_slot(variable, "accumulator_decay_power").shape
            for _, variable in pairs
        }
        assert stored == {"table": [7], "cube": [5], "vector": [4], "scalar": []}


def stock_with_decay(problem, arguments, way, layout=1):
    """Trains with TensorFlow's AdagradOptimizer; NumPy decays the accumulators between steps."""
    cast = problems.numpy_dtype(problem.dtype)
    # TensorFlow and NumPy compute 16-bit floats in float32 and round after each operation. The
    # casts below do the same, because old versions of NumPy cannot compute in bfloat16.
    wide = np.float64 if problem.dtype == "float64" else np.float32
    initial, period, rate = arguments
    rate, floor = (wide(cast(np.float32(number))) for number in (rate, initial))
    counts = {
        key: np.zeros(value.shape if layout == 1 else value.shape[:1], np.int64)
        for key, value in problem.values.items()
    }

    def between(sess, optimizer, variables, number):
        for key, gradient in problem.gradients[number].items():
            slot = optimizer.get_slot(variables[key], "accumulator")
            accumulator = np.array(sess.run(slot))
            flat = counts[key].reshape(-1)
            sparse = isinstance(gradient, problems.Rows)
            for row in sum_duplicates(*gradient)[1] if sparse else [0]:
                if (number + 1) // period > flat[row]:
                    at = row if sparse else Ellipsis
                    decayed = (accumulator[at].astype(wide) * rate).astype(cast).astype(wide)
                    accumulator[at] = np.maximum(decayed, floor).astype(cast)
                    flat[row] += 1
            slot.load(accumulator, sess)

    trace = running.session(
        problem,
        lambda _: v1.train.AdagradOptimizer(0.3, initial),
        use_resource=way == "session-resource",
        between=between,
    )
    for key, count in counts.items():
        trace.slots[key, "accumulator_decay_power"] = count
    return trace


@pytest.mark.pairwise(
    optimizer=[AdagradDecayOptimizer, AdagradDecayOptimizerV2],
    way=["session-ref", "session-resource"],
    kind=["dense", "sparse", "duplicates"],
    dtype=DTYPES,
)
def test_equals_stock_adagrad_with_decays_between_the_steps(optimizer, way, kind, dtype):
    problem = problems.make(kind, dtype)
    arguments = (0.25, 4, 0.7)
    expected = stock_with_decay(
        problem, arguments, way, layout=2 if optimizer is AdagradDecayOptimizerV2 else 1
    )
    actual = running.WAYS[way](problem, lambda step: optimizer(0.3, step, *arguments))
    running.assert_same(actual, expected)
    assert all(value.max() > 0 for key, value in actual.slots.items() if "power" in key[1]), (
        "nothing has decayed, so this test checks nothing"
    )


@pytest.mark.in_turn(
    way=list(running.WAYS),
    optimizer=[AdagradDecayOptimizer, AdagradDecayOptimizerV2],
    kind=["dense", "sparse", "duplicates"],
    dtype=DTYPES,
)
def test_equals_stock_adagrad_while_nothing_decays(optimizer, way, kind, dtype):
    problem = problems.make(kind, dtype)
    stock = running.WAYS[way](problem, lambda _: v1.train.AdagradOptimizer(0.3))
    actual = running.WAYS[way](problem, lambda step: optimizer(0.3, step))
    for key in problem.values:
        assert not actual.slots.pop((key, "accumulator_decay_power")).any()
    running.assert_same(actual, stock)


@pytest.mark.parametrize("way", running.WAYS)
@BOTH
def test_the_global_step_may_be_int32(optimizer, way):
    problem = problems.make("duplicates", steps=9, global_step="int32")
    actual = running.WAYS[way](problem, lambda step: optimizer(0.3, step, 0.25, 4, 0.7))
    for key in problem.values:
        power = actual.slots[key, "accumulator_decay_power"]
        assert power.dtype == np.int32 and power.max() > 1
        actual.slots[key, "accumulator_decay_power"] = power.astype(np.int64)
    running.assert_same(
        actual,
        running.WAYS[way](
            problems.make("duplicates", steps=9), lambda step: optimizer(0.3, step, 0.25, 4, 0.7)
        ),
    )


@pytest.mark.parametrize("way", running.WAYS)
def test_a_global_step_of_none_is_the_graphs_or_the_one_advanced(way):
    problem = problems.make("dense")
    running.assert_same(
        running.WAYS[way](problem, lambda _: AdagradDecayOptimizer(0.3, None, 0.25, 4, 0.7)),
        running.WAYS[way](problem, lambda step: AdagradDecayOptimizer(0.3, step, 0.25, 4, 0.7)),
    )


@REF_AND_RESOURCE
def test_the_per_variable_form_computes_the_same(use_resource):
    class OneByOne(AdagradDecayOptimizer):
        def prepare_step(self, grads_and_vars):
            return {}

    problem = problems.make("dense")
    way = running.WAYS["session-resource" if use_resource else "session-ref"]
    running.assert_same(
        way(problem, lambda step: OneByOne(0.3, step, 0.25, 4, 0.7)),
        way(problem, lambda step: AdagradDecayOptimizer(0.3, step, 0.25, 4, 0.7)),
    )


@pytest.mark.filterwarnings("ignore::legacy_opt.GlobalStepWarning")
def test_a_nan_in_one_accumulator_stays_where_it_is_when_another_decays():
    with tf.Graph().as_default():
        a, b = (v1.get_variable(name, initializer=[1.0, 1.0]) for name in "ab")
        step = v1.train.get_or_create_global_step()
        optimizer = AdagradDecayOptimizer(0.1, step, accumulator_decay_step=1)
        only_b = optimizer.apply_gradients([(tf.ones([2]), b)], global_step=step)
        both = optimizer.apply_gradients([(tf.zeros([2]), b), (tf.zeros([2]), a)])
        accumulator = optimizer.get_slot(b, "accumulator")
        poison = accumulator.assign([float("nan"), 1.0])
        sess = run_steps(only_b, 1)
        sess.run(poison)
        sess.run(step.assign(0))
        sess.run(both)  # a decay is due for `a`, but not for `b`
        assert sess.run(optimizer.get_slot(a, "accumulator_decay_power")).tolist() == [1, 0]
        np.testing.assert_array_equal(sess.run(accumulator), [np.nan, 1.0])  # not 1.0 * 0.9
        assert sess.run(optimizer.get_slot(b, "accumulator_decay_power")).tolist() == [1, 0]


@REF_AND_RESOURCE
@BOTH
def test_an_id_that_does_not_exist_changes_nothing_although_a_decay_is_due(optimizer, use_resource):
    with tf.Graph().as_default():
        table = v1.get_variable("table", initializer=tf.ones([4, 2]), use_resource=use_resource)
        ids = v1.placeholder(tf.int64, [None])
        step = v1.train.get_or_create_global_step()
        made = optimizer(0.5, step, accumulator_decay_step=1)
        gradient = tf.IndexedSlices(tf.ones([tf.size(ids), 2]), ids)
        train_op = made.apply_gradients([(gradient, table)], global_step=step)
        state = [table, step] + made.variables()
        with running.started() as sess:
            # Row 4 does not exist, but AdagradDecayOptimizer's slot has a flat element 4. With the
            # counts below, a decay is due for row 1, but not for row 4. Even so, the failing step
            # must change nothing.
            power = made.get_slot(table, "accumulator_decay_power")
            counts = np.full(power.shape, 9)
            counts.reshape(-1)[1] = 0
            power.load(counts, sess)
            before = sess.run(state)
            with pytest.raises(tf.errors.InvalidArgumentError):
                sess.run(train_op, {ids: [1, 4]})
            for one, other in zip(before, sess.run(state)):
                np.testing.assert_array_equal(one, other)


@REF_AND_RESOURCE
@BOTH
def test_a_gradient_that_fails_leaves_the_state_as_it_was(optimizer, use_resource):
    with tf.Graph().as_default():
        dense = v1.get_variable("dense", initializer=tf.ones([4, 2]), use_resource=use_resource)
        table = v1.get_variable("table", initializer=tf.ones([4, 2]), use_resource=use_resource)
        step = v1.train.get_or_create_global_step()
        made = optimizer(0.5, step, accumulator_decay_step=1)
        x = v1.placeholder(tf.float32, [])
        gradient = v1.check_numerics(x, "a gradient") * tf.ones([4, 2])
        train_op = made.apply_gradients(
            [(gradient, dense), (tf.IndexedSlices(gradient[:2], tf.constant([1, 2])), table)],
            global_step=step,
        )
        state = [dense, table, step] + made.variables()
        with running.started() as sess:
            before = sess.run(state)
            for _ in range(20):
                with pytest.raises(tf.errors.InvalidArgumentError, match="a gradient"):
                    sess.run(train_op, {x: float("nan")})
            for one, other in zip(before, sess.run(state)):
                np.testing.assert_array_equal(one, other)


def test_a_global_step_of_another_graph():
    with tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
    with tf.Graph().as_default():
        w = v1.get_variable("w", [2])
        with pytest.raises(ValueError, match="another graph"):
            AdagradDecayOptimizer(0.5, step).apply_gradients([(tf.ones([2]), w)])


def test_two_optimizers_share_a_graph_by_collections():
    with tf.Graph().as_default():
        wide = v1.get_variable("wide", initializer=[1.0], collections=["wide", "variables"])
        deep = v1.get_variable("deep", initializer=[1.0], collections=["deep", "variables"])
        step = v1.train.get_or_create_global_step()
        loss = tf.reduce_sum(wide * deep)
        decaying = AdagradDecayOptimizer(0.5, step, 1.0, 2, 0.5)
        lasting = AdagradDecayOptimizerV2(0.5, step, name="Lasting")
        train_op = tf.group(
            decaying.minimize(loss, var_list=v1.get_collection("wide"), global_step=step),
            silently(lasting).minimize(loss, var_list=v1.get_collection("deep")),
        )
        names = sorted(v.op.name for v in v1.global_variables() if "/" in v.op.name)
        assert names == [
            "deep/Lasting",
            "deep/Lasting_1",
            "wide/AdagradDecay",
            "wide/AdagradDecay_1",
        ]
        assert run_steps(train_op, 3).run(step) == 3


def silently(optimizer):
    """Turns off the GlobalStepWarning of an optimizer, and returns the optimizer."""
    optimizer.global_step_is_advanced = True
    return optimizer


@BOTH
@pytest.mark.parametrize(
    "argument, value, error",
    [
        ("initial_accumulator_value", 0.0, ValueError),
        ("initial_accumulator_value", -1, ValueError),
        ("accumulator_decay_step", 0, ValueError),
        ("accumulator_decay_step", -5, ValueError),
        ("accumulator_decay_step", 2.5, TypeError),
        ("accumulator_decay_rate", 0.0, ValueError),
        ("accumulator_decay_rate", 1.0, ValueError),
        ("accumulator_decay_rate", 1.5, ValueError),
        ("global_step", 7, TypeError),
        ("global_step", "global_step", TypeError),
    ],
)
def test_wrong_arguments(optimizer, argument, value, error):
    arguments = dict({"learning_rate": 0.1, "global_step": None}, **{argument: value})
    with pytest.raises(error, match=argument):
        optimizer(**arguments)


def test_a_global_step_of_the_wrong_dtype_or_shape():
    for step, error in [(tf.constant(1.0), TypeError), (tf.constant([1]), ValueError)]:
        with pytest.raises(error, match="global_step"):
            AdagradDecayOptimizer(0.1, step)


def test_the_warning_that_no_step_is_advanced():
    with tf.Graph().as_default():
        w = v1.get_variable("w", [2])
        step = v1.train.get_or_create_global_step()
        optimizer = AdagradDecayOptimizer(0.1, step)
        with pytest.warns(GlobalStepWarning, match="global_step"):
            optimizer.minimize(tf.reduce_sum(w))
        with pytest.warns(GlobalStepWarning):
            optimizer.apply_gradients([(tf.ones([2]), w)])
        with warnings.catch_warnings():
            warnings.simplefilter("error", GlobalStepWarning)
            optimizer.minimize(tf.reduce_sum(w), global_step=step)
            silently(optimizer).minimize(tf.reduce_sum(w))


def test_the_warning_that_another_step_is_advanced():
    with tf.Graph().as_default():
        w = v1.get_variable("w", [2])
        v1.train.get_or_create_global_step()
        mine = v1.get_variable("mine", [], tf.int64, v1.zeros_initializer(), trainable=False)
        with pytest.warns(GlobalStepWarning, match="step global_step:0, but increments mine:0"):
            AdagradDecayOptimizer(0.1, None).minimize(tf.reduce_sum(w), global_step=mine)


@pytest.mark.parametrize("way", ["session-ref", "session-resource", "eager", "function"])
@BOTH
def test_a_variable_passed_twice_decays_as_in_eager_execution(optimizer, way):
    class Twice(optimizer):
        def apply_gradients(self, grads_and_vars, global_step=None, name=None):
            return super().apply_gradients(list(grads_and_vars) * 2, global_step, name)

    # The order of the two updates in a Session is undefined. With gradients of 0, the order does
    # not matter.
    problem = problems.make("dense", steps=9)
    for gradients in problem.gradients:
        for gradient in gradients.values():
            gradient[...] = 0
    running.assert_same(
        running.WAYS[way](problem, lambda step: Twice(0.3, step, 0.25, 2, 0.7)),
        running.eager(problem, lambda step: Twice(0.3, step, 0.25, 2, 0.7)),
    )


@pytest.mark.parametrize("composed", [False, True])
@BOTH
def test_dense_gradients_compile_under_xla(optimizer, composed):
    options = with_xla()

    def make(step):
        made = optimizer(0.3, step, 0.25, 4, 0.7)
        made.use_fused_kernels = not composed
        return made

    problem = problems.make("dense", steps=9)
    compiled = running.function(problem, make, **options)
    expected = running.eager(problem, make)
    for one, other in zip(compiled.steps, expected.steps):
        for key in other:  # XLA fuses products and sums, and rounds them once, not twice
            np.testing.assert_allclose(one[key], other[key], rtol=1e-5, atol=1e-5)
    for key, value in expected.slots.items():
        if "power" in key[1]:
            np.testing.assert_array_equal(compiled.slots[key], value)
