"""Trains a wide & deep model on made-up clicks, in the style of scripts for DeepRec.

The script was written for TensorFlow 1.15 with DeepRec's optimizers. `python -m legacy_opt run`
runs the script unchanged on TensorFlow without DeepRec.
"""

import os
import tempfile

import numpy as np
import tensorflow as tf

flags = tf.app.flags
FLAGS = flags.FLAGS
flags.DEFINE_enum(
    "optimizer",
    "adagraddecay",
    ["adagraddecay", "adagraddecayv2", "adamasync", "adamw", "adagrad"],
    "optimizer of the deep part",
)
flags.DEFINE_float("deep_learning_rate", 0.05, "learning rate of the deep part")
flags.DEFINE_float("linear_learning_rate", 0.1, "learning rate of Ftrl, for the wide part")
flags.DEFINE_integer("steps", 150, "last global step, also after a restart from a checkpoint")
flags.DEFINE_integer("batch_size", 128, "number of examples in a batch")
flags.DEFINE_string("checkpoint", None, "folder of the checkpoints (default: a new folder)")

BUCKETS = {"user": 500, "item": 200, "hour": 24}
EXAMPLES = 4096


def made_up_clicks():
    """Returns made-up features (user, item, hour, price) and labels (clicked or not) as arrays."""
    random = np.random.RandomState(7)
    users, items, hours = (random.randint(0, size, EXAMPLES) for size in BUCKETS.values())
    tastes = random.randn(BUCKETS["user"], 3)
    kinds = random.randn(BUCKETS["item"], 3)
    price = random.rand(EXAMPLES).astype(np.float32)
    score = (tastes[users] * kinds[items]).sum(1) + np.sin(hours / 4.0) - 2.0 * price
    features = {"user": users, "item": items, "hour": hours, "price": price}
    return features, (score > 0).astype(np.float32)


def input_fn():
    """Returns the tensors of one batch: (features, labels)."""
    dataset = tf.data.Dataset.from_tensor_slices(made_up_clicks())
    dataset = dataset.shuffle(EXAMPLES, seed=1).repeat().batch(FLAGS.batch_size)
    return tf.data.make_one_shot_iterator(dataset).get_next()


def build_model(features):
    """Returns the logits; the variables are in the scopes `linear` and `dnn`."""
    categorical = [
        tf.feature_column.categorical_column_with_identity(name, size)
        for name, size in sorted(BUCKETS.items())
    ]
    with tf.variable_scope("linear"):
        wide = tf.feature_column.linear_model(features, categorical)
    with tf.variable_scope("dnn", partitioner=tf.fixed_size_partitioner(2)):
        embeddings = [tf.feature_column.embedding_column(each, 8) for each in categorical]
        net = tf.feature_column.input_layer(
            features, embeddings + [tf.feature_column.numeric_column("price")]
        )
        for index, units in enumerate([32, 16]):
            net = tf.layers.dense(net, units, tf.nn.relu, name="hidden_%d" % index)
        deep = tf.layers.dense(net, 1, name="logits")
    return tf.squeeze(wide + deep, axis=1)


def deep_optimizer(global_step):
    rate = FLAGS.deep_learning_rate
    if FLAGS.optimizer == "adagraddecay":
        return tf.train.AdagradDecayOptimizer(
            rate, global_step, accumulator_decay_step=50, accumulator_decay_rate=0.9
        )
    if FLAGS.optimizer == "adagraddecayv2":
        return tf.train.AdagradDecayOptimizerV2(
            rate, global_step, accumulator_decay_step=50, accumulator_decay_rate=0.9
        )
    if FLAGS.optimizer == "adamasync":
        return tf.train.AdamAsyncOptimizer(rate / 5, beta1=0.9, beta2=0.999, epsilon=1e-8)
    if FLAGS.optimizer == "adamw":
        return tf.train.AdamWOptimizer(weight_decay=1e-4, learning_rate=rate / 5)
    return tf.train.AdagradOptimizer(rate)


def train_op(loss, global_step):
    """Returns an operation that trains both parts; the flags choose the deep part's optimizer."""
    wide = tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, "linear")
    deep = tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, "dnn")
    linear = tf.train.FtrlOptimizer(FLAGS.linear_learning_rate, l1_regularization_strength=0.001)
    return tf.group(
        linear.minimize(loss, var_list=wide),
        deep_optimizer(global_step).minimize(loss, var_list=deep, global_step=global_step),
    )


def main(_):
    tf.set_random_seed(2021)
    features, labels = input_fn()
    logits = build_model(features)
    loss = tf.losses.sigmoid_cross_entropy(labels, logits)
    global_step = tf.train.get_or_create_global_step()
    step = train_op(loss, global_step)
    hooks = [
        tf.train.StopAtStepHook(last_step=FLAGS.steps),
        tf.train.NanTensorHook(loss),
    ]
    losses = []
    folder = FLAGS.checkpoint or tempfile.mkdtemp()
    with tf.train.MonitoredTrainingSession(
        checkpoint_dir=folder, hooks=hooks, save_checkpoint_steps=50, log_step_count_steps=None
    ) as session:
        print("from step %d" % session.run(global_step))
        while not session.should_stop():
            losses.append(session.run([loss, step])[0])
    latest = os.path.basename(tf.train.latest_checkpoint(folder))
    print(f"loss {losses[0]:.4f} at first, {np.mean(losses[-10:]):.4f} at last; {latest}")


if __name__ == "__main__":
    tf.app.run()
