"""Cases (v1 optimizers with arguments) for tests of the bridges to Keras."""

import zlib
from typing import Any, Callable, NamedTuple, Tuple

import tensorflow as tf

from legacy_opt import versions
from tests.support import cases, rules

v1 = tf.compat.v1.train
DENSE = ("matrix", "vector")
RANK_2 = ("matrix", "table")


class KerasCase(NamedTuple):
    """One v1 optimizer with one set of arguments.

    Attributes:
      optimizer: the class.
      make: a function from the global step to a new optimizer. With the bridge, which uses Keras'
        `iterations`, the global step is None.
      only: the names of the problem's variables that the optimizer can train; empty for all.
    """

    optimizer: type
    make: Callable
    only: Tuple[str, ...] = ()


def _case(optimizer, *positional, only=(), **arguments):
    return KerasCase(optimizer, lambda step: optimizer(*positional, **arguments), only)


def _case_with_step(optimizer, no_step=None, only=(), **arguments):
    def make(step):
        return optimizer(global_step=no_step if step is None else step, **arguments)

    return KerasCase(optimizer, make, only)


def _accepts_beta():
    try:
        v1.FtrlOptimizer(0.1, beta=0.5)
    except TypeError:
        return False
    return True


_STRENGTHS = {"l1_regularization_strength": 0.02, "l2_regularization_strength": 0.1}
# The default arguments do not work in 16 bits, because 1e-8 is 0 in float16 and 0.999 is 1 in
# bfloat16.
_ADAM = {"beta1": 0.9, "beta2": 0.98, "epsilon": 1e-3}

TENSORFLOW: Any = {
    "Adadelta": _case(v1.AdadeltaOptimizer, 0.7),
    "Adadelta rho, epsilon": _case(v1.AdadeltaOptimizer, 0.7, rho=0.8, epsilon=1e-6),
    "Adagrad": _case(v1.AdagradOptimizer, 0.1),
    "AdagradDA": _case_with_step(v1.AdagradDAOptimizer, learning_rate=0.1),
    "AdagradDA l1, l2": _case_with_step(v1.AdagradDAOptimizer, learning_rate=0.1, **_STRENGTHS),
    "Adam": _case(v1.AdamOptimizer, 0.05, **_ADAM),
    "Adam use_locking": _case(v1.AdamOptimizer, 0.05, use_locking=True, **_ADAM),
    "Ftrl": _case(v1.FtrlOptimizer, 0.1),
    "Ftrl l1, l2": _case(v1.FtrlOptimizer, 0.1, **_STRENGTHS),
    "Ftrl l2_shrinkage": _case(
        v1.FtrlOptimizer, 0.1, l2_shrinkage_regularization_strength=0.03, **_STRENGTHS
    ),
    "Ftrl learning_rate_power": _case(v1.FtrlOptimizer, 0.1, learning_rate_power=-0.3),
    "GradientDescent": _case(v1.GradientDescentOptimizer, 0.1),
    "Momentum": _case(v1.MomentumOptimizer, 0.1, 0.9),
    "Momentum nesterov": _case(v1.MomentumOptimizer, 0.1, 0.9, use_nesterov=True),
    "ProximalAdagrad": _case(v1.ProximalAdagradOptimizer, 0.1),
    "ProximalAdagrad l1, l2": _case(v1.ProximalAdagradOptimizer, 0.1, **_STRENGTHS),
    "ProximalGradientDescent": _case(v1.ProximalGradientDescentOptimizer, 0.1),
    "ProximalGradientDescent l1, l2": _case(v1.ProximalGradientDescentOptimizer, 0.1, **_STRENGTHS),
    "RMSProp": _case(v1.RMSPropOptimizer, 0.01),
    "RMSProp momentum": _case(v1.RMSPropOptimizer, 0.01, decay=0.8, momentum=0.7, epsilon=1e-4),
    "RMSProp centered": _case(v1.RMSPropOptimizer, 0.01, centered=True),
    "RMSProp centered, momentum": _case(v1.RMSPropOptimizer, 0.01, momentum=0.7, centered=True),
}
if _accepts_beta():
    TENSORFLOW["Ftrl beta"] = _case(v1.FtrlOptimizer, 0.1, beta=0.5, **_STRENGTHS)

OURS: Any = {name: KerasCase(case.optimizer, case.make) for name, case in cases.CASES.items()}

# A user's optimizer with non-slot variables, from docs/write_an_optimizer.md.
COMPOSED: Any = {"DiffGrad (your own rule)": _case(rules.MyDiffGradOptimizer, 0.05, **_ADAM)}

# The classes of tf.contrib.opt, on TensorFlow 1.15. The prefix distinguishes them from this
# package's classes of the same names.
CONTRIB: Any = {}
OF_CONTRIB = "contrib.opt "


def _around_sgd(optimizer, **arguments):
    return _case(optimizer, v1.GradientDescentOptimizer(0.1), **arguments)


# Optimizers for which `to_keras` raises an error. Each value is a pair: a case, and a part of the
# error's message.
REFUSED: Any = {
    "SyncReplicas": (
        _around_sgd(v1.SyncReplicasOptimizer, replicas_to_aggregate=1),
        "another optimizer",
    ),
}

if versions.has_contrib():
    opt = tf.contrib.opt

    def _linear_decay(step):
        return 1 - tf.cast(step, tf.float32) / 50.0

    CONTRIB.update(
        (OF_CONTRIB + name, case)
        for name, case in {
            "AdaMax": _case(opt.AdaMaxOptimizer, 0.05, **_ADAM),
            "AdamGS": _case_with_step(opt.AdamGSOptimizer, learning_rate=0.05, **_ADAM),
            "AdamW": _case(opt.AdamWOptimizer, 0.01, learning_rate=0.05, **_ADAM),
            "AddSign": _case(opt.AddSignOptimizer, 0.05, only=DENSE),
            "AddSign sign_decay_fn": _case(
                opt.AddSignOptimizer, 0.05, sign_decay_fn=_linear_decay, only=DENSE
            ),
            "LARS": _case(opt.LARSOptimizer, 0.5),
            "LARS nesterov": _case(opt.LARSOptimizer, 0.5, use_nesterov=True, epsilon=1e-3),
            "LazyAdam": _case(opt.LazyAdamOptimizer, 0.05, **_ADAM),
            "LazyAdamGS": _case_with_step(opt.LazyAdamGSOptimizer, learning_rate=0.05, **_ADAM),
            "MomentumW": _case(opt.MomentumWOptimizer, 0.01, learning_rate=0.1, momentum=0.9),
            "Nadam": _case(opt.NadamOptimizer, 0.05, **_ADAM),
            "PowerSign": _case(opt.PowerSignOptimizer, 0.05, only=DENSE),
            "PowerSign sign_decay_fn": _case(
                opt.PowerSignOptimizer, 0.05, sign_decay_fn=_linear_decay, only=DENSE
            ),
            "RegAdagrad": _case(opt.RegAdagradOptimizer, 0.1),
            "Shampoo": _case_with_step(
                opt.ShampooOptimizer, no_step=0, learning_rate=0.1, only=RANK_2
            ),
        }.items()
    )
    _OTHER = "another optimizer"
    _AGN = opt.AGNCustomGetter("/job:worker/task:0")
    _ELASTIC = opt.ElasticAverageCustomGetter("/job:worker/task:0")
    _MODEL = opt.ModelAverageCustomGetter("/job:worker/task:0")
    REFUSED.update(
        {
            "AGN": (_around_sgd(opt.AGNOptimizer, num_worker=1, custom_getter=_AGN), _OTHER),
            "DropStaleGradient": (_around_sgd(opt.DropStaleGradientOptimizer, staleness=1), _OTHER),
            "ElasticAverage": (
                _around_sgd(opt.ElasticAverageOptimizer, num_worker=1, ea_custom_getter=_ELASTIC),
                _OTHER,
            ),
            "GGT": (_case(opt.GGTOptimizer), "overrides compute_gradients"),
            "ModelAverage": (
                _around_sgd(
                    opt.ModelAverageOptimizer, num_worker=1, is_chief=True, ma_custom_getter=_MODEL
                ),
                _OTHER,
            ),
            "MovingAverage": (_around_sgd(opt.MovingAverageOptimizer), _OTHER),
            "VariableClipping": (
                _around_sgd(opt.VariableClippingOptimizer, vars_to_clip_dims={}, max_norm=1.0),
                _OTHER,
            ),
        }
    )

CASES: Any = {**TENSORFLOW, **OURS, **COMPOSED, **CONTRIB}


def ways_of_the_day(name, ways, count):
    """Returns the ways to train a case in the daily run, chosen by the case's name.

    The full run (with --full) trains each case in all ways.

    Args:
      name: the case. Cases of our optimizers except AdagradDecay have one way, because
        tests/optimizers/test_every_optimizer.py tests them without Keras. Cases of `tf.contrib.opt`
        have one way, because our optimizers equal them bit for bit
        (tests/training_contrib/test_contrib.py).
      ways: all ways.
      count: the number of ways for AdagradDecay, and for cases that are neither ours nor of
        `tf.contrib.opt`.
    """
    ways = list(ways)
    if name in CONTRIB or (name in OURS and not name.startswith("AdagradDecay")):
        count = 1
    first = number_of(name)
    return [ways[(first + 2 * turn + turn // 2) % len(ways)] for turn in range(count)]


def number_of(name):
    """Returns a checksum of a case's name.

    Unlike the case's position in `CASES`, the checksum is the same on all lanes (environments with
    one TensorFlow version each).
    """
    return zlib.crc32(name.encode())
