"""Finds the optimizer classes of which an expression may be an instance."""

from __future__ import annotations

import ast
from typing import Iterator, Optional, Sequence, Set, Tuple

from . import name_verdicts
from .class_verdicts import Classes
from .scopes import Definition, Meaning, NameResolver, Scope, alternatives

_NONE = ast.dump(ast.parse("None", mode="eval").body)


class Instances:
    """Finds instances of some classes of legacy_opt, and of the old classes that these replace.

    `wanted` are the full names of the classes of legacy_opt. A function that returns classes, such
    as `legacy_opt.extend_with_decoupled_weight_decay`, stands for the returned classes.
    """

    def __init__(self, names: NameResolver, classes: Classes, wanted: Sequence[str]) -> None:
        self._names, self._classes, self._wanted = names, classes, wanted

    def first_class(self, node: ast.AST, scope: Scope) -> Optional[str]:
        """Returns the first class of `wanted` whose instance `node` may be or wrap, or None."""
        return next(self._instances(node, scope, visited=set()), None)

    def _instances(
        self, node: ast.AST, scope: Scope, visited: Set[Tuple[ast.AST, Scope]]
    ) -> Iterator[str]:
        """Yields the classes in `wanted` whose instances an expression may create or wrap."""
        if (node, scope) in visited:
            return
        visited.add((node, scope))
        inner = [(value.expression, value.scope) for value in scope.values(node)]
        if isinstance(node, ast.Call):
            for callee in self._names.resolve(node.func, scope):
                name = self._class_of(callee)
                if name and name in self._wanted:
                    yield name
                elif isinstance(callee, Definition):
                    inner += [(each, callee.scope) for each in self._names.returned(callee)]
            arguments = node.args + [keyword.value for keyword in node.keywords]
            inner += [(each, scope) for each in arguments]  # for wrappers: CrossShardOptimizer(x)
        inner += [(each, scope) for each in alternatives(node)]
        for each, each_scope in inner:
            yield from self._instances(each, each_scope, visited)

    def _class_of(self, callee: Meaning) -> Optional[str]:
        """Returns the class of legacy_opt that is a callee, its base class or its replacement.

        Without such a class, returns None or a name that is not in `wanted`.
        """
        if isinstance(callee, Definition):
            return self._classes.class_of_legacy_opt(callee)
        verdict = name_verdicts.verdict(callee) if isinstance(callee, str) else None
        if verdict is None or verdict.name.startswith("tfa."):  # no v1 optimizer
            return None
        return verdict.instead or verdict.name


def argument(call: ast.Call, position: int, name: str) -> Optional[ast.expr]:
    """Returns the expression of a call's argument; None if it is missing or is `None`."""
    if len(call.args) > position:
        value = call.args[position]
    else:
        value = next((each.value for each in call.keywords if each.arg == name), None)
    # Up to Python 3.7, None is an ast.NameConstant.
    return None if value is None or ast.dump(value) == _NONE else value
