"""The optimizers of the flights examples, with their arguments and learning rates.

`flights_session.py` compares three of the optimizers in detail, `compare_optimizers.py` compares
all of them.
"""

from typing import Any, Callable, NamedTuple, Tuple

import tensorflow.compat.v1 as tf

import legacy_opt

# Weight decay per training step; like in tf.contrib, it is not multiplied by the learning rate.
DECAY_PER_STEP = 1e-5
# BERT's weight decay, which is multiplied by the learning rate.
DECAY_RATE_OF_BERT = 0.01


class Choice(NamedTuple):
    """An optimizer and its arguments.

    Attributes:
      family: the group in which plots show the optimizer.
      make: a function from `Settings` and the global step to the optimizer.
      learning_rate: the default, which is the best rate of `compare_optimizers.py --sweep` on
        January to June. For Adagrad, AdagradDecay and SGD it is the best rate of
        `flights_session.py --sweep`. Comments at `CATALOGUE` explain exceptions.
      rates: lower and upper end of the range from which a sweep takes learning rates.
      stock: whether the optimizer is one of TensorFlow's own, which are shown for comparison.
    """

    family: str
    make: Callable[[Any, Any], Any]
    learning_rate: float
    rates: Tuple[float, float]
    stock: bool = False


def adagrad_decay(optimizer):
    """Returns a `Choice.make` for AdagradDecay or AdagradDecayV2.

    DeepRec's default decay step of 100,000 is for months of training data. The training here ends
    after 5,115 batches, so with the default nothing would decay, and AdagradDecay would compute the
    same as Adagrad.
    """

    def make(settings, step):
        return optimizer(
            settings.learning_rate,
            step,
            accumulator_decay_step=settings.decay_step,
            accumulator_decay_rate=settings.decay_rate,
        )

    return make


def plain(optimizer, **arguments):
    """Returns a `Choice.make` for an optimizer without the argument `global_step`."""
    return lambda settings, step: optimizer(learning_rate=settings.learning_rate, **arguments)


def stepped(optimizer, **arguments):
    """Returns a `Choice.make` for an optimizer with the argument `global_step`."""
    return lambda settings, step: optimizer(
        global_step=step, learning_rate=settings.learning_rate, **arguments
    )


def adafactor(settings, step):
    """Returns Adafactor with its usual decay rate, which depends on the global step."""
    decay_rate = legacy_opt.adafactor_decay_rate_pow(0.8)(step)
    return legacy_opt.AdafactorOptimizer(
        learning_rate=settings.learning_rate, decay_rate=decay_rate
    )


ADAGRAD, LAZY, DENSE = "Adagrad's", "Adam's, rows of the batch", "Adam's, whole tables"
NORMS, MOMENTUM = "BERT's and tensor2tensor's", "Momentum's and signs"

AdagradWOptimizer = legacy_opt.extend_with_decoupled_weight_decay(tf.train.AdagradOptimizer)

# The optimizers of each of these groups compute the same, and have the same learning rate:
# AdagradDecay and AdagradDecayV2; Adagrad and RegAdagrad; LazyAdam, LazyAdamGS and AdamAsync; Adam
# and AdamGS.
CATALOGUE = {
    "Adagrad": Choice(ADAGRAD, plain(tf.train.AdagradOptimizer), 0.391, (0.02, 2.0), stock=True),
    "AdagradDecay": Choice(
        ADAGRAD, adagrad_decay(legacy_opt.AdagradDecayOptimizer), 0.323, (0.02, 2.0)
    ),
    "AdagradDecayV2": Choice(
        ADAGRAD, adagrad_decay(legacy_opt.AdagradDecayOptimizerV2), 0.323, (0.02, 2.0)
    ),
    "RegAdagrad": Choice(ADAGRAD, plain(legacy_opt.RegAdagradOptimizer), 0.391, (0.02, 2.0)),
    "AdagradW": Choice(
        ADAGRAD, plain(AdagradWOptimizer, weight_decay=DECAY_PER_STEP), 0.399, (0.02, 2.0)
    ),
    "Ftrl": Choice(ADAGRAD, plain(tf.train.FtrlOptimizer), 0.399, (0.02, 2.0), stock=True),
    # Shampoo's rate is not from a sweep: a step takes 20 times as long as with other optimizers.
    "Shampoo": Choice(ADAGRAD, stepped(legacy_opt.ShampooOptimizer), 0.3, (0.02, 2.0)),
    "LazyAdam": Choice(LAZY, plain(legacy_opt.LazyAdamOptimizer), 0.00378, (0.0003, 0.03)),
    "LazyAdamGS": Choice(LAZY, stepped(legacy_opt.LazyAdamGSOptimizer), 0.00378, (0.0003, 0.03)),
    "AdamAsync": Choice(LAZY, plain(legacy_opt.AdamAsyncOptimizer), 0.00378, (0.0003, 0.03)),
    "AdaMax": Choice(LAZY, plain(legacy_opt.AdaMaxOptimizer), 0.015, (0.0003, 0.03)),
    "DiffGrad": Choice(LAZY, plain(legacy_opt.DiffGradOptimizer), 0.00949, (0.0003, 0.03)),
    "Adam": Choice(DENSE, plain(tf.train.AdamOptimizer), 0.00378, (0.0003, 0.03), stock=True),
    "AdamGS": Choice(DENSE, stepped(legacy_opt.AdamGSOptimizer), 0.00378, (0.0003, 0.03)),
    "AdamW": Choice(
        DENSE,
        plain(legacy_opt.AdamWOptimizer, weight_decay=DECAY_PER_STEP),
        0.00238,
        (0.0003, 0.03),
    ),
    "Nadam": Choice(DENSE, plain(legacy_opt.NadamOptimizer), 0.00599, (0.0003, 0.03)),
    "AdamWeightDecay": Choice(
        NORMS,
        plain(
            legacy_opt.AdamWeightDecayOptimizer,
            weight_decay_rate=DECAY_RATE_OF_BERT,
            exclude_from_weight_decay=["bias"],
        ),
        0.0015,
        (0.0003, 0.03),
    ),
    "LAMB": Choice(
        NORMS,
        plain(
            legacy_opt.LAMBOptimizer,
            weight_decay_rate=DECAY_RATE_OF_BERT,
            exclude_from_weight_decay=["bias"],
        ),
        0.00501,
        (0.001, 0.1),
    ),
    "Adafactor": Choice(NORMS, adafactor, 0.0599, (0.003, 0.3)),
    "SGD": Choice(
        MOMENTUM, plain(tf.train.GradientDescentOptimizer), 0.267, (0.02, 2.0), stock=True
    ),
    "MomentumW": Choice(
        MOMENTUM,
        plain(legacy_opt.MomentumWOptimizer, weight_decay=DECAY_PER_STEP, momentum=0.9),
        0.00397,
        (0.0005, 0.05),
    ),
    "LARS": Choice(MOMENTUM, plain(legacy_opt.LARSOptimizer), 0.015, (0.003, 0.3)),
    "AddSign": Choice(MOMENTUM, plain(legacy_opt.AddSignOptimizer), 0.1, (0.02, 2.0)),
    "PowerSign": Choice(MOMENTUM, plain(legacy_opt.PowerSignOptimizer), 0.1, (0.02, 2.0)),
}
