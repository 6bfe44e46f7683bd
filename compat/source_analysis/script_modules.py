"""The modules of a user's own that a script imports, found without running it."""

import ast
import os
import sys
import sysconfig
from importlib import machinery

from . import reached, scopes, sources

_PYTHONS_OWN = {sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")}


def file_of(name, folders):
    """Returns the path of a module's source, without importing anything, or None.

    Args:
      name: with dots.
      folders: in which it is looked for.
    """
    for part in name.split("."):
        spec = machinery.PathFinder.find_spec(part, folders)
        if spec is None:
            return None
        folders = list(spec.submodule_search_locations or ())
    return spec.origin if spec.origin and spec.origin.endswith(".py") else None


def is_local(path):
    """Whether a file is a user's own, and not of Python or of a package that is installed."""
    path = os.path.abspath(path)
    if {"site-packages", "dist-packages"} & set(path.split(os.sep)):
        return False
    return not path.startswith(tuple(_PYTHONS_OWN))


def read(path, name):
    """Parses a script and the local files that it imports.

    Args:
      path: of the script.
      name: under which it runs: "__main__", or that of a module with its packages.

    Returns:
      A dict from `audit_scopes.Module` to the nodes in it that are reached for certain: none, where
      it is not certain that the module is imported.
    """
    packages = [name.rpartition(".")[0]] if "." in name else []
    first = [(path, name)] + list(_local(packages))
    found, waiting = {}, list(first)  # found: real path: module, its nodes, what each imports
    while waiting:
        path, name = waiting.pop(0)
        real = os.path.realpath(path)
        if real in found:
            continue
        try:
            module = scopes.Module(sources.read(path), [name])
        except sources.UnreadableError:
            continue  # Python will tell, if it comes to that
        imports = [(node, list(_local(names))) for node, names in _imports(module)]
        found[real] = module, reached.nodes(module.source.tree, not found), imports
        waiting += (each for _, local in imports for each in local)
    certain = _certain(found, [os.path.realpath(path) for path, _ in first])
    return {
        module: nodes if real in certain else set() for real, (module, nodes, _) in found.items()
    }


def _certain(found, waiting):
    """Returns the real paths of the modules that are run for certain, beginning with some."""
    certain = set()
    while waiting:
        real = waiting.pop()
        if real in found and real not in certain:
            certain.add(real)
            _, nodes, imports = found[real]
            reached_imports = (local for node, local in imports if node in nodes)
            waiting += (os.path.realpath(path) for local in reached_imports for path, _ in local)
    return certain


def _imports(module):
    """Yields the imports of a file, and the full names of all that may be a module in each."""
    for node in ast.walk(module.source.tree):
        if isinstance(node, ast.Import):
            yield node, [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            package = module.imported(node)
            yield node, [package] + [f"{package}.{alias.name}" for alias in node.names]


def _local(names):
    """Yields the paths and names of those modules that are files of a user's own, and of theirs."""
    for name in names:
        parts = name.split(".")
        if parts[0] in ("", "tensorflow", "legacy_opt"):
            continue
        for end in range(1, len(parts) + 1):
            each = ".".join(parts[:end])
            path = file_of(each, sys.path)
            if path and is_local(path):
                yield path, each
