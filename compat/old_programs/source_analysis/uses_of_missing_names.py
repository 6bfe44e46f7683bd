"""Finds the uses of missing names of TensorFlow in a module, and tells which uses are guarded.

A use is guarded if the code expects that the name may be missing. Guarded code is:

* the body of a `try` or `with suppress` that catches the errors of missing names without ending the
  program;
* the `except` block of a `try` whose body uses only names that exist;
* code that depends on a check of the name (`hasattr(tf, "contrib")`), of TensorFlow's version or of
  `TYPE_CHECKING`.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from .. import old_names
from . import reached, scopes
from .scopes import Meaning, Module

_CATCHING = {"ImportError", "ModuleNotFoundError", "AttributeError", "Exception", "BaseException"}
_VERSIONS = {"tensorflow.__version__", "tensorflow.VERSION", "tensorflow.version.VERSION"}
_ROOTS = {"tensorflow", *(name.partition(".")[0] for name in old_names.LIBRARIES)}
_JUMPS = (ast.Return, ast.Continue, ast.Break)


class MissingUse(NamedTuple):
    """A use of a missing name."""

    name: str  # the full dotted name of the object
    node: Any  # the expression or the import statement
    imported: str  # the name as an import statement writes it; "" for other uses
    owners: Tuple[str, ...]  # the full names to which the first word of the expression may refer
    guards: Tuple[str, ...]  # the names that the guards around the use check; "" means any name


class MissingUses(ast.NodeVisitor):
    """Visits the syntax tree of a module, and collects the uses of missing names.

    `names` resolves the names of all modules. `is_missing` returns whether a full dotted name is
    missing. It is called for names of TensorFlow and of the libraries in `old_names`.
    """

    def __init__(
        self, module: Module, names: scopes.NameResolver, is_missing: Callable[[str], bool]
    ) -> None:
        self.module = module
        self.uses: List[MissingUse] = []
        # From each missing full name that guarded code uses to its guards.
        self.expected: Dict[str, Tuple[str, ...]] = {}
        self._names, self._is_missing_here = names, is_missing
        self._scope = module.scope
        # The names that the guards around the visited node check; "" means any name.
        self._guarded: List[str] = []
        # Whether the name exists, for each use of TensorFlow in the order of the visits.
        self._uses_found: List[bool] = []
        self.visit(module.source.tree)

    def visit(self, node: ast.AST) -> None:
        outer, self._scope = self._scope, self.module.scopes.get(node, self._scope)
        super().visit(node)
        self._scope = outer

    def generic_visit(self, node: ast.AST) -> None:
        # visit_If may add guards for the rest of a block of this node. They end with the node.
        with self._guarding([]):
            super().generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._record([alias.name], node, alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = self.module.imported(node)
        for alias in node.names:
            name = module if alias.name == "*" else f"{module}.{alias.name}"
            self._record([name], node, alias.name)

    def visit_Name(self, node: ast.Name) -> None:
        bound = self._scope.find(node.id) or ()
        is_imported = all(isinstance(each, str) for each in bound)
        if isinstance(node.ctx, ast.Load) and is_imported:
            meanings = self._names.resolve(node, self._scope)
            excluded = self._excluded_meanings(node.id, meanings)
            meanings = [each for each in meanings if each not in excluded]
            self._record(meanings, node, owners=tuple(map(str, meanings)))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        base = first_of(node)
        if not isinstance(base, ast.Name):
            self.generic_visit(node)
        elif isinstance(node.ctx, ast.Load):
            owners = tuple(map(str, self._names.resolve(base, self._scope)))
            excluded = tuple(f"{each}." for each in self._excluded_meanings(base.id, owners))
            meanings = self._names.resolve(node, self._scope)
            meanings = [each for each in meanings if not str(each).startswith(excluded)]
            self._record(meanings, node, owners=owners)

    def visit_Try(self, node: ast.Try) -> None:
        before = len(self._uses_found)
        is_guard = any(_catches(each) and not _ends_program(each) for each in node.handlers)
        with self._guarding([""] if is_guard else []):
            self._visit_all(node.body + node.orelse)
        names_exist = self._uses_found[before:]
        for handler in node.handlers:
            # If all names in the `try` exist, the handler is for other versions of TensorFlow.
            is_unused = bool(names_exist) and all(names_exist) and _catches(handler)
            with self._guarding([""] if is_unused else []):
                self.visit(handler)
        self._visit_all(node.finalbody)

    def visit_With(self, node: ast.With) -> None:
        self._visit_all(node.items)
        with self._guarding([""] if any(map(_suppresses, node.items)) else []):
            self._visit_all(node.body)

    def visit_If(self, node: ast.If) -> None:
        names = self._checked_names(node.test)
        with self._guarding(names):
            self.generic_visit(node)
        if isinstance(node.body[-1], _JUMPS):
            self._guarded += names  # the rest of the block depends on the condition, like an `else`

    def visit_IfExp(self, node: ast.expr) -> None:
        with self._guarding(self._checked_names(getattr(node, "test", node))):
            self.generic_visit(node)

    visit_BoolOp = visit_IfExp

    def _visit_all(self, nodes: Sequence[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)

    @contextlib.contextmanager
    def _guarding(self, names: List[str]) -> Iterator[None]:
        before = len(self._guarded)
        self._guarded += names
        yield
        del self._guarded[before:]

    def _checked_names(self, test: ast.expr) -> List[str]:
        """Returns the missing names whose presence a condition checks.

        Returns [""], which means any name, for conditions on the version or on TYPE_CHECKING.
        """
        checked: List[str] = []
        for node in ast.walk(test):
            if scopes.last_name(node) == "TYPE_CHECKING" or self._depends_on_version(node):
                return [""]
            owner, text = _presence_check(node)
            if text:
                names = [f"{each}.{text}" for each in self._names.resolve(owner, self._scope)]
                checked += filter(self._is_missing, names)
        return checked

    def _depends_on_version(self, node: ast.AST) -> bool:
        """Returns whether a name is TensorFlow's version, or is computed from this version."""
        if not isinstance(node, (ast.Name, ast.Attribute)):
            return False
        meanings = self._names.resolve(node, self._scope)
        if not _VERSIONS.isdisjoint(map(str, meanings)):
            return True
        definitions = [each for each in meanings if isinstance(each, scopes.Definition)]
        functions = [each for each in definitions if not isinstance(each.node, ast.ClassDef)]
        sources = [(each.node, each.scope) for each in functions]
        if isinstance(node, ast.Name):
            sources += [(value.expression, value.scope) for value in self._scope.values(node)]
        return any(
            isinstance(each, ast.Attribute)
            and not _VERSIONS.isdisjoint(map(str, self._names.resolve(each, scope)))
            for source, scope in sources
            for each in ast.walk(source)
        )

    def _excluded_meanings(self, name: str, meanings: Sequence[Meaning]) -> List[Meaning]:
        """Returns the meanings that a name does not have, although star imports suggest them."""
        undefined = list(filter(self._names.is_undefined, meanings))
        excluded = undefined if len(undefined) < len(meanings) else []
        if self._scope.find(name) is None:  # `name` is a builtin, or from a star import
            modules_of_names = {f"{star}.{name}": star for star, _ in self.module.star_imports}
            for each in filter(self._is_missing, meanings):
                module = modules_of_names.get(str(each))
                is_unlikely = hasattr(builtins, name) or not old_names.is_removed(each)
                if is_unlikely or self._is_missing(module):  # the star import itself is a use
                    excluded.append(each)
        return excluded

    def _is_missing(self, name: Optional[Meaning]) -> bool:
        if not isinstance(name, str) or name.partition(".")[0] not in _ROOTS:
            return False
        return self._is_missing_here(name)

    def _record(
        self,
        meanings: Sequence[Meaning],
        node: ast.AST,
        imported: str = "",
        owners: Tuple[str, ...] = (),
    ) -> None:
        """Records the use of a name if all meanings are missing; records the first meaning."""
        is_missing = bool(meanings) and all(map(self._is_missing, meanings))
        if any(str(each).partition(".")[0] in ("tensorflow", "collections") for each in meanings):
            self._uses_found.append(not is_missing)
        if not is_missing:
            return
        name = str(meanings[0])
        start = name + "."
        guards = tuple(each for each in self._guarded if not each or start.startswith(each + "."))
        if guards:
            self.expected.setdefault(name, guards)
        self.uses.append(MissingUse(name, node, imported, owners, guards))


def first_of(node: ast.AST) -> ast.AST:
    """Returns the expression before the attributes: `x` for `x.y.z`."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node


def _presence_check(node: ast.AST) -> Tuple[Optional[ast.expr], Optional[str]]:
    """Returns x and "name" for `hasattr(x, "name")` and `"name" in dir(x)`, else (None, None)."""
    if isinstance(node, ast.Call) and _called(node) == "hasattr" and len(node.args) == 2:
        return node.args[0], scopes.text_of(node.args[1])
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
        call = node.comparators[0]
        if _called(call) == "dir" and len(call.args) == 1:
            return call.args[0], scopes.text_of(node.left)
    return None, None


def _called(node: Any) -> Optional[str]:
    return getattr(getattr(node, "func", None), "id", None)


def _catches(handler: ast.ExceptHandler) -> bool:
    """Returns whether an `except` catches the errors that a missing name raises."""
    if handler.type is None:
        return True
    types_ = getattr(handler.type, "elts", [handler.type])
    return any(scopes.last_name(each) in _CATCHING for each in types_)


def _ends_program(handler: ast.ExceptHandler) -> bool:
    """Returns whether an `except` raises an error again, or ends the program."""
    return any(map(reached.always_leaves, handler.body))


def _suppresses(item: ast.withitem) -> bool:
    """Returns whether a `with` item is `suppress(…)` of the errors that a missing name raises."""
    call = item.context_expr
    if not isinstance(call, ast.Call) or scopes.last_name(call.func) != "suppress":
        return False
    return any(scopes.last_name(each) in _CATCHING for each in call.args)
