"""Tests on the lanes, their reports, and other checks of the code."""

import contextlib
import json
import os
import shutil
import sys
import time
from pathlib import Path

import nox

import lanes
from tasks.environments import (
    ENVIRONMENTS,
    LANES,
    ROOT,
    counted,
    each_lane,
    environment,
    install,
    results,
    spent,
)

TURNS = "--turns"
DAY = int(time.time() // 86400)  # the log shows it, so that a run of another day can be repeated
# Tests that need pandas and matplotlib.
NO_EXAMPLES = [f"--ignore=tests/{folder}" for folder in sorted(lanes.TESTS_WITH_EXAMPLES)]
SLOWEST = 50
# {key of a test report: text to print after names}. In a test report, the value of each key is a
# dict from names of tests or fixtures to seconds.
TIMED = {
    "seconds_of_tests": "",
    "seconds_of_fixtures": " (fixture)",
    "seconds_of_shared_fixtures": " (fixture that tests share)",
}
# This test module checks a page of docs/ that was generated with the newest lane's Keras.
NEEDS_THE_LANES_KERAS = "tests/plain_keras/test_keras_differences.py"
KERAS_VERSION = "import keras; print(keras.__version__)"


@nox.session(python=False)
@each_lane
def test(session, lane):
    """Runs the tests on a lane. Arguments after -- are passed to pytest.

    With --turns, the lanes whose Python is installed divide the long tests among themselves. The
    result is written into a file, because `report` runs in another process than these tests.
    """
    with left_for_report(lane.name, spent):
        python = environment(session, lane, lanes.needs_examples(session.posargs))
        session.run(python, "-m", "legacy_opt", "doctor", external=True)
        run_tests(session, lane.name, python, turn_of(lane, session.posargs))
        results[lane.name]["passed"] = True


@contextlib.contextmanager
def left_for_report(name, times):
    """Leaves `results[name]` and `times`, in seconds by task, in a file for `report`."""
    result_file(name).unlink(missing_ok=True)
    results[name] = "failed before its end"
    try:
        yield
    finally:
        ENVIRONMENTS.mkdir(exist_ok=True)
        lanes.replace_file(result_file(name), json.dumps([results[name], times]))


def result_file(name):
    """Returns the file in which a lane or the handover leaves its result for `report`."""
    return ENVIRONMENTS / f"result-{name}.json"


@nox.session(python=False)
def versions(session):
    """Tests the releases between the lanes, and writes their table into docs/compatibility.md.

    Each release runs another fifth of the long tests, and its environment is deleted afterwards. A
    run that was interrupted goes on. The variable ONLY chooses releases: ONLY=2.12.1,2.22.0rc0.
    """
    path = ENVIRONMENTS / "versions.json"
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    only = os.environ.get("ONLY")
    for number, lane in enumerate(lanes.BETWEEN):
        is_chosen = lane.tensorflow in only.split(",") if only else lane.tensorflow not in found
        if not is_chosen:
            continue
        python = environment(session, lane)
        with contextlib.suppress(nox.command.CommandFailed):  # the table has the failures
            run_tests(session, lane.name, python, [f"--turn={1 + number % 5}/5", *NO_EXAMPLES])
        if isinstance(results.get(lane.name), dict):
            found[lane.tensorflow] = [lane.python, results[lane.name]["outcomes"]]
            lanes.replace_file(path, json.dumps(found))
        shutil.rmtree(str(ENVIRONMENTS / lane.name))
    lanes.write_page("docs/compatibility.md", marker="versions", lines=lanes.table_of(found))


def run_tests(session, name, python, words, env=None):
    """Runs pytest and stores its report in `results` under `name`."""
    path = ENVIRONMENTS / (f"report-{name}.json")
    if path.exists():
        path.unlink()
    command = [python, "-m", "pytest", "-q", f"--report={path}"]
    workers = os.environ.get("WORKERS", "2")
    if workers != "1":  # a single worker of xdist would import TensorFlow beside the main process
        # One process runs all tests of a file, because these tests share fixtures and Sessions.
        command += ["-n", workers, "--dist", "loadfile"]
    kernels = {"LEGACY_OPT_KERNELS": str(ENVIRONMENTS / "kernels")}  # of all lanes
    try:
        with counted(name):
            session.run(*command, *words, env={**kernels, **(env or {})}, external=True)
    finally:
        if path.exists():
            results[name] = json.loads(path.read_text(encoding="utf-8"))


def turn_of(lane, words):
    """Returns the arguments for pytest, in which --turns is replaced by --turn of this lane."""
    found = [each for each in LANES if each == lane or lanes.find_python(each.python)]
    return with_turn(words, 1 + found.index(lane), len(found))


def with_turn(words, number, total):
    """Returns the arguments for pytest, in which --turns is replaced by --turn and --day."""
    turn = [f"--turn={number}/{total}", f"--day={DAY}"]
    return [each for word in words for each in (turn if word == TURNS else [word])]


@nox.session(python=False)
def handover(session):
    """Moves a checkpoint from the oldest lane to the newest lane and back.

    If tests are part of the run, both lanes must have run their tests before.
    """
    old, new = LANES[0], LANES[-1]
    read_results(session.posargs)
    with left_for_report("handover", {}):
        if results.keys() - {"handover"} and not all(
            isinstance(results.get(lane.name), dict) for lane in (old, new)
        ):
            results["handover"] = f"skipped: lanes {old.name} and {new.name} are needed"
            session.skip(results["handover"])
        script = ["-m", "tests.tools.handover"]
        pythons = {lane: environment(session, lane) for lane in (old, new)}
        home = ENVIRONMENTS / "handover"
        shutil.rmtree(str(home), ignore_errors=True)
        there, away, back = (str(home / name) for name in ("there", "away", "back"))
        session.run(pythons[old], *script, "write", there, external=True)
        session.run(pythons[new], *script, "continue", there, away, external=True)
        session.run(pythons[old], *script, "continue", away, back, external=True)
        reports = [Path(out, "report.txt").read_text(encoding="utf-8") for out in (away, back)]
        model = ["-m", "tests.tools.estimator_handover", str(home / "estimator")]
        for steps, lane in enumerate((old, new, old), 1):
            session.run(pythons[lane], *model, str(20 * steps), external=True)
        results["handover"] = ("\n" + " " * 10).join(reports)


def read_results(words):
    """Adds the results named in `words`, of lanes and the handover, which other processes left."""
    names = [*(lane.name for lane in LANES), "handover"]
    for name in [name for name in names if name in words and name not in results]:
        path = result_file(name)
        content = path.read_text(encoding="utf-8") if path.exists() else '["failed", {}]'
        results[name], times = json.loads(content)
        for task, sums in times.items():
            spent[task] = [old + new for old, new in zip(spent.get(task, (0, 0)), sums)]


@nox.session(python=False)
def oldest_keras(session):
    """Runs the tests of the Keras 3 bridge with the oldest Keras 3. Arguments go to pytest."""
    python = environment(session, LANES[-1], lanes.needs_examples(session.posargs))
    # The oldest Keras is in a folder on PYTHONPATH, so that Python imports it instead of the lane's
    # Keras. The oldest Keras uses the dependencies of the lane's Keras.
    home = ENVIRONMENTS / ("keras-" + lanes.OLDEST_KERAS_3)
    if not (home / "keras").exists():
        wheel = "keras==" + lanes.OLDEST_KERAS_3
        install(session, python, "--no-deps", "--target", str(home), wheel)
    env = {"PYTHONPATH": str(home)}
    found = session.run(python, "-c", KERAS_VERSION, env=env, external=True, silent=True)
    if found.split()[-1] != lanes.OLDEST_KERAS_3:
        session.error(f"expected Keras {lanes.OLDEST_KERAS_3}, found {found}")
    # With --turns, this run and the newest lane divide the long tests of Keras 3: see
    # `_lanes_with` in tests/support/turns.py.
    words = with_turn(session.posargs, 1, 2)
    words += ["-m", "keras3", "--deselect", NEEDS_THE_LANES_KERAS]
    run_tests(session, home.name, python, words, env)


@nox.session(python=False)
def report(session):
    """Prints the results of the lanes, and the slowest tests.

    Arguments are the names of lanes that `test` has tested in other processes, and "handover" if
    another process did it. If one of these has failed, the session fails.
    """
    read_results(session.posargs)
    row = "%-14s%8s%8s%8s%9s%9s%9s"
    lines = ["", row % ("lane", "run", "passed", "failed", "skipped", "seconds", "CPU s")]
    for name, result in results.items():
        lines += [name.ljust(16) + result] if isinstance(result, str) else account(row, name)
    for task in sorted(set(spent) - set(results)):
        lines.append(row % (task, "", "", "", "", *(f"{each:.0f}" for each in spent[task])))
    print("\n".join(lines + slowest()))
    if all(isinstance(result, str) for result in results.values()):
        session.error("No lane has run.")
    failed = [name for name in results if name in session.posargs and not has_passed(name)]
    if failed:
        session.error(f"These have failed: {', '.join(failed)}.")


def has_passed(name):
    """Returns whether a lane's tests or the handover have passed, or were skipped."""
    result = results[name]
    return "passed" in result if isinstance(result, dict) else not result.startswith("failed")


def account(row, name):
    """Returns the report lines of a lane: counts, skipped tests, and tests that were left out."""
    result = results[name]
    counts = result["outcomes"]
    passed, failed, skipped = (counts.pop(key, 0) for key in ("passed", "failed", "skipped"))
    run = passed + failed + sum(counts.values())
    times = (f"{each:.0f}" for each in spent[name])
    lines = [row % (name, run, passed, failed, skipped, *times)]
    lines += [f"{' ' * 16}{count} {outcome}" for outcome, count in counts.items()]
    for reason, count in sorted(result["skips"].items()):
        note = "NOT LISTED: " if reason in result["unknown_skips"] else ""
        lines.append(f"{' ' * 16}{count} x {note}{reason}")
    for reason, tests in filter(all, result["left_out"].items()):
        lines.append(f"{' ' * 16}{sum(tests.values())} left out: {reason}")
    return lines


def slowest():
    """Returns the report lines of the slowest tests and fixtures of all lanes."""
    found = [
        (seconds, lane, name + note)
        for lane, result in results.items()
        if not isinstance(result, str)
        for key, note in TIMED.items()
        for name, seconds in result[key].items()
    ]
    lines = ["", f"The {SLOWEST} slowest, in seconds:"]
    longest = sorted(found, reverse=True)[:SLOWEST]
    return lines + [f"{seconds:8.1f}  {lane:<12}{name}" for seconds, lane, name in longest]


@nox.session(python=False)
def coverage(session):
    """Prints the coverage of the daily tests of all lanes. Arguments after -- go to pytest.

    Only `make leave` reaches most of legacy_opt/recorded/torch*.py, optax*.py and keras*.py.
    """
    home = ENVIRONMENTS / "coverage"
    shutil.rmtree(str(home), ignore_errors=True)
    home.mkdir(parents=True)
    for lane in LANES:
        python = environment(session, lane, lanes.needs_examples(session.posargs))
        words = ["--cov", "--cov-branch", "--cov-report=", *turn_of(lane, session.posargs)]
        env = {"COVERAGE_FILE": str(home / lane.name), "LEGACY_OPT_CHECKOUT": str(ROOT)}
        # Without this variable, new versions of pytest-cov do not measure child processes.
        env["COVERAGE_PROCESS_START"] = str(ROOT / "pyproject.toml")
        run_tests(session, lane.name, python, words, env)
    files = sorted(map(str, home.iterdir()))  # one file per lane, and files of child processes
    env = {"COVERAGE_FILE": str(home / "all")}
    found = str(home / "all.json")
    product = "--include=legacy_opt/*,compat/*"  # excludes files that tests wrote and deleted
    for words in ["combine", "--keep", *files], ["json", "-q", product, "-o", found]:
        session.run(python, "-m", "coverage", *words, env=env, external=True)
    print("\n".join(covered(json.loads(Path(found).read_text(encoding="utf-8"))["files"])))


def covered(files):
    """Returns a line per package with the share of lines and branches that the tests reach."""
    row = "%-44s%10s%12s"
    sums = {}
    for path, found in files.items():
        for name in (str(Path(path).parent), "all"):
            count = sums.setdefault(name, [0, 0, 0, 0])
            keys = "covered_lines", "num_statements", "covered_branches", "num_branches"
            count[:] = [old + found["summary"][key] for old, key in zip(count, keys)]
    lines = ["", row % ("package", "lines", "branches")]
    for name, (hit, of, taken, ways) in sorted(sums.items()):
        shares = 100.0 * hit / max(of, 1), 100.0 * taken / max(ways, 1)
        lines.append(row % (name, *(f"{share:.2f} %" for share in shares)))
    return lines


@nox.session(python=False)
def seconds(session):
    """Records how long the long tests take, from the reports of the last run of all lanes."""
    names = [*(lane.name for lane in LANES), "keras-" + lanes.OLDEST_KERAS_3]
    paths = [ENVIRONMENTS / f"report-{name}.json" for name in names]
    paths = [str(path) for path in paths if path.exists()]
    python = environment(session, LANES[-1])
    session.run(python, "-m", "tests.tools.seconds", *paths, external=True)


@nox.session(python=False)
def sanitize(session):
    """Runs native kernels under the sanitizers for addresses and undefined behaviour."""
    session.run(environment(session, LANES[-1]), "-m", "tests.tools.sanitize", external=True)


@nox.session(python=False)
@each_lane
def mutations(session, lane):
    """Checks that tests fail if the bridge to the lane's Keras is broken in copies of the code."""
    session.run(environment(session, lane), "-m", "tests.tools.mutations", external=True)


@nox.session(python=False)
def lint(session):
    """Checks the style of the code, and its types."""
    session.run(sys.executable, "-m", "ruff", "check", ".", external=True)
    session.run(sys.executable, "-m", "ruff", "format", "--check", ".", external=True)
    session.run(sys.executable, "-m", "basedpyright", external=True)
    session.run(sys.executable, "tests/tools/completions.py", "--check", external=True)
