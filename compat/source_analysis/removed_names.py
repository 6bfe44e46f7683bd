"""Finds the uses of TensorFlow 1's names that the `tf.compat.v1` of newer TensorFlows lacks."""

import ast

from .. import old_names
from . import uses_of_missing_names
from .name_verdicts import STAYS, Verdict, verdict_on_removed


def verdicts(module, names):
    """Yields a pair for each use in a module: the node that writes the name, and its `Verdict`.

    Args:
      module: a `scopes.Module`.
      names: the `scopes.Names` of all audited modules.
    """
    finder = _Finder(module, names, old_names.is_removed)
    finder.visit(module.source.tree)
    for use in finder.uses:
        verdict = verdict_on_removed(use.name)
        if use.is_guarded or finder.expected.intersection(use.owners):
            advice = "The code expects that it may be missing."
            verdict = Verdict(STAYS, verdict.name, None, advice)
        is_import = bool(use.imported)
        node = module.source.name_after(use.node, "import", use.imported) if is_import else use.node
        yield node, verdict


class _Finder(uses_of_missing_names.Finder):
    """Also finds the uses of names that `from … import` has bound."""

    def visit_Name(self, node):
        bound = self._scope.find(node.id) if isinstance(node.ctx, ast.Load) else None
        if bound and all(isinstance(each, str) for each in bound):
            meanings = self._names.resolve(node, self._scope)
            self._use(meanings, node, owners=tuple(map(str, meanings)))
