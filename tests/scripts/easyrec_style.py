"""Trains a table in the style of EasyRec: names in a configuration choose the optimizer and table.

The script was written for any TensorFlow from 1.12 on, including DeepRec and PAI's TensorFlow. So
some branches and functions use names that only one of these versions has.
"""

import json
import os
import sys

import numpy as np
import tensorflow as tf

if tf.__version__ >= "2.0":
    tf = tf.compat.v1
try:
    from tensorflow.python.framework.load_library import load_op_library_of_pai  # noqa: TID251
except ImportError:
    load_op_library_of_pai = None

CONFIG = {"optimizer": "adam_asyncw_optimizer", "learning_rate": 0.1, "embedding": "variable"}


def build_optimizer(config, step):
    """Returns the optimizer that a configuration names."""
    kind, rate = config["optimizer"], config["learning_rate"]
    builders = {
        "adagrad_decay_optimizer": lambda: tf.train.AdagradDecayOptimizer(rate, step),
        "adam_async_optimizer": lambda: tf.train.AdamAsyncOptimizer(rate),
        "adam_asyncw_optimizer": lambda: tf.train.AdamWOptimizer(0.01, rate),
        "weighted_momentum_optimizer": lambda: tf.train.WeightedMomentumOptimizer(rate),
    }
    if kind == "ggt_optimizer":
        return tf.train.GGTOptimizer(rate)
    return builders[kind]()


def get_table(config, make=None):
    if config["embedding"] == "ev":
        steps = tf.GlobalStepEvict(steps_to_live=4000)
        return tf.get_embedding_variable("table", 2, steps_to_live=steps)
    if config["embedding"] == "hash":
        return tf.feature_column.shared_embedding_columns_v9([], 2)
    return (make or tf.get_variable)("table", [5, 2], initializer=tf.ones_initializer())


class Exporter:
    """Exports a model for serving on PAI."""

    def export(self, path):
        options = [tf.saved_model.OptionsOfPAI(name) for name in ("oss", "redis")]
        return tf.saved_model.export_to_pai(path, options)


def train(config, steps=20):
    """Trains the table; returns the first and the last loss."""
    with tf.Graph().as_default():
        table = get_table(config)
        loss = tf.reduce_sum(tf.square(tf.gather(table, [0, 3, 3])))
        step = tf.train.get_or_create_global_step()
        train_op = build_optimizer(config, step).minimize(loss, global_step=step)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            losses = [session.run([loss, train_op])[0] for _ in range(steps)]
    return losses[0], losses[-1]


def main(words):
    config = dict(CONFIG, **json.loads(words[1] if len(words) > 1 else "{}"))
    if "TF_CONFIG_OF_PAI" in os.environ:
        tf.config.set_logical_devices_of_pai(json.loads(os.environ["TF_CONFIG_OF_PAI"]))
    first, last = train(config)
    print(f"loss {first:.3f} at first, {last:.3f} at last, {np.float32(last) < first}")
    if config.get("export"):
        Exporter().export(config["export"])


if __name__ == "__main__":
    main(sys.argv)
