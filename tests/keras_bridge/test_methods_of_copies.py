"""Tests the methods that `to_keras` puts before those of a v1 optimizer's class."""

import inspect

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt.compat.in_keras.v1_optimizers import owned_state
from legacy_opt.core import contract
from tests.keras_bridge.test_overridden_methods import eagerly, session
from tests.support import every_class

v1 = tf.compat.v1
COPIES = owned_state.StateInKeras, owned_state.NestedStateInKeras
# Methods of a copy that neither call those of the class, nor are in the table.
OTHERS = {
    "__reduce__": "a copy refers to the Keras optimizer, which copies and pickles it",
    "__deepcopy__": "the same",
    "_name_in_keras": "this package's classes define it only for copies: variable_name calls it",
    "get_slot_names": "no training calls it; a copy's slots are those of the Keras optimizer",
    "variables": "the same",
    "only_dense": "not a method; slots must exist before the first step",
}


def inherited():
    """Returns the names of what optimizers of users' classes may inherit."""
    bases = [v1.train.Optimizer, legacy_opt.OptimizerWrapper, legacy_opt.MultiOptimizer]
    bases += [legacy_opt.DecoupledWeightDecayExtension, legacy_opt.GradientAccumulationOptimizer]
    bases += [type(every_class.make(name)) for name in every_class.CLASSES]
    return {name for base in bases for name in dir(base)}


def methods_of_copies():
    for cls in COPIES:
        for name, value in vars(cls).items():
            if not name.startswith("__") or inspect.isfunction(value):  # no __doc__
                yield name, getattr(value, "fget", value)


def calls_super(function):
    return "__class__" in getattr(getattr(function, "__code__", None), "co_freevars", ())


def test_no_method_of_a_copy_replaces_one_of_a_user_silently():
    rows = contract.TABLE["to_keras", "record", "accelerate"]
    refused = {
        name
        for names, how in rows.items()
        for name in names.split()
        if how[0] in (contract.REFUSED, contract.ARGUMENTS)
    }
    names, problems = inherited(), []
    for name, function in methods_of_copies():
        if name in OTHERS or name in refused or calls_super(function):
            continue
        # A new name must be one that no class of a user has.
        if name in names or not ("keras" in name or "bridge" in name):
            problems.append(name)
    assert not problems, "call super, or add them to contract.TABLE"


@pytest.mark.parametrize("base", [v1.train.MomentumOptimizer, legacy_opt.OptimizerWrapper])
@pytest.mark.parametrize("method", ["own_slot", "_slot_dict", "_non_slot_variables"])
def test_what_describes_the_state_is_refused(api, base, method):
    cls = type("Derived", (base,), {method: lambda self, *args: []})
    is_wrapper = base is legacy_opt.OptimizerWrapper
    optimizer = cls([v1.train.MomentumOptimizer(0.1, 0.9)]) if is_wrapper else cls(0.1, 0.9)
    with pytest.raises(ValueError, match=f"Derived overrides {method}, which to_keras does not"):
        api.bridged(optimizer)


def renaming(base):
    class Renaming(base):
        def variable_name(self, variable):
            name = super().variable_name(variable)
            if hasattr(self, "_driver"):  # for a path in Keras 3
                assert name == self._driver.owner.variable_name(variable)
            return "excluded"

    return Renaming


def lamb():
    cls = renaming(legacy_opt.LAMBOptimizer)
    return cls(0.01, 0.5, exclude_from_weight_decay=["excluded"])


def multi():
    descent = v1.train.GradientDescentOptimizer
    return renaming(legacy_opt.MultiOptimizer)([(descent(0.25), "excluded")], default=descent(0.5))


@pytest.mark.filterwarnings("ignore:.*no variable matches")
@pytest.mark.parametrize("make", [lamb, multi])
def test_names_that_a_class_chooses(api, make):
    expected = session(make())[0]
    np.testing.assert_allclose(eagerly(api.bridged(make()))[0], expected, rtol=1e-6)


def test_a_helper_of_a_class_is_not_replaced(api):
    class Helper(v1.train.MomentumOptimizer):
        def _slot(self, variable):
            return self.get_slot(variable, "momentum")

        def variable_name(self):
            return "a name"

        def _resource_apply_dense(self, grad, var):
            assert self.variable_name() == "a name"
            return super()._resource_apply_dense(grad + 0.0 * self._slot(var), var)

    expected = session(Helper(0.1, 0.9))[0]
    np.testing.assert_allclose(eagerly(api.bridged(Helper(0.1, 0.9)))[0], expected, rtol=1e-6)


@pytest.mark.parametrize("together", [True, False])
def test_updates_together_is_the_choice_of_the_class(api, together):
    noted = []

    class Chosen(legacy_opt.AddSignOptimizer):
        updates_together = together

        def once_per_step(self, hyper):
            noted.append(self.updates_together)
            return super().once_per_step(hyper)

    eagerly(api.bridged(Chosen(0.1)))
    assert noted[-1] is together


def test_numbers_that_apply_gradients_reads_are_fixed(api):
    """It may read them in Python, once; `api.bridged` reads its code although a lock is around."""

    class Scales(legacy_opt.RuleOptimizer):
        def __init__(self, scale):
            super().__init__(False, "Scales", learning_rate=0.1, scale=scale)

        def rule(self, grad, value, slots, hyper):
            return grad * hyper.learning_rate * hyper.scale, {}

    class Reads(Scales):
        def apply_gradients(self, grads_and_vars, global_step=None, name=None):
            pairs = [(grad * self._scale, variable) for grad, variable in grads_and_vars]
            return super().apply_gradients(pairs, global_step, name)

    found = [sorted(api.bridged(cls(0.5))._v1.settings.numbers) for cls in (Scales, Reads)]
    assert found == [["learning_rate", "scale"], ["learning_rate"]]
