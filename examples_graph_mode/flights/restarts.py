"""Trains one worker, and continues after processes of its cluster are killed and restarted.

* The variable `batches_done`, on a parameter server, counts the batches of each worker. A training
  step adds 1 after its update, and checkpoints contain the variable. A worker reads its position in
  the data from this variable.
* If a server is killed, the next run of every session fails with one of the errors `LOST`, and the
  session cannot be used again. Each worker creates a new session, which waits for the server. The
  chief then restores the last checkpoint to all servers, including servers with newer values.
* Meanwhile the other workers wait until a marker variable is initialized on every server. No
  checkpoint contains the markers. On a server that was restarted, the marker is not initialized.
  The chief initializes it after all other variables have been restored.
* If a chief or worker is restarted and no server was killed, it continues with the variables that
  are on the servers.
"""

import os
import time

import numpy as np
import tensorflow.compat.v1 as tf

LOST = (tf.errors.AbortedError, tf.errors.UnavailableError)  # raised when a server was killed
POSITIONS = "batches_done"
PAUSE = 0.1  # seconds between two checks while a worker waits for other workers


def train_on_batch(session, graph, train, flights, predictions, batch, batch_size):
    """Predicts a batch, then trains on it.

    Args:
      session: a session of the graph.
      graph: a `WorkerGraph`.
      train: the tensor that trains.
      flights: `Flights`.
      predictions: float32 array [flights], in which the prediction is stored.
      batch: the number of the batch.
      batch_size: flights per batch.

    Returns:
      The value of `train`.
    """
    rows = slice(batch * batch_size, (batch + 1) * batch_size)
    feed = {getattr(graph, name): getattr(flights, name)[rows] for name in ("ids", "dense", "late")}
    # The gradient depends on the prediction, which is therefore computed before the update.
    prediction, value = session.run([graph.prediction, train], feed)
    if np.isnan(predictions[rows]).all():  # else the model was trained on these flights
        predictions[rows] = prediction
    return value


class RestartableTraining:
    """The training of one worker, built into the default graph.

    Args:
      graph: a `WorkerGraph`.
      flights: `Flights`.
      predictions: float32 array [flights], nan at flights without a prediction. The array should be
        mapped to a file, which outlives this process.
      index: the worker's number; worker 0 is the chief.
      shares: int array [workers], the number of batches that each worker has to train on.
      arguments: namespace with `batch_size`, the directory of the checkpoints as `out`, and
        `checkpoint_every`, the number of batches of all workers between two checkpoints.
    """

    def __init__(self, graph, flights, predictions, index, shares, arguments):
        self.graph, self.flights, self.predictions = graph, flights, predictions
        self.index, self.shares, self.arguments = index, shares, arguments
        with tf.device(graph.global_step.device):
            self.positions = tf.get_variable(
                POSITIONS, [len(shares)], tf.int64, tf.zeros_initializer(), trainable=False
            )
            with tf.control_dependencies([graph.train]):
                self.train = tf.scatter_add(self.positions, index, 1)
        variables = tf.global_variables()
        devices = sorted({each.device for each in variables})
        marks = [_mark(number, device) for number, device in enumerate(devices)]
        with tf.device(f"/job:worker/task:{index}"):
            self.initialize = tf.variables_initializer(variables)
            self.saver = tf.train.Saver(variables)
            self.complete = tf.variables_initializer(marks)
            self.is_complete = tf.reduce_all([tf.is_variable_initialized(mark) for mark in marks])

    def run(self, session):
        """Trains on this worker's share of the batches.

        The chief returns when all workers have done their shares. The other workers never return,
        because they may have to train again if the chief restores a checkpoint. They can be stopped
        when the chief has returned.

        Raises:
          AbortedError, UnavailableError: if a server was killed.
        """
        chief = self.index == 0
        if chief:
            self.prepare(session)
        while not session.run(self.is_complete):
            time.sleep(PAUSE)
        positions = session.run(self.positions)
        while True:
            finished = (positions >= self.shares).all()
            if chief:
                self.save_if_due(session, int(positions.sum()), finished)
                if finished:
                    return
            if positions[self.index] < self.shares[self.index]:
                # These positions stay valid until the next step: if the chief restored older
                # positions, a server was killed, and this session cannot be used any more.
                positions = self.step(session, int(positions[self.index]))
            else:
                time.sleep(PAUSE)
                positions = session.run(self.positions)

    def prepare(self, session):
        """Restores or initializes all variables if a server was started or restarted."""
        state = tf.train.get_checkpoint_state(self.arguments.out)
        path = state.model_checkpoint_path if state else None
        if not session.run(self.is_complete):
            self.restore(session, path)
            session.run(self.complete)
        self.saved = int(path.rpartition("-")[2]) if path else 0
        if path:  # so that the saver will delete the oldest checkpoints
            self.saver.recover_last_checkpoints(state.all_model_checkpoint_paths)

    def restore(self, session, path):
        """Restores all variables from a checkpoint, or initializes them if `path` is None."""
        if path:
            self.saver.restore(session, path)
        else:
            session.run(self.initialize)

    def step(self, session, position):
        """Trains on the batch at a position in this worker's share; returns the new positions."""
        batch = self.index + position * len(self.shares)
        inputs = self.flights, self.predictions, batch, self.arguments.batch_size
        return train_on_batch(session, self.graph, self.train, *inputs)

    def save_if_due(self, session, batches, finished):
        """Saves a checkpoint after enough batches, and at the end.

        A checkpoint that was completely saved is never saved again under its name. Otherwise a kill
        during the second save could leave the index file of one and the data file of the other.
        """
        due = batches if finished else self.saved + self.arguments.checkpoint_every
        if self.saved < due <= batches:
            path = os.path.join(self.arguments.out, "model.ckpt")
            self.saver.save(session, path, batches, write_meta_graph=False)
            self.saved = batches


def _mark(number, device):
    """Creates the marker variable of a server, which no checkpoint contains."""
    with tf.device(device):
        return tf.get_variable(
            f"complete_{number}",
            [],
            tf.int32,
            tf.zeros_initializer(),
            trainable=False,
            collections=[tf.GraphKeys.LOCAL_VARIABLES],
        )
