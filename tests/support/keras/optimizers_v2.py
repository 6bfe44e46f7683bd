"""OptimizerV2 classes as users write them, and the classes of Keras 2."""

import re

import tensorflow as tf

from tests.support.keras.keras_apis import OPTIMIZER_V2

legacy = OPTIMIZER_V2.optimizers
schedules = OPTIMIZER_V2.keras.optimizers.schedules


class Heavy(legacy.Optimizer if hasattr(legacy, "Optimizer") else legacy.SGD.__mro__[1]):
    """Momentum with a decay of weights that are not biases, and a variable of its own."""

    def __init__(self, learning_rate=0.1, momentum=0.9, weight_decay=0.01, skip=(), **kwargs):
        super().__init__(kwargs.pop("name", "Heavy"), **kwargs)
        self._set_hyper("learning_rate", learning_rate)
        self._set_hyper("momentum", momentum)
        self._set_hyper("weight_decay", weight_decay)
        self.skip = list(skip)

    def _create_slots(self, var_list):
        for variable in var_list:
            self.add_slot(variable, "v", tf.keras.initializers.Zeros())
            self.add_slot(variable, "count", "zeros", shape=[])

    def _rate(self, variable):
        rate = self._decayed_lr(variable.dtype)
        momentum = self._get_hyper("momentum", variable.dtype)
        decays = not any(re.search(each, variable.name) for each in self.skip)
        decay = self._get_hyper("weight_decay", variable.dtype) if decays else 0.0
        return rate, momentum, decay

    def _resource_apply_dense(self, grad, var):
        rate, momentum, decay = self._rate(var)
        v = self.get_slot(var, "v")
        counted = self.get_slot(var, "count").assign_add(1.0)
        steps = tf.cast(self.iterations + 1, var.dtype)
        new = v.assign(momentum * v + grad / steps)
        return tf.group(counted, var.assign_sub(rate * (new + decay * var)))

    def _resource_apply_sparse(self, grad, var, indices):
        rate, momentum, decay = self._rate(var)
        v = self.get_slot(var, "v")
        rows = momentum * tf.gather(v, indices) + grad
        change = rate * (rows + decay * tf.gather(var, indices))
        with tf.control_dependencies([change]):
            return tf.group(
                v.scatter_update(tf.IndexedSlices(rows, indices)),
                var.scatter_sub(tf.IndexedSlices(change, indices)),
            )

    def get_config(self):
        names = ("learning_rate", "momentum", "weight_decay")
        numbers = {name: self._serialize_hyperparameter(name) for name in names}
        return dict(super().get_config(), skip=self.skip, **numbers)


class Gravity(legacy.SGD):
    """Calls the first argument of its methods `s`."""

    def __init__(s, learning_rate=0.1, beta=0.9, name="Gravity", **kwargs):
        super().__init__(learning_rate, name=name, **kwargs)
        s._set_hyper("beta", beta)

    def _resource_apply_dense(s, grad, var, apply_state=None):
        return super()._resource_apply_dense(grad * s._get_hyper("beta"), var, apply_state)

    def get_config(s):
        return dict(super().get_config(), beta=s._serialize_hyperparameter("beta"))


class Lookahead(legacy.Optimizer if hasattr(legacy, "Optimizer") else legacy.SGD.__mro__[1]):
    """Wraps an optimizer, as classes of TensorFlow Addons do: every third step is halved."""

    def __init__(self, optimizer=None, name="Lookahead", **kwargs):
        super().__init__(name, **kwargs)
        self._optimizer = legacy.Adam(0.1) if optimizer is None else optimizer
        self._track_trackable(self._optimizer, "optimizer")

    def _create_hypers(self):
        self._optimizer._create_hypers()

    def _create_slots(self, var_list):
        self._optimizer._create_slots(var_list)
        for variable in var_list:
            self.add_slot(variable, "slow", initializer=variable)

    def _prepare(self, var_list):
        return self._optimizer._prepare(var_list)

    def apply_gradients(self, grads_and_vars, name=None, **kwargs):
        self._optimizer._iterations = self.iterations
        return super().apply_gradients(grads_and_vars, name, **kwargs)

    def _resource_apply_dense(self, grad, var):
        done = self._optimizer._resource_apply_dense(grad, var)
        return self._slowed(done, var)

    def _resource_apply_sparse(self, grad, var, indices):
        done = self._optimizer._resource_apply_sparse(grad, var, indices)
        return self._slowed(done, var)

    def _slowed(self, done, var):
        with tf.control_dependencies([done] if done is not None else []):
            slow, due = self.get_slot(var, "slow"), tf.equal((self.iterations + 1) % 3, 0)
            new = tf.where(due, slow + 0.5 * (var - slow), slow)
            with tf.control_dependencies([new]):
                return tf.group(var.assign(tf.where(due, new, var)), slow.assign(new))

    @property
    def weights(self):
        return self._weights + self._optimizer.weights

    @property
    def learning_rate(self):
        return self._optimizer._get_hyper("learning_rate")

    @learning_rate.setter
    def learning_rate(self, rate):
        self._optimizer._set_hyper("learning_rate", rate)

    def get_config(self):
        wrapped = OPTIMIZER_V2.keras.optimizers.serialize(self._optimizer)
        return dict(super().get_config(), optimizer=wrapped)

    @classmethod
    def from_config(cls, config, custom_objects=None):
        wrapped = OPTIMIZER_V2.keras.optimizers.deserialize(
            config.pop("optimizer"), custom_objects, use_legacy_format=True
        )
        return cls(wrapped, **config)


def doubled(pairs):
    """A gradient transformer."""
    return [(tf.convert_to_tensor(grad) * 2.0, variable) for grad, variable in pairs]


MAKERS = {
    "Adadelta": lambda: legacy.Adadelta(0.5),
    "Adagrad": lambda: legacy.Adagrad(0.3),
    "Adam": lambda: legacy.Adam(0.1),
    "Adam amsgrad": lambda: legacy.Adam(0.1, amsgrad=True),
    "Adamax": lambda: legacy.Adamax(0.1),
    "Ftrl": lambda: legacy.Ftrl(0.3, l1_regularization_strength=0.01),
    "Nadam": lambda: legacy.Nadam(0.1),
    "RMSprop": lambda: legacy.RMSprop(0.05, momentum=0.5, centered=True),
    "SGD": lambda: legacy.SGD(0.1, momentum=0.9, nesterov=True),
    "SGD, decay": lambda: legacy.SGD(0.1, decay=0.2),
    "SGD, schedule": lambda: legacy.SGD(schedules.ExponentialDecay(0.1, 3, 0.5), momentum=0.9),
    "Adam, function": lambda: legacy.Adam(lambda: tf.constant(0.05)),
    "Adam, clipnorm": lambda: legacy.Adam(0.1, clipnorm=0.5),
    "SGD, clipvalue": lambda: legacy.SGD(0.1, clipvalue=0.3),
    "SGD, global_clipnorm": lambda: legacy.SGD(0.1, global_clipnorm=0.7),
    "SGD, transformer": lambda: legacy.SGD(0.1, gradient_transformers=[doubled]),
    "Heavy": Heavy,
    "Heavy, skips matrix": lambda: Heavy(weight_decay=0.5, skip=["matrix"]),
    "Gravity": Gravity,
    "Lookahead": Lookahead,
}
