"""The sources that `legacy-opt audit` reads: Python files and the code of notebooks, parsed."""

import ast
import json
import os
import re
import sys
import tokenize
from typing import Callable, List, NamedTuple

from .. import special_files

_ENDINGS = (".py", ".ipynb")
_LEFT_OUT = ("node_modules", "__pycache__")  # besides hidden folders
# What a folder holds that is a virtual environment: other people's packages.
_ENVIRONMENTS = ("pyvenv.cfg", "conda-meta", os.path.join("bin", "activate"))
# IPython's magics: what may stand instead of a statement, or of a value; and the cells that are
# Python nevertheless.
_MAGIC = re.compile(r"^(\s*)(?:[%!?].*|[\w.*]+\?{1,2}\s*)$")
_MAGIC_VALUE = re.compile(r"^(\s*[\w.,\s]+=\s*)[%!].*")
_PYTHON_CELLS = ("capture", "prun", "py", "python", "python3", "time", "timeit")
# Lines that Python 3 does not take and Python 2 did.
_PYTHON_2 = re.compile(
    r"""^\s*(?:print|exec)\s+[^\s(=.,:]   # print x
    | ^\s*raise\s+[\w.]+\s*,              # raise E, x
    | \bexcept\s+[^:]+,\s*\w+\s*:         # except E, e:
    | <> | ` | \bur["'] | \b0\d+\b | \b\d+L\b | \(\s*\(\w+\s*,\s*\w+\)\s*,.*\)\s*:\s*$
    """,
    re.VERBOSE,
)
_OF_OPTIMIZERS = re.compile(r"Optimizer|optimize_loss|create_train_op|\.optimizers\b")


class Source(NamedTuple):
    """A file that Python could read.

    Attributes:
      path: as the user will see it.
      lines: the code's lines.
      tree: the module, as `ast.parse` returns it.
      place: a function from a line of `tree` to (path, line) for the user: cells of notebooks
        count their lines by themselves.
      unread: the `UnreadableError`s of a notebook's cells that are not in `tree`.
    """

    path: str
    lines: List[str]
    tree: ast.Module
    place: Callable
    unread: tuple = ()


class UnreadableError(Exception):
    """Python cannot read a file.

    Attributes:
      path: of the file, or the cell of the notebook.
      line: where, from 1.
      column: from 1.
      why: a sentence.
    """

    def __init__(self, path, line, column, why):
        super().__init__(why)
        self.path, self.line, self.column, self.why = path, line, column, why


def find(paths):
    """Returns the files to read, each once, in order.

    Args:
      paths: files, of any ending, and folders, in which Python files and notebooks are looked for;
        what is hidden, links to folders and virtual environments are left out.

    Raises:
      ValueError: a path that is not there, or nothing to read below it.
    """
    found = {}
    for path in paths:
        if not os.path.exists(path):
            raise ValueError(f"There is no {path!r}.")
        special_files.refuse(path)
        files = list(_below(path)) if os.path.isdir(path) else [path]
        if not files:
            raise ValueError(f"There are no .py or .ipynb files in {path!r}.")
        for each in files:
            found.setdefault(os.path.realpath(each), os.path.normpath(each))
    return list(found.values())


def _below(folder):
    for home, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if _is_of_interest(home, name))
        for name in sorted(files):
            if name.endswith(_ENDINGS) and not name.startswith("."):
                yield os.path.join(home, name)


def _is_of_interest(home, name):
    if name.startswith(".") or name in _LEFT_OUT:
        return False
    return not any(os.path.exists(os.path.join(home, name, mark)) for mark in _ENVIRONMENTS)


def read(path):
    """Returns a file's `Source`.

    Raises:
      UnreadableError: Python cannot read it.
    """
    try:
        special_files.refuse(path)  # as one that a folder holds
        if path.endswith(".ipynb"):
            return _read_notebook(path)
        with tokenize.open(path) as file:
            lines = file.read().split("\n")  # and not at form feeds
    except (SyntaxError, ValueError, OSError) as error:
        raise UnreadableError(path, 1, 1, f"it cannot be read: {error}.") from error
    return Source(path, lines, _parse(path, lines), lambda line: (path, line))


def _parse(path, lines):
    try:
        return ast.parse("\n".join(lines) + "\n")
    except SyntaxError as error:
        line = min(error.lineno or 1, len(lines) or 1)
        why = _why(error, lines[line - 1 : line], lines)
        raise UnreadableError(path, line, max(error.offset or 1, 1), why) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise UnreadableError(path, 1, 1, f"Python cannot read it: {error}.") from error


def _why(error, failing, lines):
    mentions = [n for n, line in enumerate(lines, 1) if _OF_OPTIMIZERS.search(line)]
    hint = ""
    if mentions:
        told = ", ".join(map(str, mentions[:5])) + (", …" if len(mentions) > 5 else "")
        hint = f" It speaks of optimizers in line {told}."
    if isinstance(error, TabError) or any(map(_PYTHON_2.search, failing)):
        return f"it is Python 2: bring it to Python 3 first (lib2to3, futurize).{hint}"
    version = "Python " + ".".join(map(str, sys.version_info[:2]))
    return f"{version} cannot read it: {error.msg}.{hint}"


def _read_notebook(path):
    """Returns the code of a notebook as one module, without the cells that Python cannot read."""
    try:
        with open(path, encoding="utf-8") as file:
            cells = json.load(file)["cells"]
        cells = [(cell["cell_type"], "".join(cell["source"]).splitlines()) for cell in cells]
    except (ValueError, KeyError, TypeError, OSError, RecursionError) as error:
        why = f"it is no notebook of nbformat 4: {type(error).__name__}: {error}."
        raise UnreadableError(path, 1, 1, why) from error
    lines, places, unread = [], [], []
    for number, (kind, cell) in enumerate(cells, 1):
        magic = re.match(r"%%\s*(\w+)", cell[0]) if cell else None
        if kind != "code" or (magic and magic.group(1) not in _PYTHON_CELLS):
            continue
        if magic:
            cell[0] = "pass"
        cell_path = f"{path}[{number}]"
        try:
            lines += _without_magics(cell_path, cell)
        except UnreadableError as error:
            unread.append(error)
        else:
            places += [(cell_path, line) for line in range(1, len(cell) + 1)]
    tree = _parse(path, lines)
    return Source(path, lines, tree, lambda line: places[line - 1], tuple(unread))


def _without_magics(path, cell):
    """Returns the lines of a cell with nothing in them that only IPython reads."""
    try:
        _parse(path, cell)  # a line of plain Python may begin with % too
        return cell
    except UnreadableError:
        cell = [_MAGIC_VALUE.sub(r"\1None", _MAGIC.sub(r"\1pass", line)) for line in cell]
        _parse(path, cell)
        return cell


def module_names(path):
    """Returns the names by which other files may import a Python file, the likeliest first.

    A file in packages goes by them. Folders without `__init__.py` may be packages too, so names
    with up to three of them in front are among the answers.
    """
    folder, file = os.path.split(os.path.abspath(path))
    stem = os.path.splitext(file)[0]
    parts = [] if stem == "__init__" else [stem]
    while os.path.exists(os.path.join(folder, "__init__.py")) and os.path.basename(folder):
        folder, name = os.path.split(folder)
        parts.insert(0, name)
    names = [".".join(parts)]
    for _ in range(3):
        folder, name = os.path.split(folder)
        if not name:
            break
        names.append(name + "." + names[-1])
    return [name for name in names if name]
