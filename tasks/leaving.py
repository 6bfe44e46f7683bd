"""`make leave`: trainings without TensorFlow."""

import shutil

import nox

import lanes
from tasks.environments import ENVIRONMENTS, LANES, ROOT, environment, install, small_environment
from tasks.testing import run_tests


@nox.session(python=False)
def leave(session):
    """Tests recorded rules in environments without TensorFlow; compares them with native kernels.

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
    session.run(python, "-m", "tests.docs.page_runs", *pages_of_leave(home), external=True)
    leave_to_torch(session, home)
    leave_to_jax(session, home)


_PAGES = "leave_tensorflow", "recorded_rules", "prove"


def pages_of_leave(home):
    """Returns the arguments of tests/docs/page_runs.py: pages with programs of PyTorch, JAX."""
    return ("--folder", str(home / "pages"), *(f"docs/{name}.md" for name in _PAGES))


def leave_to_torch(session, home):
    """Tests PyTorch and Keras; compares NumPy and PyTorch with the trainings of `make leave`."""
    targets = ("numpy", "native", "torch", "torch-fast", "torch-native", "torch-compile")
    python = torch_environment(session)
    install(session, python, lanes.KERAS_OF_LEAVE)
    leave_to(session, python, home, "torch", targets)


def leave_to_jax(session, home):
    """Tests JAX, optax and Keras, and compares them with the trainings of `make leave`."""
    targets = ("jax", "jax-native", "optax", "optax-fast", "keras", "jax-naive")
    leave_to(session, jax_environment(session), home, "jax", targets)


def torch_environment(session):
    """Creates an environment with PyTorch and without TensorFlow, and returns its Python."""
    packages = lanes.LEAVE_PACKAGES
    python = leave_environment(session, "environment", lanes.LEAVE_PYTHON, packages)
    install(session, python, "--no-deps", lanes.TORCH)  # its own requirements contain CUDA
    return python


def jax_environment(session):
    """Creates an environment with JAX and without TensorFlow, and returns its Python."""
    return leave_environment(session, "jax", lanes.LEAVE_JAX_PYTHON, lanes.LEAVE_JAX_PACKAGES)


def leave_environment(session, name, version, packages):
    """Creates an environment without TensorFlow, and returns its Python."""
    base = lanes.find_python(version) or session.error(f"Python {version} is not installed")
    return small_environment(session, ENVIRONMENTS / "leave" / name, base, *packages)


def leave_to(session, python, home, library, targets):
    """Runs tests and pages, and compares targets."""

    def run(program, *args):
        env = {"PYTHONPATH": str(ROOT), "LEGACY_OPT_KERNELS": str(ENVIRONMENTS / "kernels")}
        session.run(python, f"tests/{program}", *args, env=env, external=True)

    folders = [f"tests/recorded/{each}" for each in (library, "keras")]
    run_tests(session, f"leave-{library}", python, folders)
    run("docs/page_runs.py", *pages_of_leave(home))
    for target in targets:
        if target in (session.posargs or targets):
            run("tools/leave.py", "check", str(home / "runs"), target)
