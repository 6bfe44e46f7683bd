"""to_plain_keras and from_plain_keras in Keras 2: the exit from this package, and the way back."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import versions
from legacy_opt.compat import from_plain_keras, plain_translations, to_keras, to_plain_keras
from tests.support import rules, running
from tests.support.keras import keras_models, plain_training
from tests.support.keras.keras_apis import OPTIMIZER_V2
from tests.support.keras.plain_training import CASES, EVERY_CASE, HALF, figures

v1 = tf.compat.v1
keras = versions.keras_2()
HOME = (
    keras.optimizers
    if hasattr(keras.optimizers.SGD, "_resource_apply_dense")
    else (keras.optimizers.legacy)
)
EXACT = ("GradientDescent", "Adadelta", "RMSProp", "Ftrl")


def bridged(optimizer, **arguments):
    return to_keras(optimizer, api="optimizer_v2", **arguments)


def steps(optimizer, variables, *gradients):
    """Applies gradients, one a step, that are the same number everywhere."""
    for gradient in gradients:
        optimizer.apply_gradients([(tf.fill(each.shape, gradient), each) for each in variables])


def ones(*shape):
    return tf.compat.v2.Variable(np.ones(shape, "f"))


# The next steps.


@pytest.mark.parametrize("name", EVERY_CASE)
def test_training_goes_on_as_in_a_session(name):
    case, problem = CASES[name], plain_training.sparse_problem()
    optimizer = bridged(case.make(None))
    translation, after, _ = plain_training.handed_over(
        case, problem, optimizer, lambda optimizer, _: to_plain_keras(optimizer)
    )
    assert type(translation.optimizer).__module__.split(".")[0] != "legacy_opt"
    assert int(translation.optimizer.iterations.numpy()) == problem.steps
    expected = plain_training.session(case, problem).steps[HALF:]
    if "Lazy" in name:  # Keras' Adam moves all rows of the table
        assert translation.grade == figures(translation)["some rows"] == "differs"
        after, expected = (
            [{"matrix": step["matrix"]} for step in run] for run in (after, expected)
        )
        running.assert_steps_close(after, expected, **plain_training.TOLERANCE)
    else:
        plain_training.assert_as_graded(translation, after, expected)
        assert (translation.grade == "exact") == name.startswith(EXACT)


@pytest.mark.parametrize("name", ["Adagrad", "Adam", "RMSProp"])
def test_a_v1_optimizer_starts_as_in_a_session_where_its_variables_are_known(name):
    case, problem = CASES[name], plain_training.sparse_problem(HALF)
    variables = keras_models.variables_of(problem)
    translation = to_plain_keras(
        case.make(None), api="optimizer_v2", variables=list(variables.values())
    )
    after = plain_training.train(translation.optimizer, variables, problem, 0, HALF)
    plain_training.assert_as_graded(translation, after, plain_training.session(case, problem).steps)


@pytest.mark.parametrize("name", EVERY_CASE)
def test_there_and_back(name):
    case, problem = CASES[name], plain_training.sparse_problem()

    def there_and_back(optimizer, variables):
        plain = to_plain_keras(optimizer).optimizer
        back = from_plain_keras(plain, case.make(None), variables=variables)
        plain_training.assert_same_state(name, back.optimizer, optimizer, variables)
        return back

    back, after, _ = plain_training.handed_over(
        case, problem, bridged(case.make(None)), there_and_back
    )
    expected = plain_training.session(case, problem).steps[HALF:]
    if "Momentum" in name:
        running.assert_steps_close(after, expected, rtol=1e-5, atol=1e-6)
    else:
        assert all(
            np.array_equal(one[k], other[k]) for one, other in zip(after, expected) for k in one
        )


# By hand.


def test_momentum_after_a_change_of_the_learning_rate():
    weight = ones()
    optimizer = bridged(v1.train.MomentumOptimizer(0.1, 0.9))
    steps(optimizer, [weight], 1.0)
    np.testing.assert_allclose(weight.numpy(), 0.9, rtol=1e-6)
    translation = to_plain_keras(optimizer)
    plain = translation.optimizer
    np.testing.assert_allclose(plain.get_slot(weight, "momentum").numpy(), -0.1, rtol=1e-6)
    optimizer.learning_rate = plain.learning_rate = 0.01
    steps(plain, [weight], 1.0)
    np.testing.assert_allclose(weight.numpy(), 0.9 - 0.9 * 0.1 - 0.01, rtol=1e-6)
    weight.assign(0.9)
    steps(optimizer, [weight], 1.0)
    np.testing.assert_allclose(weight.numpy(), 0.9 - 0.01 * 1.9, rtol=1e-6)
    # The report knows. It counts where the user says that it will change.
    assert translation.grade == "rounding"
    changed = translation.report.figures[-1]
    assert (changed.kind, changed.grade, changed.counts) == (
        "learning rate changed",
        "differs",
        False,
    )
    assert changed.share > 1 and "velocity" in changed.why
    assert to_plain_keras(optimizer, learning_rate_changes=True).grade == "differs"


def test_momentum_takes_the_learning_rate_of_the_next_step():
    weight = ones()
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([1], [0.1, 0.01])
    optimizer = bridged(v1.train.MomentumOptimizer(schedule, 0.9))
    steps(optimizer, [weight], 1.0, 1.0)  # iterations 0 and 1: both at 0.1
    translation = to_plain_keras(optimizer)
    velocity = translation.optimizer.get_slot(weight, "momentum")
    np.testing.assert_allclose(velocity.numpy(), -0.01 * 1.9, rtol=1e-6)
    before = weight.numpy()
    steps(translation.optimizer, [weight], 1.0)
    np.testing.assert_allclose(weight.numpy(), before - 0.01 * 2.71, rtol=1e-6)
    assert translation.optimizer.learning_rate.get_config() == schedule.get_config()
    assert translation.grade == "differs"  # a schedule is a learning rate that changes


def test_rmsprop_starts_at_one_if_the_variables_are_known():
    after = 1 - 0.1 * 0.01 / np.sqrt(0.9 * 1 + 0.1 * 0.01**2 + 1e-10)
    optimizer = v1.train.RMSPropOptimizer(0.1)
    weight = ones()
    known = to_plain_keras(optimizer, api="optimizer_v2", variables=[weight])
    steps(known.optimizer, [weight], 0.01)
    np.testing.assert_allclose(weight.numpy(), after, rtol=1e-6)
    assert (known.grade, known.report.variables) == ("exact", 1)
    unknown = to_plain_keras(optimizer, api="optimizer_v2")
    weight = ones()
    steps(unknown.optimizer, [weight], 0.01)
    assert abs(weight.numpy() - after) > 0.1  # 0.1 / sqrt(0.1) is 0.32
    assert unknown.grade == "differs" and "starts at 1" in str(unknown.report)


def test_rmsprop_adds_epsilon_in_the_root():
    weight = ones()
    optimizer = v1.train.RMSPropOptimizer(0.1, epsilon=0.5)
    plain = to_plain_keras(optimizer, api="optimizer_v2", variables=[weight]).optimizer
    steps(plain, [weight], 1.0)
    np.testing.assert_allclose(weight.numpy(), 1 - 0.1 / np.sqrt(1 + 0.5), rtol=1e-6)


# Settings.


def test_settings_of_today_are_carried_over():
    weight = ones(2)
    optimizer = bridged(v1.train.AdamOptimizer(0.1, epsilon=0), clipvalue=0.25)
    steps(optimizer, [weight], 1.0)
    optimizer.learning_rate, optimizer.beta1 = 0.05, 0.9
    report = to_plain_keras(optimizer).report
    settings = dict(
        learning_rate=0.05, beta_1=0.9, beta_2=0.999, epsilon=1e-45, amsgrad=False, clipvalue=0.25
    )
    assert report.settings == settings
    found = to_plain_keras(optimizer).optimizer.get_config()
    for name, value in settings.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-6, err_msg=name)


def test_decays_of_v1_become_schedules_of_keras():
    step = tf.compat.v2.Variable(0, dtype=tf.int64)
    rate = v1.train.exponential_decay(0.1, step, 3, 0.5)
    plain = to_plain_keras(v1.train.AdagradOptimizer(rate), api="optimizer_v2").optimizer
    assert type(plain.learning_rate) is keras.optimizers.schedules.ExponentialDecay


def test_a_decay_of_keras_2_is_kept():
    weight = ones()
    optimizer = bridged(v1.train.MomentumOptimizer(0.1, 0.9), decay=1.0)
    steps(optimizer, [weight], 1.0)
    translation = to_plain_keras(optimizer)
    np.testing.assert_allclose(
        translation.optimizer.get_slot(weight, "momentum").numpy(), -0.05, rtol=1e-6
    )
    assert translation.optimizer.get_config()["decay"] == 1.0
    assert translation.report.figures[-1].counts


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_other_dtypes_keep_theirs(dtype):
    weight = tf.compat.v2.Variable(np.ones(2, dtype))
    optimizer = bridged(v1.train.MomentumOptimizer(0.5, 0.9))
    optimizer.apply_gradients([(tf.ones_like(weight), weight)])
    plain = to_plain_keras(optimizer).optimizer
    slot = plain.get_slot(weight, "momentum").numpy()
    assert slot.dtype == dtype and np.array_equal(slot, np.full(2, -0.5, dtype))


def test_clipping_of_repeated_ids_is_told():
    optimizer = bridged(v1.train.GradientDescentOptimizer(0.1), clipnorm=0.5)
    translation = to_plain_keras(optimizer)
    repeated = translation.report.figures[2]
    assert repeated.grade == "differs" and "clips" in repeated.why
    assert translation.optimizer.clipnorm == 0.5


# The report.


def test_the_report_is_for_people_and_machines():
    weights = [ones(2), ones(3)]
    optimizer = bridged(v1.train.AdamOptimizer(0.1))
    steps(optimizer, weights, 1.0, 1.0)
    translation = to_plain_keras(optimizer, sparse=False)
    report = translation.report
    assert (report.variables, report.iterations) == (2, 2)
    assert report.v1 == "AdamOptimizer" and report.keras.endswith(".Adam")
    assert [(part.v1, part.keras, part.exact) for part in report.state[:2]] == [
        ("m", "m", True),
        ("v", "v", True),
    ]
    assert [part.v1 for part in report.state[2:]] == ["beta1_power", "beta2_power"]
    assert [figure.kind for figure in report.figures] == list(plain_translations.KINDS)
    assert [figure.counts for figure in report.figures] == [True, False, False, False]
    dense = report.figures[0]
    assert dense.grade == "rounding" and 0 < dense.largest < 1e-5 < dense.moved
    text = str(report)
    assert "AdamOptimizer as %s(" % report.keras in text and "state of 2 variables after 2" in text
    assert "dense: rounding" in text and "(does not count)" in text


# Models.


def test_fit_goes_on_with_a_recompiled_model():
    problem = keras_models.problem(2 * HALF)
    first, second = (
        problem._replace(gradients=problem.gradients[a:b]) for a, b in ((0, HALF), (HALF, None))
    )
    optimizer = bridged(v1.train.RMSPropOptimizer(0.05, momentum=0.5, centered=True))
    _, model = OPTIMIZER_V2.fit(first, optimizer)
    translation = to_plain_keras(model.optimizer)
    model.compile(translation.optimizer, keras_models.the_output)
    recorder = OPTIMIZER_V2.recorder()
    keras_models.fit_data(model, second, 1, [recorder])
    case = CASES["RMSProp"]._replace(make=lambda step: keras_models.make("RMSProp"))
    expected = plain_training.session(case, problem).steps[HALF:]
    assert translation.grade == "exact"
    assert len(recorder.steps) == len(expected)
    for one, other in zip(recorder.steps, expected):
        assert all(np.array_equal(one[name], other[name]) for name in other)
    # And back, by compiling once more.
    back = from_plain_keras(
        model.optimizer, keras_models.make("RMSProp"), variables=model.trainable_variables
    )
    model.compile(back.optimizer, keras_models.the_output)
    keras_models.fit_data(model, second, 1, [])
    assert int(back.optimizer.iterations.numpy()) == 3 * HALF


GO_ON = (
    plain_training.WITHOUT_THE_PACKAGE
    + """
model = keras.models.load_model(sys.argv[1])
before = model.optimizer.get_weights()
model.fit(np.ones((4, 2), "f"), np.ones((4, 1), "f"), batch_size=4, epochs=2, verbose=0)
assert model.optimizer.get_weights()[0] == 5 and before[0] == 3
model.save(sys.argv[1])
import json
json.dump([w.tolist() for w in model.get_weights()], open(sys.argv[1] + ".json", "w"))
"""
)


def test_it_is_saved_and_loaded_where_this_package_is_not(tmp_path):
    def fit(model, epochs):
        data = np.ones((4, 2), "f"), np.ones((4, 1), "f")
        model.fit(*data, batch_size=4, epochs=epochs, verbose=0)

    model = keras.Sequential([keras.layers.Dense(1, input_shape=(2,))])
    # Without momentum: Keras' one is the smallest number, which has to survive.
    model.compile(bridged(v1.train.RMSPropOptimizer(0.1)), "mse")
    fit(model, 3)
    model.compile(to_plain_keras(model.optimizer).optimizer, "mse")
    path = str(tmp_path / "model.h5")
    model.save(path)
    script = GO_ON.format(keras="__import__('tf_keras')" if keras is not tf.keras else "tf.keras")
    done = subprocess.run(
        [sys.executable, "-c", script, path],
        cwd=str(tmp_path),
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    fit(model, 2)
    with open(path + ".json") as file:
        there = json.load(file)
    for one, other in zip(model.get_weights(), there):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    loaded = keras.models.load_model(path).optimizer
    assert 0 <= loaded.get_config()["momentum"] < 1e-44 and loaded._momentum


def test_in_a_graph():
    with tf.Graph().as_default(), v1.Session() as session:
        weight = ones(3)
        optimizer = bridged(v1.train.AdamOptimizer(0.1))
        train = optimizer.apply_gradients([(tf.fill([3], 0.5), weight)])
        session.run(v1.global_variables_initializer())
        for _ in range(3):
            session.run(train)
        there = to_plain_keras(optimizer)
        assert there.grade == "rounding" and there.report.iterations == 3
        back = from_plain_keras(there.optimizer, v1.train.AdamOptimizer(0.1), variables=[weight])
        state, after = session.run([optimizer.weights, back.optimizer.weights])
        assert all(np.array_equal(one, other) for one, other in zip(state, after))
        # m, by hand: 0.1 * 0.5 * (1 + 0.9 + 0.81)
        found = session.run(there.optimizer.get_slot(weight, "m"))
        np.testing.assert_allclose(found, 0.05 * 2.71, rtol=1e-6)


# Errors.


class Mine(v1.train.MomentumOptimizer):
    pass


NO_COUNTERPART = {
    "AdagradDecay": (lambda: legacy_opt.AdagradDecayOptimizer(0.1, None), "decay by periods"),
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
    "BERT": (lambda: legacy_opt.AdamWeightDecayOptimizer(0.01), "corrects no bias"),
    "LAMB": (lambda: legacy_opt.LAMBOptimizer(0.01), "Lamb applies its weight decay apart"),
    "Adafactor": (lambda: legacy_opt.AdafactorOptimizer(learning_rate=0.01), "no momentum"),
    "subclass": (lambda: Mine(0.1, 0.9), "your own, and may compute something else than Momentum"),
    "a rule": (lambda: rules.MyDiffGradOptimizer(0.1), "your own"),
}


@pytest.mark.parametrize("name", NO_COUNTERPART)
def test_no_counterpart(name):
    make, message = NO_COUNTERPART[name]
    for translate in (
        lambda: to_plain_keras(bridged(make())),
        lambda: to_plain_keras(make(), api="optimizer_v2"),
        lambda: from_plain_keras(HOME.SGD(0.1), make()),
    ):
        with pytest.raises(ValueError, match="no counterpart.*%s.*bridged" % message):
            translate()


def test_wrong_arguments():
    with pytest.raises(TypeError, match="made by to_keras.*got 'adam'"):
        to_plain_keras("adam")
    with pytest.raises(TypeError, match="made by to_keras"):
        to_plain_keras(HOME.SGD(0.1))
    with pytest.raises(ValueError, match="bridged to Keras 2, where its state stays"):
        to_plain_keras(bridged(v1.train.AdamOptimizer(0.1)), api="keras3")
    with pytest.raises(TypeError, match="one of Keras' own optimizers"):
        from_plain_keras(7, v1.train.AdamOptimizer(0.1))
    with pytest.raises(TypeError, match="takes a tf.compat.v1.train.Optimizer"):
        from_plain_keras(HOME.SGD(0.1), HOME.SGD(0.1))


def test_a_learning_rate_of_zero_would_lose_the_momentum():
    weight = ones()
    optimizer = bridged(v1.train.MomentumOptimizer(0.1, 0.9))
    steps(optimizer, [weight], 1.0)
    optimizer.learning_rate = 0.0
    with pytest.raises(ValueError, match="learning rate is 0.*momentum would be lost"):
        to_plain_keras(optimizer)
    optimizer = bridged(v1.train.MomentumOptimizer(0.0, 0.9))  # nothing there to be lost
    assert to_plain_keras(optimizer, variables=[ones()]).grade == "rounding"


@pytest.mark.parametrize("iterations", [0, 2, 4, 1000])
def test_powers_of_beta_must_fit_the_iterations(iterations):
    weight, optimizer = ones(), bridged(v1.train.AdamOptimizer(0.1))
    steps(optimizer, [weight], 1.0, 1.0, 1.0)
    optimizer.iterations.assign(iterations)
    with pytest.raises(ValueError, match="beta1_power is 0.6561, and .* %d steps" % iterations):
        to_plain_keras(optimizer)


def test_powers_of_beta_after_many_steps():
    weight = ones()
    optimizer = bridged(v1.train.AdamOptimizer(0.001, beta2=0.99))

    @tf.function
    def train():
        for _ in tf.range(1200):
            optimizer.apply_gradients([(tf.constant(0.5), weight)])

    optimizer._create_all_weights([weight])
    train()
    assert optimizer.non_slots["beta1_power"].numpy() < 1e-37
    plain = to_plain_keras(optimizer).optimizer
    back = from_plain_keras(plain, v1.train.AdamOptimizer(0.001, beta2=0.99), variables=[weight])
    powers = back.optimizer.non_slots
    assert powers["beta2_power"].numpy() == optimizer.non_slots["beta2_power"].numpy()
    assert powers["beta1_power"].numpy() < 1e-37


def test_learning_rates_that_keras_cannot_keep():
    step = tf.compat.v2.Variable(0, dtype=tf.int64)
    rate = v1.train.noisy_linear_cosine_decay(0.1, step, 10)
    given, set_later = (bridged(v1.train.GradientDescentOptimizer(each)) for each in (rate, 0.1))
    set_later.learning_rate = rate
    for optimizer in (given, set_later):
        if type(optimizer._hyper["learning_rate"]).__name__ == "NoisyLinearCosineDecay":
            continue  # this Keras has it itself
        with pytest.raises(ValueError, match="cannot keep.*optimizer.learning_rate = "):
            to_plain_keras(optimizer)
    given.learning_rate = 0.1
    assert to_plain_keras(given).grade == "exact"


def test_a_restored_optimizer_needs_its_variables(tmp_path):
    weight = ones(2)
    optimizer = bridged(v1.train.AdamOptimizer(0.1))
    steps(optimizer, [weight], 1.0)
    path = tf.train.Checkpoint(optimizer=optimizer, weight=weight).save(str(tmp_path / "c"))
    restored, later = bridged(v1.train.AdamOptimizer(0.1)), tf.train.Checkpoint()
    later.optimizer = restored
    later.restore(path)
    weight = ones(2)
    later.weight = weight
    found = to_plain_keras(restored, variables=[weight])
    np.testing.assert_allclose(found.optimizer.get_slot(weight, "m").numpy(), [0.1, 0.1], rtol=1e-6)
    assert found.report.iterations == 1


def test_other_variables_than_it_has_trained():
    weights = [ones(2), ones(3)]
    optimizer = bridged(v1.train.AdamOptimizer(0.1))
    steps(optimizer, weights, 1.0)
    with pytest.raises(ValueError, match="state for 2 variables, which are others than the 1"):
        to_plain_keras(optimizer, variables=weights[:1])
    plain = to_plain_keras(optimizer, variables=weights).optimizer
    with pytest.raises(ValueError, match="does not know the variables.*variables=model"):
        from_plain_keras(plain, v1.train.AdamOptimizer(0.1))
    with pytest.raises(ValueError, match="others than the 1"):
        from_plain_keras(plain, v1.train.AdamOptimizer(0.1), variables=weights[:1])
    del weights[1]
    with pytest.raises(ValueError, match="are gone"):
        to_plain_keras(optimizer)


def test_variables_that_it_has_not_trained_yet_start_as_in_v1():
    weights = [ones(2), ones(3)]
    optimizer = bridged(v1.train.RMSPropOptimizer(0.1))
    steps(optimizer, weights[:1], 0.5)
    plain = to_plain_keras(optimizer, variables=weights).optimizer
    found = [plain.get_slot(weight, "rms").numpy() for weight in weights]
    np.testing.assert_allclose(found[0], [0.9 + 0.1 * 0.25] * 2, rtol=1e-6)
    assert found[1].tolist() == [1.0] * 3


def test_from_other_settings_or_another_class():
    plain = HOME.SGD(0.1, momentum=0.9)
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
    with pytest.raises(ValueError, match="AdamOptimizer becomes a .*Adam, and this is a .*SGD"):
        from_plain_keras(plain, v1.train.AdamOptimizer(0.1))
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.5)
    plain = HOME.SGD(schedule, momentum=0.9)
    assert from_plain_keras(plain, v1.train.MomentumOptimizer(schedule, 0.9)).optimizer
    with pytest.raises(ValueError, match=r"learning_rate \(ExponentialDecay\(.*, v1: 0.1\)"):
        from_plain_keras(plain, v1.train.MomentumOptimizer(0.1, 0.9))

    with pytest.raises(ValueError, match=r"ExponentialDecay\(.*=0.1, .*ExponentialDecay\(.*=0.2"):
        other = keras.optimizers.schedules.ExponentialDecay(0.2, 10, 0.5)
        from_plain_keras(plain, v1.train.MomentumOptimizer(other, 0.9))
    with pytest.raises(TypeError, match="from_plain_keras takes a .* got 'adam'"):
        from_plain_keras(plain, "adam")


def test_slots_that_a_checkpoint_brings_later_are_asked_for(tmp_path):
    """A checkpoint restores the slots of a model that is built later only then."""
    weight = ones(2)
    plain = HOME.Adam(0.1, epsilon=1e-8)
    steps(plain, [weight], 1.0, 1.0)
    path = tf.train.Checkpoint(model=Holder(weight), optimizer=plain).save(str(tmp_path / "c"))
    model, restored = Holder(), HOME.Adam(0.1, epsilon=1e-8)
    tf.train.Checkpoint(model=model, optimizer=restored).restore(path)
    with pytest.raises(ValueError, match="variables=model.trainable_variables"):
        from_plain_keras(restored, v1.train.AdamOptimizer(0.1))
    model.weight = ones(2)
    found = from_plain_keras(restored, v1.train.AdamOptimizer(0.1), [model.weight])
    slot = found.optimizer.get_slot(model.weight, "m").numpy()
    assert slot.all() and np.array_equal(slot, plain.get_slot(weight, "m").numpy())


class Holder(tf.Module):
    """A model that has its weight now or later."""

    def __init__(self, weight=None):
        super().__init__()
        if weight is not None:
            self.weight = weight


def dense_only(pairs):
    return [(grad * 10, variable) for grad, variable in pairs]


@pytest.mark.parametrize("name", ["gradient_aggregator", "gradient_transformers"])
def test_functions_that_change_gradients_are_carried_over(name):
    """They take no sparse gradients here: only dense training can be measured."""
    if not hasattr(HOME.SGD(0.1), name):  # to TensorFlow 2.3
        with pytest.raises(TypeError, match=name):
            HOME.SGD(0.1, **{name: dense_only})
        return
    functions = {name: dense_only if name == "gradient_aggregator" else [dense_only]}
    optimizer = bridged(v1.train.GradientDescentOptimizer(0.1), **functions)
    there = to_plain_keras(optimizer, sparse=False)
    back = from_plain_keras(there.optimizer, v1.train.GradientDescentOptimizer(0.1))
    assert (there.grade, back.grade) == ("exact", "differs")
    for translation in (there, back):
        weight = ones(1)
        steps(translation.optimizer, [weight], 1.0)
        assert np.array_equal(weight.numpy(), [0])
        assert figures(translation)["repeated ids"] == "differs"
        assert "training raises TypeError: unsupported operand" in str(translation.report)


def test_the_optimizer_that_was_translated_stays_as_it_is():
    weight = ones(2)
    optimizer = bridged(v1.train.AdamOptimizer(0.1))
    steps(optimizer, [weight], 1.0)
    before = optimizer.get_weights(), optimizer.get_config(), weight.numpy()
    to_plain_keras(optimizer)
    after = optimizer.get_weights(), optimizer.get_config(), weight.numpy()
    assert all(np.array_equal(*pair) for pair in zip(before[0], after[0]))
    assert before[1] == after[1] and np.array_equal(before[2], after[2])
