"""Makes the public names of modules that need PyTorch, JAX, optax or Keras 3, without these.

The classes and functions have the docstrings and signatures of the originals; they do nothing.
"""

import ast
import dataclasses
from typing import NamedTuple

from tests.support.paths import ROOT

KEPT = "classmethod", "property", "staticmethod"  # decorators
TUPLE = NamedTuple.__name__


def public_names(module):
    """Returns a dict from the public names of a module of legacy_opt to classes and functions."""
    home = ROOT.joinpath(*module.split("."))
    path = home / "__init__.py" if home.is_dir() else home.with_suffix(".py")
    tree = ast.parse(path.read_text("utf-8"))
    origins = {
        alias.name: each.module
        for each in tree.body
        if isinstance(each, ast.ImportFrom) and str(each.module).startswith("legacy_opt.")
        for alias in each.names
    }
    tree.body = [made for made in map(stripped, tree.body) if made]
    names = {"__name__": module, TUPLE: NamedTuple, "dataclasses": dataclasses}
    exec(compile(tree, module, "exec"), names)
    public = names.get("__all__", names)
    return {
        name: names[name] if name in names else public_names(origins[name])[name] for name in public
    }


def stripped(node):
    """Returns a definition without the code in it, or None if it is of no interest."""
    if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == "__all__":
        return node
    if isinstance(node, ast.AnnAssign) or getattr(node, "module", None) == "__future__":
        return node
    if not isinstance(node, (ast.ClassDef, ast.FunctionDef)):
        return None
    if any(getattr(each, "attr", None) == "setter" for each in node.decorator_list):
        return None
    node.decorator_list = [
        each for each in node.decorator_list if getattr(each, "id", None) in KEPT
    ]
    docstring = ast.copy_location(ast.Expr(ast.Constant(ast.get_docstring(node) or "")), node)
    if isinstance(node, ast.ClassDef):
        node.bases = [each for each in node.bases if getattr(each, "id", None) == TUPLE]
        node.body = [docstring, *filter(None, map(stripped, node.body))]
    else:
        node.body = [docstring]
    return ast.fix_missing_locations(node)
