"""Tests on TensorFlow 1.15: optimizers equal their originals in `tf.contrib.opt` bit for bit.

After every training step, the tests compare all variables of the graph by name: trained variables,
slots and other state of the optimizer. Most tests train with predefined gradients. With gradients
of a loss, the results of some originals vary from run to run, because these originals update ref
variables while the forward pass reads the variables.
"""

import pytest
import tensorflow as tf

from tests.support import problems
from tests.support.cases import CASES
from tests.support.fed_training import FedTraining
from tests.support.training_ways import model
from tests.training_contrib.comparison import assert_same

pytestmark = pytest.mark.contrib

v1 = tf.compat.v1
HALF, STEPS = 12, 24
OF_CONTRIB = {name: case for name, case in CASES.items() if case.original is not None}


def test_every_optimizer_of_contrib_except_wrappers_has_a_case():
    known = {case.original.optimizer() for case in OF_CONTRIB.values()}
    missing = {"AdaMax", "AdamGS", "AdamW", "AddSign", "LARS", "LazyAdam", "LazyAdamGS"}
    missing |= {"MomentumW", "Nadam", "PowerSign", "RegAdagrad", "Shampoo"}
    assert known >= {getattr(tf.contrib.opt, name + "Optimizer") for name in missing}


def makers(name):
    """Returns two functions: the first creates the original optimizer, the second creates ours."""
    case = OF_CONTRIB[name]
    return (lambda step: case.construct(case.original.optimizer(), step)), case.make


def problem_for(name, dtype="float32", use_resource=False):
    """Returns a problem with variables and gradients that the original supports."""
    original = OF_CONTRIB[name].original
    problem = problems.everything(dtype, original.variables, STEPS)
    if original.ref_only and use_resource:
        dense = tuple(key for key in problem.values if key not in problem.sparse)
        problem = problems.everything(dtype, dense, STEPS)
    return problem


def cells():
    """Yields pairs (name, dtype). The daily run has one dtype of each optimizer, in turn."""
    for number, (name, case) in enumerate(OF_CONTRIB.items()):
        dtypes = case.original.dtypes
        for dtype in dtypes:
            daily = dtype == dtypes[number % len(dtypes)]
            yield pytest.param((name, dtype), marks=() if daily else pytest.mark.full)


@pytest.mark.in_turn(cell=cells(), use_resource=[False, True])
def test_every_variable_after_every_step(cell, use_resource, tmp_path):
    """Also tests that each optimizer continues correctly from the other optimizer's checkpoint."""
    name, dtype = cell
    problem = problem_for(name, dtype, use_resource)
    original, ours = (FedTraining(make, problem, use_resource) for make in makers(name))
    assert list(ours.variables) == list(original.variables)
    assert ours.of_optimizer == original.of_optimizer
    assert ours.slots == original.slots
    assert_same(ours.train(0, HALF), original.train(0, HALF))
    paths = [each.save(str(tmp_path / str(number))) for number, each in enumerate((original, ours))]
    expected = original.train(HALF, STEPS)
    assert_same(ours.train(HALF, STEPS), expected)
    for training, path in zip((ours, original), paths):
        training.restore(path)
        assert_same(training.train(HALF, STEPS), expected)


def minimized(make, use_resource):
    """Trains a small model with `minimize`; returns all variables by name after each step."""
    with tf.Graph().as_default():
        loss = model(use_resource)
        step = v1.train.get_or_create_global_step()
        train_op = make(step).minimize(loss, global_step=step)
        variables = {variable.op.name: variable for variable in v1.global_variables()}
        with v1.Session() as sess:
            sess.run(v1.global_variables_initializer())
            return [(sess.run(train_op), sess.run(variables))[1] for _ in range(HALF)]


def is_deterministic(original):
    """Returns whether the original gives equal results in all runs, for both variable types."""
    races = issubclass(original.optimizer(), tf.contrib.opt.DecoupledWeightDecayExtension)
    return not races and not original.ref_only


DETERMINISTIC = [name for name, case in OF_CONTRIB.items() if is_deterministic(case.original)]


@pytest.mark.in_turn(name=DETERMINISTIC, use_resource=[False, True])
def test_minimize(name, use_resource):
    original, ours = (minimized(make, use_resource) for make in makers(name))
    assert_same(ours, original)
