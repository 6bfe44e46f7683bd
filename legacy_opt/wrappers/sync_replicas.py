"""Recognizes TensorFlow's SyncReplicasOptimizer around or inside of an optimizer."""

import tensorflow as tf

from legacy_opt.wrappers.nested_optimizers import all_held_by

v1 = tf.compat.v1


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
    waiting, seen = [tensor.op for tensor in tensors], set()
    while waiting:
        op = waiting.pop()
        if taking in op.type:
            return True
        if op not in seen:
            seen.add(op)
            waiting += [tensor.op for tensor in op.inputs]
    return False
