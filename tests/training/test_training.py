"""Tests the arguments of `optimize_loss`; most expected values are computed by hand."""

import warnings

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import (
    AdagradDecayOptimizer,
    GlobalStepWarning,
    adaptive_clipping_fn,
    create_train_op,
    optimize_loss,
)
from tests.support.running import REF_AND_RESOURCE
from tests.support.stepping import Stepping, by_tag, dot, sgd, variable

v1 = tf.compat.v1


@pytest.fixture
def stepping():
    made = Stepping()
    with made.graph.as_default():
        yield made


def optimized(stepping, steps=1, **arguments):
    """Trains, by default by gradient descent with a learning rate of 1; returns the variables."""
    arguments = dict({"global_step": None, "learning_rate": 1.0, "optimizer": "SGD"}, **arguments)
    return stepping.run(optimize_loss(stepping.loss, **arguments), steps)[1]


@REF_AND_RESOURCE
def test_steps_by_hand(use_resource):
    made = Stepping(use_resource)
    with made.graph.as_default():
        losses, after = made.run(optimize_loss(made.distance(), None, 0.5, "SGD"), steps=2)
        assert [each.op.name for each in v1.trainable_variables()] == ["w"]
    np.testing.assert_allclose(losses, [12.5, 3.125])
    np.testing.assert_allclose(after.pop("w"), [2.25, 3.0])
    assert after == {"global_step": 2, "OptimizeLoss/learning_rate": 0.5}


@pytest.mark.parametrize(
    "rate",
    [1, np.float32(0.5), np.float64(0.5), lambda: tf.constant(0.5), lambda: variable("rate", 0.5)],
)
def test_a_learning_rate_is_a_number_a_tensor_or_a_variable(stepping, rate):
    rate = rate() if callable(rate) else rate
    after = optimized(stepping, learning_rate=rate)
    np.testing.assert_allclose(after["w"], [-3, -4] if isinstance(rate, int) else [-1.5, -2])


def test_learning_rate_decay_fn(stepping):
    decay = lambda rate, step: rate / (1.0 + tf.cast(step, tf.float32))  # noqa: E731
    after = optimized(stepping, steps=2, learning_rate_decay_fn=decay)
    np.testing.assert_allclose(after["w"], [-4.5, -6])
    assert after["OptimizeLoss/learning_rate"] == 1


@pytest.mark.parametrize(
    "optimizer, rate",
    [
        ("SGD", 0.5),
        (v1.train.GradientDescentOptimizer, 0.5),
        (sgd, 0.5),
        (lambda: sgd(0.5), None),
        (lambda: sgd(0.5), 7.0),
    ],
    ids=["name", "class", "function of the rate", "function", "instance"],
)
def test_types_of_optimizer(stepping, optimizer, rate):
    optimizer = optimizer() if rate == 7.0 else optimizer
    after = optimized(stepping, optimizer=optimizer, learning_rate=rate)
    np.testing.assert_allclose(after["w"], [-1.5, -2])


@pytest.mark.parametrize("name", list(legacy_opt.OPTIMIZER_CLS_NAMES))
def test_every_name_creates_its_optimizer(name):
    names = {"SGD": "GradientDescent", "AdagradDecayV2": "AdagradDecayOptimizerV2"}
    name_of_class = names.get(name, name)
    if not name_of_class.endswith("V2"):
        name_of_class += "Optimizer"
    cls = getattr(legacy_opt, name_of_class, None) or getattr(v1.train, name_of_class)
    rate = {"COCOB": None, "ConditionalGradient": 0.5}.get(name, 1.0)
    made = Stepping()
    with made.graph.as_default():
        by_name = optimized(made, optimizer=name, steps=2, learning_rate=rate)
    made = Stepping()
    with made.graph.as_default():
        arguments = {"momentum": 0.9} if name == "Momentum" else {}
        if name in ("AdagradDecay", "AdagradDecayV2", "AdamGS", "LazyAdamGS", "Shampoo"):
            arguments["global_step"] = made.step
        make = lambda rate: cls(learning_rate=rate, **arguments)  # noqa: E731
        make = cls if rate is None else make
        directly = optimized(made, optimizer=make, steps=2, learning_rate=rate)
    assert not np.array_equal(by_name["w"], [0, 0])
    assert list(by_name) == list(directly)
    for key, value in directly.items():
        assert np.array_equal(by_name[key], value), key


def test_an_optimizer_without_a_learning_rate_refuses_one(stepping):
    with pytest.raises(TypeError, match="'COCOB' requires other.*Pass learning_rate=None"):
        optimized(stepping, optimizer="COCOB", learning_rate=0.1)


def test_every_optimizer_has_a_name_or_needs_a_weight_decay():
    classes = {getattr(legacy_opt, each) for each in legacy_opt.__all__ if "Optimizer" in each}
    rules = {each.__name__ for each in classes if legacy_opt.RuleOptimizer in each.__mro__[1:]}
    named = {name + "Optimizer" for name in legacy_opt.OPTIMIZER_CLS_NAMES}
    named |= {"AdagradDecayOptimizerV2", "AdamWOptimizer", "MomentumWOptimizer"}
    assert rules - named == {"AdamWeightDecayOptimizer"}


def test_a_class_that_requires_a_global_step_gets_it(stepping):
    class Fast(AdagradDecayOptimizer):
        def __init__(self, learning_rate, global_step):
            super().__init__(learning_rate, global_step, 16.0, accumulator_decay_step=1)

    step = variable("my_step", 0, dtype=tf.int64, trainable=False)
    after = optimized(stepping, optimizer=Fast, global_step=step, steps=2)
    assert after["my_step"] == 2 and after["global_step"] == 0
    # Accumulators start at 16, and do not decay below 16. The first gradient, 3, adds 9. The decay
    # in the second step changes 25 to 22.5, and the second gradient adds 9.
    np.testing.assert_allclose(after["OptimizeLoss/w/AdagradDecay"][0], 22.5 + 9, rtol=1e-6)


@pytest.mark.parametrize("gs", [0, 5])
def test_adam_gs_by_name_reads_the_step(stepping, gs):
    step = variable("my_step", gs, dtype=tf.int64, trainable=False)
    after = optimized(stepping, optimizer="AdamGS", global_step=step)
    correction = np.sqrt(1 - 0.999 ** (gs + 1)) / (1 - 0.9 ** (gs + 1))
    expected = correction * 0.1 / np.sqrt(0.001)
    np.testing.assert_allclose(after["w"], [-expected, -expected], rtol=1e-4)


@REF_AND_RESOURCE
def test_noise(use_resource):
    made = Stepping(use_resource)
    with made.graph.as_default():
        v1.set_random_seed(1)
        wide = variable("wide", np.zeros(200), use_resource, tf.float64)
        table = variable("table", np.zeros([9, 3]), use_resource)
        rows = tf.IndexedSlices(tf.ones([2, 3]), tf.constant([1, 1]))  # without a dense_shape

        class Rows(v1.train.GradientDescentOptimizer):
            def compute_gradients(self, *args, **kwargs):
                pairs = super().compute_gradients(*args, **kwargs)
                return [(rows, v) if v is table else (g, v) for g, v in pairs]

        loss = made.loss + tf.cast(tf.reduce_sum(wide), tf.float32)
        op = optimize_loss(loss, None, None, Rows(1.0), gradient_noise_scale=0.5)
        after = made.run(op)[1]
    noise = -1 - after["wide"]
    assert np.all(np.abs(noise) <= 1) and abs(noise.mean()) < 0.1 and 0.3 < noise.std() < 0.5
    expected = np.zeros([9, 3])
    expected[1] = -2
    noise = expected - after["table"]
    assert np.all(np.abs(noise) <= 1) and np.all(noise != 0)


def keys_for(w):
    yield "w:0"
    yield w
    for name in "ref", "experimental_ref":
        if hasattr(w, name):
            yield getattr(w, name)()


@REF_AND_RESOURCE
def test_multiplied_gradients(use_resource):
    made = Stepping(use_resource)
    with made.graph.as_default():
        other = variable("other", [0.0], use_resource)
        table = variable("table", np.zeros([3, 1]), use_resource, tf.float64)
        rows = tf.reduce_sum(tf.gather(table, [1, 1]))
        made.loss += dot(other, 1.0) + tf.cast(rows, tf.float32)
        sgd_of_any_dtype = {"optimizer": sgd(), "learning_rate": None}
        for key in keys_for(made.w):
            multipliers = {key: 2, "table:0": tf.constant(3.0)}
            after = optimized(made, gradient_multipliers=multipliers, **sgd_of_any_dtype)
            np.testing.assert_allclose(after["w"], [-6, -8])
            np.testing.assert_allclose(after["table"][:, 0], [0, -6, 0])
            assert after["other"] == -1
        # Variables that are not trained may have multipliers.
        multipliers = {made.w: 5.0, "table:0": 5.0, "other:0": 2.0}
        after = optimized(made, gradient_multipliers=multipliers, variables=[other])
        assert after["other"] == -2 and np.array_equal(after["w"], [0, 0])


@pytest.mark.parametrize("norm", [1, 1.0, np.float32(1), "tensor", "function"])
def test_clipped_gradients(stepping, norm):
    clipped = {
        "tensor": tf.constant(1.0),
        "function": lambda pairs: [(tf.clip_by_norm(grad, 1.0), w) for grad, w in pairs],
    }.get(norm, norm)
    after = optimized(stepping, clip_gradients=clipped)
    np.testing.assert_allclose(after["w"], [-0.6, -0.8], rtol=1e-6)


@pytest.mark.parametrize("clip", [lambda: 1.0, lambda: adaptive_clipping_fn(static_max_norm=1.0)])
def test_dtypes_may_be_mixed(stepping, clip):
    half = variable("half", [0.0], dtype=tf.float16)
    double = variable("double", np.zeros([4, 1]), dtype=tf.float64)
    variable("unused", [0.0])
    stepping.loss += 10 * tf.cast(dot(half, 1.0), tf.float32)
    stepping.loss += 5 * tf.cast(tf.reduce_sum(tf.gather(double, [2])), tf.float32)
    op = optimize_loss(stepping.loss, None, None, sgd(), clip_gradients=clip())
    norm = np.sqrt(3**2 + 4**2 + 10**2 + 5**2)
    written = stepping.written(op)
    np.testing.assert_allclose(written["OptimizeLoss/global_norm/gradient_norm"], norm)
    np.testing.assert_allclose(
        written["OptimizeLoss/global_norm/clipped_gradient_norm"], 1, rtol=1e-3
    )
    after = stepping.run(op)[1]
    np.testing.assert_allclose(after["w"], np.array([-3, -4]) / norm, rtol=1e-6)
    np.testing.assert_allclose(after["half"], [-10 / norm], rtol=1e-3)
    np.testing.assert_allclose(after["double"][:, 0], [0, 0, -5 / norm, 0], rtol=1e-6)


@REF_AND_RESOURCE
@pytest.mark.parametrize("with_step", [False, True])
def test_the_formula_of_adaptive_clipping(use_resource, with_step):
    made = Stepping(use_resource)
    norms = [5.0, 6.0, 4.0, 60.0, 5.0, 0.5, 7.0, 200.0]
    with made.graph.as_default():
        factor = tf.gather(tf.constant(norms) / 5.0, made.step)
        clip = adaptive_clipping_fn(
            1.5, 0.7, global_step=made.step if with_step else None, epsilon=1e-3
        )
        op = optimize_loss(made.loss * factor, None, 1.0, "SGD", clip_gradients=clip)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            mean, square, w, clipped = 0.0, 0.0, np.zeros(2), 0
            for n, norm in enumerate(norms):
                decay = min(0.7, n / (n + 1.0)) if with_step else 0.7
                mean = decay * mean + (1 - decay) * np.log(norm + 1e-3)
                square = decay * square + (1 - decay) * np.log(norm + 1e-3) ** 2
                std = np.sqrt(max(1e-3, square - mean**2))
                new_norm = norm if norm < np.exp(mean + 1.5 * std) else np.exp(mean)
                clipped += new_norm != norm
                w -= np.array([0.6, 0.8]) * new_norm
                session.run(op)
                np.testing.assert_allclose(session.run(made.w), w, rtol=1e-4)
    assert 0 < clipped < len(norms)


def test_parts_of_a_partitioned_variable_are_trained():
    with tf.Graph().as_default(), v1.Session() as session:
        split, ones = v1.fixed_size_partitioner(2), v1.ones_initializer()
        whole = v1.get_variable("whole", [4], partitioner=split, initializer=ones)
        loss = tf.reduce_sum(tf.convert_to_tensor(whole))
        sgd = v1.train.GradientDescentOptimizer(0.5)
        steps = [
            legacy_opt.optimize_loss(loss, None, 0.5, "SGD", variables=[whole]),
            legacy_opt.create_train_op(loss, sgd, variables_to_train=[whole]),
        ]
        session.run(v1.global_variables_initializer())
        for step in steps:
            session.run(step)
        np.testing.assert_array_equal(session.run(tf.convert_to_tensor(whole)), np.zeros(4))


def test_adaptive_clipping_in_a_partitioned_scope(stepping):
    with v1.variable_scope("parts", partitioner=v1.fixed_size_partitioner(2)):
        after = optimized(stepping, clip_gradients=adaptive_clipping_fn(name="Usual"))
    assert after["parts/OptimizeLoss/Usual/mean"].shape == ()


def test_update_ops(stepping):
    seen = variable("seen", 0.0, trainable=False)
    v1.add_to_collection(v1.GraphKeys.UPDATE_OPS, v1.assign_add(seen, 1.0).op)
    other = v1.assign_add(seen, 10.0).op
    loss = stepping.loss
    for update_ops, grown in (None, 1), ([], 0), ([other, other], 10), (iter([other]), 10):
        op = optimize_loss(loss, None, 1.0, "SGD", update_ops=update_ops)
        assert stepping.run(op)[1]["seen"] == grown
    for update_ops, grown in (None, 1), ([other], 10):
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            op = create_train_op(loss, sgd(), update_ops=update_ops)
        assert stepping.run(op)[1]["seen"] == grown
        left_out = [each for each in warned if "UPDATE_OPS: " in str(each.message)]
        assert len(left_out) == (update_ops is not None)
        assert all(each.filename == __file__ for each in left_out)


def test_names_and_some_variables(stepping):
    other = variable("other", [0.0])
    stepping.loss += dot(other, 1.0)
    after = optimized(stepping, variables=[other], name="Mine")
    assert after["other"] == -1 and np.array_equal(after["w"], [0, 0])
    after = optimized(stepping, variables=(stepping.w,), increment_global_step=False)
    assert after["other"] == 0 and np.array_equal(after["w"], [-3, -4])
    assert after["global_step"] == 0
    op = optimize_loss(stepping.loss, None, 1.0, "SGD")
    assert op.name == "OptimizeLoss_1/control_dependency:0"
    assert {"Mine/learning_rate", "OptimizeLoss/learning_rate"} <= set(after)
    with v1.variable_scope("outer"):
        for number, name in enumerate((v1.get_variable_scope(), "")):
            optimized(stepping, name=name, learning_rate=0.5 + number)
    assert [each.op.name for each in v1.global_variables("outer")] == [
        "outer/learning_rate",
        "outer//learning_rate",  # the same as in tf.contrib
    ]


SUMMARIES = {
    "loss": {"loss": 2},
    "learning_rate": {"learning_rate_1": 0.5},  # _1, because the variable is named learning_rate
    "gradients": {"gradients/w_0": 2},
    "gradient_norm": {
        "global_norm/gradient_norm": 5,
        "gradient_norm/w_0": 1,
        "global_norm/clipped_gradient_norm": 1,
    },
    "global_gradient_norm": {
        "global_norm/gradient_norm": 5,
        "global_norm/clipped_gradient_norm": 1,
    },
}


def test_summaries(stepping):
    assert sorted(SUMMARIES) == sorted(legacy_opt.OPTIMIZER_SUMMARIES)
    by_default = ["loss", "learning_rate", "global_gradient_norm"]
    every_kind = [[kind] for kind in SUMMARIES] + [None, list(SUMMARIES)]
    steps = []
    for number, kinds in enumerate(every_kind):
        v1.get_default_graph().clear_collection(v1.GraphKeys.SUMMARIES)
        optimize_loss(
            stepping.loss,
            None,
            1.0,
            sgd,
            clip_gradients=1.0,
            summaries=kinds,
            learning_rate_decay_fn=lambda rate, step: rate / 2.0,
            name=f"Number{number}",
        )
        steps.append(v1.summary.merge_all())
    for number, (kinds, text) in enumerate(zip(every_kind, stepping.run(steps)[0][0])):
        expected = {}
        for kind in kinds or by_default:
            expected.update(SUMMARIES[kind])
        expected = {f"Number{number}/{tag}": value for tag, value in expected.items()}
        assert by_tag(text) == pytest.approx(expected)


def test_without_a_global_step_none_is_created():
    with tf.Graph().as_default():
        optimize_loss(dot(variable("w", [0.0]), 1.0), None, 1.0, "SGD")
        assert v1.train.get_global_step() is None


def test_optimizers_that_read_the_step_warn_if_it_is_not_advanced(stepping):
    with pytest.warns(GlobalStepWarning):
        optimize_loss(stepping.loss, None, 1.0, "AdamGS", increment_global_step=False)


def test_colocated_gradients(stepping):
    with tf.device("/device:CPU:0"):
        loss = tf.square(stepping.loss, name="Squared")
    optimize_loss(loss, None, 1.0, "SGD", colocate_gradients_with_ops=True)
    nodes = {node.name: node for node in stepping.graph.as_graph_def().node}
    (mul,) = [name for name in nodes if name.endswith("gradients/Squared_grad/Mul")]
    assert nodes[mul].attr["_class"].list.s == [b"loc:@Squared"]


def test_wrap_function():
    def step():
        w = variable("w", [0.0, 0.0])
        count = v1.train.get_or_create_global_step()
        loss = dot(w, 3.0, 4.0)
        first = optimize_loss(loss, None, 0.5, "LazyAdam", clip_gradients=adaptive_clipping_fn())
        with tf.control_dependencies([first]):
            second = create_train_op(tf.identity(loss), legacy_opt.AdamAsyncOptimizer(0.1))
        with tf.control_dependencies([second]):
            return w.read_value(), count.read_value()

    wrapped = v1.wrap_function(step, [])
    w, count = wrapped()
    assert count.numpy() == 2
    np.testing.assert_allclose(w.numpy(), [-0.6, -0.6], rtol=1e-5)
