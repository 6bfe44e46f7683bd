"""Finds missing TensorFlow names that a script uses, without running the script.

A meaning of a name is an object to which the name may refer: a definition in the script, a string,
or an imported object, which is represented by its full dotted name (`scopes.Names.resolve`).
"""

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

_CATCHING = {"ImportError", "ModuleNotFoundError", "AttributeError", "Exception", "BaseException"}
_VERSIONS = {"tensorflow.__version__", "tensorflow.VERSION", "tensorflow.version.VERSION"}
_JUMPS = (ast.Return, ast.Continue, ast.Break)


class Missing(NamedTuple):
    """The use of a name that neither TensorFlow nor `compat.patch_tensorflow` provides.

    Attributes:
      path: the file that uses the name.
      line: the line of the use, from 1.
      name: the name in the form of the table `old_names`.
      advice: a sentence that says what to do.
      full_name: the full dotted name under which the file imports the object.
      is_certain: whether every run of the script reaches the use.
    """

    path: str
    line: int
    name: str
    advice: str
    full_name: str
    is_certain: bool

    @property
    def text(self):
        """The message for users, on one line."""
        path, line, name, why = self[:4]
        return plain_text.printable(f"{path}:{line}: {name}: {why}")


def find(path, name, tensorflow):
    """Finds the missing names of TensorFlow in a script and in the local modules that it imports.

    Uses in guarded code are left out, and so are uses of names that guarded code has imported.
    Guarded code is:

    * the body of a `try` or `with suppress` that catches the errors of missing names;
    * the `except` block of a `try` whose body uses only names that exist;
    * code that depends on a check of the name (`hasattr(tf, "contrib")`), of TensorFlow's version
      or of `TYPE_CHECKING`.

    Args:
      path: the script's path.
      name: the name under which the script runs: "__main__", or the full name of a module.
      tensorflow: the module that the script's `import tensorflow` returns.

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

    Attributes of classes and other objects are not checked.

    Args:
      name: the full name, with dots.
      tensorflow: see `find`.

    Returns:
      A pair: the last existing module in the dotted name; and the word of the name that this module
      lacks, or None if the name exists.
    """
    found, parts = tensorflow, name.split(".")
    # `tensorflow` may be tf.compat.v1, whose attribute `compat` is another module than tf.compat.
    if parts[1:2] == ["compat"]:
        found = sys.modules["tensorflow"]
    for end in range(1, len(parts)):
        try:
            inner = getattr(found, parts[end])
        except Exception:  # lazy loaders raise exceptions of any class
            try:
                inner = importlib.import_module(".".join(parts[: end + 1]))
            except Exception:  # the import of a module may raise any exception, too
                return found, parts[end]
        if not isinstance(inner, types.ModuleType):
            break
        found = inner
    return found, None


class _Provided:
    """A cached check whether TensorFlow has a full dotted name.

    Args:
      tensorflow: the module.
    """

    def __init__(self, tensorflow):
        self._tensorflow = tensorflow
        self._answers = {}

    def __call__(self, name):
        if name not in self._answers:
            self._answers[name] = look_up(name, self._tensorflow)[1] is None
        return self._answers[name]


class _User(ast.NodeVisitor):
    """Collects the missing names that a module uses.

    Attributes:
      module: a `scopes.Module`.
      missing: a set of pairs: a `Missing`, and the meanings of the first word of its dotted name.
      expected: the missing full names that guarded code uses (see `find`).
    """

    def __init__(self, module, names, provided, reached_nodes):
        self.module, self.missing, self.expected = module, set(), set()
        self._names, self._provided, self._reached = names, provided, reached_nodes
        self._scope = module.scope
        # The names that are checked by the guards around the visited node; "" means any name.
        self._guarded = []
        self._uses_found = []  # for each use of TensorFlow, in order: whether the name exists

    def visit(self, node):
        outer, self._scope = self._scope, self.module.scopes.get(node, self._scope)
        super().visit(node)
        self._scope = outer

    def generic_visit(self, node):
        # visit_If may add guards for the rest of a block of this node. Remove these guards at the
        # end of the node.
        with self._guarding([]):
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
            if self._scope.find(base.id) is None:  # `base` is a builtin, or from a star import
                existing = tuple(f"{each}." for each in owners if not self._is_missing(each))
                meanings = [each for each in meanings if str(each).startswith(existing)]
            self._use(meanings, node, owners)

    def visit_Try(self, node):
        before = len(self._uses_found)
        with self._guarding([""] if any(map(_catches, node.handlers)) else []):
            self._visit_all(node.body + node.orelse)
        tried = self._uses_found[before:]
        for handler in node.handlers:
            # If all names in the `try` exist, the handler is for other versions of TensorFlow.
            is_unused = tried and all(tried) and _catches(handler)
            with self._guarding([""] if is_unused else []):
                self.visit(handler)
        self._visit_all(node.finalbody)

    def visit_With(self, node):
        self._visit_all(node.items)
        with self._guarding([""] if any(map(_suppresses, node.items)) else []):
            self._visit_all(node.body)

    def visit_If(self, node):
        names = self._checked_names(node.test)
        with self._guarding(names):
            self.generic_visit(node)
        if isinstance(node.body[-1], _JUMPS):
            self._guarded += names  # the rest of the block depends on the condition, like an `else`

    def visit_IfExp(self, node):
        with self._guarding(self._checked_names(node.test)):
            self.generic_visit(node)

    def visit_BoolOp(self, node):
        with self._guarding(self._checked_names(node)):
            self.generic_visit(node)

    def _visit_all(self, nodes):
        for node in nodes:
            self.visit(node)

    @contextlib.contextmanager
    def _guarding(self, names):
        before = len(self._guarded)
        self._guarded += names
        yield
        del self._guarded[before:]

    def _checked_names(self, test):
        """Returns the missing names whose presence a condition checks.

        Returns [""], which means any name, for conditions on the version or on TYPE_CHECKING.
        """
        checked = []
        for node in ast.walk(test):
            if _last_name(node) == "TYPE_CHECKING" or self._depends_on_version(node):
                return [""]
            owner, text = _presence_check(node)
            for each in self._names.resolve(owner, self._scope) if text else ():
                full = f"{each}.{text}"
                if self._is_missing(full):
                    checked.append(full)
        return checked

    def _depends_on_version(self, node):
        """Returns whether a name is TensorFlow's version, or is computed from this version."""
        if not isinstance(node, (ast.Name, ast.Attribute)):
            return False
        meanings = self._names.resolve(node, self._scope)
        if not _VERSIONS.isdisjoint(map(str, meanings)):
            return True
        sources = [(each.node, each.scope) for each in meanings if _is_function(each)]
        if isinstance(node, ast.Name):
            sources += [(value.expression, value.scope) for value in self._scope.values(node)]
        return any(
            isinstance(each, ast.Attribute)
            and not _VERSIONS.isdisjoint(map(str, self._names.resolve(each, scope)))
            for whole, scope in sources
            for each in ast.walk(whole)
        )

    def _is_missing(self, name):
        return (
            isinstance(name, str)
            and name.partition(".")[0] == "tensorflow"
            and not self._provided(name)
        )

    def _use(self, meanings, node, owners=()):
        """Records the use of a name if all meanings are missing; reports the first meaning."""
        is_missing = bool(meanings) and all(map(self._is_missing, meanings))
        if any(str(each).partition(".")[0] == "tensorflow" for each in meanings):
            self._uses_found.append(not is_missing)
        if not is_missing:
            return
        name = meanings[0]
        if any(not guard or (name + ".").startswith(guard + ".") for guard in self._guarded):
            self.expected.add(name)
            return
        path, line = self.module.source.place(node.lineno)
        public, is_certain = old_names.public_name(name), node in self._reached
        self.missing.add((Missing(path, line, public, _advice(name), name, is_certain), owners))


def _presence_check(node):
    """Returns x and "name" if a node is `hasattr(x, "name")` or `"name" in dir(x)`.

    Returns (None, None) for other nodes.
    """
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
    """Returns whether an `except` catches the errors that a missing name raises."""
    if handler.type is None:
        return True
    types_ = getattr(handler.type, "elts", [handler.type])
    return any(_last_name(each) in _CATCHING for each in types_)


def _suppresses(item):
    """Returns whether a `with` item is `suppress(…)` of the errors that a missing name raises."""
    call = item.context_expr
    if not isinstance(call, ast.Call) or _last_name(call.func) != "suppress":
        return False
    return any(_last_name(each) in _CATCHING for each in call.args)


def _last_name(node):
    """Returns the last part of a dotted name, or None for other expressions."""
    return getattr(node, "attr", getattr(node, "id", None))


@contextlib.contextmanager
def _without_warnings():
    """Silences TensorFlow's warnings about deprecated names within this scope."""
    logger = logging.getLogger("tensorflow")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
