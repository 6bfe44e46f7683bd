"""Converts checkpoints of Addons' optimizers, and goes on training from them without Addons."""

import os
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

import legacy_opt
from legacy_opt import compat
from legacy_opt.compat.cli import main
from tests.addons import trainings

v1 = tf.compat.v1
BEFORE, AFTER = 3, 5  # steps before and after the checkpoint


class Case(NamedTuple):
    """An optimizer of Addons, and the one that goes on from its checkpoints.

    Attributes:
      theirs: a function from `tfa.optimizers` to the optimizer.
      ours: a function without arguments that returns the optimizer of v1.
      bound: the largest difference of the values; 0 for equal bits.
      without: names of variables that Addons' class cannot train.
    """

    theirs: Any
    ours: Any
    bound: float
    without: tuple = ()


def sgd():
    return v1.train.GradientDescentOptimizer(0.1)


# The powers of beta that Addons computes differ in the last bits from products.
POWERS = 2e-6
CASES = {
    "AdamW": Case(
        lambda tfa: tfa.AdamW(0.01, 0.1, epsilon=1e-8),
        lambda: legacy_opt.AdamWOptimizer(0.01, 0.1),
        POWERS,
    ),
    "LAMB": Case(
        lambda tfa: tfa.LAMB(0.1, weight_decay=0.01),
        lambda: legacy_opt.LAMBOptimizer(0.1, weight_decay_rate=0.01),
        POWERS,
    ),
    "LazyAdam": Case(
        lambda tfa: tfa.LazyAdam(0.1, epsilon=1e-8),
        lambda: legacy_opt.LazyAdamOptimizer(0.1),
        POWERS,
    ),
    "MovingAverage": Case(
        lambda tfa: tfa.MovingAverage(trainings.KERAS.SGD(0.1), 0.9),
        lambda: legacy_opt.MovingAverageOptimizer(sgd(), 0.9),
        0,
    ),
    "MovingAverage(LazyAdam)": Case(
        lambda tfa: tfa.MovingAverage(tfa.LazyAdam(0.1, epsilon=1e-8), 0.9),
        lambda: legacy_opt.MovingAverageOptimizer(legacy_opt.LazyAdamOptimizer(0.1), 0.9),
        POWERS,
    ),
    "ProximalAdagrad": Case(
        lambda tfa: tfa.ProximalAdagrad(0.1, 0.1, 0.01, 0.02),
        lambda: v1.train.ProximalAdagradOptimizer(0.1, 0.1, 0.01, 0.02),
        0,
    ),
    "LossScaleOptimizer(ProximalAdagrad)": Case(
        lambda tfa: scaled(tfa.ProximalAdagrad(0.1)),
        lambda: v1.train.ProximalAdagradOptimizer(0.1),
        0,
    ),
    "RectifiedAdam": Case(
        lambda tfa: tfa.RectifiedAdam(0.1, amsgrad=True),
        lambda: legacy_opt.RectifiedAdamOptimizer(0.1, amsgrad=True),
        0,
    ),
    "AdaBelief": Case(
        lambda tfa: tfa.AdaBelief(0.1), lambda: legacy_opt.AdaBeliefOptimizer(0.1), 0
    ),
    "Yogi": Case(lambda tfa: tfa.Yogi(0.1), lambda: legacy_opt.YogiOptimizer(0.1), 0),
    "NovoGrad": Case(lambda tfa: tfa.NovoGrad(0.1), lambda: legacy_opt.NovoGradOptimizer(0.1), 0),
    "COCOB": Case(
        lambda tfa: tfa.COCOB(), lambda: legacy_opt.COCOBOptimizer(), 0, without=("table",)
    ),
    "ConditionalGradient": Case(
        lambda tfa: tfa.ConditionalGradient(0.1, 1.0, ord="fro"),
        lambda: legacy_opt.ConditionalGradientOptimizer(0.1, 1.0, ord="fro"),
        0,
    ),
    "Lookahead": Case(
        lambda tfa: tfa.Lookahead(tfa.RectifiedAdam(0.1), 4),
        lambda: legacy_opt.LookaheadOptimizer(legacy_opt.RectifiedAdamOptimizer(0.1), 4),
        0,
    ),
    "SWA": Case(
        lambda tfa: tfa.SWA(trainings.KERAS.SGD(0.1), 1, 2),
        lambda: legacy_opt.SWAOptimizer(sgd(), 1, 2),
        0,
    ),
}


def scaled(optimizer):
    """Returns the optimizer in a LossScaleOptimizer, which does not scale."""
    return tf.keras.mixed_precision.LossScaleOptimizer(optimizer, dynamic=False, initial_scale=1)


def exists(name):
    """Whether this package has all classes of a case."""
    try:
        CASES[name].ours()
    except AttributeError as error:
        assert "module 'legacy_opt' has no attribute" in str(error)
        return False
    return True


def names_of(case):
    return [name for name in trainings.SHAPES if name not in case.without]


def new_variables(case):
    variables = trainings.new_variables()
    return {name: variables[name] for name in names_of(case)}


def write(case, folder, tfa):
    """Trains with Addons; writes a checkpoint, and the values after each later step.

    Returns:
      A dict from (variable, slot) to the values at the time of the checkpoint.
    """
    variables, optimizer = new_variables(case), case.theirs(tfa)
    trainings.train(optimizer, variables, steps=BEFORE)
    path = os.path.join(folder, "theirs")
    tf.train.Checkpoint(optimizer=optimizer, **variables).write(path)
    slots = {
        (name, slot): optimizer.get_slot(variable, slot).numpy()
        for name, variable in variables.items()
        for slot in optimizer.get_slot_names()
    }
    later = trainings.train(optimizer, variables, first=BEFORE, steps=AFTER)
    np.savez(path, **{f"{n}/{name}": step[name] for n, step in enumerate(later) for name in step})
    return slots


def convert(case, folder):
    """Converts the checkpoint; returns the exit code of `legacy-opt convert`."""
    source, destination = (os.path.join(folder, each) for each in ("theirs", "ours"))
    words = ["convert", source, destination, "--to", "v1", "--overwrite"]
    # The command imports the optimizer; its name cannot be a key with brackets.
    chosen.make = case.ours
    return main([*words, "--optimizer", "tests.addons.carried_on:chosen"])


def chosen():
    """Returns the optimizer for `legacy-opt convert --optimizer`."""
    return chosen.make()


def in_graph(case, folder):
    """Returns the values after each step in a Session that restores the converted checkpoint."""
    with tf.Graph().as_default(), v1.Session() as session:
        variables = {
            name: v1.get_variable(name, trainings.SHAPES[name], use_resource=True)
            for name in names_of(case)
        }
        step = v1.train.get_or_create_global_step()
        feeds, pairs = {}, []
        for name, variable in variables.items():
            rows = len(trainings.IDS) if name == "table" else trainings.SHAPES[name][0]
            feeds[name] = v1.placeholder(tf.float32, [rows, *trainings.SHAPES[name][1:]])
            grad = feeds[name]
            if name == "table":
                ids, shape = tf.constant(trainings.IDS), tf.constant(trainings.SHAPES[name])
                grad = tf.IndexedSlices(grad, ids, shape)
            pairs.append((grad, variable))
        train = case.ours().apply_gradients(pairs, global_step=step)
        v1.train.Saver().restore(session, os.path.join(folder, "ours"))
        found = []
        for number in range(BEFORE, BEFORE + AFTER):
            values = trainings.gradient_values(number, variables)
            session.run(train, {feeds[name]: value for name, value in values.items()})
            found.append(session.run(variables))
        assert session.run(step) == BEFORE + AFTER
        return found


def in_keras(case, folder):
    """Returns the values after each step in Keras, which loads the converted checkpoint."""
    variables, optimizer = new_variables(case), compat.to_keras(case.ours())
    for variable in variables.values():
        variable.assign(tf.zeros_like(variable))
    compat.load_v1_checkpoint(os.path.join(folder, "ours"), variables, optimizer)
    return trainings.train(optimizer, variables, first=BEFORE, steps=AFTER)


def check(name, folder):
    """Converts the checkpoint, goes on from it, and compares each step with Addons."""
    case = CASES[name]
    assert convert(case, folder) == 0
    with np.load(os.path.join(folder, "theirs.npz")) as file:
        expected = [
            {key: file[f"{number}/{key}"] for key in names_of(case)} for number in range(AFTER)
        ]
    for train in in_graph, in_keras:
        found = train(case, folder)
        difference = trainings.largest_difference(expected, found)
        assert difference <= case.bound, f"{train.__name__}: {difference}"
