"""Trains a Keras model with v1 optimizers in two clusters of processes on this machine.

    python examples_graph_mode/keras_clusters.py

* Two workers under MultiWorkerMirroredStrategy: each worker trains on half of every batch. At the
  end the variables and slots of both workers must be equal by np.array_equal.
* A coordinator, two workers and a parameter server under ParameterServerStrategy. First only one
  worker at a time trains on a batch. The variables and slots must be equal, by np.array_equal, to
  those of a training on the same batches in one process. Then both workers train at the same time.
  The order of their updates is not reproducible, so nothing is compared.

The optimizers are AdagradDecay and Adam, which `to_keras` converts to optimizers of `tf.keras`. The
variable `iterations` and Adam's powers of beta must be updated once per training step.

The training loops are custom loops, which work with Keras 2 and Keras 3. docs/keras.md shows where
`fit` works under these strategies.

The exit code is 0 if all compared values are equal, and 1 if not.
"""

import os
import sys
import tempfile
import time
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from flights.arguments import add_cluster_options, new_parser
from flights.data import load_flights, read_flights
from flights.keras_model import new_model
from flights.model import Settings, build_optimizer
from flights.processes import SERVER, Cluster, my_place, stop_with_parent
from flights.training import first_difference
from legacy_opt.compat import to_keras
from legacy_opt.versions import keras_facts

SETTINGS = Settings("AdagradDecay", 0.1, decay_step=10)
BETAS = {"beta1_power": 0.9, "beta2_power": 0.999}


def bridged_optimizers():
    """Returns a dict from name to a function that creates a v1 optimizer converted to Keras."""
    return {
        "AdagradDecay": lambda: to_keras(build_optimizer(SETTINGS, None)),
        "Adam": lambda: to_keras(tf.compat.v1.train.AdamOptimizer(0.003)),
    }


# --- the model and its training


class Batches(NamedTuple):
    """The training data of all processes: `Flights`, and the number of flights per step."""

    flights: Any
    size: int

    @property
    def steps(self):
        """The number of steps in one pass."""
        return self.flights.size // self.size

    def dataset(self):
        """Returns a dataset of all batches, in time order."""
        arrays = (self.flights.ids, self.flights.dense), self.flights.late[:, np.newaxis]
        return tf.data.Dataset.from_tensor_slices(arrays).batch(self.size)

    def log_loss(self, model):
        """Returns the mean log-loss of all flights."""
        logits = model([tf.constant(self.flights.ids), tf.constant(self.flights.dense)])[:, 0]
        losses = tf.nn.sigmoid_cross_entropy_with_logits(logits=logits, labels=self.flights.late)
        return float(tf.reduce_mean(losses))


def build_model(batches, optimizer):
    """Returns a new model with its optimizer."""
    model = new_model(batches.flights, SETTINGS)
    model.compile(optimizer)
    return model


def training_step(strategy, model, batch_size):
    """Returns a function that trains on one batch, which a strategy may split among replicas."""

    def in_replica(inputs, late):
        with tf.GradientTape() as tape:
            logits = model(list(inputs), training=True)
            losses = tf.nn.sigmoid_cross_entropy_with_logits(logits=logits, labels=late)
            # Not reduce_mean, because the gradients of the replicas are summed.
            loss = tf.reduce_sum(losses) / batch_size
        variables = model.trainable_variables
        model.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

    return tf.function(lambda inputs, late: strategy.run(in_replica, args=(inputs, late)))


def state(model):
    """Returns a dict from name to array: variables, slots, powers of beta and `iterations`."""
    optimizer = model.optimizer
    found = {}
    for number, variable in enumerate(model.trainable_variables):
        found[f"variable {number}"] = variable
        for slot in optimizer.get_slot_names():
            found[f"variable {number}, slot {slot}"] = optimizer.get_slot(variable, slot)
    for power in BETAS:
        found.update((power, item) for item in optimizer.weights if power in item.name)
    found["iterations"] = optimizer.iterations
    return {name: np.asarray(tf.convert_to_tensor(item)) for name, item in found.items()}


def once_per_step(values, steps):
    """Whether `iterations` and the powers of beta have been updated once per training step."""
    expected = {"iterations": steps}
    for name, beta in BETAS.items():
        expected[name] = np.float32(beta)
        for _ in range(steps):
            expected[name] *= np.float32(beta)
    return all(values[name] == expected[name] for name in expected if name in values)


def say(text):
    """Prints a line that begins with the name of this process."""
    _, job, index = my_place()
    sys.stdout.write(f"  {job} {index}: {text}\n")  # in one call: other processes print, too
    sys.stdout.flush()


# --- the processes


def public(name):
    """Returns an attribute of tf.distribute, or of tf.distribute.experimental in older versions."""
    return getattr(tf.distribute, name, None) or getattr(tf.distribute.experimental, name)


def be_worker(batches, out):
    """Trains as one of two workers, and writes the final state to a file."""
    strategy = public("MultiWorkerMirroredStrategy")()
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    dataset = batches.dataset().with_options(options)
    for name, optimizer in bridged_optimizers().items():
        with strategy.scope():
            model = build_model(batches, optimizer())
        train = training_step(strategy, model, batches.size)
        for inputs, late in strategy.experimental_distribute_dataset(dataset):
            train(inputs, late)
        np.savez(os.path.join(out, f"{name} {my_place()[2]}.npz"), **state(model))
        say(f"{name}, {batches.steps} steps, log-loss {batches.log_loss(model):.4f}")


def be_coordinator(batches, out):
    """Trains with one worker at a time, then with both workers at the same time.

    For comparison, the first training is repeated without a cluster.
    """
    cluster, job, index = my_place()
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(cluster), task_type=job, task_id=index, rpc_layer="grpc"
    )
    strategy = public("ParameterServerStrategy")(resolver)
    coordinator = public("coordinator").ClusterCoordinator(strategy)
    for name, optimizer in bridged_optimizers().items():
        with strategy.scope():
            model = build_model(batches, optimizer())
        alone = build_model(batches, optimizer())
        alone.set_weights(model.get_weights())
        train = training_step(strategy, model, batches.size)
        train_alone = training_step(tf.distribute.get_strategy(), alone, batches.size)
        for inputs, late in batches.dataset():
            coordinator.schedule(train, args=(inputs, late))
            coordinator.join()
            train_alone(inputs, late)
        np.savez(os.path.join(out, name + " cluster.npz"), **state(model))
        np.savez(os.path.join(out, name + " alone.npz"), **state(alone))
        text = "%s, %d steps one after the other, log-loss %.4f"
        say(text % (name, batches.steps, batches.log_loss(model)))
    train_together(coordinator, batches)


def train_together(coordinator, batches):
    """Lets both workers train at the same time, in an order that is not reproducible.

    Adam is not used here, because it reads and writes the whole slots of an embedding. It would
    overwrite values that the other worker has written in the meantime.
    """
    name = "AdagradDecay"
    with coordinator.strategy.scope():
        model = build_model(batches, bridged_optimizers()[name]())
    train = training_step(coordinator.strategy, model, batches.size)
    for inputs, late in batches.dataset():
        coordinator.schedule(train, args=(inputs, late))
    coordinator.join()
    text = "%s, %d steps at the same time, log-loss %.4f"
    say(text % (name, batches.steps, batches.log_loss(model)))


# --- the program


def parse_arguments(argv=None):
    """Returns the command line as a namespace."""
    parser = new_parser(__doc__, None)
    add_cluster_options(parser, steps=40)
    return parser.parse_args(argv)


def main(argv=None):
    """Runs the example.

    Raises:
      SystemExit: if anything differs, or if a process fails.
    """
    arguments = parse_arguments(argv)
    if not hasattr(tf.distribute.experimental, "coordinator"):
        sys.exit(
            "Keras trains with parameter servers from TensorFlow 2.4 on (tested: 2.4, 2.10, "
            f"2.15, 2.21); this is {tf.__version__}. flights_session.py and "
            "estimator_flights.py run here."
        )
    if "TF_CONFIG" in os.environ:
        be_process(arguments)
    begin = time.time()
    facts = keras_facts()
    print(f"TensorFlow {tf.__version__}, Keras {facts['version']}.")
    with tempfile.TemporaryDirectory() as directory:
        flights = load_flights().first(arguments.steps * arguments.batch_size)
        out = arguments.out or directory
        os.makedirs(out, exist_ok=True)
        flights.save(os.path.join(out, "flights.npz"))
        compare_workers(arguments, out)
        compare_with_parameter_server(arguments, out)
    print(f"{time.time() - begin:.0f} s.")


def be_process(arguments):
    """Runs a worker or the coordinator in this process, then exits."""
    stop_with_parent()
    flights = read_flights(os.path.join(arguments.out, "flights.npz"))
    be = {"worker": be_worker, "chief": be_coordinator}[my_place()[1]]
    be(Batches(flights, arguments.batch_size), arguments.out)
    sys.stdout.flush()
    os._exit(0)  # TensorFlow's shutdown may wait for other processes


def this_program(arguments, directory):
    """Returns this program and its arguments in a process of a cluster."""
    size = str(arguments.batch_size)
    return [os.path.abspath(__file__), "--batch-size", size, "--out", directory]


def compare_workers(arguments, directory):
    """Trains in two processes under MultiWorkerMirroredStrategy, and compares their results."""
    print("MultiWorkerMirroredStrategy, two processes:")
    with Cluster(arguments.timeout, worker=2) as cluster:
        cluster.start("worker", *this_program(arguments, directory))
        cluster.wait("worker")
    report(arguments, directory, "0", "1", "the two processes")


def compare_with_parameter_server(arguments, directory):
    """Trains under ParameterServerStrategy, and compares the result with one process."""
    print("ParameterServerStrategy, a coordinator, two workers and a parameter server:")
    with Cluster(arguments.timeout, chief=1, worker=2, ps=1) as cluster:
        cluster.start("ps", SERVER)
        cluster.start("worker", SERVER)
        cluster.start("chief", *this_program(arguments, directory))
        cluster.wait("chief")
    report(arguments, directory, "cluster", "alone", "the cluster and a single process")


def report(arguments, directory, one, other, who):
    """Compares the states that two trainings wrote, for each optimizer.

    Raises:
      SystemExit: if anything differs, or was not updated once per step.
    """
    for name in bridged_optimizers():
        values = []
        for suffix in (one, other):
            with np.load(os.path.join(directory, f"{name} {suffix}.npz")) as file:
                values.append(dict(file))
        difference = first_difference(*values)
        if difference is not None:
            sys.exit(f"{name}: {who} differ in {difference}.")
        if not once_per_step(values[0], arguments.steps):
            sys.exit(f"{name}: iterations or powers of beta did not advance once per step.")
        numbers = sum(value.size for value in values[0].values())
        text = "  %s: %s are equal bit for bit: %d variables and slots (%d numbers), %d steps."
        print(text % (name, who, len(values[0]), numbers, values[0]["iterations"]))


if __name__ == "__main__":
    # With one thread per operation, all processes add floats in the same order.
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
    main()
