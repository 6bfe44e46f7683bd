"""An optimizer whose slots have other shapes than their variables."""

import tensorflow as tf

from legacy_opt import RuleOptimizer
from legacy_opt.compat import register_optimizer
from legacy_opt.core.slots import RowSlot, ScalarSlot


@register_optimizer
class RowAdagrad(RuleOptimizer):
    """Adagrad with one accumulator for each row, and a scalar slot that counts updates."""

    slots = {"rows": RowSlot(0.1), "count": ScalarSlot()}

    def __init__(self, learning_rate, use_locking=False, name="RowAdagrad"):
        super().__init__(use_locking, name, learning_rate=learning_rate)

    def rule(self, grad, value, slots, hyper):
        axes = list(range(1, len(grad.shape)))
        rows = slots.rows + tf.reduce_mean(grad * grad, axes, keepdims=True)
        count = slots.count + 1
        change = hyper.learning_rate * grad * tf.math.rsqrt(rows) / count
        return change, {"rows": rows, "count": count}
