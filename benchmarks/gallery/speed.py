"""Measures the time of a step with stock Adam, with composed rules, and with native kernels.

python -m benchmarks.gallery.speed FOLDER     on each TensorFlow
python -m benchmarks.gallery.speed FOLDER collect

The workloads are those of benchmarks/: W1, a matrix of 10 M floats, and W3, 4,096 ids of a table of
1 M x 16 floats.
"""

import json
import os
import sys
from pathlib import Path

from benchmarks.gallery.files import write

OPTIMIZERS = ("LazyAdam", "AdamW", "Nadam", "DiffGrad")
STOCK = "stock Adam"
WORKLOADS = ("W1", "W3")
ROUNDS = int(os.environ.get("GALLERY_ROUNDS", "15"))


def measure(folder):
    """Writes a JSON file with the median times of this TensorFlow."""
    import tensorflow as tf

    from benchmarks import timing, workloads
    from benchmarks.optimizers import MAKERS

    sizes = {each.name: each for each in workloads.WORKLOADS}
    names = [STOCK, *OPTIMIZERS, *(f"{name}, native" for name in (STOCK, *OPTIMIZERS))]
    found = {}
    for workload in WORKLOADS:
        contestants = {}
        for name in names:
            make = MAKERS.get(name) or native(MAKERS[name.partition(",")[0]])
            contestants[name] = workloads.Contestant(sizes[workload], make, use_resource=True)
        steps = {name: each.step for name, each in contestants.items()}
        found[workload] = {
            name: round(1e3 * timing.Spread.of(each).median, 3)
            for name, each in timing.alternate(steps, ROUNDS).items()
        }
        for each in contestants.values():
            each.close()
    Path(folder).mkdir(parents=True, exist_ok=True)
    text = json.dumps({"tensorflow": tf.__version__, "milliseconds": found})
    (Path(folder) / f"{tf.__version__}.json").write_text(text)
    print(text)


def native(make):
    """Returns the function that makes the same optimizer with native kernels."""
    import legacy_opt

    return lambda step: legacy_opt.native.accelerate(make(step), require=True)


def collect(folder):
    """Writes speed.json."""
    found = [json.loads(path.read_text()) for path in Path(folder).glob("*.json")]
    found.sort(key=lambda each: [int(part) for part in each["tensorflow"].split(".")])
    write(
        "speed",
        {
            "what": "median milliseconds of a step of the optimizer alone, resource variables in a "
            "Session; W1: one matrix of 10 M floats; W3: 4,096 ids of a table of 1 M x 16 floats",
            "note": os.environ.get("GALLERY_NOTE", ""),
            "processors": os.cpu_count(),
            "versions": {each["tensorflow"]: each["milliseconds"] for each in found},
        },
    )


if __name__ == "__main__":
    (collect if sys.argv[2:] else measure)(sys.argv[1])
