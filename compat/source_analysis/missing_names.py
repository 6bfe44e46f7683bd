"""Names of TensorFlow that a script uses and that nobody provides, found without running it."""

import ast
import contextlib
import importlib
import importlib.util
import logging
import re
import sys
import types
from typing import NamedTuple

from .. import old_names, plain_text
from . import scopes, script_modules

_CAUGHT = {"ImportError", "ModuleNotFoundError", "AttributeError", "Exception", "BaseException"}
_VERSIONS = {"tensorflow.__version__", "tensorflow.VERSION", "tensorflow.version.VERSION"}
_JUMPS = (ast.Return, ast.Continue, ast.Break)


class Missing(NamedTuple):
    """A name that nobody provides.

    Attributes:
      path: the file that uses it.
      line: where, from 1.
      name: as `old_names` writes it.
      advice: a sentence: what to do.
      full_name: as the file imports it.
      is_certain: whether the script reaches it whatever happens.
    """

    path: str
    line: int
    name: str
    advice: str
    full_name: str
    is_certain: bool

    @property
    def text(self):
        """All of it that people are told, on one line."""
        path, line, name, why = self[:4]
        return plain_text.printable(f"{path}:{line}: {name}: {why}")


def find(path, name, tensorflow):
    """Finds the names of TensorFlow in a script, and in the modules beside it that it imports.

    Not told of is what a `try` catches, or what it does in place of what TensorFlow has, and what
    asks for the name or for TensorFlow's version before, `hasattr(tf, "contrib")`; nor what is done
    with a name that such code imported.

    Args:
      path: of the script.
      name: under which it runs: "__main__", or that of a module with its packages.
      tensorflow: the module that `import tensorflow` gives to the script.

    Returns:
      A list of `Missing`, sorted.
    """
    reached_nodes = script_modules.read(path, name)
    names, provided = scopes.Names(list(reached_nodes)), _Provided(tensorflow)
    users = [_User(module, names, provided, nodes) for module, nodes in reached_nodes.items()]
    with _without_warnings():
        for user in users:
            user.visit(user.module.source.tree)
    expected = set().union(*(user.expected for user in users))
    uses = {}
    for use, owners in (each for user in users for each in user.missing):
        if not expected.intersection(owners):
            others = uses.setdefault(use[:3], use)
            uses[use[:3]] = max(use, others, key=lambda each: each.is_certain)
    return sorted(uses.values())


def look_up(name, tensorflow):
    """Looks for a name in TensorFlow.

    Args:
      name: in full, with dots.
      tensorflow: as in `find`.

    Returns:
      The last module on the way to it, and the name that this module lacks, or None if it lacks
      none: what a class or an object has, is its own affair.
    """
    found, parts = tensorflow, name.split(".")
    if parts[1:2] == ["compat"]:  # of which tf.compat.v1 has another
        found = sys.modules["tensorflow"]
    for end in range(1, len(parts)):
        try:
            inner = getattr(found, parts[end])
        except Exception:  # of lazy loaders: any may come
            try:
                inner = importlib.import_module(".".join(parts[: end + 1]))
            except Exception:  # as above
                return found, parts[end]
        if not isinstance(inner, types.ModuleType):
            break
        found = inner
    return found, None


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
            self._known[name] = look_up(name, self._tensorflow)[1] is None
        return self._known[name]


class _User(ast.NodeVisitor):
    """Goes through a module and notes what it misses.

    Attributes:
      module: an `audit_scopes.Module`.
      missing: a set of pairs: a `Missing`, and what the name it begins with stands for.
      expected: names that are missing too, as the code expects.
    """

    def __init__(self, module, names, provided, reached_nodes):
        self.module, self.missing, self.expected = module, set(), set()
        self._names, self._provided, self._reached = names, provided, reached_nodes
        self._scope = module.scope
        self._asked_for = []  # names whose absence the code is prepared for; "" is any
        self._there = []  # of each use of TensorFlow, in order: whether it has the name

    def visit(self, node):
        outer, self._scope = self._scope, self.module.scopes.get(node, self._scope)
        super().visit(node)
        self._scope = outer

    def generic_visit(self, node):
        with self._prepared_for([]):  # what an `if` adds, it adds to the block that it stands in
            super().generic_visit(node)

    def visit_Import(self, node):
        for alias in node.names:
            self._use([alias.name], node)

    def visit_ImportFrom(self, node):
        module = self.module.imported(node)
        for alias in node.names:
            self._use([module if alias.name == "*" else f"{module}.{alias.name}"], node)

    def visit_Attribute(self, node):
        base = node
        while isinstance(base, ast.Attribute):
            base = base.value
        if not isinstance(base, ast.Name):
            self.generic_visit(node)
        elif isinstance(node.ctx, ast.Load):
            owners = tuple(map(str, self._names.resolve(base, self._scope)))
            meanings = self._names.resolve(node, self._scope)
            if self._scope.find(base.id) is None:  # of a star import, or of Python itself
                there = tuple(f"{each}." for each in owners if not self._is_missing(each))
                meanings = [each for each in meanings if str(each).startswith(there)]
            self._use(meanings, node, owners)

    def visit_Try(self, node):
        before = len(self._there)
        with self._prepared_for([""] if any(map(_catches, node.handlers)) else []):
            self._visit_all(node.body + node.orelse)
        tried = self._there[before:]
        for handler in node.handlers:
            # Where TensorFlow has what is tried, this is for one that had not.
            is_left_out = tried and all(tried) and _catches(handler)
            with self._prepared_for([""] if is_left_out else []):
                self.visit(handler)
        self._visit_all(node.finalbody)

    def visit_With(self, node):
        self._visit_all(node.items)
        with self._prepared_for([""] if any(map(_suppresses, node.items)) else []):
            self._visit_all(node.body)

    def visit_If(self, node):
        asked = self._asks_for(node.test)
        with self._prepared_for(asked):
            self.generic_visit(node)
        if isinstance(node.body[-1], _JUMPS):
            self._asked_for += asked  # what follows is its `else`

    def visit_IfExp(self, node):
        with self._prepared_for(self._asks_for(node.test)):
            self.generic_visit(node)

    def visit_BoolOp(self, node):
        with self._prepared_for(self._asks_for(node)):
            self.generic_visit(node)

    def _visit_all(self, nodes):
        for node in nodes:
            self.visit(node)

    @contextlib.contextmanager
    def _prepared_for(self, names):
        before = len(self._asked_for)
        self._asked_for += names
        yield
        del self._asked_for[before:]

    def _asks_for(self, test):
        """Returns the missing names that a condition asks for.

        [""] if it asks for the version, or for TYPE_CHECKING.
        """
        asked = []
        for node in ast.walk(test):
            if _last_name(node) == "TYPE_CHECKING" or self._leads_to_version(node):
                return [""]
            owner, text = _asked(node)
            for each in self._names.resolve(owner, self._scope) if text else ():
                full = f"{each}.{text}"
                if self._is_missing(full):
                    asked.append(full)
        return asked

    def _leads_to_version(self, node):
        """Whether something is TensorFlow's version, or a variable or a function made of it."""
        if not isinstance(node, (ast.Name, ast.Attribute)):
            return False
        meanings = self._names.resolve(node, self._scope)
        if not _VERSIONS.isdisjoint(map(str, meanings)):
            return True
        made_of = [(each.node, each.scope) for each in meanings if _is_function(each)]
        for value in (self._scope.find(node.id) or ()) if isinstance(node, ast.Name) else ():
            if hasattr(value, "expression"):
                made_of.append((value.expression, value.scope))
        return any(
            isinstance(each, ast.Attribute)
            and not _VERSIONS.isdisjoint(map(str, self._names.resolve(each, scope)))
            for whole, scope in made_of
            for each in ast.walk(whole)
        )

    def _is_missing(self, name):
        return (
            isinstance(name, str)
            and name.partition(".")[0] == "tensorflow"
            and not self._provided(name)
        )

    def _use(self, meanings, node, owners=()):
        """Notes a use of a name: of the first of its meanings, if nobody provides any of them."""
        is_missing = bool(meanings) and all(map(self._is_missing, meanings))
        if any(str(each).partition(".")[0] == "tensorflow" for each in meanings):
            self._there.append(not is_missing)
        if not is_missing:
            return
        name = meanings[0]
        if any(not asked or (name + ".").startswith(asked + ".") for asked in self._asked_for):
            self.expected.add(name)
            return
        path, line = self.module.source.place(node.lineno)
        told = old_names.public_name(name), _advice(name)
        use = Missing(path, line, *told, name, node in self._reached)
        self.missing.add((use, owners))


def _asked(node):
    """Returns the expression and the name in `hasattr(x, "name")` and `"name" in dir(x)`."""
    if isinstance(node, ast.Call) and _called(node) == "hasattr" and len(node.args) == 2:
        return node.args[0], scopes.text_of(node.args[1])
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
        call = node.comparators[0]
        if _called(call) == "dir" and len(call.args) == 1:
            return call.args[0], scopes.text_of(node.left)
    return None, None


def _called(node):
    return getattr(getattr(node, "func", None), "id", None)


def _is_function(meaning):
    node = getattr(meaning, "node", None)
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))


def _advice(name):
    found = old_names.find(name)
    advice = found.fate.advice if found else ""
    package = re.search(r"pip install ([\w-]+)", advice)
    if package and importlib.util.find_spec(package.group(1).replace("-", "_")):
        advice = advice.replace(package.group(), "installed here")
    return advice or "This TensorFlow has no such name."


def _catches(handler):
    """Whether an `except` catches the errors of names that are missing."""
    if handler.type is None:
        return True
    types_ = getattr(handler.type, "elts", [handler.type])
    return any(_last_name(each) in _CAUGHT for each in types_)


def _suppresses(item):
    """Whether a `with` is one of contextlib.suppress that does the same."""
    call = item.context_expr
    if not isinstance(call, ast.Call) or _last_name(call.func) != "suppress":
        return False
    return any(_last_name(each) in _CAUGHT for each in call.args)


def _last_name(node):
    """Returns the last part of a name with dots, or None."""
    return getattr(node, "attr", getattr(node, "id", None))


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
