"""Runs the command `legacy-opt`, in this process or in a new process."""

import json
import os
import subprocess
import sys

import tensorflow as tf

from legacy_opt.compat import cli
from tests.support.paths import ROOT


class Screen:
    """Runs commands in this process and captures their output.

    Args:
      capsys: pytest's fixture.
    """

    def __init__(self, capsys):
        self._capsys = capsys

    def run(self, *words):
        """Runs a command; returns (exit code, stdout, stderr)."""
        self._capsys.readouterr()
        arguments = list(sys.argv)  # `legacy-opt run` replaces them with the script's arguments
        try:
            code = cli.main([str(word) for word in words])
        except SystemExit as stopped:  # raised by argparse
            code = stopped.code
        finally:
            sys.argv = arguments
        output = self._capsys.readouterr()
        return code, output.out, output.err

    def json(self, *words, code=0):
        """Runs a command with `--json`; returns its parsed stdout. Its stderr must be empty."""
        found, output, errors = self.run(*words + ("--json",))
        assert (found, errors) == (code, ""), output
        return json.loads(output)

    def refused(self, *words):
        """Runs a command that must fail with exit code 2; returns its one-line error message."""
        code, output, errors = self.run(*words)
        assert (code, output) == (2, ""), errors
        assert errors.endswith("\n") and errors.count("\n") == 1, errors
        return errors


class FreshKeras(Screen):
    """Clears Keras' state before each command, so that layer names are those of a new process."""

    def run(self, *words):
        tf.keras.backend.clear_session()
        return super().run(*words)


def with_users_module(name, source, capsys, folder, monkeypatch):
    """Writes a module, makes its folder the working directory, and returns a `FreshKeras`."""
    (folder / (name + ".py")).write_text(source)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    forget_module(name, monkeypatch)
    return FreshKeras(capsys)


def forget_module(name, monkeypatch):
    """Removes a module from sys.modules until the test ends, so that an import runs it again."""
    monkeypatch.setitem(sys.modules, name, None)  # makes monkeypatch restore the entry later
    del sys.modules[name]


def start(*words, path=(), **options):
    """Starts `python -m legacy_opt` in a new process, with further folders in `sys.path`."""
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(map(str, [ROOT, *path])))
    return subprocess.Popen(
        [sys.executable, "-m", "legacy_opt"] + [str(word) for word in words],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        **options,
    )
