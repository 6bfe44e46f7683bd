"""to_plain_keras and from_plain_keras in Keras 3: the exit from this package, and the way back."""

import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import versions
from legacy_opt.compat import from_plain_keras, to_keras, to_plain_keras
from tests.support import running
from tests.support.keras import keras_models, plain_training
from tests.support.keras.keras_apis import KERAS_3
from tests.support.keras.plain_training import CASES, EVERY_CASE, HALF, figures
from tests.support.paths import DOCS
from tests.tools import plain_keras_page

pytestmark = pytest.mark.keras3

v1 = tf.compat.v1
keras = versions.keras_3()
# By Keras 3's code: what moves rows that a batch does not name, where v1 does not; and what squares
# gradients or takes their largest.
MOVES_ROWS = ("AdaMax", "Adadelta", "LazyAdam", "Momentum", "RMSProp", "Ftrl")
SQUARES = ("AdaMax", "Adadelta", "Adagrad", "Adam", "LazyAdam", "RMSProp", "RegAdagrad", "Ftrl")


def bridged(optimizer, **arguments):
    return to_keras(optimizer, api="keras3", **arguments)


def steps(optimizer, variables, *gradients):
    """Applies gradients, one a step, that are the same number everywhere."""
    for gradient in gradients:
        optimizer.apply_gradients([(tf.fill(each.shape, gradient), each) for each in variables])


def ones(*shape):
    return tf.Variable(np.ones(shape, "f"))


def state(optimizer, suffix):
    """Returns the values of the variables of Keras' own whose name ends so."""
    return [each.numpy() for each in optimizer.variables if each.name.endswith(suffix)]


# The next steps.


@pytest.mark.parametrize("name", EVERY_CASE)
def test_dense_training_goes_on_as_in_a_session(name):
    case, problem = CASES[name], plain_training.dense_problem()
    translation, after, _ = plain_training.handed_over(
        case,
        problem,
        bridged(case.make(None)),
        lambda optimizer, _: to_plain_keras(optimizer, sparse=False),
    )
    assert type(translation.optimizer).__module__.startswith("keras.")
    assert int(translation.optimizer.iterations) == problem.steps
    expected = plain_training.session(case, problem).steps[HALF:]
    plain_training.assert_as_graded(translation, after, expected)
    # The other kinds are in the report, too; they do not count.
    found = figures(translation)
    assert (found["some rows"] == "differs") == name.startswith(MOVES_ROWS)
    assert (found["repeated ids"] == "differs") == name.startswith(SQUARES)
    assert (found["learning rate changed"] == "differs") == name.startswith("Momentum")


@pytest.mark.parametrize("name", EVERY_CASE)
def test_there_and_back(name):
    case, problem = CASES[name], plain_training.dense_problem()

    def there_and_back(optimizer, variables):
        plain = to_plain_keras(optimizer).optimizer
        back = from_plain_keras(plain, case.make(None))
        unused = "momentum" if name in ("RMSProp", "RMSProp centered") else None
        plain_training.assert_same_state(name, back.optimizer, optimizer, variables, unused)
        return back

    back, after, _ = plain_training.handed_over(
        case, problem, bridged(case.make(None)), there_and_back
    )
    expected = plain_training.session(case, problem).steps[HALF:]
    if "Momentum" in name:
        running.assert_steps_close(after, expected, rtol=1e-5, atol=1e-6)
    else:
        for one, other in zip(after, expected):
            assert all(np.array_equal(one[name], other[name]) for name in other)


# By hand.


def test_momentum_after_a_change_of_the_learning_rate():
    weight = ones()
    optimizer = bridged(v1.train.MomentumOptimizer(0.1, 0.9))
    steps(optimizer, [weight], 1.0)
    translation = to_plain_keras(optimizer, sparse=False)
    plain = translation.optimizer
    np.testing.assert_allclose(state(plain, "momentum"), [-0.1], rtol=1e-6)
    optimizer.learning_rate = plain.learning_rate = 0.01
    steps(plain, [weight], 1.0)
    np.testing.assert_allclose(weight.numpy(), 0.9 - 0.9 * 0.1 - 0.01, rtol=1e-6)
    weight.assign(0.9)
    steps(optimizer, [weight], 1.0)
    np.testing.assert_allclose(weight.numpy(), 0.9 - 0.01 * 1.9, rtol=1e-6)
    assert translation.grade == "rounding"
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 3, 0.5)
    scheduled = bridged(v1.train.MomentumOptimizer(schedule, 0.9))
    assert to_plain_keras(scheduled, sparse=False).grade == "differs"


def test_rmsprop_starts_at_one_if_the_variables_are_known():
    weight = ones()
    known = to_plain_keras(v1.train.RMSPropOptimizer(0.1), "keras3", [weight], sparse=False)
    steps(known.optimizer, [weight], 0.01)
    after = 1 - 0.1 * 0.01 / np.sqrt(0.9 * 1 + 0.1 * 0.01**2 + 1e-10)
    np.testing.assert_allclose(weight.numpy(), after, rtol=1e-6)
    assert (known.grade, known.report.variables) == ("rounding", 1)
    unknown = to_plain_keras(v1.train.RMSPropOptimizer(0.1), "keras3", sparse=False)
    assert not unknown.optimizer.built
    assert unknown.grade == "differs" and "starts at 1" in str(unknown.report)


# What Keras 3 keeps besides.


def test_averages_and_accumulated_gradients_are_carried_over():
    options = {"use_ema": True, "ema_momentum": 0.5, "gradient_accumulation_steps": 2}
    weights = [ones(2), ones(3)]
    optimizer = bridged(v1.train.AdagradOptimizer(0.1), **options)
    steps(optimizer, weights, 1.0, 1.0, 1.0)  # one update, and half of the next
    translation = to_plain_keras(optimizer)
    plain = translation.optimizer
    assert {name: getattr(plain, name) for name in options} == options
    assert int(plain.iterations) == 1 and translation.report.iterations == 1
    assert [each.tolist() for each in state(plain, "gradient_accumulator")] == [
        [1.0] * 2,
        [1.0] * 3,
    ]
    same = [each.numpy() for each in optimizer._model_variables_moving_average]
    assert all(map(np.array_equal, state(plain, "average"), same))
    # 0.1 and the square of the one mean gradient
    own = [each for each in state(plain, "accumulator") if each[0] != 1.0]
    np.testing.assert_allclose(np.concatenate(own), 1.1, rtol=1e-6)
    back = from_plain_keras(plain, v1.train.AdagradOptimizer(0.1)).optimizer
    values = {name: each.numpy() for name, each in optimizer._named().items()}
    found = {name: each.numpy() for name, each in back._named().items()}
    assert values.keys() == found.keys()
    assert all(np.array_equal(values[name], found[name]) for name in values)


def test_settings_of_keras_3_are_carried_over():
    optimizer = bridged(v1.train.AdamOptimizer(0.1, epsilon=0), weight_decay=0.1, clipnorm=0.5)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    weight, bias = ones(2), tf.Variable(np.ones(2, "f"), name="bias")
    steps(optimizer, [weight, bias], 1.0)
    translation = to_plain_keras(optimizer)
    plain = translation.optimizer
    assert (plain.weight_decay, plain.clipnorm, plain.epsilon) == (0.1, 0.5, 0.0)
    assert plain._use_weight_decay(weight) and not plain._use_weight_decay(bias)
    assert "clips" in translation.report.figures[2].why
    assert translation.report.settings["weight_decay"] == 0.1


def test_a_decay_of_v1_does_not_go_with_accumulated_gradients():
    rate = v1.train.exponential_decay(0.1, tf.Variable(0, dtype=tf.int64), 3, 0.5)
    optimizer = bridged(v1.train.AdagradOptimizer(rate), gradient_accumulation_steps=2)
    with pytest.raises(ValueError, match="counts updates.*count batches"):
        to_plain_keras(optimizer)


# Models.


def test_fit_goes_on_with_a_recompiled_model():
    problem = keras_models.problem(2 * HALF)
    first = problem._replace(gradients=problem.gradients[:HALF])
    second = problem._replace(gradients=problem.gradients[HALF:])
    optimizer = bridged(v1.train.GradientDescentOptimizer(0.1))
    _, model = KERAS_3.fit(first, optimizer)
    translation = to_plain_keras(model.optimizer)
    model.compile(translation.optimizer, keras_models.the_output)
    recorder = KERAS_3.recorder()
    keras_models.fit_data(model, second, 1, [recorder])
    expected = keras_models.session("GradientDescent", problem).steps[HALF:]
    assert translation.grade == "exact"
    assert len(recorder.steps) == len(expected)
    for one, other in zip(recorder.steps, expected):
        assert all(np.array_equal(one[name], other[name]) for name in other)


GO_ON = (
    plain_training.WITHOUT_THE_PACKAGE
    + """
model = keras.models.load_model(sys.argv[1])
assert int(model.optimizer.iterations) == 3
model.fit(np.ones((4, 2), "f"), np.ones((4, 1), "f"), batch_size=4, epochs=2, verbose=0)
np.savez(sys.argv[1] + ".npz", *model.get_weights())
"""
)


def test_it_is_saved_and_loaded_where_this_package_is_not(tmp_path):
    def fit(model, epochs):
        data = np.ones((4, 2), "f"), np.ones((4, 1), "f")
        model.fit(*data, batch_size=4, epochs=epochs, verbose=0)

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(bridged(v1.train.MomentumOptimizer(0.1, 0.9)), "mse")
    fit(model, 3)
    model.compile(to_plain_keras(model.optimizer).optimizer, "mse")
    path = str(tmp_path / "model.keras")
    model.save(path)
    done = subprocess.run(
        [sys.executable, "-c", GO_ON.format(keras="tf.keras"), path],
        cwd=str(tmp_path),
        env=dict(os.environ),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    fit(model, 2)
    with np.load(path + ".npz") as there:
        for one, name in zip(model.get_weights(), there.files):
            np.testing.assert_allclose(one, there[name], rtol=1e-6)


# Errors.


def test_wrong_arguments():
    with pytest.raises(ValueError, match="bridged to Keras 3, where its state stays"):
        to_plain_keras(bridged(v1.train.AdamOptimizer(0.1)), api="optimizer_v2")
    scaled = keras.optimizers.LossScaleOptimizer(bridged(v1.train.AdamOptimizer(0.1)))
    with pytest.raises(TypeError, match="optimizer.inner_optimizer"):
        to_plain_keras(scaled)
    with pytest.raises(ValueError, match=r"learning_rate \(0.1, v1: 0.2\)"):
        from_plain_keras(keras.optimizers.SGD(0.1), v1.train.GradientDescentOptimizer(0.2))
    with pytest.raises(ValueError, match="no counterpart.*it is a class of your own"):
        to_plain_keras(bridged(type("Mine", (v1.train.AdamOptimizer,), {})()))


def test_a_restored_optimizer_needs_its_variables(tmp_path):
    weight = ones(2)
    optimizer = bridged(v1.train.AdamOptimizer(0.1))
    steps(optimizer, [weight], 1.0)
    path = tf.train.Checkpoint(optimizer=optimizer).save(str(tmp_path / "c"))
    restored = bridged(v1.train.AdamOptimizer(0.1))
    tf.train.Checkpoint(optimizer=restored).restore(path)
    with pytest.raises(ValueError, match="variables=model.trainable_variables"):
        to_plain_keras(restored)
    found = to_plain_keras(restored, variables=[weight])
    np.testing.assert_allclose(state(found.optimizer, "momentum"), [[0.1, 0.1]], rtol=1e-6)
    assert found.report.iterations == 1


def test_keras_own_that_was_restored_needs_its_variables(tmp_path):
    weights = [ones(2), ones(3)]
    plain = keras.optimizers.Adam(0.1, epsilon=1e-8)
    steps(plain, weights, 1.0, 1.0)
    path = tf.train.Checkpoint(optimizer=plain).save(str(tmp_path / "c"))

    def back(*variables):
        restored = keras.optimizers.Adam(0.1, epsilon=1e-8)
        tf.train.Checkpoint(optimizer=restored).restore(path)
        return from_plain_keras(restored, v1.train.AdamOptimizer(0.1), variables or None)

    with pytest.raises(ValueError, match="variables=model.trainable_variables"):
        back()
    with pytest.raises(ValueError, match="holds more state than the 1 of"):
        back(weights[0])
    found = back(*weights)
    assert (found.report.variables, found.report.iterations) == (2, 2)
    for ours, theirs in (("m", "momentum"), ("v", "velocity")):
        for weight, expected in zip(weights, state(plain, theirs)):
            slot = found.optimizer.get_slot(weight, ours).numpy()
            assert slot.all() and np.array_equal(slot, expected)


def test_loss_scale_factor_takes_no_sparse_gradients_in_keras_own():
    weight = ones(1)
    optimizer = bridged(v1.train.AdamOptimizer(0.1), loss_scale_factor=8.0)
    steps(optimizer, [weight], 8.0)
    assert to_plain_keras(optimizer, sparse=False).grade == "rounding"
    found = to_plain_keras(optimizer)
    assert found.grade == "differs"
    assert "repeated ids: differs, inf\n" in str(found.report)
    assert "training raises TypeError: unsupported operand" in str(found.report)


def test_other_variables_than_it_has_trained():
    weights = [ones(2), ones(3)]
    optimizer = bridged(v1.train.AdamOptimizer(0.1))
    steps(optimizer, weights, 1.0)
    with pytest.raises(ValueError, match="state for 2 variables, which are others than the 1"):
        to_plain_keras(optimizer, variables=weights[:1])


def test_in_a_graph_it_is_refused():
    with tf.Graph().as_default(), pytest.raises(
        ValueError, match="Call this where TensorFlow exec"
    ):
        to_plain_keras(v1.train.AdamOptimizer(0.1), api="keras3")


# The page.

PAGE = DOCS / "plain_keras.md"


def test_the_page_shows_the_tables_of_today():
    text = PAGE.read_text(encoding="utf-8")
    for make in plain_keras_page.FACTS.values():
        assert make() in text
    # Twice, for the two Keras: the figures of each kind are held by the tests above.
    assert all(text.count("| `%s` |" % case) == 2 for case in plain_keras_page.CASES)


@pytest.mark.parametrize("api", plain_keras_page.APIS)
@pytest.mark.parametrize("case", [plain_keras_page.CASES[3], plain_keras_page.CASES[-1]])
def test_the_page_shows_what_is_measured_today(case, api):
    """Which figures are 0, rounding or more; their last digits are the machine's."""
    (line,) = [
        line
        for line in PAGE.read_text(encoding="utf-8").split("<!-- keras 2 -->")[-1].splitlines()
        if line.startswith("| `%s` | `" % case)
    ][api == "keras3" :][:1]
    cells = line.strip("| ").split(" | ")[2:]
    grades = [
        "exact" if cell == "0" else "differs" if "%" in cell else "rounding" for cell in cells
    ]
    found = plain_keras_page.translated(case, api)
    assert grades == [figure.grade for figure in found.report.figures]
