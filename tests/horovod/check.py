"""Trains with Horovod in several processes, and compares the results with those of one process.

    python -m tests.horovod.check [--processes 2] [NAME...]

Each rank has different gradients. A single process without Horovod trains with the means of these
gradients. The program prints a table with a line for each optimizer and way of training. A line
shows whether the variables and slots of all ranks are equal bit for bit, and the largest difference
from the single process, in units in the last place (ulps) of the largest number of a tensor.

Two ranks must equal the single process bit for bit, because a + b equals b + a, and halving is
exact. More ranks may differ, because Horovod adds in a different order, and multiplies by 1/n or
divides by n.
"""

import argparse
import os
import sys
import tempfile

import numpy as np
import tensorflow as tf

from benchmarks import horovod_ranks
from tests.horovod import trainings
from tests.horovod.rank import IN_ESTIMATOR, PAGE
from tests.support.paths import EXAMPLES

sys.path.insert(0, str(EXAMPLES))

from flights.processes import Cluster, end_on_signals

SECONDS = 3600
# The largest allowed difference for more than two ranks. With three ranks, AdagradDecay, LazyAdam,
# Shampoo, LAMB and AddSign differed by at most 386 ulps. If Horovod computed the sum instead of the
# mean, the difference would be millions of ulps.
ULPS_OF_MANY = 1000
NAMES = [
    *trainings.OPTIMIZERS,
    IN_ESTIMATOR + "AdagradDecayOptimizer",
    IN_ESTIMATOR + "MultiOptimizer",
    PAGE,
]
ROW = "%-49s%-27s%-8s%s"


def ulps(actual, expected):
    """Returns the largest difference of two arrays, in ulps of the largest number of `expected`."""
    if np.array_equal(actual, expected):
        return 0.0
    if actual.shape != expected.shape or expected.dtype.kind != "f":
        return float("inf")
    return float(np.max(np.abs(actual - expected)) / np.spacing(np.max(np.abs(expected))))


def compare(ranks, expected):
    """Compares the values of the ranks with one another, and with those of the single process.

    Args:
      ranks: a list of dicts of arrays, one dict for each rank. With an Estimator, the dicts lack
        the values after single steps.
      expected: a dict of arrays, the values of the single process.

    Returns:
      A pair: whether all ranks are equal bit for bit, and the largest difference from `expected` in
      ulps. The difference is infinity if the ranks have other variables.
    """
    final = {key for key in expected if " after step " not in key}
    if any(not final <= set(values) <= set(expected) for values in ranks):
        return False, float("inf")
    first = ranks[0]
    equal = all(
        set(values) == set(first) and all(np.array_equal(values[k], first[k]) for k in first)
        for values in ranks
    )
    return equal, max(ulps(value, expected[key]) for key, value in first.items())


def report(folder, names, processes):
    """Prints the table; returns whether all ranks are equal and no difference is too large."""
    print(ROW % ("optimizer", "way", "ranks", "difference from one process"), flush=True)
    allowed, good = 0 if processes == 2 else ULPS_OF_MANY, True
    for name in names:
        if name == PAGE:
            print(ROW % (PAGE, "the program", "", "ran without error"), flush=True)
            continue
        for way in trainings.WAYS:
            ranks = []
            for rank in range(processes):
                with np.load(os.path.join(folder, f"{name}, {way}, {rank}.npz")) as file:
                    ranks.append(dict(file))
            problem = trainings.problem_of_one_process(processes, way)
            expected = trainings.train(problem, name.replace(IN_ESTIMATOR, ""), way)
            equal, difference = compare(ranks, expected)
            good = good and equal and difference <= allowed
            words = "equal" if equal else "DIFFER", f"{difference:.3g} ulps"
            print(ROW % (name, way, *words), flush=True)
    return good


def main():
    """Runs the check; exits with 1 if a result differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    arguments = parser.parse_args()
    names, processes = arguments.names or NAMES, arguments.processes
    print(f"TensorFlow {tf.__version__}, {processes} processes", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        with horovod_ranks.rendezvous() as port, Cluster(SECONDS, worker=processes) as cluster:
            cluster.start("worker", "-m", "tests.horovod.rank", str(port), folder, *names)
            cluster.wait("worker")
        good = report(folder, names, processes)
    print("equal:", "yes" if good else "no")
    sys.exit(not good)


if __name__ == "__main__":
    end_on_signals()
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
    tf.compat.v1.disable_v2_behavior()
    main()
