"""An optimizer that uses its learning rate attribute in its updates, not in `_prepare`."""

import tensorflow as tf


class UsesRateInUpdates(tf.compat.v1.train.Optimizer):
    """Gradient descent.

    TensorFlow 1.15's GradientDescentOptimizer also uses its attribute to apply sparse gradients.
    """

    def __init__(self, learning_rate):
        super().__init__(False, "UsesRateInUpdates")
        self._learning_rate = learning_rate

    def _resource_apply_dense(self, grad, handle):
        return tf.raw_ops.AssignSubVariableOp(
            resource=handle.handle, value=grad * self._learning_rate
        )

    def _resource_apply_sparse(self, grad, handle, indices):
        return tf.raw_ops.ResourceScatterSub(
            resource=handle.handle, indices=indices, updates=grad * self._learning_rate
        )
