"""Trains the flights model in a process that `benchmarks.distributed` starts."""

import os
import pathlib
import sys

import tensorflow as tf

import legacy_opt
from benchmarks import horovod_ranks
from legacy_opt.compat import to_keras

EXAMPLES = pathlib.Path(__file__).resolve().parents[1] / "examples_graph_mode"
sys.path.insert(0, str(EXAMPLES))

from flights.cluster_worker import build_graph, session_config  # noqa: E402
from flights.data import read_flights  # noqa: E402
from flights.model import Settings, build_logits, build_loss, build_optimizer  # noqa: E402
from flights.processes import my_place, stop_with_parent  # noqa: E402

v1 = tf.compat.v1
BATCH = 64
SETTINGS = Settings("AdagradDecay", 0.1)


class DenseGradients(legacy_opt.OptimizerWrapper):
    """Makes sparse gradients dense."""

    def compute_gradients(self, *args, **kwargs):
        return [(as_dense(*pair), pair[1]) for pair in super().compute_gradients(*args, **kwargs)]


def as_dense(gradient, variable):
    del variable
    return tf.convert_to_tensor(gradient)


def make_optimizer(gradients):
    """Returns a function that takes settings and the global step, and returns an optimizer."""
    if gradients == "sparse":
        return build_optimizer
    return lambda *arguments: DenseGradients([build_optimizer(*arguments)])


class Batches:
    """The batches of one of n processes: every n-th batch of the file, repeatedly."""

    def __init__(self, folder, index, processes):
        self.flights = read_flights(os.path.join(folder, "flights.npz"))
        self.index, self.processes = index, processes

    def get(self, step):
        """Returns the arrays ids, dense and late of a step."""
        flights = self.flights
        first = (step * self.processes + self.index) % (flights.size // BATCH) * BATCH
        rows = slice(first, first + BATCH)
        return [flights.ids[rows], flights.dense[rows], flights.late[rows]]


def train_in_a_session(batches, gradients, steps, hvd=None):
    """Trains in a Session: as a rank of Horovod if `hvd` is given, otherwise alone."""
    inputs = [
        v1.placeholder(tf.int32, [None, batches.flights.ids.shape[1]]),
        v1.placeholder(tf.float32, [None, batches.flights.dense.shape[1]]),
        v1.placeholder(tf.float32, [None]),
    ]
    global_step = v1.train.get_or_create_global_step()
    logits = build_logits(*inputs[:2], batches.flights.vocabulary_size, SETTINGS)
    hooks = []
    if hvd is None:
        optimizer = make_optimizer(gradients)(SETTINGS, global_step)
    else:
        optimizer = build_optimizer(SETTINGS, global_step)
        optimizer = hvd.DistributedOptimizer(optimizer, sparse_as_dense=gradients == "dense")
        hooks.append(hvd.BroadcastGlobalVariablesHook(0))
    train_op = optimizer.minimize(build_loss(logits, inputs[2]), global_step=global_step)
    config = v1.ConfigProto(intra_op_parallelism_threads=1)
    with v1.train.MonitoredTrainingSession(hooks=hooks, config=config) as session:
        for step in range(steps):
            session.run(train_op, dict(zip(inputs, batches.get(step))))


def train_with_servers(batches, gradients, steps, cluster, synchronous):
    """Trains as a worker that stores the variables on parameter servers."""
    index = batches.index
    server = v1.train.Server(cluster, "worker", index, config=session_config(index))
    make = make_optimizer(gradients)
    graph = build_graph(cluster, index, batches.flights, SETTINGS, synchronous, make)
    with v1.train.MonitoredTrainingSession(
        server.target,
        is_chief=index == 0,
        hooks=graph.hooks,
        config=session_config(index),
        stop_grace_period_secs=1,
    ) as session:
        for step in range(steps):
            feed = dict(zip([graph.ids, graph.dense, graph.late], batches.get(step)))
            session.run(graph.train, feed)
        session.run(graph.finish)
        if index == 0:
            session.run(graph.wait_for_all)


def train_mirrored(batches, gradients, steps):
    """Trains a Keras model as a worker of MultiWorkerMirroredStrategy."""
    from flights import keras_model

    strategy = getattr(tf.distribute, "MultiWorkerMirroredStrategy", None)
    strategy = (strategy or tf.distribute.experimental.MultiWorkerMirroredStrategy)()
    with strategy.scope():
        model = keras_model.new_model(batches.flights, SETTINGS)
        optimizer = to_keras(build_optimizer(SETTINGS, None))

    def in_replica(ids, dense, late):
        with tf.GradientTape() as tape:
            loss = build_loss(model([ids, dense])[:, 0], late) / batches.processes
        variables = model.trainable_variables
        found = tape.gradient(loss, variables)
        if gradients == "dense":
            found = list(map(tf.convert_to_tensor, found))
        optimizer.apply_gradients(zip(found, variables))

    train = tf.function(lambda *inputs: strategy.run(in_replica, args=inputs))
    for step in range(steps):
        train(*map(tf.constant, batches.get(step)))


def main(way, gradients, steps, folder, port):
    """Trains in this process, then exits."""
    stop_with_parent()
    cluster, _, index = my_place()
    processes, steps = len(cluster["worker"]), int(steps)
    batches = Batches(folder, index, processes)
    if way == "mirrored":
        tf.config.threading.set_intra_op_parallelism_threads(1)
        train_mirrored(batches, gradients, steps)
    else:
        v1.disable_v2_behavior()
        if way.endswith("synchronous"):
            train_with_servers(batches, gradients, steps, cluster, way == "synchronous")
        else:
            del os.environ["TF_CONFIG"]
            hvd = horovod_ranks.join(port, index, processes) if way == "horovod" else None
            train_in_a_session(batches, gradients, steps, hvd)
            if hvd is not None:
                hvd.shutdown()
    os._exit(0)


if __name__ == "__main__":
    v1.logging.set_verbosity(v1.logging.ERROR)
    main(*sys.argv[1:])
