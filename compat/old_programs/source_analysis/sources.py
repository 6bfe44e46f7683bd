"""Finds and parses the files that `legacy-opt audit` reads: Python files and notebooks."""

from __future__ import annotations

import ast
import json
import os
import re
import sys
import tokenize
import warnings
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Tuple

from ... import file_endings, special_files

_ENDINGS = file_endings.PYTHON + file_endings.NOTEBOOK
# These folders are skipped, and so are hidden folders and virtual environments.
_SKIPPED = ("node_modules", "__pycache__")
# A folder that contains one of these files or folders is a virtual environment.
_ENVIRONMENTS = ("pyvenv.cfg", "conda-meta", os.path.join("bin", "activate"))
# A line that is a magic of IPython, and a line that assigns the value of a magic.
_MAGIC = re.compile(r"^(\s*)(?:[%!?].*|[\w.*]+\?{1,2}\s*)$")
_MAGIC_VALUE = re.compile(r"^(\s*[\w.,\s]+=\s*)[%!].*")
_MARKS = ("%", "!", "?")  # magics begin with them
# A magic whose argument is Python code. Groups: the text before the magic, the magic, the code.
_OPTIONS = r"(?:-(?:[nrp]\s*\d+|[lsTD]\s*\S+|\w+)\s+)*"
_MAGIC_WITH_CODE = re.compile(
    rf"^(\s*(?:[\w.,\s]+=\s*)?)(%%?(?:time|timeit|prun)\s+{_OPTIONS})(?!-)(\S.*)"
)
# Cell magics, such as %%time, whose cells contain Python.
_PYTHON_CELLS = ("capture", "prun", "py", "python", "python3", "time", "timeit")
_OPTIMIZER_WORDS = re.compile(r"Optimizer|optimize_loss|create_train_op|\.optimizers\b")


class Source(NamedTuple):
    """A parsed file."""

    path: str  # as shown to the user
    lines: List[str]
    tree: ast.Module
    # From a line of `tree` to the (path, line) that the user sees. In a notebook, the lines of each
    # cell are counted from 1.
    place: Callable[[int], Tuple[str, int]]
    # The code cells of a notebook that cannot be parsed as Python. `tree` contains neither these
    # cells nor cells in other languages (%%bash).
    unread: Tuple[UnreadableError, ...] = ()

    def name_after(self, node: ast.AST, word: str, name: str) -> ast.AST:
        """Returns a node with the line and column of the name that follows `import` or `class`.

        Before Python 3.10, the nodes of imported names have no line.
        """
        for number, line in enumerate(self.lines[node.lineno - 1 :], node.lineno):
            start = line.find(word) + len(word) if number == node.lineno else 0
            match = re.compile(rf"\b{re.escape(name)}\b").search(line, start)
            if match:
                return ast.Name(name, lineno=number, col_offset=match.start())
        return node


class UnreadableError(Exception):
    """A file cannot be read or parsed.

    `path` is the file; "x.ipynb[3]" for the third cell of a notebook. `line` and `column` are
    counted from 1, and `why` is a sentence.
    """

    def __init__(self, path: str, line: int, column: int, why: str) -> None:
        super().__init__(why)
        self.path, self.line, self.column, self.why = path, line, column, why


def find(paths: Iterable[str]) -> List[str]:
    """Returns the paths of the files to read, in order and without repetitions.

    `paths` are files with any ending, and folders, which are searched for .py and .ipynb files.
    Hidden files and folders, links to folders, virtual environments, node_modules and __pycache__
    are left out. Raises a ValueError if a path does not exist, is not a regular file or folder, or
    is a folder without .py and .ipynb files.
    """
    paths_by_real_path: Dict[str, str] = {}
    for path in paths:
        if not os.path.exists(path):
            raise ValueError(f"There is no file or folder {path!r}.")
        special_files.refuse(path)
        files = list(_files_in(path)) if os.path.isdir(path) else [path]
        if not files:
            raise ValueError(f"There are no .py or .ipynb files in {path!r}.")
        for each in files:
            paths_by_real_path.setdefault(os.path.realpath(each), os.path.normpath(each))
    return list(paths_by_real_path.values())


def _files_in(folder: str) -> Iterator[str]:
    for home, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if _is_searched(home, name))
        for name in sorted(files):
            if file_endings.ending_of(name, _ENDINGS) and not name.startswith("."):
                yield os.path.join(home, name)


def _is_searched(home: str, name: str) -> bool:
    if name.startswith(".") or name in _SKIPPED:
        return False
    return not any(os.path.exists(os.path.join(home, name, mark)) for mark in _ENVIRONMENTS)


def read(path: str) -> Source:
    """Parses a file. Raises an `UnreadableError` if it cannot be read or parsed."""
    try:
        # `find` checks only its arguments, not files in folders.
        special_files.refuse(path, most=special_files.MOST_OF_TEXT)
        if file_endings.ending_of(path, file_endings.NOTEBOOK):
            return _read_notebook(path)
        with tokenize.open(path) as file:
            lines = file.read().split("\n")  # str.splitlines would also split at form feeds
    except (SyntaxError, ValueError, OSError) as error:
        raise UnreadableError(path, 1, 1, f"it cannot be read: {error}.") from error
    return Source(path, lines, _parse(path, lines), lambda line: (path, line))


def _parse(path: str, lines: List[str]) -> ast.Module:
    try:
        with warnings.catch_warnings():
            # Python warns, for example of "\\d", when the user runs the file.
            warnings.simplefilter("ignore")
            return ast.parse("\n".join(lines) + "\n")
    except SyntaxError as error:
        line = min(error.lineno or 1, len(lines) or 1)
        why = _why(error, lines)
        raise UnreadableError(path, line, max(error.offset or 1, 1), why) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise UnreadableError(path, 1, 1, f"Python cannot parse it: {error}.") from error


def _why(error: SyntaxError, lines: List[str]) -> str:
    line_numbers = [n for n, line in enumerate(lines, 1) if _OPTIMIZER_WORDS.search(line)]
    hint = ""
    if line_numbers:
        numbers = ", ".join(map(str, line_numbers[:5]))
        more = ", …" if len(line_numbers) > 5 else ""
        hint = f" It mentions optimizers in line {numbers}{more}."
    version = "Python " + ".".join(map(str, sys.version_info[:2]))
    way_out = "Convert Python 2 to Python 3 first (2to3, in Python 3.12 and older)."
    return f"{version} cannot parse it: {error.msg}. {way_out}{hint}"


def _read_notebook(path: str) -> Source:
    """Reads a notebook as one module, which consists of all code cells that Python can parse."""
    try:
        with open(path, encoding="utf-8") as file:
            cells = json.load(file)["cells"]
        if not isinstance(cells, list):
            raise TypeError("its cells are not a list")
    except (ValueError, KeyError, TypeError, OSError, RecursionError) as error:
        why = f"it is not a notebook of nbformat 4: {type(error).__name__}: {error}."
        raise UnreadableError(path, 1, 1, why) from error
    lines: List[str] = []
    places: List[Tuple[str, int]] = []
    unread: List[UnreadableError] = []
    for number, each in enumerate(cells, 1):
        cell_path = f"{path}[{number}]"
        try:
            kind, cell = _cell(each)
        except (KeyError, TypeError):
            unread.append(UnreadableError(cell_path, 1, 1, "it is not a cell of nbformat 4."))
            continue
        magic = re.match(r"%%\s*(\w+)", cell[0]) if cell else None
        if kind != "code" or (magic and magic.group(1) not in _PYTHON_CELLS):
            continue
        if magic:
            code = _with_code_of_magics(cell[0])
            cell[0] = "" if code == "pass" else code
        try:
            python = _as_python(cell_path, cell)
        except UnreadableError as error:
            unread.append(error)
        else:
            lines += python
            added = len(python) - len(cell)  # lines that stand before the cell's own lines
            places += [(cell_path, 1)] * added
            places += [(cell_path, line) for line in range(1, len(cell) + 1)]
    tree = _parse(path, lines)
    return Source(path, lines, tree, lambda line: places[line - 1], tuple(unread))


def _cell(cell: Any) -> Tuple[str, List[str]]:
    """Returns the type and the lines of a cell. A malformed cell raises KeyError or TypeError."""
    kind, source = cell["cell_type"], cell.get("source") or ""
    if not isinstance(source, (str, list)):
        raise TypeError("the source is neither text nor a list of lines")
    return kind, "".join(source).splitlines()


def _as_python(path: str, cell: List[str]) -> List[str]:
    """Returns the lines of a cell as Python, with statements in the place of IPython's magics.

    If the cell is indented, which IPython allows, the line `if 1:` precedes it. Raises an
    `UnreadableError` if the cell cannot be parsed.
    """
    first = next((line for line in cell if line.strip()), "")
    opening = ["if 1:"] if first[:1].isspace() else []
    failure = None
    # Try the unchanged lines first, because continued lines may begin with %.
    for change in (str, _with_code_of_magics, _without_magics):
        lines = opening + list(map(change, cell))
        try:
            _parse(path, lines)
            return lines
        except UnreadableError as error:
            failure = error
    raise UnreadableError(path, max(failure.line - len(opening), 1), failure.column, failure.why)


def _with_code_of_magics(line: str) -> str:
    """Replaces magics, but keeps code, such as `f()` in `%time f()`, at its column."""
    match = _MAGIC_WITH_CODE.match(line)
    if match:
        start, magic, code = match.groups()
        statement = "" if start.strip() else "0;"  # spaces alone would indent the code
        return start + statement.ljust(len(magic)) + code
    help_before = re.match(r"(\s*)(\?{1,2})(?=\w)", line)
    if help_before:  # `?` becomes an operator, `+`
        return help_before.group(1) + "+" * len(help_before.group(2)) + line[help_before.end() :]
    if _MAGIC_VALUE.match(line) or line.lstrip()[:1] in _MARKS:
        return _without_magics(line)
    return re.sub(r"\?{1,2}\s*$", "", line)


def _without_magics(line: str) -> str:
    return _MAGIC_VALUE.sub(r"\1None", _MAGIC.sub(r"\1pass", line))


def module_names(path: str) -> List[str]:
    """Returns the full names under which other files may import a Python file, likeliest first.

    The first name begins with the outermost package (a folder with `__init__.py`) that contains the
    file. Other names begin with one to three folders above this package, because these folders may
    be packages without `__init__.py`.
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
