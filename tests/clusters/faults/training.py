"""A training that resumes from its checkpoints and sends digests (hashes) of its state."""

import hashlib
import os

import numpy as np
import tensorflow as tf

import legacy_opt
from tests.clusters.faults import groups
from tests.clusters.faults.model import Model

v1 = tf.compat.v1
BATCH, FIELDS, ROWS, WIDTH = 16, 4, 5000, 8
EVERY = 20  # batches between checkpoints; not a multiple of ACCUMULATED
ACCUMULATED = 3
CONFIG = {"intra_op_parallelism_threads": 1}  # several threads might sum in varying orders


def _adagrad_decay(step, period=7):
    return legacy_opt.AdagradDecayOptimizer(0.1, step, accumulator_decay_step=period)


OPTIMIZERS = {
    "AdagradDecay": _adagrad_decay,
    "LazyAdam": lambda step: legacy_opt.LazyAdamOptimizer(0.004),
    "accumulated AdagradDecay": lambda step: legacy_opt.GradientAccumulationOptimizer(
        _adagrad_decay(step, period=3), ACCUMULATED
    ),
}
NAMES = tuple(OPTIMIZERS)


def build(name):
    """Builds a model with sparse and dense gradients, and the optimizer with this name.

    The name may also be that of a group of optimizers (groups.py), which has a model of its own.
    The random initial values are seeded, so that every process without a checkpoint starts with the
    same values.
    """
    if name in groups.GROUPS:
        return groups.build(name)
    step = v1.train.get_or_create_global_step()
    ids = v1.placeholder(tf.int32, [None, FIELDS])
    labels = v1.placeholder(tf.float32, [None])
    table = _variable("table", [ROWS, WIDTH], 1)
    hidden = _variable("hidden", [FIELDS * WIDTH, WIDTH], 2)
    output = _variable("output", [WIDTH, 1], 3)
    embedded = tf.reshape(tf.nn.embedding_lookup(table, ids), [-1, FIELDS * WIDTH])
    logits = tf.matmul(tf.tanh(tf.matmul(embedded, hidden)), output)[:, 0]
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))
    train_op = OPTIMIZERS[name](step).minimize(loss, global_step=step)
    counts = [v for v in v1.global_variables() if v.op.name.endswith("Accumulation/count")]

    def feed(batch):
        return dict(zip((ids, labels), rows_of(batch)))

    return Model(feed, train_op, [step] + counts, EVERY)


def _variable(name, shape, seed):
    return v1.get_variable(name, shape, initializer=v1.random_normal_initializer(seed=seed))


def batch_of(position):
    """Returns the number of trained batches, from the values of `Model.position`.

    The values are the global step and, with GradientAccumulationOptimizer, the number of batches
    accumulated since the last update.
    """
    step, *accumulated = map(int, position)
    return step * ACCUMULATED + accumulated[0] if accumulated else step


def rows_of(batch):
    """Returns ids and labels of the batch with this number; some ids are repeated."""
    random = np.random.RandomState(batch)
    ids = random.randint(0, ROWS, [BATCH, FIELDS])
    ids[:, 0] %= 10
    return ids.astype(np.int32), (ids[:, 0] < 5).astype(np.float32)


class Training:
    """Trains with one optimizer, and resumes after the last batch of the last checkpoint.

    Args:
        name: one of `NAMES` or `groups.GROUPS`.
        directory: the directory of the checkpoints.
        forget: a text; variables with this text in their names are not saved. This is a deliberate
            mistake, which the tests must detect.
    """

    def __init__(self, name, directory, forget=None):
        self.directory, self.grouped = directory, name in groups.GROUPS
        self.graph = tf.Graph()
        with self.graph.as_default():
            self.model = build(name)
            self.variables = {each.op.name: each for each in v1.global_variables()}
            kept = [v for each, v in self.variables.items() if not (forget and forget in each)]
            self.saver = v1.train.Saver(kept, max_to_keep=3, save_relative_paths=True)
            self.initializer = v1.global_variables_initializer()

    def live(self, send, stop=None, directory=None):
        """Restores the last checkpoint, if any, and trains until batch `stop` (None: endlessly).

        The checkpoints are in the folder `directory`, by default that of the constructor.
        Sends the messages "begins", "saved" (after each checkpoint) and "ends". Each message has
        the batch number and the digests of all variables.
        """
        self.directory = directory or self.directory
        config = v1.ConfigProto(**CONFIG)
        # Rewriting a group's graphs takes seconds in each process.
        config.graph_options.rewrite_options.disable_meta_optimizer = self.grouped
        with v1.Session(graph=self.graph, config=config) as session:
            self._restore(session)

            def batch():
                return batch_of(session.run(self.model.position))

            def send_state(event):
                send(event, batch=batch(), digests=digests_of(session.run(self.variables)))

            send_state("begins")
            while batch() != stop:
                session.run(self.model.train_op, self.model.feed(batch()))
                if batch() % self.model.every == 0:
                    self._save(session, batch())
                    send_state("saved")
            send_state("ends")

    def _restore(self, session):
        session.run(self.initializer)
        state = v1.train.get_checkpoint_state(self.directory)
        if state is not None:
            self.saver.restore(session, state.model_checkpoint_path)
            self.saver.recover_last_checkpoints(state.all_model_checkpoint_paths)

    def _save(self, session, batch):
        # Checkpoints are numbered by batches, because the global step does not change during
        # accumulation, and rewriting files of the same name would not be atomic.
        path = os.path.join(self.directory, "model.ckpt")
        self.saver.save(session, path, global_step=batch, write_meta_graph=False)


def digests_of(arrays):
    """Returns a digest of each array's dtype, shape and bytes, by name."""
    return {
        name: hashlib.sha256(
            (f"{array.dtype} {array.shape} ").encode() + array.tobytes()
        ).hexdigest()[:16]
        for name, array in arrays.items()
    }
