r"""Executes the examples of a page of docs/ in the order of the page.

A page has these parts; GitHub and the site show no comment:

    <!-- setup                     Python code that a reader does not need to see
    code -->

    <!-- file: train.py -->        the next block is written to a file instead of being executed
    ```python

    ```python                      executed in this process, in one namespace for the whole page
    ```text                        directly below such a block: exactly what it prints

    ```console                     `$ COMMAND` is executed by a shell if it is a program of Python or
                                   of this package, and its output compared with the lines below it
                                   (none: no comparison). `# exit code 1` at its end: other than 0.

In an expected output, `…` stands for any text. All runs in an empty folder. `<!-- needs: keras3 -->`
or `contrib` at the beginning of a page is the marker of its test.
"""

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.support.paths import ROOT

PART = re.compile(
    r"^<!-- setup\n(?P<setup>.*?)-->\n"
    r"|(?:^<!-- file: (?P<file>\S+) -->\n)?^```(?P<language>python|console)\n(?P<code>.*?)^```\n"
    r"(?:\n```text\n(?P<output>.*?)^```\n)?",
    re.M | re.S,
)
NEEDS = re.compile(r"<!-- needs: (\w+) -->")
COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.M)
EXECUTED = re.compile(r"(?:python|legacy-opt) ")
EXIT_CODE = re.compile(r"# exit code (\d+)$")
SECONDS = 240


class Page(NamedTuple):
    """A page with examples.

    Attributes:
      path: the path of the Markdown file.
      needs: a list of markers of its test.
      parts: a list of matches of `PART`.
    """

    path: Path
    needs: list
    parts: list


def read(path):
    """Returns the `Page`."""
    text = path.read_text(encoding="utf-8")
    return Page(path, NEEDS.findall(text), list(PART.finditer(text)))


def execute(page, folder):
    """Executes a page in an empty folder, and asserts that it prints what the page says."""
    names = {"__name__": "page"}
    for part in page.parts:
        if part["file"]:
            (folder / part["file"]).write_text(part["code"], encoding="utf-8")
        elif part["language"] == "console":
            for line, output in COMMAND.findall(part["code"]):
                if EXECUTED.match(line):
                    run_line(line, output, folder)
        else:
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                code = part["setup"] or part["code"]
                exec(compile(code, page.path.name, "exec"), names)
            assert part["setup"] or is_as_told(printed.getvalue(), part["output"] or ""), (
                f"{code}\nprinted:\n{printed.getvalue()}"
            )


def run_line(line, expected, folder):
    """Executes a line of a shell, and asserts that its exit code and its output are as told."""
    programs = str(Path(sys.executable).parent)
    environment = dict(
        os.environ,
        PATH=os.pathsep.join([programs, os.environ["PATH"]]),
        PYTHONPATH=os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)])),
        TF_CPP_MIN_LOG_LEVEL="3",
        TF_ENABLE_ONEDNN_OPTS="0",
    )
    done = subprocess.run(
        line,
        shell=True,
        cwd=str(folder),
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        # TensorFlow and Keras write warnings there when a program of the user imports them.
        stderr=subprocess.STDOUT if line.startswith("legacy-opt") else subprocess.PIPE,
        text=True,
        timeout=SECONDS,
    )
    code = int((EXIT_CODE.findall(line) or ["0"])[0])
    text = f"$ {line}\n{done.stdout}{done.stderr or ''}"
    assert done.returncode == code, f"exit code {done.returncode} of\n{text}"
    assert not expected or is_as_told(done.stdout, expected), text


def is_as_told(printed, expected):
    pattern = ".*".join(map(re.escape, expected.rstrip().split("…")))
    return re.fullmatch(pattern, printed.rstrip(), re.S) is not None


if __name__ == "__main__":
    # The fastest way to try a page: python -m tests.support.page_runs docs/keras.md
    import tempfile

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    tf.compat.v1.enable_eager_execution()
    for name in sys.argv[1:]:
        chosen = read(Path(name).resolve())
        home = os.getcwd()
        with tempfile.TemporaryDirectory() as temporary:
            os.chdir(temporary)
            sys.path.insert(0, temporary)
            execute(chosen, Path(temporary))
            os.chdir(home)
        print(f"{name}: {len(chosen.parts)} parts are as told")
