"""Optimizers with hyperparameters that decay with a global step, for tests of `to_keras`."""

import tensorflow as tf

import legacy_opt

v1 = tf.compat.v1
Momentum = v1.train.MomentumOptimizer


def decayed(value, step):
    """Halves a value every 3 steps."""
    return v1.train.exponential_decay(value, step, 3, 0.5)


class Own(v1.train.Optimizer):
    """Momentum that keeps its momentum in a list, not in `_momentum`."""

    def __init__(self, learning_rate, momentum):
        super().__init__(False, "Own")
        self._learning_rate, self._settings = learning_rate, [momentum]

    def _create_slots(self, var_list):
        for variable in var_list:
            self._zeros_slot(variable, "m", "Own")

    def _resource_apply_dense(self, grad, handle):
        (momentum,) = self._settings
        momentum = momentum() if callable(momentum) else momentum
        slot = self.get_slot(handle, "m")
        with tf.control_dependencies([slot.assign(momentum * slot + grad)]):
            return handle.assign_sub(self._learning_rate * slot.read_value(), read_value=False)


# {name: a function of the global step that makes an optimizer}
MAKERS = {
    "learning rate": lambda step: Momentum(decayed(0.1, step), 0.9),
    "momentum": lambda step: Momentum(0.1, decayed(0.9, step)),
    "of another dtype": lambda step: Momentum(0.1, decayed(tf.constant(0.9, tf.float64), step)),
    "computed from another": lambda step: legacy_opt.PowerSignOptimizer(0.1, decayed(2.0, step)),
    "in a list": lambda step: Own(0.1, decayed(0.9, step)),
    "several optimizers": lambda step: legacy_opt.MultiOptimizer(
        [(Momentum(decayed(0.1, step), decayed(0.9, step)), ".*")]
    ),
    "accumulated": lambda step: legacy_opt.GradientAccumulationOptimizer(
        Momentum(decayed(0.1, step), decayed(0.9, step)), 2
    ),
}
