"""Measures recorded rules in PyTorch or JAX: `make bench-leave`.

    python -m benchmarks.leave.run torch --json torch.json
    python -m benchmarks.leave.run jax --json jax.json

Prints tables of the ratios with their goals, and writes them as JSON. A missed goal does not change
the exit code. cases.py describes the cases and comparisons, and timing.py how ratios are measured.

Each step is timed in two situations: right after an operation of the library, whose threads may
still wait for more work, and after 30 ms in which the machine rests. Ratios are unreliable if the
machine is busy: see "load", the number of processes that were running before the measurement.
"""

import argparse
import importlib
import os
import sys
import time

from benchmarks import report, timing
from benchmarks.leave import cases, loops
from benchmarks.leave.cases import LIBRARIES

_REST = 0.03  # seconds


def parse_arguments(argv=None):
    """Returns the command line as a namespace."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("library", choices=LIBRARIES)
    parser.add_argument("--json", metavar="PATH", help="the JSON file (default: LIBRARY.json)")
    parser.add_argument("--repeats", type=int, default=15, metavar="N", help="rounds per case")
    parser.add_argument("--scale-down", type=int, default=1, metavar="N", help="smaller cases")
    return parser.parse_args(argv)


class Situation:
    """A step that is timed after something else.

    Args:
      before: a function that is called before each step, and is not timed.
      step: a function that runs a step.
    """

    def __init__(self, before, step):
        self._before, self._step = before, step

    def times(self, count):
        """Runs steps; returns a list with the seconds of each step."""
        found = []
        for _ in range(count):
            self._before()
            found += timing.times(self._step, 1)
        return found


def steps_of(host, case, comparisons):
    """Returns a dict from the contestants of comparisons to functions that run a step.

    Contestants that the library does not have are left out, and printed on stderr.

    Args:
      host: the module in_torch or in_jax.
      case: the `cases.Case`.
      comparisons: the comparisons of this case.
    """
    steps = {}
    for contestant in dict.fromkeys(key for each in comparisons for key in each[1:3]):
        way, _, name = contestant.rpartition(" ")
        try:
            make = loops.step if way == "C" else host.step
            steps[contestant] = make(*([] if way == "C" else [way]), name, case)
        except ValueError as error:
            print(f"Without {contestant}: {error}", file=sys.stderr)
    return steps


def measure(library, case, comparisons, rounds):
    """Returns the results of the comparisons of a case.

    Args:
      library: a key of `LIBRARIES`.
      case: the `cases.Case`.
      comparisons: the comparisons of this case.
      rounds: the number of steps of each contestant.
    """
    host = importlib.import_module("benchmarks.leave.in_" + library)
    steps = steps_of(host, case, comparisons)
    situations = {"after an operation": host.operation, "rested": lambda: time.sleep(_REST)}
    results = []
    for situation, before in situations.items():
        contestants = {name: Situation(before, step) for name, step in steps.items()}
        times = timing.alternate(contestants, rounds, most_steps=1)
        results += [
            report.Result(
                *(case.name, LIBRARIES[library], one, other),
                timing.Spread.of(1e3 * times[one]),
                timing.Spread.of(times[one] / times[other]),
                goal,
                situation,
                f"{LIBRARIES[library]}: {case.name}",
            )
            for _, one, other, goal in comparisons
            if one in steps and other in steps
        ]
    return results


def main(argv=None):
    """Runs the benchmark and returns the exit code, which is 0."""
    arguments = parse_arguments(argv)
    library = arguments.library
    host = importlib.import_module("benchmarks.leave.in_" + library)
    facts = dict(report.environment(**host.facts()), rounds=arguments.repeats)
    results = []
    for case in cases.CASES.values():
        print(f"{LIBRARIES[library]}, {case.name} ...", file=sys.stderr)
        comparisons = [each for each in cases.COMPARISONS[library] if each.case == case.name]
        small = case.scaled_down(arguments.scale_down)
        results += measure(library, small, comparisons, arguments.repeats)
    print(", ".join("{}: {}".format(*item) for item in facts.items()))
    print("\n" + report.results_tables(results))
    print("\n" + report.goals_line(results))
    path = os.path.abspath(arguments.json or library + ".json")
    report.save_json(path, results, [], facts)
    print(f"\nThe same as JSON: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
