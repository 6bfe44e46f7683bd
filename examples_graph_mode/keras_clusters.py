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

If the installed Keras cannot `fit` under a strategy even with its own Adam, the error is printed
and a custom training loop is used instead of `fit`.

The exit code is 0 if all compared values are equal, and 1 if not.
"""

import argparse
import os
import sys
import tempfile
import textwrap
import time

import numpy as np
import tensorflow as tf

from flights.arguments import positive_int
from flights.data import load_flights
from flights.processes import Cluster, my_place, stop_with_parent
from legacy_opt import AdagradDecayOptimizer
from legacy_opt.compat import to_keras
from legacy_opt.versions import keras_facts

keras = tf.keras
SERVER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "flights/processes.py")
BETAS = {"beta1_power": 0.9, "beta2_power": 0.999}


def bridged_optimizers():
    """Returns a dict from name to a function that creates a v1 optimizer converted to Keras."""
    decay = {"accumulator_decay_step": 10, "accumulator_decay_rate": 0.7}
    return {
        "AdagradDecay": lambda: to_keras(AdagradDecayOptimizer(0.1, None, **decay)),
        "Adam": lambda: to_keras(tf.compat.v1.train.AdamOptimizer(0.003)),
    }


def keras_own():
    """Creates Keras' own Adam, with the same base class as the optimizers of `to_keras`."""
    if keras_facts()["generation"] == 3:
        return keras.optimizers.Adam()
    return getattr(keras.optimizers, "legacy", keras.optimizers).Adam()


# --- the model and its training


class Flights:
    """The training data of all processes, in time order, without an incomplete batch at the end."""

    def __init__(self, path, batch_size):
        with np.load(path) as file:
            self.ids, self.dense, self.late = file["ids"], file["dense"], file["late"]
            self.vocabulary_size = int(file["vocabulary_size"])
        self.batch_size = batch_size
        self.steps = len(self.late) // batch_size

    def dataset(self):
        arrays = ((self.ids, self.dense), self.late[:, np.newaxis])
        return tf.data.Dataset.from_tensor_slices(arrays).batch(self.batch_size)

    def log_loss(self, model):
        """Returns the mean log-loss of all flights."""
        logits = model([tf.constant(self.ids), tf.constant(self.dense)])[:, 0]
        losses = tf.nn.sigmoid_cross_entropy_with_logits(logits=logits, labels=self.late)
        return float(tf.reduce_mean(losses))


def build_model(flights, optimizer):
    """Returns a compiled model from ids and dense features to a logit."""
    layers = keras.layers
    ids = keras.Input([flights.ids.shape[1]], dtype="int32")
    dense = keras.Input([flights.dense.shape[1]])
    normal = keras.initializers.RandomNormal(stddev=0.05, seed=1)
    embedded = layers.Embedding(flights.vocabulary_size, 8, embeddings_initializer=normal)(ids)
    hidden = layers.Concatenate()([layers.Flatten()(embedded), dense])
    for units, activation in ((32, "relu"), (1, None)):
        glorot = keras.initializers.GlorotUniform(seed=units)
        hidden = layers.Dense(units, activation, kernel_initializer=glorot)(hidden)
    model = keras.Model([ids, dense], hidden)
    model.compile(optimizer, loss=keras.losses.BinaryCrossentropy(from_logits=True))
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


def first_difference(one, other):
    """Returns a text that names a difference between two `state`s, or None if they are equal."""
    if set(one) != set(other):
        names = ", ".join(sorted(set(one) ^ set(other)))
        return names + ", which only one of the two trainings has"
    different = [name for name in one if not np.array_equal(one[name], other[name])]
    return different[0] if different else None


def try_fit(fit, optimizer):
    """Calls `fit(optimizer)`.

    Returns:
      The result of `fit`. If `fit` fails both with `optimizer` and with Keras' own Adam, Adam's
      error is printed and the result is None.
    """
    try:
        return fit(optimizer)
    except Exception:  # the type depends on the versions of Keras and TensorFlow
        try:
            fit(keras_own)
        except Exception as error:
            what = type(error).__name__, textwrap.shorten(str(error), 70, placeholder=" …")
            say(
                "fit fails here even with Keras' own Adam ({}: {}). A custom training loop is used "
                "instead:".format(*what)
            )
            return None
        raise


def say(text):
    """Prints a line that begins with the name of this process."""
    _, job, index = my_place()
    sys.stdout.write(f"  {job} {index}: {text}\n")  # in one call: other processes print, too
    sys.stdout.flush()


# --- the processes


def public(name):
    """Returns an attribute of tf.distribute, or of tf.distribute.experimental in older versions."""
    return getattr(tf.distribute, name, None) or getattr(tf.distribute.experimental, name)


def be_worker(flights, out):
    """Trains as one of two workers, and writes the final state to a file."""
    strategy = public("MultiWorkerMirroredStrategy")()
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    dataset = flights.dataset().with_options(options)

    def fit(optimizer):
        with strategy.scope():
            model = build_model(flights, optimizer())
        model.fit(dataset, verbose=0)
        return model

    def loop(optimizer):
        with strategy.scope():
            model = build_model(flights, optimizer())
        train = training_step(strategy, model, flights.batch_size)
        for inputs, late in strategy.experimental_distribute_dataset(dataset):
            train(inputs, late)
        return model

    train = fit
    for name, optimizer in bridged_optimizers().items():
        model = try_fit(fit, optimizer) if train is fit else None
        if model is None:
            train, model = loop, loop(optimizer)
        values = state(model)
        index = my_place()[2]
        np.savez(os.path.join(out, f"{name} {index}.npz"), **values)
        say(f"{name}, {flights.steps} steps, log-loss {flights.log_loss(model):.4f}")


def be_coordinator(flights, out):
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
            model = build_model(flights, optimizer())
        alone = build_model(flights, optimizer())
        alone.set_weights(model.get_weights())
        train = training_step(strategy, model, flights.batch_size)
        train_alone = training_step(tf.distribute.get_strategy(), alone, flights.batch_size)
        for inputs, late in flights.dataset():
            coordinator.schedule(train, args=(inputs, late))
            coordinator.join()
            train_alone(inputs, late)
        np.savez(os.path.join(out, name + " cluster.npz"), **state(model))
        np.savez(os.path.join(out, name + " alone.npz"), **state(alone))
        text = "%s, %d steps one after the other, log-loss %.4f"
        say(text % (name, flights.steps, flights.log_loss(model)))
    train_together(coordinator, flights)


def train_together(coordinator, flights):
    """Lets both workers train at the same time, in an order that is not reproducible.

    Adam is not used here, because it reads and writes the whole slots of an embedding. It would
    overwrite values that the other worker has written in the meantime.
    """
    strategy, name = coordinator.strategy, "AdagradDecay"
    optimizer = bridged_optimizers()[name]

    def fit(optimizer):
        with strategy.scope():
            model = build_model(flights, optimizer())
        creator = getattr(getattr(keras.utils, "experimental", None), "DatasetCreator", None)

        def endless(context=None):  # a DatasetCreator calls this function on each worker
            return flights.dataset().repeat()

        dataset = creator(endless) if creator else endless()
        model.fit(dataset, steps_per_epoch=flights.steps, verbose=0)
        return model

    def loop(optimizer):
        with strategy.scope():
            model = build_model(flights, optimizer())
        train = training_step(strategy, model, flights.batch_size)
        for inputs, late in flights.dataset():
            coordinator.schedule(train, args=(inputs, late))
        coordinator.join()
        return model

    model = try_fit(fit, optimizer) or loop(optimizer)
    text = "%s, %d steps at the same time, log-loss %.4f"
    say(text % (name, flights.steps, flights.log_loss(model)))


# --- the program


def parse_arguments(argv=None):
    """Returns the command line as a namespace."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--steps", type=positive_int, default=40, help="(default: %(default)s)")
    add(
        "--batch-size",
        type=positive_int,
        default=64,
        help="flights per step (default: %(default)s)",
    )
    add(
        "--timeout",
        type=positive_int,
        default=300,
        help="time limit of each cluster in seconds (default: %(default)s)",
    )
    add("--role", choices=["worker", "coordinator"], help=argparse.SUPPRESS)
    add("--directory", help=argparse.SUPPRESS)
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
    if arguments.role:
        be_child(arguments)
    begin = time.time()
    facts = keras_facts()
    print(f"TensorFlow {tf.__version__}, Keras {facts['version']}.")
    with tempfile.TemporaryDirectory() as directory:
        write_flights(directory, arguments.steps * arguments.batch_size)
        compare_workers(arguments, directory)
        compare_with_parameter_server(arguments, directory)
    print(f"{time.time() - begin:.0f} s.")


def write_flights(directory, count):
    """Writes the first `count` flights to a file that all processes read."""
    flights = load_flights().first(count)
    np.savez(
        os.path.join(directory, "flights.npz"),
        ids=flights.ids,
        dense=flights.dense,
        late=flights.late,
        vocabulary_size=flights.vocabulary_size,
    )


def be_child(arguments):
    """Runs a worker or the coordinator in this process, then exits."""
    stop_with_parent()
    flights = Flights(os.path.join(arguments.directory, "flights.npz"), arguments.batch_size)
    {"worker": be_worker, "coordinator": be_coordinator}[arguments.role](
        flights, arguments.directory
    )
    sys.stdout.flush()
    os._exit(0)  # TensorFlow's shutdown may wait for other processes


def child(role, arguments, directory):
    """Returns the program and the arguments of a process with this role."""
    size = str(arguments.batch_size)
    command = [os.path.abspath(__file__), "--role", role, "--directory", directory]
    return command + ["--batch-size", size]


def compare_workers(arguments, directory):
    """Trains in two processes under MultiWorkerMirroredStrategy, and compares their results."""
    print("MultiWorkerMirroredStrategy, two processes:")
    with Cluster(arguments.timeout, worker=2) as cluster:
        cluster.start("worker", *child("worker", arguments, directory))
        cluster.wait("worker")
    report(arguments, directory, "0", "1", "the two processes")


def compare_with_parameter_server(arguments, directory):
    """Trains under ParameterServerStrategy, and compares the result with one process."""
    print("ParameterServerStrategy, a coordinator, two workers and a parameter server:")
    with Cluster(arguments.timeout, chief=1, worker=2, ps=1) as cluster:
        cluster.start("ps", SERVER)
        cluster.start("worker", SERVER)
        cluster.start("chief", *child("coordinator", arguments, directory))
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
