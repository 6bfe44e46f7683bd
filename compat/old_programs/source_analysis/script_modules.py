"""Finds the local modules that a script imports, without running the script."""

from __future__ import annotations

import ast
import csv
import functools
import glob
import os
import sys
import sysconfig
from importlib import machinery
from typing import Dict, Iterable, Iterator, List, Optional, Set, Tuple

from . import reached, scopes, sources

_Place = Tuple[str, str]  # the path and the full name of a module
# A module, the nodes in it that every run reaches, and the local modules of each import.
_File = Tuple[scopes.Module, Set[ast.AST], List[Tuple[ast.stmt, List[_Place]]]]
_included: List[str] = []  # files and folders of installed packages, see `include`
_STANDARD_LIBRARY = {sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")}


def file_of(name: str, folders: List[str]) -> Optional[str]:
    """Returns the path of a module's source file in `folders`, without importing it; or None."""
    for part in name.split("."):
        spec = machinery.PathFinder.find_spec(part, folders)
        if spec is None:
            return None
        folders = list(spec.submodule_search_locations or ())
    return spec.origin if spec.origin and spec.origin.endswith(".py") else None


def include(path: str) -> None:
    """Makes an installed file, or the installed files in a folder, count as local."""
    _included.append(os.path.abspath(path))
    is_local.cache_clear()


@functools.lru_cache(maxsize=None)  # each import checks the importing file
def is_local(path: str) -> bool:
    """Returns whether a file is local: neither installed (see `include`) nor Python's own."""
    path = os.path.abspath(path)
    if any(path == each or path.startswith(each + os.sep) for each in _included):
        return True
    return not (_is_installed(path) or is_standard(path))


def is_standard(path: str) -> bool:
    """Returns whether a file or folder belongs to the standard library."""
    return path.startswith(tuple(_STANDARD_LIBRARY)) and not _is_installed(path)


def _is_installed(path: str) -> bool:
    if not {"site-packages", "dist-packages"}.isdisjoint(path.split(os.sep)):
        return True
    folders = (os.path.join(os.path.abspath(each), "") for each in sys.path)
    return any(path.startswith(each) and path in _installed_into(each) for each in folders)


@functools.lru_cache(maxsize=None)
def _installed_into(folder: str) -> Set[str]:
    """Returns the paths of the files that `pip install --target` has installed into a folder."""
    paths: Set[str] = set()
    for record in glob.glob(os.path.join(glob.escape(folder), "*.dist-info", "RECORD")):
        with open(record, newline="", encoding="utf-8") as lines:
            paths.update(os.path.join(folder, row[0]) for row in csv.reader(lines) if row)
    return paths


def read(path: str, name: str) -> Dict[scopes.Module, Set[ast.AST]]:
    """Parses a script and the local files that it imports.

    Returns a dict from each module to the set of its nodes that every run of the script reaches.
    The set is empty if some runs do not import the module. `name` is the name under which the
    script runs: "__main__", or the full name of a module.
    """
    packages = [name.rpartition(".")[0]] if "." in name else []
    first_files = [(path, name)] + list(_local(packages))
    files: Dict[str, _File] = {}  # from real paths to (module, reached nodes, imports)
    waiting = list(first_files)
    while waiting:
        path, name = waiting.pop(0)
        real = os.path.realpath(path)
        if real in files:
            continue
        try:
            module = scopes.Module(sources.read(path), [name])
        except sources.UnreadableError:
            continue  # if the script imports the file, Python reports the error
        imports = [(node, list(_local(names))) for node, names in _imports(module)]
        is_main = not files  # the first file is the script
        files[real] = module, reached.nodes(module.source.tree, is_main), imports
        for _, local in imports:
            waiting += local
    certain = _certain_paths(files, [os.path.realpath(path) for path, _ in first_files])
    return {
        module: (nodes if real in certain else set()) for real, (module, nodes, _) in files.items()
    }


def _certain_paths(files: Dict[str, _File], waiting: List[str]) -> Set[str]:
    """Returns the real paths of the modules that every run imports; it begins with `waiting`."""
    certain: Set[str] = set()
    while waiting:
        real = waiting.pop()
        if real in files and real not in certain:
            certain.add(real)
            _, nodes, imports = files[real]
            for node, local in imports:
                if node in nodes:
                    waiting += (os.path.realpath(path) for path, _ in local)
    return certain


def _imports(module: scopes.Module) -> Iterator[Tuple[ast.stmt, List[str]]]:
    """Yields (import statement, the full names in it that may be names of modules)."""
    for node in ast.walk(module.source.tree):
        if isinstance(node, ast.Import):
            yield node, [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            package = module.imported(node)
            yield node, [package] + [f"{package}.{alias.name}" for alias in node.names]


def _local(names: Iterable[str]) -> Iterator[_Place]:
    """Yields (path, full name) of each local module in `names`, and of its parent packages."""
    for name in names:
        parts = name.split(".")
        if parts[0] in ("", "tensorflow", "legacy_opt"):
            continue
        for end in range(1, len(parts) + 1):
            module_name = ".".join(parts[:end])
            path = file_of(module_name, sys.path)
            if path and is_local(path):
                yield path, module_name
