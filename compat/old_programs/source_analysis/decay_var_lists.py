"""Finds uses of weight decay that mean something else in the original optimizers.

In `tf.contrib.opt`, `minimize` of an optimizer with decoupled weight decay ignores
`decay_var_list` and decays all variables. The classes of legacy_opt decay only the listed ones.
`races` finds uses of the originals, in which nothing orders the decay after the gradients.
"""

from __future__ import annotations

import ast
from typing import Iterable, Iterator, Tuple

from . import name_verdicts
from .class_verdicts import Classes
from .instances import Instances, argument
from .name_verdicts import CHANGE, DECAY_RACE, WITH_DECAY, Verdict
from .scopes import Module, NameResolver, Scope
from .uses_of_missing_names import MissingUses

_POSITION = 8  # of decay_var_list among the arguments of `minimize`
_ADVICE = (
    "The minimize of tf.contrib.opt ignores decay_var_list and decays all variables; the minimize "
    "of legacy_opt decays only these. To train as before, delete decay_var_list. To decay only "
    "these, call apply_gradients(optimizer.compute_gradients(loss), decay_var_list=…), which obeys "
    "it in both."
)


def verdicts(
    call: ast.Call, scope: Scope, names: NameResolver, classes: Classes
) -> Iterator[Tuple[ast.expr, Verdict]]:
    """Yields (expression of `decay_var_list`, `Verdict`) if a call of `minimize` has one."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "minimize":
        return
    var_list = argument(call, _POSITION, "decay_var_list")
    if var_list is None:
        return
    name = Instances(names, classes, WITH_DECAY).first_class(call.func.value, scope)
    if name:
        yield var_list, Verdict(CHANGE, name, None, _ADVICE)


def races(modules: Iterable[Module]) -> Iterator[Tuple[str, int]]:
    """Yields (path, line) of each use of an original whose decay races with the gradients."""

    def is_original(name: str) -> bool:
        verdict = name_verdicts.verdict(name)
        return verdict is not None and verdict.advice == DECAY_RACE

    names = NameResolver(list(modules))
    for module in modules:
        for use in MissingUses(module, names, is_original).uses:
            if not use.imported:
                yield module.source.place(use.node.lineno)
