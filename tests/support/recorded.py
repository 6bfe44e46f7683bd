"""Reads and writes trajectories of third-party optimizers recorded on TensorFlow 1.15.

A trajectory has the values of all variables after 1, 8 and 24 training steps.
`tests/tools/record_originals.py` writes the files `recorded_*.npz` in tests/data. The gradients
are those of `problems.everything`, in float32.
"""

import ast
import glob
import os
from typing import NamedTuple

import numpy as np

from tests.support import problems
from tests.tools.record_data import DATA

STEPS = 24
SNAPSHOTS_AFTER = (1, 8, STEPS)  # the numbers of steps after which all variables were recorded


class Recorded(NamedTuple):
    """One optimizer's trajectory.

    Attributes:
      name: the name of the case in `tests.support.cases` that has the same arguments.
      arguments: the repr of a dict of those arguments that are numbers or strings.
      trained: the names of the variables that were trained.
      snapshots: for each of `SNAPSHOTS_AFTER`, a dict {name of a variable in a checkpoint: value}.
    """

    name: str
    arguments: str
    trained: tuple
    snapshots: tuple

    def problem(self):
        return problems.everything("float32", self.trained, STEPS)


def argument_text(arguments):
    """Returns the arguments that are numbers or strings, as the repr of a dict."""
    kept = {key: arguments[key] for key in sorted(arguments)}
    return repr(
        {key: value for key, value in kept.items() if isinstance(value, (bool, float, int, str))}
    )


def save(path, recorded):
    """Writes a list of `Recorded` into one file."""
    arrays = {}
    for each in recorded:
        shapes = {name: value.shape for name, value in each.snapshots[0].items()}
        dtypes = {name: str(value.dtype) for name, value in each.snapshots[0].items()}
        about = repr((each.arguments, each.trained, shapes, dtypes))
        arrays[each.name + "/about"] = np.array(about)
        # All values are in one array, because each array adds a few hundred bytes to the file.
        # float32 represents the integer slots exactly, because they are small counts.
        arrays[each.name + "/values"] = np.stack(
            [np.concatenate([np.ravel(v) for v in m.values()]).astype("f") for m in each.snapshots]
        )
    np.savez_compressed(path, **arrays)


def load():
    """Returns all recorded trajectories by name."""
    found = {}
    for path in sorted(glob.glob(os.path.join(DATA, "recorded_*.npz"))):
        with np.load(path) as file:
            names = [key[: -len("/about")] for key in file.files if key.endswith("/about")]
            for name in names:
                about, values = str(file[name + "/about"]), file[name + "/values"]
                found[name] = _recorded(name, about, values)
    return found


def _recorded(name, about, values):
    arguments, trained, shapes, dtypes = ast.literal_eval(about)
    snapshots = []
    for row in values:
        snapshot, start = {}, 0
        for variable, shape in shapes.items():
            end = start + int(np.prod(shape))
            snapshot[variable] = row[start:end].reshape(shape).astype(dtypes[variable])
            start = end
        snapshots.append(snapshot)
    return Recorded(name, arguments, trained, tuple(snapshots))
