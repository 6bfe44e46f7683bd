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
import tensorflow as tf

from flights.arguments import one_optimizer_parser, one_optimizer_settings, positive_int
from flights.data import load_flights
from flights.keras_model import KERAS, fit, new_model, set_weights, state_of
from flights.model import build_optimizer
from flights.report import format_table, metrics_table, write_plot
from flights.training import first_difference, with_ref_variables
from legacy_opt.compat import to_keras

STYLES = {
    "Session": dict(color="gold", linewidth=7),
    "Keras": dict(color="black", linewidth=1.5, linestyle=(0, (4, 3))),
}


def train_in_session(flights, settings, batch_size):
    """Trains in a TF1 graph and a Session.

    Returns:
      The results (predictions, variables and slots) and the initial values, as dicts of arrays.
    """
    trainer = with_ref_variables(flights, {settings.optimizer: settings}, batch_size)
    predictions = trainer.new_predictions()
    with trainer.session() as session:
        session.run(trainer.initializer)
        start = session.run(trainer.named_variables())
        trainer.train(session, predictions, 0, trainer.steps, label="Session")
        return dict(session.run(trainer.named_variables()), predictions=predictions[0]), start


def train_in_keras(flights, settings, batch_size, start):
    """Trains with `fit` from the initial values `start`; returns the results."""
    model = new_model(flights, settings)
    set_weights(model, start)
    # No global step is passed, because `to_keras` uses Keras' `iterations` instead.
    optimizer = to_keras(build_optimizer(settings, global_step=None))
    predictions = fit(model, optimizer, flights, batch_size, label="Keras")
    return dict(state_of(model, optimizer), predictions=predictions)


def main(argv=None):
    """Runs the example.

    Raises:
      SystemExit: if the results of the trainings differ, or if the model diverged.
    """
    parser = one_optimizer_parser(__doc__, "flights_keras_out")
    steps = "stop after so many steps (default: the whole year)"
    parser.add_argument("--steps", type=positive_int, help=steps)
    arguments = parser.parse_args(argv)
    os.makedirs(arguments.out, exist_ok=True)
    begin = time.time()
    flights = load_flights()
    if arguments.steps:
        flights = flights.first(arguments.steps * arguments.batch_size)
    settings = one_optimizer_settings(arguments)
    print(f"{flights.size} flights; TensorFlow {tf.__version__}, {KERAS}.")
    session, start = train_in_session(flights, settings, arguments.batch_size)
    keras = train_in_keras(flights, settings, arguments.batch_size, start)
    report(flights, settings, session, keras, arguments.out)
    print(f"{time.time() - begin:.0f} s.")


def report(flights, settings, session, keras, folder):
    """Prints scores and the result of the comparison, and writes the plot.

    Raises:
      SystemExit: if the results of the trainings differ, or if the model diverged.
    """
    predictions = {"Session": session["predictions"], "Keras": keras["predictions"]}
    if not np.isfinite(predictions["Session"]).all():
        sys.exit(f"{settings.optimizer} diverged; give a lower --learning-rate")
    print(format_table(metrics_table(flights, predictions)))
    png = os.path.join(folder, "session_and_keras.png")
    title = f"Late arrivals 2013, {settings.optimizer} in a Session and in {KERAS}"
    write_plot(png, flights, predictions, STYLES, title)
    print(f"Wrote {png}.")
    difference = first_difference(session, keras)
    if difference:
        sys.exit(f"Session and Keras differ in {difference}.")
    print(
        f"Session and Keras are equal bit for bit: {flights.size} predictions and "
        f"{len(session) - 1} variables and slots."
    )


if __name__ == "__main__":
    # With one thread per operation, both trainings add floats in the same order.
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
    main()
