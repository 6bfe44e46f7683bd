"""The corpus: files of every TensorFlow that stay readable."""

import shutil

import nox

from tasks.environments import (
    CHOSEN,
    ENVIRONMENTS,
    LANES,
    QUIET_TENSORFLOW,
    ROOT,
    each_lane,
    environment,
)
from tasks.testing import run_tests

FOLDER = ROOT / "tests" / "data" / "corpus"


@nox.session(python=False)
def corpus(session):
    """Writes the files of one TensorFlow, in an environment that is deleted afterwards.

    The environment of a lane stays.
    """
    if not CHOSEN:
        session.error("usage: make corpus TF=2.7.4 PYTHON=3.9")
    (lane,) = LANES
    if (FOLDER / lane.tensorflow).exists():
        session.error(f"{FOLDER / lane.tensorflow} is there. Its files are never written again.")
    home = ENVIRONMENTS / lane.name
    was_there = home.exists()
    try:
        python = environment(session, lane)
        script = [python, "-m", "tests.tools.corpus"]
        session.run(*script, env=QUIET_TENSORFLOW, external=True)
    finally:
        if not was_there:
            shutil.rmtree(str(home), ignore_errors=True)


@nox.session(python=False)
@each_lane
def corpus_check(session, lane):
    """Reads all files of the corpus on a lane. Arguments after -- are passed to pytest."""
    python = environment(session, lane)
    run_tests(session, lane.name, python, ["tests/corpus", *session.posargs])
