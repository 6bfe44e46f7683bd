"""Makes optimizers for tests in which a gradient and its variable share their memory."""

import tensorflow as tf

import legacy_opt
from tests.support.cases import CASES, one_of_each_class
from tests.support.wrapped import WRAPPERS

v1 = tf.compat.v1


def extended():
    return legacy_opt.extend_with_decoupled_weight_decay(v1.train.MomentumOptimizer)(0.1, 0.1, 0.9)


def two_decaying():
    return legacy_opt.MultiOptimizer([(extended(), "one")], v1.train.MomentumOptimizer(0.1, 0.9))


def average(inner, sequential):
    return legacy_opt.MovingAverageOptimizer(inner, 0.9, sequential_update=sequential)


MAKERS = {name: CASES[name].make for name in one_of_each_class()}
MAKERS.update(WRAPPERS)
MAKERS.update(
    {
        "Multi of two": lambda step: two_decaying(),
        "Multitask": lambda step: legacy_opt.MultitaskOptimizerWrapper(extended()),
        "ClipByValue": lambda step: legacy_opt.ClipByValueOptimizer(extended(), -0.5, 0.5),
        "ClipByNorm": lambda step: legacy_opt.ClipByNormOptimizer(extended(), 0.5),
        "MovingAverage beside": lambda step: average(extended(), False),
        "accumulated DiffGrad": lambda step: legacy_opt.GradientAccumulationOptimizer(
            legacy_opt.DiffGradOptimizer(0.1), 2
        ),
    }
)
