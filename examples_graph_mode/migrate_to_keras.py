"""Migrates the model of `flights_session.py` to tf.keras, and checks that no result changes.

    python examples_graph_mode/migrate_to_keras.py

The model is trained twice on the same flights, in the same order and from the same initial values:
first in a TF1 graph and Session, as in flights_session.py, then as a Keras model with `compile` and
`fit`. Both trainings use the same TF1 optimizer; for `fit`, `to_keras` converts the optimizer to
`tf.keras`. (`tf.keras` is Keras 3 from TensorFlow 2.16 on, and Keras 2 before.) In both trainings,
the model predicts each batch before it trains on the batch.

Then all predictions, variables and slots of the two trainings are compared with np.array_equal. The
exit code is 0 if all are equal. Otherwise it is 1, and the first difference is printed.

The plot session_and_keras.png is written to the output directory.
"""

import os
import sys
import time

import numpy as np
import pandas as pd
import tensorflow as tf
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from flights.arguments import one_optimizer_parser, one_optimizer_settings, positive_int
from flights.data import load_flights
from flights.keras_model import KERAS, fit, new_model, run_of, set_weights
from flights.model import build_optimizer
from flights.report import WINDOW, format_table, loss_per_flight, metrics_table
from flights.run_comparison import first_difference, make_trainer, run_of_session
from flights.training import replacing
from legacy_opt.compat import to_keras


def train_in_session(flights, settings, batch_size):
    """Trains in a TF1 graph and a Session.

    Returns:
      The `Run` (predictions, variables and slots), and the variables' initial values as a dict of
      arrays.
    """
    trainer = make_trainer(flights, settings, batch_size)
    predictions = trainer.new_predictions()
    with trainer.session() as session:
        session.run(trainer.initializer)
        start = run_of_session(None, trainer, session).variables
        trainer.train(session, predictions, 0, trainer.steps, label="Session")
        return run_of_session(predictions[0], trainer, session), start


def train_in_keras(flights, settings, batch_size, start):
    """Trains with `fit` from the initial values `start`; returns the `Run`."""
    model = new_model(flights, settings)
    set_weights(model, start)
    # No global step is passed, because `to_keras` uses Keras' `iterations` instead.
    optimizer = to_keras(build_optimizer(settings, global_step=None))
    predictions = fit(model, optimizer, flights, batch_size, label="Keras")
    return run_of(predictions, model, optimizer)


def write_plot(path, flights, runs, title):
    """Plots the running log-loss of both trainings in one diagram.

    Args:
      path: the path of the PNG.
      flights: `Flights`.
      runs: the `Run`s of Session and Keras.
      title: the title of the plot.
    """
    window = max(1, min(WINDOW, flights.size // 10))
    shown = slice(window - 1, None, max(1, flights.size // 4000))
    styles = [
        dict(color="gold", linewidth=7, label="TF1 graph in a Session"),
        dict(color="black", linewidth=1.5, linestyle=(0, (4, 3)), label=KERAS + ", model.fit"),
    ]
    figure = Figure(figsize=(11, 5.5))
    FigureCanvasAgg(figure)  # pyplot is not used, because it may look for a display
    axes = figure.subplots()
    for run, style in zip(runs, styles):
        loss = loss_per_flight(flights.late, run.predictions)
        running = pd.Series(loss).rolling(window).mean().to_numpy()
        axes.plot(flights.time[shown], running[shown], **style)
    axes.set_title(title)
    axes.set_ylabel(f"log-loss, mean of the last {window:,} flights")
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
        "--steps", type=positive_int, help="stop after so many steps (default: the whole year)"
    )
    return parser.parse_args(argv)


def main(argv=None):
    """Runs the example.

    Raises:
      SystemExit: if the results of the trainings differ, or if the model diverged.
    """
    arguments = parse_arguments(argv)
    os.makedirs(arguments.out, exist_ok=True)
    begin = time.time()
    flights = load_flights()
    if arguments.steps:
        flights = flights.first(arguments.steps * arguments.batch_size)
    settings = one_optimizer_settings(arguments)
    print(f"{flights.size} flights; TensorFlow {tf.__version__}, {KERAS}.")
    session, start = train_in_session(flights, settings, arguments.batch_size)
    keras_run = train_in_keras(flights, settings, arguments.batch_size, start)
    report(flights, settings, session, keras_run, arguments)
    print(f"{time.time() - begin:.0f} s.")


def report(flights, settings, session, keras_run, arguments):
    """Prints scores and the result of the comparison, and writes the plot.

    Raises:
      SystemExit: if the results of the trainings differ, or if the model diverged.
    """
    if not np.isfinite(session.predictions).all():
        sys.exit(f"{settings.optimizer} diverged; give a lower --learning-rate")
    names = ["Session", "Keras"]
    predictions = [session.predictions, keras_run.predictions]
    print(format_table(metrics_table(flights, predictions, names)))
    difference = first_difference(session, keras_run, arguments.batch_size)
    verdict = "equal bit for bit" if difference is None else "not equal"
    png = os.path.join(arguments.out, "session_and_keras.png")
    title = f"Late arrivals 2013, {settings.optimizer} in a Session and in Keras: {verdict}"
    write_plot(png, flights, (session, keras_run), title)
    print(f"Wrote {png}.")
    if difference is not None:
        sys.exit("Session and Keras differ. " + difference)
    print(
        f"Session and Keras are equal bit for bit: {len(session.predictions)} predictions, "
        f"{len(session.variables)} variables and {len(session.slots)} slots "
        f"({sum(value.size for part in session[1:] for value in part.values())} numbers)."
    )


if __name__ == "__main__":
    # With one thread per operation, both trainings add floats in the same order.
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
    main()
