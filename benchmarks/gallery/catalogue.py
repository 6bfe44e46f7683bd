"""Trains the flights model with each optimizer of compare_optimizers.py, for one picture each.

python -m benchmarks.gallery.catalogue                   all optimizers
python -m benchmarks.gallery.catalogue LAMB LazyAdam     these; the others keep their entries
"""

import sys

import numpy as np
import tensorflow.compat.v1 as tf

from benchmarks.gallery.files import block_means, read, write
from compare_optimizers import WARM_UP_STEPS, scored
from flights.data import load_flights
from flights.model import Settings, loss_per_flight
from flights.optimizers import CATALOGUE
from flights.report import score
from flights.training import Trainer

BLOCKS = 128  # points of each curve
BATCH = 64


def class_name(name):
    """Returns the name of the optimizer's class; `name` is a key of `CATALOGUE`."""
    base, version = (name[:-2], "V2") if name.endswith("V2") else (name, "")
    return f"{base}Optimizer{version}"


def train(flights, name):
    """Trains once on all flights; returns the optimizer's entry of the file."""
    choice = CATALOGUE[name]
    trainer = Trainer(flights, {name: Settings(name, choice.learning_rate)}, BATCH)
    (predictions,) = trainer.train_once(f"{name:<16}")
    inside, _ = scored(flights)
    parameters = sum(each.shape.num_elements() for each in trainer.towers[0].variables)
    return {
        "own": not choice.stock,
        "learning_rate": choice.learning_rate,
        "log_loss": round(score(flights.late[inside], predictions[inside])[0], 5),
        "state_per_parameter": round(trainer.state_bytes() / 4 / parameters, 3),
        "milliseconds": round(1e3 * float(np.median(trainer.step_seconds[WARM_UP_STEPS:])), 3),
        "losses": block_means(loss_per_flight(flights.late, predictions), BLOCKS)[0],
    }


def main(names=()):
    """Writes catalogue.json.

    Args:
      names: keys of `CATALOGUE`: the optimizers to train; the others keep their entries. By
        default, all are trained.
    """
    flights = load_flights()
    _, middles = block_means(flights.late, BLOCKS)
    _, period = scored(flights)
    optimizers = read("catalogue")["optimizers"] if names else {}
    optimizers.update((class_name(name), train(flights, name)) for name in names or CATALOGUE)
    write(
        "catalogue",
        {
            "what": f"{flights.size:,} flights in batches of {BATCH}, TensorFlow {tf.__version__}; "
            f"log_loss: {period}",
            "days": [str(flights.time[each])[:10] for each in middles],
            "optimizers": optimizers,
        },
    )


if __name__ == "__main__":
    tf.disable_v2_behavior()
    tf.logging.set_verbosity(tf.logging.ERROR)
    main(sys.argv[1:])
