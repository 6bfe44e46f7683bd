"""Finds the formulas of an optimizer."""

from __future__ import annotations

from typing import Any, Sequence

from legacy_opt.core.contract import UPDATE_METHODS
from legacy_opt.core.rule_optimizer import RuleOptimizer
from legacy_opt.core.types import V1Optimizer
from legacy_opt.core.update_methods import UpdateMethods
from legacy_opt.optimizers import stock_rules
from legacy_opt.optimizers.decoupled_weight_decay import DecoupledWeightDecayExtension
from legacy_opt.programs.formulas import Formulas, NoFormulas
from legacy_opt.programs.rules import RuleFormulas
from legacy_opt.programs.stock import StockFormulas
from legacy_opt.programs.weight_decay import DecayedFormulas


def formulas_of(optimizer: V1Optimizer) -> Formulas:
    """Returns the formulas of an optimizer for which `may_have_kernels` is true."""
    if not isinstance(optimizer, UpdateMethods):
        return RuleFormulas(optimizer)
    classes = type(optimizer).__mro__
    # `UpdateMethods` calls the update methods of the classes after it.
    cls = _updating_class(classes[classes.index(UpdateMethods) + 1 :])
    if cls in stock_rules.RULES:
        formulas: Formulas = StockFormulas(optimizer, stock_rules.RULES[cls])
    elif cls is RuleOptimizer:
        formulas = RuleFormulas(optimizer)
    else:
        formulas = NoFormulas(optimizer, f"{cls.__name__} has update methods of its own")
    decays = isinstance(optimizer, DecoupledWeightDecayExtension)
    return DecayedFormulas(formulas) if decays else formulas


def may_have_kernels(optimizer_class: type) -> bool:
    """Whether optimizers of a class call kernels, if there are any."""
    return issubclass(optimizer_class, (RuleOptimizer, UpdateMethods))


def has_stock_rule(optimizer_class: type) -> bool:
    """Whether a class inherits its update methods from a TensorFlow optimizer in `RULES`."""
    return _updating_class(optimizer_class.__mro__) in stock_rules.RULES


def overrides_updates(optimizer: Any, base: type) -> bool:
    """Whether an optimizer overrides an update method of its class `base`."""
    if hasattr(optimizer, "without_bridge"):  # a copy that `to_keras` has made
        optimizer = optimizer.without_bridge()
    return any(
        getattr(getattr(optimizer, name), "__func__", None) is not getattr(base, name)
        for name in UPDATE_METHODS
    )


def _updating_class(classes: Sequence[type]) -> type:
    methods = (*UPDATE_METHODS, "_apply_sparse_shared")  # the last is in Adam only
    return stock_rules.updating_class(classes, methods)
