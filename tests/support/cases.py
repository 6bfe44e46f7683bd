"""The cases (class and arguments) of all public optimizers; a test fails if a class has no case."""

from typing import Any

import tensorflow as tf

import legacy_opt
from legacy_opt.wrappers.base import OptimizerWrapper
from tests.support.optimizer_cases import (
    adafactor,
    adagrad_decay,
    adam,
    bert,
    cocob,
    conditional_gradient,
    counted_steps,
    diffgrad,
    lars,
    lion,
    shampoo,
    signs,
    weight_decay,
)


def optimizers_in(module):
    """Returns the optimizer classes among a module's names: a dict from name to class."""
    found = {name: getattr(module, name) for name in dir(module)}
    return {
        name: item
        for name, item in found.items()
        if isinstance(item, type) and issubclass(item, tf.compat.v1.train.Optimizer)
    }


def public_optimizers():
    """Returns the package's public optimizer classes, without wrappers and RuleOptimizer."""
    return [
        item
        for item in optimizers_in(legacy_opt).values()
        if not issubclass(item, OptimizerWrapper) and item is not legacy_opt.RuleOptimizer
    ]


CASES: Any = {
    **adagrad_decay.CASES,
    **adam.CASES,
    **weight_decay.CASES,
    **signs.CASES,
    **lars.CASES,
    **bert.CASES,
    **adafactor.CASES,
    **shampoo.CASES,
    **diffgrad.CASES,
    **lion.CASES,
    **cocob.CASES,
    **conditional_gradient.CASES,
    **counted_steps.CASES,
}


def public_optimizers_with_cases():
    """Returns the set of public classes that have a case."""
    classes = {case.optimizer for case in CASES.values()}
    # Classes returned by extend_with_decoupled_weight_decay have no public name.
    return {each for each in classes if "base_optimizer" not in vars(each)}


def one_of_each_class():
    """Returns the name of the first case of each class, in the order of `CASES`."""
    first = {}
    for name, case in CASES.items():
        first.setdefault(case.optimizer, name)
    return list(first.values())


# Classes without native kernels, and classes with kernels for dense gradients only.
_NO_KERNELS = {"Shampoo": "kernels do not support the slot layout"}
_NO_SPARSE_KERNELS = {
    "ConditionalGradient": "only TensorFlow computes norms of rows of sparse gradients",
    "NovoGrad": "the rule sums over all rows that a sparse gradient touches",
}


def why_no_kernel(name, sparse=False):
    """Returns why a case's optimizer has no kernel for a gradient; None if it has one."""
    cls = name.split()[0]
    return _NO_KERNELS.get(cls) or (_NO_SPARSE_KERNELS.get(cls) if sparse else None)
