"""Records the accumulators of Adagrad and AdagradDecay over the year of flights.

python -m benchmarks.gallery.accumulator
"""

import sys

import numpy as np
import tensorflow.compat.v1 as tf

from benchmarks.gallery.files import write
from flights.data import load_flights
from flights.model import DECAY_RATE, DECAY_STEP, LEARNING_RATES, Settings
from flights.training import Trainer

NAMES = ("Adagrad", "AdagradDecay")
BATCH, EVERY = 64, 10
HOUR_FIELD, HOUR = 6, 17  # the weight of all flights that are scheduled at 17 h


def main(steps=None):
    """Writes accumulator.json; `steps` is the number of steps, None for the whole year."""
    flights = load_flights()
    if steps:
        flights = flights.first(steps * BATCH)
    hours = flights.time.astype("datetime64[h]").astype(int) % 24
    row = flights.ids[np.argmax(hours == HOUR), HOUR_FIELD]
    share = float(np.mean(flights.ids[:, HOUR_FIELD] == row))
    found = {name: {"dense": [], "row": []} for name in NAMES}
    days = []
    rate = LEARNING_RATES["AdagradDecay"]  # of both, so that only the decay differs
    trainer = Trainer(flights, {name: Settings(name, rate) for name in NAMES}, BATCH)
    slots = {}
    with trainer.graph.as_default():
        for name, tower in zip(NAMES, trainer.towers):
            for variable in tower.variables:
                slots[name, variable.op.name.split("/")[-1]] = tower.optimizer.get_slot(
                    variable, "accumulator"
                )

    def record(step):
        if step % EVERY:
            return
        values = session.run(slots)
        days.append(str(flights.time[step * BATCH - 1])[:13])
        for name in NAMES:
            found[name]["dense"].append(round(float(values[name, "bias"]), 4))
            found[name]["row"].append(round(float(values[name, "wide"][row]), 4))

    with trainer.session() as session:
        session.run(trainer.initializer)
        trainer.train(session, trainer.new_predictions(), 0, trainer.steps, record)
    write(
        "accumulator",
        {
            "what": f"{flights.size:,} flights in batches of {BATCH}, TensorFlow {tf.__version__}, "
            f"learning rate {rate}; AdagradDecay multiplies by {DECAY_RATE} every {DECAY_STEP} "
            f"steps. dense: the accumulator of the bias; row: of the weight in the wide part of "
            f"flights at {HOUR} h, {100 * share:.0f} % of all",
            "days": days,
            "accumulators": found,
        },
    )


if __name__ == "__main__":
    tf.disable_v2_behavior()
    tf.logging.set_verbosity(tf.logging.ERROR)
    main(*map(int, sys.argv[1:]))
