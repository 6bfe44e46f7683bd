"""Measures the speed of optimizers relative to TensorFlow's own optimizers.

    python benchmarks/run.py
    python benchmarks/run.py --quick --only W1,W3 --json /tmp/speed.json

    python benchmarks/run.py --only bridge
    python benchmarks/run.py --against ../before

Prints tables of the ratios with their goals, and writes the tables as JSON. A missed goal does not
change the exit code. timing.py explains how ratios are measured. workloads.py describes the
workloads W1 to W4, and keras_bridge.py the workloads B1 to B4. W4 and B4 need up to 9 GB of memory.

Ratios are unreliable if the machine is busy. A row whose name ends in "again" compares an optimizer
with itself. The ratio in this row should be 1; its deviation from 1 is measurement noise.

W4 is W3 with ten times as many rows, and B4 is B3 with ten times as many rows. The report shows how
much the step time of an optimizer grows from W3 to W4 and from B3 to B4. The growth also depends on
the processor's caches, so compare it with the growth of TensorFlow's own optimizer. The growth is
not measured for optimizers that update the whole table in each step, like TensorFlow's Adam.
"""

import argparse
import contextlib
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
if not __package__:  # run as a script: find this package and legacy_opt in the checkout
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

import numpy as np
import tensorflow as tf

import legacy_opt.native
from benchmarks import against, keras_bridge, optimizers, report, timing, workloads
from legacy_opt.native.runtime import tensorflow_operations
from legacy_opt.programs.program import UnsupportedError

WORKLOADS = workloads.WORKLOADS + keras_bridge.WORKLOADS
FUNCTION = "tf.function"  # resource variables that are trained in a tf.function
BY_NAME = "by name"  # resource variables that native kernels find by their names
_MORE_PROCESSES = 3
_LARGE_TABLES = 3  # number of optimizers in memory at a time on W4; each needs up to 2.6 GB


def parse_arguments(argv=None):
    """Returns the command line as a namespace."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "--json",
        default="benchmark.json",
        metavar="PATH",
        help="the JSON file (default: %(default)s)",
    )
    add(
        "--quick",
        action="store_true",
        help="few rounds; without ref variables, tf.function, names, W4 and B4",
    )
    add(
        "--only",
        type=_workload_names,
        metavar="W1,B2",
        help="only these workloads; bridge means B1 to B4",
    )
    add("--against", type=_checkout, metavar="DIR", help="compare with another checkout")
    add(
        "--repeats", type=_positive, metavar="N", help="rounds per workload (default: 25; quick: 7)"
    )
    add("--scale-down", type=_positive, default=1, metavar="N", help="N times smaller workloads")
    return parser.parse_args(argv)


def _checkout(text):
    if not os.path.isdir(os.path.join(text, "legacy_opt")):
        raise argparse.ArgumentTypeError(f"{text!r} is not a checkout: it has no folder legacy_opt")
    return os.path.abspath(text)


def _positive(text):
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive integer")
    return int(text)


def _workload_names(text):
    all_names = [workload.name for workload in WORKLOADS]
    names = []
    for name in text.upper().split(","):
        if name == "BRIDGE":
            names += [workload.name for workload in keras_bridge.WORKLOADS]
        elif name in all_names:
            names.append(name)
        else:
            raise argparse.ArgumentTypeError(
                f"unknown workload {name!r}; choose from {', '.join(all_names)}, bridge"
            )
    return names


def lack_of_kernels():
    """Returns why native kernels cannot run, or an empty string."""
    try:
        tensorflow_operations.load()
    except UnsupportedError as error:
        return str(error)
    return ""


def groups(workload, only_native=False):
    """Returns lists of the `optimizers.Entry`s that are timed on the workload.

    The entries of a list belong to one family, and are timed together. If the workload has a large
    table, the lists are short, because the tables of all entries of a list are in memory together.
    Only entries with native kernels are timed in a `tf.function` or by name (`only_native`).
    """
    found, entries = [], [] if only_native else list(optimizers.ENTRIES)
    if not lack_of_kernels():
        entries += optimizers.NATIVE_ENTRIES
    for family in dict.fromkeys(entry.family for entry in entries):
        members = [
            entry
            for entry in entries
            if entry.family == family
            and (workload.name in entry.goals or (workload.grown_from and entry.growth))
        ]
        size = _LARGE_TABLES if workload.grown_from else max(1, len(members))
        found += [members[start : start + size] for start in range(0, len(members), size)]
    return found


def comparisons(workload, variables, entries):
    """Returns the planned comparisons on a workload.

    Args:
      workload: the workload.
      variables: "ref", "resource", `FUNCTION` or `BY_NAME`.
      entries: the entries that are timed together.

    Returns:
      A list of triples: a contestant, the contestant that it is compared with, and the goal or
      None. A contestant is a pair: the workload's name and the optimizer's name.
    """
    name = workload.name
    beside_stock = [entry for entry in entries if name in entry.goals]
    found = [
        ((name, entry.name), (name, entry.stock), entry.goal(name, variables))
        for entry in beside_stock
    ]
    if workload.grown_from:
        goals = {entry.stock: None for entry in beside_stock if entry.growth}
        goals.update({entry.name: entry.growth for entry in entries if entry.growth})
        for optimizer, goal in goals.items():
            found.append(((name, optimizer), (workload.grown_from, optimizer), goal))
    return found


def measure(workload, variables, sizes, rounds):
    """Measures all optimizers of a workload, with one kind of variables.

    Args:
      workload: the workload.
      variables: "ref", "resource", `FUNCTION` or `BY_NAME`.
      sizes: a dict of all workloads by name.
      rounds: the number of blocks of steps per contestant.

    Returns:
      A list of `report.Result` and a list of `report.State`.
    """

    def contestant(name, optimizer):
        make = optimizers.MAKERS[optimizer]
        if variables == FUNCTION:
            return keras_bridge.Step(sizes[name], make)
        with contextlib.ExitStack() as stack:
            if variables == BY_NAME:
                stack.callback(legacy_opt.native.enable(by_name=True))
            return workloads.Contestant(sizes[name], make, variables != "ref")

    results, states = [], []
    is_way = variables in (FUNCTION, BY_NAME)
    for entries in groups(workload, only_native=is_way):
        planned = comparisons(workload, variables, entries)
        found, contestants = _compare(planned, contestant, variables, rounds)
        found = [result._replace(family=entries[0].family) for result in found]
        if is_way:
            found = [each._replace(variables="resource", way=variables) for each in found]
        results += found
        states += [
            report.State(key[0], contestant.optimizer, contestant.state_bytes)
            for key, contestant in contestants.items()
            # With FUNCTION and BY_NAME, the slots are those of "resource": report them only once.
            if key[0] == workload.name and not is_way
        ]
    return results, states


def measure_bridge(workload, way, sizes, rounds, checkout=None):
    """Measures the Keras bridge on a workload, with one kind of steps.

    Args:
      workload: the workload.
      way: the `keras_bridge.Way`.
      sizes: a dict of all workloads by name.
      rounds: the number of blocks of steps per contestant.
      checkout: the folder of another checkout. The bridged optimizers of this checkout are compared
        with the bridged optimizers of the other checkout. If `checkout` is None, bridged optimizers
        are compared with Keras' own optimizers and with v1 optimizers.

    Returns:
      A list of `report.Result`.
    """

    def contestant(name, optimizer):
        if checkout is None:
            return keras_bridge.contestant(sizes[name], way, optimizer)
        before = optimizer.endswith(against.BEFORE)
        home = checkout if before else against.ROOT
        optimizer = optimizer.replace(against.BEFORE, "")
        return against.InChildProcess(home, sizes[name], way, optimizer)

    has_kernels = checkout is None and not lack_of_kernels()
    planned = keras_bridge.comparisons(workload, way, has_kernels)
    if checkout is not None:
        results = _compare_in_processes(against.comparisons(planned), contestant, rounds)
    else:
        results, _ = _compare(planned, contestant, "resource", rounds)
    return [result._replace(way=str(way)) for result in results]


def measure_against(workload, rounds, checkout, has_kernels):
    """Compares optimizers in a Session with those of another checkout.

    Args:
      workload: the workload.
      rounds: the number of blocks of steps per contestant.
      checkout: the folder of the other checkout.
      has_kernels: whether both checkouts have native kernels.

    Returns:
      A list of `report.Result`.
    """

    def contestant(name, optimizer):
        del name
        home = checkout if optimizer.endswith(against.BEFORE) else against.ROOT
        optimizer = optimizer.replace(against.BEFORE, "")
        return against.InChildProcess(home, workload, None, optimizer)

    planned = against.comparisons_of_kernels(workload.name, has_kernels)
    return _compare_in_processes(planned, contestant, rounds)


def _compare_in_processes(planned, make, rounds):
    """Makes each planned comparison in two new processes.

    The speed of a process depends on where its memory lies, by more than 10 %. Therefore a
    comparison that misses its goal is made again in `_MORE_PROCESSES` further pairs of processes.
    The result is computed from the times of all pairs.
    """
    results = []
    for one, other, goal in planned:
        times, _ = _times([(one, other, goal)], make, rounds)
        if np.median(times[one] / times[other]) > goal:
            for _ in range(_MORE_PROCESSES):
                more, _ = _times([(one, other, goal)], make, rounds)
                times = {key: np.concatenate([times[key], more[key]]) for key in times}
        results.append(_result(one, other, goal, times, "resource"))
    return results


def _compare(planned, make, variables, rounds):
    """Returns the results of the planned comparisons, and the contestants."""
    times, contestants = _times(planned, make, rounds)
    return [_result(*each, times, variables) for each in planned], contestants


def _times(planned, make, rounds):
    """Creates the contestants of the planned comparisons, times them, and closes them."""
    contestants = {}
    try:
        for key in [key for one, other, _ in planned for key in (other, one)]:
            if key not in contestants:
                contestants[key] = make(*key)
        times = timing.alternate(
            {key: contestant.step for key, contestant in contestants.items()}, rounds
        )
    finally:
        for contestant in contestants.values():
            contestant.close()
    return times, contestants


def _result(one, other, goal, times, variables):
    to = other[1] if one[0] == other[0] else "itself on " + other[0]
    milliseconds = timing.Spread.of(1e3 * times[one])
    ratio = timing.Spread.of(times[one] / times[other])
    return report.Result(one[0], variables, one[1], to, milliseconds, ratio, goal)


def measure_all(names, sizes, quick, rounds, checkout=None):
    """Measures workloads with all kinds of steps and variables. Prints progress on stderr.

    Args:
      names: the names of the workloads.
      sizes: a dict of all workloads by name.
      quick: whether to leave out ref variables, `FUNCTION` and `BY_NAME`.
      rounds: the number of blocks of steps per contestant.
      checkout: the folder of another checkout to compare with, or None.

    Returns:
      A list of `report.Result` and a list of `report.State`.
    """
    results, states = [], []
    bridged = {workload.name for workload in keras_bridge.WORKLOADS}
    has_kernels = checkout is not None and all(map(against.build_kernels, (against.ROOT, checkout)))
    for name in names:
        size = sizes[name]
        for way in keras_bridge.ways(size) if name in bridged else ():
            print(f"{name} ({size.about}), {way} ...", file=sys.stderr)
            results += measure_bridge(size, way, sizes, rounds, checkout)
        if checkout is not None and name not in bridged:
            print(f"{name} ({size.about}), against {checkout} ...", file=sys.stderr)
            results += measure_against(size, rounds, checkout, has_kernels)
            continue
        kinds = ("resource",) if quick else ("ref", "resource")
        if tf.executing_eagerly() and not quick and not size.grown_from:
            kinds += (FUNCTION,)
        if size.variables > 1 and not quick and not lack_of_kernels():
            kinds += (BY_NAME,)
        for variables in () if name in bridged else kinds:
            print(f"{name} ({size.about}), {variables} variables ...", file=sys.stderr)
            new_results, new_states = measure(size, variables, sizes, rounds)
            results += new_results
            states += new_states
    return results, report.without_repeats(states)


def main(argv=None):
    """Runs the benchmarks and returns the exit code, which is 0."""
    arguments = parse_arguments(argv)
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
    rounds = arguments.repeats or (7 if arguments.quick else 25)
    sizes = {w.name: w.scaled_down(arguments.scale_down) for w in WORKLOADS}
    facts = dict(
        report.environment(tensorflow=tf.__version__),
        rounds=rounds,
        scale_down=arguments.scale_down,
    )
    names = arguments.only or [
        each.name for each in WORKLOADS if not (arguments.quick and each.grown_from)
    ]
    if lack_of_kernels():
        print("Without native kernels:", lack_of_kernels(), file=sys.stderr)
    results, states = measure_all(names, sizes, arguments.quick, rounds, arguments.against)
    print(", ".join("{}: {}".format(*item) for item in facts.items()))
    print("\n" + report.results_tables(results))
    print("\n" + report.goals_line(results))
    if states:
        print("\n" + report.states_table(states))
    report.save_json(arguments.json, results, states, facts)
    print(f"\nThe same as JSON: {os.path.abspath(arguments.json)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
