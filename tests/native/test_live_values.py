"""Tests that kernels follow values that change between two steps."""

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import versions
from legacy_opt.compat import to_keras
from legacy_opt.native.runtime import compiled_kernels
from legacy_opt.programs.program import UnsupportedError
from tests.native.training import START, Sgd
from tests.support import running
from tests.support.checkpoints.v1_checkpoints import APIS

v1 = tf.compat.v1


class Settings:
    """An object of a user."""

    def __init__(self):
        self.limit = 1.0


class Slotted:
    __slots__ = ("limit",)


class Limited(Sgd):
    """Reads plain attributes in its rule."""

    def __init_subclass__(cls, final):
        raise TypeError(f"a class must not be derived from Limited: {final}")

    def __init__(self):
        super().__init__(0.5)
        self._limit = 1.0
        self._limits = {"all": [1.0]}
        self._array = np.ones([], np.float32)
        self._settings = Settings()
        self._skips = set()
        self._slotted = Slotted()
        self._slotted.limit = 1.0
        self._stored = self.hidden_limit  # a method of this object, not of a copy of it
        self._hidden = 1.0
        self._web = [[]]
        for _ in range(40):  # a naive comparison would take 2 to the power of 40 steps
            self._web = [self._web, self._web]

    def hidden_limit(self):
        return self._hidden

    def factor(self):
        limits = [self._limit, self._limits["all"][0], float(self._array), self._settings.limit]
        limits += [self._slotted.limit, self._stored(), 1.0 if type(self) is Limited else 7.0]
        return float(np.prod(limits)) * (0.0 if "all" in self._skips else 1.0)

    def rule(self, grad, value, slots, hyper):
        return self.factor() * self._learning_rate * grad, {"sum": slots.sum + grad}


SET_THE_RATE = "optimizer._learning_rate = 0.125"
CHANGES = [
    "optimizer._limit = 0.25",
    "optimizer._limits['all'][0] = 0.25",
    "optimizer._array[...] = 0.25",
    "optimizer._settings.limit = 0.25",
    "optimizer._skips.add('all')",
    "optimizer._slotted.limit = 0.25",
    "optimizer._hidden = 0.25",  # which the stored method reads
    "optimizer.factor = lambda: 0.25",
    "optimizer.rule = lambda grad, value, slots, hyper: (grad / 8, {})",
    SET_THE_RATE,
]


def run(statement, optimizer):
    exec(statement, {"optimizer": optimizer})


def steps(optimizer, change, sparse):
    """Returns the values of a variable after a step before, and after a step after a change."""
    variable, values = tf.Variable(START), []
    grad = tf.constant(START)
    if sparse:
        grad = tf.IndexedSlices(grad[:2], tf.constant([3, 1]), tf.constant([5, 4]))
    for statement in ("", change, ""):
        run(statement, optimizer)
        optimizer.apply_gradients([(grad, variable)])
        values.append(variable.numpy())
    return values


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_an_attribute_that_a_rule_reads(change, sparse, fresh):
    expected = steps(Limited(), change, sparse)
    assert not np.array_equal(expected, steps(Limited(), "", sparse))
    optimizer = Limited()
    optimizer.native = "require"
    np.testing.assert_array_equal(steps(optimizer, change, sparse), expected)


def test_a_rule_cannot_read_the_value_of_an_eager_tensor(fresh):
    class Reading(Sgd):
        def rule(self, grad, value, slots, hyper):
            return float(self._learning_rate) * grad, {}

    optimizer = Reading(tf.constant(0.5))
    optimizer.native = "require"
    with pytest.raises(UnsupportedError, match="Reading runs without a native kernel"):
        optimizer.apply_gradients([(tf.constant(START), tf.Variable(START))])


SET_THE_FLAG = "optimizer._use_nesterov = True"


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "make, change",
    [
        (lambda: legacy_opt.AdamWOptimizer(0.1, 0.1), "optimizer._weight_decay = 0.25"),
        (lambda: legacy_opt.MomentumWOptimizer(0.1, 0.1, 0.9), SET_THE_FLAG),
        (lambda: v1.train.MomentumOptimizer(0.1, 0.9), SET_THE_FLAG),
        (lambda: legacy_opt.AdamWeightDecayOptimizer(0.1, 0.1), SET_THE_RATE),
        (lambda: legacy_opt.LARSOptimizer(0.1, skip_list=["w"]), SET_THE_FLAG),
    ],
)
def test_an_attribute_of_an_optimizer(make, change, dtype, fresh):
    def trained(optimizer, change):
        variable = tf.Variable(START.astype(dtype))
        for statement in ("", change):
            run(statement, optimizer)
            optimizer.apply_gradients([(tf.constant((START - 7).astype(dtype)), variable)])
        return variable.numpy()

    expected = trained(make(), change)
    assert not np.allclose(trained(make(), ""), expected)
    actual = trained(legacy_opt.native.accelerate(make(), require=True), change)
    # TensorFlow up to 2.4 approximates square roots, and a sum has another order in LARS.
    np.testing.assert_allclose(actual, expected, rtol=1e-5 if dtype == np.float32 else 1e-12)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("wrap", [lambda optimizer: optimizer, to_keras])
def test_other_variables_decay_in_each_step(wrap, sparse, fresh):
    def trained(optimizer):
        optimizer, variables = wrap(optimizer), [tf.Variable(START), tf.Variable(START)]
        grad = tf.constant(START - 7)
        if sparse:
            grad = tf.IndexedSlices(grad[:2], tf.constant([3, 1]), tf.constant([5, 4]))
        for chosen in (None, variables[:1], variables[1:], None):
            pairs = [(grad, each) for each in variables]
            optimizer.apply_gradients(pairs, decay_var_list=chosen)
        return [each.numpy() for each in variables]

    def make(setting):
        optimizer = legacy_opt.MomentumWOptimizer(0.1, 0.1, 0.9)
        optimizer.native = setting
        return optimizer

    expected = trained(make("off"))
    assert not np.array_equal(*expected)
    np.testing.assert_array_equal(trained(make("require")), expected)


def test_a_slot_with_the_name_of_an_input_has_no_kernel(fresh):
    class Named(Sgd):
        slots = {"value": legacy_opt.Slot()}

        def rule(self, grad, value, slots, hyper):
            return grad, {"value": slots.value + grad}

    optimizer = Named()
    optimizer.native = "require"
    with pytest.raises(UnsupportedError, match="a slot or hyperparameter is named 'value'"):
        optimizer.apply_gradients([(tf.constant(START), tf.Variable(START))])


def with_powers(powers):
    """Returns a variable after a step of TensorFlow's Ftrl with each power, in a Session."""
    with tf.Graph().as_default():
        fed = v1.placeholder(tf.float32, [])
        variable = v1.get_variable("w", initializer=START, use_resource=True)
        optimizer = v1.train.FtrlOptimizer(0.5)
        optimizer._learning_rate_power = fed
        train_op = optimizer.apply_gradients([(tf.constant(START - 7), variable)])
        return running.after(train_op, variable, feeds=[{fed: each} for each in powers])


@pytest.mark.parametrize("wrap", [tf.function, lambda step: step])
@pytest.mark.parametrize("api", APIS)
def test_the_power_of_ftrl_in_keras(api, wrap, fresh):
    powers = [-0.5, -0.25, -0.5]
    optimizer = legacy_opt.native.accelerate(v1.train.FtrlOptimizer(0.5), require=True)
    bridged, variable = to_keras(optimizer, api=api), tf.Variable(START)

    def step():
        bridged.apply_gradients([(tf.constant(START - 7), variable)])

    step = wrap(step)
    step()
    if wrap is tf.function and versions.regroups_constant_factors():
        with pytest.raises(RuntimeError, match="learning_rate_power can no longer be set"):
            bridged.learning_rate_power = powers[1]
        return
    for each in powers[1:]:
        bridged.learning_rate_power = each
        step()
    expected = with_powers(powers)
    assert not np.allclose(with_powers([-0.5] * 3), expected)
    np.testing.assert_allclose(variable.numpy(), expected, rtol=1e-6)  # a pow is rounded


@pytest.mark.parametrize(
    "make, name",
    [
        (lambda: legacy_opt.AdamWeightDecayOptimizer(0.1, 0.1), "_learning_rate"),
        (lambda: legacy_opt.AdamWOptimizer(0.1, 0.1), "_weight_decay"),
        (lambda: legacy_opt.LAMBOptimizer(0.1, 0.1, bias_correction=False), "_beta_1"),
        (lambda: legacy_opt.LARSOptimizer(0.1), "_momentum"),
    ],
)
@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_numbers_of_full_precision_are_no_constants_of_kernels(make, name, dtype, fresh):
    compiled, compile_one = [], compiled_kernels.compiled

    def count(program, slots):
        compiled.append(program)
        return compile_one(program, slots)

    fresh.setattr(compiled_kernels, "compiled", count)
    optimizers = [make(), legacy_opt.native.accelerate(make(), require=True)]
    variables = [tf.Variable(START.astype(dtype)) for _ in optimizers]
    for number in (0.3, 0.2, 0.1):
        for optimizer, variable in zip(optimizers, variables):
            setattr(optimizer, name, number)
            grad = tf.constant((START - 7).astype(dtype))
            optimizer.apply_gradients([(grad, variable)])
    assert len(compiled) == 1
    expected, actual = (each.numpy().astype(np.float64) for each in variables)
    np.testing.assert_allclose(actual, expected, rtol=1e-2 if dtype == np.float16 else 1e-12)
