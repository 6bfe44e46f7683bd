"""Tests the options that Keras 3 documents for optimizers, with optimizers made by `to_keras`.

The expected values come from the v1 optimizer in a Session, or from NumPy.
"""

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import extend_with_decoupled_weight_decay
from tests.support import problems, running
from tests.support.keras import keras_models
from tests.support.keras.keras_apis import KERAS_3 as api

pytestmark = pytest.mark.keras3

v1 = tf.compat.v1
keras = api.keras
PROBLEM = keras_models.problem()
STATEFUL = ["AdagradDA", "AdagradDecay", "Adam", "Momentum", "RMSProp"]
WAYS = pytest.mark.parametrize("way", ["function", "eager"])


# Exponential moving averages.


def averages(values, momentum):
    """Returns the averages after each step, computed by the formula in the Keras documentation."""
    average, result = None, []
    for now in values:
        average = now if average is None else momentum * average + (1 - momentum) * now
        result.append(average)
    return result


@pytest.mark.parametrize("way", ["function", "eager", "fit"])
def test_moving_averages(way):
    """Averaging does not change training. The end of fit sets the weights to the averages."""
    optimizer = api.bridged("Adam", use_ema=True, ema_momentum=0.75)
    config = running.config_of(way)
    expected = keras_models.session("Adam", PROBLEM, config=config)
    if way == "fit":
        actual, model = api.fit(PROBLEM, optimizer)
        variables = model.get_layer("fed").variables_by_name
    else:
        variables = {}
        actual, _ = keras_models.loop(
            PROBLEM, optimizer, way, between=lambda found, _: variables.update(found)
        )
        optimizer.finalize_variable_values(list(variables.values()))
    running.assert_same(actual, expected)
    for name, variable in variables.items():
        wanted = averages([step[name] for step in expected.steps], 0.75)[-1]
        assert not np.allclose(wanted, expected.steps[-1][name], atol=0.01)
        np.testing.assert_allclose(variable.numpy(), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("way", ["function", "fit"])
def test_averages_overwrite_the_weights(way):
    optimizer = api.bridged(
        v1.train.GradientDescentOptimizer(0.5),
        use_ema=True,
        ema_momentum=0.75,
        ema_overwrite_frequency=3,
    )
    actual = api.run(optimizer, way, PROBLEM)
    now, average = dict(PROBLEM.values), None
    wanted = []
    for number, gradients in enumerate(PROBLEM.gradients):
        (now,) = keras_models.rates(
            PROBLEM._replace(values=now, gradients=[gradients]), lambda _: 0.5
        )
        if average is None:
            average = now
        average = {name: 0.75 * average[name] + 0.25 * now[name] for name in now}
        if (number + 1) % 3 == 0:
            now = average
        wanted.append(now)
    running.assert_steps_close(actual.steps, wanted)


# Weight decay.


def gradient_descent_with_decay(problem, decay, rate_of, without=()):
    """Computes gradient descent in NumPy, with Keras' weight decay before each update."""
    now, steps = dict(problem.values), []
    for number, gradients in enumerate(problem.gradients):
        rate = np.float32(rate_of(number))
        before = {
            n: v if n in without else v - v * np.float32(decay) * rate for n, v in now.items()
        }
        one = problem._replace(values=before, gradients=[gradients])
        (now,) = keras_models.rates(one, lambda _: rate)  # noqa: B023
        steps.append(now)
    return steps


@pytest.mark.parametrize("way", ["function", "eager", "fit"])
@pytest.mark.parametrize("exclude", [None, "var_list", "var_names"])
def test_weight_decay(exclude, way):
    optimizer = api.bridged("GradientDescent", learning_rate=0.5, weight_decay=0.25)
    model = api.fed_model(PROBLEM)
    variables = model.get_layer("fed").variables_by_name
    if way != "fit":
        variables = keras_models.variables_of(PROBLEM)
    if exclude is not None:
        named = [variables["table"]] if exclude == "var_list" else ["tab"]
        optimizer.exclude_from_weight_decay(**{exclude: named})
    if way == "fit":
        steps = api.fit(PROBLEM, optimizer, model=model)[0].steps
    else:
        trace, _ = keras_models.loop(PROBLEM, optimizer, way, variables=variables)
        steps = trace.steps
    without = () if exclude is None else ("table",)
    wanted = gradient_descent_with_decay(PROBLEM, 0.25, lambda _: 0.5, without)
    assert not np.allclose(
        wanted[-1]["matrix"], keras_models.rates(PROBLEM, lambda _: 0.5)[-1]["matrix"]
    )
    running.assert_steps_close(steps, wanted)


def test_weight_decay_uses_the_scheduled_learning_rate():
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([3], [0.5, 0.125])
    optimizer = api.bridged("GradientDescent", learning_rate=schedule, weight_decay=0.25)
    actual = api.run(optimizer, "function", PROBLEM)
    running.assert_steps_close(
        actual.steps, gradient_descent_with_decay(PROBLEM, 0.25, lambda n: 0.5 if n <= 3 else 0.125)
    )


def test_weight_decay_and_slots():
    """Compares bit for bit with a Session that decays the weights before each step."""
    optimizer = api.bridged("Adam", weight_decay=0.25)
    actual = api.run(optimizer, "eager", PROBLEM)

    def decay(sess, optimizer, variables, number):
        for variable in variables.values():
            now = sess.run(variable)
            variable.load(now - now * np.float32(0.25) * np.float32(0.1), sess)

    expected = keras_models.session("Adam", PROBLEM, between=decay, config=running.AS_WRITTEN)
    running.assert_same(actual, expected)


class ReadsInPrepare(v1.train.GradientDescentOptimizer):
    """Adds a weight decay to the gradient. _prepare reads the hyperparameter `_weight_decay`."""

    def __init__(self, learning_rate, weight_decay):
        super().__init__(learning_rate)
        self._weight_decay = weight_decay

    def _prepare(self):
        super()._prepare()
        self._decay = tf.convert_to_tensor(self._weight_decay)

    def _resource_apply_dense(self, grad, handle):
        return super()._resource_apply_dense(grad + self._decay * handle, handle)


class ReadsInUpdate(ReadsInPrepare):
    def _prepare(self):
        super()._prepare()
        self._decay = None

    def _resource_apply_dense(self, grad, handle):
        self._decay = self._weight_decay
        return super()._resource_apply_dense(grad, handle)


@pytest.mark.parametrize("cls", [ReadsInPrepare, ReadsInUpdate])
def test_a_v1_class_with_its_own_weight_decay(cls):
    """The v1 class applies its own weight decay. Keras' argument weight_decay raises an error."""
    variable = keras.Variable([1.0, 2.0])
    optimizer = api.bridged(cls(0.5, 0.5))
    optimizer.apply_gradients([(tf.zeros(2), variable)])
    np.testing.assert_array_equal(variable.numpy(), [0.75, 1.5])
    if cls is ReadsInPrepare:
        optimizer.weight_decay = 1.0
        optimizer.apply_gradients([(tf.zeros(2), variable)])
        np.testing.assert_array_equal(variable.numpy(), [0.375, 0.75])
        assert optimizer.get_config()["weight_decay"] is None
    else:
        with pytest.raises(AttributeError, match="weight_decay"):
            optimizer.weight_decay = 0.1
    with pytest.raises(ValueError, match=f"weight_decay=0.1.*besides {cls.__name__}"):
        api.bridged(cls(0.5, 0.5), weight_decay=0.1)


def test_exclude_from_weight_decay_with_decoupled_weight_decay():
    weights, bias = (keras.Variable([4.0], name=name) for name in ("weights", "bias"))
    sgdw = extend_with_decoupled_weight_decay(v1.train.GradientDescentOptimizer)
    optimizer = api.bridged(sgdw(0.5, 0.25))
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    optimizer.apply([tf.ones([1]), tf.ones([1])], [weights, bias])
    assert (float(weights[0]), float(bias[0])) == (1.75, 3.75)


# Gradient accumulation.


def accumulated(problem, steps):
    """Returns a problem whose gradients are dense averages over groups of `steps` gradients."""
    gradients = []
    for start in range(0, problem.steps, steps):
        total = {name: np.zeros_like(value) for name, value in problem.values.items()}
        for step in problem.gradients[start : start + steps]:
            total = {name: problems.dense(step[name], total[name]) + total[name] for name in total}
        gradients.append({name: value / np.float32(steps) for name, value in total.items()})
    return problem._replace(gradients=gradients, sparse=())


@pytest.mark.parametrize("way", ["function", "eager", "fit"])
@pytest.mark.parametrize("name", STATEFUL)
def test_accumulated_gradients(name, way):
    """Each update uses the average of two gradients.

    AdagradDecay decays its accumulators after a number of global steps. The global step counts
    updates.
    """
    optimizer = api.bridged(name, gradient_accumulation_steps=2)
    actual = api.run(optimizer, way, PROBLEM)
    expected = keras_models.session(name, accumulated(PROBLEM, 2), config=running.config_of(way))
    running.assert_same(actual._replace(steps=actual.steps[1::2]), expected)
    for first, second in zip(actual.steps[::2], [PROBLEM.values] + expected.steps):
        for key in second:
            np.testing.assert_array_equal(first[key], second[key])
    assert int(optimizer.iterations.numpy()) == PROBLEM.steps // 2


def test_accumulation_with_a_variable_without_gradient():
    one, other = keras.Variable([1.0]), keras.Variable([2.0])
    optimizer = api.bridged(v1.train.GradientDescentOptimizer(1.0), gradient_accumulation_steps=2)
    optimizer.build([one, other])
    for _ in range(2):
        optimizer.apply_gradients([(tf.constant([0.5]), one), (None, other)])
    assert (one.numpy(), other.numpy()) == ([0.5], [2.0])


class DividesByStep(v1.train.GradientDescentOptimizer):
    """Divides gradients by 1 + global_step in apply_gradients."""

    advances = True

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        factor = 1 / (1 + tf.cast(global_step.read_value(), tf.float32))
        pairs = [(tf.convert_to_tensor(g) * factor, v) for g, v in grads_and_vars]
        return super().apply_gradients(pairs, global_step if self.advances else None, name)


class DoesNotAdvance(DividesByStep):
    advances = False


@pytest.mark.parametrize("way", ["function", "eager", "fit"])
@pytest.mark.parametrize("accumulate", [None, 2])
@pytest.mark.parametrize("cls", [DividesByStep, DoesNotAdvance])
def test_an_overridden_apply_gradients_is_called(cls, accumulate, way):
    """Tests a class that increments the global step, and a class that does not."""
    optimizer = api.bridged(cls(0.5), gradient_accumulation_steps=accumulate)
    actual = api.run(optimizer, way, PROBLEM)
    problem = PROBLEM if accumulate is None else accumulated(PROBLEM, 2)
    wanted = keras_models.rates(problem, lambda number: 0.5 / (1 + number))
    running.assert_steps_close(actual.steps[(accumulate or 1) - 1 :: accumulate or 1], wanted)
    assert int(optimizer.iterations.numpy()) == problem.steps
