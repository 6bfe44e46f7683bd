"""A worker of `parameter_servers.py`: builds the graph with variables on the servers, and trains.

Run as a program, this file is one worker process.
"""

import argparse
import itertools
import json
import os
import sys
import time
from typing import Any, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

if not __package__:  # run as a program: the package flights is in the folder above
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

import legacy_opt
from flights.model import Settings, build_logits, build_loss, build_optimizer
from flights.processes import my_place, stop_with_parent
from flights.restarts import LOST, RestartableTraining


class LeastLoaded:
    """Places each variable on the parameter server that has the fewest bytes so far.

    An object of this class is a `ps_strategy` for `replica_device_setter`. It replaces
    `tf.contrib.training.GreedyLoadBalancingStrategy`. The default strategy of
    `replica_device_setter` uses the servers in turn, and may put two large tables on one server.
    """

    def __init__(self, servers):
        self.bytes = [0] * servers

    def __call__(self, variable_op):
        shape = tf.TensorShape(variable_op.get_attr("shape"))
        size = (shape.num_elements() or 1) * tf.as_dtype(variable_op.get_attr("dtype")).size
        task = self.bytes.index(min(self.bytes))
        self.bytes[task] += size
        return task


class WorkerGraph(NamedTuple):
    """The tensors and operations of one worker.

    Attributes:
      ids, dense, late: placeholders of a batch.
      prediction: the probabilities [batch] of "arrives late", computed before the update.
      train: runs one training step; its value is the global step after the update.
      finish: reports to the chief that this worker has finished.
      wait_for_all: waits until all workers have finished.
      global_step: the global step; all workers increment the same variable.
      hooks: hooks for the session.
    """

    ids: Any
    dense: Any
    late: Any
    prediction: Any
    train: Any
    finish: Any
    wait_for_all: Any
    global_step: Any
    hooks: list


def build_graph(cluster, index, sizes, settings, sync, make_optimizer=build_optimizer):
    """Builds the flights model for one worker in the default graph.

    Each worker builds its own graph. All workers share the variables, which are on the servers and
    have the same names in all graphs.

    Args:
      cluster: dict from "ps" and "worker" to addresses.
      index: the worker's number.
      sizes: dict with the numbers of "fields" and "features", and the number of rows of the tables
        as "vocabulary".
      settings: `Settings`.
      sync: whether workers wait for each other. If true, each update applies the mean of several
        gradients; the number of gradients is the number of workers.
      make_optimizer: a function from the settings and the global step to the optimizer.
    """
    workers = len(cluster["worker"])
    placing = tf.train.replica_device_setter(
        cluster=cluster,
        worker_device=f"/job:worker/task:{index}",
        ps_strategy=LeastLoaded(len(cluster["ps"])),
    )
    with tf.device(placing):
        ids = tf.placeholder(tf.int32, [None, sizes["fields"]], "ids")
        dense = tf.placeholder(tf.float32, [None, sizes["features"]], "dense")
        late = tf.placeholder(tf.float32, [None], "late")
        global_step = tf.train.get_or_create_global_step()
        logits = build_logits(ids, dense, sizes["vocabulary"], settings)
        optimizer = make_optimizer(settings, global_step)
        hooks = []
        if sync:
            optimizer = tf.train.SyncReplicasOptimizer(optimizer, workers, workers)
        step = optimizer.minimize(build_loss(logits, late), global_step=global_step)
        if sync:
            # With initial tokens a worker could run ahead, and its gradients would be stale.
            hooks.append(optimizer.make_session_run_hook(index == 0, num_tokens=0))
        with tf.control_dependencies([step]):
            reached = global_step.read_value()
    with tf.device("/job:ps/task:0"):
        done = tf.FIFOQueue(workers, tf.int32, [[]], shared_name="workers_that_are_done")
        finish, wait_for_all = done.enqueue(index), done.dequeue_many(workers)
    return WorkerGraph(
        ids=ids,
        dense=dense,
        late=late,
        prediction=tf.nn.sigmoid(logits),
        train=reached,
        finish=finish,
        wait_for_all=wait_for_all,
        global_step=global_step,
        hooks=hooks,
    )


def session_config(index):
    """Returns a ConfigProto with which a worker connects only to the parameter servers and itself.

    The worker then neither waits for the other workers nor fails when they end.
    """
    filters = ["/job:ps", f"/job:worker/task:{index}"]
    return tf.ConfigProto(device_filters=filters, intra_op_parallelism_threads=1)


def train(graph, session, flights, batches, batch_size, last_step=None):
    """Predicts each batch, then trains on it.

    Args:
      graph: a `WorkerGraph`.
      session: a session of its graph.
      flights: dict of the arrays ids, dense and late.
      batches: the indices of the batches to train on.
      batch_size: flights per batch.
      last_step: the global step to stop at; None stops after the last batch.

    Returns:
      The number of steps, and the predictions of all flights; nan for flights that are in none of
      the `batches`.
    """
    steps, predictions = 0, np.full(flights["late"].shape, np.nan, np.float32)
    for batch in batches:
        rows = slice(batch * batch_size, (batch + 1) * batch_size)
        feed = {getattr(graph, name): flights[name][rows] for name in ("ids", "dense", "late")}
        # The gradient depends on the prediction, which is therefore computed before the update.
        prediction, reached = session.run([graph.prediction, graph.train], feed)
        if np.isnan(predictions[rows]).all():  # this worker has not trained on the batch yet
            predictions[rows] = prediction
        steps += 1
        if last_step is not None and reached >= last_step:
            break
    return steps, predictions


def report_placement(path):
    """Writes the device of each variable and slot as JSON, by name."""
    devices = {each.op.name: each.device for each in tf.global_variables()}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(devices, file)


def be_worker(arguments, make_training=RestartableTraining):
    """Trains on this worker's share of the batches and writes the results.

    Args:
      arguments: the command line.
      make_training: the class that trains with --restart.
    """
    stop_with_parent()
    cluster, _, index = my_place()
    server = tf.train.Server(cluster, "worker", index, config=session_config(index))
    if arguments.native:
        legacy_opt.native.enable(require=True, target=server.target)
    with np.load(os.path.join(arguments.directory, "flights.npz")) as file:
        flights = dict(file)
    if arguments.restart:
        train_with_restarts(arguments, server.target, cluster, index, flights, make_training)
    else:
        train_once(arguments, server.target, cluster, index, flights)
    if index == 0:
        report_placement(os.path.join(arguments.directory, "devices.json"))
    sys.stdout.flush()
    os._exit(0)  # the server threads would keep the process alive


def build_graph_of(arguments, cluster, index, flights):
    """Returns the `WorkerGraph` for the command line's arguments."""
    sizes = {
        "fields": flights["ids"].shape[1],
        "features": flights["dense"].shape[1],
        "vocabulary": int(flights["vocabulary_size"]),
    }
    settings = Settings(**json.loads(arguments.settings))
    return build_graph(cluster, index, sizes, settings, arguments.sync)


def train_once(arguments, target, cluster, index, flights):
    """Trains in a MonitoredTrainingSession, and writes the worker's results to a file."""
    workers, chief = len(cluster["worker"]), index == 0
    share = range(index, flights["late"].size // arguments.batch_size, workers)
    stop = {}
    if arguments.sync:  # a worker may do more steps than it has batches
        share, stop = itertools.cycle(share), {"last_step": arguments.last_step}
    graph = build_graph_of(arguments, cluster, index, flights)
    with tf.train.MonitoredTrainingSession(
        target,
        is_chief=chief,
        checkpoint_dir=arguments.checkpoints if chief else None,
        save_checkpoint_steps=arguments.checkpoint_every,
        save_summaries_steps=None,
        save_summaries_secs=None,
        hooks=graph.hooks,
        config=session_config(index),
        # At the end the thread of SyncReplicasOptimizer waits for gradients that never come.
        stop_grace_period_secs=1,
    ) as session:
        begin = time.time()
        steps, predictions = train(graph, session, flights, share, arguments.batch_size, **stop)
        seconds = time.time() - begin
        session.run(graph.finish)
        found = {"steps": steps, "seconds": seconds, "predictions": predictions}
        if chief:  # the chief writes the last checkpoint after all workers have finished
            session.run(graph.wait_for_all)
            found["global_step"] = session.run(graph.global_step)
    np.savez(os.path.join(arguments.directory, f"worker {index}.npz"), **found)


def train_with_restarts(arguments, target, cluster, index, flights, make_training):
    """Trains until all batches are done, and creates a new session whenever a server was killed.

    The predictions of all workers are stored in predictions.npy; all variables are stored in the
    last checkpoint.
    """
    workers, batches = len(cluster["worker"]), flights["late"].size // arguments.batch_size
    shares = np.array([len(range(worker, batches, workers)) for worker in range(workers)])
    path = os.path.join(arguments.directory, "predictions.npy")
    predictions = np.load(path, mmap_mode="r+")
    while True:
        tf.reset_default_graph()
        try:  # with native kernels, building the graph needs the servers, too
            graph = build_graph_of(arguments, cluster, index, flights)
            training = make_training(graph, flights, predictions, index, shares, arguments)
            with tf.Session(target, config=session_config(index)) as session:
                return training.run(session)
        except LOST:
            pass


def parse_arguments(argv=None):
    """Returns the command line as a namespace."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--directory", required=True, help="folder of the flights and of the results")
    add("--settings", required=True, help="`Settings` as JSON")
    add("--batch-size", type=int, required=True)
    add("--sync", action="store_true")
    add("--native", action="store_true", help="use native kernels")
    add("--restart", action="store_true", help="continue when processes are restarted")
    add("--last-step", type=int, help="with --sync: the global step to stop at")
    add("--checkpoints", help="directory")
    add("--checkpoint-every", type=int, default=1000)
    return parser.parse_args(argv)


if __name__ == "__main__":
    tf.logging.set_verbosity(tf.logging.ERROR)
    tf.disable_v2_behavior()
    be_worker(parse_arguments())
