"""Tests of the command line: help, tables, progress bars, errors, `module:object` arguments."""

import io
import re
import subprocess
import sys

import pytest

import legacy_opt
from legacy_opt import _checkout
from legacy_opt.compat import plain_text
from legacy_opt.compat.cli import tables, terminal
from legacy_opt.compat.state import user_objects
from tests.support.processes.command_line import ROOT, forget_module, start

TABLE = tables.Table(("name", ">size"), [("a/[bold]kernel", "10"), ("b", "9,000")])
PLAIN = """\
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


ADVICE = tables.Table(
    ("name", "action", "advice"), [("a", "MANUAL", "one two " * 6), ("b", "", "")]
)


def shown(table, kind, monkeypatch, **environment):
    """Returns what a stream of the class `kind` gets, with these environment variables alone."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    stream = kind()
    tables.show(("before", table, "after"), stream)
    return stream.getvalue()


@pytest.mark.parametrize("variable", ["NO_COLOR=1", "TERM=dumb"])
@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
def test_tables_are_plain_text(kind, variable, monkeypatch):
    name, _, value = variable.partition("=")
    assert shown(TABLE, kind, monkeypatch, **{name: value}) == "before\n" + PLAIN + "after\n"


@pytest.mark.skipif(sys.platform == "win32", reason="consoles of Windows get no colours")
def test_tables_have_colours_on_a_terminal(monkeypatch):
    text = shown(ADVICE, Terminal, monkeypatch)
    assert "\x1b[1mname\x1b[0m" in text and "\x1b[31mMANUAL\x1b[0m" in text
    assert "\x1b" not in shown(ADVICE, io.StringIO, monkeypatch)
    assert "\x1b[31m" in shown(ADVICE, io.StringIO, monkeypatch, FORCE_COLOR="1")
    assert "\x1b" not in shown(ADVICE, Terminal, monkeypatch, FORCE_COLOR="1", NO_COLOR="1")


def test_long_texts_are_wrapped_on_a_terminal(monkeypatch):
    wide = shown(ADVICE, Terminal, monkeypatch, NO_COLOR="1", COLUMNS="48").splitlines()
    assert wide[3:5] == [
        "a     MANUAL  one two one two one two one two",
        " " * 14 + "one two one two",
    ]
    assert wide[5] == "b"
    narrow = shown(ADVICE, Terminal, monkeypatch, NO_COLOR="1", COLUMNS="24").splitlines()
    assert narrow[1:5] == [
        "name  action",
        "----  ------",
        "a     MANUAL",
        "    one two one two one",
    ]
    assert max(map(len, narrow)) <= 24
    for columns in ("1", "4", "10"):
        assert "MANUAL" in shown(ADVICE, Terminal, monkeypatch, NO_COLOR="1", COLUMNS=columns)
    alone = tables.Table(("name",), [("some words",)])
    assert "some\nwords\n" in shown(alone, Terminal, monkeypatch, NO_COLOR="1", COLUMNS="6")


def test_errors_have_colours_on_a_terminal(screen, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert screen.refused("docs", "nix").startswith("\x1b[31mlegacy-opt docs:\x1b[0m there is no")


def test_the_version_of_a_checkout_has_its_commit(screen, monkeypatch):
    assert re.fullmatch(
        r"legacy-opt [\d.]+\w*( \(commit [0-9a-f]{10}(-dirty)?\))?\n", screen.run("--version")[1]
    )
    monkeypatch.setattr(_checkout, "FOLDER", ROOT / "docs" / "images")  # not the root of a checkout
    assert screen.run("--version") == (0, f"legacy-opt {legacy_opt.__version__}\n", "")


@pytest.mark.once
def test_bash_completes_commands_options_and_pages(screen, tmp_path):
    """tests/tools/completions.py, which `make lint` runs, compares the scripts with the parser."""
    script = tmp_path / "completion"
    script.write_text(screen.run("completion", "bash")[1] + COMPLETE)
    for words, expected in {
        "comple": "completion",
        "convert --dry": "--dry-run",
        "docs from_": "from_to",
        "convert a b --to k": "keras",
    }.items():
        done = subprocess.run(
            ["bash", str(script), *words.split()], stdout=subprocess.PIPE, text=True
        )
        assert done.stdout == expected + "\n"


COMPLETE = """
COMP_WORDS=(legacy-opt "$@")
COMP_CWORD=$#
_shtab_legacy_opt legacy-opt "${!#}"
echo "${COMPREPLY[@]}"
"""


def test_an_empty_table_has_headings():
    assert list(tables.lines(tables.Table(("a", ">bc"), []))) == ["a  bc", "-  --"]


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


def test_progress_without_tqdm(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)  # makes `import tqdm` raise an ImportError
    shown = progress_on(Terminal())
    assert shown.startswith("\rconvert: 5 %\rconvert: 10 %")
    assert shown.endswith("\rconvert: 100 %\r\x1b[K")
    stream = Terminal()
    with tables.progress("build-kernels", 2, stream, unit=" kernels") as advance:
        advance(1)
    assert stream.getvalue() == "\rbuild-kernels: 1 of 2 kernels\r\x1b[K"


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
    process = start("inspect", "tests/data/adam_tf115", cwd=str(ROOT))
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
