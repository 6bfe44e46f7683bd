"""Runs a Python command line in a forked process, for `programs.Forked`.

This file is run by its path. It cannot be imported from the package `tests`, because importing
`tests` enables eager execution, which is off by default in TensorFlow 1.15.
"""

import contextlib
import os
import runpy
import signal
import sys
import threading
import types


def main(command, outputs, folder, environment, starter):
    """Runs `python COMMAND` in this process, in which some modules are imported already.

    Args:
      command: the arguments after `python`.
      outputs: paths of new files, for stdout and stderr.
      folder: the working directory.
      environment: all environment variables.
      starter: the reading end of a pipe. The starting process keeps the writing end open.
    """
    os.setsid()
    threading.Thread(target=end_with, args=[starter], daemon=True).start()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    for stream, path in enumerate(outputs, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), stream)
    start, *sys.argv = command
    if start == "-c":
        code, sys.argv[0] = sys.argv[0], start
        sys.modules["__main__"] = module = types.ModuleType("__main__")
        exec(compile(code, "<string>", "exec"), vars(module))
    elif start == "-m":
        sys.path.insert(0, folder)
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv.insert(0, start)
        sys.path.insert(0, os.path.dirname(start))
        runpy.run_path(start, run_name="__main__")


def end_with(starter):
    """Kills all processes of this process group as soon as the starting process has ended."""
    with contextlib.suppress(EOFError):
        starter.recv()
    os.killpg(0, signal.SIGKILL)


main(**REQUEST)  # noqa: F821 - a global that programs.Forked passes to runpy
