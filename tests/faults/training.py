"""A training that goes on from its checkpoints wherever it was killed, and tells what it has."""

import hashlib
import os
import pathlib
import sys

import tensorflow as tf

import legacy_opt

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "examples_graph_mode"))

from flights_model import Settings, build_optimizer
from flights_training import CHECKPOINT, Trainer

v1 = tf.compat.v1
BATCH = 64
EVERY = 20  # batches between checkpoints; no multiple of ACCUMULATED
ACCUMULATED = 3
SETTINGS = {
    "AdagradDecay": Settings("AdagradDecay", 0.1, decay_step=7),
    "LazyAdam": Settings("LazyAdam", 0.004),
    "accumulated AdagradDecay": Settings("AdagradDecay", 0.1, decay_step=3),
}
NAMES = tuple(SETTINGS)
_PLACE = "tower"


def make_optimizer(name):
    """Returns what makes the optimizer of that name, for a `Trainer`."""

    def make(settings, step):
        optimizer = build_optimizer(settings, step)
        if "accumulated" in name:
            optimizer = legacy_opt.GradientAccumulationOptimizer(optimizer, ACCUMULATED)
        return optimizer

    return make


def position_of(global_step):
    """Returns the variables of the graph that tell how many batches were learned.

    They are the step and, where gradients are accumulated, the number of those that wait.
    """
    every = v1.global_variables()
    return [global_step] + [v for v in every if v.op.name.endswith("Accumulation/count")]


def batch_of(position):
    """Returns the number of batches that the values of these variables tell."""
    step, *waiting = map(int, position)
    return step * ACCUMULATED + waiting[0] if waiting else step


def rows_of(flights, batch):
    """Returns ids, dense features and labels of a batch, in a stream without an end."""
    first = batch * BATCH % (flights.size - BATCH)
    rows = slice(first, first + BATCH)
    return flights.ids[rows], flights.dense[rows], flights.late[rows]


class Training:
    """The flights model with one optimizer; its checkpoints say where in the flights it is.

    Args:
        flights: `Flights`.
        name: one of `NAMES`.
        directory: where the checkpoints are.
        forget: variables whose names hold this text are left out of the checkpoints: a mistake,
            made in order to be found.
    """

    def __init__(self, flights, name, directory, forget=None):
        self.flights, self.directory = flights, directory
        self.trainer = Trainer(flights, {_PLACE: SETTINGS[name]}, BATCH, make_optimizer(name))
        self.saver = self.trainer.saver
        with self.trainer.graph.as_default():
            every = v1.global_variables()
            if forget:
                kept = [each for each in every if forget not in each.op.name]
                self.trainer.graph._unsafe_unfinalize()
                self.saver = v1.train.Saver(kept, max_to_keep=3, save_relative_paths=True)
            self._position = position_of(self.trainer.global_step)

    def position(self, session):
        """The number of batches learned."""
        return batch_of(session.run(self._position))

    def live(self, send, stop=None):
        """Trains from the last checkpoint, or from the start, to batch `stop` or for ever.

        Sends "begins", "saved" after each checkpoint, and "ends", each with the batch and the
        digests of all variables.
        """
        with self.trainer.session() as session:
            self._restore(session)

            def tell(event):
                digests = digests_of(self.trainer.variables(session))
                send(event, batch=self.position(session), digests=digests)

            tell("begins")
            while True:
                batch = self.position(session)
                if batch == stop:
                    break
                self.trainer.train_op.run(self._feed(batch), session)
                done = self.position(session)
                if done % EVERY == 0:
                    self._save(session, done)
                    tell("saved")
            tell("ends")

    def _feed(self, batch):
        inputs = self.trainer.ids, self.trainer.dense, self.trainer.late
        return dict(zip(inputs, rows_of(self.flights, batch)))

    def _restore(self, session):
        session.run(self.trainer.initializer)
        state = v1.train.get_checkpoint_state(self.directory)
        if state is not None:
            self.saver.restore(session, state.model_checkpoint_path)
            self.saver.recover_last_checkpoints(state.all_model_checkpoint_paths)

    def _save(self, session, batch):
        # Named by batches: a file of the same name would not be replaced in one stroke, and while
        # gradients are accumulated the global step stands still.
        path = os.path.join(self.directory, CHECKPOINT)
        self.saver.save(session, path, global_step=batch, write_meta_graph=False)


def digests_of(arrays):
    """Returns a digest of the type and all bits of each array, by name."""
    return {
        name: hashlib.sha256(
            ("%s %s " % (array.dtype, array.shape)).encode() + array.tobytes()
        ).hexdigest()[:16]
        for name, array in arrays.items()
    }
