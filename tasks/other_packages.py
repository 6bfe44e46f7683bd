"""Tests with other packages: tf-slim, deepctr, TensorFlow Addons, Horovod."""

import os
import shutil

import nox

import lanes
from tasks.environments import (
    ENVIRONMENTS,
    LANES,
    ROOT,
    each_lane,
    environment,
    install,
    missing,
    small_environment,
)

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
@nox.parametrize("lane", [nox.param(x, id=x.name) for x in LANES if x.name in lanes.ADDONS_LANES])
def addons(session, lane):
    """Compares with the optimizers of TensorFlow Addons. Arguments after -- go to pytest."""
    python = environment(session, lane)
    env = {"PYTHONPATH": client_packages(session, lane, python, lanes.ADDONS)}
    session.run(
        python, "-m", "pytest", "-q", "tests/addons", *session.posargs, env=env, external=True
    )


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
