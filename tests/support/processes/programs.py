"""Programs in sessions of their own, which end with the test that started them; and waiting."""

import contextlib
import os
import signal
import subprocess
import sys
import time

from tests.support.paths import ROOT


@contextlib.contextmanager
def started(*command):
    """A Python program, of which no process outlives the `with` block."""
    with subprocess.Popen(
        [sys.executable, *map(str, command)],
        cwd=str(ROOT),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        start_new_session=True,
    ) as program:
        try:
            yield program
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)


def run(*command, seconds):
    """Runs a Python program; when it has ended or the time is over, all of it is killed."""
    with started(*command) as program:
        output, errors = program.communicate(timeout=seconds)
    return subprocess.CompletedProcess(command, program.returncode, output, errors)


def wait_until(condition, seconds):
    """Waits until a function returns something true; fails when the time is over."""
    stop = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < stop
        time.sleep(0.05)
