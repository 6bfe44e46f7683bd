"""The optimizers of the flights examples, with their arguments and learning rates.

`flights_session.py` compares three of the optimizers in detail, `compare_optimizers.py` compares
all of them. The learning rates are the best of sweeps on January to June, by
`compare_optimizers.py --sweep` and `flights_session.py --sweep` of commit 1eca502; a comment says
where it is another. TensorFlow Addons' optimizers and Lion were swept later, in steps of a factor
of 1.6. For a new optimizer, compare a few rates with `--learning-rate` and `--steps 2511`, which
ends with June.
"""

from typing import Any, Callable, NamedTuple, Optional

import tensorflow.compat.v1 as tf

import legacy_opt

# Weight decay per training step; like in tf.contrib, it is not multiplied by the learning rate.
DECAY_PER_STEP = 1e-5
# Arguments of BERT's optimizers. This weight decay is multiplied by the learning rate.
BERT = {"weight_decay_rate": 0.01, "exclude_from_weight_decay": ["bias"]}


class Choice(NamedTuple):
    """An optimizer and its arguments.

    Attributes:
      make: a function from `Settings` and the global step to the optimizer.
      learning_rate: the default; None if the optimizer has no learning rate.
      stock: whether the optimizer is one of TensorFlow's own, which are shown for comparison.
    """

    make: Callable[[Any, Any], Any]
    learning_rate: Optional[float]
    stock: bool = False


def adagrad_decay(optimizer):
    """Returns a `Choice.make` for AdagradDecay or AdagradDecayV2.

    DeepRec's default decay step of 100,000 is for months of training data. The training here ends
    after 5,115 batches, so with the default nothing would decay, and AdagradDecay would compute the
    same as Adagrad.
    """
    return lambda settings, step: optimizer(
        settings.learning_rate,
        step,
        accumulator_decay_step=settings.decay_step,
        accumulator_decay_rate=settings.decay_rate,
    )


def plain(optimizer, **arguments):
    """Returns a `Choice.make` for an optimizer without the argument `global_step`."""
    return lambda settings, step: optimizer(learning_rate=settings.learning_rate, **arguments)


def stepped(optimizer, **arguments):
    """Returns a `Choice.make` for an optimizer with the argument `global_step`."""
    return lambda settings, step: optimizer(
        global_step=step, learning_rate=settings.learning_rate, **arguments
    )


def decaying(optimizer, **arguments):
    """Returns a `Choice.make` for an optimizer with decoupled weight decay."""
    return plain(optimizer, weight_decay=DECAY_PER_STEP, **arguments)


def cocob(settings, step):
    """Returns COCOB, which has no learning rate."""
    return legacy_opt.COCOBOptimizer()


def adafactor(settings, step):
    """Returns Adafactor with its usual decay rate, which depends on the global step."""
    decay_rate = legacy_opt.adafactor_decay_rate_pow(0.8)(step)
    return legacy_opt.AdafactorOptimizer(
        learning_rate=settings.learning_rate, decay_rate=decay_rate
    )


AdagradWOptimizer = legacy_opt.extend_with_decoupled_weight_decay(tf.train.AdagradOptimizer)

# The optimizers of each of these groups compute the same, and have the same learning rate:
# AdagradDecay and AdagradDecayV2; Adagrad and RegAdagrad; LazyAdam, LazyAdamGS and AdamAsync; Adam
# and AdamGS.
CATALOGUE = {
    # Adagrad and its relatives
    "Adagrad": Choice(plain(tf.train.AdagradOptimizer), 0.391, stock=True),
    "AdagradDecay": Choice(adagrad_decay(legacy_opt.AdagradDecayOptimizer), 0.323),
    "AdagradDecayV2": Choice(adagrad_decay(legacy_opt.AdagradDecayOptimizerV2), 0.323),
    "RegAdagrad": Choice(plain(legacy_opt.RegAdagradOptimizer), 0.391),
    "AdagradW": Choice(decaying(AdagradWOptimizer), 0.399),
    "Ftrl": Choice(plain(tf.train.FtrlOptimizer), 0.399, stock=True),
    # Shampoo's rate is not from a sweep: a step takes 20 times as long as with other optimizers.
    "Shampoo": Choice(stepped(legacy_opt.ShampooOptimizer), 0.3),
    # Adam for the rows of the batch
    "LazyAdam": Choice(plain(legacy_opt.LazyAdamOptimizer), 0.00378),
    "LazyAdamGS": Choice(stepped(legacy_opt.LazyAdamGSOptimizer), 0.00378),
    "AdamAsync": Choice(plain(legacy_opt.AdamAsyncOptimizer), 0.00378),
    "AdaMax": Choice(plain(legacy_opt.AdaMaxOptimizer), 0.015),
    "DiffGrad": Choice(plain(legacy_opt.DiffGradOptimizer), 0.00949),
    # Adam for whole tables
    "Adam": Choice(plain(tf.train.AdamOptimizer), 0.00378, stock=True),
    "AdamGS": Choice(stepped(legacy_opt.AdamGSOptimizer), 0.00378),
    "AdamW": Choice(decaying(legacy_opt.AdamWOptimizer), 0.00238),
    "Nadam": Choice(plain(legacy_opt.NadamOptimizer), 0.00599),
    # TensorFlow Addons'
    "RectifiedAdam": Choice(plain(legacy_opt.RectifiedAdamOptimizer), 0.00949),
    "AdaBelief": Choice(plain(legacy_opt.AdaBeliefOptimizer), 0.015),
    "NovoGrad": Choice(plain(legacy_opt.NovoGradOptimizer), 0.00239),
    "Yogi": Choice(plain(legacy_opt.YogiOptimizer), 0.00949),
    # BERT's and tensor2tensor's
    "AdamWeightDecay": Choice(plain(legacy_opt.AdamWeightDecayOptimizer, **BERT), 0.0015),
    "LAMB": Choice(plain(legacy_opt.LAMBOptimizer, **BERT), 0.00501),
    "Adafactor": Choice(adafactor, 0.0599),
    # Without a learning rate, and inside a ball
    "COCOB": Choice(cocob, None),
    "ConditionalGradient": Choice(
        plain(legacy_opt.ConditionalGradientOptimizer, lambda_=100.0), 0.9995
    ),
    # Momentum and signs
    "SGD": Choice(plain(tf.train.GradientDescentOptimizer), 0.267, stock=True),
    "MomentumW": Choice(decaying(legacy_opt.MomentumWOptimizer, momentum=0.9), 0.00397),
    "LARS": Choice(plain(legacy_opt.LARSOptimizer), 0.015),
    "AddSign": Choice(plain(legacy_opt.AddSignOptimizer), 0.1),
    "PowerSign": Choice(plain(legacy_opt.PowerSignOptimizer), 0.1),
    "Lion": Choice(plain(legacy_opt.LionOptimizer), 0.000949),
}
