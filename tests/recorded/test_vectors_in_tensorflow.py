"""Tests that v1 optimizers pass the vectors in a Session and through `to_keras`.

A Session cannot begin late in a training, so vectors that do are left out.
"""

import functools
import inspect
import math

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import proofs
from legacy_opt.compat.in_keras.session_comparison import KINDS
from legacy_opt.proofs.arguments import arguments_of
from tests.recorded.vectors import CELLS, INVALID, fails
from tests.tools import rules

CLASSES = rules.classes()
NAMES = sorted({name for name, _ in CELLS})
pytestmark = [pytest.mark.one_lane, INVALID]
# Arguments from which hyperparameters are computed: the hyperparameter, and the way back.
COMPUTED = {
    "base": ("logbase", math.exp),
    "sign_decay_fn": ("sign_decay", lambda value: lambda step: tf.constant(value)),
}
WAYS = [("tf", False), ("to_keras", True), ("to_keras", False)]
VECTORS = ["dense", "rows-extreme", "dense-defaults", "rows", "dense-extreme", "rows-defaults"]


def target(kind, name, is_native):
    """Returns a target: the class of a rule, in a Session or through `to_keras`."""
    cls = CLASSES[name]
    takes = inspect.signature(cls.__init__).parameters
    mapping = {each: source for each, (source, _) in COMPUTED.items() if each in takes}

    def make(**arguments):
        for each in mapping:
            arguments[each] = COMPUTED[each][1](arguments[each])
        optimizer = cls(**arguments)
        return legacy_opt.native.accelerate(optimizer, require=True) if is_native else optimizer

    def arguments(proof):
        found = arguments_of(cls, proof, mapping)
        return found._replace(steps=[as_written(each) for each in found.steps])

    return proofs.Target(kind, functools.partial(KINDS[kind], make), arguments)


def as_written(arguments):
    """Returns numbers as a user writes them: Python computes 1 - 0.9, not 1 - np.float32(0.9)."""
    return {
        name: float(str(np.float32(each))) if isinstance(each, float) else each
        for name, each in arguments.items()
    }


def check(name, kind, its_target, *expected):
    def judged(proof):
        return proofs.replay(proof, its_target, cause=False).verdict.name

    kind = kind if (name, kind) in CELLS else kind.replace("rows", "dense")
    assert not fails(judged, *expected, cells=[(name, kind)])


@pytest.mark.in_turn(name=NAMES, kind=VECTORS)
def test_native_kernels_in_a_session(name, kind):
    check(name, kind, target("tf", name, True), "EQUAL")


@pytest.mark.in_turn(name=NAMES, kind=VECTORS, way=WAYS)
def test_other_targets(name, kind, way):
    """TensorFlow's own kernels round in another way than native kernels."""
    rounding = [] if way[1] else ["ROUNDING"]
    if way[1] is False and (name, kind) == ("FtrlOptimizer", "rows-extreme"):
        kind = "rows"  # TensorFlow's kernel makes NaN of NaN, and that of dense gradients zero
    check(name, kind, target(way[0], name, way[1]), "EQUAL", *rounding)
