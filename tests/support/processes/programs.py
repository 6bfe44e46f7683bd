"""Runs Python programs in new process sessions, and kills them when the test ends."""

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
# Importing TensorFlow takes seconds. Therefore a server process imports it once, and programs are
# forked from this server process.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tensorflow", "legacy_opt.compat"])


@contextlib.contextmanager
def started(*command, folder=ROOT, environment=()):
    """Starts a new Python process; kills it and its children when the `with` block ends."""
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
    """Runs a program like `run`, but in a new Python process with nothing imported.

    This function is for tests of imports, and for tests of environment variables that TensorFlow
    reads when it is imported.
    """
    with started(*command, **options) as program:
        texts = program.communicate(timeout=seconds)
    return subprocess.CompletedProcess(command, program.returncode, *texts)


class Forked:
    """A program in a forked process; it ends at the latest when the tests' process ends.

    Args:
      command, folder, environment: the arguments of `run`.
      home: an empty directory for the files with the program's output.
    """

    def __init__(self, command, folder, environment, home):
        self.outputs = [pathlib.Path(home, name) for name in ("stdout", "stderr")]
        # Nothing is sent through the pipe. When this process ends, the writing end of the pipe is
        # closed, and therefore the program ends.
        starter, self._writing_end = CONTEXT.Pipe(duplex=False)
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
        """The exit code, or None while the program runs."""
        return self.process.exitcode

    def texts(self):
        """Returns the contents of stdout and stderr so far."""
        return [path.read_text(encoding="utf-8") if path.exists() else "" for path in self.outputs]


@contextlib.contextmanager
def forked(*command, folder=ROOT, environment=()):
    """Starts a `Forked` program; kills it and its children when the `with` block ends."""
    with tempfile.TemporaryDirectory() as home:
        program = Forked(command, folder, environment, home)
        try:
            yield program
        finally:
            kill_session(program.process.pid)


def run(*command, seconds, **options):
    """Runs a Python program in a forked process that has TensorFlow and this package imported.

    When the program has ended or timed out, kills all of its processes that still run.

    Args:
      *command: the arguments after `python`: a script, or -c or -m, and its arguments.
      seconds: the timeout.
      folder: the working directory.
      environment: environment variables in addition to those of this process.

    Returns:
      A `subprocess.CompletedProcess`.

    Raises:
      subprocess.TimeoutExpired: the program did not end in time.
    """
    with forked(*command, **options) as program:
        program.process.join(seconds)
        if program.code is None:
            raise subprocess.TimeoutExpired(command, seconds)
        return subprocess.CompletedProcess(command, program.code, *program.texts())


def kill_session(number):
    """Kills the leader of a process session, and all processes of the leader's process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(number, signal.SIGKILL)


def wait_until(condition, seconds):
    """Waits until a function returns a true value; raises AssertionError after a timeout."""
    stop = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < stop
        time.sleep(0.05)
