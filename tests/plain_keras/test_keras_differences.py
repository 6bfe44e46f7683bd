"""Checks the claims of docs/plain_keras.md about optimizers of Keras 3 and v1."""

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt.compat import to_keras
from tests.support.keras import keras_differences
from tests.support.keras.keras_differences import CASES, EXAMPLES, PROBLEMS
from tests.support.paths import DOCS

pytestmark = pytest.mark.keras3

PAGE = DOCS / "plain_keras.md"
ROUNDING = 1e-4  # a `Difference` with a smaller `share` is caused only by rounding
WITH_SQUARES = ("Adam", "Adagrad", "Adadelta", "RMSProp", "Ftrl")
# Optimizers whose Keras 3 counterparts update only the rows that the batch uses.
ONLY_ROWS_OF_THE_BATCH = ("GradientDescent", "Adagrad")


@pytest.fixture(scope="module", params=CASES)
def measured(request):
    """Returns the name of a case and its measurements."""
    return request.param, keras_differences.measure(CASES[request.param])


def test_dense_gradients_give_the_same_values_but_for_two_cases(measured):
    name, figures = measured
    other = name in ("RMSProp", "Momentum, learning rate drops")
    assert (figures.differences["dense"].share > 0.5) == other
    assert (figures.differences["dense"].share < ROUNDING) != other


def test_rows_without_a_gradient_move(measured):
    name, figures = measured
    share = figures.differences["some rows"].share
    assert share < ROUNDING if name in ONLY_ROWS_OF_THE_BATCH + ("Adam",) else share > 0.05
    in_v1, in_keras = figures.moves
    assert (in_v1 > 0) == (name == "Adam")
    assert (in_keras > 0) == (name.startswith(("Adam", "Momentum", "Ftrl")) or "momentum" in name)


def test_repeated_ids_are_squared_before_they_are_summed(measured):
    name, figures = measured
    share = figures.differences["repeated ids"].share
    squares_or_drops = name.startswith(WITH_SQUARES) or "drops" in name
    assert share > 0.05 if squares_or_drops else share < ROUNDING


def test_a_step_costs_the_whole_table(measured):
    name, figures = measured
    in_v1, in_keras = figures.operations
    assert (in_v1 > 0) == (name == "Adam")
    assert (in_keras > 0) == (name != "GradientDescent")


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("name", CASES)
def test_the_bridged_optimizer_equals_the_session(name, problem):
    case, problem = CASES[name], PROBLEMS[problem]()
    expected = keras_differences.session_run(problem, case)
    optimizer = to_keras(case.make_v1(tf.Variable(0, dtype=tf.int64)), api="keras3")
    actual = keras_differences.keras_run(problem, optimizer)
    assert all(map(np.array_equal, actual, expected))


# Computed by hand: the values of the v1 optimizer, then the values of Keras' own optimizer.
BY_HAND = {
    "square": ([1 - 0.1 * 7 / np.sqrt(0.1 + 49)], [1 - 0.1 * 7 / np.sqrt(0.1 + 25)]),
    "clip": ([1 - 7 / 7], [1 - 7 / 5]),
    "start": (
        [1 - 0.1 * 0.01 / np.sqrt(0.9 + 0.1 * 1e-4)],
        [1 - 0.1 * 0.01 / np.sqrt(0.1 * 1e-4)],
    ),
    "rest": ([0.9] * 3, [0.9, 0.9 - 0.09, 0.9 - 0.09 - 0.081]),
    "never": ([1.0], [0.0]),
    "drop": ([0.9] * 3, [0.9, 0.9 - 0.09, 0.9 - 0.09 - 0.081]),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_by_hand(name):
    for actual, expected in zip(EXAMPLES[name].values(), BY_HAND[name]):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("clipping", ["clipnorm", "clipvalue", "global_clipnorm"])
def test_keras_clips_before_the_sum_and_the_bridge_after(clipping):
    problem = EXAMPLES["clip"].problem()
    norm = {clipping: 1.0}
    plain = keras_differences.keras_run(problem, tf.keras.optimizers.SGD(1.0, **norm))
    bridged = to_keras(tf.compat.v1.train.GradientDescentOptimizer(1.0), api="keras3", **norm)
    bridged = keras_differences.keras_run(problem, bridged)
    np.testing.assert_allclose(plain[-1][0], -1.0 if clipping == "clipvalue" else -0.4, atol=1e-6)
    np.testing.assert_allclose(bridged[-1][0], 0.0, atol=1e-6)


def test_the_page_is_up_to_date():
    page = PAGE.read_text(encoding="utf-8")
    for case in [*CASES.values(), *EXAMPLES.values()]:
        assert f"`{case.v1}`" in page and f"`{case.keras}`" in page
    assert keras_differences.arguments() in page and keras_differences.examples() in page
