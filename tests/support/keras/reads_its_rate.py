"""An optimizer that reads its learning rate in its updates."""

import tensorflow as tf


class ReadsItsRate(tf.compat.v1.train.Optimizer):
    """Reads the learning rate in its updates, as GradientDescent does in TensorFlow 1.15."""

    def __init__(self, learning_rate):
        super().__init__(False, "ReadsItsRate")
        self._learning_rate = learning_rate

    def _resource_apply_dense(self, grad, handle):
        return tf.raw_ops.AssignSubVariableOp(
            resource=handle.handle, value=grad * self._learning_rate
        )

    def _resource_apply_sparse(self, grad, handle, indices):
        return tf.raw_ops.ResourceScatterSub(
            resource=handle.handle, indices=indices, updates=grad * self._learning_rate
        )
