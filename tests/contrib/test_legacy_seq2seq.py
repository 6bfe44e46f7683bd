"""Tests of the models of `contrib.legacy_seq2seq`."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import versions
from tests.contrib.pieces import OURS, piece

# tf_keras warns of its own cells.
pytestmark = [
    pytest.mark.keras2,
    pytest.mark.filterwarnings("ignore:.tf.nn.rnn_cell.* is deprecated:UserWarning"),
    pytest.mark.filterwarnings("ignore:Converting sparse IndexedSlices:UserWarning"),
]
v1 = tf.compat.v1
RANDOM = np.random.RandomState(0)
VECTORS = RANDOM.normal(size=[5, 2, 3]).astype(np.float32)  # [time, batch, size]
SYMBOLS = RANDOM.randint(6, size=[5, 2])


def gru():
    return versions.rnn_cell().GRUCell(4)


def lstm():
    return versions.rnn_cell().BasicLSTMCell(4)


def projection():
    weights = np.sin(np.arange(24)).reshape(4, 6).astype(np.float32)
    return tf.constant(weights), tf.constant(weights[0])


def inputs(values):
    return [tf.constant(each) for each in values[:3]], [tf.constant(each) for each in values[2:]]


def embedding(name, cell=gru, symbols=(6, 6), **keywords):
    """Returns a function of a module that builds the model."""

    def build(module):
        more = {key: value() if callable(value) else value for key, value in keywords.items()}
        model = getattr(module, f"embedding_{name}_seq2seq")
        return model(*inputs(SYMBOLS), cell(), *symbols, 3, **more)

    return build


def attention_only(module):
    states = tf.stack(inputs(VECTORS)[0], 1)
    return module.attention_decoder(
        inputs(VECTORS)[1], tf.ones([2, 4]), states, gru(), 5, 2, lambda last, _: last[:, :3] * 2
    )


def buckets(module):
    def model(one, other):
        return module.embedding_attention_seq2seq(one, other, lstm(), 6, 6, 3, feed_previous=True)

    symbols, weights = [tf.constant(each) for each in SYMBOLS], [tf.ones([2])] * 4
    outputs, losses = module.model_with_buckets(
        symbols, symbols[1:], symbols[1:], weights, [(2, 2), (4, 3)], model, per_example_loss=True
    )
    return outputs[0] + outputs[1], losses


MODELS = {
    "attention": attention_only,
    "buckets": buckets,
    "symbols, projected": embedding("rnn", output_projection=projection, feed_previous=True),
    "fed": embedding("rnn", lstm, feed_previous=lambda: tf.constant(True)),
    "attentive": embedding("attention", lstm, num_heads=2, initial_state_attention=True),
}


@functools.lru_cache(maxsize=None)
def trained(origin, name):
    """Returns the outputs and last states, the gradients, and the names of the variables."""
    module = piece(origin, "legacy_seq2seq")
    with tf.Graph().as_default(), v1.Session() as session:
        outputs, state = MODELS[name](module)
        variables = v1.trainable_variables()
        gradients = v1.gradients(tf.add_n([tf.reduce_sum(each**2) for each in outputs]), variables)
        for number, variable in enumerate(variables):
            size = variable.shape.num_elements()
            value = np.sin(np.arange(size) * 1.7 + number).reshape(variable.shape.as_list())
            variable.load(value, session)
        gradients = [tf.convert_to_tensor(each) for each in gradients if each is not None]
        values = session.run([outputs, tf.nest.flatten(state), gradients])
        return values, [variable.name for variable in variables]


def checksum(values):
    flat = np.concatenate([np.ravel(each) for each in tf.nest.flatten(values)])
    return np.sum(flat * np.cos(np.arange(flat.size)))


# {model: (the checksum of contrib's values, the number of its variables)}
EXPECTED = {
    "attention": (150.22, 16),
    "buckets": (-58.08, 16),
    "symbols, projected": (5.69428, 10),
    "fed": (-49.8658, 8),
    "attentive": (19.8618, 20),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_compute_what_contrib_did(name):
    values, names = trained(OURS, name)
    np.testing.assert_allclose((checksum(values), len(names)), EXPECTED[name], rtol=1e-4)


@pytest.mark.contrib
@pytest.mark.parametrize("name", MODELS)
def test_models_of_contrib(name):
    values, names = trained("tf", name)
    np.testing.assert_allclose((checksum(values), len(names)), EXPECTED[name], rtol=1e-4)
    assert names == trained(OURS, name)[1]
