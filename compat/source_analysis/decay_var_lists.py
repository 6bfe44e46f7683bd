"""Finds calls of `minimize` whose `decay_var_list` the original optimizer ignores.

In `tf.contrib.opt`, `minimize` of an optimizer with decoupled weight decay ignores
`decay_var_list` and decays all variables. The classes of legacy_opt obey it.
"""

from __future__ import annotations

import ast

from .instances import Instances, argument
from .name_verdicts import CHANGE, Verdict

_CLASSES = (
    "legacy_opt.AdamWOptimizer",
    "legacy_opt.DecoupledWeightDecayExtension",
    "legacy_opt.MomentumWOptimizer",
    "legacy_opt.extend_with_decoupled_weight_decay",
)
_POSITION = 8  # of decay_var_list among the arguments of `minimize`
_ADVICE = (
    "The minimize of tf.contrib.opt ignores decay_var_list and decays all variables; the minimize "
    "of legacy_opt decays only these. To train as before, delete decay_var_list. To decay only "
    "these, call apply_gradients(optimizer.compute_gradients(loss), decay_var_list=…), which obeys "
    "it in both."
)


def verdicts(call, scope, names, classes):
    """Yields a pair of the expression of a call's `decay_var_list`, and a `Verdict`.

    Yields nothing for all other calls.

    Args:
      call: the expression.
      scope: the `Scope` of the expression.
      names: the `Names` of the audited code.
      classes: the `Classes` of the audited code.
    """
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "minimize":
        return
    chosen = argument(call, _POSITION, "decay_var_list")
    name = chosen and Instances(names, classes, _CLASSES).first_class(call.func.value, scope)
    if name:
        yield chosen, Verdict(CHANGE, name, None, _ADVICE)
