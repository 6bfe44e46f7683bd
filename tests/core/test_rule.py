"""Tests of RuleOptimizer: comparisons with TensorFlow, slot layouts, hyperparameters, errors.

A rule is the method `rule` of a subclass. It computes the update of one variable.
"""

import inspect
import textwrap
import warnings

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import Addition, RowSlot, RuleOptimizer, ScalarSlot, Slot, TensorSlot
from tests.support import problems, rules, running

v1 = tf.compat.v1

# Adam's epsilon is 1e-3, because 1e-8 is 0 in float16, and Adam would divide 0 by 0.
PAIRS = {
    "adagrad": (lambda _: rules.AdagradRule(0.3), lambda _: v1.train.AdagradOptimizer(0.3)),
    "momentum": (
        lambda _: rules.MomentumRule(0.3, 0.9),
        lambda _: v1.train.MomentumOptimizer(0.3, 0.9),
    ),
    "nesterov": (
        lambda _: rules.MomentumRule(0.3, 0.9, use_nesterov=True),
        lambda _: v1.train.MomentumOptimizer(0.3, 0.9, use_nesterov=True),
    ),
    "adam": (
        lambda _: rules.AdamRule(0.03, epsilon=1e-3),
        lambda _: v1.train.AdamOptimizer(0.03, epsilon=1e-3),
    ),
}


@pytest.mark.in_turn(
    way=list(running.WAYS),
    name=list(PAIRS),
    kind=["dense", "sparse", "duplicates"],
    dtype=["float16", "float32", "float64"],
)
def test_a_rule_equals_the_stock_kernel(name, way, kind, dtype):
    problem = problems.make(kind, dtype)
    make_rule, make_stock = PAIRS[name]
    actual = running.WAYS[way](problem, make_rule)
    stock = running.WAYS[way](problem, make_stock)
    if way == "eager" and kind == "dense":
        running.assert_same(actual, stock)
        return
    # In all other cases, the rounding may differ: graph rewriting may regroup a rule's products,
    # and TensorFlow's sparse kernels compute in a different order. The bound is 2 units in the last
    # place for each training step.
    assert set(actual.slots) == set(stock.slots)
    eps = float(np.finfo(dtype).eps)
    for number, (ours, theirs) in enumerate(zip(actual.steps, stock.steps)):
        for key, value in theirs.items():
            bound = 2 * eps * (number + 1) * max(1.0, np.abs(value).max())
            assert np.abs(ours[key].astype(float) - value.astype(float)).max() <= bound
    for key, value in stock.slots.items():
        bound = 2 * eps * problem.steps * max(1.0, np.abs(value).max())
        assert np.abs(actual.slots[key].astype(float) - value.astype(float)).max() <= bound


def test_the_rule_of_the_docstring_computes_its_formula():
    text = inspect.getdoc(RuleOptimizer)
    start = text.index("    class DampedAdagradOptimizer")
    code = textwrap.dedent(text[start : text.index("    w = tf.Variable")])
    assert len(code.splitlines()) < 30
    names = {"legacy_opt": legacy_opt, "tf": tf}
    exec(code, names)
    problem = problems.make("duplicates")
    trace = running.session_ref(problem, lambda _: names["DampedAdagradOptimizer"](0.1))
    for key, value in problem.values.items():
        w, accumulator = value.copy(), np.full_like(value, 0.1)
        for gradients in problem.gradients:
            g = problems.dense(gradients[key], w)
            accumulator += g * g
            w -= np.float32(0.1) * g / (np.sqrt(accumulator) + np.float32(1e-3))
        np.testing.assert_allclose(trace.steps[-1][key], w, rtol=1e-5, atol=1e-6)


class Swap(RuleOptimizer):
    """Stores the inputs of `rule` in slots. Inputs may alias the buffers of ref variables."""

    slots = {"one": Slot(1.0), "two": Slot(2.0), "previous": Slot(), "last_gradient": Slot()}

    def rule(self, grad, value, slots, hyper):
        return grad, {"one": slots.two, "two": slots.one, "previous": value, "last_gradient": grad}


@pytest.mark.parametrize("kind", ["dense", "duplicates"])
@pytest.mark.parametrize("way", running.WAYS)
def test_inputs_that_a_rule_returns_as_slots_are_not_overwritten(way, kind):
    problem = problems.make(kind, steps=7)
    trace = running.WAYS[way](problem, lambda _: Swap(False, "Swap"))
    visits = {key: np.zeros(value.shape[:1], int) for key, value in problem.values.items()}
    for gradients in problem.gradients:
        for key, gradient in gradients.items():
            at = np.unique(gradient.ids) if kind != "dense" else Ellipsis
            visits[key][at] += 1
    for key, count in visits.items():
        count = count.reshape(count.shape + (1,) * (problem.values[key].ndim - 1))
        odd = np.broadcast_to(count % 2 == 1, problem.values[key].shape)
        np.testing.assert_array_equal(trace.slots[key, "one"], np.where(odd, 2.0, 1.0))
        np.testing.assert_array_equal(trace.slots[key, "two"], np.where(odd, 1.0, 2.0))
        if kind == "dense":
            np.testing.assert_array_equal(trace.slots[key, "previous"], trace.steps[-2][key])
            np.testing.assert_array_equal(
                trace.slots[key, "last_gradient"], problem.gradients[-1][key]
            )


@pytest.mark.parametrize("use_resource", [False, True])
def test_identical_variables_stay_identical_when_a_rule_stores_the_raw_gradient(use_resource):
    # The gradient of this loss may alias the variable's buffer. If the buffer is overwritten too
    # early, the two variables become different.
    with tf.Graph().as_default():
        twins = [
            v1.get_variable(
                name,
                [64, 64],
                initializer=v1.random_normal_initializer(seed=1),
                use_resource=use_resource,
            )
            for name in ("a", "b")
        ]
        loss = tf.add_n([tf.reduce_sum(tf.square(twin)) * 0.05 for twin in twins])
        train_op = Swap(False, "Swap").minimize(loss)
        one, other = running.after(train_op, twins, 50)
    np.testing.assert_array_equal(one, other)


class Layouts(RuleOptimizer):
    """Has a RowSlot, a ScalarSlot and a TensorSlot. Each update adds constants to the slots."""

    def slot_layouts(self, variable):
        return {
            "rows": RowSlot(dtype=tf.int64),
            "visits": ScalarSlot(dtype=tf.int32),
            "columns": TensorSlot([2], initial_value=5.0),
        }

    def rule(self, grad, value, slots, hyper):
        rows = slots.rows + 1
        change = tf.zeros_like(value) + tf.cast(rows, value.dtype) * tf.ones_like(value)
        return change, {"rows": rows, "visits": Addition(1), "columns": slots.columns + [1.0, 2.0]}


@pytest.mark.parametrize("use_resource", [False, True])
@pytest.mark.parametrize("static_shape", [True, False])
def test_layouts(use_resource, static_shape):
    with tf.Graph().as_default():
        shape = [4, 3] if static_shape else None
        x = v1.get_variable(
            "x",
            initializer=v1.placeholder_with_default(tf.zeros([4, 3]), shape),
            validate_shape=static_shape,
            use_resource=use_resource,
        )
        optimizer = Layouts(False, "Layouts")
        values = v1.placeholder_with_default(tf.zeros([3, 3]), [None, 3] if static_shape else None)
        sparse = optimizer.apply_gradients([(tf.IndexedSlices(values, [3, 1, 3]), x)])
        dense = optimizer.apply_gradients(
            [(v1.placeholder_with_default(tf.zeros([4, 3]), shape), x)]
        )
        slots = [optimizer.get_slot(x, name) for name in ("rows", "visits", "columns")]
        with v1.Session() as sess:
            # This fails if the initializer of a slot reads an uninitialized variable.
            sess.run(v1.global_variables_initializer())
            for train_op in (sparse, dense, sparse):
                sess.run(train_op)
            value, rows, visits, columns = sess.run([x] + slots)
    np.testing.assert_array_equal(rows, [1, 3, 1, 3])
    np.testing.assert_array_equal(value, -np.outer([1, 6, 1, 6], np.ones(3)))
    assert visits == 3 and rows.dtype == np.int64 and visits.dtype == np.int32
    np.testing.assert_array_equal(columns, [8.0, 11.0])


def test_a_tensor_slot_of_unknown_shape():
    with pytest.raises(ValueError, match="shape must be fully defined, got"):
        TensorSlot([None, 2])


class NormStep(RuleOptimizer):
    """Computes w -= learning_rate * g / |g|. The norm |g| needs the whole gradient."""

    whole_tensor = True

    def __init__(self, learning_rate, use_locking=False, name="NormStep"):
        super().__init__(use_locking, name, learning_rate=learning_rate)

    def rule(self, grad, value, slots, hyper):
        return hyper.learning_rate * grad / tf.norm(grad), {}


@pytest.mark.parametrize("way", running.WAYS)
def test_a_rule_with_whole_tensor_gets_dense_gradients(way):
    problem = problems.make("duplicates", "float64", steps=3)
    trace = running.WAYS[way](problem, lambda _: NormStep(0.5))
    for key, w in problem.values.items():
        w = w.copy()
        for gradients in problem.gradients:
            g = problems.dense(gradients[key], w)
            w -= 0.5 * g / np.sqrt((g * g).sum())
        np.testing.assert_allclose(trace.steps[-1][key], w, rtol=1e-12, atol=1e-14)


class HalfForRows(NormStep):
    """Computes w -= learning_rate * g / 2 for sparse gradients."""

    whole_tensor = False

    def sparse_rule(self, grad, value, slots, hyper):
        return hyper.learning_rate * grad / 2, {}


@pytest.mark.parametrize("way", running.WAYS)
def test_sparse_rule_applies_sparse_gradients(way):
    problem = problems.Problem(
        {"dense": np.float32([3, 5]), "rows": np.float32([3, 5])},
        [{"dense": np.float32([6, 8]), "rows": problems.Rows(np.float32([6]), np.int64([1]))}],
        ("rows",),
        "float32",
    )
    trace = running.WAYS[way](problem, lambda _: HalfForRows(0.5))
    np.testing.assert_allclose(trace.steps[-1]["dense"], [2.7, 4.6], rtol=1e-6)  # -= 0.5 * g / 10
    np.testing.assert_array_equal(trace.steps[-1]["rows"], [3.0, 3.5])


@pytest.mark.parametrize("way", running.WAYS)
def test_initial_values_of_slots_may_be_numbers_tensors_and_callables(way):
    class Starts(NormStep):
        def slot_layouts(self, variable):
            return {
                "number": Slot(0.25),
                "tensor": Slot(tf.constant(0.25)),
                "callable": ScalarSlot(lambda: 0.25, tf.float64),
                "of_a_tensor": ScalarSlot(lambda: tf.constant(0.25), tf.float16),
                "columns": TensorSlot([2], tf.constant(0.25)),
            }

    problem = problems.make("dense", steps=1)
    trace = running.WAYS[way](problem, lambda _: Starts(0.5))
    for (key, name), slot in trace.slots.items():
        shape, dtype = problem.values[key].shape, np.float32
        if name in ("callable", "of_a_tensor"):
            shape, dtype = (), {"callable": np.float64, "of_a_tensor": np.float16}[name]
        elif name == "columns":
            shape = (2,)
        assert slot.dtype == dtype
        np.testing.assert_array_equal(slot, np.full(shape, 0.25, dtype))
    assert len(trace.slots) == 5 * len(problem.values)


def one_step(optimizer, value=2.0, gradient=1.0, dtype=tf.float32, steps=1, during=None):
    """Trains a scalar variable in a Session; returns its final value."""
    with tf.Graph().as_default():
        x = v1.get_variable("x", initializer=tf.constant(value, dtype))
        made = optimizer() if callable(optimizer) else optimizer
        train_op = made.apply_gradients([(tf.constant(gradient, dtype), x)])
        with running.started() as sess:
            for _ in range(steps):
                sess.run(train_op)
                if during is not None:
                    during(sess)
            return sess.run(x)


class Sgd(RuleOptimizer):
    def __init__(self, learning_rate, use_locking=False, name="Sgd"):
        super().__init__(use_locking, name, learning_rate=learning_rate)

    def rule(self, grad, value, slots, hyper):
        return hyper.learning_rate * grad, {}


def test_hyperparameters_may_be_numbers_tensors_variables_and_callables():
    assert one_step(Sgd(0.5)) == 1.5
    assert one_step(Sgd(1)) == 1.0
    assert one_step(Sgd(np.float32(0.5))) == 1.5
    assert one_step(lambda: Sgd(tf.constant(0.5))) == 1.5
    assert one_step(Sgd(lambda: 0.5)) == 1.5
    assert one_step(Sgd(lambda: tf.constant(0.5, tf.float64))) == 1.5


def test_a_learning_rate_variable_is_read_at_every_step():
    class Rate:
        def make(self):
            self.variable = v1.get_variable("rate", initializer=0.5, trainable=False)
            self.decay = self.variable.assign(self.variable * 0.5)
            return Sgd(self.variable)

    rate = Rate()
    assert one_step(rate.make, steps=3, during=lambda sess: sess.run(rate.decay)) == 2 - 0.875


def test_a_float64_variable_sees_hyperparameters_rounded_to_float32_as_in_stock_tensorflow():
    assert one_step(Sgd(0.1), dtype=tf.float64) == 2.0 - np.float64(np.float32(0.1))


def test_a_hyperparameter_with_the_name_of_an_attribute():
    with pytest.raises(ValueError, match="'slots'"):
        RuleOptimizer(False, "Clash", slots=0.5)


@pytest.mark.parametrize("dtype", [tf.int32, tf.complex64])
def test_variables_that_cannot_be_trained(dtype):
    with tf.Graph().as_default():
        x = v1.get_variable("x", [2], dtype, v1.zeros_initializer())
        with pytest.raises(TypeError, match="cannot train variable 'x:0' of dtype " + dtype.name):
            Sgd(0.1).apply_gradients([(tf.zeros([2], dtype), x)])


def test_a_rule_that_returns_an_undeclared_slot():
    class Wrong(Sgd):
        def rule(self, grad, value, slots, hyper):
            return grad, {"momentun": grad}

    with pytest.raises(ValueError, match="momentun"):
        one_step(Wrong(0.1))


def test_a_class_without_a_rule():
    class Missing(RuleOptimizer):
        pass

    with pytest.raises(NotImplementedError, match=r"Missing must define rule\("):
        one_step(Missing(False, "Missing"))


@pytest.mark.filterwarnings("ignore::legacy_opt.GlobalStepWarning")
def test_use_locking_without_a_locking_kernel_warns():
    with pytest.warns(legacy_opt.UseLockingWarning, match="'x:0'"):
        one_step(Sgd(0.1, use_locking=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error", legacy_opt.UseLockingWarning)
        one_step(
            lambda: legacy_opt.AdagradDecayOptimizer(
                0.1, v1.train.get_or_create_global_step(), use_locking=True
            )
        )


@pytest.mark.parametrize("use_resource", [False, True])
def test_subclasses_may_override_the_summing_of_duplicate_ids(use_resource):
    class LastWins(Sgd):
        """Applies only the last row of a gradient, instead of the sum of rows with equal ids."""

        def _last(self, values, indices):
            return values[-1:], indices[-1:]

        def _resource_apply_sparse_duplicate_indices(self, grad, handle, indices):
            return self._resource_apply_sparse(
                *(lambda values, ids: (values, handle, ids))(*self._last(grad, indices))
            )

        def _apply_sparse_duplicate_indices(self, grad, var):
            values, ids = self._last(grad.values, grad.indices)
            return self._apply_sparse(tf.IndexedSlices(values, ids), var)

    with tf.Graph().as_default():
        x = v1.get_variable("x", initializer=tf.zeros([3, 1]), use_resource=use_resource)
        gradient = tf.IndexedSlices(tf.constant([[1.0], [5.0]]), tf.constant([2, 2]))
        train_op = LastWins(1.0).apply_gradients([(gradient, x)])
        np.testing.assert_array_equal(running.after(train_op, x), [[0], [0], [-5]])


def test_non_slot_variables_have_stock_names_and_advance_once_per_step():
    with tf.Graph().as_default():
        pairs = [(tf.ones([2]), v1.get_variable(name, [2])) for name in ("b", "a")]
        optimizer = rules.AdamRule(0.1, beta1=0.5, beta2=0.25)
        train_op = optimizer.apply_gradients(pairs)
        names = [variable.op.name for variable in optimizer.variables()]
        assert names == ["a/Adam", "a/Adam_1", "b/Adam", "b/Adam_1", "beta1_power", "beta2_power"]
        powers = [v for v in optimizer.variables() if v.op.name.endswith("power")]
        assert running.after(train_op, powers, 3) == [0.5**4, 0.25**4]


def test_variable_constraints_are_applied():
    with tf.Graph().as_default():
        x = v1.get_variable("x", initializer=0.25, constraint=lambda value: tf.maximum(value, 0.0))
        train_op = Sgd(1.0).apply_gradients([(tf.constant(1.0), x)])
        assert running.after(train_op, x) == 0.0


ALIASES = {
    "identity": lambda value: (tf.zeros_like(value), tf.identity(value)),
    "reshape": lambda value: (tf.zeros_like(value), tf.reshape(value, [-1])),
    "stop_gradient": lambda value: (tf.zeros_like(value), tf.stop_gradient(value)),
}


@pytest.mark.parametrize("use_resource", [False, True])
@pytest.mark.parametrize("alias", list(ALIASES) + ["step is a slot"])
def test_a_rule_may_return_an_alias_of_its_inputs(alias, use_resource):
    # The variable is so large that a write during a read would give wrong values.
    size = 1000000

    class HandsOn(RuleOptimizer):
        slots = {"previous": Slot()}

        def rule(self, grad, value, slots, hyper):
            if alias == "step is a slot":
                return slots.previous, {"previous": grad}
            return grad, {"previous": ALIASES[alias](value)[1]}

    with tf.Graph().as_default():
        x = v1.get_variable(
            "x", [size], initializer=v1.zeros_initializer(), use_resource=use_resource
        )
        gradient = v1.placeholder(tf.float32, [size])
        optimizer = HandsOn(False, "HandsOn")
        train_op = optimizer.apply_gradients([(gradient, x)])
        slot = optimizer.get_slot(x, "previous")
        with running.started() as sess:
            w, previous = np.zeros(size, "f"), np.zeros(size, "f")
            for step in range(8):
                g = np.full(size, step + 1.0, "f")
                sess.run(train_op, {gradient: g})
                if alias == "step is a slot":
                    w, previous = w - previous, g
                else:
                    w, previous = w - g, w
                np.testing.assert_array_equal(sess.run(x), w)
                np.testing.assert_array_equal(sess.run(slot), previous)


@pytest.mark.parametrize("shape", [(), (1,), (4, 1), (1, 2)])
def test_a_gradient_of_unknown_shape_is_not_broadcast(shape):
    with tf.Graph().as_default():
        x = v1.get_variable("x", [4, 2], initializer=v1.zeros_initializer())
        gradient = v1.placeholder(tf.float32)
        train_op = Sgd(1.0).apply_gradients([(gradient, x)])
        sparse = v1.placeholder(tf.float32)
        rows = Sgd(1.0).apply_gradients([(tf.IndexedSlices(sparse, tf.constant([1, 3])), x)])
        with running.started() as sess:
            with pytest.raises(tf.errors.InvalidArgumentError):
                sess.run(train_op, {gradient: np.ones(shape)})
            if shape:
                with pytest.raises(tf.errors.InvalidArgumentError):
                    sess.run(rows, {sparse: np.ones((2, 1))})
            assert not sess.run(x).any()
            sess.run([train_op, rows], {gradient: np.ones((4, 2)), sparse: np.ones((2, 2))})
            np.testing.assert_array_equal(sess.run(x)[:, 0], [-1, -2, -1, -2])


@pytest.mark.parametrize(
    "result, error",
    [
        (lambda grad: grad, TypeError),
        (lambda grad: None, TypeError),
        (lambda grad: (grad, None), TypeError),
        (lambda grad: (tf.reduce_sum(grad), {}), ValueError),
    ],
)
@pytest.mark.parametrize("sparse", [False, True])
def test_a_rule_with_a_wrong_return_value(result, error, sparse):
    class Wrong(Sgd):
        def rule(self, grad, value, slots, hyper):
            return result(grad)

    with tf.Graph().as_default():
        x = v1.get_variable("x", [4, 2])
        gradient = tf.ones([4, 2])
        if sparse:
            gradient = tf.IndexedSlices(tf.ones([2, 2]), tf.constant([1, 3]))
        with pytest.raises(error, match="Wrong.rule"):
            Wrong(0.1).apply_gradients([(gradient, x)])


def test_callable_hyperparameters_are_checked_before_and_in_calls():
    with pytest.raises(TypeError, match="learning_rate.*without arguments.*lambda: schedule"):
        Sgd(lambda step: 0.1)
    with pytest.raises(ValueError, match="learning_rate.*finite"):
        one_step(Sgd(lambda: float("nan")))
    with pytest.raises(TypeError, match="learning_rate"):
        one_step(Sgd(lambda: None))
    with pytest.raises(TypeError, match="learning_rate is a function that returns another"):
        one_step(Sgd(lambda: lambda: 0.1))


def test_warnings_point_to_the_users_line():
    with tf.Graph().as_default():
        x = v1.get_variable("x", [2])
        optimizer = legacy_opt.AdagradDecayOptimizer(0.1, None)
        with pytest.warns(legacy_opt.GlobalStepWarning) as caught:
            optimizer.minimize(tf.reduce_sum(x))
        with pytest.warns(legacy_opt.UseLockingWarning) as also_caught:
            Sgd(0.1, use_locking=True).minimize(tf.reduce_sum(x))
    for warning in list(caught) + list(also_caught):
        if issubclass(
            warning.category, (legacy_opt.GlobalStepWarning, legacy_opt.UseLockingWarning)
        ):
            assert warning.filename == __file__


class ForgetsTheParentheses(legacy_opt.RuleOptimizer):
    slots = {"a": legacy_opt.Slot}


class ReturnsAWholeRow(legacy_opt.RuleOptimizer):
    slots = {"a": legacy_opt.RowSlot()}

    def rule(self, grad, value, slots, hyper):
        return grad, {"a": grad}


@pytest.mark.parametrize(
    ["optimizer", "error", "message"],
    [
        (ForgetsTheParentheses, TypeError, r"the slot 'a' must be a Slot, as in Slot\(\)"),
        (ReturnsAWholeRow, ValueError, r"returned the slot 'a' of 'w.*' in shape \(4, 3\)"),
    ],
)
def test_mistakes_with_slots_are_named_in_errors(optimizer, error, message):
    with tf.Graph().as_default():
        w = tf.compat.v1.get_variable("w", [4, 3])
        with pytest.raises(error, match=message):
            optimizer(False, "Wrong").apply_gradients([(tf.ones([4, 3]), w)])
