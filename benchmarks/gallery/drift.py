"""Measures how far trainings of two TensorFlow versions drift apart, and what one bit changes.

python -m benchmarks.gallery.drift train FOLDER     on the old TensorFlow, then on the new one
python -m benchmarks.gallery.drift compare FOLDER   after both

All trainings start from the same values, and train on the same batches. The first process writes
the values to the folder. On the newest TensorFlow, one more Session starts with one flipped bit
(the lowest bit of one weight), and one training runs in Keras with `to_keras`.
"""

import dataclasses
import os
import sys

import numpy as np

from benchmarks.gallery.files import write

STEPS, BATCH, BLOCK = 3000, 64, 20
ACTIVATIONS = ("softsign", "relu")
OPTIMIZER = "AdagradDecay"
FLIPPED = ("hidden_weights", (0, 0))


def settings_of(activation):
    """Returns the `Settings` of all trainings with an activation."""
    from flights.model import LEARNING_RATES, Settings

    return Settings(OPTIMIZER, LEARNING_RATES[OPTIMIZER], activation=activation)


def in_session(flights, activation, start=None):
    """Trains in a Session; returns the predictions, and the values at the start and at the end."""
    from flights.training import with_ref_variables

    settings = settings_of(activation)
    trainer = with_ref_variables(flights, {settings.optimizer: settings}, BATCH)
    variables, predictions = trainer.named_variables(), trainer.new_predictions()
    with trainer.session() as session:
        session.run(trainer.initializer)
        if start is None:
            start = session.run(variables)
        for name, variable in variables.items():
            variable.load(start[name], session)
        trainer.train(session, predictions, 0, trainer.steps, label=activation)
        return dict(session.run(variables), predictions=predictions[0]), start


def in_keras(flights, activation, start):
    """Trains with `fit` and `to_keras`; returns the predictions and the values at the end."""
    from flights.keras_model import fit, keras, new_model, set_weights, state_of
    from flights.model import build_optimizer
    from legacy_opt.compat import to_keras

    keras.backend.clear_session()
    settings = dataclasses.replace(settings_of(activation))
    model = new_model(flights, settings)
    set_weights(model, start)
    optimizer = to_keras(build_optimizer(settings, global_step=None))
    predictions = fit(model, optimizer, flights, BATCH)
    return dict(state_of(model, optimizer), predictions=predictions)


def with_flipped_bit(start):
    """Returns the values with the lowest bit of one weight flipped."""
    name, place = FLIPPED
    values = np.array(start[name])
    values.view(np.uint32)[place] ^= 1
    return dict(start, **{name: values})


def train(folder):
    """Runs the trainings of this TensorFlow."""
    import tensorflow as tf

    from flights.data import load_flights, read_flights

    tf.config.threading.set_intra_op_parallelism_threads(1)
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "flights.npz")
    is_first = not os.path.exists(path)
    if is_first:
        load_flights().first(STEPS * BATCH).save(path)
    flights = read_flights(path)
    version = np.array(tf.__version__)
    for activation in ACTIVATIONS:

        def save(name, run, activation=activation):
            np.savez(os.path.join(folder, f"{activation} {name}.npz"), version=version, **run)

        if is_first:
            run, start = in_session(flights, activation)
            save("start", start)
            save("old", run)
            continue
        start = load(folder, activation, "start")
        del start["version"]
        save("new", in_session(flights, activation, start)[0])
        save("flipped", in_session(flights, activation, with_flipped_bit(start))[0])
        save("keras", in_keras(flights, activation, start))


def load(folder, activation, name):
    """Returns the arrays of a training."""
    with np.load(os.path.join(folder, f"{activation} {name}.npz")) as file:
        return dict(file)


def compare(folder):
    """Writes drift.json."""
    found = {}
    for activation in ACTIVATIONS:
        runs = {name: load(folder, activation, name) for name in ("old", "new", "flipped", "keras")}
        reference = runs["new"]
        found[activation] = distances = {}
        for name in ("old", "flipped", "keras"):
            gap = np.abs(np.float64(runs[name]["predictions"]) - reference["predictions"])
            gap = gap.reshape(-1, BLOCK * BATCH).max(1)
            distances[name] = [float(f"{each:.3g}") for each in gap]
        different = [
            name
            for name, value in reference.items()
            if name != "version" and not np.array_equal(value, runs["keras"][name])
        ]
        distances["different_in_keras"] = different
    write(
        "drift",
        {
            "what": f"{OPTIMIZER}, {STEPS:,} steps of {BATCH} flights; largest difference of a "
            f"predicted probability in each {BLOCK} steps",
            "old": str(runs["old"]["version"]),
            "new": str(reference["version"]),
            "steps": BLOCK,
            "distances": found,
        },
    )


if __name__ == "__main__":
    {"train": train, "compare": compare}[sys.argv[1]](*sys.argv[2:])
