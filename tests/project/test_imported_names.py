"""Checks imports in programs that `make test` does not run, such as `make clients`."""

import ast

import pytest

from tests.support.paths import ROOT

pytestmark = pytest.mark.once
FILES = sorted(
    path.relative_to(ROOT)
    for folder in ("addons", "clients", "horovod", "tools")
    for path in (ROOT / "tests" / folder).glob("*.py")
)


def names_in(path):
    """Returns the names that a module defines or imports, at any place."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.alias):
            found.add(node.asname or node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


@pytest.mark.parametrize("file", FILES, ids=str)
def test_imported_names_exist(file):
    for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests."):
            home = ROOT / node.module.replace(".", "/")
            is_package = home.is_dir()
            names = {path.stem for path in home.iterdir()} if is_package else set()
            names |= names_in(home / "__init__.py" if is_package else home.with_suffix(".py"))
            assert {alias.name for alias in node.names} <= names
