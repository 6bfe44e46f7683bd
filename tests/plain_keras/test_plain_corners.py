"""Tests to_plain_keras and from_plain_keras: features that only Keras 2 or only Keras 3 has.

to_plain_keras translates a v1 optimizer to one of Keras' own optimizers. from_plain_keras does the
reverse. Each translation has a grade: "exact", "rounding" or "differs".
"""

import warnings

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import AdamWeightDecayOptimizer
from legacy_opt.compat import from_plain_keras, to_plain_keras
from legacy_opt.compat.in_keras.plain_keras import measurement
from tests.plain_keras.plain_training import figures, ones, state, steps
from tests.support.keras.keras_apis import KERAS_3, OPTIMIZER_V2

v1 = tf.compat.v1


def test_patterns_of_users_match_no_variable_of_the_measurement(api):
    def make():
        for excluded in [], ["dense", "rows", "ids"]:
            optimizer = AdamWeightDecayOptimizer(
                0.1, weight_decay_rate=0.5, exclude_from_weight_decay=excluded
            )
            yield api.bridged(optimizer)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = measurement.measure(make, None, rate=0.1, are_separate=False)
    assert [(each.why, each.largest) for each in found] == [(None, 0.0)] * 4


# Keras 2.


def test_a_decay_of_keras_2_is_kept():
    weight = ones()
    optimizer = OPTIMIZER_V2.bridged(v1.train.MomentumOptimizer(0.1, 0.9), decay=1.0)
    steps(optimizer, [weight], 1.0)
    translation = to_plain_keras(optimizer)
    np.testing.assert_allclose(
        translation.optimizer.get_slot(weight, "momentum").numpy(), -0.05, rtol=1e-6
    )
    assert translation.optimizer.get_config()["decay"] == 1.0
    assert translation.report.measurements[-1].counts


def test_keras_2_in_a_graph():
    with tf.Graph().as_default(), v1.Session() as session:
        weight = ones(3)
        optimizer = OPTIMIZER_V2.bridged(v1.train.AdamOptimizer(0.1))
        train = optimizer.apply_gradients([(tf.fill([3], 0.5), weight)])
        session.run(v1.global_variables_initializer())
        for _ in range(3):
            session.run(train)
        there = to_plain_keras(optimizer)
        assert there.grade == "rounding" and there.report.iterations == 3
        back = from_plain_keras(there.optimizer, v1.train.AdamOptimizer(0.1), variables=[weight])
        before, after = session.run([optimizer.weights, back.optimizer.weights])
        assert all(np.array_equal(one, other) for one, other in zip(before, after))
        # The slot m, computed by hand, is 0.1 * 0.5 * (1 + 0.9 + 0.81).
        found = session.run(there.optimizer.get_slot(weight, "m"))
        np.testing.assert_allclose(found, 0.05 * 2.71, rtol=1e-6)


def test_deferred_slots_need_the_variables_argument(tmp_path):
    """The model has no weight when the checkpoint is restored, so the slots are restored later."""
    weight = ones(2)
    plain = OPTIMIZER_V2.optimizers.Adam(0.1, epsilon=1e-8)
    steps(plain, [weight], 1.0, 1.0)
    path = tf.train.Checkpoint(model=Holder(weight), optimizer=plain).save(str(tmp_path / "c"))
    model, restored = Holder(), OPTIMIZER_V2.optimizers.Adam(0.1, epsilon=1e-8)
    tf.train.Checkpoint(model=model, optimizer=restored).restore(path)
    with pytest.raises(ValueError, match="variables=model.trainable_variables"):
        from_plain_keras(restored, v1.train.AdamOptimizer(0.1))
    model.weight = ones(2)
    found = from_plain_keras(restored, v1.train.AdamOptimizer(0.1), [model.weight])
    slot = found.optimizer.get_slot(model.weight, "m").numpy()
    assert slot.all() and np.array_equal(slot, plain.get_slot(weight, "m").numpy())


class Holder(tf.Module):
    """A model whose weight may be created later."""

    def __init__(self, weight=None):
        super().__init__()
        if weight is not None:
            self.weight = weight


def dense_only(pairs):
    return [(grad * 10, variable) for grad, variable in pairs]


@pytest.mark.parametrize("name", ["gradient_aggregator", "gradient_transformers"])
def test_gradient_transformers_and_aggregators_are_carried_over(name):
    """Only dense training can be measured, because `dense_only` fails for sparse gradients."""
    if not hasattr(OPTIMIZER_V2.optimizers.SGD(0.1), name):  # true up to TensorFlow 2.3
        with pytest.raises(TypeError, match=name):
            OPTIMIZER_V2.optimizers.SGD(0.1, **{name: dense_only})
        return
    functions = {name: dense_only if name == "gradient_aggregator" else [dense_only]}
    optimizer = OPTIMIZER_V2.bridged(v1.train.GradientDescentOptimizer(0.1), **functions)
    there = to_plain_keras(optimizer, sparse=False)
    back = from_plain_keras(there.optimizer, v1.train.GradientDescentOptimizer(0.1))
    assert (there.grade, back.grade) == ("exact", "differs")
    for translation in (there, back):
        weight = ones(1)
        steps(translation.optimizer, [weight], 1.0)
        assert np.array_equal(weight.numpy(), [0])
        assert figures(translation)["repeated ids"] == "differs"
        assert "training raises TypeError: unsupported operand" in str(translation.report)


# Keras 3.


@pytest.mark.keras3
def test_averages_and_accumulated_gradients_are_carried_over():
    options = {"use_ema": True, "ema_momentum": 0.5, "gradient_accumulation_steps": 2}
    weights = [ones(2), ones(3)]
    optimizer = KERAS_3.bridged(v1.train.AdagradOptimizer(0.1), **options)
    steps(optimizer, weights, 1.0, 1.0, 1.0)  # one update, and half of the next update
    translation = to_plain_keras(optimizer)
    plain = translation.optimizer
    assert {name: getattr(plain, name) for name in options} == options
    assert int(plain.iterations) == 1 and translation.report.iterations == 1
    accumulated = [each.tolist() for each in state(plain, "gradient_accumulator")]
    assert accumulated == [[1.0] * 2, [1.0] * 3]
    same = [each.numpy() for each in optimizer._model_variables_moving_average]
    assert all(map(np.array_equal, state(plain, "average"), same))
    # The names of the slots and of the accumulated gradients end with "accumulator". The
    # accumulated gradients are 1, and the slots are 0.1 + 1**2.
    own = [each for each in state(plain, "accumulator") if each[0] != 1.0]
    np.testing.assert_allclose(np.concatenate(own), 1.1, rtol=1e-6)
    back = from_plain_keras(plain, v1.train.AdagradOptimizer(0.1)).optimizer
    values = {name: each.numpy() for name, each in optimizer._saved.variables_by_name().items()}
    found = {name: each.numpy() for name, each in back._saved.variables_by_name().items()}
    assert values.keys() == found.keys()
    assert all(np.array_equal(values[name], found[name]) for name in values)


@pytest.mark.keras3
def test_settings_of_keras_3_are_carried_over():
    optimizer = KERAS_3.bridged(
        v1.train.AdamOptimizer(0.1, epsilon=0), weight_decay=0.1, clipnorm=0.5
    )
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    weight, bias = ones(2), tf.Variable(np.ones(2, "f"), name="bias")
    steps(optimizer, [weight, bias], 1.0)
    translation = to_plain_keras(optimizer)
    plain = translation.optimizer
    assert (plain.weight_decay, plain.clipnorm, plain.epsilon) == (0.1, 0.5, 0.0)
    assert plain._use_weight_decay(weight) and not plain._use_weight_decay(bias)
    assert "clips" in translation.report.measurements[2].why
    assert translation.report.settings["weight_decay"] == 0.1


@pytest.mark.keras3
def test_a_v1_decay_with_accumulated_gradients_is_refused():
    rate = v1.train.exponential_decay(0.1, tf.Variable(0, dtype=tf.int64), 3, 0.5)
    optimizer = KERAS_3.bridged(v1.train.AdagradOptimizer(rate), gradient_accumulation_steps=2)
    with pytest.raises(ValueError, match="counts updates.*count batches"):
        to_plain_keras(optimizer)


@pytest.mark.keras3
def test_a_restored_keras_optimizer_needs_its_variables(tmp_path):
    weights = [ones(2), ones(3)]
    plain = KERAS_3.optimizers.Adam(0.1, epsilon=1e-8)
    steps(plain, weights, 1.0, 1.0)
    path = tf.train.Checkpoint(optimizer=plain).save(str(tmp_path / "c"))

    def back(*variables):
        restored = KERAS_3.optimizers.Adam(0.1, epsilon=1e-8)
        tf.train.Checkpoint(optimizer=restored).restore(path)
        return from_plain_keras(restored, v1.train.AdamOptimizer(0.1), variables or None)

    with pytest.raises(ValueError, match="variables=model.trainable_variables"):
        back()
    with pytest.raises(ValueError, match="contains more state than the 1 var"):
        back(weights[0])
    found = back(*weights)
    assert (found.report.variables, found.report.iterations) == (2, 2)
    for ours, theirs in (("m", "momentum"), ("v", "velocity")):
        for weight, expected in zip(weights, state(plain, theirs)):
            slot = found.optimizer.get_slot(weight, ours).numpy()
            assert slot.all() and np.array_equal(slot, expected)


@pytest.mark.keras3
def test_keras_own_loss_scale_factor_fails_for_sparse_gradients():
    weight = ones(1)
    optimizer = KERAS_3.bridged(v1.train.AdamOptimizer(0.1), loss_scale_factor=8.0)
    steps(optimizer, [weight], 8.0)
    assert to_plain_keras(optimizer, sparse=False).grade == "rounding"
    found = to_plain_keras(optimizer)
    assert found.grade == "differs"
    assert "repeated ids: differs, inf\n" in str(found.report)
    assert "training raises TypeError: unsupported operand" in str(found.report)


@pytest.mark.keras3
def test_keras_3_in_a_graph_is_refused():
    with tf.Graph().as_default(), pytest.raises(
        ValueError, match="Call this function where TensorFlow exec"
    ):
        to_plain_keras(v1.train.AdamOptimizer(0.1), api="keras3")


@pytest.mark.keras3
def test_a_loss_scale_optimizer_is_refused():
    optimizer = KERAS_3.bridged(v1.train.AdamOptimizer(0.1))
    with pytest.raises(TypeError, match="optimizer.inner_optimizer"):
        to_plain_keras(KERAS_3.optimizers.LossScaleOptimizer(optimizer))
