"""Code that commands share: argument parsers, exit codes, and the function that runs a command."""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import json
import os
import signal
import sys
import threading
import traceback
from typing import (
    Any,
    Callable,
    Dict,
    Iterator,
    List,
    NamedTuple,
    NoReturn,
    Optional,
    Sequence,
    TextIO,
    Tuple,
    Union,
)

from legacy_opt.core.nearest_names import did_you_mean

from .. import messages, plain_text
from . import colours, tables
from .quiet import silence

SUCCESS, MANUAL_WORK, BAD_INPUT = 0, 1, 2  # exit codes; for bad input, nothing is written
# Commands that do not need it.
_WITHOUT_TENSORFLOW = (
    *("audit", "completion", "docs", "export"),
    *("prove draw", "prove replay", "prove resume"),
)
_LONGEST = 2000  # characters of an error, which may contain names of others
_INTERRUPTED = 130  # the exit code that shells report after Ctrl-C


class Outcome(NamedTuple):
    """The result of a command."""

    code: int  # the exit code
    facts: Dict[str, Any]  # JSON-serializable; printed with `--json`
    blocks: Tuple[Union[str, tables.Table], ...]  # lines and tables, printed without `--json`


Commands = Any  # what `add_subparsers` of a parser returns
Execute = Callable[[argparse.Namespace, TextIO], Outcome]  # see `run_command`


class CommandParser(argparse.ArgumentParser):
    """Prints usage errors on one line, and suggests the nearest option or command.

    Attributes:
      takes_script: whether all words after "--" are a script with its arguments, `argv`.
    """

    takes_script = False

    def parse_known_args(
        self, args: Optional[Sequence[str]] = None, namespace: Any = None
    ) -> Tuple[Any, List[str]]:
        """Parses arguments. Refuses unknown options before it reports missing arguments."""
        known = [option for action in self._actions for option in action.option_strings]
        for word in self._words_of_this_parser(args or ()):
            option = word.partition("=")[0]
            if option[:2] == "--" and not any(each.startswith(option) for each in known):
                self.error(f"there is no option {option}.{did_you_mean(option, known)}")
        words = list(args or ())
        if not (self.takes_script and "--" in words):
            return super().parse_known_args(args, namespace)
        end = words.index("--")
        parsed, others = super().parse_known_args(words[:end], namespace)
        parsed.argv = words[end + 1 :]
        return parsed, others

    def _words_of_this_parser(self, words: Sequence[str]) -> Iterator[str]:
        """Yields the arguments up to "--", or up to a command or script with its own options."""
        has_command = any(action.nargs == argparse.PARSER for action in self._actions)
        with_value = [each.option_strings for each in self._actions if each.nargs != 0]
        is_value = False  # whether the next word is the value of an option
        for word in words:
            is_command = has_command and not is_value and word[:1] != "-"
            if word == "--" or is_command:
                return
            is_value = any(word in options for options in with_value)
            yield word

    def _check_value(self, action: argparse.Action, value: Any):
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(
                action,
                f"invalid choice: {value!r}.{did_you_mean(value, action.choices)} Choose from "
                f"{', '.join(action.choices)}",
            )

    def error(self, message: str) -> NoReturn:
        """Prints the error and ends the process."""
        message = plain_text.printable(message, sys.stderr)
        prog = colours.painted(f"{self.prog}:", "red", sys.stderr)
        self.exit(BAD_INPUT, f"{prog} {message} (see {self.prog} --help)\n")


def add_parser(
    commands: Commands, name: str, help: str, description: str, epilog: str, execute: Execute
) -> argparse.ArgumentParser:
    """Adds a command with --json and --traceback; `run_command` runs it by calling `execute`."""
    parser = commands.add_parser(
        name,
        help=help,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument(
        "--traceback", action="store_true", help="print the Python traceback of an error"
    )
    full_name = parser.prog.partition(" ")[2]  # such as "prove draw"
    parser.set_defaults(run=functools.partial(run_command, full_name, execute))
    return parser


def run_command(name: str, execute: Execute, arguments: argparse.Namespace) -> int:
    """Runs a command, prints its outcome, and returns the exit code.

    `execute` takes the parsed arguments and the stream for progress bars, and returns an `Outcome`.
    All other output during the call is dropped.
    """
    try:
        with exit_on_sigterm(), silence() as screen:
            if name not in _WITHOUT_TENSORFLOW:
                # Raises an ImportError with the pip command if TensorFlow is not installed.
                importlib.import_module("legacy_opt.public")
            outcome = execute(arguments, screen)
    except KeyboardInterrupt:
        print(_of_command(name, "interrupted"), file=sys.stderr)
        return _INTERRUPTED
    except Exception as error:  # TensorFlow, Keras and a user's module may raise any exception
        if arguments.traceback:
            for line in traceback.format_exc().splitlines():
                print(plain_text.printable(line, sys.stderr), file=sys.stderr)
        print(_of_command(name, one_line(error)), file=sys.stderr)
        return BAD_INPUT
    try:
        if arguments.json:
            print(json.dumps(outcome.facts, indent=2))
        else:
            tables.show(outcome.blocks, sys.stdout)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        # Python flushes stdout once more when it exits, and would then print an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return outcome.code


@contextlib.contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """Scope in which SIGTERM acts like `sys.exit`, so that temporary files are removed.

    It does nothing in other threads than the main one, and if the program handles the signal.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _exit)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is _exit:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _exit(number: int, frame: Any) -> NoReturn:
    raise SystemExit(128 + number)


def _of_command(name: str, message: str) -> str:
    return colours.painted(f"legacy-opt {name}:", "red", sys.stderr) + " " + message


def one_line(error: BaseException) -> str:
    """Returns the message of an exception on one line."""
    # Errors of these classes have messages for users. Other messages need the name of the class.
    text = messages.text_of(error) if isinstance(error, (ValueError, ImportError)) else ""
    text = text or messages.with_class(error)
    text = " ".join(text.split())
    text = text if len(text) <= _LONGEST else text[:_LONGEST] + "…"
    return plain_text.printable(text, sys.stderr)


def add_list(parser: argparse.ArgumentParser, option: str, metavar: str, what: str):
    """Adds an option that may be given several times."""
    parser.add_argument(option, metavar=metavar, action="append", default=[], help=what)


def named_number(text: str) -> Tuple[str, float]:
    """Returns the name and the number of an argument of --set."""
    name, _, number = text.partition("=")
    try:
        return name, float(number)
    except ValueError:
        raise ValueError(f"--set takes NAME=NUMBER, got {text!r}.") from None
