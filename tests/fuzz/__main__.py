"""Runs many fuzzed cases, no two the same, and tells what was found.

python -m tests.fuzz --cases 100000 [--seed 0]
"""

import argparse
import collections
import re
import sys

from hypothesis import HealthCheck, Phase, given, seed, settings
from tqdm import tqdm

from tests.fuzz.cases import cases
from tests.fuzz.checking import check

BLOCK = 100  # draws of one seed; each is one case or, in a Session, some
QUIET = {"unit": " cases", "mininterval": 10.0}  # of the progress bar


class Account:
    """What has come of the cases so far.

    Attributes:
      outcomes: a Counter.
      findings: a dict from what tells a finding from others to the first `Fuzzed` and its error.
      drawn: what has been run. It is not run again: many are drawn twice.
    """

    def __init__(self):
        self.outcomes = collections.Counter()
        self.findings = {}
        self.drawn = set()

    @property
    def cases(self):
        return sum(self.outcomes.values())

    def run(self, case):
        """Runs what was drawn, if it was not before."""
        if repr(case) in self.drawn:
            return
        self.drawn.add(repr(case))
        try:
            self.outcomes.update(check(case))
        except Exception as error:  # whatever it is, it is a finding
            self.outcomes["failed"] += 1
            told = re.sub(r"[-\d.e+]+|nan|inf", "#", str(error))
            kind = case.name, case.wrapper, type(error).__name__, told
            if kind not in self.findings:
                self.findings[kind] = alone, _ = smallest(case), error
                tqdm.write(f"FOUND {alone!r}\n      {type(error).__name__}: {error}")

    def __str__(self):
        told = [f"{count} {outcome}" for outcome, count in self.outcomes.most_common()]
        counts = f"{self.cases} cases in {len(self.drawn)} draws"
        return f"{counts}: {', '.join(told)}; {len(self.findings)} findings"


def smallest(case):
    """Returns a case that fails by itself, in place of many trainings of which one fails."""
    for gradients in case.trainings:
        alone = case._replace(trainings=(gradients,))
        try:
            check(alone)
        except Exception:
            return alone
    return case


def run_block(number, count, account, progress=lambda: None):
    """Runs what is drawn with one seed.

    Args:
      number: the seed.
      count: how many draws.
      account: the `Account` to which what came of each is added.
      progress: called after each.
    """

    @seed(number)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],  # a finding is made small by `smallest`, which is quicker
    )
    @given(cases())
    def run(case):
        account.run(case)
        progress()

    run()


def main(arguments):
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--cases", type=int, default=1000, help="how many, at least")
    parser.add_argument("--seed", type=int, default=0, help="of the first block; the next has 1")
    options = parser.parse_args(arguments)
    account, number = Account(), options.seed
    with tqdm(total=options.cases, **QUIET) as bar:
        while account.cases < options.cases:
            run_block(number, BLOCK, account, lambda: bar.update(account.cases - bar.n))
            number += 1
    print(f"seeds {options.seed} to {number - 1}")
    print(account)
    return bool(account.findings)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
