"""Trains a ranking model in the style of DeepRec's model zoo; switches turn on DeepRec features.

The script was written for DeepRec, a fork of TensorFlow 1.15. Without switches, `python -m
legacy_opt run` can run it on plain TensorFlow, because legacy_opt has all DeepRec classes it uses.
"""

import argparse

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2

USERS, ITEMS = 60, 40


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--optimizer", default="adagraddecay")
    for switch in ("ev", "ev_filter", "group_embedding", "multihash", "smartstaged", "work_queue"):
        parser.add_argument("--" + switch, action="store_true")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--micro_batch", type=int, default=0)
    return parser.parse_args()


def embedding_variable(name, rows, args):
    if args.ev:
        options = tf.EmbeddingVariableOption()
        if args.ev_filter:
            options = tf.EmbeddingVariableOption(filter_option=tf.CounterFilter(filter_freq=3))
        return tf.get_embedding_variable(name, embedding_dim=4, ev_option=options)
    if args.multihash:
        return tf.get_multihash_variable(name, [[4, 8], [16, 8]])
    return tf.get_variable(name, [rows, 4], initializer=tf.random_normal_initializer(0, 0.1))


def columns(args):
    for name, rows in (("user", USERS), ("item", ITEMS)):
        column = (
            tf.feature_column.categorical_column_with_embedding(name, dtype=tf.int64)
            if args.ev
            else tf.feature_column.categorical_column_with_identity(name, rows)
        )
        yield tf.feature_column.embedding_column(column, 4)


def features(args):
    random = np.random.RandomState(3)
    users, items = (random.randint(0, rows, 512) for rows in (USERS, ITEMS))
    clicks = ((users + items) % 2).astype(np.float32)
    dataset = tf.data.Dataset.from_tensor_slices((users, items, clicks)).repeat().batch(64)
    batch = tf.data.make_one_shot_iterator(dataset).get_next()
    return tf.staged(batch, num_threads=4) if args.smartstaged else batch


class Model:
    """Matrix factorization of users and items."""

    def __init__(self, batch, args, dtype=tf.float32):
        users, items, clicks = batch
        with tf.variable_scope("factors", partitioner=tf.fixed_size_partitioner(2)):
            tables = [
                embedding_variable(name, rows, args)
                for name, rows in (("user", USERS), ("item", ITEMS))
            ]
        pairs = zip(tables, (users, items))
        rows = [tf.nn.embedding_lookup(table, ids, "div") for table, ids in pairs]
        if args.group_embedding:
            rows = tf.nn.group_embedding_lookup(tables, [users, items])
        logits = tf.reduce_sum(rows[0] * rows[1], axis=1)
        self.loss = tf.losses.sigmoid_cross_entropy(clicks, tf.cast(logits, dtype))
        self.step = tf.train.get_or_create_global_step()
        self.train_op = self.optimizer(args).minimize(self.loss, global_step=self.step)

    def optimizer(self, args):
        if args.optimizer == "adamasync":
            return tf.train.AdamAsyncOptimizer(0.05)
        if args.optimizer == "adagraddecay":
            return tf.train.AdagradDecayOptimizer(0.5, self.step, accumulator_decay_step=10)
        raise ValueError("Optimizer parameter error.")


def main():
    args = arguments()
    if args.work_queue:
        from tensorflow.python.ops.work_queue import WorkQueue  # noqa: TID251

        WorkQueue(["part-0", "part-1"])
    batch = features(args)
    if args.bf16:
        with tf.variable_scope("bf16").keep_weights():
            model = Model(batch, args, tf.bfloat16)
    else:
        model = Model(batch, args)
    config = config_pb2.ConfigProto()
    if args.micro_batch:
        config.graph_options.optimizer_options.micro_batch_num = args.micro_batch
    hooks = [tf.train.StopAtStepHook(args.steps)]
    if args.smartstaged:
        hooks.append(tf.make_prefetch_hook())
        config.graph_options.optimizer_options.smart_stage_options = tf.SmartStageOptions()
    with tf.train.MonitoredTrainingSession(hooks=hooks, config=config) as session:
        while not session.should_stop():
            loss, step, _ = session.run([model.loss, model.step, model.train_op])
    print("trained %d steps, loss %.3f" % (args.steps, loss))


if __name__ == "__main__":
    tf.logging.set_verbosity(tf.logging.ERROR)
    main()
