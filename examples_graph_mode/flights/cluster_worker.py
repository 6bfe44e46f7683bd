"""A worker of `parameter_servers.py`: its graph with variables on the servers, and its training."""

import itertools
import os
import sys
import time
from typing import Any, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

import legacy_opt
from flights.arguments import one_optimizer_settings
from flights.data import read_flights
from flights.model import build_logits, build_loss, build_optimizer
from flights.processes import my_place, stop_with_parent
from flights.restarts import LOST, RestartableTraining, train_on_batch


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


def build_graph(cluster, index, flights, settings, sync, make_optimizer=build_optimizer):
    """Builds the flights model for one worker in the default graph.

    Each worker builds its own graph. All workers share the variables, which are on the servers and
    have the same names in all graphs.

    Args:
      cluster: dict from "ps" and "worker" to addresses.
      index: the worker's number.
      flights: `Flights`, for the sizes of the model.
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
        ids = tf.placeholder(tf.int32, [None, flights.ids.shape[1]], "ids")
        dense = tf.placeholder(tf.float32, [None, flights.dense.shape[1]], "dense")
        late = tf.placeholder(tf.float32, [None], "late")
        global_step = tf.train.get_or_create_global_step()
        logits = build_logits(ids, dense, flights.vocabulary_size, settings)
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


def be_worker(arguments, make_training=RestartableTraining):
    """Trains on this worker's share of the batches, then exits.

    The predictions of all workers are stored in predictions.npy.

    Args:
      arguments: the command line of `parameter_servers.py`.
      make_training: the class that trains with --restart.
    """
    stop_with_parent()
    cluster, _, index = my_place()
    server = tf.train.Server(cluster, "worker", index, config=session_config(index))
    if arguments.native:
        legacy_opt.native.enable(require=True, target=server.target)
    flights = read_flights(os.path.join(arguments.directory, "flights.npz"))
    predictions = np.load(os.path.join(arguments.directory, "predictions.npy"), mmap_mode="r+")
    settings = one_optimizer_settings(arguments)

    def new_graph():
        return build_graph(cluster, index, flights, settings, arguments.sync)

    batches, workers = flights.size // arguments.batch_size, len(cluster["worker"])
    shares = [range(worker, batches, workers) for worker in range(workers)]
    inputs = flights, predictions, index
    if arguments.restart:
        sizes = np.array(list(map(len, shares)))
        train_with_restarts(server.target, new_graph, make_training, *inputs, sizes, arguments)
    else:
        train_once(server.target, new_graph(), *inputs, shares[index], arguments)
    sys.stdout.flush()
    os._exit(0)  # the server threads would keep the process alive


def train_once(target, graph, flights, predictions, index, share, arguments):
    """Trains in a MonitoredTrainingSession, and writes the steps and seconds of this worker."""
    is_chief, steps = index == 0, 0
    with tf.train.MonitoredTrainingSession(
        target,
        is_chief=is_chief,
        checkpoint_dir=arguments.out if is_chief else None,
        save_checkpoint_steps=arguments.checkpoint_every,
        save_summaries_steps=None,
        save_summaries_secs=None,
        hooks=graph.hooks,
        config=session_config(index),
        # At the end the thread of SyncReplicasOptimizer waits for gradients that never come.
        stop_grace_period_secs=1,
    ) as session:
        begin = time.time()
        # With --sync, a worker may do more steps than it has batches.
        for batch in itertools.cycle(share) if arguments.sync else share:
            inputs = flights, predictions, batch, arguments.batch_size
            reached = train_on_batch(session, graph, graph.train, *inputs)
            steps += 1
            if arguments.sync and reached >= arguments.last_step:
                break
        found = {"steps": steps, "seconds": time.time() - begin}
        session.run(graph.finish)
        if is_chief:  # the chief writes the last checkpoint after all workers have finished
            session.run(graph.wait_for_all)
            found["global_step"] = session.run(graph.global_step)
    np.savez(os.path.join(arguments.directory, f"worker {index}.npz"), **found)


def train_with_restarts(target, new_graph, make_training, *inputs):
    """Trains until all batches are done, and creates a new session whenever a server was killed.

    All variables are stored in the last checkpoint.

    Args:
      target: the target of the sessions.
      new_graph: a function that builds the worker's graph.
      make_training: `RestartableTraining` or a subclass.
      *inputs: the arguments of this class after the graph.
    """
    while True:
        tf.reset_default_graph()
        try:  # with native kernels, building the graph needs the servers, too
            training = make_training(new_graph(), *inputs)
            with tf.Session(target, config=session_config(training.index)) as session:
                return training.run(session)
        except LOST:
            pass
