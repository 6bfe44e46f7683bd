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


class Forked:
    """A program in a process that has been forked; it ends with this process at the latest.

    Args:
      command, folder, environment: as `run` takes them.
      home: a directory of its own, for what it writes.
    """

    def __init__(self, command, folder, environment, home):
        self.outputs = [pathlib.Path(home, name) for name in ("stdout", "stderr")]
        # Nothing is ever sent: its end is heard.
        starter, self._held = CONTEXT.Pipe(duplex=False)
        request = {
            "command": [str(word) for word in command],
            "outputs": [str(path) for path in self.outputs],
            "folder": str(folder),
            "environment": dict(os.environ, **dict(environment)),
            "starter": starter,
        }
        self.process = CONTEXT.Process(
            target=runpy.run_path, args=[str(FORKED), {"REQUEST": request}]
        )
        self.process.start()
        starter.close()

    @property
    def code(self):
        """The exit code, or None while it runs."""
        return self.process.exitcode

    def texts(self):
        """Returns what it has written to stdout, and to stderr."""
        return [path.read_text(encoding="utf-8") if path.exists() else "" for path in self.outputs]


@contextlib.contextmanager
def forked(*command, folder=ROOT, environment=()):
    """A `Forked` program, as `run` takes it, of which nothing outlives the `with` block."""
    with tempfile.TemporaryDirectory() as home:
        program = Forked(command, folder, environment, home)
        try:
            yield program
        finally:
            kill_session(program.process.pid)


def run(*command, seconds, **options):
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
    with forked(*command, **options) as program:
        program.process.join(seconds)
        if program.code is None:
            raise subprocess.TimeoutExpired(command, seconds)
        return subprocess.CompletedProcess(command, program.code, *program.texts())


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
