"""Sparse updates that XLA can compile, for TensorFlow's own v1 optimizers.

XLA lacks the fused ResourceSparseApply… kernels, which these optimizers call. Instead of a kernel,
the functions here apply a `StockRule` (the update, written with TensorFlow operations) to the rows
that have gradients. The results may differ from the kernels' in the last bits.
"""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Optional, Type

import tensorflow as tf

from legacy_opt import DecoupledWeightDecayExtension
from legacy_opt.core.types import Tensor, V1Optimizer, Variable
from legacy_opt.core.update_methods import UpdateMethods
from legacy_opt.core.variable_access import Rows
from legacy_opt.optimizers import stock_rules
from legacy_opt.optimizers.stock_rules import StockRule

train = tf.compat.v1.train
_SPARSE_UPDATES = ("_resource_apply_sparse", "_resource_apply_sparse_duplicate_indices")
# The sparse updates of these optimizers do not call ResourceSparseApply… kernels.
_WITHOUT_FUSED_KERNELS = (train.AdamOptimizer, train.GradientDescentOptimizer)


def rule_for(optimizer_class: Type[V1Optimizer]) -> Optional[StockRule]:
    """Returns the `StockRule` for the sparse update of a v1 class, or None."""
    # Skip the update methods that DecoupledWeightDecayExtension inherits from UpdateMethods. They
    # apply the weight decay and then call the update method that is searched for here;
    # `apply_sparse` applies the weight decay itself.
    classes = [cls for cls in optimizer_class.__mro__ if cls is not UpdateMethods]
    cls = stock_rules.updating_class(classes, _SPARSE_UPDATES)
    return None if cls in _WITHOUT_FUSED_KERNELS else stock_rules.RULES.get(cls)


def apply_sparse(
    rule: StockRule, optimizer: V1Optimizer, grad: Tensor, variable: Variable, indices: Tensor
):
    """Updates the rows `indices` of a variable and of its slots, by a rule from `rule_for`.

    Call this after `_prepare` of the optimizer. `grad` has one row for each of `indices`, which are
    row numbers without duplicates. Returns an operation; None when executing eagerly.
    """
    rows = Rows(indices)
    decaying = contextlib.ExitStack()
    if isinstance(optimizer, DecoupledWeightDecayExtension):
        decaying = optimizer.decayed(grad, variable, rows)
    with decaying:
        slots = {name: optimizer.get_slot(variable, name) for name in optimizer.get_slot_names()}
        slots = {name: slot for name, slot in slots.items() if slot is not None}
        read = SimpleNamespace(**{name: rows.read(slot) for name, slot in slots.items()})
        scalars = stock_rules.scalars_of(rule, optimizer)
        hyper = stock_rules.hyper_of(rule, optimizer, scalars, grad.dtype)
        update = rule.function_for(sparse=True)
        new_value, new_slots = update(grad, rows.read(variable), read, hyper)
        with tf.control_dependencies([new_value] + list(new_slots.values())):
            operations = [rows.assign(variable, new_value)]
            operations += [rows.assign(slots[name], value) for name, value in new_slots.items()]
        return tf.group(*operations)
