"""Tests that errors about constructors' arguments name the class and the argument that is meant."""

import inspect

import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import extend_with_decoupled_weight_decay
from tests.support.cases import optimizers_in

v1 = tf.compat.v1
# RuleOptimizer takes the names of all hyperparameters.
PUBLIC = sorted(set(optimizers_in(legacy_opt)) - {"RuleOptimizer"})


@pytest.mark.parametrize("name", PUBLIC)
def test_an_unknown_argument(name):
    cls = getattr(legacy_opt, name)
    known = ", ".join(inspect.signature(cls).parameters)
    with pytest.raises(TypeError) as caught:
        cls(xyz=1)
    message = f"{name}: got an unexpected keyword argument 'xyz'. The arguments are {known}."
    assert str(caught.value) == message


@pytest.mark.parametrize("name", PUBLIC)
def test_tools_see_the_arguments(name):
    cls = getattr(legacy_opt, name)
    known = list(inspect.signature(cls).parameters)
    assert inspect.getfullargspec(cls.__init__).args == ["self", *known]


@pytest.mark.parametrize(
    "name, given, meant",
    [
        ("LazyAdamOptimizer", "lr", "learning_rate"),
        ("AdamWOptimizer", "lr", "learning_rate"),
        ("AdaMaxOptimizer", "beta_1", "beta1"),
        ("LAMBOptimizer", "beta2", "beta_2"),
        ("NadamOptimizer", "eps", "epsilon"),
        ("LARSOptimizer", "weight_deacy", "weight_decay"),
        ("GradientAccumulationOptimizer", "opt", "optimizer"),
        ("MovingAverageOptimizer", "optimizer", "opt"),
        ("ClipByNormOptimizer", "clipnorm", "clip_norm"),
    ],
)
def test_an_argument_of_keras_or_another_class(name, given, meant):
    message = f"^{name}: got an unexpected keyword argument '{given}'. Did you mean '{meant}'"
    with pytest.raises(TypeError, match=message):
        getattr(legacy_opt, name)(**{given: 0.1})


def test_an_argument_of_an_extended_class():
    cls = extend_with_decoupled_weight_decay(v1.train.RMSPropOptimizer)
    message = f"^{cls.__name__}: got an unexpected keyword argument 'rho'. Did you mean 'decay'"
    with pytest.raises(TypeError, match=message):
        cls(weight_decay=0.1, learning_rate=0.1, rho=0.9)


@pytest.mark.parametrize(
    "name, arguments, problem",
    [
        ("AdagradDecayOptimizerV2", (), "missing a required argument: 'learning_rate'"),
        ("MomentumWOptimizer", (0.1, 0.1), "missing a required argument: 'momentum'"),
        ("NadamOptimizer", (0.1,) * 9, "too many positional arguments"),
    ],
)
def test_missing_and_superfluous_arguments(name, arguments, problem):
    with pytest.raises(TypeError, match=f"^{name}: {problem}. The arguments are "):
        getattr(legacy_opt, name)(*arguments)
