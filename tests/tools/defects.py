"""The mended defects: their tests fail on the product as it was before, and pass on today's.

    make defects BEFORE=<a commit>

runs today's tests that are marked ``@pytest.mark.defect(number)`` twice on each lane: with the
product of that commit, and with today's. It fails unless each of them fails with the old product on
some lane, in its own body, and passes with today's on all; and unless each number has a test.
"""

import argparse
import collections
import json
import sys

# What each was, in words for people.
DEFECTS = {
    1: "DiffGrad kept a gradient that is the variable's own memory after it had changed",
    2: "decoupled weight decay came before the gradient was read, where that is the variable",
    3: "two writers of one checkpoint mixed their files",
    4: "a step made inside a tf.function was made again in its second trace",
    5: "apply_gradients in a condition of a tf.function: a tensor is unhashable",
    6: "a checkpoint with a NaN was refused",
    7: "an empty name in a name map aborted the process",
    8: "to_keras converted callable hyperparameters without calling them",
    9: "run refused programs for names in branches that never run",
    10: "the Keras 3 bridge refused gradients of another float dtype",
    11: "constructors and accessors were not quite the original's",
    12: "audit missed optimizers; special files hung commands; names were printed raw",
    13: "an accumulation lost rows when it went on in other partitions",
    14: "AdagradDecay repeated past decays in other partitions",
    15: "what belongs to a part was restored into another part",
    16: "slots of square parts were taken for slices; conversion left slots in parts",
    17: "a checkpoint that changed while it was read became a mixture",
    18: "undoing patch_tensorflow emptied modules that somebody held",
    19: "a small .keras file took memory without bounds",
    20: "very large steps gave NaN without a word",
    21: "bad input met Python's or TensorFlow's errors instead of clear ones",
    22: "the page on BERT's optimizer did not say when its schedule reads the step",
}


def pytest_collection_modifyitems(items):
    """As a plugin of pytest's, in each of its processes: notes the numbers with the reports."""
    for item in items:
        numbers = [marker.args[0] for marker in item.iter_markers("defect")]
        item.user_properties.append(("defects", numbers))


class Recorder:
    """A plugin that writes how each test ended: "passed", "failed", or what failed before it."""

    def __init__(self, path):
        self._path, self._ends = path, {}

    def pytest_runtest_logreport(self, report):
        if report.failed or (report.passed and report.when == "call"):
            numbers = dict(report.user_properties).get("defects", [])
            # A process that dies while a test runs is reported as neither of these.
            end = report.when if report.when in ("setup", "teardown") else report.outcome
            self._ends[report.nodeid] = [numbers, end]

    def pytest_collectreport(self, report):
        if report.failed:
            self._ends[report.nodeid] = [[], "collection"]

    def pytest_sessionfinish(self):
        with open(self._path, "w", encoding="utf-8") as file:
            json.dump(self._ends, file)


def run(path):
    """Runs the marked tests, all of them on this lane; writes how they ended."""
    import pytest

    # `tests` imports TensorFlow, which on 2.4 imports setuptools: pytest finds a plugin in that
    # which does not fit.
    words = "-q -m defect --tb=no -W ignore -n 2 -p tests.tools.defects -p no:typeguard"
    pytest.main(words.split(), plugins=[Recorder(path)])


def compare(paths):
    """Prints what became of each number, from pairs of files: before, today, one pair a lane.

    Returns:
      The complaints, a list of sentences.
    """
    before, today = (collections.defaultdict(list) for _ in range(2))
    numbers = collections.defaultdict(set)
    for ends, files in (before, paths[::2]), (today, paths[1::2]):
        for path in files:
            with open(path, encoding="utf-8") as file:
                for name, (marks, end) in json.load(file).items():
                    ends[name].append(end)
                    for number in marks:
                        numbers[number].add(name)
    complaints = []
    print(f"{'':>3}  {'tests':>5}  {'before':>6}  {'today':>5}  ")
    for number, what in sorted(DEFECTS.items()):
        tests = sorted(numbers[number])
        failed = [name for name in tests if "failed" in before[name]]
        passed = [name for name in tests if set(today[name]) == {"passed"}]
        print(f"{number:3}  {len(tests):5}  {len(failed):6}  {len(passed):5}  {what}")
        if not tests:
            complaints.append(f"{number} has no test.")
        complaints += [f"{name} passed before." for name in tests if name not in failed]
        complaints += [f"{name} does not pass today." for name in tests if name not in passed]
    for name, ends in sorted(before.items()) + sorted(today.items()):
        if {"setup", "teardown", "collection"} & set(ends):
            complaints.append(f"{name}: {'/'.join(ends)}, not the test, failed.")
    return complaints


def main():
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["run", "compare"])
    parser.add_argument("paths", nargs="+")
    arguments = parser.parse_args()
    if arguments.command == "run":
        run(*arguments.paths)
    else:
        sys.exit("\n".join(compare(arguments.paths)) or None)


if __name__ == "__main__":
    main()
