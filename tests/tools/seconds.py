"""Notes which tests take long on a lane, from the reports of a run: who shares what goes by that.

    python -m tests.tools.seconds REPORT.json…

`make seconds` does it after `make test`.
"""

import collections
import json
import sys
from pathlib import Path

from tests.support import account, turns


def of_all_cells(report):
    """Returns the seconds that each fixture, and all daily cells of each test, take on a lane.

    Args:
      report: the account of a run; what it left to other lanes takes as long as the others.
    """
    seconds, cells = collections.Counter(), collections.Counter()
    for name, each in report["seconds_of_tests"].items():
        test = name.partition("[")[0]
        seconds[test] += each
        cells[test] += 1
    left = report["left_out"].get(turns.ANOTHER_LANES_TURN, {})
    tests = {test: seconds[test] * (1 + left.get(test, 0) / cells[test]) for test in seconds}
    return dict(tests, **report["seconds_of_shared_fixtures"])


def main(paths):
    """Writes the mean over the lanes of what takes longer than the budget."""
    lanes = collections.defaultdict(list)
    for path in paths:
        for test, seconds in of_all_cells(json.loads(Path(path).read_text())).items():
            lanes[test].append(seconds)
    means = {test: round(sum(each) / len(each), 1) for test, each in sorted(lanes.items())}
    long = {test: mean for test, mean in means.items() if mean > turns.BUDGET}
    account.write_json(str(turns.SECONDS), long)
    print(f"{len(long)} tests and fixtures take longer than {turns.BUDGET:g} s on a lane.")


if __name__ == "__main__":
    main(sys.argv[1:])
