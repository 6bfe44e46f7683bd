"""Regression tests of the Keras 2 bridge (`to_keras`)."""

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt.compat import to_keras
from tests.support.keras import keras_apis
from tests.support.shared_by_threads import each_number

v1 = tf.compat.v1
keras = keras_apis.keras_2()
MomentumOptimizer = v1.train.MomentumOptimizer


def bridged(optimizer, **arguments):
    return to_keras(optimizer, api="optimizer_v2", **arguments)


def variable(value=0.0, dtype=tf.float32):
    return tf.compat.v2.Variable([value], dtype=dtype, name="w")


def step(optimizer, w, grad=1.0):
    optimizer.apply_gradients([(tf.constant([grad], w.dtype), w)])


@pytest.mark.parametrize("sparse", [False, True])
def test_a_gradient_of_another_dtype_is_refused(sparse):
    grad = tf.ones([1])
    if sparse:
        grad = tf.IndexedSlices(grad, tf.constant([0]))
    optimizer = bridged(v1.train.GradientDescentOptimizer(0.1))
    with pytest.raises(TypeError, match="has dtype float32, the variable float64: cast"):
        optimizer.apply_gradients([(grad, variable(dtype=tf.float64))])


def test_a_callable_that_reads_a_step_warns():
    mine = tf.Variable(0, dtype=tf.int64, name="mine")
    with pytest.warns(legacy_opt.GlobalStepWarning, match="may read the variable mine"):
        bridged(v1.train.AdagradOptimizer(lambda: 0.1 / (1 + tf.cast(mine, tf.float32))))


@pytest.mark.parametrize("compiled", [False, True])
def test_threads(compiled):
    """No step fails or is lost. The threads run equal steps, so the order does not matter."""
    optimizer = bridged(legacy_opt.AdagradDecayOptimizer(0.1, None, accumulator_decay_step=10**6))
    variables = [variable() for _ in range(4)]
    step(optimizer, variables[0], grad=0.0)

    def train(number):
        def run():
            step(optimizer, variables[number])

        run = tf.function(run) if compiled else run
        for _ in range(20):
            run()

    each_number(train, at_once=True)
    assert int(optimizer.iterations.numpy()) == 81
    for w in variables:
        np.testing.assert_allclose(optimizer.get_slot(w, "accumulator").numpy(), 20.1, rtol=1e-6)


class NamesLikeKeras(v1.train.GradientDescentOptimizer):
    def _create_slots(self, var_list):
        for name in ("iter", "learning_rate"):
            self._create_non_slot_variable(5.0, name, var_list[0])


def test_shared_variables_may_have_the_names_of_keras_own(tmp_path):
    optimizer, w = bridged(NamesLikeKeras(0.1)), variable()
    for _ in range(3):
        step(optimizer, w)
    optimizer.learning_rate = 0.01
    path = tf.train.Checkpoint(optimizer=optimizer, w=w).save(str(tmp_path / "checkpoint"))
    other, w = bridged(NamesLikeKeras(0.1)), variable()
    step(other, w)
    tf.train.Checkpoint(optimizer=other, w=w).restore(path)
    assert int(other.iterations.numpy()) == 3
    assert np.float32(other.learning_rate.numpy()) == np.float32(0.01)


class HidesItsArguments(v1.train.AdamOptimizer):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)


def test_arguments_of_the_base_class_are_found():
    optimizer = bridged(HidesItsArguments(0.1))
    optimizer.beta1 = 0.5
    w = variable()
    step(optimizer, w)
    assert optimizer.non_slots["beta1_power"].numpy() == 0.25
    with pytest.raises(AttributeError, match="does not read use_locking in each step"):
        optimizer.use_locking = True


@pytest.mark.parametrize(
    "set_to_zero",
    [
        lambda optimizer: setattr(optimizer, "momentum", 0.0),
        lambda optimizer: setattr(optimizer, "momentum", lambda: 0.0),
        lambda optimizer: setattr(optimizer, "momentum", tf.constant(0.0)),
    ],
    ids=["number", "function", "tensor"],
)
def test_hyperparameters_set_before_the_first_step(set_to_zero):
    optimizer, w = bridged(MomentumOptimizer(1.0, 0.9)), variable()
    set_to_zero(optimizer)
    train = tf.function(lambda: step(optimizer, w))
    train(), train()
    assert w.numpy() == -2.0


@pytest.mark.parametrize("value", [0.5, tf.constant(0.5)], ids=["number", "tensor"])
def test_state_starts_from_current_hyperparameters(value):
    optimizer, w = bridged(v1.train.AdamOptimizer(0.1)), variable()
    optimizer.beta1 = value
    step(optimizer, w)
    assert optimizer.non_slots["beta1_power"].numpy() == 0.25


class ReadsThroughAProperty(MomentumOptimizer):
    @property
    def friction(self):
        return self._momentum

    def _resource_apply_dense(self, grad, var):
        return super()._resource_apply_dense(grad * self.friction, var)


class ComputesWhilePreparing(MomentumOptimizer):
    def _prepare(self):
        super()._prepare()
        self._rest = tf.convert_to_tensor(1 - self._momentum)


class ComparesWhilePreparing(MomentumOptimizer):
    def _prepare(self):
        super()._prepare()
        self._fast = self._momentum > 0.5


class ComparesWithZeroWhilePreparing(MomentumOptimizer):
    def _prepare(self):
        super()._prepare()
        self._moves = self._momentum != 0


@pytest.mark.parametrize(
    "optimizer",
    [
        ReadsThroughAProperty,
        ComputesWhilePreparing,
        ComparesWhilePreparing,
        ComparesWithZeroWhilePreparing,
    ],
)
def test_hyperparameters_used_as_python_numbers_cannot_change(optimizer):
    for momentum in (0.9, 1):
        keras_optimizer, w = bridged(optimizer(1.0, momentum)), variable()
        tf.function(lambda o=keras_optimizer, w=w: step(o, w))()
        with pytest.raises(AttributeError, match="does not read momentum in each step"):
            keras_optimizer.momentum = 0.5


class TakesOptions(v1.train.GradientDescentOptimizer):
    def __init__(self, learning_rate, warmup=None, shape=0.0):
        super().__init__(learning_rate)
        self._warmup = warmup
        self._shape = shape


def test_a_zero_is_saved_where_the_default_is_none():
    optimizer = bridged(TakesOptions(0.1, warmup=0))
    again = type(optimizer).from_config(optimizer.get_config())
    assert again.get_config()["optimizer"]["config"]["warmup"] == 0
    with pytest.raises(ValueError, match="its argument shape is array.*not plain data"):
        bridged(TakesOptions(0.1, shape=np.zeros(2))).get_config()


def test_an_int32_step_keeps_its_dtype():
    optimizer = bridged(
        legacy_opt.AdagradDecayOptimizerV2(0.1, tf.Variable(0, dtype=tf.int32, name="step"))
    )
    again, w = type(optimizer).from_config(optimizer.get_config()), variable()
    step(again, w)
    assert again.get_slot(w, "accumulator_decay_power").dtype == tf.int32


class SumsTenfold(MomentumOptimizer):
    def _resource_apply_sparse_duplicate_indices(self, grad, handle, indices):
        return super()._resource_apply_sparse_duplicate_indices(grad * 10, handle, indices)


@pytest.mark.parametrize("fused", [True, False])
def test_an_overridden_sum_of_duplicates_is_called(fused):
    optimizer, w = bridged(SumsTenfold(1.0, 0.0), fused=fused), variable()
    optimizer.apply_gradients([(tf.IndexedSlices(tf.ones([1]), tf.constant([0])), w)])
    assert w.numpy() == -10.0
