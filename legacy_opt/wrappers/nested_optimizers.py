"""Finds optimizers nested in another optimizer, also in other people's wrappers."""

import tensorflow as tf

from legacy_opt.core.graphs import operations_behind
from legacy_opt.wrappers.base import OptimizerWrapper

v1 = tf.compat.v1


def held_by(optimizer):
    """Returns the v1 optimizers in an optimizer's attributes, also those in lists there."""
    if isinstance(optimizer, OptimizerWrapper):
        return list(optimizer.wrapped)
    found = []
    for value in vars(optimizer).values():
        several = value if isinstance(value, (list, tuple)) else [value]
        found += [each for each in several if isinstance(each, v1.train.Optimizer)]
    return [each for each in found if each is not optimizer]


def all_held_by(optimizer):
    """Returns an optimizer, what it holds, what that holds, and so on: a list, each once."""
    waiting, found = [optimizer], {}
    while waiting:
        each = waiting.pop()
        if id(each) not in found:
            found[id(each)] = each
            waiting += held_by(each)
    return list(found.values())


def holds_sync_replicas(optimizer):
    """Whether an optimizer is a SyncReplicasOptimizer, or holds one."""
    return any(isinstance(each, v1.train.SyncReplicasOptimizer) for each in all_held_by(optimizer))


def comes_from_sync_replicas(pairs):
    """Whether gradients are computed from what SyncReplicasOptimizer takes off its accumulators."""
    taking = "AccumulatorTakeGradient"
    if not any(taking in op.type for op in v1.get_default_graph().get_operations()):
        return False
    grads = [grad for grad, _ in pairs if grad is not None]
    tensors = [grad.values if isinstance(grad, tf.IndexedSlices) else grad for grad in grads]
    return any(taking in operation.type for operation in operations_behind(tensors))
