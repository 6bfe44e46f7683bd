"""Trains a translation model with attention, in the style of TensorFlow's NMT tutorial of 2017."""

from __future__ import absolute_import, division, print_function

import argparse
import collections
import os
import random
import shutil
import tempfile

import six
import tensorflow as tf
from tensorflow.contrib import rnn as contrib_rnn
from tensorflow.python.layers import core as layers_core  # noqa: TID251

UNK, SOS, EOS = "<unk>", "<s>", "</s>"
DIGITS = collections.OrderedDict(zip("zero one two three four five six seven".split(), "abcdefgh"))


def create_hparams(overrides):
    hparams = tf.contrib.training.HParams(
        num_units=16,
        num_layers=2,
        unit_type="lstm",
        batch_size=16,
        learning_rate=0.02,
        decay_steps=[20, 10],  # when to begin, and how often
        decay_factor=0.8,
        max_gradient_norm=1.0,
        num_train_steps=40,
        init_weight=0.3,
        random_seed=7,
    )
    return hparams.parse(overrides)


def write_corpus(folder, hparams):
    """Writes sentences of digits, and their translation: letters in the reverse order."""
    rng = random.Random(hparams.random_seed)
    texts = collections.defaultdict(list)
    for _ in range(64):
        words = [rng.choice(list(DIGITS)) for _ in range(rng.randint(2, 6))]
        texts["train.src"].append(" ".join(words))
        texts["train.tgt"].append(" ".join(DIGITS[word] for word in reversed(words)))
    texts["vocab.src"] = [UNK, SOS, EOS] + list(six.iterkeys(DIGITS))
    texts["vocab.tgt"] = [UNK, SOS, EOS] + list(six.itervalues(DIGITS))
    for name, lines in six.iteritems(texts):
        with tf.gfile.GFile(os.path.join(folder, name), "w") as output:
            output.write("\n".join(lines) + "\n")


BatchedInput = collections.namedtuple(
    "BatchedInput", "initializer source target_input target_output source_length target_length"
)
AttentionState = collections.namedtuple("AttentionState", "cell attention")


def get_iterator(folder, src_table, tgt_table, hparams):
    sos = tf.cast(tgt_table.lookup(tf.constant(SOS)), tf.int32)
    eos = tf.cast(tgt_table.lookup(tf.constant(EOS)), tf.int32)
    texts = (
        tf.data.TextLineDataset(os.path.join(folder, "train." + end)) for end in ("src", "tgt")
    )
    dataset = tf.data.Dataset.zip(tuple(texts))
    dataset = dataset.shuffle(64, hparams.random_seed, reshuffle_each_iteration=False)

    def parse(src, tgt):
        src, tgt = (
            tf.cast(table.lookup(tf.string_split([text]).values), tf.int32)
            for table, text in ((src_table, src), (tgt_table, tgt))
        )
        inputs, outputs = tf.concat(([sos], tgt), 0), tf.concat((tgt, [eos]), 0)
        return src, inputs, outputs, tf.size(src), tf.size(outputs)

    dataset = dataset.map(parse)
    shapes = tuple(tf.TensorShape(shape) for shape in ([None], [None], [None], [], []))
    iterator = dataset.padded_batch(hparams.batch_size, shapes).make_initializable_iterator()
    return BatchedInput(iterator.initializer, *iterator.get_next())


def create_rnn_cell(hparams, depth):
    cells = {"lstm": contrib_rnn.BasicLSTMCell, "gru": tf.nn.rnn_cell.GRUCell}
    made = [cells[hparams.unit_type](hparams.num_units) for _ in range(depth)]
    made = [made[0]] + [contrib_rnn.ResidualWrapper(cell) for cell in made[1:]]
    return contrib_rnn.MultiRNNCell(made) if depth > 1 else made[0]


class AttentionCell(tf.nn.rnn_cell.RNNCell):
    """Feeds the last attention to a cell, and attends to the memory with its output."""

    def __init__(self, cell, memory, memory_length, hparams):
        super(AttentionCell, self).__init__()
        self._cell = cell
        self._num_units = hparams.num_units
        self._memory = memory
        self._keys = layers_core.Dense(hparams.num_units, use_bias=False, name="memory")(memory)
        mask = tf.sequence_mask(memory_length, tf.shape(memory)[1], dtype=tf.float32)
        self._penalty = (1.0 - mask) * -1e9

    @property
    def state_size(self):
        return AttentionState(self._cell.state_size, self._num_units)

    @property
    def output_size(self):
        return self._num_units

    def call(self, inputs, state):
        output, cell_state = self._cell(tf.concat([inputs, state.attention], 1), state.cell)
        scale = tf.get_variable("attention_g", [], initializer=tf.ones_initializer())
        scores = tf.reduce_sum(self._keys * tf.expand_dims(output, 1), 2) * scale + self._penalty
        alignments = tf.nn.softmax(scores)
        context = tf.reduce_sum(tf.expand_dims(alignments, 2) * self._memory, 1)
        both = tf.concat([output, context], 1)
        dense = layers_core.Dense(self._num_units, tf.tanh, use_bias=False, name="attention_layer")
        attention = dense(both)
        return attention, AttentionState(cell_state, attention)


class Model(object):
    """An encoder that reads in both directions, and a decoder with attention."""

    def __init__(self, hparams, iterator, vocab_size):
        initializer = tf.random_uniform_initializer(
            -hparams.init_weight, hparams.init_weight, seed=hparams.random_seed
        )
        self.global_step = tf.train.get_or_create_global_step()
        with tf.variable_scope("nmt", initializer=initializer):
            shape = [vocab_size, hparams.num_units]
            tables = [tf.get_variable("embedding_" + name, shape) for name in ("enc", "dec")]
            memory, state = self._build_encoder(hparams, iterator, tables[0])
            outputs = self._build_decoder(hparams, iterator, tables[1], memory, state)
            projection = layers_core.Dense(vocab_size, use_bias=False, name="output_projection")
            logits = projection(outputs)
        weights = tf.sequence_mask(
            iterator.target_length, tf.shape(iterator.target_output)[1], dtype=logits.dtype
        )
        self.loss = tf.contrib.seq2seq.sequence_loss(logits, iterator.target_output, weights)
        begin, often = hparams.decay_steps
        steps = tf.maximum(self.global_step - begin, 0)
        rate = tf.train.exponential_decay(
            hparams.learning_rate, steps, often, hparams.decay_factor, staircase=True
        )
        params = tf.trainable_variables()
        gradients = tf.gradients(self.loss, params)
        clipped, self.grad_norm = tf.clip_by_global_norm(gradients, hparams.max_gradient_norm)
        optimizer = tf.contrib.opt.LazyAdamOptimizer(rate)
        self.update = optimizer.apply_gradients(zip(clipped, params), self.global_step)

    def _build_encoder(self, hparams, iterator, table):
        with tf.variable_scope("encoder"):
            outputs, states = tf.nn.bidirectional_dynamic_rnn(
                create_rnn_cell(hparams, 1),
                create_rnn_cell(hparams, 1),
                tf.nn.embedding_lookup(table, iterator.source),
                sequence_length=iterator.source_length,
                dtype=tf.float32,
            )
        return tf.concat(outputs, -1), states  # one state for each layer of the decoder

    def _build_decoder(self, hparams, iterator, table, memory, state):
        with tf.variable_scope("decoder"):
            cell = create_rnn_cell(hparams, hparams.num_layers)
            cell = AttentionCell(cell, memory, iterator.source_length, hparams)
            zeros = tf.zeros([tf.size(iterator.source_length), hparams.num_units])
            outputs, _ = tf.nn.dynamic_rnn(
                cell,
                tf.nn.embedding_lookup(table, iterator.target_input),
                sequence_length=iterator.target_length,
                initial_state=AttentionState(state, zeros),
            )
        return outputs


def train(hparams, folder):
    write_corpus(folder, hparams)
    src_table, tgt_table = (
        tf.contrib.lookup.index_table_from_file(
            os.path.join(folder, "vocab." + end), default_value=0
        )
        for end in ("src", "tgt")
    )
    iterator = get_iterator(folder, src_table, tgt_table, hparams)
    model = Model(hparams, iterator, len(DIGITS) + 3)
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), tf.tables_initializer()])
        sess.run(iterator.initializer)
        step = 0
        while step < hparams.num_train_steps:
            try:
                _, loss, norm = sess.run([model.update, model.loss, model.grad_norm])
            except tf.errors.OutOfRangeError:  # the end of an epoch
                sess.run(iterator.initializer)
                continue
            step += 1
            print("step %d loss = %.9g gN %.2f" % (step, loss, norm))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hparams", default="", help="Comma-separated list of name=value pairs.")
    hparams = create_hparams(parser.parse_args().hparams)
    print(", ".join("%s=%s" % pair for pair in sorted(six.iteritems(hparams.values()))))
    folder = tempfile.mkdtemp()
    train(hparams, folder)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
