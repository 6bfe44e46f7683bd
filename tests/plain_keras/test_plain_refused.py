"""Tests the errors of to_plain_keras and from_plain_keras.

to_plain_keras translates a v1 optimizer to one of Keras' own optimizers. from_plain_keras does the
reverse.
"""

import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt.compat import from_plain_keras, to_plain_keras
from legacy_opt.compat.in_keras.plain_keras.counterparts import COUNTERPARTS, WITHOUT_COUNTERPART
from legacy_opt.optimizers import catalogue
from tests.plain_keras.plain_training import ones, slots, steps, to_plain
from tests.support import rules
from tests.support.keras import keras_models
from tests.support.keras.keras_apis import KERAS_3, OPTIMIZER_V2

v1 = tf.compat.v1


class Mine(v1.train.MomentumOptimizer):
    pass


NO_COUNTERPART = {
    "AdagradDecay": (lambda: legacy_opt.AdagradDecayOptimizer(0.1, None), "accumulator by periods"),
    "AdagradDecayV2": (lambda: legacy_opt.AdagradDecayOptimizerV2(0.1, None), "AdagradOptimizer"),
    "AdagradDA": (lambda: keras_models.make("AdagradDA"), "dual averaging"),
    "ProximalAdagrad": (lambda: v1.train.ProximalAdagradOptimizer(0.1), "proximal"),
    "ProximalGradientDescent": (lambda: v1.train.ProximalGradientDescentOptimizer(0.1), "proximal"),
    "Nadam": (lambda: legacy_opt.NadamOptimizer(), "schedule"),
    "AdamW": (lambda: legacy_opt.AdamWOptimizer(0.01), "weight_decay / learning_rate"),
    "extended": (
        lambda: legacy_opt.extend_with_decoupled_weight_decay(v1.train.AdamOptimizer)(0.01),
        "weight_decay / learning_rate",
    ),
    "AdamAsync": (lambda: legacy_opt.AdamAsyncOptimizer(), "counts its own steps"),
    "BERT": (lambda: legacy_opt.AdamWeightDecayOptimizer(0.01), "no bias correction"),
    "LAMB": (lambda: legacy_opt.LAMBOptimizer(0.01), "Lamb applies its weight decay outside"),
    "Adafactor": (lambda: legacy_opt.AdafactorOptimizer(learning_rate=0.01), "no momentum"),
    "subclass": (
        lambda: Mine(0.1, 0.9),
        "it is your own class, and may compute something else than Momentum",
    ),
    "a rule": (lambda: rules.MyDiffGradOptimizer(0.1), "your own"),
}


@pytest.mark.parametrize("name", NO_COUNTERPART)
def test_no_counterpart(api, name):
    make, message = NO_COUNTERPART[name]
    for translate in (
        lambda: to_plain_keras(api.bridged(make())),
        lambda: to_plain_keras(make(), api=api.name),
        lambda: from_plain_keras(api.optimizers.SGD(0.1), make()),
    ):
        with pytest.raises(ValueError, match=f"no counterpart.*{message}.*bridged"):
            translate()


def test_every_optimizer_has_a_counterpart_or_a_reason():
    assert set(catalogue.__all__) <= {*COUNTERPARTS, *WITHOUT_COUNTERPART}, (
        "add it to legacy_opt/recorded/neighbours, or to WITHOUT_COUNTERPART"
    )


def test_wrong_arguments(api):
    with pytest.raises(TypeError, match="made by to_keras.*got 'adam'"):
        to_plain_keras("adam")
    with pytest.raises(TypeError, match="made by to_keras"):
        to_plain_keras(api.optimizers.SGD(0.1))
    here, other = (2, "keras3") if api is OPTIMIZER_V2 else (3, "optimizer_v2")
    with pytest.raises(ValueError, match=f"bridged to Keras {here}"):
        to_plain_keras(api.bridged(v1.train.AdamOptimizer(0.1)), api=other)
    with pytest.raises(TypeError, match="one of Keras' own optimizers"):
        from_plain_keras(7, v1.train.AdamOptimizer(0.1))
    with pytest.raises(TypeError, match="takes a tf.compat.v1.train.Optimizer"):
        from_plain_keras(api.optimizers.SGD(0.1), api.optimizers.SGD(0.1))


def test_a_learning_rate_of_zero_would_lose_the_momentum(api):
    weight = ones()
    optimizer = api.bridged(v1.train.MomentumOptimizer(0.1, 0.9))
    steps(optimizer, [weight], 1.0)
    optimizer.learning_rate = 0.0
    with pytest.raises(ValueError, match="learning rate is 0.*momentum would be lost"):
        to_plain_keras(optimizer)
    optimizer = api.bridged(v1.train.MomentumOptimizer(0.0, 0.9))  # untrained: no momentum is lost
    assert to_plain(api, optimizer, variables=[ones()]).grade == "rounding"


@pytest.mark.parametrize("iterations", [0, 2, 4, 1000])
def test_powers_of_beta_must_fit_the_iterations(api, iterations):
    weight, optimizer = ones(), api.bridged(v1.train.AdamOptimizer(0.1))
    steps(optimizer, [weight], 1.0, 1.0, 1.0)
    optimizer.iterations.assign(iterations)
    with pytest.raises(ValueError, match=f"beta1_power is 0.6561, but {iterations} steps"):
        to_plain_keras(optimizer)


def test_learning_rates_that_keras_cannot_keep(api):
    step = tf.compat.v2.Variable(0, dtype=tf.int64)
    rate = v1.train.noisy_linear_cosine_decay(0.1, step, 10)
    given, set_later = (
        api.bridged(v1.train.GradientDescentOptimizer(each)) for each in (rate, 0.1)
    )
    set_later.learning_rate = rate
    for optimizer in (given, set_later):
        kept = getattr(optimizer, "_hyper", {}).get("learning_rate")
        if type(kept).__name__ == "NoisyLinearCosineDecay":
            continue  # this version of Keras 2 has such a schedule
        with pytest.raises(ValueError, match="cannot keep.*optimizer.learning_rate = "):
            to_plain_keras(optimizer)
    if api is OPTIMIZER_V2:  # Keras 3 cannot replace a callable by a number
        given.learning_rate = 0.1
        assert to_plain_keras(given).grade == "exact"


def test_from_other_settings_or_another_class(api):
    plain = api.optimizers.SGD(0.1, momentum=0.9)
    with pytest.raises(ValueError) as error:
        from_plain_keras(plain, v1.train.MomentumOptimizer(0.2, 0.8, use_nesterov=True))
    for text in (
        "learning_rate (0.1, v1: 0.2)",
        "momentum (0.9, v1: 0.8)",
        "nesterov (False, v1: True)",
    ):
        assert text in str(error.value)
    with pytest.raises(ValueError, match=r"momentum \(0.9, v1: 0.0\)"):
        from_plain_keras(plain, v1.train.GradientDescentOptimizer(0.1))
    with pytest.raises(
        ValueError, match="of AdamOptimizer is .*Adam, but the class of `plain` is .*SGD"
    ):
        from_plain_keras(plain, v1.train.AdamOptimizer(0.1))
    schedules = api.keras.optimizers.schedules
    schedule = schedules.ExponentialDecay(0.1, 10, 0.5)
    plain = api.optimizers.SGD(schedule, momentum=0.9)
    assert from_plain_keras(plain, v1.train.MomentumOptimizer(schedule, 0.9)).optimizer
    with pytest.raises(ValueError, match=r"learning_rate \(ExponentialDecay\(.*, v1: 0.1\)"):
        from_plain_keras(plain, v1.train.MomentumOptimizer(0.1, 0.9))

    with pytest.raises(ValueError, match=r"ExponentialDecay\(.*=0.1, .*ExponentialDecay\(.*=0.2"):
        other = schedules.ExponentialDecay(0.2, 10, 0.5)
        from_plain_keras(plain, v1.train.MomentumOptimizer(other, 0.9))
    with pytest.raises(TypeError, match="from_plain_keras takes a .* got 'adam'"):
        from_plain_keras(plain, "adam")


# Optimizers whose variables are missing or wrong.


def test_a_restored_optimizer_needs_its_variables(api, tmp_path):
    weight = ones(2)
    optimizer = api.bridged(v1.train.AdamOptimizer(0.1))
    steps(optimizer, [weight], 1.0)
    path = tf.train.Checkpoint(optimizer=optimizer, weight=weight).save(str(tmp_path / "c"))
    restored, later = api.bridged(v1.train.AdamOptimizer(0.1)), tf.train.Checkpoint()
    later.optimizer = restored
    later.restore(path)
    if api is KERAS_3:
        with pytest.raises(ValueError, match="variables=model.trainable_variables"):
            to_plain_keras(restored)
    weight = ones(2)
    later.weight = weight
    found = to_plain_keras(restored, variables=[weight])
    (mean,) = slots(api, found.optimizer, "m", [weight])
    assert mean == pytest.approx(0.1)
    assert found.report.iterations == 1


def test_other_variables_than_it_has_trained(api):
    weights = [ones(2), ones(3)]
    optimizer = api.bridged(v1.train.AdamOptimizer(0.1))
    steps(optimizer, weights, 1.0)
    with pytest.raises(ValueError, match="state for 2 variables, but `variables` contains 1"):
        to_plain_keras(optimizer, variables=weights[:1])
    if api is KERAS_3:
        return
    plain = to_plain_keras(optimizer, variables=weights).optimizer
    with pytest.raises(ValueError, match="does not store which variables.*variables=model"):
        from_plain_keras(plain, v1.train.AdamOptimizer(0.1))
    with pytest.raises(ValueError, match="but `variables` contains 1"):
        from_plain_keras(plain, v1.train.AdamOptimizer(0.1), variables=weights[:1])
    del weights[1]
    with pytest.raises(ValueError, match="are deleted"):
        to_plain_keras(optimizer)
