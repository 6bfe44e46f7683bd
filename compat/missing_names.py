"""Names of TensorFlow that a script uses and that nobody provides, found without running it."""

import ast
import contextlib
import importlib
import logging
import os
import sys
import sysconfig
import types
from importlib import machinery
from typing import NamedTuple

from legacy_opt.compat import audit_scopes, audit_sources, old_names

_CAUGHT = {"ImportError", "ModuleNotFoundError", "AttributeError", "Exception", "BaseException"}
_VERSIONS = {"tensorflow.__version__", "tensorflow.VERSION", "tensorflow.version.VERSION"}
_PYTHONS_OWN = {sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")}


class Missing(NamedTuple):
    """A name that nobody provides.

    Attributes:
      path: the file that uses it.
      line: where, from 1.
      name: as `old_names` writes it.
      advice: a sentence: what to do.
    """

    path: str
    line: int
    name: str
    advice: str


def find(path, name, tensorflow):
    """Finds the names of TensorFlow in a script, and in the modules beside it that it imports.

    Not told of is what a `try` catches, and what asks for the name or for TensorFlow's version
    before: `hasattr(tf, "contrib")`.

    Args:
      path: of the script.
      name: under which it runs: "__main__", or that of a module in its package.
      tensorflow: the module that `import tensorflow` gives to the script.

    Returns:
      A list of `Missing`, sorted.
    """
    modules = _with_imports(path, name)
    provided = _Provided(tensorflow)
    found = set()
    with _without_warnings():
        for module in modules:
            user = _User(module, audit_scopes.Names(modules), provided)
            user.visit(module.source.tree)
            found |= user.missing
    return sorted(found)


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


def _with_imports(path, name):
    """Returns the modules of a script and of the local files that it imports, parsed."""
    modules, waiting, seen = [], [(path, name)], set()
    while waiting:
        path, name = waiting.pop(0)
        if path in seen:
            continue
        seen.add(path)
        try:
            module = audit_scopes.Module(audit_sources.read(path), [name])
        except audit_sources.UnreadableError:
            continue  # Python will tell, if it comes to that
        modules.append(module)
        for each in _imports(module):
            file = file_of(each, sys.path)
            if file and is_local(file):
                waiting.append((file, each))
    return modules


def _imports(module):
    """Yields the full names of all that may be a module in the imports of a file."""
    for node in ast.walk(module.source.tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            package = module.imported(node)
            names = [package] + ["%s.%s" % (package, alias.name) for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] not in ("tensorflow", "legacy_opt"):
                yield from (".".join(parts[:end]) for end in range(1, len(parts) + 1))


class _Provided:
    """Tells what `import tensorflow` provides.

    Args:
      tensorflow: the module.
    """

    def __init__(self, tensorflow):
        self._tensorflow = tensorflow
        self._known = {}

    def __call__(self, name):
        """Whether there is such a name, with dots."""
        if name not in self._known:
            self._known[name] = self._look_up(name.split("."))
        return self._known[name]

    def _look_up(self, parts):
        found = self._tensorflow
        if parts[1:2] == ["compat"]:  # of which tf.compat.v1 has another
            found = sys.modules["tensorflow"]
        for end in range(1, len(parts)):
            if not isinstance(found, types.ModuleType):
                break  # what a class or an object has, is its own affair
            try:
                found = getattr(found, parts[end])
            except Exception:  # of lazy loaders: any may come
                try:
                    found = importlib.import_module(".".join(parts[: end + 1]))
                except Exception:  # as above
                    return False
        return True


class _User(ast.NodeVisitor):
    """Goes through a module and notes what it misses."""

    def __init__(self, module, names, provided):
        self.missing = set()
        self._module, self._names, self._provided = module, names, provided
        self._scope = module.scope
        self._asked_for = []  # names whose absence the code is prepared for; "" is any

    def visit(self, node):
        outer, self._scope = self._scope, self._module.scopes.get(node, self._scope)
        super().visit(node)
        self._scope = outer

    def visit_Import(self, node):
        for alias in node.names:
            self._use([alias.name], node)

    def visit_ImportFrom(self, node):
        module = self._module.imported(node)
        for alias in node.names:
            self._use([module if alias.name == "*" else "%s.%s" % (module, alias.name)], node)

    def visit_Attribute(self, node):
        base = node
        while isinstance(base, ast.Attribute):
            base = base.value
        if not isinstance(base, ast.Name):
            self.generic_visit(node)
        elif isinstance(node.ctx, ast.Load) and self._scope.find(base.id) is not None:
            self._use(self._names.resolve(node, self._scope), node)

    def visit_Try(self, node):
        with self._prepared_for([""] if any(map(_catches, node.handlers)) else []):
            self._visit_all(node.body + node.orelse)
        self._visit_all(node.handlers + node.finalbody)

    def visit_If(self, node):
        with self._prepared_for(self._asks_for(node.test)):
            self.generic_visit(node)

    visit_IfExp = visit_If

    def visit_BoolOp(self, node):
        with self._prepared_for(self._asks_for(node)):
            self.generic_visit(node)

    def _visit_all(self, nodes):
        for node in nodes:
            self.visit(node)

    @contextlib.contextmanager
    def _prepared_for(self, names):
        self._asked_for += names
        yield
        del self._asked_for[len(self._asked_for) - len(names) :]

    def _asks_for(self, test):
        """Returns the missing names that a condition asks for, [""] if it asks for the version."""
        asked = []
        for node in ast.walk(test):
            if self._is_version(node):
                return [""]
            if not (isinstance(node, ast.Call) and getattr(node.func, "id", None) == "hasattr"):
                continue
            text = audit_scopes.text_of(node.args[1]) if len(node.args) == 2 else None
            for owner in self._names.resolve(node.args[0], self._scope) if text else ():
                full = "%s.%s" % (owner, text)
                if self._is_missing(full):
                    asked.append(full)
        return asked

    def _is_version(self, node):
        """Whether something is TensorFlow's version, or a name to which it leads."""
        if isinstance(node, ast.Name):
            bound = self._scope.find(node.id) or ()
            within = [each for value in bound for each in ast.walk(_expression(value))]
            return any(
                isinstance(each, ast.Attribute) and self._is_version(each) for each in within
            )
        if not isinstance(node, ast.Attribute):
            return False
        return bool(_VERSIONS & set(map(str, self._names.resolve(node, self._scope))))

    def _is_missing(self, name):
        return (
            isinstance(name, str)
            and name.partition(".")[0] == "tensorflow"
            and not self._provided(name)
        )

    def _use(self, meanings, node):
        """Notes a use of a name: of the first of its meanings, if nobody provides any of them."""
        if not meanings or not all(map(self._is_missing, meanings)):
            return
        name = meanings[0]
        if any(not asked or (name + ".").startswith(asked + ".") for asked in self._asked_for):
            return
        found = old_names.find(name)
        advice = found.fate.advice if found else "This TensorFlow has no such name."
        path, line = self._module.source.place(node.lineno)
        self.missing.add(Missing(path, line, old_names.public_name(name), advice))


def _expression(bound):
    """Returns the expression that a name is bound to, an empty one if it is something else."""
    return getattr(bound, "expression", None) or ast.Pass()


def _catches(handler):
    """Whether an `except` catches the errors of names that are missing."""
    if handler.type is None:
        return True
    types_ = getattr(handler.type, "elts", [handler.type])
    return any(getattr(each, "id", None) in _CAUGHT for each in types_)


@contextlib.contextmanager
def _without_warnings():
    """Keeps TensorFlow from warning of old names while they are looked up."""
    logger = logging.getLogger("tensorflow")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
