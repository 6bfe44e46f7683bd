"""Tests of the command line: help, tables, progress bars, errors, `module:object` arguments."""

import io
import re
import sys

import pytest

from legacy_opt.compat import plain_text, user_objects
from legacy_opt.compat.cli import tables, terminal
from tests.support.processes.command_line import ROOT, forget_module, start

TABLE = tables.Table(("name", ">size"), [("a/[bold]kernel", "10"), ("b", "9,000")], "title")
PLAIN = """\
title
name             size
--------------  -----
a/[bold]kernel     10
b               9,000
"""


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("command", ["inspect", "convert", "compare", "audit"])
def test_each_command_has_help_with_an_example(screen, command):
    code, output, errors = screen.run(command, "--help")
    assert (code, errors) == (0, "")
    assert re.search(rf"examples?:\s+legacy-opt {command} ", output)
    assert "exit codes: 0" in output


def test_help_names_the_commands(screen):
    code, output, _ = screen.run("--help")
    assert code == 0
    names = ("doctor", "inspect", "convert", "compare", "audit", "run")
    assert all(f"\n    {name} " in output for name in names)


@pytest.mark.parametrize("words", [["nonsense"], ["inspect"], ["convert", "a", "b", "--to", "x"]])
def test_a_usage_error_is_one_line(screen, words):
    assert "--help" in screen.refused(*words)


def test_without_arguments_the_command_prints_its_help(screen):
    assert screen.run() == screen.run("--help")


@pytest.mark.parametrize(
    "words, message",
    [
        ("audit --jsn", "legacy-opt audit: there is no option --jsn. Did you mean '--json'? (see"),
        ("audit . --jsn=1", "legacy-opt audit: there is no option --jsn. Did you mean '--json'?"),
        ("doctor --json --xyz", "legacy-opt doctor: there is no option --xyz. (see"),
        ("--verzion", "legacy-opt: there is no option --verzion. Did you mean '--version'?"),
        ("run --forse x.py --jsn", "legacy-opt run: there is no option --forse. Did you mean '--f"),
        ("run x.py --jsn", "'x.py'"),
        ("adit .", "invalid choice: 'adit'. Did you mean 'audit'? Choose from doctor, inspect, "),
        ("convert a b --to kears", "invalid choice: 'kears'. Did you mean 'keras'? Choose from v1"),
    ],
)
def test_a_misspelled_word(screen, words, message):
    assert message in screen.refused(*words.split())


@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
def test_tables_are_plain_text(kind):
    stream = kind()
    tables.show(("before", TABLE, "after"), stream)
    assert stream.getvalue() == "before\n" + PLAIN + "after\n"


def test_an_empty_table_has_headings():
    assert list(tables.plain_lines(tables.Table(("a", ">bc"), []))) == ["a  bc", "-  --"]


def progress_on(stream):
    with tables.progress("convert", 10**7, stream) as advance:
        for _ in range(20):
            advance(500000)
    return stream.getvalue()


def test_progress_on_a_terminal():
    pytest.importorskip("tqdm")
    shown = progress_on(Terminal())
    assert "convert: 100%" in shown and "10.0M/10.0M" in shown


def test_no_progress_without_a_terminal():
    assert progress_on(io.StringIO()) == ""


def test_no_progress_without_tqdm(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)  # makes `import tqdm` raise an ImportError
    assert progress_on(Terminal()) == ""


@pytest.mark.parametrize(
    ["count", "text"],
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "1 kB"), (1.5e9, "1.5 GB"), (3e15, "3e+03 TB")],
)
def test_sizes(count, text):
    assert plain_text.size(count) == text


class Arguments:
    json = traceback = False


def exit_code_of_a_command_that_raises(error):
    def execute(arguments, screen):
        print("output of a user's module")
        raise error

    return terminal.run_command("inspect", execute, Arguments)


@pytest.mark.parametrize(
    ["error", "code", "line"],
    [
        (ValueError("no such\ncheckpoint"), 2, "legacy-opt inspect: no such checkpoint\n"),
        (
            OSError(28, "No space left"),
            2,
            "legacy-opt inspect: OSError: [Errno 28] No space left\n",
        ),
        (RuntimeError(), 2, "legacy-opt inspect: RuntimeError\n"),
        (KeyboardInterrupt(), 130, "legacy-opt inspect: interrupted\n"),
    ],
)
def test_an_error_is_printed_on_one_line_without_traceback(capsys, error, code, line):
    assert exit_code_of_a_command_that_raises(error) == code
    assert tuple(capsys.readouterr()) == ("", line)


def test_traceback_on_request(capsys, monkeypatch):
    monkeypatch.setattr(Arguments, "traceback", True)
    assert exit_code_of_a_command_that_raises(ValueError("no")) == 2
    errors = capsys.readouterr().err
    assert errors.startswith("Traceback") and errors.endswith("\nlegacy-opt inspect: no\n")


def test_a_closed_pipe_is_no_error():
    process = start("inspect", "tests/data/adagrad-decay-1.15", cwd=str(ROOT))
    process.stdout.close()
    assert (process.wait(), process.stderr.read()) == (0, "")
    process.stderr.close()


MODULE = """
import collections
settings = collections.namedtuple("Settings", "rate")(0.5)
def build():
    return undefined_name
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "of_a_user.py").write_text(MODULE)
    (tmp_path / "broken_one.py").write_text("import sys\nsys.exit('not today')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("of_a_user", "broken_one"):
        forget_module(name, monkeypatch)


def test_objects_are_loaded_from_the_current_folder(folder):
    assert user_objects.load("of_a_user:settings").rate == 0.5
    assert user_objects.load("of_a_user:settings.rate") == 0.5


@pytest.mark.parametrize(
    ["name", "words"],
    [
        ("of_a_user", "'of_a_user' is not of the form module:object"),
        ("of_a_user:", "is not of the form module:object"),
        ("no_such_module:build", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("of_a_user:biuld", "there is no 'biuld' in it. Did you mean 'build'?"),
        ("broken_one:build", "SystemExit: not today (broken_one.py, line 2)"),
    ],
)
def test_errors_of_objects_that_cannot_be_loaded(folder, name, words):
    with pytest.raises(ImportError, match=re.escape(words)):
        user_objects.load(name)


def test_the_error_of_a_users_function_names_file_and_line(folder):
    build = user_objects.load("of_a_user:build")
    words = "NameError: name 'undefined_name' is not defined (of_a_user.py, line 5)"
    with pytest.raises(ImportError, match=re.escape(words)):
        user_objects.call("of_a_user:build", build)
