"""Subclasses of RuleOptimizer for tests; three of them compute formulas of TensorFlow."""

import tensorflow as tf

from legacy_opt import RuleOptimizer, Slot
from legacy_opt.rule_writing import Rows


class AdagradRule(RuleOptimizer):
    """The formula of `tf.compat.v1.train.AdagradOptimizer`."""

    def __init__(
        self, learning_rate, initial_accumulator_value=0.1, use_locking=False, name="Adagrad"
    ):
        super().__init__(use_locking, name, learning_rate=learning_rate)
        self.slots = {"accumulator": Slot(initial_accumulator_value)}

    def rule(self, grad, value, slots, hyper):
        accumulator = slots.accumulator + grad * grad
        return grad * hyper.learning_rate * tf.math.rsqrt(accumulator), {"accumulator": accumulator}


class MomentumRule(RuleOptimizer):
    """The formula of `tf.compat.v1.train.MomentumOptimizer`."""

    slots = {"momentum": Slot()}

    def __init__(
        self, learning_rate, momentum, use_locking=False, name="Momentum", use_nesterov=False
    ):
        super().__init__(use_locking, name, learning_rate=learning_rate, momentum=momentum)
        self._use_nesterov = use_nesterov

    def rule(self, grad, value, slots, hyper):
        momentum = slots.momentum * hyper.momentum + grad
        change = momentum * hyper.learning_rate
        if self._use_nesterov:
            change = grad * hyper.learning_rate + momentum * hyper.momentum * hyper.learning_rate
        return change, {"momentum": momentum}


class AdamRule(RuleOptimizer):
    """The formula of `tf.compat.v1.train.AdamOptimizer`; also updates rows without a gradient."""

    slots = {"m": Slot(), "v": Slot()}
    whole_tensor = True

    def __init__(self, learning_rate, beta1=0.9, beta2=0.999, epsilon=1e-8):
        betas = {"beta1": beta1, "beta2": beta2}
        super().__init__(False, "Adam", learning_rate=learning_rate, epsilon=epsilon, **betas)

    def non_slots(self):
        return {"beta1_power": self._beta1, "beta2_power": self._beta2}

    def rule(self, grad, value, slots, hyper):
        rate = hyper.learning_rate * tf.sqrt(1 - hyper.beta2_power) / (1 - hyper.beta1_power)
        m = slots.m + (grad - slots.m) * (1 - hyper.beta1)
        v = slots.v + (grad * grad - slots.v) * (1 - hyper.beta2)
        return rate * m / (tf.sqrt(v) + hyper.epsilon), {"m": m, "v": v}

    def update_non_slots(self, values, hyper):
        return {
            "beta1_power": values.beta1_power * hyper.beta1,
            "beta2_power": values.beta2_power * hyper.beta2,
        }


class MyLionOptimizer(RuleOptimizer):
    """Subtracts the sign of a mean of gradient and momentum (Chen et al. 2023)."""

    slots = {"momentum": Slot()}

    def __init__(self, learning_rate=0.001, beta_1=0.9, beta_2=0.99, name="MyLion"):
        super().__init__(False, name, learning_rate=learning_rate, beta_1=beta_1, beta_2=beta_2)

    def rule(self, grad, value, slots, hyper):
        mean = hyper.beta_1 * slots.momentum + (1 - hyper.beta_1) * grad
        momentum = hyper.beta_2 * slots.momentum + (1 - hyper.beta_2) * grad
        return hyper.learning_rate * tf.sign(mean), {"momentum": momentum}


class MyDiffGradOptimizer(RuleOptimizer):
    """Adam with smaller updates where the gradient changes little (Dubey et al. 2019)."""

    slots = {"m": Slot(), "v": Slot(), "prev_grad": Slot()}

    def __init__(
        self,
        learning_rate=0.001,
        beta1=0.9,
        beta2=0.999,
        epsilon=1e-8,
        use_locking=False,
        name="MyDiffGrad",
    ):
        super().__init__(
            use_locking,
            name,
            learning_rate=learning_rate,
            beta1=beta1,
            beta2=beta2,
            epsilon=epsilon,
        )

    def non_slots(self):
        return {"beta1_power": self._beta1, "beta2_power": self._beta2}

    def rule(self, grad, value, slots, hyper):
        m = hyper.beta1 * slots.m + (1 - hyper.beta1) * grad
        v = hyper.beta2 * slots.v + (1 - hyper.beta2) * tf.square(grad)
        friction = tf.sigmoid(tf.abs(slots.prev_grad - grad))
        rate = hyper.learning_rate * tf.sqrt(1 - hyper.beta2_power) / (1 - hyper.beta1_power)
        change = rate * (friction * m / (tf.sqrt(v) + hyper.epsilon))
        return change, {"m": m, "v": v, "prev_grad": grad}

    def update_non_slots(self, values, hyper):
        return {
            "beta1_power": values.beta1_power * hyper.beta1,
            "beta2_power": values.beta2_power * hyper.beta2,
        }


class AccumulatedSGDOptimizer(RuleOptimizer):
    """Gradient descent that updates every `micro_batches` steps, with the mean gradient."""

    slots = {"total": Slot()}

    def __init__(self, learning_rate, micro_batches, use_locking=False, name="AccumulatedSGD"):
        super().__init__(use_locking, name, learning_rate=learning_rate)
        self._micro_batches = micro_batches

    def non_slots(self):
        return {"remaining": self._micro_batches - 1}

    def apply_update(self, update):
        variable, total, everything = update.variable, update.slots.total, update.access.whole
        due = tf.equal(update.hyper.remaining, 0)
        if update.sparse:  # all rows if an update is due; otherwise no rows, to save time
            everything = Rows(tf.range(tf.where(due, tf.shape(variable)[0], 0)))
        with tf.control_dependencies([update.access.add(total, update.grad)]):
            summed = everything.read(total)
        nothing = tf.zeros_like(summed)
        mean = summed / self._micro_batches
        change = tf.compat.v2.where(due, update.hyper.learning_rate * mean, nothing)
        rest = tf.compat.v2.where(due, nothing, summed)
        with tf.control_dependencies([change, rest]):
            return tf.group(everything.subtract(variable, change), everything.assign(total, rest))

    def update_non_slots(self, values, hyper):
        return {"remaining": tf.math.floormod(values.remaining - 1, self._micro_batches)}
