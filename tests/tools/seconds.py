"""Writes tests/support/seconds.json, the durations of long tests, from the reports of a run.

    python -m tests.tools.seconds REPORT.json…

`make seconds` runs this program after `make test` and `make oldest-keras`. `tests.support.turns`
uses the durations to divide the cells of long tests among the lanes (TensorFlow versions).
"""

import collections
import itertools
import json
import sys
from pathlib import Path

from tests.support import account, turns

# All lanes run this fixture, even if it is slow, because it builds native code for the lane's
# TensorFlow.
_ON_EVERY_LANE = ("tests/native::kernels_folder",)


def of_all_cells(report):
    """Returns the durations of tests and shared fixtures on one lane, in seconds by name.

    A cell is a test with one combination of parameters. The duration of a test is the sum of the
    durations of its daily cells (the cells without the mark `full`). For a daily cell that did not
    run on this lane, the sum contains the mean duration of the test's cells that ran.

    Args:
      report: the JSON report of a run.
    """
    seconds, cells = collections.Counter(), collections.Counter()
    for name, each in report["seconds_of_tests"].items():
        test = name.partition("[")[0]
        seconds[test] += each
        cells[test] += 1
    left_out = collections.Counter(report["left_out"].get(turns.ANOTHER_LANES_TURN, {}))
    for reason in turns.TOO_MANY, turns.ANOTHER_DAYS_TURN:
        left_out.update(report["left_out"].get(reason, {}))
    tests = {test: seconds[test] * (1 + left_out[test] / cells[test]) for test in seconds}
    return dict(tests, **report["seconds_of_shared_fixtures"])


def main(paths):
    """Writes the mean duration over the lanes, for each test or fixture that exceeds the budget.

    A test whose daily cells ran on no lane keeps its last duration: without it, all would run. The
    fixtures of its file keep theirs, too.
    """
    lanes = collections.defaultdict(list)
    left_out = set()
    for path in paths:
        report = json.loads(Path(path).read_text())
        left_out.update(itertools.chain(*report["left_out"].values()))
        for test, seconds in of_all_cells(report).items():
            lanes[test].append(seconds)
    means = {test: round(sum(each) / len(each), 2) for test, each in lanes.items()}
    files = set(map(turns.file_of, left_out))
    known = {
        name: each
        for name, each in turns.seconds().items()
        if name in left_out or "::test_" not in name and turns.file_of(name) in files
    }
    long = {
        test: mean
        for test, mean in sorted({**known, **means}.items())
        if mean > turns.BUDGET and test not in _ON_EVERY_LANE
    }
    account.write_json(str(turns.SECONDS), long)
    print(f"{len(long)} tests and fixtures take longer than {turns.BUDGET:g} s on a lane.")


if __name__ == "__main__":
    main(sys.argv[1:])
