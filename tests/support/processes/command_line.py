"""Runs `legacy-opt`, in this process or in one of its own."""

import json
import os
import subprocess
import sys

import tensorflow as tf

from legacy_opt.compat import cli
from tests.support.paths import ROOT


class Screen:
    """Runs commands in this process and keeps what they print.

    Args:
      capsys: pytest's fixture.
    """

    def __init__(self, capsys):
        self._capsys = capsys

    def run(self, *words):
        """Returns (exit code, stdout, stderr)."""
        self._capsys.readouterr()
        arguments = list(sys.argv)  # which `legacy-opt run` makes the script's
        try:
            code = cli.main([str(word) for word in words])
        except SystemExit as stopped:  # argparse
            code = stopped.code
        finally:
            sys.argv = arguments
        output = self._capsys.readouterr()
        return code, output.out, output.err

    def json(self, *words, code=0):
        """Returns what `--json` prints, which is all that is printed."""
        found, output, errors = self.run(*words + ("--json",))
        assert (found, errors) == (code, ""), output
        return json.loads(output)

    def refused(self, *words):
        """Returns the one line that is printed where the exit code is 2."""
        code, output, errors = self.run(*words)
        assert (code, output) == (2, ""), errors
        assert errors.endswith("\n") and errors.count("\n") == 1, errors
        return errors


class FreshKeras(Screen):
    """Runs commands as in processes of their own, where no name of a layer is taken."""

    def run(self, *words):
        tf.keras.backend.clear_session()
        return super().run(*words)


def with_users_module(name, source, capsys, folder, monkeypatch):
    """Writes a module of a user's into a folder and goes there; returns a `FreshKeras`."""
    (folder / (name + ".py")).write_text(source)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    forget_module(name, monkeypatch)
    return FreshKeras(capsys)


def forget_module(name, monkeypatch):
    """Lets a test import a module anew, of which later tests see nothing."""
    monkeypatch.setitem(sys.modules, name, None)  # what monkeypatch takes back in the end
    del sys.modules[name]


def start(*words, **options):
    """Starts `python -m legacy_opt` in a process of its own."""
    environment = dict(os.environ, PYTHONPATH=str(ROOT))
    return subprocess.Popen(
        [sys.executable, "-m", "legacy_opt"] + [str(word) for word in words],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        **options,
    )
