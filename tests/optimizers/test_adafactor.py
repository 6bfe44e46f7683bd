"""Tests Adafactor: values computed by hand, slots, default learning rates, and errors.

In the comments, vr and vc are the decayed means of the squared gradients of each row and of each
column. u is the gradient divided by the root of the second moment. If the RMS (root mean square) of
u exceeds 1, u is clipped, which means divided by the RMS.
"""

import inspect
import json
import warnings

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import AdafactorOptimizer, GlobalStepWarning
from legacy_opt.compat import to_keras
from tests.support.stepping import trained

v1 = tf.compat.v1


def test_two_steps_of_a_matrix_by_hand():
    gradients = [[[1.0, 2.0], [2.0, 4.0]], [[2.0, 0.0], [0.0, 0.0]]]
    (first, second), slots = trained(AdafactorOptimizer(), [[1.0, 2.0], [3.0, 4.0]], gradients)
    # Step 1: the accumulator decay is 1 - 1**-0.8 = 0. vr = vc = [2.5, 10], and
    # vr / mean(vr) = [0.4, 1.6].
    # outer([0.4, 1.6], [2.5, 10]) = [[1, 4], [4, 16]], so u is 1 everywhere, and its RMS is 1.
    w = np.array([[1, 2], [3, 4]]) - 0.01 * np.sqrt(30 / 4)
    np.testing.assert_allclose(first, w, rtol=2e-7)
    # Step 2: row and column means of the squares are [2, 0]; the accumulator decay is 1 - 2**-0.8.
    decay = 1 - 2**-0.8
    means = decay * np.array([2.5, 10]) + (1 - decay) * np.array([2, 0])
    u = 2 / np.sqrt(means[0] / means.mean() * means[0])  # at [0, 0]; elsewhere 0
    rate = 0.01 * np.sqrt(np.mean(w**2))
    w[0, 0] -= rate * u / max(1, np.sqrt(u * u / 4))
    np.testing.assert_allclose(second, w, rtol=3e-7)
    assert sorted(slots) == ["vc", "vr"]
    np.testing.assert_allclose(slots["vr"], means, rtol=3e-7)
    np.testing.assert_allclose(slots["vc"], means, rtol=3e-7)


def test_two_steps_of_a_vector_by_hand():
    optimizer = AdafactorOptimizer(
        False, learning_rate=0.5, decay_rate=0.75, beta1=0.5, clipping_threshold=1.0
    )
    (first, second), slots = trained(optimizer, [1.0, 2.0], [[2.0, 0.0], [1.0, 0.0]])
    # Step 1: v = 0.25 * 4 = 1; u = [2, 0] has the RMS sqrt(2) and is clipped to [sqrt(2), 0];
    #         m = 0.5 * 0.5 * u
    m = 0.25 * np.sqrt(2)
    np.testing.assert_allclose(first, [1 - m, 2], rtol=2e-7)
    # Step 2: v = 0.75 + 0.25 = 1; u = [1, 0] has the RMS sqrt(1/2) < 1, so it is not clipped;
    #         m = 0.5 * m + 0.5 * 0.5 * u
    m2 = 0.5 * m + 0.25
    np.testing.assert_allclose(second, [1 - m - m2, 2], rtol=3e-7)
    np.testing.assert_allclose(slots["m"], [m2, 0], rtol=3e-7)
    np.testing.assert_allclose(slots["v"], [1, 0.4375e-30], rtol=3e-7)


def test_default_learning_rates():
    # All elements of u are 1, so each step moves w by the learning rate.
    def moved(steps, *arguments):
        seen, _ = trained(AdafactorOptimizer(*arguments), [0.0], [[1.0]] * steps)
        return np.diff([0.0] + [float(value[0]) for value in seen])

    # w is 0, so its RMS is replaced by epsilon2 = 1e-3.
    np.testing.assert_allclose(moved(1), [-0.01 * 1e-3], rtol=1e-6)
    np.testing.assert_allclose(moved(2, False), [-0.01 * 0.05] * 2, rtol=1e-6)
    np.testing.assert_allclose(moved(1, False, 0.3), [-0.3], rtol=1e-6)


def test_the_default_rate_decreases_with_the_graphs_step():
    with tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
        w = v1.get_variable("w", initializer=[0.0])
        train_op = AdafactorOptimizer(False).apply_gradients([(tf.ones([1]), w)], global_step=step)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            session.run(step.assign(39999))
            session.run(train_op)
            np.testing.assert_allclose(session.run(w), [-0.05 / 200], rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_slots(dtype):
    with tf.Graph().as_default():
        shapes = {"cube": [5, 2, 3], "matrix": [4, 3], "vector": [4], "scalar": []}
        pairs = [
            (tf.ones(shape, dtype), v1.get_variable(name, shape, dtype, v1.ones_initializer()))
            for name, shape in shapes.items()
        ]
        step = v1.train.get_or_create_global_step()
        AdafactorOptimizer(beta1=0.9).apply_gradients(pairs, global_step=step)
        found = {
            each.op.name: (each.dtype.base_dtype.name, each.shape.as_list())
            for each in v1.global_variables()
            if "/" in each.op.name
        }
    assert found == {
        "cube/Adafactor": (dtype, [5, 2, 3]),
        "cube/Adafactor_1": ("float32", [5, 2]),
        "cube/Adafactor_2": ("float32", [5, 3]),
        "matrix/Adafactor": (dtype, [4, 3]),
        "matrix/Adafactor_1": ("float32", [4]),
        "matrix/Adafactor_2": ("float32", [3]),
        "vector/Adafactor": (dtype, [4]),
        "vector/Adafactor_1": ("float32", [4]),
        "scalar/Adafactor": (dtype, []),
        "scalar/Adafactor_1": ("float32", []),
    }


def test_small_floats_are_computed_in_float32():
    # In float16, 300 squared would be infinite, and epsilon1 (1e-30) would be 0.
    values, slots = trained(AdafactorOptimizer(), [[1.0, 1.0]], [[[300.0, 0.0]]], dtype="float16")
    np.testing.assert_allclose(slots["vr"], [45000], rtol=1e-6)
    # u = [300, 0] / sqrt(90000) = [1, 0], so its RMS is sqrt(1/2)
    np.testing.assert_allclose(values[0], [[0.99, 1]], atol=5e-4)


def test_decay_rates():
    by_adam = legacy_opt.adafactor_decay_rate_adam(0.75)
    by_power = legacy_opt.adafactor_decay_rate_pow(0.5)
    with tf.Graph().as_default(), v1.Session() as session:
        adam = session.run([by_adam(step) for step in (0, 1, 2)])
        power = session.run([by_power(step) for step in (0, 3)])
    # With t = step + 1, `by_adam` is 0.75 * (1 - 0.75**(t - 1)) / (1 - 0.75**t).
    np.testing.assert_allclose(adam, [0, 0.1875 / 0.4375, 0.328125 / 0.578125], rtol=5e-7)
    np.testing.assert_allclose(power, [0, 0.5], rtol=5e-7)


def test_a_function_as_decay_rate():
    def decay(step):
        return step / 4.0

    _, slots = trained(AdafactorOptimizer(decay_rate=decay), [1.0], [[1.0], [3.0]])
    np.testing.assert_allclose(slots["v"], [0.25 * 1 + 0.75 * 9], rtol=1e-6)


@pytest.mark.parametrize(
    "decay_rate",
    [legacy_opt.adafactor_decay_rate_pow(0.5), legacy_opt.adafactor_decay_rate_adam(0.75), 0.5],
    ids=["pow", "adam", "number"],
)
def test_a_decay_rate_of_this_package_can_be_saved(decay_rate):
    bridged = to_keras(AdafactorOptimizer(learning_rate=0.1, decay_rate=decay_rate, beta1=0.5))
    saved = json.loads(json.dumps(bridged.get_config()))
    again = type(bridged).from_config(saved)
    assert again.get_config() == saved
    restored = again._v1.optimizer._decay_rate
    assert repr(restored) == repr(decay_rate)
    if callable(decay_rate):
        assert float(restored(tf.constant(3))) == float(decay_rate(tf.constant(3)))


def test_a_users_decay_rate_cannot_be_saved():
    def quarters(step):
        return step / 4.0

    bridged = to_keras(AdafactorOptimizer(decay_rate=quarters))
    with pytest.raises(ValueError, match="decay_rate=.*quarters.*adafactor_decay_rate_pow.*sub"):
        bridged.get_config()


def test_the_message_for_a_single_kind_of_function(monkeypatch):
    (first, _) = AdafactorOptimizer.step_functions["decay_rate"]
    monkeypatch.setattr(AdafactorOptimizer, "step_functions", {"decay_rate": (first,)})
    with pytest.raises(ValueError, match="use adafactor_decay_rate_adam of legacy_opt; or write"):
        AdafactorOptimizer(decay_rate=lambda step: 0.5).get_config()


def warned(optimizer):
    with tf.Graph().as_default(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        w = v1.get_variable("w", [1])
        optimizer.apply_gradients([(tf.ones([1]), w)])
    return [each for each in caught if each.category is GlobalStepWarning]


def test_it_warns_without_a_step_only_if_it_reads_one():
    assert warned(AdafactorOptimizer())
    assert warned(AdafactorOptimizer(learning_rate=0.1))
    assert warned(AdafactorOptimizer(decay_rate=0.9))
    assert not warned(AdafactorOptimizer(learning_rate=0.1, decay_rate=0.9))


def test_arguments_are_in_the_originals_order():
    rates = "multiply_by_parameter_scale learning_rate decay_rate beta1 clipping_threshold factored"
    unsupported = "simulated_quantize_bits parameter_encoding"
    expected = " ".join([rates, unsupported, "use_locking name epsilon1 epsilon2"])
    assert " ".join(inspect.signature(AdafactorOptimizer).parameters) == expected


def test_in_keras_with_and_without_a_learning_rate():
    w = tf.Variable([1.0])
    optimizer = to_keras(AdafactorOptimizer(False))
    optimizer.apply_gradients([(tf.ones([1]), w)])
    np.testing.assert_allclose(w.numpy(), [1 - 0.01 * 0.05], rtol=1e-6)
    again = type(optimizer).from_config(optimizer.get_config())
    w = tf.Variable([1.0])
    again.apply_gradients([(tf.ones([1]), w)])
    np.testing.assert_allclose(w.numpy(), [1 - 0.01 * 0.05], rtol=1e-6)
    with pytest.raises(ValueError, match="learning_rate=0.1 for .* learning_rate=None"):
        to_keras(AdafactorOptimizer(), learning_rate=0.1)
    optimizer = to_keras(AdafactorOptimizer(False, learning_rate=0.5))
    optimizer.learning_rate = 0.25
    w = tf.Variable([1.0])
    optimizer.apply_gradients([(tf.ones([1]), w)])
    np.testing.assert_allclose(w.numpy(), [0.75], rtol=1e-6)


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"simulated_quantize_bits": 8}, ValueError, "simulated_quantize_bits=8.*Pass None"),
        ({"parameter_encoding": object()}, ValueError, "parameter_encoding=.*Pass None"),
        ({"clipping_threshold": 0}, ValueError, "clipping_threshold must be positive"),
        ({"beta1": 1.0}, ValueError, "beta1 must be at least 0 and less than 1"),
        ({"decay_rate": 1.0}, ValueError, "decay_rate must be at least 0 and less than 1"),
        ({"decay_rate": lambda one, two: 0.1}, TypeError, "decay_rate"),
        (
            {"multiply_by_parameter_scale": 1e-3},
            TypeError,
            "must be True.*pass learning_rate=0.001",
        ),
    ],
)
def test_wrong_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        AdafactorOptimizer(**arguments)
    AdafactorOptimizer(simulated_quantize_bits=0)  # the default in tensor2tensor


@pytest.mark.parametrize("shape", [None, [None, 2]])
def test_the_shape_of_a_matrix_must_be_known(shape):
    with tf.Graph().as_default():
        value = v1.placeholder_with_default([[1.0, 2.0]], shape)
        w = v1.get_variable("w", initializer=value, validate_shape=False, use_resource=True)
        step = v1.train.get_or_create_global_step()
        with pytest.raises(ValueError, match="variable 'w:0' has shape .* pass factored=False"):
            AdafactorOptimizer().apply_gradients([(w * 2, w)], global_step=step)
