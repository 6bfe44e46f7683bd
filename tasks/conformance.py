"""`make conformance`: which formulas the optimizers of other libraries have."""

import os
import shutil

import nox

import lanes
from benchmarks.conformance.places import OLD_TORCH, OLD_TORCH_PYTHON, PLACES
from tasks.environments import (
    ENVIRONMENTS,
    LANES,
    QUIET_TENSORFLOW,
    ROOT,
    environment,
    install,
    small_environment,
)
from tasks.leaving import jax_environment, torch_environment


@nox.session(python=False)
def conformance(session):
    """Writes docs/conformance.md. Arguments after -- are names of environments (places.py).

    What only this task needs is removed after each environment, so it is installed every time.
    """
    home = ENVIRONMENTS / "conformance"
    home.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(str(home)).free >> 20
    session.log(f"An environment needs up to 2,000 MB of disk for a while; {free:,} MB are free.")
    for name in session.posargs or PLACES:
        if name not in PLACES:
            session.error(f"There is no environment {name}, but {', '.join(PLACES)}")
        replay(session, name, home)
    python = jax_environment(session)
    session.run(python, "-m", "benchmarks.conformance.page", env=path(), external=True)


def replay(session, name, home):
    """Runs the optimizers of an environment, and writes its file in docs/data/conformance."""
    place = PLACES[name]
    made = home / name  # an environment, or a folder with packages
    shutil.rmtree(str(made), ignore_errors=True)
    python = base_python(session, place.base, made)
    target = "--target", str(made)
    if place.packages:
        install(session, python, "--no-deps", *target, *place.packages)
    if place.needs:
        install(session, python, *target, *place.needs)
    env = {**QUIET_TENSORFLOW, **path(str(made))}
    env["KERAS_BACKEND"] = {"torch": "torch", "jax": "jax"}.get(place.base, "tensorflow")
    words = ["-m", "benchmarks.conformance.run", name, f"docs/data/conformance/{name}.json"]
    session.run(python, *words, env=env, external=True)
    shutil.rmtree(str(made), ignore_errors=True)


def base_python(session, base, home):
    """Returns the Python of an environment; creates the one of an old PyTorch in `home`."""
    if base == "torch":
        python = torch_environment(session)
        install(session, python, lanes.KERAS_OF_LEAVE)
        return python
    if base == "jax":
        return jax_environment(session)
    if base != "old-torch":
        return environment(session, next(lane for lane in LANES if lane.name == base))
    found = lanes.find_python(OLD_TORCH_PYTHON)
    if found is None:
        session.error(f"Python {OLD_TORCH_PYTHON} is not installed")
    python = small_environment(session, home, found, *OLD_TORCH[1:])
    install(session, python, "--no-deps", OLD_TORCH[0])
    return python


def path(*folders):
    """Returns the variables with which programs find packages and kernels."""
    paths = os.pathsep.join([str(ROOT), *folders])
    return {"PYTHONPATH": paths, "LEGACY_OPT_KERNELS": str(ENVIRONMENTS / "kernels")}
