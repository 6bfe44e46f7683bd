"""Tests the state, settings and report of translations with values computed by hand.

to_plain_keras translates a v1 optimizer to one of Keras' own optimizers. from_plain_keras does the
reverse. Each translation has a grade: "exact", "rounding" or "differs".
"""

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt.compat import from_plain_keras, to_plain_keras
from legacy_opt.compat.in_keras.plain_keras import counterparts
from tests.plain_keras.plain_training import arrays, ones, slots, steps, to_plain
from tests.support.keras.keras_apis import KERAS_3, OPTIMIZER_V2

v1 = tf.compat.v1


# Variables and slots.


def test_momentum_after_a_change_of_the_learning_rate(api):
    weight = ones()
    optimizer = api.bridged(v1.train.MomentumOptimizer(0.1, 0.9))
    steps(optimizer, [weight], 1.0)
    np.testing.assert_allclose(weight.numpy(), 0.9, rtol=1e-6)
    translation = to_plain(api, optimizer)
    plain = translation.optimizer
    np.testing.assert_allclose(slots(api, plain, "momentum", [weight]), [-0.1], rtol=1e-6)
    optimizer.learning_rate = plain.learning_rate = 0.01
    steps(plain, [weight], 1.0)
    np.testing.assert_allclose(weight.numpy(), 0.9 - 0.9 * 0.1 - 0.01, rtol=1e-6)
    weight.assign(0.9)
    steps(optimizer, [weight], 1.0)
    np.testing.assert_allclose(weight.numpy(), 0.9 - 0.01 * 1.9, rtol=1e-6)
    # The report lists this difference. It counts for the grade only if the learning rate is a
    # schedule, or if the user passes learning_rate_changes=True.
    assert translation.grade == "rounding"
    changed = translation.report.measurements[-1]
    found = changed.kind, changed.grade, changed.counts
    assert found == ("learning rate changed", "differs", False)
    assert changed.share > 1 and "velocity" in changed.why
    assert to_plain(api, optimizer, learning_rate_changes=True).grade == "differs"
    schedule = api.keras.optimizers.schedules.ExponentialDecay(0.1, 3, 0.5)
    scheduled = api.bridged(v1.train.MomentumOptimizer(schedule, 0.9))
    assert to_plain(api, scheduled).grade == "differs"


def test_momentum_takes_the_learning_rate_of_the_next_step(api):
    weight = ones()
    schedule = api.keras.optimizers.schedules.PiecewiseConstantDecay([1], [0.1, 0.01])
    optimizer = api.bridged(v1.train.MomentumOptimizer(schedule, 0.9))
    steps(optimizer, [weight], 1.0, 1.0)  # iterations 0 and 1 both have the learning rate 0.1
    translation = to_plain(api, optimizer)
    plain = translation.optimizer
    np.testing.assert_allclose(slots(api, plain, "momentum", [weight]), [-0.01 * 1.9], rtol=1e-6)
    before = weight.numpy()
    steps(plain, [weight], 1.0)
    np.testing.assert_allclose(weight.numpy(), before - 0.01 * 2.71, rtol=1e-6)
    assert api.schedule(plain).get_config() == schedule.get_config()
    assert translation.grade == "differs"  # a schedule changes the learning rate


def test_rmsprop_starts_at_one_if_the_variables_are_known(api):
    after = 1 - 0.1 * 0.01 / np.sqrt(0.9 * 1 + 0.1 * 0.01**2 + 1e-10)
    optimizer = v1.train.RMSPropOptimizer(0.1)
    weight = ones()
    known = to_plain(api, optimizer, variables=[weight])
    steps(known.optimizer, [weight], 0.01)
    np.testing.assert_allclose(weight.numpy(), after, rtol=1e-6)
    assert known.grade == ("rounding" if api is KERAS_3 else "exact")
    assert known.report.variables == 1
    unknown = to_plain(api, optimizer)
    assert api is OPTIMIZER_V2 or not unknown.optimizer.built
    weight = ones()
    steps(unknown.optimizer, [weight], 0.01)
    assert abs(weight.numpy() - after) > 0.1  # the difference is about 0.1 / sqrt(0.1) = 0.32
    assert unknown.grade == "differs" and "starts at 1" in str(unknown.report)


def test_rmsprop_adds_epsilon_in_the_root(api):
    weight = ones()
    optimizer = v1.train.RMSPropOptimizer(0.1, epsilon=0.5)
    plain = to_plain(api, optimizer, variables=[weight]).optimizer
    steps(plain, [weight], 1.0)
    np.testing.assert_allclose(weight.numpy(), 1 - 0.1 / np.sqrt(1 + 0.5), rtol=1e-6)


def test_slots_of_untrained_variables_start_as_in_v1():
    weights = [ones(2), ones(3)]
    optimizer = OPTIMIZER_V2.bridged(v1.train.RMSPropOptimizer(0.1))
    steps(optimizer, weights[:1], 0.5)
    plain = to_plain_keras(optimizer, variables=weights).optimizer
    found = slots(OPTIMIZER_V2, plain, "rms", weights)
    np.testing.assert_allclose(found[0], [0.9 + 0.1 * 0.25] * 2, rtol=1e-6)
    assert found[1].tolist() == [1.0] * 3


def test_powers_of_beta_after_many_steps(api):
    weight = ones()
    optimizer = api.bridged(v1.train.AdamOptimizer(0.001, beta2=0.99))

    @tf.function
    def train():
        for _ in tf.range(1200):
            optimizer.apply_gradients([(tf.constant(0.5), weight)])

    legacy_opt.versions.create_optimizer_weights(optimizer, [weight])
    train()
    assert optimizer.non_slots["beta1_power"].numpy() < 1e-37
    plain = to_plain(api, optimizer).optimizer
    back = from_plain_keras(plain, v1.train.AdamOptimizer(0.001, beta2=0.99), variables=[weight])
    powers = back.optimizer.non_slots
    assert powers["beta2_power"].numpy() == optimizer.non_slots["beta2_power"].numpy()
    assert powers["beta1_power"].numpy() < 1e-37


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_slots_keep_other_dtypes(api, dtype):
    weight = tf.compat.v2.Variable(np.ones(2, dtype))
    optimizer = api.bridged(v1.train.MomentumOptimizer(0.5, 0.9))
    optimizer.apply_gradients([(tf.ones_like(weight), weight)])
    (slot,) = slots(api, to_plain(api, optimizer).optimizer, "momentum", [weight])
    assert slot.dtype == dtype and np.array_equal(slot, np.full(2, -0.5, dtype))


def test_the_translated_optimizer_is_not_changed(api):
    weight = ones(2)
    optimizer = api.bridged(v1.train.AdamOptimizer(0.1))
    steps(optimizer, [weight], 1.0)
    before = arrays(optimizer), optimizer.get_config(), weight.numpy()
    to_plain_keras(optimizer)
    after = arrays(optimizer), optimizer.get_config(), weight.numpy()
    assert all(np.array_equal(*pair) for pair in zip(before[0], after[0]))
    assert before[1] == after[1] and np.array_equal(before[2], after[2])


# Settings.


def test_current_settings_are_carried_over(api):
    weight = ones(2)
    optimizer = api.bridged(v1.train.AdamOptimizer(0.1, epsilon=0), clipvalue=0.25)
    steps(optimizer, [weight], 1.0)
    optimizer.learning_rate, optimizer.beta1 = 0.05, 0.9
    translation = to_plain_keras(optimizer)
    settings = dict(
        learning_rate=0.05, beta_1=0.9, beta_2=0.999, epsilon=1e-45, amsgrad=False, clipvalue=0.25
    )
    if api is KERAS_3:
        settings["epsilon"] = 0.0  # 1e-45 in Keras 2, where 0 means the default
    assert translation.report.settings == settings
    found = translation.optimizer.get_config()
    for name, value in settings.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-6, err_msg=name)


def test_v1_decays_become_keras_schedules(api):
    step = tf.compat.v2.Variable(0, dtype=tf.int64)
    rate = v1.train.exponential_decay(0.1, step, 3, 0.5)
    plain = to_plain(api, v1.train.AdagradOptimizer(rate)).optimizer
    assert type(api.schedule(plain)) is api.keras.optimizers.schedules.ExponentialDecay


def test_the_report_mentions_clipping_of_repeated_ids(api):
    optimizer = api.bridged(v1.train.GradientDescentOptimizer(0.1), clipnorm=0.5)
    translation = to_plain_keras(optimizer)
    repeated = translation.report.measurements[2]
    assert repeated.grade == "differs" and "clips" in repeated.why
    assert translation.optimizer.clipnorm == 0.5


# The report.


def test_the_report_as_data_and_as_text(api):
    weights = [ones(2), ones(3)]
    optimizer = api.bridged(v1.train.AdamOptimizer(0.1))
    steps(optimizer, weights, 1.0, 1.0)
    translation = to_plain_keras(optimizer, sparse=False)
    report = translation.report
    assert (report.variables, report.iterations) == (2, 2)
    assert report.v1 == "AdamOptimizer" and report.keras.endswith(".Adam")
    names = ("momentum", "velocity") if api is KERAS_3 else ("m", "v")
    assert [(part.v1, part.keras, part.exact) for part in report.state[:2]] == [
        (ours, theirs, True) for ours, theirs in zip("mv", names)
    ]
    assert [part.v1 for part in report.state[2:]] == ["beta1_power", "beta2_power"]
    assert [figure.kind for figure in report.measurements] == list(counterparts.KINDS)
    assert [figure.counts for figure in report.measurements] == [True, False, False, False]
    dense = report.measurements[0]
    assert dense.grade == "rounding" and 0 < dense.largest < 1e-5 < dense.distance
    text = str(report)
    assert f"AdamOptimizer as {report.keras}(" in text and "state of 2 variables after 2" in text
    assert "dense: rounding" in text and "(does not count)" in text
