"""Tests of `contrib.seq2seq` and `contrib.legacy_seq2seq`."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests.contrib.pieces import ORIGINS, OURS, piece, run

v1 = tf.compat.v1
RANDOM = np.random.RandomState(0)
LOGITS = RANDOM.normal(size=[3, 4, 5]).astype(np.float32)
TARGETS = RANDOM.randint(5, size=[3, 4])
WEIGHTS = np.float32([[1, 1, 0.5, 0], [1, 0, 0, 0], [0, 0, 0, 0]])
FLAGS = [
    flags
    for flags in itertools.product([False, True], repeat=4)
    if not (flags[0] and flags[2]) and not (flags[1] and flags[3])
]


def entropies():
    logits = LOGITS.astype(np.float64)
    norms = np.log(np.exp(logits).sum(-1))
    return (norms - np.take_along_axis(logits, TARGETS[..., None], -1)[..., 0]) * WEIGHTS


def expected(average_time, average_batch, sum_time, sum_batch):
    losses = entropies()
    count = lambda weights: np.float64(weights != 0)  # noqa: E731
    if average_time and average_batch:
        axis, weights = None, WEIGHTS
    elif sum_time and sum_batch:
        axis, weights = None, count(WEIGHTS)
    elif average_time or average_batch:
        axis, weights = 0 if average_batch else 1, WEIGHTS
    elif sum_time or sum_batch:
        axis, weights = 0 if sum_batch else 1, count(WEIGHTS)
    else:
        return losses
    total = weights.sum(axis)
    return np.where(total == 0, 0, losses.sum(axis) / np.where(total == 0, 1, total))


def loss(origin, flags, **arguments):
    def build():
        logits = tf.constant(LOGITS)
        function = piece(origin, "seq2seq.sequence_loss")
        value = function(logits, tf.constant(TARGETS), tf.constant(WEIGHTS), *flags, **arguments)
        return value, v1.gradients(value, logits)[0]

    return run(build)


@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize("flags", FLAGS)
def test_sequence_loss(origin, flags):
    np.testing.assert_allclose(loss(origin, flags)[0], expected(*flags), rtol=1e-5)


@pytest.mark.contrib
@pytest.mark.parametrize("flags", FLAGS)
def test_sequence_loss_has_the_bits_of_contrib(flags):
    for one, other in zip(loss(OURS, flags), loss("tf", flags)):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("origin", ORIGINS)
def test_sequence_loss_with_a_loss_function(origin):
    def squares(labels, logits):
        return tf.reduce_sum(logits**2, 1) + tf.cast(labels, tf.float32)

    value, _ = loss(origin, (), softmax_loss_function=squares)
    losses = (np.sum(LOGITS**2, 2) + TARGETS) * WEIGHTS
    np.testing.assert_allclose(value, losses.sum() / WEIGHTS.sum(), rtol=1e-5)


@pytest.mark.parametrize("origin", ORIGINS)
def test_sequence_loss_refuses(origin):
    function = piece(origin, "seq2seq.sequence_loss")
    with tf.Graph().as_default():
        tensors = [tf.constant(each) for each in (LOGITS, TARGETS, WEIGHTS)]
        for number, title in enumerate(["Logits", "Targets", "Weights"]):
            wrong = [*tensors[:number], tf.constant(1.0), *tensors[number + 1 :]]
            with pytest.raises(ValueError, match=f"(?i){title} "):
                function(*wrong)
        with pytest.raises(ValueError, match="average_across_.* and sum_over_"):
            function(*tensors, sum_over_batch=True)
        with pytest.raises(ValueError, match="average_across_.* and sum_over_"):
            function(*tensors, sum_over_timesteps=True)


def legacy(origin, name, *flags):
    def build():
        logits = [tf.constant(each) for each in np.swapaxes(LOGITS, 0, 1)]
        targets = [tf.constant(each) for each in TARGETS.T]
        weights = [tf.constant(each) for each in WEIGHTS.T]
        value = piece(origin, "legacy_seq2seq." + name)(logits, targets, weights, *flags)
        return [value, *v1.gradients(value, logits)]

    return run(build)


@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize("average", [True, False])
def test_legacy_losses(origin, average):
    losses = entropies().sum(1) / (WEIGHTS.sum(1) + 1e-12 if average else 1)
    by_example = legacy(origin, "sequence_loss_by_example", average)[0]
    np.testing.assert_allclose(by_example, losses, rtol=1e-5)
    for over_batch in True, False:
        value = legacy(origin, "sequence_loss", average, over_batch)[0]
        np.testing.assert_allclose(value, losses.sum() / (3 if over_batch else 1), rtol=1e-5)


@pytest.mark.contrib
@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize("name", ["sequence_loss_by_example", "sequence_loss"])
def test_legacy_losses_have_the_bits_of_contrib(name, average):
    for one, other in zip(legacy(OURS, name, average), legacy("tf", name, average)):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("origin", ORIGINS)
def test_lists_of_different_lengths(origin):
    function = piece(origin, "legacy_seq2seq.sequence_loss_by_example")
    with pytest.raises(ValueError, match="must be the same 1, 3, 2."):
        function([1], [1, 2], [1, 2, 3])


class Adding:
    """A cell that adds its variable, its input and its state."""

    def __call__(self, inputs, state):
        state = state + inputs + v1.get_variable("w", initializer=0.5)
        return 2 * state, state


@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize("loops", [True, False])
def test_rnn_decoder(origin, loops):
    def build():
        inputs = [tf.constant([[float(value)]]) for value in (1, 10, 100)]
        loop = (lambda previous, step: previous + 1000.0 * step) if loops else None
        decoder = piece(origin, "legacy_seq2seq.rnn_decoder")
        outputs, state = decoder(inputs, tf.constant([[3.0]]), Adding(), loop)
        assert [each.name for each in v1.global_variables()] == ["rnn_decoder/w:0"]
        return outputs, state

    outputs, state = run(build)
    states = [4.5]
    for step, value in (1, 10), (2, 100):
        states.append(states[-1] + (2 * states[-1] + 1000 * step if loops else value) + 0.5)
    assert np.ravel(outputs).tolist() == [2 * each for each in states]
    assert state == [[states[-1]]]
