"""Trains the flights models in a Session, with progressive validation and checkpoints.

Progressive validation means that each batch is predicted before the model trains on it.
"""

import contextlib
import dataclasses
import glob
import json
import os
import sys
import time

import numpy as np
import tensorflow.compat.v1 as tf
from tqdm import tqdm

from flights.model import build_optimizer, build_tower

CHECKPOINT = "model.ckpt"
PREDICTIONS = "predictions.npz"


@contextlib.contextmanager
def replacing(path):
    """Yields a temporary path, and renames the file to `path` if no exception was raised.

    The temporary name contains the process id. The name has the extension of `path`, because
    writers of images and arrays choose the format by the extension.
    """
    directory, name = os.path.split(path)
    temporary = os.path.join(directory, f".writing-{os.getpid()}-{name}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(temporary)


def write_json(path, value):
    """Writes a JSON file, replacing an existing file at once."""
    with replacing(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=2)


def first_difference(one, other):
    """Returns in words the first difference of two dicts of arrays, or None if all are equal."""
    if set(one) != set(other):
        return f"{', '.join(sorted(set(one) ^ set(other)))}, which only one of the two has"
    for name, value in one.items():
        if np.shape(value) != np.shape(other[name]):
            return f"{name}, with the shapes {np.shape(value)} and {np.shape(other[name])}"
        if not np.array_equal(value, other[name]):
            count = np.sum(np.not_equal(value, other[name]))
            gap = np.max(np.abs(np.float64(value) - other[name]))
            return f"{name}, in {count} of {np.size(value)} numbers, by up to {gap:.3g}"
    return None


def progress_pace():
    """Returns the arguments of tqdm that update the bar once a minute if stderr is no terminal."""
    return {} if sys.stderr.isatty() else {"mininterval": 60, "maxinterval": 60}


class Trainer:
    """A TF1 graph with one tower per `Settings`, all trained on the same batches.

    A tower is a model with its own variables, optimizer and global step. The towers share only the
    placeholders, so the results of a tower do not depend on the other towers.

    Args:
      flights: `Flights`, the training data.
      settings: dict from name to `Settings`; the name is the tower's variable scope.
      batch_size: flights per step.
      make_optimizer: a function from a `Settings` and a global step to the optimizer.

    Attributes:
      step_seconds: list of the seconds of each training step so far.
    """

    def __init__(self, flights, settings, batch_size, make_optimizer=build_optimizer):
        self.step_seconds = []
        self.flights = flights
        self.settings = settings
        self.batch_size = batch_size
        self.graph = tf.Graph()
        with self.graph.as_default():
            self.ids = tf.placeholder(tf.int32, [None, flights.ids.shape[1]], "ids")
            self.dense = tf.placeholder(tf.float32, [None, flights.dense.shape[1]], "dense")
            self.late = tf.placeholder(tf.float32, [None], "late")
            inputs = self.ids, self.dense, self.late, flights.vocabulary_size
            self.towers = [
                build_tower(*inputs, each, name, make_optimizer) for name, each in settings.items()
            ]
            self.predictions = tf.stack([tower.prediction for tower in self.towers])
            self.train_op = tf.group(*[tower.train_op for tower in self.towers])
            self.global_step = self.towers[0].global_step  # all global steps are equal
            self.initializer = tf.global_variables_initializer()
            self.saver = tf.train.Saver(max_to_keep=3, save_relative_paths=True)
        self.graph.finalize()

    @property
    def steps(self):
        """The number of steps in one pass over the flights."""
        return -(-self.flights.size // self.batch_size)

    def session(self):
        """Returns a Session with one intra-op thread, so that repeated runs give equal bits.

        Several intra-op threads may split a sum differently from run to run, and float addition is
        not associative. Inter-op threads affect only the order in which the towers run.
        """
        config = tf.ConfigProto(intra_op_parallelism_threads=1)
        return tf.Session(graph=self.graph, config=config)

    def train(self, session, predictions, start, stop, after_step=None, label="flights"):
        """Runs the steps in `range(start, stop)`, and writes the predictions into `predictions`.

        Args:
          session: a Session of this graph.
          predictions: float32 array [towers, flights].
          start: the first step.
          stop: the step to stop before.
          after_step: called after each step with the number of steps done so far.
          label: the title of the progress bar.
        """
        pace = progress_pace()
        for step in tqdm(range(start, stop), label, stop, unit="batch", initial=start, **pace):
            batch = slice(step * self.batch_size, (step + 1) * self.batch_size)
            feed = {
                self.ids: self.flights.ids[batch],
                self.dense: self.flights.dense[batch],
                self.late: self.flights.late[batch],
            }
            # Two calls, so that the prediction is computed before the update of its batch.
            predictions[:, batch] = session.run(self.predictions, feed)
            begin = time.perf_counter()
            self.train_op.run(session=session, feed_dict=feed)
            self.step_seconds.append(time.perf_counter() - begin)
            if after_step:
                after_step(step + 1)

    def new_predictions(self):
        """Returns an array for the predictions of all towers and flights, filled with nan."""
        return np.full([len(self.settings), self.flights.size], np.nan, np.float32)

    def train_once(self, label="flights"):
        """Trains once on all flights, without checkpoints; returns the predictions."""
        predictions = self.new_predictions()
        with self.session() as session:
            session.run(self.initializer)
            self.train(session, predictions, 0, self.steps, label=label)
        return predictions

    def named_variables(self):
        """Returns a dict of the variables, slots and global step of the only tower.

        A variable's name has no scope; a slot has the name "<variable>/<slot>".
        """
        (tower,) = self.towers
        found = {"global_step": tower.global_step}
        for variable in tower.variables:
            name = variable.op.name.split("/")[-1]
            found[name] = variable
            for slot in tower.optimizer.get_slot_names():
                found[f"{name}/{slot}"] = tower.optimizer.get_slot(variable, slot)
        return found

    def state_bytes(self):
        """Returns the bytes of all variables except trained variables and global steps."""
        with self.graph.as_default():
            every = {each.op.name: each for each in tf.global_variables()}
        for tower in self.towers:
            for each in [tower.global_step, *tower.variables]:
                del every[each.op.name]
        sizes = [each.shape.num_elements() * each.dtype.base_dtype.size for each in every.values()]
        return sum(sizes)

    def variables(self, session):
        """Returns a dict of arrays: all variables, including slots and global steps."""
        with self.graph.as_default():
            return session.run({each.op.name: each for each in tf.global_variables()})


def with_ref_variables(*arguments):
    """Returns a `Trainer` whose graph has ref variables, the default of TensorFlow 1."""
    before = tf.resource_variables_enabled()
    tf.disable_resource_variables()
    try:
        return Trainer(*arguments)
    finally:
        if before:
            tf.enable_resource_variables()


class CheckpointedRun:
    """Runs a `Trainer`, and saves its variables and predictions in checkpoints.

    Args:
      trainer: the `Trainer`.
      directory: the directory of checkpoints and predictions.
      every: steps between checkpoints.
    """

    def __init__(self, trainer, directory, every):
        self.trainer = trainer
        self.directory = directory
        self.every = every
        self.description = {"batch_size": trainer.batch_size}
        for name, settings in trainer.settings.items():
            for key, value in dataclasses.asdict(settings).items():
                self.description[f"{name} {key}"] = value
        os.makedirs(directory, exist_ok=True)

    def run(self, stop, resume=False, save_at_end=True):
        """Trains up to step `stop`.

        Args:
          stop: step to stop before.
          resume: whether to continue from the latest checkpoint, if there is one. Otherwise the
            run starts over and replaces the checkpoints in the directory.
          save_at_end: whether to save after the last step; False simulates a killed process.

        Returns:
          The predictions [towers, flights so far], and all variables as a dict of arrays.
        """
        with self.trainer.session() as session:
            start, predictions = self._restore(session) if resume else self._start(session)

            def save_when_due(steps):
                if steps % self.every == 0 or (steps == stop and save_at_end):
                    self._save(session, predictions, steps)

            self.trainer.train(session, predictions, start, stop, save_when_due)
            done = max(start, stop) * self.trainer.batch_size
            return predictions[:, :done], self.trainer.variables(session)

    def _start(self, session):
        # If this run is interrupted, it must not be resumed from a checkpoint of an older run.
        for pattern in ("checkpoint", CHECKPOINT + "-*"):
            for path in glob.glob(os.path.join(glob.escape(self.directory), pattern)):
                os.remove(path)
        session.run(self.trainer.initializer)
        return 0, self.trainer.new_predictions()

    def _restore(self, session):
        state = tf.train.get_checkpoint_state(self.directory)
        if state is None:
            print(f"No checkpoint in {self.directory}: starting with the first flight.")
            return self._start(session)
        with np.load(os.path.join(self.directory, PREDICTIONS)) as saved:
            self._check_description(json.loads(str(saved["description"])))
            predictions = saved["predictions"]
        self.trainer.saver.restore(session, state.model_checkpoint_path)
        # Without this call, max_to_keep would not count the checkpoints of earlier processes.
        self.trainer.saver.recover_last_checkpoints(state.all_model_checkpoint_paths)
        # The checkpoint determines the step. The file of predictions may be newer, because it is
        # written before each checkpoint: it contains at least the predictions up to this step.
        start = int(session.run(self.trainer.global_step))
        print(f"Resuming from {state.model_checkpoint_path}, step {start}.")
        return start, predictions

    def _check_description(self, saved):
        different = [
            f"{key} was {saved.get(key)!r} and is {self.description.get(key)!r}"
            for key in sorted(set(saved) | set(self.description))
            if saved.get(key) != self.description.get(key)
        ]
        if different:
            raise ValueError(
                f"--resume: the checkpoint in {self.directory} is from a run with other "
                f"arguments ({'; '.join(different)}); use the same ones, or another --out, or "
                "omit --resume to start over"
            )

    def _save(self, session, predictions, steps):
        with replacing(os.path.join(self.directory, PREDICTIONS)) as temporary:
            np.savez(temporary, predictions=predictions, description=json.dumps(self.description))
        path = os.path.join(self.directory, CHECKPOINT)
        self.trainer.saver.save(session, path, global_step=steps, write_meta_graph=False)
