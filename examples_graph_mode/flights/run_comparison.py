"""Collects the results of a training, and compares the results of two trainings bit for bit."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from flights.training import Trainer


class Run(NamedTuple):
    """The results of a training.

    Attributes:
      predictions: the predicted probability of each flight, float32 [flights]. Each prediction is
        made before the training on its flight.
      variables: dict from the variable name in the TF1 graph, without scope, to the value at the
        end.
      slots: dict from (variable name, slot name) to the value at the end.
    """

    predictions: np.ndarray
    variables: dict
    slots: dict


def make_trainer(flights, settings, batch_size, scope=None):
    """Returns a `Trainer` whose TF1 graph has ref variables, the default of TensorFlow 1.

    The variable scope is `scope`, or the optimizer's name.
    """
    before = tf.compat.v1.resource_variables_enabled()
    tf.compat.v1.disable_resource_variables()
    try:
        return Trainer(flights, {scope or settings.optimizer: settings}, batch_size)
    finally:
        if before:
            tf.compat.v1.enable_resource_variables()


def run_of_session(predictions, trainer, session):
    """Returns a `Run` with the current values of a trainer that has only one tower."""
    (tower,) = trainer.towers
    variables = {variable.op.name.split("/")[-1]: variable for variable in tower.variables}
    slots = {
        (name, slot): tower.optimizer.get_slot(variable, slot)
        for slot in tower.optimizer.get_slot_names()
        for name, variable in variables.items()
    }
    values = dict(zip(slots, session.run(list(slots.values()))))
    return Run(predictions, session.run(variables), values)


def first_difference(one, other, batch_size, names=("the Session", "Keras")):
    """Returns a sentence about the first difference of two `Run`s, or None if they are equal.

    Args:
      one: a `Run`.
      other: another `Run`.
      batch_size: flights per step.
      names: names of the two runs, for the sentence.
    """
    if not np.array_equal(one.predictions, other.predictions):
        flight = int(np.argmax(one.predictions != other.predictions))
        found = [str(run.predictions[flight]) for run in (one, other)]  # in digits of float32
        return (
            f"The prediction of flight {flight}, in step {flight // batch_size}, is "
            f"{found[0]} in {names[0]} and {found[1]} in {names[1]}."
        )
    for kind in ("variables", "slots"):
        ours, theirs = getattr(one, kind), getattr(other, kind)
        if set(ours) != set(theirs):
            return f"The {kind} of {names[0]} are {sorted(ours)}, of {names[1]} {sorted(theirs)}."
        for name, value in ours.items():
            if not np.array_equal(value, theirs[name]):
                difference = how_much(value, theirs[name], names)
                return f"Of the {kind}, {name} differs: {difference}."
    return None


def how_much(one, two, names=("the Session", "Keras")):
    """Returns in words how much two unequal arrays differ."""
    if one.shape != two.shape:
        return f"its shape is {one.shape} in {names[0]} and {two.shape} in {names[1]}"
    gap = np.abs(one.astype(np.float64) - two)
    return f"{np.sum(one != two)} of {one.size} numbers, by up to {gap.max():.3g}"
