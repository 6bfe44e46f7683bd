"""Python programs in sessions of their own, which end with the test that started them; waiting."""

import contextlib
import multiprocessing
import os
import pathlib
import runpy
import signal
import subprocess
import sys
import tempfile
import time

from tests.support.paths import ROOT

FORKED = pathlib.Path(__file__).with_name("forked.py")
# The process to fork from imports TensorFlow once, which takes seconds, and runs nothing.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tensorflow", "legacy_opt.compat"])


@contextlib.contextmanager
def started(*command, folder=ROOT, environment=()):
    """A new Python, as `run` takes it, of which no process outlives the `with` block."""
    with subprocess.Popen(
        [sys.executable, *map(str, command)],
        cwd=str(folder),
        env=dict(os.environ, **dict(environment)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        start_new_session=True,
    ) as program:
        try:
            yield program
        finally:
            kill_session(program.pid)


def run_in_new_python(*command, seconds, **options):
    """Runs a program as `run` does, with nothing imported.

    What tests imports, or variables of the environment that an import reads, needs it.
    """
    with started(*command, **options) as program:
        texts = program.communicate(timeout=seconds)
    return subprocess.CompletedProcess(command, program.returncode, *texts)


def run(*command, seconds, folder=ROOT, environment=()):
    """Runs a Python program; when it has ended or the time is over, all of it is killed.

    TensorFlow and this package are imported already.

    Args:
      *command: what stands behind `python`: a script, or -c or -m, and its arguments.
      seconds: the time that it has.
      folder: the working directory.
      environment: variables besides those of this process.

    Returns:
      A `subprocess.CompletedProcess`.

    Raises:
      subprocess.TimeoutExpired: if the time is over.
    """
    command = [str(word) for word in command]
    with tempfile.TemporaryDirectory() as home:
        outputs = [pathlib.Path(home, name) for name in ("stdout", "stderr")]
        request = {
            "command": command,
            "outputs": [str(path) for path in outputs],
            "folder": str(folder),
            "environment": dict(os.environ, **dict(environment)),
        }
        process = CONTEXT.Process(target=runpy.run_path, args=[str(FORKED), {"REQUEST": request}])
        process.start()
        try:
            process.join(seconds)
            code = process.exitcode
        finally:
            kill_session(process.pid)
        if code is None:
            raise subprocess.TimeoutExpired(command, seconds)
        texts = [path.read_text(encoding="utf-8") for path in outputs]
        return subprocess.CompletedProcess(command, code, *texts)


def kill_session(number):
    """Kills all processes of a session, if there are any."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(number, signal.SIGKILL)


def wait_until(condition, seconds):
    """Waits until a function returns something true; fails when the time is over."""
    stop = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < stop
        time.sleep(0.05)
