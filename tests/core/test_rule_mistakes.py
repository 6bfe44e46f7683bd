"""Tests of the errors for mistakes in subclasses of RuleOptimizer and OptimizerWrapper.

Each error names the class, what is wrong, and the way out.
"""

import copy
import functools
import pickle

import pytest
import tensorflow as tf

from legacy_opt import (
    Addition,
    DecoupledWeightDecayExtension,
    Fading,
    LazyAdamOptimizer,
    NewValue,
    OptimizerWrapper,
    RuleOptimizer,
    Slot,
)
from legacy_opt.compat import to_keras
from legacy_opt.core.named_values import NamedValues

v1 = tf.compat.v1


class Momentum(RuleOptimizer):
    """Subclasses of this class contain one mistake each."""

    slots = {"momentum": Slot()}

    def __init__(self, learning_rate=0.1, name="Momentum"):
        super().__init__(False, name, learning_rate=learning_rate)

    def rule(self, grad, value, slots, hyper):
        momentum = slots.momentum * 0.9 + grad
        return hyper.learning_rate * momentum, {"momentum": momentum}


def train_in_graph(optimizer, sparse=False):
    with tf.Graph().as_default():
        w = v1.get_variable("w", [4, 2])
        grad = tf.IndexedSlices(tf.ones([2, 2]), [0, 3]) if sparse else tf.ones([4, 2])
        optimizer.apply_gradients([(grad, w)])


def train_eagerly(optimizer, sparse=False):
    w = tf.compat.v2.Variable(tf.zeros([4, 2]), name="w")
    grad = tf.IndexedSlices(tf.ones([2, 2]), [0, 3]) if sparse else tf.ones([4, 2])
    optimizer.apply_gradients([(grad, w)])


def train_in_keras(optimizer, sparse=False):
    train_eagerly(to_keras(optimizer), sparse)


WAYS = pytest.mark.parametrize("train", [train_in_graph, train_eagerly, train_in_keras])


# Misspelled names in rules.


class MistypedHyper(Momentum):
    def rule(self, grad, value, slots, hyper):
        return hyper.learnig_rate * grad, {}


class MistypedSlot(Momentum):
    def rule(self, grad, value, slots, hyper):
        return grad, {"momentum": slots.momentun + grad}


class MistypedValue(Momentum):
    def non_slots(self):
        return {"beta_power": 0.9}

    def update_non_slots(self, values, hyper):
        return {"beta_power": values.beta_pover * 0.9}


class MistypedSlotOfUpdate(Momentum):
    def apply_update(self, update):
        return update.access.add(update.slots.momentun, update.grad)


@WAYS
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    "optimizer, message",
    [
        (
            MistypedHyper,
            "hyper of MistypedHyper has no 'learnig_rate'. Did you mean 'learning_rate'. "
            "It has learning_rate.",
        ),
        (MistypedSlot, "slots of MistypedSlot has no 'momentun'. Did you mean 'momentum'"),
        (
            MistypedValue,
            "values of MistypedValue.update_non_slots has no 'beta_pover'. Did you mean 'beta_p",
        ),
        (MistypedSlotOfUpdate, "slots of MistypedSlotOfUpdate has no 'momentun'. Did you mean"),
    ],
)
def test_a_misspelled_name_in_a_rule(optimizer, message, sparse, train):
    with pytest.raises(AttributeError, match=message):
        train(optimizer(), sparse)


def test_named_values_are_a_namespace():
    values = NamedValues.of("hyper of Mine", {"rate": 1})
    values.decay = 2
    for each in (
        values,
        copy.copy(values),
        copy.deepcopy(values),
        pickle.loads(pickle.dumps(values)),
    ):
        assert vars(each) == {"rate": 1, "decay": 2} and not hasattr(each, "power")
        with pytest.raises(
            AttributeError, match="hyper of Mine has no 'dekay'. Did you mean 'decay'"
        ):
            _ = each.dekay
    other = copy.copy(values)
    other.rate = 3
    assert values.rate == 1


# Wrong results of methods.


def returning(update, **changes):
    """Returns a subclass of Momentum with a rule that returns these values as float64 tensors."""

    class Wrong(Momentum):
        def rule(self, grad, value, slots, hyper):
            given = {name: change(tf.cast(grad, tf.float64)) for name, change in changes.items()}
            return update(grad), given

    return Wrong


@WAYS
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    "optimizer, message",
    [
        (
            returning(lambda grad: tf.cast(grad, tf.float64)),
            "change of 'w.*' in dtype float64, expected float32: cast it by tf.cast",
        ),
        (returning(lambda grad: "x"), "change of 'w.*' as 'x', expected a tensor of"),
        (
            returning(lambda grad: NewValue(tf.cast(grad, tf.float64))),
            "new value of 'w.*' in dtype float64, expected float32: cast it by tf.cast",
        ),
        (returning(tf.identity, momentum=NewValue), "slot 'momentum' of 'w.*' as a NewValue"),
        (
            returning(tf.identity, momentum=lambda wide: wide),
            "slot 'momentum' of 'w.*' in dtype float64, expected float32",
        ),
        (returning(tf.identity, momentum=Addition), "slot 'momentum' of 'w.*' in dtype float64"),
        (
            returning(tf.identity, momentum=lambda wide: Fading(tf.cast(wide, tf.float32), wide)),
            "slot 'momentum' of 'w.*' in dtype float64",
        ),
    ],
)
def test_a_rule_with_a_result_of_a_wrong_dtype(optimizer, message, sparse, train):
    with pytest.raises(TypeError, match="Wrong.rule returned the " + message):
        train(optimizer(), sparse)


def sharing(result, non_slots=None):
    class Wrong(Momentum):
        def non_slots(self):
            return {"beta_power": 0.9} if non_slots is None else non_slots

        def update_non_slots(self, values, hyper):
            return result(values.beta_power)

    return Wrong


@WAYS
@pytest.mark.parametrize(
    "optimizer, error, message",
    [
        (
            sharing(lambda power: {"beta_pover": power}),
            ValueError,
            "Wrong.update_non_slots returned names that are not in non_slots: .'beta_pover'.; "
            "declared: .'beta_power'.. Did you mean 'beta_power'",
        ),
        (
            sharing(lambda power: None),
            TypeError,
            "Wrong.update_non_slots must return a dict, got N",
        ),
        (sharing(lambda power: [power]), TypeError, "Wrong.update_non_slots must return a dict"),
        (
            sharing(lambda power: {"beta_power": tf.cast(power, tf.float64)}),
            TypeError,
            "Wrong.update_non_slots returned 'beta_power' in dtype float64, expected float32",
        ),
        (sharing(None, ["beta_power"]), TypeError, "Wrong.non_slots must return a dict, got "),
        (
            sharing(lambda power: {"xyz": power, "beta_pover": power}),
            ValueError,
            "Did you mean 'beta_power'",
        ),
        (
            sharing(None, {"beta_power": "0.9"}),
            TypeError,
            "Wrong.non_slots returned 'beta_power' as '0.9', expected a number or a tensor",
        ),
        (
            sharing(None, {"beta_power": None}),
            TypeError,
            "Wrong.non_slots returned 'beta_power' as None, expected a number or a tensor",
        ),
    ],
)
def test_wrong_results_of_update_non_slots(optimizer, error, message, train):
    with pytest.raises(error, match=message):
        train(optimizer())


def test_a_misspelled_slot_in_the_result_of_a_rule():
    wrong = returning(tf.identity, momentun=lambda wide: wide)
    with pytest.raises(ValueError, match="not declared: .'momentun'.; .* Did you mean 'momentum'"):
        train_in_graph(wrong())


# Constructors.


class ForgetsRule(RuleOptimizer):
    def __init__(self, learning_rate):
        self._learning_rate = learning_rate


class ForgetsAdam(LazyAdamOptimizer):
    def __init__(self, learning_rate):
        self._learning_rate = learning_rate


class SkipsRule(RuleOptimizer):
    def __init__(self, learning_rate):
        v1.train.Optimizer.__init__(self, False, "SkipsRule")


class InheritsForgetting(ForgetsRule):
    pass


class ForgetsWrapper(OptimizerWrapper):
    def __init__(self, learning_rate):
        self._inner = v1.train.AdamOptimizer(learning_rate)


class ForgetsDecay(DecoupledWeightDecayExtension, v1.train.AdamOptimizer):
    def __init__(self, learning_rate):
        v1.train.AdamOptimizer.__init__(self, learning_rate)


@pytest.mark.parametrize(
    "optimizer, forgot, base",
    [
        (ForgetsRule, "ForgetsRule", "RuleOptimizer"),
        (ForgetsAdam, "ForgetsAdam", "RuleOptimizer"),
        (SkipsRule, "SkipsRule", "RuleOptimizer"),
        (InheritsForgetting, "ForgetsRule", "RuleOptimizer"),
        (ForgetsWrapper, "ForgetsWrapper", "OptimizerWrapper"),
        (ForgetsDecay, "ForgetsDecay", "DecoupledWeightDecayExtension"),
    ],
)
def test_a_constructor_that_does_not_call_super(optimizer, forgot, base):
    message = (
        rf"The __init__ of {forgot} must call super\(\).__init__\(…\): the constructor of {base} "
    )
    made, variable = optimizer(0.1), tf.Variable([1.0])
    with pytest.raises(AttributeError, match=message):
        made.apply_gradients([(tf.constant([1.0]), variable)])


class Delegates(LazyAdamOptimizer):
    def __init__(self, inner):
        self._inner = inner

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        return self._inner.apply_gradients(grads_and_vars, global_step, name)


def test_a_class_that_needs_no_constructor_of_its_base():
    variable = tf.Variable([1.0])
    made = Delegates(v1.train.GradientDescentOptimizer(0.5))
    made.apply_gradients([(tf.constant([1.0]), variable)])
    assert variable.numpy() == [0.5] and not hasattr(made, "_name")


class Logged:
    """A decorator of constructors that is no function."""

    def __init__(self, init):
        self.init = init

    def __get__(self, instance, owner=None):
        return self if instance is None else self.init.__get__(instance, owner)


def test_a_decorator_that_is_a_class():
    class Decorated(LazyAdamOptimizer):
        @Logged
        def __init__(self, learning_rate):
            super().__init__(learning_rate)

    assert Decorated(0.5)._learning_rate == 0.5


def test_unusual_constructors():
    class Surplus(Momentum):
        def __init__(this, **arguments):
            super().__init__(arguments["self"])

    assert Surplus(self=0.5)._learning_rate == 0.5

    class Returns(Momentum):
        def __init__(self):
            super().__init__(0.5)
            return 3

    with pytest.raises(TypeError, match="should return None"):
        Returns()

    class WithoutSelf(Momentum):
        def __init__():
            pass

    with pytest.raises(TypeError, match="WithoutSelf: too many positional arguments"):
        WithoutSelf()


def test_values_of_a_rule_can_be_copied():
    values = NamedValues.of("hyper of Mine", {"rate": 1})
    assert type(values)(**vars(values)) == values
    with pytest.raises(AttributeError, match="the namespace has no 'rat'"):
        getattr(type(values)(rate=1), "rat")  # noqa: B009


def test_a_wrong_call_of_super():
    class Wrong(RuleOptimizer):
        def __init__(self):
            super().__init__(False)

    class WrongAdam(LazyAdamOptimizer):
        def __init__(self):
            super().__init__(lr=0.1)

    with pytest.raises(TypeError, match=r"super\(\).__init__ of Wrong: missing .* 'name'"):
        Wrong()
    with pytest.raises(TypeError, match="of WrongAdam: .* 'lr'. Did you mean 'learning_rate'"):
        WrongAdam()


def test_a_decorated_constructor_may_take_other_arguments():
    def with_lr(init):
        @functools.wraps(init)
        def decorated(self, lr, **arguments):
            init(self, learning_rate=lr, **arguments)

        return decorated

    class Decorated(Momentum):
        __init__ = with_lr(Momentum.__init__)

    assert Decorated(lr=0.5)._learning_rate == 0.5
    with pytest.raises(TypeError, match="of Decorated: got an unexpected .* 'naem'. .* 'name'"):
        Decorated(lr=0.5, naem="x")
