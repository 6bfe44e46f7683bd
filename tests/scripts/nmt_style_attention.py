"""Trains a translation model with attention, in the style of TensorFlow's NMT tutorial of 2017.

It then restores the model from its checkpoint into a graph for inference, and translates greedily.
"""

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
        attention="scaled_luong",
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


def create_attention_mechanism(hparams, memory, memory_length):
    option, num_units = hparams.attention, hparams.num_units
    if option == "scaled_luong":
        return tf.contrib.seq2seq.LuongAttention(
            num_units, memory, memory_sequence_length=memory_length, scale=True
        )
    assert option == "normed_bahdanau", option
    return tf.contrib.seq2seq.BahdanauAttention(
        num_units, memory, memory_sequence_length=memory_length, normalize=True
    )


class Model(object):
    """An encoder that reads in both directions, and a decoder with attention."""

    def __init__(self, hparams, mode, iterator, tgt_table, vocab_size):
        initializer = tf.random_uniform_initializer(
            -hparams.init_weight, hparams.init_weight, seed=hparams.random_seed
        )
        self.mode, self.vocab_size = mode, vocab_size
        self.global_step = tf.train.get_or_create_global_step()
        with tf.variable_scope("nmt", initializer=initializer):
            shape = [vocab_size, hparams.num_units]
            tables = [tf.get_variable("embedding_" + name, shape) for name in ("enc", "dec")]
            memory, state = self._build_encoder(hparams, iterator, tables[0])
            self._build_decoder(hparams, iterator, tgt_table, tables[1], memory, state)
        if mode == tf.contrib.learn.ModeKeys.TRAIN:
            self._build_update(hparams, iterator)
        self.saver = tf.train.Saver(tf.global_variables())

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

    def _build_decoder(self, hparams, iterator, tgt_table, table, memory, state):
        batch_size = tf.size(iterator.source_length)
        projection = layers_core.Dense(self.vocab_size, use_bias=False, name="output_projection")
        with tf.variable_scope("decoder") as decoder_scope:
            mechanism = create_attention_mechanism(hparams, memory, iterator.source_length)
            cell = tf.contrib.seq2seq.AttentionWrapper(
                create_rnn_cell(hparams, hparams.num_layers),
                mechanism,
                attention_layer_size=hparams.num_units,
                alignment_history=self.mode == tf.contrib.learn.ModeKeys.INFER,
                name="attention",
            )
            state = cell.zero_state(batch_size, tf.float32).clone(cell_state=state)
            if self.mode == tf.contrib.learn.ModeKeys.TRAIN:
                helper = tf.contrib.seq2seq.TrainingHelper(
                    tf.nn.embedding_lookup(table, iterator.target_input), iterator.target_length
                )
                decoder = tf.contrib.seq2seq.BasicDecoder(cell, helper, state)
                outputs, _, _ = tf.contrib.seq2seq.dynamic_decode(
                    decoder, swap_memory=True, scope=decoder_scope
                )
                self.logits = projection(outputs.rnn_output)
            else:
                sos, eos = (tf.cast(tgt_table.lookup(tf.constant(x)), tf.int32) for x in (SOS, EOS))
                helper = tf.contrib.seq2seq.GreedyEmbeddingHelper(
                    table, tf.fill([batch_size], sos), eos
                )
                decoder = tf.contrib.seq2seq.BasicDecoder(cell, helper, state, projection)
                outputs, final_state, self.lengths = tf.contrib.seq2seq.dynamic_decode(
                    decoder,
                    maximum_iterations=2 * tf.reduce_max(iterator.source_length),
                    scope=decoder_scope,
                )
                self.sample_id = outputs.sample_id
                self.alignments = final_state.alignment_history.stack()

    def _build_update(self, hparams, iterator):
        weights = tf.sequence_mask(
            iterator.target_length, tf.shape(iterator.target_output)[1], dtype=tf.float32
        )
        self.loss = tf.contrib.seq2seq.sequence_loss(self.logits, iterator.target_output, weights)
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


def create_model(hparams, folder, mode):
    src_table, tgt_table = (
        tf.contrib.lookup.index_table_from_file(
            os.path.join(folder, "vocab." + end), default_value=0
        )
        for end in ("src", "tgt")
    )
    iterator = get_iterator(folder, src_table, tgt_table, hparams)
    return Model(hparams, mode, iterator, tgt_table, len(DIGITS) + 3), iterator


def train(hparams, folder):
    model, iterator = create_model(hparams, folder, tf.contrib.learn.ModeKeys.TRAIN)
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
        model.saver.save(sess, os.path.join(folder, "translate.ckpt"), model.global_step)


def infer(hparams, folder):
    """Prints translations of the first sentences."""
    model, iterator = create_model(hparams, folder, tf.contrib.learn.ModeKeys.INFER)
    with open(os.path.join(folder, "vocab.tgt")) as vocabulary:
        words = vocabulary.read().split()
    with tf.Session() as sess:
        sess.run(tf.tables_initializer())
        model.saver.restore(sess, tf.train.latest_checkpoint(folder))
        sess.run(iterator.initializer)
        tensors = model.sample_id, model.lengths, model.alignments
        ids, lengths, alignments = sess.run(tensors)
    assert alignments.shape[:2] == (ids.shape[1], len(ids))
    for sentence, length in list(zip(ids, lengths))[:5]:
        print("nmt: %s" % " ".join(words[i] for i in sentence[:length] if words[i] != EOS))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hparams", default="", help="Comma-separated list of name=value pairs.")
    hparams = create_hparams(parser.parse_args().hparams)
    print(", ".join("%s=%s" % pair for pair in sorted(six.iteritems(hparams.values()))))
    folder = tempfile.mkdtemp()
    write_corpus(folder, hparams)
    with tf.Graph().as_default():
        train(hparams, folder)
    with tf.Graph().as_default():
        infer(hparams, folder)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
