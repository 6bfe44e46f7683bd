"""`legacy-opt completion`: prints a script with which a shell completes commands and options.

`make completions` writes the scripts, by the package shtab.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TextIO

from . import terminal

_DESCRIPTION = """\
Prints a script for a shell. With it, the shell completes the commands and options of legacy-opt.
"""
_EPILOG = """\
Add one of these lines to the shell's start-up file (for zsh, below compinit):

  bash, ~/.bashrc                    eval "$(legacy-opt completion bash)"
  zsh, ~/.zshrc                      eval "$(legacy-opt completion zsh)"
  fish, ~/.config/fish/config.fish   legacy-opt completion fish | source

exit codes: 0, success; 2, another shell
"""
SHELLS = ("bash", "zsh", "fish")
FOLDER = Path(__file__).resolve().parent / "completions"


def add_command(commands: terminal.Commands):
    """Adds `completion` to the command line."""
    summary = "print a script for the shell's completion"
    parser = terminal.add_parser(commands, "completion", summary, _DESCRIPTION, _EPILOG, execute)
    parser.add_argument("shell", choices=SHELLS, help="the shell")


def execute(arguments: argparse.Namespace, screen: TextIO) -> terminal.Outcome:
    """Returns an `Outcome` with the script."""
    text = (FOLDER / arguments.shell).read_text(encoding="utf-8")
    return terminal.Outcome(terminal.SUCCESS, {"script": text}, tuple(text.splitlines()))
