"""Writes the scripts of `legacy-opt completion` with shtab; with --check, only compares them.

    python tests/tools/completions.py

Run it by its path: the package `tests` imports TensorFlow, which this program does not need.
"""

import argparse
import sys
from pathlib import Path

import shtab

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from legacy_opt.compat import cli
from legacy_opt.compat.cli import completion_command, docs_command

# Arguments without a file name. An argument with choices has them instead.
NO_FILES = {"MODULE:OBJECT", "REGEX", "NAME"}


def scripts():
    """Returns a dict from each shell to its script."""
    parser = cli.make_parser()
    (commands,) = [each for each in parser._actions if isinstance(each.choices, dict)]
    for name, command in commands.choices.items():
        for action in command._actions:
            if name == "docs" and action.dest == "page":
                action.choices = list(docs_command.pages())
            elif action.nargs != 0 and not action.choices and action.metavar not in NO_FILES:
                action.complete = shtab.FILE
    return {
        shell: shtab.complete(parser, shell).rstrip() + "\n" for shell in completion_command.SHELLS
    }


def main():
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if they differ")
    check = parser.parse_args().check
    for shell, text in scripts().items():
        path = completion_command.FOLDER / shell
        if not check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            sys.exit(f"{path} is out of date: run `make completions`")


if __name__ == "__main__":
    main()
