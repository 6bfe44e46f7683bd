"""Trains a small Transformer on pairs of sentences, in the style of BERT's run_classifier."""

from __future__ import absolute_import, division, print_function

import collections
import math
import os
import random
import shutil
import tempfile

import six
import tensorflow as tf

flags = tf.flags
FLAGS = flags.FLAGS
flags.DEFINE_integer("train_batch_size", 16, "Total batch size for training.")
flags.DEFINE_float("learning_rate", 4e-3, "The learning rate after the warm-up.")
flags.DEFINE_float("num_train_epochs", 8.0, "Number of training epochs.")
flags.DEFINE_bool("use_tpu", False, "Whether to use a TPU.")

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"] + "red blue green cat dog bird".split()
HIDDEN_SIZE, NUM_LAYERS, SEQ_LENGTH = 16, 2, 10


def get_examples(count, seed):
    """Makes pairs of sentences; the label says whether the second has the word red."""
    rng = random.Random(seed)
    for _ in range(count):
        first = [rng.choice(WORDS[4:7]), rng.choice(WORDS[7:]), "sleeps"]
        second = [rng.choice(["red", "blue"]), rng.choice(WORDS[7:])]
        yield first, second, int(second[0] == "red")


def convert_examples_to_features(examples, output_file):
    vocab = collections.OrderedDict((word, i) for i, word in enumerate(WORDS))
    writer = tf.python_io.TFRecordWriter(output_file)
    for text_a, text_b, label in examples:
        tokens = ["[CLS]"] + text_a + ["[SEP]"] + text_b + ["[SEP]"]
        ids = [vocab.get(token, vocab["[UNK]"]) for token in tokens]
        values = collections.OrderedDict(label_ids=[label])
        values["input_ids"] = ids
        values["input_mask"] = [1] * len(ids)
        values["segment_ids"] = [0] * (len(text_a) + 2) + [1] * (len(text_b) + 1)
        for name in list(values)[1:]:
            values[name] = (values[name] + [0] * SEQ_LENGTH)[:SEQ_LENGTH]
        feature = {
            name: tf.train.Feature(int64_list=tf.train.Int64List(value=value))
            for name, value in six.iteritems(values)
        }
        example = tf.train.Example(features=tf.train.Features(feature=feature))
        writer.write(example.SerializeToString())
    writer.close()


def file_based_input_fn_builder(input_file, is_training):
    shapes = {"label_ids": [], "input_ids": [SEQ_LENGTH], "input_mask": [SEQ_LENGTH]}
    shapes["segment_ids"] = [SEQ_LENGTH]
    name_to_features = {name: tf.FixedLenFeature(shapes[name], tf.int64) for name in shapes}

    def _decode_record(record):
        example = tf.parse_single_example(record, name_to_features)
        return {name: tf.to_int32(value) for name, value in six.iteritems(example)}

    def input_fn(params):
        d = tf.data.TFRecordDataset(input_file)
        if is_training:
            d = d.repeat().shuffle(buffer_size=100, seed=12345)
        batches = tf.contrib.data.map_and_batch(
            _decode_record, batch_size=params["batch_size"], drop_remainder=True
        )
        return d.apply(batches)

    return input_fn


def dense(tensor, units, name, seed, activation=None):
    initializer = tf.truncated_normal_initializer(stddev=0.2, seed=seed)
    return tf.layers.dense(tensor, units, activation, kernel_initializer=initializer, name=name)


def gelu(x):
    return x * 0.5 * (1.0 + tf.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * tf.pow(x, 3))))


def layer_norm(tensor, name="LayerNorm"):
    with tf.variable_scope(name):
        beta = tf.get_variable("beta", tensor.shape[-1:], initializer=tf.zeros_initializer())
        gamma = tf.get_variable("gamma", tensor.shape[-1:], initializer=tf.ones_initializer())
        mean, variance = tf.nn.moments(tensor, axes=[-1], keep_dims=True)
        return tf.nn.batch_normalization(tensor, mean, variance, beta, gamma, 1e-12)


def self_attention(tensor, input_mask, seed):
    names = enumerate(["query", "key", "value"], seed)
    query, key, value = (dense(tensor, HIDDEN_SIZE, name, number) for number, name in names)
    scores = tf.matmul(query, key, transpose_b=True) / math.sqrt(HIDDEN_SIZE)
    adder = (1.0 - tf.cast(input_mask[:, tf.newaxis, :], tf.float32)) * -10000.0
    return tf.matmul(tf.nn.softmax(scores + adder), value)


def create_model(is_training, features):
    keep_prob = 0.9 if is_training else 1.0
    with tf.variable_scope("bert"):
        output = 0.0
        shapes = {"input": len(WORDS), "segment": 2, "position": SEQ_LENGTH}
        features["position_ids"] = tf.range(SEQ_LENGTH)
        for name, rows in sorted(shapes.items()):
            initializer = tf.truncated_normal_initializer(stddev=0.2, seed=rows)
            table = tf.get_variable(name, [rows, HIDDEN_SIZE], initializer=initializer)
            output += tf.nn.embedding_lookup(table, features[name + "_ids"])
        output = tf.nn.dropout(layer_norm(output), keep_prob, seed=1)
        for layer in range(NUM_LAYERS):
            seed = 100 * (layer + 1)
            with tf.variable_scope("layer_%d" % layer):
                attended = self_attention(output, features["input_mask"], seed)
                attended = dense(attended, HIDDEN_SIZE, "attention_output", seed + 3)
                attended = tf.nn.dropout(attended, keep_prob, seed=seed)
                output = layer_norm(output + attended, "LayerNorm_1")
                wide = dense(output, 4 * HIDDEN_SIZE, "intermediate", seed + 4, gelu)
                output = layer_norm(output + dense(wide, HIDDEN_SIZE, "output", seed + 5))
        pooled = dense(output[:, 0], HIDDEN_SIZE, "pooler", 7, tf.tanh)
    logits = dense(tf.nn.dropout(pooled, keep_prob, seed=2), 2, "classifier", 8)
    one_hot_labels = tf.one_hot(features["label_ids"], depth=2, dtype=tf.float32)
    losses = -tf.reduce_sum(one_hot_labels * tf.nn.log_softmax(logits, axis=-1), axis=-1)
    return tf.reduce_mean(losses), losses, logits


class AdamWeightDecayOptimizer(tf.train.Optimizer):
    """Adam without bias correction; the weight decay does not enter the moments."""

    def __init__(self, learning_rate):
        super(AdamWeightDecayOptimizer, self).__init__(False, "AdamWeightDecayOptimizer")
        self.learning_rate = learning_rate

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        assignments = []
        for grad, param in grads_and_vars:
            prefix, zeros = param.op.name + "/adam_", tf.zeros_initializer()
            m = tf.get_variable(prefix + "m", param.shape, initializer=zeros, trainable=False)
            v = tf.get_variable(prefix + "v", param.shape, initializer=zeros, trainable=False)
            next_m = tf.multiply(0.9, m) + tf.multiply(0.1, grad)
            next_v = tf.multiply(0.999, v) + tf.multiply(0.001, tf.square(grad))
            update = next_m / (tf.sqrt(next_v) + 1e-6)
            if not any(word in param.op.name for word in ("LayerNorm", "bias")):
                update += 0.01 * param
            next_param = param - self.learning_rate * update
            assignments += [param.assign(next_param), m.assign(next_m), v.assign(next_v)]
        return tf.group(*assignments, name=name)


def create_optimizer(loss, init_lr, num_train_steps, num_warmup_steps):
    global_step = tf.train.get_or_create_global_step()
    rate = tf.train.polynomial_decay(init_lr, global_step, num_train_steps, 0.0)
    warmup_share = tf.cast(global_step, tf.float32) / num_warmup_steps
    rate = tf.cond(warmup_share < 1.0, lambda: init_lr * warmup_share, lambda: rate)
    optimizer = AdamWeightDecayOptimizer(rate)
    if FLAGS.use_tpu:
        optimizer = tf.contrib.tpu.CrossShardOptimizer(optimizer)
    tvars = tf.trainable_variables()
    grads, _ = tf.clip_by_global_norm(tf.gradients(loss, tvars), clip_norm=1.0)
    with tf.control_dependencies([optimizer.apply_gradients(zip(grads, tvars))]):
        return tf.group(tf.assign_add(global_step, 1))


class LossPrinter(tf.train.SessionRunHook):
    def __init__(self, loss):
        self.loss = loss

    def before_run(self, run_context):
        return tf.train.SessionRunArgs(self.loss)

    def after_run(self, run_context, run_values):
        print("loss = %.9g" % run_values.results)


def model_fn_builder(num_train_steps, num_warmup_steps):
    def metric_fn(losses, label_ids, logits):
        predictions = tf.argmax(logits, axis=-1, output_type=tf.int32)
        accuracy = tf.metrics.accuracy(label_ids, predictions)
        return {"eval_accuracy": accuracy, "eval_loss": tf.metrics.mean(losses)}

    def model_fn(features, labels, mode, params):
        is_training = mode == tf.estimator.ModeKeys.TRAIN
        loss, losses, logits = create_model(is_training, features)
        if not is_training:
            eval_metrics = (metric_fn, [losses, features["label_ids"], logits])
            return tf.contrib.tpu.TPUEstimatorSpec(mode, loss=loss, eval_metrics=eval_metrics)
        train_op = create_optimizer(loss, FLAGS.learning_rate, num_train_steps, num_warmup_steps)
        hooks = [LossPrinter(loss)]
        return tf.contrib.tpu.TPUEstimatorSpec(mode, None, loss, train_op, training_hooks=hooks)

    return model_fn


def main(_):
    output_dir = tempfile.mkdtemp()
    input_fns = {}
    for name, count in (("train", 64), ("eval", 32)):
        path = os.path.join(output_dir, name + ".tf_record")
        convert_examples_to_features(get_examples(count, seed=count), path)
        input_fns[name] = file_based_input_fn_builder(path, name == "train")
    num_train_steps = int(64 / FLAGS.train_batch_size * FLAGS.num_train_epochs)
    is_per_host = tf.contrib.tpu.InputPipelineConfig.PER_HOST_V2
    tpu_config = tf.contrib.tpu.TPUConfig(10, 8, per_host_input_for_training=is_per_host)
    estimator = tf.contrib.tpu.TPUEstimator(
        use_tpu=FLAGS.use_tpu,
        model_fn=model_fn_builder(num_train_steps, num_warmup_steps=num_train_steps // 10),
        config=tf.contrib.tpu.RunConfig(model_dir=output_dir, tpu_config=tpu_config),
        train_batch_size=FLAGS.train_batch_size,
        eval_batch_size=8,
    )
    estimator.train(input_fn=input_fns["train"], max_steps=num_train_steps)
    result = estimator.evaluate(input_fn=input_fns["eval"], steps=4)
    for key in ("eval_accuracy", "eval_loss", "global_step"):
        print("%s = %.9g" % (key, result[key]))
    shutil.rmtree(output_dir)


if __name__ == "__main__":
    tf.logging.set_verbosity(tf.logging.WARN)
    tf.app.run()
