"""Programs that measure, compare, record and draw."""

import os
import shutil
import sys

import nox

import lanes
from tasks.environments import (
    ENVIRONMENTS,
    LANES,
    QUIET_TENSORFLOW,
    ROOT,
    each_lane,
    environment,
    install,
)
from tasks.leaving import jax_environment, torch_environment
from tasks.other_packages import client_packages

DEMO = ["examples_graph_mode/flights_session.py", "--verify-resume"]
MIGRATION = ["examples_graph_mode/migration_story.py"]
PROOF = ["examples_graph_mode/prove_demo.py"]
BENCHMARK = ["benchmarks/run.py"]
# The data of `make gallery`, and the lanes on which optimizers are timed for it.
GALLERY = ["catalogue", "accumulator", "tensorboard", "drift", "torch", "story", "speed"]
GALLERY += ["embeddings", "leave_speed"]
GALLERY_SPEED_LANES = ("1.15", "2.10", "2.15", "2.21")


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
        install(session, python, "-e", ".[examples]", "tensorflow")
    session.run(python, *DEMO, *session.posargs, env=QUIET_TENSORFLOW, external=True)
    print("\nNext: `make migration-demo` moves a training from TensorFlow 1.15 to Keras 3.")


@nox.session(python=False)
def migration_demo(session):
    """Migrates a training from the oldest lane to Keras on the newest lane, and back."""
    old, new = (environment(session, lane, examples=True) for lane in (LANES[0], LANES[-1]))
    session.run(new, *MIGRATION, "--old", old, "--new", new, *session.posargs, external=True)


@nox.session(python=False)
def prove_demo(session):
    """Records a training on the oldest lane, and proves it on the newest lane and in PyTorch."""
    old, new = (environment(session, lane, examples=True) for lane in (LANES[0], LANES[-1]))
    words = ["--old", old, "--new", new, "--torch", torch_environment(session)]
    session.run(new, *PROOF, *words, *session.posargs, external=True)


@nox.session(python=False)
def gallery(session):
    """Measures and draws the pictures of docs/gallery.md; with --draw, only draws them.

    Other arguments are names of pictures, such as `speed`; the default is all of them. After
    `catalogue`, names of optimizers, such as `LazyAdam`, may follow: only these are trained.
    """
    words = [word for word in session.posargs if word != "--draw"]
    names = [word for word in words if word in GALLERY]
    optimizers = [word for word in words if word not in GALLERY]
    if optimizers and "catalogue" not in names:
        session.error(f"{optimizers[0]} is none of the pictures {', '.join(GALLERY)}.")
    run = gallery_programs(session)
    if "--draw" not in session.posargs:
        measure_gallery(session, run, names or GALLERY, optimizers)
    run(LANES[-1], "benchmarks.gallery.draw", *names)


def gallery_programs(session):
    """Returns a function that runs a module, of examples_graph_mode too, on a lane."""

    def run(lane, *words, python=None):
        python = python or environment(session, lane, examples=True)
        session.run(python, "-m", *map(str, words), env=env, external=True)

    env = {**QUIET_TENSORFLOW, "LEGACY_OPT_KERNELS": str(ENVIRONMENTS / "kernels")}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "examples_graph_mode")])
    return run


def measure_gallery(session, run, names, optimizers):
    """Measures the data of pictures; `run` is of `gallery_programs`."""
    home = ENVIRONMENTS / "gallery"
    by_name = {lane.name: lane for lane in LANES}
    old, new, middle = LANES[0], LANES[-1], by_name["2.15"]
    if "catalogue" in names:
        run(middle, "benchmarks.gallery.catalogue", *optimizers)
    if "accumulator" in names:
        run(middle, "benchmarks.gallery.accumulator")
    if "tensorboard" in names:
        run(middle, "benchmarks.gallery.slots", home / "summaries")
    if not {"drift", "torch"}.isdisjoint(names):
        shutil.rmtree(str(home / "drift"), ignore_errors=True)
        for lane in (old, new):
            run(lane, "benchmarks.gallery.drift", "train", home / "drift")
        run(new, "benchmarks.gallery.drift", "compare", home / "drift")
    if "torch" in names:
        words = ["benchmarks.gallery.torch_names", home / "drift"]
        run(None, *words, python=torch_environment(session))
    if "story" in names:
        pythons = [environment(session, lane, examples=True) for lane in (old, new)]
        words = ["--old", pythons[0], "--new", pythons[1], "--optimizers", "AdagradDecay"]
        run(new, "migration_story", "--out", home / "story", *words)
        run(new, "benchmarks.gallery.story", home / "story")
    if "speed" in names:
        shutil.rmtree(str(home / "speed"), ignore_errors=True)
        for lane in (by_name[name] for name in GALLERY_SPEED_LANES):
            run(lane, "legacy_opt", "build-kernels")
            run(lane, "benchmarks.gallery.speed", home / "speed")
        run(new, "benchmarks.gallery.speed", home / "speed", "collect")
    if "embeddings" in names:
        run(new, "benchmarks.gallery.embeddings")
    if "leave_speed" in names:
        run(new, "benchmarks.leave.pages", *measure_leave(session, []))


@nox.session(python=False)
@each_lane
def bench(session, lane):
    """Runs the benchmark on a lane. Arguments after -- are passed to the benchmark."""
    python = environment(session, lane)
    session.run(python, "-m", "legacy_opt", "build-kernels", external=True)
    session.run(python, *BENCHMARK, *session.posargs, external=True)


@nox.session(python=False)
def bench_leave(session):
    """Measures recorded rules in PyTorch and JAX. Arguments after -- are for run.py."""
    measure_leave(session, session.posargs)


def measure_leave(session, words):
    """Measures recorded rules in PyTorch and JAX; returns the paths of the results."""
    run, paths = gallery_programs(session), []
    pythons = {"torch": torch_environment(session), "jax": jax_environment(session)}
    for library, python in pythons.items():
        paths.append(ENVIRONMENTS / "leave" / f"speed-{library}.json")
        program = ["benchmarks.leave.run", library, "--json", paths[-1]]
        run(None, *program, *words, python=python)
    return paths


@nox.session(python=False)
@each_lane
def matrix(session, lane):
    """Compares Keras optimizers with Sessions on a lane. `matrix_page` writes the table."""
    path = matrix_results(lane)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)  # if this run fails, the table must not show an older one
    python = environment(session, lane)
    session.run(python, "-m", "tests.support.exactness", str(path), external=True)


@nox.session(python=False)
def matrix_page(session):
    """Writes the table of docs/keras.md if `matrix` has run on all lanes."""
    missing = [lane.name for lane in LANES if not matrix_results(lane).exists()]
    if missing:
        session.skip(f"the table needs the lanes {', '.join(missing)}, too: make matrix LANE=…")
    paths = [str(matrix_results(lane)) for lane in LANES]
    page = str(ROOT / "docs" / "keras.md")
    newest = environment(session, LANES[-1])
    session.run(newest, "-m", "tests.support.exactness", page, *paths, external=True)


def matrix_results(lane):
    """Returns the file in which `matrix` leaves the results of a lane for `matrix_page`."""
    return ENVIRONMENTS / "exactness" / f"{lane.name}.json"


@nox.session(python=False)
def scripts(session):
    """Trains old scripts on every lane, and writes their losses into docs/old_scripts.md."""
    home = ENVIRONMENTS / "scripts"
    home.mkdir(parents=True, exist_ok=True)
    tool = ["-m", "tests.tools.old_scripts"]
    paths = [str(home / (lane.name + ".json")) for lane in LANES]
    for lane, path in zip(LANES, paths):
        python = environment(session, lane)
        env = {"PYTHONPATH": client_packages(session, lane, python, lanes.OF_SCRIPTS)}
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
def vectors(session):
    """Draws the data of the package legacy-opt-vectors, on lane 2.15."""
    (lane,) = [lane for lane in LANES if lane.name == "2.15"]
    session.run(environment(session, lane), "-m", "tests.tools.vectors", external=True)


@nox.session(python=False)
def native_differences(session):
    """Prints how often results of native kernels differ from TensorFlow's, on every lane."""
    pythons = [environment(session, lane) for lane in LANES if lanes.find_python(lane.python)]
    for python in pythons:
        session.run(python, "-m", "legacy_opt", "build-kernels", external=True)
    session.run(pythons[-1], "-m", "tests.tools.native_differences", *pythons, external=True)
