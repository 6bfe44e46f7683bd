"""Tests AdamW, MomentumW and decoupled weight decay for any optimizer.

tests/optimizers/test_every_optimizer.py also tests these optimizers.
"""

import inspect
import pickle
import warnings

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import (
    AdagradDecayOptimizer,
    AdamWOptimizer,
    DecoupledWeightDecayExtension,
    MomentumWOptimizer,
    extend_with_decoupled_weight_decay,
)
from legacy_opt.compat import to_keras
from legacy_opt.compat.in_keras.v1_optimizers import serialization
from tests.support import rules, running
from tests.support.cases import CASES, one_of_each_class

v1 = tf.compat.v1
SGDW = extend_with_decoupled_weight_decay(v1.train.GradientDescentOptimizer)
AdagradW = extend_with_decoupled_weight_decay(v1.train.AdagradOptimizer)


def run(build, values, steps, use_resource=False):
    """Trains in a Session; `build` takes the variables and returns the train op.

    Returns:
      A list: for each step, the values of all variables by name.
    """
    with tf.Graph().as_default(), v1.Session() as sess:
        train = build(
            *[
                v1.get_variable(name, initializer=value, use_resource=use_resource)
                for name, value in values.items()
            ]
        )
        sess.run(v1.global_variables_initializer())
        everything = {variable.op.name: variable for variable in v1.global_variables()}
        result = []
        for _ in range(steps):
            sess.run(train)
            result.append(sess.run(everything))
        return result


def fed(optimizer, grad, **arguments):
    """Returns a function for the argument `build` of `run`; all variables get the same gradient."""

    def build(*variables):
        return optimizer.apply_gradients([(grad(), v) for v in variables], **arguments)

    return build


# Expected values computed by hand.


def test_momentum_w():
    # Step 1: w decays to 4 * 0.5 = 2. momentum = 2. w = 2 - 0.25 * 2 = 1.5.
    # Step 2: w decays to 1.5 * 0.5 = 0.75. momentum = 0.5 * 2 + 2 = 3. w = 0.75 - 0.25 * 3 = 0.
    optimizer = MomentumWOptimizer(0.5, learning_rate=0.25, momentum=0.5)
    one, two = run(fed(optimizer, lambda: tf.constant(2.0)), {"w": 4.0}, 2)
    assert one == {"w": 1.5, "w/MomentumW": 2.0}
    assert two == {"w": 0.0, "w/MomentumW": 3.0}


def test_adam_w():
    # Step 1: w decays to 4 * 0.5 = 2. m = 0.5 * 2 = 1, v = 0.25 * 4 = 1.
    #         The rate is sqrt(1 - 0.75) / (1 - 0.5) = 1. w = 2 - 1 * 1 / sqrt(1) = 1.
    # Step 2: w decays to 1 * 0.5 = 0.5. m = 0.5 + 0.5 * 2 = 1.5, v = 0.75 + 0.25 * 4 = 1.75.
    #         The rate is sqrt(0.4375) / 0.75, and m / sqrt(v) is 1.5 / (2 * sqrt(0.4375)).
    #         The rate times m / sqrt(v) is 1. w = 0.5 - 1 = -0.5.
    optimizer = AdamWOptimizer(0.5, learning_rate=1.0, beta1=0.5, beta2=0.75, epsilon=0.0)
    one, two = run(fed(optimizer, lambda: tf.constant(2.0)), {"w": 4.0}, 2)
    names = {"w": 1.0, "w/AdamW": 1.0, "w/AdamW_1": 1.0}
    assert one == {**names, "beta1_power": 0.25, "beta2_power": 0.5625}
    wanted = {"w": -0.5, "w/AdamW": 1.5, "w/AdamW_1": 1.75}
    wanted.update(beta1_power=0.125, beta2_power=0.421875)
    assert two.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(two[name], value, rtol=1e-6, err_msg=name)


@pytest.mark.parametrize("use_resource", [False, True])
@pytest.mark.parametrize("base", ["GradientDescent", "Adagrad"])
def test_only_rows_in_the_gradient_decay_and_only_once(base, use_resource):
    """Trains one row whose id is repeated in the gradient.

    Adagrad first sums the gradients of a repeated id. GradientDescent applies each gradient
    separately.
    """
    # Row 0 decays to 4 * 0.5 = 2. The sum of its gradients is 1 + 1 = 2.
    # GradientDescent: 2 - 0.25 * 2 = 1.5. Adagrad: 2 - 0.5 * 2 / sqrt(12 + 4) = 1.75.
    optimizer, row = {
        "GradientDescent": (lambda: SGDW(0.5, 0.25), [1.5]),
        "Adagrad": (lambda: AdagradW(0.5, 0.5, initial_accumulator_value=12.0), [1.75]),
    }[base]
    table = np.float32([[4.0], [8.0], [16.0]])

    def rows():
        return tf.IndexedSlices(tf.ones([2, 1]), tf.constant([0, 0]), tf.constant([3, 1]))

    def build(variable):
        return optimizer().apply_gradients([(rows(), variable)])

    (after,) = run(build, {"w": table}, 1, use_resource)
    np.testing.assert_allclose(after["w"], [row, [8.0], [16.0]], rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_a_number_is_not_rounded_to_float32(dtype):
    one = np.ones([], dtype)
    build = fed(SGDW(0.1, 1.0), lambda: tf.constant(0.0, dtype))
    (after,) = run(build, {"w": one}, 1)
    assert after["w"] == one - np.dtype(dtype).type(0.1)


def test_types_of_weight_decay():
    for decay in (0.5, lambda: 0.5, lambda: tf.constant(0.5, tf.float64), np.float32(0.5), 0):
        (after,) = run(fed(SGDW(decay, 1.0), lambda: tf.constant(0.0)), {"w": 4.0}, 1)
        assert after["w"] == (4.0 if isinstance(decay, int) else 2.0)
    variable = tf.Variable(4.0)
    decay = tf.Variable(0.5)
    optimizer = SGDW(decay, 1.0)
    for wanted in (2.0, 1.5):
        optimizer.apply_gradients([(tf.constant(0.0), variable)])
        assert variable.numpy() == wanted
        decay.assign(0.25)


# The order in a step: first the gradients, then the weight decay, then the update.


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("way", ["ref", "resource", "wrap_function", "function", "eager"])
def test_gradients_are_computed_before_anything_decays(way, sparse):
    """Trains w and v. The gradient of v is the value of w, which is read after a slow operation."""
    rows, columns, steps = 64, 4096, 20
    start = np.random.RandomState(0).randn(rows, columns).astype(np.float32)
    decay, rate = np.float32(0.01), np.float32(0.1)

    def loss_of(w, v):
        slow = tf.reduce_sum(tf.linalg.matmul(tf.ones([256, 512]), tf.ones([512, 256])))
        with tf.control_dependencies([slow]):
            late = tf.stop_gradient(tf.identity(w.read_value()))
        ids = tf.range(rows)[::2]
        mine = tf.gather(w, ids) if sparse else w
        return tf.reduce_sum(tf.square(mine)) / 2 + tf.reduce_sum(v * late)

    def train(w, v):
        optimizer = SGDW(float(decay), float(rate))
        if way in ("ref", "resource", "wrap_function"):
            return optimizer.minimize(loss_of(w, v), var_list=[w, v])
        with tf.GradientTape() as tape:
            loss = loss_of(w, v)
        optimizer.apply_gradients(zip(tape.gradient(loss, [w, v]), [w, v]))
        return None

    def done(op):
        with tf.control_dependencies([op]):
            return tf.constant(0)

    if way in ("ref", "resource"):
        last = run(train, {"w": start, "v": start}, steps, way == "resource")[-1]
    else:
        variables = [tf.Variable(start, name=name) for name in "wv"]
        step = {
            "wrap_function": lambda: v1.wrap_function(lambda: done(train(*variables)), []),
            "function": lambda: tf.function(lambda: train(*variables)),
            "eager": lambda: lambda: train(*variables),
        }[way]()
        for _ in range(steps):
            step()
        last = {name: variable.numpy() for name, variable in zip("wv", variables)}

    w, v = start.copy(), start.copy()
    for _ in range(steps):
        of_w, of_v = w.copy(), w.copy()
        at = slice(None, None, 2) if sparse else slice(None)
        w[at] = (w[at] - decay * w[at]) - rate * of_w[at]
        v = (v - decay * v) - rate * of_v
    np.testing.assert_array_equal(last["w"], w)
    np.testing.assert_array_equal(last["v"], v)


# Which variables decay.


@pytest.mark.filterwarnings("ignore:.*minimize obeys decay_var_list")
@pytest.mark.parametrize("method", ["minimize", "apply_gradients"])
@pytest.mark.parametrize("kind", [list, tuple, set])
@pytest.mark.parametrize("use_resource", [False, True])
def test_decay_var_list(method, kind, use_resource):
    optimizer = SGDW(0.5, 1.0)

    def build(a, b):
        loss = a + b
        if method == "minimize":
            named = optimizer.minimize(loss, var_list=[a, b], decay_var_list=kind([a]))
        else:
            pairs = optimizer.compute_gradients(loss, [a, b])
            named = optimizer.apply_gradients(pairs, decay_var_list=kind([a]))
        with tf.control_dependencies([named]):
            # The second update has no decay_var_list, so both variables decay.
            return optimizer.minimize(a + b, var_list=[a, b])

    (after,) = run(build, {"a": 8.0, "b": 8.0}, 1, use_resource)
    assert after == {"a": (4.0 - 1) / 2 - 1, "b": (8.0 - 1) / 2 - 1}


@pytest.mark.filterwarnings("ignore:.*minimize obeys decay_var_list")
def test_decay_var_list_eagerly_and_of_a_partitioned_variable():
    a, b = tf.Variable(8.0), tf.Variable(8.0)
    SGDW(0.5, 1.0).minimize(lambda: a + b, var_list=[a, b], decay_var_list=[b])
    assert (a.numpy(), b.numpy()) == (7.0, 3.0)
    with tf.Graph().as_default():
        parted = v1.get_variable(
            "p", initializer=tf.fill([4], 8.0), partitioner=v1.fixed_size_partitioner(2)
        )
        whole = v1.get_variable("w", initializer=8.0)
        loss = tf.reduce_sum(tf.convert_to_tensor(parted)) + whole
        train = SGDW(0.5, 1.0).minimize(loss, decay_var_list=[parted])
        found, parts = running.after(train, [whole, tf.convert_to_tensor(parted)])
    assert found == 7.0
    np.testing.assert_array_equal(parts, [3.0] * 4)


def test_a_variable_without_a_gradient_does_not_decay_and_warns():
    a, b, c = (tf.Variable(8.0, name=name) for name in "abc")
    pairs = [(tf.constant(1.0), a), (None, b)]
    with pytest.warns(UserWarning, match="does not update.*'b:0', 'c:0'"):
        SGDW(0.5, 1.0).apply_gradients(pairs, decay_var_list=[a, b, c])
    assert (a.numpy(), b.numpy(), c.numpy()) == (3.0, 8.0, 8.0)


@pytest.mark.parametrize("method", ["minimize", "apply_gradients"])
def test_a_variable_that_is_not_trained_warns_at_the_users_line(method):
    with tf.Graph().as_default(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        a = v1.get_variable("a", initializer=8.0)
        frozen = v1.get_variable("frozen", initializer=8.0, trainable=False)
        if method == "minimize":
            AdamWOptimizer(0.5).minimize(a * 1, decay_var_list=[a, frozen])
        else:
            pairs = [(tf.constant(1.0), a)]
            AdamWOptimizer(0.5).apply_gradients(pairs, decay_var_list=[a, frozen])
    (warning,) = [each for each in caught if "decay_var_list" in str(each.message)]
    assert warning.category is UserWarning and warning.filename == __file__
    assert "'frozen:0'" in str(warning.message) and "'a:0'" not in str(warning.message)


@pytest.mark.parametrize(
    "wrong, error, message",
    [
        ([], ValueError, "decay_var_list is empty.*None to decay all.*weight_decay=0"),
        (["w"], TypeError, "must contain only variables, got 'w'"),
        ("w", TypeError, "must be a list, tuple or set"),
    ],
)
def test_a_wrong_decay_var_list(wrong, error, message):
    variable = tf.Variable(1.0)
    with pytest.raises(error, match=message):
        SGDW(0.5, 1.0).minimize(lambda: variable * 1, decay_var_list=wrong)
    with pytest.raises(error, match=message):
        SGDW(0.5, 1.0).apply_gradients([(tf.constant(1.0), variable)], decay_var_list=wrong)
    assert variable.numpy() == 1.0


# Any base class.


class ClassicOptimizer(v1.train.Optimizer):
    """A user's optimizer for resource variables."""

    def __init__(self, learning_rate, use_locking=False, name="Classic"):
        super().__init__(use_locking, name)
        self._learning_rate = learning_rate

    def _resource_apply_dense(self, grad, handle):
        return handle.assign_sub(self._learning_rate * grad, read_value=False)


class ByHand(DecoupledWeightDecayExtension, ClassicOptimizer):
    pass


@pytest.mark.parametrize(
    "make",
    [
        lambda: ByHand(0.5, 1.0),
        lambda: ByHand(weight_decay=0.5, learning_rate=1.0, name="Other"),
        lambda: extend_with_decoupled_weight_decay(ClassicOptimizer)(0.5, learning_rate=1.0),
        lambda: extend_with_decoupled_weight_decay(rules.MomentumRule)(0.5, 1.0, momentum=0.0),
    ],
)
def test_any_base(make):
    variable = tf.Variable(4.0)
    make().apply_gradients([(tf.constant(1.0), variable)])
    assert variable.numpy() == 1.0


def test_the_slots_of_the_base():
    optimizer = extend_with_decoupled_weight_decay(AdagradDecayOptimizer)(0.5, 0.1, None)
    optimizer.global_step_is_advanced = True
    (after,) = run(fed(optimizer, lambda: tf.constant(1.0)), {"w": 4.0}, 1)
    assert {"w/AdagradDecay", "w/AdagradDecay_1"} < set(after)


def test_one_class_for_each_base_that_can_be_pickled():
    assert extend_with_decoupled_weight_decay(v1.train.AdagradOptimizer) is AdagradW
    assert AdagradW.__name__ == "AdagradOptimizerWithDecoupledWeightDecay"
    assert pickle.loads(pickle.dumps(AdagradW)) is AdagradW
    data = serialization.to_config(AdagradW(0.5, 0.25), AdagradW, {}, ())
    assert data["class_name"] == "AdagradOptimizerWithDecoupledWeightDecay"
    again = serialization.from_config(data)
    assert type(again) is AdagradW
    assert (again._weight_decay, again._learning_rate) == (0.5, 0.25)


# Through the Keras bridge.


def test_the_bridge_sets_and_saves_the_weight_decay():
    """Checks that `optimizer.weight_decay` is the v1 optimizer's decay, not Keras' weight decay.

    Each update multiplies the variable by 1 - weight_decay. Unlike in Keras, the learning rate does
    not scale the decay.
    """
    variable = tf.Variable(16.0)
    optimizer = to_keras(AdagradW(0.5, 1.0))
    nothing = [(tf.constant(0.0), variable)]
    optimizer.apply_gradients(nothing)
    assert variable.numpy() == 8.0
    optimizer.weight_decay = 0.25
    optimizer.apply_gradients(nothing)
    assert variable.numpy() == 6.0
    again = type(optimizer).from_config(optimizer.get_config())
    again.apply_gradients(nothing)
    assert variable.numpy() == 4.5


@pytest.mark.parametrize("fused", [False, True])
def test_the_bridge_decays_rows_in_the_gradient_once(fused):
    # Row 0 decays to 4 * 0.5 = 2. Its gradient is 1 + 1 = 2.
    # Adagrad: 2 - 0.5 * 2 / sqrt(12 + 4) = 1.75.
    variable = tf.Variable([[4.0], [8.0]])
    optimizer = to_keras(AdagradW(0.5, 0.5, initial_accumulator_value=12.0), fused=fused)
    rows = tf.IndexedSlices(tf.ones([2, 1]), tf.constant([0, 0]), tf.constant([2, 1]))
    optimizer.apply_gradients([(rows, variable)])
    np.testing.assert_allclose(variable.numpy(), [[1.75], [8.0]], rtol=1e-6)


def test_the_bridge_under_a_distribution_strategy():
    strategy = tf.distribute.MirroredStrategy(["cpu:0"])
    with strategy.scope():
        variable = tf.Variable(4.0)
        optimizer = to_keras(AdamWOptimizer(0.5, 0.25, epsilon=0.0), api="optimizer_v2")

    run_on_all = running.on_replicas(strategy)

    @tf.function
    def step():
        run_on_all(lambda: optimizer.apply_gradients([(tf.constant(1.0), variable)]))

    step()
    np.testing.assert_allclose(variable.numpy(), 1.75, rtol=1e-6)


# Errors.


@pytest.mark.parametrize(
    "wrong, error, message",
    [
        ("0.1", TypeError, "weight_decay must be a number, got '0.1'"),
        (float("nan"), ValueError, "weight_decay must be finite"),
        (lambda step: step, TypeError, "weight_decay must be callable without arguments"),
    ],
)
@pytest.mark.parametrize("optimizer", [AdamWOptimizer, AdagradW, SGDW])
def test_a_wrong_weight_decay(optimizer, wrong, error, message):
    with pytest.raises(error, match=message):
        optimizer(wrong, learning_rate=0.1)


@pytest.mark.parametrize(
    "optimizer, wrong, error, message",
    [
        (AdamWOptimizer, {"beta1": 1.5}, ValueError, "beta1 must be at least 0 and less than 1"),
        (AdamWOptimizer, {"beta2": -1}, ValueError, "beta2 must be at least 0 and less than 1"),
        (AdamWOptimizer, {"epsilon": -1.0}, ValueError, "epsilon must not be negative"),
        (MomentumWOptimizer, {"momentum": -0.1}, ValueError, "momentum must not be negative"),
    ],
)
def test_wrong_arguments_of_adam_w_and_momentum_w(optimizer, wrong, error, message):
    good = {"weight_decay": 0.1, "learning_rate": 0.1}
    if optimizer is MomentumWOptimizer:
        good["momentum"] = 0.9
    with pytest.raises(error, match=message):
        optimizer(**{**good, **wrong})


@pytest.mark.parametrize("base", [AdamWOptimizer, AdagradW, DecoupledWeightDecayExtension])
@pytest.mark.parametrize("hook", ["_decay_weights_op", "_decay_weights_sparse_op"])
def test_overriding_methods_that_only_the_original_calls_is_refused(base, hook):
    bases = (base, ClassicOptimizer) if base is DecoupledWeightDecayExtension else (base,)
    with pytest.raises(TypeError, match=f"never calls Mine.{hook}, .*decayed"):
        type("Mine", bases, {hook: lambda self, *args: None})


class HasAnother(ClassicOptimizer):
    def __init__(self, learning_rate, weight_decay):
        super().__init__(learning_rate)


def test_base_classes_that_are_refused():
    with pytest.raises(TypeError, match="must be a subclass of tf.compat.v1.train.Optimizer"):
        extend_with_decoupled_weight_decay(AdagradW(0.1, 0.1))
    with pytest.raises(TypeError, match="has an argument weight_decay already"):
        extend_with_decoupled_weight_decay(HasAnother)
    with pytest.raises(TypeError, match="AdamWOptimizer has decoupled weight decay already"):
        extend_with_decoupled_weight_decay(AdamWOptimizer)
    with pytest.raises(TypeError, match="WrongWay.*must be the first base class"):
        type("WrongWay", (ClassicOptimizer, DecoupledWeightDecayExtension), {})


def test_nothing_decays_if_a_gradient_has_a_wrong_shape():
    variable = tf.Variable([4.0, 4.0])
    with pytest.raises(ValueError, match="has shape"):
        AdamWOptimizer(0.5).apply_gradients([(tf.ones([3]), variable)])
    np.testing.assert_array_equal(variable.numpy(), [4.0, 4.0])


EXTENDED = [
    name
    for name in one_of_each_class()
    if not issubclass(CASES[name].optimizer, DecoupledWeightDecayExtension)
    and "weight_decay" not in inspect.signature(CASES[name].optimizer).parameters
]


@pytest.mark.parametrize("name", EXTENDED)
def test_every_optimizer_can_be_extended(name):
    """One step of the extension equals a step of the optimizer from a decayed variable."""
    case = CASES[name]
    start = np.array([[1.0, -2.0], [3.0, 4.0]], np.float32)
    extended = extend_with_decoupled_weight_decay(case.optimizer)

    def update(make):
        def build(variable):
            step = v1.train.get_or_create_global_step()
            optimizer = make(step)
            gradient = tf.constant([[0.5, -0.25], [0.125, 1.0]])
            return optimizer.apply_gradients([(gradient, variable)], global_step=step)

        return build

    plain = update(case.make)
    decaying = update(lambda step: case.construct(extended, step, weight_decay=0.5))
    (expected,), (found,) = run(plain, {"w": start / 2}, 1), run(decaying, {"w": start}, 1)
    np.testing.assert_array_equal(found["w"], expected["w"])
