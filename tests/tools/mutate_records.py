"""Damages records at random. Each must be refused in one line, or train within bounds.

    python -m tests.tools.mutate_records --seeds 1000

The program fails if a damaged record raises another error than RecordError, or takes longer or more
memory than a record may.
"""

import argparse
import json
import random
import resource
import sys
import time

import numpy as np

from legacy_opt import recorded
from legacy_opt.recorded.numpy import NumpyOptimizer, Rows

SECONDS = 5.0
VALUES = [
    None,
    True,
    -1,
    0,
    3,
    1 << 70,
    1e400,
    "",
    "nan",
    "inf",
    "0x1p+1",
    "a" * 2000,
    [],
    {},
    [[]],
]
VALUES += ["Input", "Const", "Exec", "__import__", "float64", "element", "scalar", "matrix_row"]


def places(value, found=None):
    """Returns all (container, key) of a document."""
    found = [] if found is None else found
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in items:
        found.append((value, key))
        if isinstance(each, (dict, list)):
            places(each, found)
    return found


def damaged(document, draw):
    """Changes a document at one to three places, and returns it as text."""
    for _ in range(draw.randint(1, 3)):
        container, key = draw.choice(places(document))
        way = draw.randrange(4)
        if way == 0:
            container[key] = draw.choice(VALUES)
        elif way == 1 and isinstance(container, dict):
            container[draw.choice(["x", "nodes", "Const"])] = container.pop(key)
        elif way == 2:
            other, its_key = draw.choice(places(document))
            container[key] = json.loads(json.dumps(other[its_key]))
        elif isinstance(container, list):
            del container[key]
        if not places(document):
            break
    text = json.dumps(document)
    if draw.random() < 0.2:
        cut = draw.randrange(len(text))
        text = text[:cut] + draw.choice(["", "[", '"', "\0"]) + text[cut + draw.randint(0, 9) :]
    return text


def train(record):
    """Trains two steps with dense and sparse gradients."""
    weights = {"w": np.ones([4, 3], record.dtype), "b": np.ones([3], record.dtype)}
    given = {name: 0.1 for name, each in record.hyperparameters.items() if each.value is None}
    optimizer = NumpyOptimizer(record, weights, **given)
    rows = Rows(np.array([1, 1]), np.ones([2, 3], record.dtype))
    for gradient in np.ones([4, 3], record.dtype), rows:
        optimizer.step({"w": gradient, "b": np.ones([3], record.dtype)})


def main(seeds):
    """Returns whether all damaged records were refused, or trained."""
    texts = [path.read_text(encoding="utf-8") for path in recorded.catalogue().values()]
    refused = failures = 0
    for seed in range(seeds):
        draw = random.Random(seed)
        text = damaged(json.loads(draw.choice(texts)), draw)
        started = time.time()
        try:
            train(recorded.loads(text))
        except recorded.RecordError as error:
            refused += 1
            problem = "several lines" if "\n" in str(error) else ""
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        else:
            problem = ""
        if time.time() - started > SECONDS:
            problem = f"{time.time() - started:.0f} seconds"
        if problem:
            failures += 1
            print(f"seed {seed}: {problem[:200]}")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"{seeds} damaged records: {refused} refused, {failures} failures, {memory} MB at most")
    return not failures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    sys.exit(not main(parser.parse_args().seeds))
