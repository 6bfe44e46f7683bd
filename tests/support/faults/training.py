"""A training that goes on from its checkpoints wherever it was killed, and tells what it has."""

import hashlib
import os
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

import legacy_opt

v1 = tf.compat.v1
BATCH, FIELDS, ROWS, WIDTH = 16, 4, 5000, 8
EVERY = 20  # batches between checkpoints; no multiple of ACCUMULATED
ACCUMULATED = 3
CONFIG = {"intra_op_parallelism_threads": 1}  # more could add up in another order


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


class Model(NamedTuple):
    """What there is to run in the graph of `build`.

    Attributes:
        ids: int32 placeholder [batch, fields].
        labels: float32 placeholder [batch].
        train_op: learns a batch.
        position: the variables that tell how many batches were learned, see `batch_of`.
    """

    ids: Any
    labels: Any
    train_op: Any
    position: list

    def feed(self, batch):
        """Returns what to feed for the batch of that number."""
        return dict(zip((self.ids, self.labels), rows_of(batch)))


def build(name):
    """Builds a model with sparse and dense gradients, and the optimizer of that name.

    All numbers that a process starts with are seeded: without a checkpoint each starts alike.
    """
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
    waiting = [v for v in v1.global_variables() if v.op.name.endswith("Accumulation/count")]
    return Model(ids, labels, train_op, [step] + waiting)


def _variable(name, shape, seed):
    return v1.get_variable(name, shape, initializer=v1.random_normal_initializer(seed=seed))


def batch_of(position):
    """Returns the number of batches that the values of `Model.position` tell.

    They are the step and, where gradients are accumulated, the number of those that wait.
    """
    step, *waiting = map(int, position)
    return step * ACCUMULATED + waiting[0] if waiting else step


def rows_of(batch):
    """Returns ids and labels of a batch, in a stream without an end; some ids are twice in it."""
    random = np.random.RandomState(batch)
    ids = random.randint(0, ROWS, [BATCH, FIELDS])
    ids[:, 0] %= 10
    return ids.astype(np.int32), (ids[:, 0] < 5).astype(np.float32)


class Training:
    """The model with one optimizer; its checkpoints say where in the stream it is.

    Args:
        name: one of `NAMES`.
        directory: where the checkpoints are.
        forget: variables whose names hold this text are left out of the checkpoints: a mistake,
            made in order to be found.
    """

    def __init__(self, name, directory, forget=None):
        self.directory = directory
        self.graph = tf.Graph()
        with self.graph.as_default():
            self.model = build(name)
            self.variables = {each.op.name: each for each in v1.global_variables()}
            kept = [v for each, v in self.variables.items() if not (forget and forget in each)]
            self.saver = v1.train.Saver(kept, max_to_keep=3, save_relative_paths=True)
            self.initializer = v1.global_variables_initializer()

    def live(self, send, stop=None):
        """Trains from the last checkpoint, or from the start, to batch `stop` or for ever.

        Sends "begins", "saved" after each checkpoint, and "ends", each with the batch and the
        digests of all variables.
        """
        with v1.Session(graph=self.graph, config=v1.ConfigProto(**CONFIG)) as session:
            self._restore(session)

            def batch():
                return batch_of(session.run(self.model.position))

            def tell(event):
                send(event, batch=batch(), digests=digests_of(session.run(self.variables)))

            tell("begins")
            while batch() != stop:
                session.run(self.model.train_op, self.model.feed(batch()))
                if batch() % EVERY == 0:
                    self._save(session, batch())
                    tell("saved")
            tell("ends")

    def _restore(self, session):
        session.run(self.initializer)
        state = v1.train.get_checkpoint_state(self.directory)
        if state is not None:
            self.saver.restore(session, state.model_checkpoint_path)
            self.saver.recover_last_checkpoints(state.all_model_checkpoint_paths)

    def _save(self, session, batch):
        # Named by batches: a file of the same name would not be replaced in one stroke, and while
        # gradients are accumulated the global step stands still.
        path = os.path.join(self.directory, "model.ckpt")
        self.saver.save(session, path, global_step=batch, write_meta_graph=False)


def digests_of(arrays):
    """Returns a digest of the type and all bits of each array, by name."""
    return {
        name: hashlib.sha256(
            (f"{array.dtype} {array.shape} ").encode() + array.tobytes()
        ).hexdigest()[:16]
        for name, array in arrays.items()
    }
