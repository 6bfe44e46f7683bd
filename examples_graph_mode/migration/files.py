"""Reads and writes the files that pass results from one stage of the migration to later stages.

The folder of a `Story` contains::

    story.json, flights.npz                     the training data of all stages
    Adagrad/checkpoints/Jan-Jun/model.ckpt.*    the state at the end of a period
    Adagrad/moved/Jul-Aug.npz                   a period of the migrated training
    Adagrad/never moved/Jul-Aug.npz             a period of the training without migration
    Adagrad/rows/1 2.21.0 Keras 3.15.1.json     the row of stage A (number 1) in the table

The file of a period has the predictions, and the variables and slots at the end of the period, with
the names of `Trainer.named_variables`. In Python it is a dict of arrays.
"""

import dataclasses
import json
import os
from typing import NamedTuple

import numpy as np

from flights.data import read_flights
from flights.training import replacing, write_json

LAST_MONTHS = {"Jan-Jun": 6, "Jul-Aug": 8, "Sep-Oct": 10, "Nov-Dec": 12}
STAYED, NUDGED, MOVED, SESSION = "never moved", "nudged", "moved", "Session"


class Period(NamedTuple):
    """A part of the year: the training steps in `range(start, stop)`."""

    name: str
    start: int
    stop: int


@dataclasses.dataclass(frozen=True)
class Story:
    """A run of migration_story.py: the folder, the batch size and the periods.

    Attributes:
      directory: the folder.
      batch_size: the number of flights per step.
      periods: tuple of `Period`, in time order.
    """

    directory: str
    batch_size: int
    periods: tuple

    def path(self, optimizer, *names):
        """Returns a path in an optimizer's folder, and creates missing folders."""
        path = os.path.join(self.directory, optimizer, *names)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return path

    def period(self, name):
        """Returns a period and its predecessor (of the first period: the last period)."""
        number = [period.name for period in self.periods].index(name)
        return self.periods[number], self.periods[number - 1]

    def checkpoint(self, optimizer, period):
        """Returns the path of the checkpoint at the end of a period."""
        return self.path(optimizer, "checkpoints", period.name, "model.ckpt")

    def flights_of(self, flights, period):
        """Returns the flights of a period."""
        first, last = (step * self.batch_size for step in (period.start, period.stop))
        return flights.first(last).after(first)

    def save_run(self, run, optimizer, who, period):
        """Writes the results of a period; `who` is the name of the training, such as `MOVED`."""
        with replacing(self.path(optimizer, who, period.name + ".npz")) as temporary:
            np.savez(temporary, **run)

    def load_run(self, optimizer, who, period):
        """Reads the results that `save_run` has written."""
        with np.load(self.path(optimizer, who, period.name + ".npz")) as file:
            return dict(file)

    def save_row(self, optimizer, name, row):
        """Writes the dict `row`, the results of a stage."""
        write_json(self.path(optimizer, "rows", name + ".json"), row)

    def load_rows(self, optimizer):
        """Returns the results of all stages, sorted by the names of the rows."""
        rows = []
        directory = os.path.dirname(self.path(optimizer, "rows", ""))
        for name in sorted(os.listdir(directory)):
            with open(os.path.join(directory, name), encoding="utf-8") as file:
                rows.append(json.load(file))
        return rows


def write_story(story, flights):
    """Writes the `Story` and its flights for all stages.

    Each stage reads these arrays. If a stage computed the arrays itself, they could differ in the
    last bits, because the logarithm differs between NumPy versions.
    """
    with replacing(os.path.join(story.directory, "flights.npz")) as temporary:
        flights.save(temporary)
    write_json(os.path.join(story.directory, "story.json"), dataclasses.asdict(story))


def read_story(directory):
    """Returns the `Story` of a folder and its `Flights`."""
    with open(os.path.join(directory, "story.json"), encoding="utf-8") as file:
        saved = json.load(file)
    periods = tuple(Period(*period) for period in saved["periods"])
    flights = read_flights(os.path.join(directory, "flights.npz"))
    return Story(directory, saved["batch_size"], periods), flights


def periods_of(flights, batch_size):
    """Returns the `Period`s; a batch with flights of two periods belongs to the earlier period."""
    periods, start = [], 0
    for name, last_month in LAST_MONTHS.items():
        stop = -(-int(np.sum(flights.month <= last_month)) // batch_size)
        periods.append(Period(name, start, stop))
        start = stop
    return tuple(periods)
