"""What an optimizer holds: other optimizers, whoever made either."""

import tensorflow as tf

from legacy_opt.wrappers.base import OptimizerWrapper

v1 = tf.compat.v1


def held_by(optimizer):
    """Returns the v1 optimizers in an optimizer's attributes, also those in lists there."""
    if isinstance(optimizer, OptimizerWrapper):
        return list(optimizer.wrapped)
    found = []
    for value in vars(optimizer).values():
        several = value if isinstance(value, (list, tuple)) else [value]
        found += [each for each in several if isinstance(each, v1.train.Optimizer)]
    return [each for each in found if each is not optimizer]


def all_held_by(optimizer):
    """Returns an optimizer, what it holds, what that holds, and so on: a list, each once."""
    waiting, found = [optimizer], {}
    while waiting:
        each = waiting.pop()
        if id(each) not in found:
            found[id(each)] = each
            waiting += held_by(each)
    return list(found.values())
