"""Tests that code written for the original optimizers also works with legacy_opt's optimizers.

The originals are the optimizers of `tf.contrib` and other projects that legacy_opt reimplements.
The tests cover arguments, protected attributes that subclasses read, and errors that callers catch.
They run on every TensorFlow version. tests/training_contrib/test_contrib_calls.py compares the
optimizers with `tf.contrib` itself.
"""

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import (
    AdaMaxOptimizer,
    AdamGSOptimizer,
    AddSignOptimizer,
    LARSOptimizer,
    LazyAdamGSOptimizer,
    LazyAdamOptimizer,
    NadamOptimizer,
    PowerSignOptimizer,
    RegAdagradOptimizer,
    ShampooOptimizer,
    get_linear_decay_fn,
    optimize_loss,
)

v1 = tf.compat.v1
pytestmark = pytest.mark.filterwarnings("ignore::legacy_opt.GlobalStepWarning")
BY_STEP = [AdamGSOptimizer, LazyAdamGSOptimizer]
WITH_POWERS = [LazyAdamOptimizer, NadamOptimizer, AdaMaxOptimizer, *BY_STEP]


def trained(make, steps=2, read=lambda optimizer: (), use_resource=True):
    """Trains a variable in a Session.

    Returns:
      Three values: a list with the variable after each step; the values of the tensors that `read`
      returns, before the first step; and the same after the last step.
    """
    with tf.Graph().as_default(), v1.Session() as session:
        w = v1.get_variable("w", initializer=[1.0, 2.0], use_resource=use_resource)
        step = v1.train.get_or_create_global_step()
        optimizer = make(step)
        train_op = optimizer.apply_gradients([(tf.constant([0.5, -0.25]), w)], global_step=step)
        session.run(v1.global_variables_initializer())
        fetches = tuple(read(optimizer))
        first = session.run(fetches)
        values = [(session.run(train_op), session.run(w))[1] for _ in range(steps)]
        return values, first, session.run(fetches)


# The method `_get_beta_accumulators`: in the original Adam, it returns the powers of beta.


def powers_of(optimizer):
    found = optimizer._get_beta_accumulators()
    return found if isinstance(found, tuple) else (found,)


@pytest.mark.parametrize("optimizer", WITH_POWERS)
def test_powers_of_beta(optimizer):
    by_step = optimizer in BY_STEP
    count = 1 if optimizer is AdaMaxOptimizer else 2
    _, first, later = trained(
        lambda step: optimizer(**({"global_step": step} if by_step else {})), read=powers_of
    )
    betas = np.array([0.9, 0.999][:count])
    np.testing.assert_allclose(first, betas, rtol=1e-6)
    np.testing.assert_allclose(later, betas**3, rtol=1e-6)


def test_powers_are_the_variables_and_those_of_the_graph():
    with tf.Graph().as_default():
        optimizer = LazyAdamOptimizer()
        assert optimizer._get_beta_accumulators() == (None, None)
        assert AdaMaxOptimizer()._get_beta_accumulators() is None
        w = v1.get_variable("w", initializer=[1.0])
        optimizer.apply_gradients([(tf.ones([1]), w)])
        names = [power.op.name for power in optimizer._get_beta_accumulators()]
        assert names == ["beta1_power", "beta2_power"]
        assert all(power in optimizer.variables() for power in optimizer._get_beta_accumulators())
    with tf.Graph().as_default():
        assert optimizer._get_beta_accumulators() == (None, None)
    with pytest.raises(ValueError, match="AdamGSOptimizer has applied no gradients yet"):
        AdamGSOptimizer()._get_beta_accumulators()


@pytest.mark.parametrize("optimizer", WITH_POWERS)
def test_powers_without_a_session(optimizer):
    made, w = optimizer(), tf.Variable([1.0])
    made.apply_gradients([(tf.ones([1]), w)])
    power = 0.9 if optimizer in BY_STEP else 0.9**2
    np.testing.assert_allclose(powers_of(made)[0].numpy(), power, rtol=1e-6)


@pytest.mark.parametrize("optimizer", [LazyAdamOptimizer, LazyAdamGSOptimizer])
def test_a_subclass_that_overrides_the_update(optimizer):
    class Mine(optimizer):
        def _apply_dense(self, grad, var):
            one, other = self._get_beta_accumulators()
            return tf.raw_ops.ApplyAdam(
                var=var,
                m=self.get_slot(var, "m"),
                v=self.get_slot(var, "v"),
                beta1_power=one,
                beta2_power=other,
                lr=self._lr_t,
                beta1=self._beta1_t,
                beta2=self._beta2_t,
                epsilon=self._epsilon_t,
                grad=grad,
            )

    def make(cls):
        return lambda step: cls(**({"global_step": step} if optimizer in BY_STEP else {}))

    mine, expected = (trained(make(cls), use_resource=False)[0] for cls in (Mine, optimizer))
    assert np.array_equal(mine, expected)


# Attributes (hyperparameters and their tensors) whose names are the same as in the originals.

KEPT = [
    (AddSignOptimizer(0.5), {"_lr": 0.5}, {"_lr_t": 0.5, "_alpha_t": 1.0, "_beta_t": 0.9}),
    (AddSignOptimizer(sign_decay_fn=lambda _: 0.25), {}, {"_sign_decay_t": 0.25}),
    (PowerSignOptimizer(base=1.0), {"_logbase": 0.0}, {"_lr_t": 0.1, "_logbase_t": 0.0}),
    (LARSOptimizer(0.5), {}, {"_learning_rate_tensor": 0.5, "_momentum_tensor": 0.9}),
    (RegAdagradOptimizer(0.5), {"_should_update_slots": True}, {"_learning_rate_tensor": 0.5}),
]


@pytest.mark.parametrize(
    "optimizer, numbers, tensors", KEPT, ids=[type(each).__name__ for each, _, _ in KEPT]
)
def test_attributes_that_subclasses_read(optimizer, numbers, tensors):
    optimizer.apply_gradients([(tf.ones([2]), tf.Variable([1.0, 2.0]))])
    assert {name: getattr(optimizer, name) for name in numbers} == numbers
    for name, value in tensors.items():
        np.testing.assert_allclose(getattr(optimizer, name).numpy(), value, rtol=1e-6)


def test_regadagrads_flag_inside_its_context():
    optimizer = RegAdagradOptimizer(0.5)
    with optimizer.avoid_updating_slots():
        assert not optimizer._should_update_slots


def test_a_subclass_of_lars_that_chooses_the_rate():
    class Mine(LARSOptimizer):
        def compute_lr(self, grad, var):
            rate, decayed = super().compute_lr(grad, var)
            seen.append(float(rate))
            return rate * 0 + 1.0, decayed - self._weight_decay * var

    seen, w = [], tf.Variable([3.0, 4.0])
    optimizer = Mine(2.0, momentum=0.0, weight_decay=0.5, eeta=0.75)
    optimizer.apply_gradients([(tf.constant([0.0, 5.0]), w)])
    np.testing.assert_allclose(seen, [2 * 0.75 * 5 / (5 + 0.5 * 5)], rtol=1e-6)
    np.testing.assert_allclose(w.numpy(), [3.0, -1.0], rtol=1e-6)


def test_the_attribute_of_the_nested_optimizer():
    inner = v1.train.GradientDescentOptimizer(0.1)
    assert legacy_opt.MovingAverageOptimizer(inner)._optimizer is inner
    assert legacy_opt.VariableClippingOptimizer(inner, {}, 1.0)._opt is inner
    assert legacy_opt.MultitaskOptimizerWrapper(inner)._opt is inner


# Arguments.


@pytest.mark.parametrize("optimizer", [*BY_STEP, ShampooOptimizer])
@pytest.mark.parametrize("step", [3.0, np.float32(3), np.array(3), np.array(3.0)])
def test_a_constant_step_may_be_any_number(optimizer, step):
    given, expected = (trained(lambda _, n=n: optimizer(n))[0] for n in (step, 3))
    assert np.array_equal(given, expected)


def test_a_step_with_a_fraction():
    # As in the original, t is global_step + 1 = 2.5, so m is divided by 1 - 0.5**2.5.
    optimizer = AdamGSOptimizer(1.5, 1.0, beta1=0.5, beta2=0.75, epsilon=0.0)
    w = tf.Variable(0.0)
    optimizer.apply_gradients([(tf.constant(3.0), w)])
    expected = 0.5 / (1 - 0.5**2.5) / np.sqrt(0.25 / (1 - 0.75**2.5))
    np.testing.assert_allclose(w.numpy(), -expected, rtol=1e-6)


@pytest.mark.parametrize("optimizer", [*BY_STEP, ShampooOptimizer])
def test_a_step_may_be_a_float_variable(optimizer):
    def make(dtype):
        step = tf.Variable(2, dtype=dtype)
        w = tf.Variable([[1.0, 2.0]])
        made = optimizer(step, **({"svd_interval": 2} if optimizer is ShampooOptimizer else {}))
        for _ in range(3):
            made.apply_gradients([(tf.constant([[0.5, -0.25]]), w)], global_step=step)
        assert step.numpy() == 5
        return w.numpy()

    assert np.array_equal(make(tf.float32), make(tf.int64))


@pytest.mark.parametrize("step", [-1, -0.5, float("nan"), float("inf"), 2**63, "0.5"])
def test_invalid_steps(step):
    with pytest.raises((TypeError, ValueError), match="global_step must be"):
        AdamGSOptimizer(step)


def test_a_linear_decay_counts_whole_steps():
    np.testing.assert_allclose(get_linear_decay_fn(10)(tf.constant(3.5)).numpy(), 0.7, rtol=1e-6)


def test_multipliers_of_untrained_variables_alone():
    with tf.Graph().as_default():
        w = v1.get_variable("w", initializer=[1.0])
        step = v1.train.get_or_create_global_step()
        optimize_loss(tf.reduce_sum(w), step, 0.1, "SGD", gradient_multipliers={})


# Errors. If the original raises a ValueError where legacy_opt raises a TypeError, the TypeError is
# also an instance of ValueError.


def w_():
    return v1.get_variable("w", initializer=[1.0])


def loss_():
    return tf.reduce_sum(w_())


BOTH = {
    "a name that is none": lambda: LazyAdamOptimizer(name=None),
    "a name that is false": lambda: legacy_opt.AdagradDecayOptimizer(0.1, None, name=0),
    "no learning rate": lambda: LazyAdamOptimizer(None),
    "a list of rates": lambda: AddSignOptimizer([0.1, 0.2]),
    "an array of rates": lambda: RegAdagradOptimizer(np.array([0.1, 0.2])),
    "a list of steps": lambda: AdamGSOptimizer([1]),
    "no decay steps": lambda: get_linear_decay_fn(None),
    "no norm": lambda: legacy_opt.VariableClippingOptimizer(LazyAdamOptimizer(), {}, None),
    "integers": lambda: LazyAdamOptimizer().apply_gradients(
        [(tf.constant([1]), v1.get_variable("i", initializer=[1]))]
    ),
    "no optimizer": lambda: optimize_loss(loss_(), None, 0.1, None),
    "a function that makes none": lambda: optimize_loss(loss_(), None, 0.1, lambda rate: rate),
    "a rate that is a word": lambda: optimize_loss(loss_(), None, "0.1", "SGD"),
    "a rate that is a function": lambda: optimize_loss(loss_(), None, lambda: 0.1, "SGD"),
    "a norm that is a word": lambda: optimize_loss(loss_(), None, 0.1, "SGD", clip_gradients="1"),
    "an integer loss": lambda: optimize_loss(tf.cast(loss_(), tf.int32), None, 0.1, "SGD"),
    "no loss": lambda: optimize_loss(None, None, 0.1, "SGD"),
    "one summary": lambda: optimize_loss(loss_(), None, 0.1, "SGD", summaries="loss"),
    "no dict": lambda: legacy_opt.multiply_gradients([(tf.ones([1]), w_())], [2.0]),
    "no pairs": lambda: legacy_opt.multiply_gradients(5, {"w": 2.0}),
}


@pytest.mark.parametrize("what", BOTH)
def test_an_error_of_the_wrong_type_is_a_value_error_as_well(what):
    for error in (TypeError, ValueError):
        with pytest.raises(error), tf.Graph().as_default():
            BOTH[what]()
