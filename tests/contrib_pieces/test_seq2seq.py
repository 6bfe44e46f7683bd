"""Tests of the decoders and of attention in `contrib.seq2seq`."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import versions
from tests.support.contrib_pieces import ORIGINS, OURS, piece

# tf_keras warns of its own cells, which are the base class and the cells that are wrapped.
pytestmark = [
    pytest.mark.keras2,
    pytest.mark.filterwarnings("ignore:.tf.nn.rnn_cell.* is deprecated:UserWarning"),
]
v1 = tf.compat.v1
RANDOM = np.random.RandomState(0)
MEMORY = RANDOM.normal(size=[3, 5, 6]).astype(np.float32)
MEMORY_LENGTHS = np.array([5, 2, 3])
INPUTS = RANDOM.normal(size=[3, 4, 2]).astype(np.float32)
LENGTHS = np.int32([4, 0, 2])
EMBEDDING = RANDOM.normal(size=[7, 2]).astype(np.float32)

# Grappler may add up three numbers in another order, which depends on the names of operations.
AS_WRITTEN = v1.ConfigProto()
AS_WRITTEN.graph_options.rewrite_options.arithmetic_optimization = 2  # off

# {name of a test: arguments of `build`}
CASES = {
    "luong": {"mechanisms": ["Luong"], "wrapper": {"attention_layer_size": 4}},
    "luong, all": {
        "mechanisms": ["Luong"],
        "mechanism": {"scale": True, "score_mask_value": -1.5, "custom_key_value_fn": "halves"},
        "wrapper": {"attention_layer_size": [4], "alignment_history": True, "name": "own"},
        "decode": {"output_time_major": True, "scope": "other"},
    },
    "bahdanau": {
        "mechanisms": ["Bahdanau"],
        "wrapper": {"output_attention": False, "alignment_history": True},
        "decode": {"impute_finished": True, "swap_memory": True},
        "projection": 7,
    },
    "bahdanau, all": {
        "mechanisms": ["Bahdanau"],
        "mechanism": {"normalize": True, "probability_fn": "hardmax", "name": "own"},
        "wrapper": {"cell_input_fn": lambda inputs, attention: inputs + attention[:, :2]},
        "decode": {"maximum_iterations": 3, "parallel_iterations": 1},
        "is_static": True,
    },
    "both": {
        "mechanisms": ["Luong", "Bahdanau"],
        "wrapper": {"attention_layer_size": (4, 3), "alignment_history": True},
        "decode": {"impute_finished": True},
        "has_lengths": False,
        "cell": "LSTM",
    },
    "layers": {
        "mechanisms": ["Bahdanau", "Luong"],
        "wrapper": {"attention_layer": "layers", "initial_cell_state": True},
        "cell": "LSTM",
        "is_greedy": True,
        "projection": 7,
    },
    "greedy": {
        "mechanisms": ["Luong"],
        "wrapper": {"attention_layer_size": 6},
        "decode": {"maximum_iterations": 9},
        "is_greedy": True,
        "projection": 7,
    },
    "attention function": {
        "mechanisms": ["Luong"],
        "wrapper": {"attention_fn": "own", "dtype": tf.float32},
    },
}


def dense(units, name):
    return versions.layers().Dense(units, use_bias=False, name=name)


def mechanism_of(origin, name, memory, lengths, arguments):
    arguments = dict(arguments)
    if arguments.get("probability_fn") == "hardmax":
        arguments["probability_fn"] = piece(origin, "seq2seq.hardmax")
    if "custom_key_value_fn" in arguments:
        arguments["custom_key_value_fn"] = lambda keys, values: (keys / 2, values / 2)
    make = piece(origin, f"seq2seq.{name}Attention")
    return make(5, memory, memory_sequence_length=lengths, **arguments)


def own_attention(mechanism, output, state, layer):
    alignments, state = mechanism(output, state)
    return 2 * tf.matmul(alignments[:, None], mechanism.values)[:, 0], alignments, state


def wrapper_of(origin, mechanisms, arguments, cell_name):
    arguments = dict(arguments)
    cells = versions.rnn_cell()
    cell = cells.GRUCell(5) if cell_name == "GRU" else cells.LSTMCell(5)
    if "initial_cell_state" in arguments:
        state = np.full([3, 5], 0.5, np.float32)
        arguments["initial_cell_state"] = cells.LSTMStateTuple(tf.constant(state), state * 2)
    if "attention_layer" in arguments:
        arguments["attention_layer"] = [dense(4, "one"), dense(3, "two")]
    if "attention_fn" in arguments:
        arguments["attention_fn"] = own_attention
    given = mechanisms if len(mechanisms) > 1 else mechanisms[0]
    return piece(origin, "seq2seq.AttentionWrapper")(cell, given, **arguments)


def build(
    origin,
    mechanisms,
    wrapper,
    mechanism={},
    decode={},
    has_lengths=True,
    is_static=False,
    is_greedy=False,
    cell="GRU",
    projection=None,
):
    """Returns a cell with attention, and what `dynamic_decode` returns for it."""
    make = lambda name: piece(origin, "seq2seq." + name)  # noqa: E731
    memory, inputs = tf.constant(MEMORY), tf.constant(INPUTS)
    if not is_static:
        memory = v1.placeholder_with_default(MEMORY, [None, None, 6])
        inputs = v1.placeholder_with_default(INPUTS, [None, None, 2])
    lengths = tf.constant(MEMORY_LENGTHS) if has_lengths else None
    with v1.variable_scope("model"):
        made = [mechanism_of(origin, name, memory, lengths, mechanism) for name in mechanisms]
        wrapped = wrapper_of(origin, made, wrapper, cell)
        if is_greedy:
            helper = make("GreedyEmbeddingHelper")(EMBEDDING, tf.fill([3], 1), 2)
        else:
            helper = make("TrainingHelper")(inputs, LENGTHS)
        start = wrapped.zero_state(tf.shape(memory)[0] if not is_static else 3, tf.float32)
        layer = dense(projection, "projection") if projection else None
        decoder = make("BasicDecoder")(wrapped, helper, start, layer)
        return wrapped, make("dynamic_decode")(decoder, **decode)


Decoded = collections.namedtuple("Decoded", "names shapes collections sizes values gradients")


def flat(structure):
    """Returns the tensors of a structure; instead of a TensorArray its elements."""
    leaves = tf.nest.flatten(structure)
    return [each.stack() if isinstance(each, tf.TensorArray) else each for each in leaves]


def decoded(origin, case):
    """Decodes, after random values have been assigned to the variables."""
    with tf.Graph().as_default() as graph, v1.Session(config=AS_WRITTEN) as session:
        wrapped, results = build(origin, **CASES[case])
        assert type(results[1]).__name__ == "AttentionWrapperState"
        tensors, variables = flat(results), v1.global_variables()
        loss = tf.add_n([tf.reduce_sum(each) for each in tensors if each.dtype.is_floating])
        gradients = v1.gradients(loss, variables, unconnected_gradients="zero")
        random = np.random.RandomState(4)
        for variable in variables:
            value = random.normal(size=variable.shape.as_list(), scale=0.7)
            variable.load(value.astype(np.float32), session)
        state_size = [str(each) for each in tf.nest.flatten(wrapped.state_size)]
        return Decoded(
            [(each.name, each.shape.as_list(), each.dtype) for each in variables],
            [str(each.shape) for each in tensors],
            {name: len(graph.get_collection(name)) for name in graph.get_all_collection_keys()},
            [wrapped.output_size, [each for each in state_size if "Tensor(" not in each]],
            *session.run([tensors, gradients]),
        )


@pytest.mark.contrib
@pytest.mark.parametrize("case", CASES)
def test_the_bits_of_contrib(case):
    found, original = decoded(OURS, case), decoded("tf", case)
    for one, other in zip(found[:4], original[:4]):
        assert one == other
    for one, other in zip(found.values + found.gradients, original.values + original.gradients):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
