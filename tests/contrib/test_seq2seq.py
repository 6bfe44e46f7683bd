"""Tests of the decoders and of attention in `contrib.seq2seq`."""

import collections
import functools

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import versions
from tests.contrib.pieces import ORIGINS, OURS, piece

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
    "luong": {"mechanisms": {"Luong": {}}, "wrapper": {"attention_layer_size": 4}},
    "bahdanau": {
        "mechanisms": {"Bahdanau": {}},
        "wrapper": {"output_attention": False, "alignment_history": True},
        "decode": {"impute_finished": True, "swap_memory": True},
        "projection": 7,
    },
    "functions": {
        "mechanisms": {"Bahdanau": {"probability_fn": tf.nn.log_softmax, "name": "own"}},
        "wrapper": {
            "attention_fn": "own",
            "cell_input_fn": lambda inputs, attention: inputs + attention[:, :2],
            "dtype": tf.float32,
        },
        "decode": {"maximum_iterations": 3, "parallel_iterations": 1},
        "is_static": True,
        "has_lengths": False,
    },
    "both": {
        "mechanisms": {
            "Luong": {"scale": True, "score_mask_value": -1.5, "custom_key_value_fn": "halves"},
            "Bahdanau": {"normalize": True},
        },
        "wrapper": {"attention_layer_size": (4, 3), "alignment_history": True, "name": "own"},
        "decode": {"output_time_major": True, "scope": "other", "impute_finished": True},
        "cell": "LSTM",
    },
    "layers, greedy": {
        "mechanisms": {"Bahdanau": {}, "Luong": {}},
        "wrapper": {"attention_layer": "layers", "initial_cell_state": True},
        "decode": {"maximum_iterations": 9},
        "cell": "LSTM",
        "is_greedy": True,
        "projection": 7,
    },
}


def dense(units, name):
    return versions.layers().Dense(units, use_bias=False, name=name)


def mechanism_of(origin, name, arguments, memory, lengths):
    arguments = dict(arguments)
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
    decode=(),
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
        made = [mechanism_of(origin, *each, memory, lengths) for each in mechanisms.items()]
        wrapped = wrapper_of(origin, made, wrapper, cell)
        if is_greedy:
            helper = make("GreedyEmbeddingHelper")(EMBEDDING, tf.fill([3], 1), 2)
        else:
            helper = make("TrainingHelper")(inputs, LENGTHS)
        start = wrapped.zero_state(tf.shape(memory)[0] if not is_static else 3, tf.float32)
        layer = dense(projection, "projection") if projection else None
        decoder = make("BasicDecoder")(wrapped, helper, start, layer)
        return wrapped, make("dynamic_decode")(decoder, **dict(decode))


Decoded = collections.namedtuple(
    "Decoded", "names shapes collections sizes variables values gradients"
)


def flat(structure):
    """Returns the tensors of a structure; instead of a TensorArray its elements."""
    leaves = tf.nest.flatten(structure)
    return [each.stack() if isinstance(each, tf.TensorArray) else each for each in leaves]


@functools.lru_cache(maxsize=None)
def decoded(origin, case):
    """Decodes, after random values have been assigned to the variables."""
    with tf.Graph().as_default() as graph, v1.Session(config=AS_WRITTEN) as session:
        wrapped, results = build(origin, **CASES[case])
        assert type(results[1]).__name__ == "AttentionWrapperState"
        tensors, variables = flat(results), v1.global_variables()
        loss = tf.add_n([tf.reduce_sum(each) for each in tensors if each.dtype.is_floating])
        gradients = v1.gradients(loss, variables, unconnected_gradients="zero")
        random = np.random.RandomState(4)
        weights = [random.normal(size=each.shape.as_list(), scale=0.7) for each in variables]
        for variable, value in zip(variables, weights):
            variable.load(np.float32(value), session)
        state_size = [str(each) for each in tf.nest.flatten(wrapped.state_size)]
        return Decoded(
            [(each.op.name, each.shape.as_list(), each.dtype) for each in variables],
            [str(each.shape) for each in tensors],
            {name: len(graph.get_collection(name)) for name in graph.get_all_collection_keys()},
            [wrapped.output_size, [each for each in state_size if "Tensor(" not in each]],
            {each.op.name.split("/", 1)[1]: value for each, value in zip(variables, weights)},
            *session.run([tensors, gradients]),
        )


@pytest.mark.contrib
@pytest.mark.parametrize("case", CASES)
def test_the_bits_of_contrib(case):
    found, original = decoded(OURS, case), decoded("tf", case)
    for one, other in zip(found[:4], original[:4]):
        assert one == other
    for one, other in zip(found.values + found.gradients, original.values + original.gradients):
        assert one.dtype == other.dtype and np.all(np.isfinite(one))
        np.testing.assert_array_equal(one, other)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    return np.exp(x) / np.exp(x).sum(-1, keepdims=True)


def numpy_decoder(weights, number_of_outputs, uses_layer):
    """Yields outputs, state of the cell, attention and alignments of each step, with a GRU."""
    scope = "decoder/attention_wrapper/"
    gates, gates_bias, candidate, candidate_bias = (
        weights[f"{scope}gru_cell/{part}/{kind}"]
        for part in ("gates", "candidate")
        for kind in ("kernel", "bias")
    )
    is_padding = np.arange(5) >= MEMORY_LENGTHS[:, None]
    values = MEMORY * ~is_padding[..., None]
    keys = values @ weights["memory_layer/kernel"]
    state, attention = np.zeros([3, 5]), np.zeros([3, number_of_outputs])
    for step in range(4):
        inputs = np.concatenate([INPUTS[:, step] * (step < LENGTHS.max()), attention], 1)
        both = np.concatenate([inputs, state], 1)
        reset, update = np.split(sigmoid(both @ gates + gates_bias), 2, 1)
        new = np.concatenate([inputs, reset * state], 1) @ candidate + candidate_bias
        state = update * state + (1 - update) * np.tanh(new)
        if uses_layer:  # Luong's scores
            scores = np.einsum("bu,btu->bt", state, keys)
        else:
            bahdanau = scope + "bahdanau_attention/"
            query = state @ weights[bahdanau + "query_layer/kernel"]
            scores = np.tanh(keys + query[:, None]) @ weights[bahdanau + "attention_v"]
        alignments = softmax(np.where(is_padding, -np.inf, scores))
        attention = np.einsum("bt,btv->bv", alignments, values)
        if uses_layer:
            layer = weights[scope + "attention_layer/kernel"]
            attention = np.concatenate([state, attention], 1) @ layer
        yield state, attention, alignments


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("origin", ORIGINS)
def test_numpy(origin):
    found = decoded(origin, "luong")
    outputs, ids, state, attention, time, alignments, _, lengths = found.values
    steps = list(numpy_decoder(found.variables, 4, uses_layer=True))
    close(outputs, np.stack([attention for _, attention, _ in steps], 1))
    for actual, expected in zip((state, attention, alignments), steps[-1]):
        close(actual, expected)
    assert time == 4 and lengths.tolist() == LENGTHS.tolist()
    assert np.array_equal(ids, outputs.argmax(-1))

    found = decoded(origin, "bahdanau")
    outputs, ids, state, attention, _, alignments, history, _, lengths = found.values
    steps = list(numpy_decoder(found.variables, 6, uses_layer=False))
    hidden = np.stack([state for state, _, _ in steps], 1)
    is_running = np.arange(4) < LENGTHS[:, None]
    close(outputs, hidden @ found.variables["decoder/projection/kernel"] * is_running[..., None])
    last = np.maximum(LENGTHS, 1) - 1
    ends = [np.stack(each)[last, range(3)] * (LENGTHS > 0)[:, None] for each in zip(*steps)]
    for actual, expected in zip((state, attention, alignments), ends):
        close(actual, expected)
    expected = np.stack([alignments for _, _, alignments in steps])
    close(history[is_running.T], expected[is_running.T])
    assert lengths.tolist() == LENGTHS.tolist() and np.all(ids[~is_running] == 0)


NAMES = [
    *(("model/memory_layer/kernel", [6, 5]), ("model/memory_layer_1/kernel", [6, 5])),
    *(
        ("model/decoder/attention_wrapper/" + name, shape)
        for name, shape in [
            *(("lstm_cell/kernel", [14, 20]), ("lstm_cell/bias", [20])),
            ("bahdanau_attention/query_layer/kernel", [5, 5]),
            *(("bahdanau_attention/attention_v", [5]), ("one/kernel", [11, 4])),
            ("two/kernel", [11, 3]),
        ]
    ),
    ("model/decoder/projection/kernel", [7, 7]),
]


@pytest.mark.parametrize("origin", ORIGINS)
def test_variables_have_the_names_of_checkpoints_of_contrib(origin):
    found = decoded(origin, "layers, greedy")
    assert [(name, shape) for name, shape, _ in found.names] == NAMES


def counting(origin, tracks):
    """Returns a decoder of a user: it counts, and its last outputs are doubled."""

    class Counting(piece(origin, "seq2seq.Decoder")):
        batch_size = 2
        output_size = {"a": tf.TensorShape([]), "b": (tf.TensorShape([3]),)}
        output_dtype = {"a": tf.int32, "b": (tf.float32,)}
        tracks_own_finished = tracks

        def initialize(self, name=None):
            return tf.constant([False, False]), tf.zeros([2]), tf.constant([0, 10])

        def step(self, time, inputs, state, name=None):
            outputs = {"a": state, "b": (tf.fill([2, 3], tf.cast(time, tf.float32)),)}
            return outputs, state + 1, inputs, tf.equal(time, [1, 3])

        def finalize(self, outputs, final_state, sequence_lengths):
            return dict(outputs, a=outputs["a"] * 2), (final_state, sequence_lengths)

    return Counting()


@pytest.mark.parametrize("origin", ORIGINS)
def test_a_decoder_of_a_user(origin):
    decode = piece(origin, "seq2seq.dynamic_decode")
    with tf.Graph().as_default(), v1.Session() as session:
        outputs, (state, _), lengths = decode(counting(origin, False), impute_finished=True)
        assert outputs["b"][0].shape.as_list() == [2, None, 3]
        values = session.run([outputs, state, lengths])
        assert values[0]["a"].tolist() == [[0, 2, 0, 0], [20, 22, 24, 26]]
        assert values[0]["b"][0][0, :, 0].tolist() == [0, 1, 0, 0]
        assert [each.tolist() for each in values[1:]] == [[2, 14], [2, 4]]
        # A decoder that tracks what is finished may go on: both sequences are never finished here.
        outputs, _, lengths = decode(counting(origin, True), True, maximum_iterations=6)
        assert session.run([tf.shape(outputs["a"]), lengths])[0].tolist() == [6, 2]
        outputs, _, _ = decode(counting(origin, False), maximum_iterations=0)
        assert session.run(tf.shape(outputs["a"])).tolist() == [2, 0]


@pytest.mark.parametrize("origin", ORIGINS)
def test_mechanisms_and_helpers_of_a_user(origin):
    luong, helper = piece(origin, "seq2seq.LuongAttention"), piece(origin, "seq2seq.TrainingHelper")

    class Doubled(luong):
        def __init__(self, *args):
            super().__init__(*args)
            self._values = self.values * 2

    class Fixed(luong):
        values = property(lambda self: tf.ones_like(self._values))
        state_size = property(lambda self: self._alignments_size)

    with tf.Graph().as_default(), v1.Session() as session:
        attentions = []
        for cls in (luong, Doubled, Fixed):
            with v1.variable_scope(cls.__name__, initializer=v1.ones_initializer()):
                cell, attention = versions.rnn_cell().GRUCell(4), cls(4, MEMORY, MEMORY_LENGTHS)
                cell = piece(origin, "seq2seq.AttentionWrapper")(cell, attention)
                _, state = cell(tf.ones([3, 2]), cell.zero_state(3, tf.float32))
            attentions.append(state.attention)
        session.run(v1.global_variables_initializer())
        plain, doubled, fixed = session.run(attentions)
        np.testing.assert_allclose(doubled, 2 * plain, rtol=1e-6)
        np.testing.assert_allclose(fixed, np.ones_like(plain), rtol=1e-6)
        trained = helper(INPUTS, np.int32([4, 0, -2]))  # a negative length is one step
        finished = [trained.initialize()[0], trained.next_inputs(0, (), (), sample_ids=())[0]]
        assert session.run(finished[0]).tolist() == [False, True, False]
        assert session.run(finished[1]).tolist() == [False, True, True]


@pytest.mark.parametrize("origin", ORIGINS)
def test_a_changed_state(origin):
    with tf.Graph().as_default(), v1.Session() as session:
        wrapped, _ = build(origin, **CASES["luong"])
        size = v1.placeholder_with_default(3, [])
        state = wrapped.zero_state(size, tf.float32)
        ones = v1.placeholder_with_default(np.ones([3, 5], np.float32), [None, 5])
        changed = state.clone(cell_state=ones)
        assert type(changed) is type(state)
        assert np.all(session.run(changed.cell_state) == 1)
        with pytest.raises(tf.errors.InvalidArgumentError):
            session.run(changed.cell_state, {ones: np.ones([2, 5])})
        with pytest.raises(tf.errors.InvalidArgumentError, match="memory"):
            session.run(state.cell_state, {size: 2})
        known = changed._replace(cell_state=tf.zeros([3, 5]))
        with pytest.raises(ValueError, match="[Ss]hape"):
            known.clone(cell_state=tf.zeros([3, 4]))


@pytest.mark.parametrize("origin", ORIGINS)
def test_refused(origin):
    make = lambda name, *args, **kwargs: piece(origin, "seq2seq." + name)(*args, **kwargs)  # noqa: E731
    with tf.Graph().as_default():
        cell, memory = versions.rnn_cell().GRUCell(5), tf.constant(MEMORY)
        luong = make("LuongAttention", 5, memory, scale=True)
        helper = make("TrainingHelper", INPUTS, LENGTHS)
        start = cell.zero_state(3, tf.float32)
        attention = lambda *args, **kwargs: make("AttentionWrapper", *args, **kwargs)  # noqa: E731
        type_errors = [
            lambda: make("dynamic_decode", cell),
            lambda: make("BasicDecoder", "cell", helper, start),
            lambda: make("BasicDecoder", cell, "helper", start),
            lambda: make("BasicDecoder", cell, helper, start, "layer"),
            lambda: attention("cell", luong),
            lambda: attention(cell, "luong"),
            lambda: attention(cell, [luong, "luong"]),
            lambda: attention(cell, luong, cell_input_fn="concat"),
            lambda: attention(cell, luong)(tf.zeros([3, 2]), start),
            lambda: make("GreedyEmbeddingHelper", EMBEDDING, [1], 2).sample(0, (memory,), None),
            lambda: make("Helper"),
            lambda: make("Decoder"),
        ]
        decoder = make("BasicDecoder", cell, helper, start)
        value_errors = [
            lambda: make("dynamic_decode", decoder, maximum_iterations=[1]),
            lambda: make("TrainingHelper", INPUTS, 3),
            lambda: make("GreedyEmbeddingHelper", EMBEDDING, 1, 2),
            lambda: make("GreedyEmbeddingHelper", EMBEDDING, [1], [2]),
            lambda: make("LuongAttention", 5, v1.placeholder(tf.float32, [3, 5, None])),
            lambda: make("LuongAttention", 4, memory)(start, None),
            lambda: attention(cell, luong, [1, 2]),
            lambda: attention(cell, [luong, luong], 3),
            lambda: attention(cell, luong, 3, attention_layer=dense(3, "layer")),
            lambda: attention(cell, luong, attention_layer=[dense(3, "layer")] * 2),
        ]
        for error, calls in (TypeError, type_errors), (ValueError, value_errors):
            for call in calls:
                with pytest.raises(error):
                    call()
        lengths = v1.placeholder_with_default([1, 0, 1], [None])
        masked = make("BahdanauAttention", 5, memory, lengths)
        alignments, _ = masked(start, None)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            with pytest.raises(tf.errors.InvalidArgumentError):
                session.run(alignments)
            values = session.run(masked.values, {lengths: MEMORY_LENGTHS})
        assert np.array_equal(values, MEMORY * (np.arange(5) < MEMORY_LENGTHS[:, None])[..., None])
