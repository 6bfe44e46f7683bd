r"""Executes the examples of a page of docs/ in the order of the page.

A page has these parts; GitHub and the site show no comment:

    <!-- setup                     Python code that a reader does not need to see
    code -->

    <!-- file: train.py -->        the next block is written to a file instead of being executed
    ```python

    <!-- with: jax optax -->       the next block is executed only if these modules are installed
    ```console

    ```python                      executed in this process, in one namespace for the whole page
    ```text                        directly below such a block: exactly what it prints

    ```console                     `$ COMMAND` is executed if COMMAND starts with python or
                                   legacy-opt. The lines below it are its expected output; if
                                   there are none, its output is not checked. `# exit code N` at
                                   its end is its expected exit code, which is 0 otherwise.

In an expected output, `…` stands for any text. A page is executed in an empty folder. At its
beginning, `<!-- needs: keras3 -->` gives the page's test the pytest marker keras3.

The newest lane (a TensorFlow of lanes.py) also has JAX. The environments of `make leave` have
PyTorch, JAX and optax, and no TensorFlow: there, only blocks with `<!-- with: … -->` are executed,
in the folder that the first of these commands has filled:

    python -m tests.docs.page_runs --folder /tmp/pages docs/leave_tensorflow.md
    PYTHONPATH=. ENVIRONMENT/bin/python tests/docs/page_runs.py --folder /tmp/pages \
        docs/leave_tensorflow.md
"""

import argparse
import contextlib
import importlib.util
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple
from unittest import mock

# Not imported from tests.support.paths, because the package tests.support needs TensorFlow.
ROOT = Path(__file__).resolve().parents[2]
PART = re.compile(
    r"^<!-- setup\n(?P<setup>.*?)-->\n"
    r"|(?:^<!-- with: (?P<with>[\w. ]+) -->\n)?"
    r"(?:^<!-- file: (?P<file>\S+) -->\n)?^```(?P<language>python|console)\n(?P<code>.*?)^```\n"
    r"(?:\n```text\n(?P<output>.*?)^```\n)?",
    re.M | re.S,
)
NEEDS = re.compile(r"<!-- needs: (\w+) -->")
# A command, and the lines up to the next command.
COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.M)
# {program: the arguments with which Python starts it}. Lines with these programs are executed.
PROGRAMS = {"python": [], "legacy-opt": ["-m", "legacy_opt"]}
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
    with mock.patch.dict(os.environ):  # a page may set variables
        execute_parts(page, folder)


def execute_parts(page, folder):
    names = {"__name__": "page"}
    if "tensorflow" in sys.modules:  # forget the layer names and summary files of earlier pages
        tensorflow = sys.modules["tensorflow"]
        tensorflow.keras.backend.clear_session()
        tensorflow.compat.v1.summary.FileWriterCache.clear()
    for part in page.parts:
        if part["file"]:
            (folder / part["file"]).write_text(part["code"], encoding="utf-8")
        elif not is_executed_here(part):
            continue
        elif part["language"] == "console":
            for line, output in COMMAND.findall(part["code"]):
                if line.split()[0] in PROGRAMS:
                    run_line(line, output, folder, new=bool(part["with"]))
        elif part["setup"]:
            printed_by(part["setup"], page, names)
        else:
            printed = printed_by(part["code"], page, names)
            assert is_as_told(printed, part["output"] or ""), f"{part['code']}\nprinted:\n{printed}"


def printed_by(code, page, names):
    """Executes Python code of a page in the namespace `names`, and returns what it prints."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(code, page.path.name, "exec"), names)
    return printed.getvalue()


def is_executed_here(part):
    """Returns whether what a block needs is installed: its `with` modules, or else TensorFlow."""
    return all(map(is_installed, (part["with"] or "tensorflow").split()))


def is_installed(module):
    """Returns whether a module can be imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except ValueError:  # imported, but without a __spec__, like tf.contrib
        return True


def run_line(line, expected, folder, new):
    """Executes a line of a shell, and asserts that its exit code and its output are as told.

    Args:
      line: the line.
      expected: its output; "" for any.
      folder: the working directory.
      new: whether it needs a Python that has imported nothing, because it may choose a backend.
    """
    program, *words = shlex.split(line, comments=True)
    command = [*PROGRAMS[program], *words]
    environment = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}
    run = run_in_new_python if new else run_forked
    done = run(command, folder, environment)
    # If a program succeeds, stderr may have warnings of TensorFlow and Keras about their imports.
    printed = done.stdout + (done.stderr if done.returncode else "")
    code = int((EXIT_CODE.findall(line) or ["0"])[0])
    text = f"$ {line}\n{done.stdout}{done.stderr}"
    assert done.returncode == code, f"exit code {done.returncode} of\n{text}"
    assert not expected or is_as_told(printed, expected), text


def run_forked(command, folder, environment):
    """Executes a command in a forked process, which need not import TensorFlow again."""
    from tests.support.processes import programs

    return programs.run(*command, seconds=SECONDS, folder=folder, environment=environment)


def run_in_new_python(command, folder, environment):
    """Executes a command in a new process. Unlike `run_forked`, it does not need TensorFlow."""
    return subprocess.run(
        [sys.executable, *command],
        cwd=str(folder),
        env=dict(os.environ, PYTHONPATH=str(ROOT), **environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


def is_as_told(printed, expected):
    pattern = ".*".join(map(re.escape, expected.rstrip().split("…")))
    return re.fullmatch(pattern, printed.rstrip(), re.S) is not None


def main(folder, pages):
    """Executes each page in a subfolder of `folder`, or in a temporary folder if it is None."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if importlib.util.find_spec("tensorflow"):
        import tensorflow as tf

        tf.compat.v1.enable_eager_execution()
    home = os.getcwd()
    for page in map(read, pages):
        with tempfile.TemporaryDirectory() as temporary:
            chosen = folder / page.path.stem if folder else Path(temporary)
            chosen.mkdir(parents=True, exist_ok=True)
            os.chdir(str(chosen))
            sys.path.insert(0, str(chosen))
            execute(page, chosen)
            os.chdir(home)
        done = sum(map(is_executed_here, page.parts))
        print(f"{page.path.name}: {done} of {len(page.parts)} parts are as told", flush=True)


if __name__ == "__main__":
    # The fastest way to try a page: python -m tests.docs.page_runs docs/keras.md
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=lambda text: Path(text).resolve())
    parser.add_argument("pages", nargs="+", type=lambda text: Path(text).resolve())
    arguments = parser.parse_args()
    main(arguments.folder, arguments.pages)
