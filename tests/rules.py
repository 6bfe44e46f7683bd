"""Stock optimizers written as rules: what RuleOptimizer makes of them must equal the originals."""

import tensorflow as tf

from legacy_opt import RuleOptimizer, Slot


class AdagradRule(RuleOptimizer):
    """`tf.compat.v1.train.AdagradOptimizer`."""

    def __init__(
        self, learning_rate, initial_accumulator_value=0.1, use_locking=False, name="Adagrad"
    ):
        super().__init__(use_locking, name, learning_rate=learning_rate)
        self.slots = {"accumulator": Slot(initial_accumulator_value)}

    def rule(self, grad, value, slots, hyper):
        accumulator = slots.accumulator + grad * grad
        return grad * hyper.learning_rate * tf.math.rsqrt(accumulator), {"accumulator": accumulator}


class MomentumRule(RuleOptimizer):
    """`tf.compat.v1.train.MomentumOptimizer`."""

    slots = {"momentum": Slot()}

    def __init__(
        self, learning_rate, momentum, use_locking=False, name="Momentum", use_nesterov=False
    ):
        super().__init__(use_locking, name, learning_rate=learning_rate, momentum=momentum)
        self._use_nesterov = use_nesterov

    def rule(self, grad, value, slots, hyper):
        momentum = slots.momentum * hyper.momentum + grad
        step = momentum * hyper.learning_rate
        if self._use_nesterov:
            step = grad * hyper.learning_rate + momentum * hyper.momentum * hyper.learning_rate
        return step, {"momentum": momentum}


class AdamRule(RuleOptimizer):
    """`tf.compat.v1.train.AdamOptimizer`, which moves untouched rows too: it takes all of them."""

    slots = {"m": Slot(), "v": Slot()}
    whole_tensor = True

    def __init__(
        self,
        learning_rate=0.001,
        beta1=0.9,
        beta2=0.999,
        epsilon=1e-8,
        use_locking=False,
        name="Adam",
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
        rate = hyper.learning_rate * tf.sqrt(1 - hyper.beta2_power) / (1 - hyper.beta1_power)
        m = slots.m + (grad - slots.m) * (1 - hyper.beta1)
        v = slots.v + (grad * grad - slots.v) * (1 - hyper.beta2)
        return rate * m / (tf.sqrt(v) + hyper.epsilon), {"m": m, "v": v}

    def update_non_slots(self, values, hyper):
        return {
            "beta1_power": values.beta1_power * hyper.beta1,
            "beta2_power": values.beta2_power * hyper.beta2,
        }
