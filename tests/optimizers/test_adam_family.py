"""Tests the Adam family: values by hand, names, arguments, and equality with TensorFlow's Adam."""

import inspect
import math
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import (
    AdamAsyncOptimizer,
    AdaMaxOptimizer,
    AdamGSOptimizer,
    DiffGradOptimizer,
    GlobalStepWarning,
    LazyAdamGSOptimizer,
    LazyAdamOptimizer,
    NadamOptimizer,
)
from tests.support import problems, running

v1 = tf.compat.v1
FAMILY = (
    AdamAsyncOptimizer,
    AdamGSOptimizer,
    AdaMaxOptimizer,
    LazyAdamGSOptimizer,
    LazyAdamOptimizer,
    NadamOptimizer,
)
BY_HAND = {"learning_rate": 1.0, "beta1": 0.5, "beta2": 0.75, "epsilon": 1.0}
# The bias correction, sqrt(1 - beta2**t) / (1 - beta1**t), is 1 in step t=1, and R in step t=2:
R = math.sqrt(7 / 16) / 0.75

# All values start at 10. `dense` gets the gradients 2 and -4. In `table`, row 0 gets the gradient 1
# twice in step 1, row 1 gets -4 in step 2, and row 2 gets no gradient. A variant of Adam that
# updates only rows with a gradient computes in steps 1 and 2:
#   dense: m = 0.5 * 2 = 1,             v = 0.25 * 4 = 1,             w = 10 - 1 / (1 + 1)
#          m = 0.5 * 1 - 0.5 * 4 = -1.5, v = 0.75 + 0.25 * 16 = 4.75,  w += R * 1.5 / (√4.75 + 1)
#   table: row 0 like dense in step 1; row 1 in step 2: m = -2, v = 4, w = 10 + R * 2 / (2 + 1)


class Golden(NamedTuple):
    dense: float
    table: list
    m: list
    v: list


TOUCHED_ROWS = Golden(
    9.5 + R * 1.5 / (math.sqrt(4.75) + 1), [9.5, 10 + R * 2 / 3, 10.0], [1.0, -2.0, 0.0], [1, 4, 0]
)
GOLDEN = {
    "LazyAdam": (LazyAdamOptimizer, {}, TOUCHED_ROWS),
    "LazyAdamGS": (LazyAdamGSOptimizer, {}, TOUCHED_ROWS),
    "AdamAsync": (AdamAsyncOptimizer, {}, TOUCHED_ROWS),
    # Row 0 still moves in the second step: m = 0.5, v = 0.75.
    "AdamGS": (
        AdamGSOptimizer,
        {},
        Golden(
            TOUCHED_ROWS.dense,
            [9.5 - R * 0.5 / (math.sqrt(0.75) + 1), 10 + R * 2 / 3, 10.0],
            [0.5, -2.0, 0.0],
            [0.75, 4, 0],
        ),
    ),
    # Nadam replaces m in the update by 0.5 * g + 0.5 * m: 0.5 * 2 + 0.5 * 1 = 1.5 in step 1, and
    # 0.5 * -4 + 0.5 * -1.5 = -2.75 in step 2 (row 1: -3). In step 2 the slots of row 0 decay, but
    # row 0 does not move.
    "Nadam": (
        NadamOptimizer,
        {},
        Golden(
            10 - 1.5 / 2 + R * 2.75 / (math.sqrt(4.75) + 1),
            [10 - 1.5 / 2, 10 + R * 3 / 3, 10.0],
            [0.5, -2.0, 0.0],
            [0.75, 4, 0],
        ),
    ),
    # v is |2| in step 1, and max(0.75 * 2, |-4|) in step 2. The bias corrections are 1 / 0.5 and
    # 1 / 0.75.
    "AdaMax": (
        AdaMaxOptimizer,
        {},
        Golden(
            10 - 2 * 1 / (2 + 1) + 4 / 3 * 1.5 / (4 + 1),
            [10 - 2 * 1 / 3, 10 + 4 / 3 * 2 / 5, 10.0],
            [1.0, -2.0, 0.0],
            [2, 4, 0],
        ),
    ),
    # Row 0: v = 0.25 * 2² = 1, m = 2 / sqrt(1 + 1). Row 1: v = 0.25 * 4² = 4, m = -4 / sqrt(4 + 1).
    "AdamAsync apply_sparse_rmsprop": (
        AdamAsyncOptimizer,
        {"apply_sparse_rmsprop": True},
        Golden(
            TOUCHED_ROWS.dense,
            [10 - math.sqrt(2), 10 + 4 / math.sqrt(5), 10.0],
            [math.sqrt(2), -4 / math.sqrt(5), 0.0],
            [1, 4, 0],
        ),
    ),
}


def make(optimizer, step, **arguments):
    if issubclass(optimizer, AdamGSOptimizer):
        arguments["global_step"] = step
    return optimizer(**arguments)


def small_problem():
    def rows(values, ids):
        return problems.Rows(np.float32(values)[:, None], np.int64(ids))

    values = {"dense": np.float32([10]), "table": np.full([3, 1], 10, np.float32)}
    gradients = [
        {"dense": np.float32([2]), "table": rows([1, 1], [0, 0])},
        {"dense": np.float32([-4]), "table": rows([-4], [1])},
    ]
    return problems.Problem(values, gradients, ("table",), "float32")


@pytest.mark.parametrize("way", ["session-ref", "eager"])
@pytest.mark.parametrize("name", GOLDEN)
def test_two_steps_by_hand(name, way):
    optimizer, options, golden = GOLDEN[name]
    trace = running.WAYS[way](
        small_problem(), lambda step: make(optimizer, step, **BY_HAND, **options)
    )
    np.testing.assert_allclose(trace.steps[-1]["dense"], [golden.dense], rtol=2e-7)
    np.testing.assert_allclose(trace.steps[-1]["table"].ravel(), golden.table, rtol=2e-7)
    np.testing.assert_allclose(trace.slots["table", "m"].ravel(), golden.m, rtol=2e-7)
    np.testing.assert_array_equal(trace.slots["table", "v"].ravel(), golden.v)
    if optimizer is AdamAsyncOptimizer:  # sparse RMSProp does not change the powers
        powers = [0.5, 0.75] if options else [0.5**3, 0.75**3]
        assert [trace.slots["table", f"beta{i}_power"] for i in (1, 2)] == powers
        assert trace.slots["dense", "beta1_power"] == 0.5**3


@pytest.mark.pairwise(
    optimizer=[LazyAdamOptimizer, AdamAsyncOptimizer],
    way=list(running.WAYS),
    dtype=["float16", "float32", "float64"],
    use_locking=[False, True],
)
def test_dense_is_stock_adam(optimizer, way, dtype, use_locking):
    problem = problems.make("dense", dtype)
    arguments = {"learning_rate": 0.03, "epsilon": 1e-3, "use_locking": use_locking}
    actual = running.WAYS[way](problem, lambda _: optimizer(**arguments))
    stock = running.WAYS[way](problem, lambda _: v1.train.AdamOptimizer(**arguments))
    slots = {key: value for key, value in actual.slots.items() if key[1] in "mv"}
    running.assert_same(actual._replace(slots=slots), stock)


TWO_POWERS = ["beta1_power", "beta2_power"]


@pytest.mark.parametrize(
    "optimizer, scalars, slots",
    [
        (LazyAdamOptimizer, TWO_POWERS, ["w/Adam", "w/Adam_1"]),
        (NadamOptimizer, TWO_POWERS, ["w/Adam", "w/Adam_1"]),
        (AdamGSOptimizer, [], ["w/Adam", "w/Adam_1"]),
        (LazyAdamGSOptimizer, [], ["w/Adam", "w/Adam_1"]),
        (AdaMaxOptimizer, ["beta1_power"], ["w/AdaMax", "w/AdaMax_1"]),
        (AdamAsyncOptimizer, ["w/AdamAsync_2", "w/AdamAsync_3"], ["w/AdamAsync", "w/AdamAsync_1"]),
    ],
)
def test_names_and_initial_values_of_variables(optimizer, scalars, slots):
    with tf.Graph().as_default():
        w = v1.get_variable("w", [4, 3], tf.float16)
        step = v1.train.get_or_create_global_step()
        made = make(optimizer, step)
        made.apply_gradients([(tf.ones([4, 3], tf.float16), w)], global_step=step)
        found = {v.op.name: (v.dtype.base_dtype, v.shape.as_list()) for v in made.variables()}
        assert found == {
            **{name: (tf.float32, []) for name in scalars},
            **{name: (tf.float16, [4, 3]) for name in slots},
        }
        assert [made.get_slot(w, name).op.name for name in ("m", "v")] == slots
        with running.started() as sess:
            for variable in made.variables():
                starts = {"": 0.0, "1_power": 0.9, "2_power": 0.999, "_2": 0.9, "_3": 0.999}
                name = variable.op.name
                end = next(e for e in sorted(starts, reverse=True) if name.endswith(e))
                np.testing.assert_array_equal(sess.run(variable), np.float32(starts[end]))


@pytest.mark.parametrize("optimizer", FAMILY)
def test_arguments_are_the_originals(optimizer):
    arguments = "learning_rate=0.001, beta1=0.9, beta2=0.999, epsilon=1e-08, use_locking=False"
    name = {AdaMaxOptimizer: "AdaMax", AdamAsyncOptimizer: "AdamAsync"}.get(optimizer, "Adam")
    if optimizer is AdamAsyncOptimizer:
        arguments += ", apply_sparse_rmsprop=False"
    if issubclass(optimizer, AdamGSOptimizer):
        arguments = "global_step=0, " + arguments
    found = inspect.signature(optimizer).parameters.values()
    found = ", ".join(str(each.replace(annotation=each.empty)) for each in found)
    assert found == f"{arguments}, name={name!r}"


def test_a_constant_step_corrects_every_step_like_the_first():
    w = tf.Variable([10.0])
    optimizer = AdamGSOptimizer(**BY_HAND)
    with pytest.warns(GlobalStepWarning, match="constant global_step=0"):
        for _ in range(2):
            optimizer.apply_gradients([(tf.constant([2.0]), w)])
    # In steps 1 and 2, m is 1 and 1.5, v is 1 and 1.75, and the bias correction is 1.
    expected = 10 - 1 / (1 + 1) - 1.5 / (math.sqrt(1.75) + 1)
    np.testing.assert_allclose(w.numpy(), [expected], rtol=2e-7)


def test_a_variable_of_adam_async_counts_its_own_updates():
    one, other = tf.Variable([10.0]), tf.Variable([10.0])
    optimizer = AdamAsyncOptimizer(**BY_HAND)
    optimizer.apply_gradients([(tf.constant([2.0]), one)])
    optimizer.apply_gradients([(tf.constant([-4.0]), one), (tf.constant([2.0]), other)])
    np.testing.assert_allclose(one.numpy(), [GOLDEN["AdamAsync"][2].dense], rtol=2e-7)
    np.testing.assert_array_equal(other.numpy(), [9.5])  # as `one` after its first update


@pytest.mark.parametrize("optimizer", FAMILY)
@pytest.mark.parametrize("way", ["session-ref", "session-resource", "function"])
def test_hyperparameters_may_be_tensors_and_callables(optimizer, way):
    def of_tensors(step):
        tensors = {name: tf.constant(value) for name, value in BY_HAND.items()}
        return make(optimizer, step, **dict(tensors, beta1=lambda: tf.constant(0.5)))

    actual = running.WAYS[way](small_problem(), of_tensors)
    numbers = running.WAYS[way](small_problem(), lambda step: make(optimizer, step, **BY_HAND))
    running.assert_same(actual, numbers)


def test_powers_have_the_dtype_of_a_tensor_beta():
    with tf.Graph().as_default():
        w = v1.get_variable("w", [], tf.float64, v1.zeros_initializer())
        optimizer = LazyAdamOptimizer(beta1=tf.constant(0.9, tf.float64))
        train_op = optimizer.apply_gradients([(tf.constant(1.0, tf.float64), w)])
        powers = {v.op.name: v for v in optimizer.variables() if "power" in v.name}
        powers = running.after(train_op, powers)
        assert powers == {"beta1_power": 0.9 * 0.9, "beta2_power": np.square(np.float32(0.999))}
        assert powers["beta1_power"].dtype == np.float64


@pytest.mark.parametrize("optimizer", FAMILY)
@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"beta1": 1.0}, "beta1 must be at least 0 and less than 1, got 1.0"),
        ({"beta2": -0.1}, "beta2 must be at least 0 and less than 1, got -0.1"),
        ({"epsilon": -1e-8}, "epsilon must not be negative, got -1e-08"),
    ],
)
def test_numbers_out_of_range(optimizer, arguments, message):
    with pytest.raises(ValueError, match=message):
        optimizer(**arguments)


@pytest.mark.parametrize(
    "optimizer, hook, instead",
    [(each, "_apply_sparse_shared", "sparse_rule") for each in FAMILY]
    + [(each, "_get_beta_accumulators", "non_slots") for each in FAMILY],
)
def test_overriding_methods_that_only_the_originals_call_is_refused(optimizer, hook, instead):
    mixin = type("Mixin", (), {hook: lambda self: None})
    for bases, contents in [((optimizer,), vars(mixin)), ((mixin, optimizer), {})]:
        contents = {key: value for key, value in contents.items() if key == hook}
        with pytest.raises(TypeError, match=f"never calls Mine.{hook}, .*{instead}"):
            type("Mine", bases, contents)


@pytest.mark.parametrize("optimizer", FAMILY)
def test_the_learning_rate_under_stock_adams_name(optimizer):
    class Mine(optimizer):
        def __init__(self, rate):
            self._lr = rate
            super().__init__(learning_rate=rate)

        def _prepare(self):
            super()._prepare()
            seen.append([float(x) for x in (self._lr_t, self._beta1_t, self._epsilon_t)])
            self._lr_t = self._lr_t * 0

    seen, w = [], tf.Variable([1.0])
    made = Mine(0.5)
    assert made._lr == 0.5
    made._lr = 0.25
    if optimizer in (AdamGSOptimizer, LazyAdamGSOptimizer):
        made.global_step_is_advanced = True
    made.apply_gradients([(tf.constant([1.0]), w)])
    np.testing.assert_allclose(seen, [[0.25, 0.9, 1e-8]], rtol=1e-6)
    assert w.numpy() == [1.0]
    with pytest.raises(ValueError, match="learning_rate must be finite"):
        made._lr = float("nan")


def test_a_gradient_in_the_buffer_of_a_ref_variable():
    value = np.arange(1, 2**16 + 1, dtype=np.float32)
    for _ in range(5):
        with tf.Graph().as_default(), v1.Session() as sess:
            # tf.identity(w) may return the buffer of the ref variable w. The update overwrites w.
            w = v1.get_variable("w", initializer=value, use_resource=False)
            optimizer = DiffGradOptimizer(0.5)
            optimizer.use_fused_kernels = False
            train_op = optimizer.apply_gradients([(tf.identity(w), w)])
            sess.run(v1.global_variables_initializer())
            sess.run(train_op)
            np.testing.assert_array_equal(sess.run(optimizer.get_slot(w, "prev_grad")), value)
            assert np.all(sess.run(w) < value)
