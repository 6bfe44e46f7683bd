"""The environments of the lanes, and what all tasks share."""

import contextlib
import fcntl
import hashlib
import os
import resource
import time
from pathlib import Path

import nox

import lanes

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENTS = ROOT / ".nox"
# The TensorFlow version of `make test-version`. This version need not belong to a lane.
CHOSEN = os.environ.get("LEGACY_OPT_TENSORFLOW")
LANES = lanes.LANES
if CHOSEN:
    LANES = (lanes.Lane(CHOSEN, os.environ["LEGACY_OPT_PYTHON"], ""),)
# oneDNN is disabled because TensorFlow 2.21 logs at every log level that it uses oneDNN.
QUIET_TENSORFLOW = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}
results = {}  # {name of a lane or task: test report, or a text}
spent = {}  # {task: [wall seconds, CPU seconds]}
each_lane = nox.parametrize("lane", [nox.param(lane, id=lane.name) for lane in LANES])


def environment(session, lane, examples=False):
    """Creates or updates the lane's environment, and returns its Python.

    Args:
      session: the nox session.
      lane: the `lanes.Lane`.
      examples: whether the task needs the packages of the examples (pandas, matplotlib, …). They
        are installed when a task needs them for the first time.
    """
    base = lanes.find_python(lane.python)
    if base is None:
        missing(session, lane)
    home = ENVIRONMENTS / lane.name
    python = str(home / "bin" / "python")
    stamp = home / "made-from"
    packages = lane.requirements + ([lanes.JAX] if lane.name == lanes.JAX_LANE else [])
    inputs = [base, ROOT, lane, packages, lane.requirements_alone]
    inputs.append((ROOT / "setup.py").read_text(encoding="utf-8"))
    whole = hashlib.sha256(repr(inputs).encode()).hexdigest()
    wanted = whole if examples else whole + " without examples"
    if stamp.exists() and stamp.read_text() in (whole, wanted):
        return python
    with counted("environments"):
        new_environment(session, base, python)
        # One command installs all packages, because a second command that does not name TensorFlow
        # could replace packages that TensorFlow needs. pip keeps the versions that are installed.
        extras = "[test,examples]" if examples else "[test]"
        with alone():  # setuptools writes into the checkout
            install(session, python, "-e", "." + extras, *packages)
        if lane.requirements_alone:
            install(session, python, "--no-deps", *lane.requirements_alone)
    stamp.write_text(wanted)
    return python


def new_environment(session, base, python):
    """Creates an environment, or repairs it; its pip supports editable installs."""
    session.run(base, "-m", "venv", str(Path(python).parents[1]), external=True)
    install(session, python, "--upgrade", "pip")


@contextlib.contextmanager
def alone():
    """Waits until no other process is in this scope."""
    with open(ENVIRONMENTS / "lock", "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def counted(task):
    """Adds the wall and CPU seconds of the programs that run in this scope to `spent`."""

    def now():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return time.time(), usage.ru_utime + usage.ru_stime

    before = now()
    try:
        yield
    finally:
        sums = spent.setdefault(task, [0.0, 0.0])
        for number, (start, end) in enumerate(zip(before, now())):
            sums[number] += end - start


def install(session, python, *words):
    """Installs packages into an environment. Shows pip's output, because pip may take minutes."""
    # pip would compile all modules of TensorFlow. Python compiles the few that are imported.
    pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-compile"]
    session.run(*pip, *words, external=True)


def missing(session, lane):
    """Skips a lane whose Python is not installed, or fails if every lane is required."""
    results[lane.name] = f"skipped: Python {lane.python} is not installed"
    if os.environ.get("LEGACY_OPT_ALL_LANES"):
        session.error(f"Lane {lane.name} {results[lane.name]}")
    session.skip(results[lane.name])


def small_environment(session, home, base, *requirements):
    """Creates or updates an environment with some packages, and returns its Python."""
    python, stamp = str(home / "bin" / "python"), home / "made"
    wanted = "\n".join(requirements)
    if not stamp.exists() or stamp.read_text() != wanted:
        session.run(base, "-m", "venv", str(home), external=True)
        install(session, python, "--upgrade", "pip")
        install(session, python, *requirements)
        stamp.write_text(wanted)
    return python


@nox.session(python=False)
@each_lane
def prepare(session, lane):
    """Installs TensorFlow in a lane's new environment; `environment` installs the rest.

    Several lanes do this at the same time.
    """
    base, home = lanes.find_python(lane.python), ENVIRONMENTS / lane.name
    if base is not None and not home.exists():
        python = str(home / "bin" / "python")
        new_environment(session, base, python)
        install(session, python, *lane.requirements)
