"""Finds the uses of TensorFlow 1's names that the `tf.compat.v1` of newer TensorFlows lacks."""

from __future__ import annotations

import ast
from typing import Iterator, Tuple

from .. import old_names
from . import scopes, uses_of_missing_names
from .name_verdicts import STAYS, Verdict, verdict_on_removed


def verdicts(
    module: scopes.Module, names: scopes.NameResolver
) -> Iterator[Tuple[ast.AST, Verdict]]:
    """Yields (node, `Verdict`) for each use in a module. The node contains the name."""
    found = _RemovedUses(module, names, old_names.is_removed)
    for use in found.uses:
        verdict = verdict_on_removed(use.name)
        guards_of_owners = filter(None, map(found.expected.get, use.owners))
        guards = use.guards or next(guards_of_owners, ())
        if guards:
            verdict = Verdict(STAYS, verdict.name, None, _advice_on_guarded(use, verdict, guards))
        node = use.node
        if use.imported:
            node = module.source.name_after(node, "import", use.imported)
        yield node, verdict


def _advice_on_guarded(
    use: uses_of_missing_names.MissingUse, verdict: Verdict, guards: Tuple[str, ...]
) -> str:
    advice = "The code expects that it may be missing."
    if old_names.is_put_back(use.name) or not all(map(old_names.is_put_back, guards)):
        return advice
    checked_name = old_names.public_name(guards[0])
    more = f" Under legacy-opt run {checked_name} exists, but not this name. {verdict.advice}"
    return (advice + more).rstrip()


class _RemovedUses(uses_of_missing_names.MissingUses):
    """Also finds uses in calls: `getattr(tf, "contrib")`, `f(x).contrib`."""

    def visit_Call(self, node: ast.Call) -> None:
        name = scopes.last_name(node.func)
        before = len(self.uses)
        # A third argument of getattr is a default: the code expects that the name may be missing.
        if name in ("getattr", "import_module") and len(node.args) < 3:
            self._record(self._names.resolve(node, self._scope), node)
        first = uses_of_missing_names.first_of(node.args[0]) if node.args else None
        is_recorded = len(self.uses) > before
        if not is_recorded or not isinstance(first, ast.Name):  # record `tf` of getattr(tf, …) once
            self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        begins_with_name = isinstance(uses_of_missing_names.first_of(node), ast.Name)
        if isinstance(node.ctx, ast.Load) and not begins_with_name:  # such as f(x).slim
            self._record(self._names.resolve(node, self._scope), node)
        super().visit_Attribute(node)
