"""Takes the model of `flights_session.py` to tf.keras and shows that not one bit changes.

    python examples_graph_mode/migrate_to_keras.py

The model learns twice from the same flights in the same order, from the same starting values: in a
TF1 graph and Session, as in flights_session.py, and as a Keras model with `compile` and `fit`. The
optimizer is the same v1 object in both; `to_keras` makes an optimizer of it for the Keras that
`tf.keras` is: Keras 3 from TensorFlow 2.16 on, Keras 2 before. Each batch is predicted before it is
learned from.

Then all predictions, variables and slots of the two are compared with np.array_equal. The exit
code is 0 if they are equal; if not, it is 1, and the first difference is printed.

The output directory receives session_and_keras.png.
"""

import os
import sys
import time
from typing import NamedTuple

import numpy as np
import pandas as pd
import tensorflow as tf
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from tqdm import tqdm

from flights_arguments import one_optimizer_parser, one_optimizer_settings, positive_int
from flights_data import load_flights
from flights_model import (
    HIDDEN_UNITS,
    build_optimizer,
)
from flights_report import WINDOW, format_table, loss_per_flight, metrics_table
from flights_training import Trainer, replacing
from legacy_opt.compat import to_keras
from legacy_opt.versions import keras_facts

keras = tf.keras
KERAS = "Keras " + keras_facts()["version"]


class Run(NamedTuple):
    """What one of the two trainings left behind.

    Attributes:
        predictions: float32 [flights], each made before its flight was learned from.
        variables: dict from the session example's variable name to the value at the end.
        slots: dict from (variable name, slot name) to the value at the end.
    """

    predictions: np.ndarray
    variables: dict
    slots: dict


# --- before: a graph and a Session


def train_in_session(flights, settings, batch_size):
    """Trains as flights_session.py does.

    Returns:
        The `Run`, and the variables' starting values as a dict of arrays.
    """
    trainer = make_trainer(flights, settings, batch_size)
    (tower,) = trainer.towers
    variables = {variable.op.name.split("/")[-1]: variable for variable in tower.variables}
    slots = {
        (name, slot): tower.optimizer.get_slot(variable, slot)
        for slot in tower.optimizer.get_slot_names()
        for name, variable in variables.items()
    }
    predictions = trainer.new_predictions()
    with trainer.session() as session:
        session.run(trainer.initializer)
        start = session.run(variables)
        trainer.train(session, predictions, 0, trainer.steps, label="Session")
        values = dict(zip(slots, session.run(list(slots.values()))))
        return Run(predictions[0], session.run(variables), values), start


def make_trainer(flights, settings, batch_size):
    """Builds the TF1 graph with the ref variables that a TF1 program has."""
    before = tf.compat.v1.resource_variables_enabled()
    tf.compat.v1.disable_resource_variables()
    try:
        return Trainer(flights, {settings.optimizer: settings}, batch_size)
    finally:
        if before:
            tf.compat.v1.enable_resource_variables()


# --- after: Keras


class Wide(keras.layers.Layer):
    """A bias and one weight per id: ids [batch, fields] to logits [batch, 1]."""

    def __init__(self, vocabulary_size, **arguments):
        # Without a dtype, the Keras of TensorFlow 1 makes the weights int32, as the ids are.
        super().__init__(dtype="float32", **arguments)
        self.vocabulary_size = vocabulary_size

    def build(self, input_shape):
        self.bias = self.add_weight(name="bias", shape=[], initializer="zeros")
        self.wide = self.add_weight(name="wide", shape=[self.vocabulary_size], initializer="zeros")
        super().build(input_shape)

    def call(self, ids):
        logits = self.bias + tf.reduce_sum(tf.nn.embedding_lookup(self.wide, ids), axis=1)
        # Where TensorFlow knows that all parts of a sum have one shape, it may add the bias last;
        # it does not look across this reshaping.
        return tf.expand_dims(logits, axis=1)


class AddBias(keras.layers.Layer):
    """Adds a bias, as Dense does, but with a plain addition.

    Dense takes BiasAdd, whose gradient adds up the batch in another order.
    """

    def build(self, input_shape):
        self.bias = self.add_weight(name="bias", shape=[input_shape[-1]], initializer="zeros")
        super().build(input_shape)

    def call(self, inputs):
        return inputs + self.bias


def build_model(fields, features, vocabulary_size, embedding_dim):
    """Returns the Keras model, from ids and dense features to logits [batch, 1].

    It adds up in the order of `flights_model.build_logits`, as float addition is not associative
    and other last bits would not be the optimizer's doing. Hence two layers that the model could
    do without: with Embedding and Dense's own biases it learns the same but for rounding.
    """
    layers = keras.layers
    ids = keras.Input([fields], dtype="int32", name="ids")
    dense = keras.Input([features], name="dense")
    embedded = layers.Embedding(vocabulary_size, embedding_dim, name="embeddings")(ids)
    inputs = layers.Concatenate()([layers.Flatten()(embedded), dense])
    hidden = layers.Dense(HIDDEN_UNITS, use_bias=False, name="hidden")(inputs)
    hidden = layers.ReLU()(AddBias(name="hidden_bias")(hidden))
    parts = [
        Wide(vocabulary_size, name="wide")(ids),
        layers.Dense(1, use_bias=False, name="wide_dense")(dense),
        layers.Dense(1, use_bias=False, name="output")(hidden),
    ]
    return keras.Model([ids, dense], layers.Add()(parts))


# Each layer's weights under the names of the session example's variables.
WEIGHTS = {
    "wide": ["bias", "wide"],
    "wide_dense": ["wide_dense"],
    "embeddings": ["embeddings"],
    "hidden": ["hidden_weights"],
    "hidden_bias": ["hidden_bias"],
    "output": ["output_weights"],
}


class Predictions(keras.metrics.Metric):
    """Keeps the probability that `fit` predicts for each example of one epoch, in their order.

    A metric sees the outputs of the model from before the step: no prediction has seen its label.
    """

    def __init__(self, examples):
        super().__init__(name="examples", dtype="float32")
        self.values = self.add_weight(name="values", shape=[examples], initializer="zeros")
        self.seen = self.add_weight(name="seen", shape=[], initializer="zeros", dtype="int64")

    def update_state(self, y_true, y_pred, sample_weight=None):
        probability = tf.sigmoid(tf.squeeze(y_pred, axis=1))
        count = tf.size(probability, out_type=tf.int64)
        rows = (self.seen + tf.range(count))[:, tf.newaxis]
        values = tf.tensor_scatter_nd_update(self.values, rows, probability)
        with tf.control_dependencies([self.values.assign(values)]):
            return self.seen.assign_add(count)

    def result(self):
        return tf.identity(self.seen)

    def reset_state(self):
        """Does nothing: before the only epoch all is zero."""

    reset_states = reset_state  # its name up to TensorFlow 2.4


def value_of(variable):
    """Returns the value of a variable of Keras as an array."""
    return np.asarray(keras.backend.get_value(variable))  # Keras 3 may return it as it is


def train_in_keras(flights, settings, batch_size, start):
    """Trains with `fit`, from the starting values `start`; returns the `Run`."""
    fields, features = flights.ids.shape[1], flights.dense.shape[1]
    model = build_model(fields, features, flights.vocabulary_size, settings.embedding_dim)
    weights = {}
    for layer, names in WEIGHTS.items():
        model.get_layer(layer).set_weights([start[name] for name in names])
        weights.update(zip(names, model.get_layer(layer).weights))

    # The session example's optimizer as it is. The step that it counted in a variable of the graph
    # is Keras' `iterations` now.
    optimizer = to_keras(build_optimizer(settings, global_step=None))
    predictions = Predictions(flights.size)
    model.compile(
        optimizer=optimizer,
        loss=keras.losses.BinaryCrossentropy(from_logits=True),
        metrics=[predictions],
    )
    model.jit_compile = False  # Keras 3 takes XLA on GPUs; it rounds in other places
    dataset = tf.data.Dataset.from_tensor_slices(((flights.ids, flights.dense), flights.late))
    dataset = dataset.batch(batch_size)  # in time order: no shuffle
    with tqdm(desc="Keras", total=-(-flights.size // batch_size), unit="batch") as bar:
        progress = keras.callbacks.LambdaCallback(on_batch_end=lambda batch, logs: bar.update())
        model.fit(dataset, callbacks=[progress], verbose=0)

    slots = {
        (name, slot): optimizer.get_slot(weight, slot)
        for slot in optimizer.get_slot_names()
        for name, weight in weights.items()
    }
    return Run(
        value_of(predictions.values),
        {name: value_of(weight) for name, weight in weights.items()},
        {key: value_of(slot) for key, slot in slots.items()},
    )


# --- the comparison


def first_difference(session, keras_run, batch_size):
    """Compares two `Run`s: a sentence on the first difference, or None if there is none."""
    if not np.array_equal(session.predictions, keras_run.predictions):
        different = session.predictions != keras_run.predictions
        flight = int(np.argmax(different))
        return "The prediction of flight %d, in step %d, is %s in the Session and %s in Keras." % (
            flight,
            flight // batch_size,
            session.predictions[flight],
            keras_run.predictions[flight],
        )
    for kind in ("variables", "slots"):
        ours, theirs = getattr(session, kind), getattr(keras_run, kind)
        if set(ours) != set(theirs):
            return "The Session has the %s %s, Keras %s." % (kind, sorted(ours), sorted(theirs))
        for name, value in ours.items():
            if not np.array_equal(value, theirs[name]):
                return "Of the %s, %s differs: %s." % (kind, name, how_much(value, theirs[name]))
    return None


def how_much(one, two):
    """Says how much two unequal arrays differ."""
    if one.shape != two.shape:
        return "its shape is %s in the Session and %s in Keras" % (one.shape, two.shape)
    gap = np.abs(one.astype(np.float64) - two)
    return "%d of %d numbers, by up to %.3g" % (np.sum(one != two), one.size, gap.max())


def write_plot(path, flights, runs, title):
    """Running log-loss of both trainings, one drawn over the other.

    Args:
        path: the PNG.
        flights: `Flights`.
        runs: the `Run`s of Session and Keras.
        title: what stands above.
    """
    window = max(1, min(WINDOW, flights.size // 10))
    shown = slice(window - 1, None, max(1, flights.size // 4000))
    styles = [
        dict(color="gold", linewidth=7, label="TF1 graph in a Session"),
        dict(color="black", linewidth=1.5, linestyle=(0, (4, 3)), label=KERAS + ", model.fit"),
    ]
    figure = Figure(figsize=(11, 5.5))
    FigureCanvasAgg(figure)  # no pyplot: a window system is neither needed nor asked for
    axes = figure.subplots()
    for run, style in zip(runs, styles):
        loss = loss_per_flight(flights.late, run.predictions)
        running = pd.Series(loss).rolling(window).mean().to_numpy()
        axes.plot(flights.time[shown], running[shown], **style)
    axes.set_title(title)
    axes.set_ylabel("log-loss, mean of the last {:,} flights".format(window))
    axes.set_xlabel("scheduled departure")
    axes.grid(color="0.92")
    axes.legend(loc="lower left")
    figure.tight_layout()
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=110)


# --- the program


def parse_arguments(argv=None):
    """Returns the command line as a namespace."""
    parser = one_optimizer_parser(__doc__, "flights_keras_out")
    parser.add_argument(
        "--steps", type=positive_int, help="stop after so many steps (the whole year)"
    )
    return parser.parse_args(argv)


def main(argv=None):
    """Runs the example.

    Raises:
        SystemExit: if anything differs, or if the model diverged.
    """
    arguments = parse_arguments(argv)
    os.makedirs(arguments.out, exist_ok=True)
    begin = time.time()
    flights = load_flights()
    if arguments.steps:
        flights = flights.first(arguments.steps * arguments.batch_size)
    settings = one_optimizer_settings(arguments)
    print("%d flights; TensorFlow %s, %s." % (flights.size, tf.__version__, KERAS))
    session, start = train_in_session(flights, settings, arguments.batch_size)
    keras_run = train_in_keras(flights, settings, arguments.batch_size, start)
    report(flights, settings, session, keras_run, arguments)
    print("%.0f s." % (time.time() - begin))


def report(flights, settings, session, keras_run, arguments):
    """Prints scores and verdict, draws the plot.

    Raises:
        SystemExit: if anything differs, or if the model diverged.
    """
    if not np.isfinite(session.predictions).all():
        sys.exit("%s diverged; give a lower --learning-rate" % settings.optimizer)
    names = ["Session", "Keras"]
    predictions = [session.predictions, keras_run.predictions]
    print(format_table(metrics_table(flights, predictions, names)))
    difference = first_difference(session, keras_run, arguments.batch_size)
    verdict = "equal bit for bit" if difference is None else "not equal"
    png = os.path.join(arguments.out, "session_and_keras.png")
    title = "Late arrivals 2013, %s in a Session and in Keras: %s" % (settings.optimizer, verdict)
    write_plot(png, flights, (session, keras_run), title)
    print("Wrote %s." % png)
    if difference is not None:
        sys.exit("Session and Keras differ. " + difference)
    print(
        "Session and Keras are equal bit for bit: %d predictions, %d variables and %d slots (%d "
        "numbers)."
        % (
            len(session.predictions),
            len(session.variables),
            len(session.slots),
            sum(value.size for part in session[1:] for value in part.values()),
        )
    )


if __name__ == "__main__":
    # One thread within an op: float sums in one order, hence reproducible numbers.
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
    main()
