"""Measures the optimizers against TensorFlow's own and holds the ratios beside the goals.

    python benchmarks/run.py
    python benchmarks/run.py --quick --only W1,W3 --json /tmp/speed.json

Prints a table of the ratios (`measuring` tells how they are taken, `workloads` on what), writes
the same as JSON, and ends with exit code 0 whatever the figures say. W4 needs about 7 GB of memory
at a time. Ratios from a busy machine are worth little; "stock Adagrad again", which should be 1,
shows how far they go by chance. How much a step takes longer on W4 than on W3 depends on the
processor's caches too, as the line of the stock optimizer tells.
"""

import argparse
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
if not __package__:  # run as a script: find this package and legacy_opt in the checkout
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

import tensorflow as tf

from benchmarks import measuring, optimizers, report, workloads


def parse_arguments(argv=None):
    """Returns the command line as a namespace."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--json", default="benchmark.json", metavar="PATH", help="where to write (%(default)s)")
    add("--quick", action="store_true", help="a glance: W1 to W3, resource, few rounds")
    add("--only", type=_workload_names, metavar="W1,W3", help="only these workloads")
    add("--repeats", type=_positive, metavar="N", help="rounds per workload (25; quick: 7)")
    add("--scale-down", type=_positive, default=1, metavar="N", help="N times smaller workloads")
    return parser.parse_args(argv)


def _positive(text):
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError("%r is no whole number above 0" % text)
    return int(text)


def _workload_names(text):
    known = [workload.name for workload in workloads.WORKLOADS]
    names = text.upper().split(",")
    for name in names:
        if name not in known:
            raise argparse.ArgumentTypeError("%r is none of %s" % (name, ", ".join(known)))
    return names


def comparisons(workload):
    """Tells what is compared on a workload.

    Args:
      workload: the workload.

    Returns:
      A list of triples: a contestant and the one that it is compared with, both as (workload's
      name, optimizer's name), and the goal or None.
    """
    name = workload.name
    entries = [entry for entry in optimizers.ENTRIES if name in entry.goals]
    found = [((name, entry.name), (name, entry.stock), entry.goals[name]) for entry in entries]
    if workload.grown_from:
        growing = [entry for entry in entries if entry.growth]
        goals = {entry.stock: None for entry in growing}
        goals.update({entry.name: entry.growth for entry in growing})
        for optimizer, goal in goals.items():
            found.append(((name, optimizer), (workload.grown_from, optimizer), goal))
    return found


def measure(workload, variables, sizes, rounds):
    """Measures all optimizers that take part in a workload, on one kind of variables.

    Args:
      workload: the workload.
      variables: "ref" or "resource".
      sizes: a dict of all workloads by name.
      rounds: how many blocks of steps each of them gets.

    Returns:
      A list of `report.Result` and a list of `report.State`.
    """
    planned = comparisons(workload)
    contestants = {}
    try:
        for key in [key for one, other, _ in planned for key in (other, one)]:
            if key not in contestants:
                contestants[key] = workloads.Contestant(
                    sizes[key[0]], optimizers.MAKERS[key[1]], variables == "resource"
                )
        times = measuring.alternate(
            {key: contestant.step for key, contestant in contestants.items()}, rounds
        )
    finally:
        for contestant in contestants.values():
            contestant.close()
    results = []
    for one, other, goal in planned:
        to = other[1] if one[0] == other[0] else "itself on " + other[0]
        milliseconds = measuring.Spread.of(1e3 * times[one])
        ratio = measuring.Spread.of(times[one] / times[other])
        results.append(report.Result(one[0], variables, one[1], to, milliseconds, ratio, goal))
    states = [
        report.State(key[0], contestant.optimizer, contestant.state_bytes)
        for key, contestant in contestants.items()
        if key[0] == workload.name
    ]
    return results, states


def main(argv=None):
    """Runs the benchmarks and returns the exit code, which is 0."""
    arguments = parse_arguments(argv)
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
    rounds = arguments.repeats or (7 if arguments.quick else 25)
    sizes = {
        workload.name: workload.scaled_down(arguments.scale_down)
        for workload in workloads.WORKLOADS
    }
    facts = dict(report.environment(), rounds=rounds, scale_down=arguments.scale_down)
    results, states = [], []
    names = arguments.only or [
        name for name, size in sizes.items() if not (arguments.quick and size.grown_from)
    ]
    for name in names:
        for variables in ("resource",) if arguments.quick else ("ref", "resource"):
            print(
                "%s (%s), %s variables ..." % (name, sizes[name].about, variables), file=sys.stderr
            )
            measured, kept = measure(sizes[name], variables, sizes, rounds)
            results += measured
            states += kept
    print(", ".join("%s: %s" % item for item in facts.items()))
    print("\n" + report.results_table(results))
    states = report.without_repeats(states)
    print("\n" + report.states_table(states))
    report.save_json(arguments.json, results, states, facts)
    print("\nThe same as JSON: %s" % os.path.abspath(arguments.json))
    return 0


if __name__ == "__main__":
    sys.exit(main())
