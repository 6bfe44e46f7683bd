"""Tests methods that a user's class overrides: exits call them as TensorFlow does, or refuse.

The exits are `to_keras`, `to_v1`, `record` and `compare_with_session`. The expected values are
those of a Session with the same class, or of Keras 2.
"""

import contextlib
import functools
import types

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import recorded, versions
from legacy_opt.compat import compare_with_session, to_keras, to_v1
from legacy_opt.core import contract
from legacy_opt.core.gradient_values import values_of, with_values
from tests.support import installed, running
from tests.support.keras.keras_apis import KERAS_3, OPTIMIZER_V2

v1 = tf.compat.v1
GradientDescent = v1.train.GradientDescentOptimizer
STEPS = 3


def session(optimizer):
    """Trains w = 1, 2 with w * w in a Session by minimize; returns w and the global step."""
    with tf.Graph().as_default():
        w = v1.get_variable("w", initializer=[1.0, 2.0], use_resource=True)
        step = v1.train.get_or_create_global_step()
        train = optimizer.minimize(tf.reduce_sum(w * w), global_step=step, var_list=[w])
        return running.after(train, [w, step], STEPS)


def eagerly(optimizer, function=False):
    """Trains as `session` with an optimizer of Keras."""
    w = tf.Variable([1.0, 2.0])

    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(w * w)
        optimizer.apply_gradients([(tape.gradient(loss, w), w)])
        return tf.constant(0)  # TensorFlow optimizes such a graph as in a Session

    step = tf.function(step) if function else step
    for _ in range(STEPS):
        step()
    return w.numpy(), optimizer.iterations.numpy()


def in_a_graph(make):
    """Trains as `session` with an optimizer of Keras."""
    with tf.Graph().as_default():
        w = tf.compat.v2.Variable([1.0, 2.0])
        v1.train.get_or_create_global_step()  # of a user, which nobody increments
        optimizer = make()
        train = optimizer.apply_gradients([(tf.gradients(tf.reduce_sum(w * w), w)[0], w)])
        return running.after(train, [w, versions.tf_variable(optimizer.iterations)], STEPS)


# Methods that no caller calls. Each doubles the gradients, or more.


def doubled(pairs):
    return [(with_values(grad, values_of(grad) * 2.0), variable) for grad, variable in pairs]


def minimizes(self, loss, *args, **kwargs):
    return self._base.minimize(self, loss * 2.0, *args, **kwargs)


def computes(self, *args, **kwargs):
    return doubled(self._base.compute_gradients(self, *args, **kwargs))


def applies(self, pairs, *args, **kwargs):
    return self._base.apply_gradients(self, doubled(pairs), *args, **kwargs)


def finishes(self, update_ops, name_scope):
    return self._base._finish(self, [*update_ops, tf.no_op()], name_scope)


def updates(self, grad, handle):
    return self._base._resource_apply_dense(self, grad * 2.0, handle)


def makes_slots(self, var, slot_name, op_name):
    return self._get_or_make_slot(var, tf.ones(var.shape), slot_name, op_name)


def stores_the_loss(self, loss, *args, **kwargs):
    self._loss = loss
    return self._base.minimize(self, loss, *args, **kwargs)


def trains_some(self, loss, global_step=None, var_list=None):
    return self._base.minimize(self, loss, global_step, var_list[:0])


OVERRIDES = {
    "minimize": minimizes,
    "compute_gradients": computes,
    "_scale_loss": staticmethod(lambda loss: loss * 2.0),
    "_distributed_apply": lambda self, *args, **kwargs: None,
    "apply_gradients": applies,
    "_finish": finishes,
    "_resource_apply_dense": updates,
    "_apply_dense": lambda self, grad, var: self._base._apply_dense(self, grad * 2.0, var),
    "_zeros_slot": makes_slots,
}


def trains_by_name(self, loss, global_step=None, var_list=None):
    chosen = [each for each in var_list or v1.trainable_variables() if "bias" not in each.name]
    return self._base.minimize(self, loss, global_step, chosen)


def centralizes(self, loss, global_step=None, var_list=None):
    pairs = self.compute_gradients(loss, var_list=var_list)
    pairs = [(g - tf.reduce_mean(g, 0) if len(v.shape) > 1 else g, v) for g, v in pairs]
    return self.apply_gradients(pairs, global_step=global_step)


def scales_rows(self, loss, global_step=None, var_list=None):
    pairs = self.compute_gradients(loss, var_list=var_list)
    is_rows = [isinstance(g, tf.IndexedSlices) for g, _ in pairs]
    pairs = doubled(pairs) if any(is_rows) else pairs
    return self.apply_gradients(pairs, global_step=global_step)


def applies_some(self, loss, global_step=None, var_list=None):
    pairs = self.compute_gradients(loss, var_list=var_list)
    return self.apply_gradients(pairs[:10], global_step=global_step)


def applies_twice(self, loss, global_step=None, var_list=None):
    pairs = self.compute_gradients(loss, var_list=var_list)
    return self.apply_gradients(pairs + pairs, global_step=global_step)


def regularizes(self, loss, *args, **kwargs):
    losses = v1.losses.get_regularization_losses()
    return self._base.minimize(self, loss + tf.add_n(losses) if losses else loss, *args, **kwargs)


def halves_eagerly(self, loss, *args, **kwargs):
    loss = loss * 0.5 if tf.executing_eagerly() else loss
    return self._base.minimize(self, loss, *args, **kwargs)


def regularizes_tensors(self, loss, *args, **kwargs):
    if tf.is_tensor(loss):
        loss += tf.add_n([tf.nn.l2_loss(each) for each in v1.trainable_variables()])
    return self._base.minimize(self, loss, *args, **kwargs)


def scales_one_dtype(self, loss, *args, **kwargs):
    loss = loss * 0.5 if getattr(loss, "dtype", None) == tf.float32 else loss
    return self._base.minimize(self, loss, *args, **kwargs)


def regularizes_if_possible(self, loss, *args, **kwargs):
    with contextlib.suppress(TypeError, ValueError, AttributeError):
        loss += tf.add_n([tf.nn.l2_loss(each) for each in v1.trainable_variables()])
    return self._base.minimize(self, loss, *args, **kwargs)


def trains_many_otherwise(self, loss, global_step=None, var_list=None):
    number = len(var_list or v1.trainable_variables())
    return self._base.minimize(self, loss / 2.0 if number > 2 else loss, global_step, var_list)


def scales_few(self, loss, global_step=None, var_list=None):
    pairs = self.compute_gradients(loss, var_list=var_list)
    pairs = doubled(pairs) if len(pairs) < 10 else pairs
    return self.apply_gradients(pairs, global_step=global_step)


def clips_weights(self, loss, *args, **kwargs):
    train = self._base.minimize(self, loss, *args, **kwargs)
    if train is None:
        return None
    with tf.control_dependencies([train]):
        return tf.group(*[each.assign(each / 2.0) for each in v1.trainable_variables()])


def switches_off(self, loss, *args, **kwargs):
    self._use_locking = False
    return self._base.minimize(self, loss, *args, **kwargs)


def forgets(self, loss, *args, **kwargs):
    vars(self).pop("_learning_rate", None)
    return self._base.minimize(self, loss, *args, **kwargs)


OTHER_MINIMIZES = [stores_the_loss, trains_some, trains_by_name, centralizes, scales_rows]
OTHER_MINIMIZES += [applies_some, applies_twice, regularizes, halves_eagerly]
# Each of these decides by something that opaque objects do not have, or undoes a setting.
OTHER_MINIMIZES += [regularizes_tensors, scales_one_dtype, regularizes_if_possible, scales_few]
OTHER_MINIMIZES += [trains_many_otherwise, clips_weights, switches_off, forgets]


def derived(base, method, function):
    return type("Derived", (base,), {method: function, "_base": base})


def refused(exit_name):
    """Returns the methods that the table refuses, and that OVERRIDES has."""
    exits, rows = next(iter(contract.TABLE.items()))
    return [
        method
        for methods, how in rows.items()
        for method in methods.split()
        if how[exits.index(exit_name)] not in (contract.CALLED, contract.WHOLE)
        and method in OVERRIDES
    ]


@pytest.mark.parametrize("method", refused("to_keras"))
def test_to_keras_refuses(api, method):
    optimizer = derived(v1.train.MomentumOptimizer, method, OVERRIDES[method])(0.1, 0.9)
    refusal = f"Derived overrides {method}, which to_keras does not.*train_step.*apply_gradients"
    with pytest.raises(ValueError, match=refusal):
        api.bridged(optimizer)


@pytest.mark.parametrize("method", refused("to_keras"))
def test_compare_with_session_refuses(method):
    optimizer = derived(v1.train.MomentumOptimizer, method, OVERRIDES[method])(0.1, 0.9)
    with pytest.raises(ValueError, match=f"overrides {method}"):
        compare_with_session(optimizer)


@pytest.mark.parametrize("base", [GradientDescent, legacy_opt.AddSignOptimizer])
@pytest.mark.parametrize("method", refused("record"))
def test_record_refuses(base, method):
    with pytest.raises(recorded.RecordError, match=f"Derived overrides {method}, which record"):
        recorded.record(derived(base, method, OVERRIDES[method])(0.1))


@pytest.mark.parametrize("minimize", OTHER_MINIMIZES)
@pytest.mark.parametrize("train", [to_keras, recorded.record])
def test_a_minimize_that_does_more_than_to_add_arguments(train, minimize):
    with pytest.raises(Exception, match="Derived overrides minimize"):
        train(derived(GradientDescent, "minimize", minimize)(0.1, use_locking=True))


@pytest.mark.parametrize(
    "base", [GradientDescent, legacy_opt.AddSignOptimizer, legacy_opt.LARSOptimizer]
)
def test_a_minimize_that_only_adds_arguments(base):
    def minimize(self, loss, global_step=None, var_list=None, decay_var_list=None, **kwargs):
        self._only = set(decay_var_list) if decay_var_list else False
        return base.minimize(self, loss, global_step=global_step, var_list=var_list, **kwargs)

    optimizer = derived(base, "minimize", minimize)(0.1)
    w, step = session(optimizer)
    actual, iterations = eagerly(to_keras(derived(base, "minimize", minimize)(0.1)), function=True)
    np.testing.assert_array_equal(actual, w)
    assert step == iterations == STEPS
    assert recorded.record(optimizer) and compare_with_session(optimizer)


def test_methods_below_a_class_of_this_package():
    cls = legacy_opt.extend_with_decoupled_weight_decay(
        derived(GradientDescent, "minimize", minimizes)
    )
    for exits in (to_keras, recorded.record, compare_with_session):
        with pytest.raises(Exception, match="overrides minimize"):
            exits(cls(0.01, 0.1))


@pytest.mark.parametrize("method", ["minimize", "apply_gradients", "_resource_apply_dense"])
@pytest.mark.parametrize("train", [to_keras, recorded.record, compare_with_session])
def test_methods_set_on_the_object(train, method):
    optimizer = GradientDescent(0.1)
    optimizer._base = GradientDescent
    setattr(optimizer, method, types.MethodType(OVERRIDES[method], optimizer))
    with pytest.raises(Exception, match=f"{method} was set on the object"):
        train(optimizer)


def test_in_a_wrapper_minimize_is_not_called_in_tensorflow_1_either():
    def make():
        inner = derived(GradientDescent, "minimize", minimizes)(0.1)
        return legacy_opt.ClipByGlobalNormOptimizer(inner, 1.0)

    np.testing.assert_array_equal(eagerly(to_keras(make()), function=True)[0], session(make())[0])
    inner = derived(GradientDescent, "compute_gradients", computes)(0.1)
    made = to_v1(OPTIMIZER_V2.optimizers.SGD(0.1)) if installed.has_keras_2() else inner
    for each in (inner, made):
        with pytest.raises(ValueError, match="(Derived|KerasInV1) overrides compute_gradients"):
            to_keras(legacy_opt.ClipByGlobalNormOptimizer(each, 1.0))


# apply_gradients, called as a whole.


class WithName(GradientDescent):
    def apply_gradients(self, pairs, name=None, global_step=None):
        return super().apply_gradients(doubled(pairs), global_step, name)


class WithKeywords(GradientDescent):
    def apply_gradients(self, pairs, **kwargs):
        return super().apply_gradients(doubled(pairs), **kwargs)


class WithAnything(GradientDescent):
    def apply_gradients(self, *args, **kwargs):
        return super().apply_gradients(*args, **kwargs)


class WithKeywordOnly(GradientDescent):
    def apply_gradients(self, pairs, *, global_step, name="x"):
        return super().apply_gradients(doubled(pairs), global_step, name)


class AllInApplyGradients(v1.train.Optimizer):
    """Momentum, in the style of published classes: AdaBound, LAMB, BERT."""

    def __init__(self, learning_rate, name="All"):
        super().__init__(False, name)
        self.learning_rate = learning_rate

    def _create_slots(self, var_list):
        for variable in var_list:
            self._zeros_slot(variable, "m", self._name)

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        assignments = []
        with tf.init_scope():
            self._create_slots([variable for _, variable in grads_and_vars])
        for grad, variable in grads_and_vars:
            m = self.get_slot(variable, "m")
            new = 0.9 * m + grad
            assignments += [m.assign(new), variable.assign_sub(self.learning_rate * new)]
        return self.counted(assignments, global_step, name)

    def counted(self, assignments, global_step, name):
        if global_step is not None:
            assignments.append(global_step.assign_add(1))
        return tf.group(*assignments, name=name)


class MakesSlotsInApplyGradients(AllInApplyGradients):
    def _create_slots(self, var_list):
        pass

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        m = [(self._zeros_slot(v, "m", self._name), grad, v) for grad, v in grads_and_vars]
        news = [(slot, 0.9 * slot + grad, variable) for slot, grad, variable in m]
        updates = [slot.assign(new) for slot, new, _ in news]
        updates += [v.assign_sub(self.learning_rate * new) for _, new, v in news]
        return self.counted(updates, global_step, name)


@pytest.mark.parametrize(
    "cls",
    [
        *[WithName, WithKeywords, WithAnything, WithKeywordOnly],
        *[AllInApplyGradients, MakesSlotsInApplyGradients],
    ],
)
def test_apply_gradients_gets_the_step_by_its_name(api, cls):
    expected, step = session(cls(0.1))
    for function in (False, True):
        actual, iterations = eagerly(api.bridged(cls(0.1)), function)
        np.testing.assert_allclose(actual, expected, rtol=1e-6)
        assert iterations == step == STEPS
    if not issubclass(cls, AllInApplyGradients):  # a Session regroups its product of constants
        np.testing.assert_array_equal(actual, expected)


class IgnoresTheStep(AllInApplyGradients):
    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        return super().apply_gradients(grads_and_vars, name=name)


class Clips(IgnoresTheStep):
    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        return super().apply_gradients(grads_and_vars, global_step, name)


class IgnoresKeywords(IgnoresTheStep):
    def apply_gradients(self, grads_and_vars, **kwargs):
        return super().apply_gradients(grads_and_vars)


WRAPPED = {
    "derived": lambda: Clips(0.1),
    "keywords": lambda: IgnoresKeywords(0.1),
    "clipped": lambda: legacy_opt.ClipByGlobalNormOptimizer(IgnoresTheStep(0.1), 9.0),
    "averaged": lambda: legacy_opt.MovingAverageOptimizer(IgnoresTheStep(0.1)),
    "accumulated": lambda: legacy_opt.GradientAccumulationOptimizer(IgnoresTheStep(0.1), 2),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_steps_are_counted_in_any_case(api, name):
    expected = STEPS // 2 if name == "accumulated" else STEPS
    for function in (False, True):
        assert eagerly(api.bridged(WRAPPED[name]()), function)[1] == expected
    assert in_a_graph(lambda: api.bridged(WRAPPED[name]()))[1] == expected


def test_a_class_that_leaves_the_step_to_its_caller(api):
    for function in (False, True):
        actual, iterations = eagerly(api.bridged(IgnoresTheStep(0.1)), function)
        np.testing.assert_allclose(actual, session(IgnoresTheStep(0.1))[0], rtol=1e-6)
        assert iterations == STEPS
    assert in_a_graph(lambda: api.bridged(IgnoresTheStep(0.1)))[1] == STEPS


class NeedsTheLoss(GradientDescent):
    def apply_gradients(self, pairs, loss, global_step=None):
        return super().apply_gradients([(grad * loss, v) for grad, v in pairs], global_step)


class NeedsNothing(GradientDescent):
    def apply_gradients(self, global_step=None, **kwargs):
        return super().apply_gradients(kwargs["pairs"], global_step)


@pytest.mark.parametrize(
    "cls, message", [(NeedsTheLoss, "missing a required argument: 'loss'"), (NeedsNothing, "")]
)
def test_an_argument_that_nobody_gives(api, cls, message):
    with pytest.raises(
        ValueError, match=f"{cls.__name__}.apply_gradients cannot be called in Keras: .*{message}"
    ):
        api.bridged(cls(0.1))


def test_compare_with_session_passes_the_step_by_its_name():
    assert compare_with_session(WithKeywords(0.1), steps=2)
    with pytest.raises(ValueError, match="'loss'"):
        compare_with_session(NeedsTheLoss(0.1))


# The global step that the optimizer's own code looks up.


class LooksUp(GradientDescent):
    """Its rate depends on the step that it looks up in one of its methods."""

    def __init__(self, get, where):
        super().__init__(0.1)
        self.get, self.where = get, where

    def factor(self, where):
        step = getattr(v1.train, self.get)() if where == self.where else 1
        return 1.0 / (1.0 + tf.cast(step, tf.float32))

    def _prepare(self):
        self._learning_rate_tensor = tf.constant(0.1) * self.factor("_prepare")

    def _resource_apply_dense(self, grad, handle):
        grad = grad * self.factor("_resource_apply_dense")
        return super()._resource_apply_dense(grad, handle)

    def _resource_apply_sparse_duplicate_indices(self, *args):
        raise NotImplementedError


class LooksUpInApply(LooksUp):
    def apply_gradients(self, pairs, global_step=None, name=None):
        pairs = [(grad * self.factor("apply_gradients"), variable) for grad, variable in pairs]
        return super().apply_gradients(pairs, global_step, name)


@pytest.mark.parametrize(
    "cls, where, get",
    [
        (LooksUp, "_prepare", "get_global_step"),
        (LooksUp, "_prepare", "get_or_create_global_step"),
        (LooksUp, "_resource_apply_dense", "get_global_step"),
        (LooksUpInApply, "apply_gradients", "get_or_create_global_step"),
    ],
)
def test_the_step_that_is_looked_up_is_iterations(api, cls, where, get):
    expected, _ = session(cls(get, where))
    for function in (False, True):
        actual, _ = eagerly(api.bridged(cls(get, where)), function)
        np.testing.assert_allclose(actual, expected, rtol=1e-6)
    np.testing.assert_array_equal(actual, expected)
    with pytest.raises(ValueError, match="the integer variable global_step"):
        in_a_graph(lambda: api.bridged(cls(get, where)))
    if api is OPTIMIZER_V2:  # on TensorFlow 1.15 the step is a ref variable
        step = v1.train.get_or_create_global_step
        actual, _ = in_a_graph(lambda: api.bridged(cls(get, where), global_step=step()))
        np.testing.assert_allclose(actual, expected, rtol=1e-6)


# OptimizerV2.


@functools.lru_cache(maxsize=None)
def of_v2(method):
    sgd = OPTIMIZER_V2.optimizers.SGD

    def minimize_callables(self, loss, var_list, grad_loss=None, **kwargs):
        changed = (lambda: loss() * 2.0) if callable(loss) else loss
        return sgd.minimize(self, changed, var_list, grad_loss, **kwargs)

    def minimize_named(self, loss, variables, grad_loss=None, decay_var_list=None, **kwargs):
        self._only = set(decay_var_list) if decay_var_list else False
        return sgd.minimize(self, loss, variables, grad_loss=grad_loss, **kwargs)

    def compute(self, *args, **kwargs):
        return doubled(sgd._compute_gradients(self, *args, **kwargs))

    functions = {
        "minimize": minimize_callables,
        "_compute_gradients": compute,
        "_transform_loss": lambda self, loss: loss * 2.0,
        "_get_gradients": lambda self, *args, **kwargs: sgd._get_gradients(self, *args, **kwargs),
        "get_gradients": lambda self, *args: sgd.get_gradients(self, *args),
        "minimize, only adding": minimize_named,
        "apply_gradients": lambda self, pairs, **kwargs: sgd.apply_gradients(
            self, doubled(pairs), **kwargs
        ),
        "_transform_unaggregated_gradients": lambda self, pairs: doubled(pairs),
    }
    name = method.partition(",")[0]
    return type("Private", (sgd,), {name: functions[method], "decays": None})


def of_this_keras(*methods):
    """Returns those of the methods that OptimizerV2 has."""
    base = versions.optimizer_v2() if installed.has_keras_2() else object
    return [method for method in methods if hasattr(base, method.partition(",")[0])]


REFUSED_V2 = of_this_keras(
    *["minimize", "_compute_gradients", "_transform_loss", "_get_gradients", "get_gradients"]
)
CALLED_V2 = of_this_keras(
    *["minimize, only adding", "apply_gradients", "_transform_unaggregated_gradients"]
)


@pytest.mark.keras2
@pytest.mark.parametrize("method", REFUSED_V2)
@pytest.mark.parametrize("given", ["object", "class", "factory"])
def test_to_v1_refuses(method, given):
    cls = of_v2(method)
    source = {"object": lambda: cls(0.1), "class": lambda: cls, "factory": lambda: lambda: cls(0.1)}
    with pytest.raises(ValueError, match=f"Private overrides {method}, which to_v1 does not call"):
        session(to_v1(source[given]()))


@pytest.mark.keras2
@pytest.mark.parametrize("method", CALLED_V2)
def test_to_v1_calls(method):
    expected, _ = eagerly(of_v2(method)(0.1))
    np.testing.assert_allclose(session(to_v1(of_v2(method)(0.1)))[0], expected, rtol=1e-6)


@pytest.mark.keras3
@pytest.mark.parametrize("method", REFUSED_V2)
def test_keras_3_refuses_an_optimizer_v2(method):
    with pytest.raises(TypeError, match=f"Private overrides {method}, which Keras 3 does not"):
        KERAS_3.bridged(of_v2(method)(0.1))


@pytest.mark.keras3
@pytest.mark.parametrize("method", CALLED_V2)
def test_an_optimizer_v2_in_keras_3(method):
    expected, _ = eagerly(of_v2(method)(0.1))
    np.testing.assert_array_equal(eagerly(KERAS_3.bridged(of_v2(method)(0.1)))[0], expected)


@pytest.mark.keras2
def test_a_method_set_on_an_optimizer_v2():
    optimizer, cls = OPTIMIZER_V2.optimizers.SGD(0.1), of_v2("apply_gradients")
    optimizer.apply_gradients = functools.partial(cls.apply_gradients, optimizer)
    with pytest.raises(ValueError, match="SGD.apply_gradients was set on the object"):
        to_v1(optimizer)


@pytest.mark.keras2
def test_an_optimizer_v2_inside_a_loss_scale_optimizer():
    scaling = OPTIMIZER_V2.keras.mixed_precision
    scaling = getattr(scaling, "LossScaleOptimizer", None) or functools.partial(
        scaling.experimental.LossScaleOptimizer, loss_scale=1.0
    )
    with pytest.raises(ValueError, match="Private overrides _compute_gradients"):
        session(to_v1(lambda: scaling(of_v2("_compute_gradients")(0.1))))
