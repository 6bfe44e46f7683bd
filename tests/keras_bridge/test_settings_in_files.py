"""Tests of settings that saved models keep, or that are refused when a model is saved."""

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import AdafactorOptimizer, AdagradDecayOptimizer, AdamWOptimizer, MultiOptimizer
from legacy_opt.compat import register_optimizer, to_keras
from tests.support.keras.keras_apis import KERAS_3, OPTIMIZER_V2
from tests.support.keras.loading import load_model

v1 = tf.compat.v1.train
SGD = OPTIMIZER_V2.optimizers.SGD
keras3 = pytest.mark.keras3


def model_of(api, optimizer):
    """Returns a model whose weights are 1, and whose loss has no gradient."""
    inputs = api.keras.Input([1])
    model = api.keras.Model(inputs, api.keras.layers.Dense(1)(inputs))
    model.set_weights([np.ones([1, 1]), np.ones([1])])
    model.compile(optimizer, api.keras.losses.MeanSquaredError())
    return model


def fit(model, steps=1):
    """Trains without a gradient; returns the kernel and the bias."""
    for _ in range(steps):
        zeros = [tf.zeros_like(each) for each in model.get_weights()]
        model.optimizer.apply_gradients(list(zip(zeros, model.trainable_variables)))
    return [float(value.ravel()[0]) for value in model.get_weights()]


# Classes of the user, in files of Keras 3.


@keras3
@pytest.mark.parametrize("ending", ["keras", "h5"])
@pytest.mark.parametrize("name", ["Warm", "Quick", "Heavier"])
def test_a_class_inside_an_optimizer_v2_is_found_by_its_decorator(name, ending, tmp_path):
    from tests.keras_bridge import registered_classes
    from tests.support.keras.optimizers_v2 import Lookahead

    cls = getattr(registered_classes, name)
    given = Lookahead(cls(0.25)) if name == "Heavier" else SGD(cls(0.25), momentum=0.5)
    model = model_of(KERAS_3, to_keras(given, api="keras3"))
    model.fit(np.ones([4, 1]), np.zeros([4, 1]), batch_size=2, verbose=0)
    model.save(str(tmp_path / f"model.{ending}"))
    classes = [Lookahead] if name == "Heavier" else []
    again = load_model(KERAS_3, tmp_path / f"model.{ending}", *classes, imported=[cls])
    for each in (model, again):
        each.fit(np.ones([4, 1]), np.zeros([4, 1]), batch_size=2, verbose=0)
    np.testing.assert_array_equal(model.get_weights()[0], again.get_weights()[0])


@keras3
def test_two_classes_of_one_name_are_refused(monkeypatch):
    from tests.keras_bridge import registered_classes

    other = type("Warm", (registered_classes.Warm,), {})
    known = KERAS_3.keras.saving.get_custom_objects()
    monkeypatch.setitem(known, "other>Warm", other)
    optimizer = to_keras(SGD(other(0.5)), api="keras3")
    with pytest.raises(ValueError, match="Several classes named Warm are registered"):
        optimizer.get_config()


@keras3
def test_classes_of_keras_2_are_not_taken_for_registered_ones(monkeypatch):
    from tests.support.keras.optimizers_v2 import Lookahead, legacy

    monkeypatch.setitem(
        KERAS_3.keras.saving.get_custom_objects(), "mine>Adam", type("Adam", (SGD,), {})
    )
    config = to_keras(Lookahead(legacy.Adam(0.25)), api="keras3").get_config()
    made = type(to_keras(SGD(0.5), api="keras3")).from_config(config, {"Lookahead": Lookahead})
    assert type(made._inner._optimizer) is legacy.Adam
    own = Lookahead(type("Adam", (SGD,), {})(0.25))
    with pytest.raises(ValueError, match="Adam cannot be saved: another class of that name"):
        to_keras(own, api="keras3").get_config()


# Weight decay.


@keras3
@pytest.mark.parametrize("ending", ["keras", "h5"])
@pytest.mark.parametrize(
    "exclude",
    [
        lambda optimizer, model: optimizer.exclude_from_weight_decay(var_names=["bias"]),
        lambda optimizer, model: optimizer.exclude_from_weight_decay([model.weights[1]]),
    ],
    ids=["names", "list"],
)
@pytest.mark.parametrize("kind", ["v1", "decoupled", "OptimizerV2"])
def test_exclusions_from_weight_decay_are_saved(kind, exclude, ending, tmp_path):
    make = {
        "v1": lambda: to_keras(v1.GradientDescentOptimizer(1.0), weight_decay=0.25),
        "decoupled": lambda: to_keras(AdamWOptimizer(0.25, learning_rate=1.0)),
        "OptimizerV2": lambda: to_keras(SGD(1.0), api="keras3", weight_decay=0.25),
    }
    model = model_of(KERAS_3, make[kind]())
    exclude(model.optimizer, model)
    assert fit(model) == [0.75, 1.0]
    model.save(str(tmp_path / f"model.{ending}"))
    again = load_model(KERAS_3, tmp_path / f"model.{ending}")
    assert fit(again) == [0.75**2, 1.0]
    again.save(str(tmp_path / f"again.{ending}"))
    assert fit(load_model(KERAS_3, tmp_path / f"again.{ending}")) == [0.75**3, 1.0]


@keras3
def test_exclusions_before_and_after_the_optimizer_is_built():
    model = model_of(KERAS_3, to_keras(v1.GradientDescentOptimizer(1.0), weight_decay=0.25))
    optimizer = model.optimizer
    optimizer.exclude_from_weight_decay([model.weights[1]])
    with pytest.raises(ValueError, match=r"var_list=….*optimizer.build\("):
        optimizer.get_config()
    optimizer.build(model.trainable_variables)
    config = optimizer.get_config()
    unbuilt = type(optimizer).from_config(config)
    assert unbuilt.get_config() == config
    again = type(optimizer).from_config(unbuilt.get_config())
    model.compile(again)
    assert fit(model) == [0.75, 1.0]
    new = type(optimizer).from_config(config)
    new.exclude_from_weight_decay(var_names=["kernel"])
    model.compile(new)
    assert fit(model) == [0.75, 0.75]
    with pytest.raises(ValueError, match="for 2 variables.*and not for 1"):
        type(optimizer).from_config(config).build(model.trainable_variables[1:])


@keras3
@pytest.mark.parametrize("batches", [None, 2])
def test_weight_decay_follows_the_legacy_decay(batches):
    given = to_keras(
        SGD(0.5, decay=1.0), api="keras3", weight_decay=0.5, gradient_accumulation_steps=batches
    )
    model = model_of(KERAS_3, given)
    assert fit(model, 2 * (batches or 1)) == [(1 - 0.25) * (1 - 0.125)] * 2
    assert float(given.learning_rate) == 0.5


# What functions do to gradients.


class Forgets(SGD.__mro__[1]):
    """Its get_config leaves out what all optimizers take."""

    def __init__(self, learning_rate, name="Forgets", **kwargs):
        super().__init__(name, **kwargs)
        self._set_hyper("learning_rate", learning_rate)

    def get_config(self):
        return {"learning_rate": self._serialize_hyperparameter("learning_rate")}


def bridges():
    yield pytest.param(lambda **given: OPTIMIZER_V2.bridged("Momentum", **given), id="v1")
    into_3 = lambda **given: to_keras(SGD(0.5, **given), api="keras3")  # noqa: E731
    yield pytest.param(into_3, id="OptimizerV2", marks=keras3)


@pytest.mark.parametrize("make", bridges())
@pytest.mark.parametrize("name", ["gradient_transformers", "gradient_aggregator"])
def test_functions_of_gradients_are_refused_when_saved(make, name):
    if not hasattr(OPTIMIZER_V2.optimizers.SGD(), name):
        return  # Keras before TensorFlow 2.4
    keep = lambda pairs: list(pairs)  # noqa: E731
    optimizer = make(**{name: [keep] if name.endswith("s") else keep})
    with pytest.raises(ValueError, match=f"cannot be saved.*{name}.*tf.train.Checkpoint"):
        optimizer.get_config()


@keras3
@pytest.mark.parametrize("given", [{"clipnorm": 0.5}, {"clipvalue": 0.5}, {"decay": 0.5}])
def test_what_the_configuration_of_a_class_leaves_out_is_refused(given):
    assert to_keras(Forgets(0.5), api="keras3").get_config()
    with pytest.raises(ValueError, match=f"Forgets cannot be saved.*{next(iter(given))}"):
        to_keras(Forgets(0.5, **given), api="keras3").get_config()


def test_the_present_decay_of_keras_2_is_saved():
    optimizer = OPTIMIZER_V2.bridged("Momentum", decay=0.5)
    assert optimizer.get_config()["decay"] == 0.5
    optimizer.decay = 0.25
    assert type(optimizer).from_config(optimizer.get_config()).get_config()["decay"] == 0.25


def test_kernels_that_were_switched_off_are_saved(api):
    optimizer = AdagradDecayOptimizer(0.5, None)
    optimizer.use_fused_kernels = False
    optimizer = api.bridged(optimizer)
    again = type(optimizer).from_config(optimizer.get_config())
    assert again._v1.leaf.use_fused_kernels is False
    assert api.bridged("Adam").get_config()["fused"] is True


# Learning rates and hyperparameters in Keras 3.


class Rateless(SGD.__mro__[1]):
    """Has no learning rate."""

    def __init__(self, name="Rateless"):
        super().__init__(name)

    def _resource_apply_dense(self, grad, var, apply_state=None):
        return var.assign_sub(grad)

    def get_config(self):
        return super().get_config()


def of_two():
    of_kernel, others = (v1.GradientDescentOptimizer(rate) for rate in (0.5, 0.25))
    return MultiOptimizer([(of_kernel, "kernel")], default=others)


RATELESS = {"MultiOptimizer": of_two, "Adafactor": AdafactorOptimizer, "Rateless": Rateless}


@keras3
@pytest.mark.parametrize("name", RATELESS)
def test_a_learning_rate_that_does_not_exist_is_not_read(name):
    optimizer = to_keras(RATELESS[name](), api="keras3")
    model = model_of(KERAS_3, optimizer)
    reasons = {
        "MultiOptimizer": "contains several optimizers, and each has its own",
        "Adafactor": "does not read learning_rate",
    }
    reason = reasons.get(name, "has no learning rate")
    for _ in range(2):
        with pytest.raises(AttributeError, match=reason):
            print(optimizer.learning_rate)
        assert not hasattr(optimizer, "learning_rate")
        assert np.isfinite(fit(model)).all()
    callback = KERAS_3.keras.callbacks.ReduceLROnPlateau("loss", patience=0)
    with pytest.raises((AttributeError, ValueError), match="learning.rate"):
        model.fit(np.ones([2, 1]), np.ones([2, 1]), verbose=0, callbacks=[callback])


@register_optimizer(name="tests>Named")
class Named(v1.GradientDescentOptimizer):
    """Has hyperparameters with names of options of Keras 3."""

    def __init__(self, ema_momentum=0.5, clipnorm=0.125, use_locking=False, name="Named"):
        super().__init__(1.0, use_locking, name)
        self._ema_momentum, self._clipnorm = ema_momentum, clipnorm
        self._learning_rate = 1.0

    def _prepare(self):
        super()._prepare()
        self._factor = tf.convert_to_tensor(self._ema_momentum) + self._clipnorm

    def _resource_apply_dense(self, grad, handle):
        return handle.assign_sub(grad * tf.cast(self._factor, grad.dtype))


class NamedV2(SGD):
    def __init__(self, ema_momentum=0.5, clip=0.125, name="NamedV2", **kwargs):
        super().__init__(1.0, name=name, **kwargs)
        self._set_hyper("ema_momentum", ema_momentum)
        self.clip = clip

    def _resource_apply_dense(self, grad, var, apply_state=None):
        return var.assign_sub(grad * (self._get_hyper("ema_momentum") + self.clip))

    def get_config(self):
        momentum = self._serialize_hyperparameter("ema_momentum")
        config = super().get_config()
        for name in ("learning_rate", "decay", "momentum", "nesterov"):
            del config[name]
        return dict(config, ema_momentum=momentum, clip=self.clip)


@keras3
@pytest.mark.parametrize("cls", [Named, NamedV2])
def test_a_hyperparameter_with_the_name_of_an_option(cls, tmp_path):
    def step(model):
        kernel, bias = model.trainable_variables
        model.optimizer.apply_gradients([(tf.zeros([1, 1]), kernel), (tf.fill([1], 8.0), bias)])
        return float(bias.numpy()[0])

    model = model_of(KERAS_3, to_keras(cls(), api="keras3"))
    optimizer = model.optimizer
    assert float(optimizer.ema_momentum) == 0.5
    assert step(model) == 1 - 8 * 0.625  # the gradient is not clipped
    optimizer.ema_momentum = 0.25
    assert float(optimizer.ema_momentum) == 0.25
    assert step(model) == 1 - 8 * 0.625 - 8 * 0.375
    model.save(str(tmp_path / "model.keras"))
    again = load_model(KERAS_3, tmp_path / "model.keras", NamedV2, imported=[Named])
    assert float(again.optimizer.ema_momentum) == 0.25
    with pytest.raises(ValueError, match="ema_momentum.*besides Named"):
        to_keras(cls(), api="keras3", use_ema=True)


class Scaled(Named):
    def __init__(self, loss_scale_factor=2.0):
        super().__init__()
        self._loss_scale_factor = loss_scale_factor

    def _prepare(self):
        super()._prepare()
        self._factor *= self._loss_scale_factor


@keras3
def test_a_hyperparameter_that_keras_would_read_is_refused():
    with pytest.raises(ValueError, match="loss_scale_factor.*besides Scaled"):
        to_keras(Scaled(), api="keras3")


# Schedules of several optimizers.


def test_the_schedules_of_several_optimizers_are_found_with_custom_objects(api):
    schedules = api.keras.optimizers.schedules
    halving = type("Halving", (schedules.LearningRateSchedule,), dict(vars(Halving)))
    of_kernel, others = (v1.GradientDescentOptimizer(rate) for rate in (halving(), 0.25))
    optimizer = api.bridged(MultiOptimizer([(of_kernel, "kernel")], default=others))
    config = optimizer.get_config()
    again = type(optimizer).from_config(config, custom_objects={"Halving": halving})
    assert again.get_config() == config


class Halving:
    def __call__(self, step):
        return 0.5 / (1 + tf.cast(step, tf.float32))

    def get_config(self):
        return {}
