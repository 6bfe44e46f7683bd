"""Reads and writes the files that pass results from one stage of the migration to later stages.

The folder of a `Story` contains::

    story.json, flights.npz                     the training data of all stages
    Adagrad/checkpoints/Jan-Jun/model.ckpt.*    the state at the end of a period
    Adagrad/moved/Jul-Aug.npz                   the migrated training: a `Run` of one period
    Adagrad/never moved/Jul-Aug.npz             the training without migration: a `Run`, too
    Adagrad/rows/1 2.21.0 Keras 3.15.1.json     the row of stage A (number 1) in the table

A `Run` has the predictions, variables and slots of a training.
"""

import dataclasses
import json
import os
from typing import NamedTuple

import numpy as np

from flights.data import Flights
from flights.run_comparison import Run
from flights.training import replacing

LAST_MONTHS = {"Jan-Jun": 6, "Jul-Aug": 8, "Sep-Oct": 10, "Nov-Dec": 12}
STAYED, NUDGED, MOVED, SESSION = "never moved", "nudged", "moved", "Session"
ARRAYS = ("ids", "dense", "late", "month", "time")


class Period(NamedTuple):
    """A part of the year: the training steps in `range(start, stop)`."""

    name: str
    start: int
    stop: int

    @property
    def steps(self):
        """The number of steps."""
        return self.stop - self.start


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
        """Writes a `Run` of a period; `who` is the name of the training, such as `MOVED`."""
        arrays = {"predictions": run.predictions}
        arrays.update(("variables/" + name, value) for name, value in run.variables.items())
        arrays.update(("slots/{}/{}".format(*key), value) for key, value in run.slots.items())
        with replacing(self.path(optimizer, who, period.name + ".npz")) as temporary:
            np.savez(temporary, **arrays)

    def load_run(self, optimizer, who, period):
        """Reads a `Run` that `save_run` has written."""
        run = Run(None, {}, {})
        with np.load(self.path(optimizer, who, period.name + ".npz")) as file:
            for key in file.files:
                kind, _, name = key.partition("/")
                if kind == "predictions":
                    run = run._replace(predictions=file[key])
                else:
                    getattr(run, kind)[tuple(name.split("/")) if "/" in name else name] = file[key]
        return run

    def save_row(self, optimizer, name, row):
        """Writes the dict `row`, the results of a stage."""
        with replacing(self.path(optimizer, "rows", name + ".json")) as temporary, open(
            temporary, "w"
        ) as file:
            json.dump(row, file, indent=2)

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
        arrays = {name: getattr(flights, name) for name in ARRAYS}
        np.savez(temporary, vocabulary_size=flights.vocabulary_size, **arrays)
    with replacing(os.path.join(story.directory, "story.json")) as temporary, open(
        temporary, "w"
    ) as file:
        json.dump(dataclasses.asdict(story), file, indent=2)


def read_story(directory):
    """Returns the `Story` of a folder and its `Flights`."""
    with open(os.path.join(directory, "story.json"), encoding="utf-8") as file:
        saved = json.load(file)
    saved["directory"] = directory
    saved["periods"] = tuple(Period(*period) for period in saved["periods"])
    with np.load(os.path.join(directory, "flights.npz")) as file:
        arrays = {name: file[name] for name in ARRAYS}
        flights = Flights(vocabulary_size=int(file["vocabulary_size"]), **arrays)
    return Story(**saved), flights


def periods_of(flights, batch_size):
    """Returns the `Period`s; a batch with flights of two periods belongs to the earlier period."""
    periods, start = [], 0
    for name, last_month in LAST_MONTHS.items():
        stop = -(-int(np.sum(flights.month <= last_month)) // batch_size)
        periods.append(Period(name, start, stop))
        start = stop
    return tuple(periods)
