"""Checks that the tests of fixed defects fail on an old version of the product.

    make defects BEFORE=<a commit>

runs the tests marked ``@pytest.mark.defect(number)`` twice on each lane (TensorFlow version): with
the product of that commit, and with the present product. Each test must fail with the old product
on at least one lane, but its setup and teardown must not fail. With the present product, the test
must pass on each lane on which it runs. Each number in `DEFECTS` must have a test.
"""

import argparse
import collections
import json
import sys

# A description of each defect.
DEFECTS = {
    1: "DiffGrad changed the variable before a gradient that aliased it was stored",
    2: "decoupled weight decay changed the variable before a gradient that aliased it was read",
    3: "two writers of one checkpoint mixed their files",
    4: "a global step created inside a tf.function was created again in its second trace",
    5: "apply_gradients in a tf.cond of a tf.function failed: a tensor is unhashable",
    6: "a checkpoint with a NaN raised an error",
    7: "an empty name in a name map aborted the process",
    8: "to_keras converted callable hyperparameters without calling them",
    9: "legacy-opt run raised errors for names in branches that never run",
    10: "the Keras 3 bridge raised errors for gradients of another float dtype than the variable's",
    11: "constructors and accessors differed slightly from those of the original classes",
    12: "audit missed optimizers; special files hung commands; names were printed unescaped",
    13: "GradientAccumulationOptimizer lost rows if a restart changed the partitions",
    14: "AdagradDecay repeated past decays if a restart changed the partitions",
    15: "state of one partition was restored into another partition",
    16: "slots of square partitions were mistaken for slices; conversion left slots partitioned",
    17: "reading a checkpoint while it changed returned a mixture of old and new values",
    18: "undoing patch_tensorflow emptied modules that were still referenced",
    19: "a small .keras file could use unlimited memory",
    20: "very large global steps resulted in NaN without a warning",
    21: "bad input raised Python's or TensorFlow's errors instead of clear ones",
    22: "the page on BERT's optimizer did not say when its schedule reads the global step",
}


def pytest_collection_modifyitems(items):
    """Adds the numbers of defects to the reports of their tests; pytest calls this function."""
    for item in items:
        numbers = [marker.args[0] for marker in item.iter_markers("defect")]
        item.user_properties.append(("defects", numbers))


class Recorder:
    """A pytest plugin that writes how each test ended.

    A test ends with "passed", with "failed" (the test itself failed), or with the name of another
    phase that failed: "setup", "teardown" or "collection".
    """

    def __init__(self, path):
        self._path, self._ends = path, {}

    def pytest_runtest_logreport(self, report):
        if report.failed or (report.passed and report.when == "call"):
            numbers = dict(report.user_properties).get("defects", [])
            # If a process crashes during a test, `when` is "???", and the outcome is "failed".
            end = report.when if report.when in ("setup", "teardown") else report.outcome
            self._ends[report.nodeid] = [numbers, end]

    def pytest_collectreport(self, report):
        if report.failed:
            self._ends[report.nodeid] = [[], "collection"]

    def pytest_sessionfinish(self):
        with open(self._path, "w", encoding="utf-8") as file:
            json.dump(self._ends, file)


def run(path):
    """Runs all marked tests on this lane; writes their outcomes to a JSON file."""
    import pytest

    # The plugin typeguard is switched off, because TensorFlow 2.4 imports setuptools. pytest would
    # then find the incompatible typeguard that setuptools contains.
    words = "-q -m defect --tb=no -W ignore -n 2 -p tests.tools.defects -p no:typeguard"
    pytest.main(words.split(), plugins=[Recorder(path)])


def compare(paths):
    """Prints for each defect how many tests failed with the old product, and how many pass now.

    Args:
      paths: the files that `run` wrote. For each lane, the file of the old product comes before the
        file of the present product.

    Returns:
      A list of messages, one for each requirement that is not met.
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
            complaints.append(f"Defect {number} has no test.")
        complaints += [f"{name} did not fail before." for name in tests if name not in failed]
        complaints += [f"{name} does not pass today." for name in tests if name not in passed]
    for name, ends in sorted(before.items()) + sorted(today.items()):
        if {"setup", "teardown", "collection"} & set(ends):
            complaints.append(f"{name} failed outside of the test itself: {', '.join(ends)}.")
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
