"""Finds the code that every run of a module reaches, without running the module."""

from __future__ import annotations

import ast
from typing import Any, Callable, Dict, Iterable, List, Set

from .scopes import last_name

_EXITS = {"abort", "exit", "quit", "_exit"}  # names of functions that end the program
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def nodes(tree: ast.Module, is_main: bool) -> Set[ast.AST]:
    """Returns the set of nodes of a module that run whenever the module runs.

    These are the statements outside of functions, conditions, loops and `try`, up to the first
    statement that may end the program. Of a statement, only parts that are always evaluated are
    returned, such as the decorators and defaults of a function, and the left side of `a and b`.

    If `is_main` is true, the module runs as `__main__`, so the block of
    `if __name__ == "__main__":` counts as outside of conditions.
    """
    visitor = _Reached(is_main)
    visitor.visit(tree)
    return visitor.nodes


class _Reached(ast.NodeVisitor):
    """Visits only the nodes that every run reaches."""

    def __init__(self, is_main: bool) -> None:
        self.nodes: Set[ast.AST] = set()
        self._is_main = is_main

    def visit(self, node: ast.AST) -> None:
        self.nodes.add(node)
        super().visit(node)

    def _visit_all(self, nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)

    def _visit_block(self, statements: List[ast.stmt]) -> None:
        for statement in statements:
            self.visit(statement)
            if _may_leave(statement):
                return

    def visit_Module(self, node: ast.Module) -> None:
        self._visit_block(node.body)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._visit_all(node.decorator_list + node.bases + node.keywords)
        self._visit_block(node.body)

    def visit_FunctionDef(self, node: Any) -> None:
        self._visit_all(node.decorator_list)
        self.visit_Lambda(node)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: Any) -> None:
        self._visit_all(node.args.defaults + [each for each in node.args.kw_defaults if each])

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        if self._is_main and _is_main_guard(node.test):
            self._visit_block(node.body)

    def visit_With(self, node: ast.With) -> None:
        self._visit_all(node.items)
        self._visit_block(node.body)

    def generic_visit(self, node: ast.AST) -> None:
        parts = _EVALUATED.get(type(node).__name__, ast.iter_child_nodes)
        self._visit_all(parts(node))


# {type: function from a node to the parts that are always evaluated}; by default all parts.
_EVALUATED: Dict[str, Callable[[Any], List[ast.AST]]] = {
    **dict.fromkeys(("Try", "TryStar", "Assert", "TypeAlias"), lambda node: []),
    **dict.fromkeys(("IfExp", "While"), lambda node: [node.test]),
    **dict.fromkeys(
        ("ListComp", "SetComp", "DictComp", "GeneratorExp"), lambda node: [node.generators[0].iter]
    ),
    # Annotations may be evaluated later, or never.
    "AnnAssign": lambda node: [node.value] if node.value else [],
    "BoolOp": lambda node: [node.values[0]],
    "Compare": lambda node: [node.left, node.comparators[0]],
    "For": lambda node: [node.iter],
    "Match": lambda node: [node.subject],
}


def always_leaves(statement: ast.stmt) -> bool:
    """Returns whether a statement is a `raise` or a call that ends the program."""
    return isinstance(statement, ast.Raise) or _is_exit(getattr(statement, "value", None))


def _may_leave(statement: ast.stmt) -> bool:
    """Returns whether a statement contains a `raise` or a call that may end the program."""
    waiting: List[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        if isinstance(node, _FUNCTIONS):
            continue  # the body of a function runs only in a call
        if isinstance(node, ast.Raise) or _is_exit(node):
            return True
        waiting += ast.iter_child_nodes(node)
    return False


def _is_exit(node: Any) -> bool:
    """Returns whether a node is a call that ends the program."""
    if not isinstance(node, ast.Call):
        return False
    name = last_name(node.func)
    if name == "run":  # tf.app.run and absl.app.run
        return last_name(getattr(node.func, "value", None)) == "app"
    return name in _EXITS


def _is_main_guard(test: ast.expr) -> bool:
    """Returns whether a condition is `__name__ == "__main__"`, in either order."""
    if not (isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq)):
        return False
    return {ast.dump(each) for each in [test.left] + test.comparators} == _MAIN_GUARD


_MAIN_GUARD = {ast.dump(ast.parse(each, mode="eval").body) for each in ("__name__", "'__main__'")}
