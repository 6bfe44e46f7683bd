"""Tests that accelerate calls the methods that a user's class overrides, as TensorFlow does."""

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt.core.gradient_values import values_of, with_values
from legacy_opt.native import accelerate
from tests.support import running

v1 = tf.compat.v1


class Halves(v1.train.MomentumOptimizer):
    def apply_gradients(self, pairs, *args, **kwargs):
        halves = [(with_values(grad, values_of(grad) * 0.5), v) for grad, v in pairs]
        return super().apply_gradients(halves, *args, **kwargs)


class TakesALoss(v1.train.MomentumOptimizer):
    def apply_gradients(self, pairs, loss, global_step=None):
        return super().apply_gradients([(grad * loss, v) for grad, v in pairs], global_step)

    def minimize(self, loss, global_step=None, var_list=None):
        return self.apply_gradients(
            self.compute_gradients(loss, var_list), tf.constant(0.5), global_step
        )


class Finishes(v1.train.AdamOptimizer):
    def __init__(self, rate, momentum):
        super().__init__(rate, momentum)

    def _finish(self, update_ops, name_scope):
        with tf.control_dependencies(update_ops):
            more = [each.assign_add(tf.ones(each.shape)) for each in self.trained]
        return super()._finish([*update_ops, *more], name_scope)

    def compute_gradients(self, loss, var_list=None, **kwargs):
        self.trained = var_list
        return super().compute_gradients(loss, var_list, **kwargs)


def decayed(cls):
    extended = legacy_opt.extend_with_decoupled_weight_decay(cls)
    return lambda *args: extended(0.01, *args)


def trained(optimizer, loss_of):
    with tf.Graph().as_default():
        variables = [
            v1.get_variable(name, initializer=np.ones([2, 3], "f"), use_resource=True)
            for name in "ab"
        ]
        step = v1.train.get_or_create_global_step()
        loss = tf.add_n(list(map(loss_of, variables)))
        train = optimizer.minimize(loss, global_step=step, var_list=variables)
        return running.after(train, [*variables, step], 3)


LOSSES = {
    "dense": lambda w: tf.reduce_sum(w * w),
    "sparse": lambda w: tf.reduce_sum(tf.gather(w, [0, 0])),
}


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("make", [Halves, TakesALoss, Finishes, decayed(Halves)])
def test_an_accelerated_optimizer_calls_them(make, kind, fresh):
    if make is TakesALoss and kind == "sparse":
        kind = "dense"
    actual = trained(accelerate(make(0.1, 0.9), require=True), LOSSES[kind])
    for one, other in zip(actual, trained(make(0.1, 0.9), LOSSES[kind])):
        np.testing.assert_allclose(one, other, rtol=1e-5)
    assert actual[-1] == 3


@pytest.mark.contrib
def test_a_method_set_on_an_optimizer_of_contrib():
    from tensorflow.contrib import opt

    optimizer = opt.NadamOptimizer(0.1)
    optimizer.apply_gradients = optimizer.apply_gradients
    with pytest.raises(TypeError, match="NadamOptimizer.apply_gradients was set on the object"):
        accelerate(optimizer)
