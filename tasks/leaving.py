"""`make leave`: trainings without TensorFlow."""

import shutil

import nox

import lanes
from tasks.environments import ENVIRONMENTS, LANES, ROOT, environment, install, small_environment


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
    session.run(python, "-m", "tests.docs.page_runs", *pages_of_leave(home), external=True)
    leave_to_torch(session, home)
    leave_to_jax(session, home)


def pages_of_leave(home):
    """Returns the arguments of tests/docs/page_runs.py: pages with programs of PyTorch, JAX."""
    return "--folder", str(home / "pages"), "docs/leave_tensorflow.md", "docs/recorded_rules.md"


def leave_to_torch(session, home):
    """Compares NumPy and PyTorch with the trainings of `make leave`."""
    targets = ("numpy", "native", "torch", "torch-fast", "torch-native", "torch-compile")
    python = torch_environment(session)
    install(session, python, lanes.KERAS_OF_LEAVE)
    run = leave_script(session, python)
    run("leave_torch.py")
    run("../docs/page_runs.py", *pages_of_leave(home))
    run("leave_keras.py", KERAS_BACKEND="torch")
    leave_to(session, run, home, targets)


def leave_to_jax(session, home):
    """Compares JAX, optax and Keras with the trainings of `make leave`."""
    targets = ("jax", "optax", "optax-fast", "keras", "jax-naive")
    packages = lanes.LEAVE_JAX_PACKAGES
    run = leave_script(session, leave_environment(session, "jax", lanes.LEAVE_JAX_PYTHON, packages))
    run("leave_jax.py")
    run("../docs/page_runs.py", *pages_of_leave(home))
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
