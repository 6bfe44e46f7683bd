"""Tests of `contrib.crf`: sums and maxima over all paths, and the bits of `tf.contrib`."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt.compat import contrib
from tests.contrib.pieces import ORIGINS, OURS, piece, run

v1 = tf.compat.v1
FULL = pytest.mark.full
TAGS = 3
TRANSITIONS = np.random.RandomState(1).normal(size=[TAGS, TAGS]).astype(np.float32)


def batch(steps):
    random = np.random.RandomState(steps)
    inputs = random.normal(size=[5, steps, TAGS]).astype(np.float32)
    lengths = np.minimum([steps, 2, 1, 0, steps - 1], steps)
    return inputs, random.randint(TAGS, size=[5, steps]), lengths


def score(potentials, tags):
    """Returns the score of one path."""
    unary = sum(potentials[step][tag] for step, tag in enumerate(tags))
    return unary + sum(TRANSITIONS[pair] for pair in zip(tags, tags[1:]))


def scores(potentials, length):
    """Returns {path: score} for all paths of a length."""
    return {
        tags: score(potentials.astype(np.float64), tags)
        for tags in itertools.product(range(TAGS), repeat=length)
    }


def computed(origin, steps, is_known=True):
    """Returns scores, log norms, log-likelihoods, gradients, best paths and their scores."""
    inputs, tags, lengths = batch(steps)

    def build():
        # Without known shapes, tf.contrib builds both branches of a condition.
        shapes = (inputs.shape, tags.shape) if is_known else ([None, None, TAGS], [None, None])
        x = v1.placeholder_with_default(inputs, shapes[0])
        y = v1.placeholder_with_default(tags, shapes[1])
        transitions, many = tf.constant(TRANSITIONS), tf.constant(lengths)
        crf = piece(origin, "crf")
        likelihood, _ = crf.crf_log_likelihood(x, y, many, transitions)
        return (
            crf.crf_sequence_score(x, y, many, transitions),
            crf.crf_log_norm(x, many, transitions),
            likelihood,
            *v1.gradients(likelihood, [x, transitions], unconnected_gradients="zero"),
            *crf.crf_decode(x, transitions, many),
        )

    return run(build)


@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("steps", [1, 2, 4])
def test_all_paths(origin, steps, is_known):
    inputs, tags, lengths = batch(steps)
    found = computed(origin, steps, is_known)
    for row, length in enumerate(lengths):
        of_path, norm, likelihood = [each[row] for each in found[:3]]
        best, best_score = found[5][row], found[6][row]
        paths = scores(inputs[row], length)
        own = paths[tuple(tags[row, :length])]
        total = np.log(sum(np.exp(value) for value in paths.values()))
        np.testing.assert_allclose(of_path, own, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose([norm, likelihood], [total, own - total], rtol=1e-4, atol=1e-5)
        paths = scores(inputs[row], max(length, 1))
        assert tuple(best[: max(length, 1)]) == max(paths, key=paths.get)
        assert not np.any(best[max(length, 1) :])
        np.testing.assert_allclose(best_score, max(paths.values()), rtol=1e-5)
    assert found[5].dtype == np.int32


@pytest.mark.contrib
@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("steps", [1, 4, *(pytest.param(each, marks=FULL) for each in (2, 9))])
def test_the_bits_of_contrib(steps, is_known):
    found, original = computed(OURS, steps, is_known), computed("tf", steps, is_known)
    for number, (one, other) in enumerate(zip(found, original)):
        # The gradient of the transitions adds up the steps in another order.
        if number == 4:
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
        else:
            assert np.array_equal(one, other), number


@pytest.mark.parametrize("origin", ORIGINS)
def test_the_gradient_is_the_difference_of_counts(origin):
    """d log-likelihood / d input[t, tag] = [tag is that of the path] - its probability."""
    inputs, tags, lengths = batch(4)
    gradient = computed(origin, 4)[3]
    for row, length in enumerate(lengths):
        expected = np.zeros([4, TAGS])
        paths = scores(inputs[row], length)
        total = sum(np.exp(value) for value in paths.values())
        for path, value in paths.items():
            for step, tag in enumerate(path):
                expected[step, tag] -= np.exp(value) / total
        for step in range(length):
            expected[step, tags[row, step]] += 1
        np.testing.assert_allclose(gradient[row], expected, atol=1e-5)


@pytest.mark.parametrize("origin", ORIGINS)
def test_the_variable_of_transitions(origin):
    inputs, tags, lengths = batch(4)

    def build():
        _, transitions = piece(origin, "crf.crf_log_likelihood")(
            tf.constant(inputs), tf.constant(tags), tf.constant(lengths)
        )
        assert v1.trainable_variables()[0].name == "transitions:0"
        return transitions

    assert run(build).shape == (TAGS, TAGS)


@pytest.mark.parametrize("origin", ORIGINS)
def test_several_allowed_tags(origin):
    inputs, _, lengths = batch(4)
    allowed = np.random.RandomState(2).uniform(size=inputs.shape) < 0.7
    allowed[..., 0] = True
    found = run(
        lambda: piece(origin, "crf.crf_multitag_sequence_score")(
            *(tf.constant(each) for each in (inputs, allowed, lengths, TRANSITIONS))
        )
    )
    for row, length in enumerate(lengths):
        total = sum(
            np.exp(value)
            for path, value in scores(inputs[row], length).items()
            if all(allowed[row, step, tag] for step, tag in enumerate(path))
        )
        np.testing.assert_allclose(found[row], np.log(total), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("origin", ORIGINS)
def test_viterbi_decode(origin):
    potentials = batch(4)[0][0]
    path, value = piece(origin, "crf.viterbi_decode")(potentials, TRANSITIONS)
    paths = scores(potentials, 4)
    assert isinstance(path, list) and tuple(path) == max(paths, key=paths.get)
    np.testing.assert_allclose(value, max(paths.values()), rtol=1e-5)
    assert value.dtype == np.float32


@pytest.mark.contrib
def test_viterbi_decode_has_the_bits_of_contrib():
    potentials = np.random.RandomState(3).normal(size=[50, TAGS]).astype(np.float32)
    results = [
        piece(origin, "crf.viterbi_decode")(potentials, TRANSITIONS) for origin in (OURS, "tf")
    ]
    assert results[0] == results[1]


def test_in_a_function_and_with_float64():
    inputs, tags, lengths = batch(4)
    with tf.Graph().as_default(), v1.Session() as session:
        call = tf.function(
            lambda x: (
                contrib.crf.crf_log_likelihood(x, tags, lengths, np.float64(TRANSITIONS))[0],
                contrib.crf.crf_decode(x, np.float64(TRANSITIONS), lengths)[0],
            )
        )
        likelihood, best = session.run(call(tf.constant(np.float64(inputs))))
    expected = computed(OURS, 4)
    np.testing.assert_allclose(likelihood, expected[2], rtol=1e-4, atol=1e-5)
    assert np.array_equal(best, expected[5])


@pytest.mark.parametrize("origin", ORIGINS)
def test_several_allowed_tags_of_a_single_step_count_in_empty_sequences(origin):
    inputs, allowed = batch(1)[0], np.ones([5, 1, TAGS], bool)
    found = run(
        lambda: piece(origin, "crf.crf_multitag_sequence_score")(
            *(tf.constant(each) for each in (inputs, allowed, [1, 0, 1, 0, -1], TRANSITIONS))
        )
    )
    np.testing.assert_allclose(found, np.log(np.exp(inputs[:, 0]).sum(1)), rtol=1e-5)


@pytest.mark.parametrize("origin", ORIGINS)
def test_lengths_of_unknown_shape(origin):
    inputs, tags, lengths = batch(4)

    def build(shape):
        many = v1.placeholder_with_default(np.int32(lengths), shape)
        crf, x = piece(origin, "crf"), tf.constant(inputs)
        likelihood, _ = crf.crf_log_likelihood(x, tf.constant(tags), many, tf.constant(TRANSITIONS))
        return (likelihood, *crf.crf_decode(x, tf.constant(TRANSITIONS), many))

    unknown, known = run(lambda: build(None)), run(lambda: build([5]))
    for one, other in zip(unknown, known):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize("batch_size", [2, None])
@pytest.mark.parametrize("steps", [1, 3, None])
@pytest.mark.parametrize("tags", [1, 2])
def test_static_shapes_of_the_best_path(origin, tags, steps, batch_size):
    values = np.zeros([2, steps or 3, tags], np.float32)

    def build():
        x = v1.placeholder_with_default(values, [batch_size, steps, tags])
        lengths = v1.placeholder_with_default(np.array([1, steps or 3]), [batch_size])
        found = piece(origin, "crf.crf_decode")(x, tf.zeros([tags, tags]), lengths)
        shapes = [each.shape.as_list() for each in found]
        assert shapes == [[batch_size, steps], [batch_size]]
        return found

    best, score = run(build)
    assert not best.any() and not score.any() and best.shape == (2, steps or 3)
