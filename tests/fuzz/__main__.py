"""Runs many fuzzed cases, no two the same, and tells what was found.

python -m tests.fuzz --cases 100000 [--seed 0]
"""

import argparse
import collections
import sys
import time

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz.cases import cases
from tests.fuzz.checking import check

BLOCK = 200  # cases of one seed, of which one finding is told


def profile(count, **options):
    """Returns the settings of a run of so many cases."""
    return settings(
        max_examples=count,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        **options,
    )


def run_block(number, count, outcomes, passed):
    """Runs the cases of one seed.

    Args:
      number: the seed.
      count: how many cases are drawn.
      outcomes: a Counter, to which what came of each is added.
      passed: a set of those that have been run, and are not run again: many are drawn twice.

    Returns:
      The smallest case that fails, and its error; or None.
    """
    last = []

    @seed(number)
    @profile(count, phases=(Phase.generate, Phase.shrink))
    @given(cases())
    def run(case):
        if repr(case) in passed:
            return
        last[:] = [case]
        outcomes[check(case)] += 1
        passed.add(repr(case))

    try:
        run()
    except Exception as error:  # whatever it is, it is a finding
        outcomes["found"] += 1
        return last[0], error
    return None


def main(arguments):
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--cases", type=int, default=1000, help="how many, at least")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    outcomes, passed, findings = collections.Counter(), set(), {}
    number, started = options.seed, time.time()
    while sum(outcomes.values()) < options.cases:
        found = run_block(number, BLOCK, outcomes, passed)
        number += 1
        if found:
            case, error = found
            key = case.name, type(error).__name__, str(error)[:60]
            if key not in findings:
                findings[key] = found
                print("FOUND %r\n      %s: %s" % (case, type(error).__name__, error), flush=True)
        if number % 10 == 0:
            print("%d cases" % sum(outcomes.values()), file=sys.stderr, flush=True)
    told = ", ".join("%d %s" % (count, outcome) for outcome, count in outcomes.most_common())
    seconds = time.time() - started
    print("%d cases in %.0f s: %s" % (sum(outcomes.values()), seconds, told))
    print("%d findings" % len(findings))
    return bool(findings)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
