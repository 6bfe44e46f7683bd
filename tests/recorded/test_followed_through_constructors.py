"""Tests which hyperparameters a record follows if values hide each other, or constructors compute.

What a record does not refuse is compared with a Session.
"""

import types
import warnings

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import recorded
from tests.recorded.test_followed_hyperparameters import in_a_session, stepped

v1 = tf.compat.v1


class Two(legacy_opt.RuleOptimizer):
    def __init__(self, learning_rate=0.5, beta1=0.75, beta2=0.875):
        super().__init__(False, "Two", learning_rate=learning_rate, beta1=beta1, beta2=beta2)

    def weights(self, hyper):
        return hyper.beta1, hyper.beta2

    def rule(self, grad, value, slots, hyper):
        first, second = self.weights(hyper)
        return hyper.learning_rate * (first * grad + second * value), {}


class Equal(Two):
    def weights(self, hyper):
        return (hyper.beta1, 0.0) if self._beta1 == self._beta2 else (hyper.beta1, hyper.beta2)


class BothZero(Two):
    def weights(self, hyper):
        return (hyper.beta1, hyper.beta2) if self._beta1 or self._beta2 else (1.0, 0.0)


class AllZero(Two):
    def weights(self, hyper):
        is_zero = not (self._learning_rate or self._beta1 or self._beta2)
        return (hyper.beta1 + 1.0, hyper.beta2) if is_zero else (hyper.beta1, hyper.beta2)


class Swapped(Two):
    """Of all values, two changes undo each other."""

    def weights(self, hyper):
        return hyper.beta1, hyper.beta2 * (1.0 if self._beta1 < self._beta2 else 2.0)


class Validated(Two):
    def __init__(self, learning_rate=0.5, beta1=0.75, beta2=0.875):
        if learning_rate <= 0 or not 0 <= beta2 < 1:
            raise ValueError("an argument")
        super().__init__(learning_rate, beta1, beta2)
        self._is_used = beta1 > 0

    def weights(self, hyper):
        return (hyper.beta1 if self._is_used else 1.0), hyper.beta2


class Rest(Two):
    """Computes `_rest` in its constructor; subclasses in other ways."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._rest = 1.0 - self._beta1

    def weights(self, hyper):
        return hyper.beta1, self._rest


class Array(Two):
    def __init__(self, learning_rate=0.5, beta1=0.75, beta2=0.875):
        super().__init__(learning_rate, beta1, beta2)
        self._rest = np.float32([beta1, 1.0 - beta1])

    def weights(self, hyper):
        return hyper.beta1, self._rest[1]


class Object(Two):
    def __init__(self, learning_rate=0.5, beta1=0.75, beta2=0.875):
        super().__init__(learning_rate, beta1, beta2)
        self._pair = types.SimpleNamespace(rest=lambda: 1.0 - beta1)

    def weights(self, hyper):
        return hyper.beta1, self._pair.rest()


class NotStored(Two):
    def __init__(self, batch, beta1=0.75):
        super().__init__(0.5, beta1)
        self._rest = (1.0 - beta1) * batch

    weights = Rest.weights


class Renamed(Two):
    def __init__(self, rate=0.5):
        super().__init__(learning_rate=rate)
        self._rest = rate / 2

    weights = Rest.weights


class Normalising(Two):
    def __init__(self, learning_rate=0.05, beta1=0.75):
        super().__init__(learning_rate * 10, min(beta1, 0.875))


class Dampened(v1.train.MomentumOptimizer):
    def __init__(self, learning_rate=0.5, momentum=0.75):
        super().__init__(learning_rate * (1 - momentum), momentum)


class Late(Two):
    weights = Rest.weights

    def __init__(self, learning_rate=0.5, beta1=0.75):
        super().__init__(learning_rate, beta1)


def late(beta1=0.75):
    optimizer = Late(beta1=beta1)
    optimizer._rest = 1.0 - beta1
    return optimizer


CASES = [
    (Equal, {"beta1": 0.5, "beta2": 0.5}, ["learning_rate"]),
    (BothZero, {"beta1": 0.0, "beta2": 0.0}, ["beta1", "beta2", "learning_rate"]),
    (BothZero, {"beta1": 0.0}, ["beta1", "beta2", "learning_rate"]),
    (AllZero, {"beta1": 0.0}, ["beta1", "beta2", "learning_rate"]),
    (Swapped, {"beta1": 0.9375}, ["learning_rate"]),
    (Validated, {"beta1": 0.0}, ["beta1", "beta2", "learning_rate"]),
    (Rest, {"beta1": 0.5}, ["learning_rate"]),
    (Array, {"beta1": 0.5}, ["learning_rate"]),
    (Object, {"beta1": 0.5}, ["learning_rate"]),
    (lambda **given: NotStored(4, **given), {"beta1": 0.5}, []),
    (Renamed, {"learning_rate": 0.25}, []),
    (Normalising, {"beta1": 0.9375}, ["beta2"]),
    (Normalising, {"learning_rate": 0.25}, ["beta2"]),
    (Dampened, {"momentum": 0.5}, []),
    (late, {"beta1": 0.5}, []),
]


@pytest.mark.parametrize("make, values, followed", CASES)
def test_values_that_a_record_does_not_follow_are_refused(make, values, followed):
    with tf.Graph().as_default():
        record = recorded.record(make())
    np.testing.assert_array_equal(stepped(record), in_a_session(make))
    assert sorted(record.hyperparameters) == followed
    with pytest.raises(recorded.RecordError, match="does not follow it"):
        stepped(record, **values)


def test_no_warning_is_about_values_that_the_user_did_not_pass():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        recorded.record(Two())
    assert [each for each in caught if "uphill" in str(each.message)] == []


class Plain(v1.train.AdamOptimizer):
    """Passes all on, and checks and keeps something."""

    def __init__(self, learning_rate=0.01, beta1=0.9, scale=2.0, **kwargs):
        if not 0 <= beta1 < 1:
            raise ValueError("beta1")
        super().__init__(learning_rate, beta1, **kwargs)
        self.scale, self.seen = scale, []


class ShortName(v1.train.MomentumOptimizer):
    def __init__(self, lr=0.5):
        super().__init__(lr, 0.75)


@pytest.mark.one_lane
@pytest.mark.parametrize(
    "make, values",
    [
        (Plain, {"learning_rate": 0.125, "beta1": 0.5, "beta2": 0.75}),
        (lambda learning_rate=0.5: ShortName(learning_rate), {"learning_rate": 0.125}),
        (Validated, {"learning_rate": 0.25, "beta2": 0.5}),
    ],
)
def test_what_a_constructor_only_passes_on_is_followed(make, values):
    with tf.Graph().as_default():
        record = recorded.record(make())
    assert not record.fixed
    np.testing.assert_array_equal(stepped(record, **values), in_a_session(lambda: make(**values)))
    with tf.Graph().as_default(), v1.Session():
        trained = make()
        w = v1.get_variable("w", initializer=[1.0], use_resource=True)
        trained.minimize(w, v1.train.get_or_create_global_step())
    assert recorded.record(trained) == record


class ByName(legacy_opt.AdamWOptimizer):
    def decays(self, v):
        return "bias" not in v.name and super().decays(v)


class HyperByName(Two):
    def hyper_for(self, v):
        hyper = super().hyper_for(v)
        hyper.beta1 = 0.0 * hyper.beta1 if "bias" in v.op.name else hyper.beta1
        return hyper


class SlotsByName(v1.train.MomentumOptimizer):
    def _create_slots(self, variables):
        for each in variables:
            value = float("bias" in each.op.name) * tf.ones(each.shape)
            self._get_or_make_slot(each, value, "momentum", "Momentum")


@pytest.mark.parametrize(
    "make, method",
    [
        (lambda: ByName(0.1, 0.01), "decays"),
        (HyperByName, "hyper_for"),
        (lambda: SlotsByName(0.1, 0.9), "_create_slots"),
    ],
)
def test_a_method_that_gets_a_variable_may_look_at_its_name(make, method):
    with tf.Graph().as_default():
        with pytest.raises(recorded.RecordError, match=f"because of its method {method}: pass var"):
            recorded.record(make())
        assert recorded.record(make(), {"bias": [3]}).groups
