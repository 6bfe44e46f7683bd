"""What a training leaves behind, and the comparison of two of them, bit for bit."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from flights.training import Trainer


class Run(NamedTuple):
    """What one of the two trainings left behind.

    Attributes:
      predictions: float32 [flights], each made before its flight was learned from.
      variables: dict from the session example's variable name to the value at the end.
      slots: dict from (variable name, slot name) to the value at the end.
    """

    predictions: np.ndarray
    variables: dict
    slots: dict


def make_trainer(flights, settings, batch_size, scope=None):
    """Builds the TF1 graph with the ref variables that a TF1 program has.

    Its variable scope is `scope`, or the optimizer's name.
    """
    before = tf.compat.v1.resource_variables_enabled()
    tf.compat.v1.disable_resource_variables()
    try:
        return Trainer(flights, {scope or settings.optimizer: settings}, batch_size)
    finally:
        if before:
            tf.compat.v1.enable_resource_variables()


def run_of_session(predictions, trainer, session):
    """Returns the `Run` of a trainer's only tower that ends with its values in the session."""
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
    """Compares two `Run`s: a sentence on the first difference, or None if there is none.

    Args:
      one: a `Run`.
      other: another.
      batch_size: flights per step.
      names: what the sentence calls them.
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
    """Says how much two unequal arrays differ."""
    if one.shape != two.shape:
        return f"its shape is {one.shape} in {names[0]} and {two.shape} in {names[1]}"
    gap = np.abs(one.astype(np.float64) - two)
    return f"{np.sum(one != two)} of {one.size} numbers, by up to {gap.max():.3g}"
