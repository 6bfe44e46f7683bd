"""Finds optimizers that are nested in another optimizer, even in wrappers from other libraries."""

from __future__ import annotations

from typing import List

import tensorflow as tf

from legacy_opt.core.graphs import operations_behind
from legacy_opt.core.types import GradAndVar, V1Optimizer
from legacy_opt.wrappers.base import OptimizerWrapper

v1 = tf.compat.v1


def inner_optimizers(optimizer: V1Optimizer) -> List[V1Optimizer]:
    """Returns the v1 optimizers in an optimizer's attributes, also in lists and tuples."""
    if isinstance(optimizer, OptimizerWrapper):
        return list(optimizer.wrapped)
    optimizers = []
    for value in vars(optimizer).values():
        items = value if isinstance(value, (list, tuple)) else [value]
        optimizers += [each for each in items if isinstance(each, v1.train.Optimizer)]
    return [each for each in optimizers if each is not optimizer]


def all_optimizers_in(optimizer: V1Optimizer) -> List[V1Optimizer]:
    """Returns a list of an optimizer and all optimizers nested in it, without duplicates."""
    waiting = [optimizer]
    by_id = {}
    while waiting:
        each = waiting.pop()
        if id(each) not in by_id:
            by_id[id(each)] = each
            waiting += inner_optimizers(each)
    return list(by_id.values())


def contains_sync_replicas(optimizer: V1Optimizer) -> bool:
    """Whether an optimizer is or contains a SyncReplicasOptimizer."""
    sync_replicas = v1.train.SyncReplicasOptimizer
    return any(isinstance(each, sync_replicas) for each in all_optimizers_in(optimizer))


def comes_from_sync_replicas(pairs: List[GradAndVar]) -> bool:
    """Whether gradients are computed from the gradient accumulators of SyncReplicasOptimizer."""
    op_type = "AccumulatorTakeGradient"
    if not any(op_type in op.type for op in v1.get_default_graph().get_operations()):
        return False
    grads = [grad for grad, _ in pairs if grad is not None]
    tensors = [grad.values if isinstance(grad, tf.IndexedSlices) else grad for grad in grads]
    return any(op_type in operation.type for operation in operations_behind(tensors))
