"""Runs random cases and prints the findings (wrong results and unclear errors).

python -m tests.fuzz --cases 100000 [--seed 0]
"""

import argparse
import collections
import re
import sys

from hypothesis import HealthCheck, Phase, given, seed, settings
from tqdm import tqdm

from tests.fuzz.cases import draws
from tests.fuzz.checking import check

# The number of draws for one seed. The next block of draws uses the next seed. A draw is a `Fuzzed`
# with one training, or with up to 32 trainings if they run in a Session.
BLOCK = 100
NUMBER = re.compile(r"-?(\d+(\.\d*)?(e[-+]?\d+)?|\b(nan|inf)\b)")
QUIET = {"unit": " cases", "mininterval": 10.0}  # options of the progress bar


class Account:
    """Counts the outcomes of cases, and collects findings.

    Each training of a draw is a case. A draw that is refused or fails counts as one case.

    Attributes:
      outcomes: a Counter of the outcomes.
      findings: {kind of finding: (draw, error)}. The draw is the first one with a finding of this
        kind, reduced by `smallest`.
      seen: a set of the repr of each draw that was run. No draw is run twice.
    """

    def __init__(self):
        self.outcomes = collections.Counter()
        self.findings = {}
        self.seen = set()

    @property
    def cases(self):
        return sum(self.outcomes.values())

    def run(self, draw):
        """Runs a draw, unless it was run before."""
        if repr(draw) in self.seen:
            return
        self.seen.add(repr(draw))
        try:
            self.outcomes.update(check(draw))
        except Exception as error:  # any error is a finding
            self.outcomes["failed"] += 1
            message = NUMBER.sub("#", str(error))
            kind = draw.name, draw.wrapper, type(error).__name__, message
            if kind not in self.findings:
                self.findings[kind] = alone, error = smallest(draw, error)
                tqdm.write(f"FOUND {alone!r}\n      {type(error).__name__}: {error}")

    def __str__(self):
        outcomes = [f"{count} {outcome}" for outcome, count in self.outcomes.most_common()]
        counts = f"{self.cases} cases in {len(self.seen)} draws"
        return f"{counts}: {', '.join(outcomes)}; {len(self.findings)} findings"


def smallest(draw, error):
    """Reduces a draw to one training, if a training fails without the others.

    Returns:
      The draw and its error.
    """
    for gradients in draw.trainings:
        alone = draw._replace(trainings=(gradients,))
        try:
            check(alone)
        except Exception as error_alone:
            return alone, error_alone
    return draw, error


def run_block(number, count, account, progress=lambda: None):
    """Makes draws with one seed and runs them.

    Args:
      number: the seed.
      count: the number of draws.
      account: the `Account` that counts the outcomes.
      progress: called after each draw.
    """

    @seed(number)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],  # `smallest` reduces findings faster than hypothesis
    )
    @given(draws())
    def run(draw):
        account.run(draw)
        progress()

    run()


def main(arguments):
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--cases", type=int, default=1000, help="the minimum number of cases")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the first 100 draws")
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
