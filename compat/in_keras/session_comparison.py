"""Runs optimizers in a Session, through `to_keras` and in Keras.

`compare_with_session` finds the first difference between two runs; `KINDS` are targets of proofs.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any, Callable, Dict, Iterator, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import tensorflow as tf

from legacy_opt import CyclicalLearningRate, versions
from legacy_opt.core import argument_checks, contract
from legacy_opt.core.hyperparameters import takes_nothing
from legacy_opt.core.types import V1Optimizer, Variable
from legacy_opt.proofs.arguments import changes
from legacy_opt.proofs.targets import Steps, refuse_warm
from legacy_opt.recorded.proofs import drawing
from legacy_opt.recorded.proofs.proof import Arrays, Proof, ProofError, by_slot
from legacy_opt.recorded.proofs.reference import is_fresh

from .. import arrays
from . import side_by_side
from .bridge import to_keras
from .v1_optimizers import inspection, nesting, owned_state, schedules, supported

v1 = tf.compat.v1
_SHAPES = {"kernel": (6, 4), "bias": (4,), "table": (9, 3)}
_SPARSE = ("table",)
_Values = Dict[Tuple[int, str], np.ndarray]  # by steps and names of variables or slots


class Comparison(NamedTuple):
    """The result of `compare_with_session`; true if both runs are equal bit for bit.

    Attributes:
      equal: whether both runs have equal variables after each step and equal slots at the end.
      steps: how many training steps were run.
      variables: the names of the variables that were compared.
      step: the number of the first step after which the runs differ, counted from 1; None if equal.
      variable: the first variable or slot that differs, such as "table" or "table/momentum".
      difference: the largest absolute difference in this variable or slot.
    """

    equal: bool
    steps: int
    variables: Tuple[str, ...]
    step: Optional[int] = None
    variable: Optional[str] = None
    difference: float = 0.0

    def __bool__(self) -> bool:
        return self.equal

    def __str__(self) -> str:
        if self.equal:
            names = ", ".join(self.variables)
            text = f"equal bit for bit: {self.steps} steps of {names}, and all slots"
            left_out = [name for name in _SHAPES if name not in self.variables]
            if left_out:
                text += f" (without {', '.join(left_out)}: the optimizer has no sparse update)"
            return text
        return (
            f"different at step {self.step} of {self.steps}: {self.variable} by up to "
            f"{self.difference:g}"
        )


def compare_with_session(
    optimizer: V1Optimizer, steps: int = 20, **to_keras_arguments: Any
) -> Comparison:
    """Checks whether `to_keras(optimizer)` computes the same as `optimizer` in a Session.

    The first run trains with `optimizer` in a Session. The second run trains with
    `to_keras(optimizer)` in a `tf.function`, or in a Session if TensorFlow does not execute
    eagerly. Both runs train two dense variables and an embedding table with the same gradients. The
    table's gradients contain repeated ids. A hyperparameter that is a decay such as
    `tf.compat.v1.train.exponential_decay` changes in both runs. If a hyperparameter is another
    function without arguments, or a variable, both runs use its current value.

    Args:
      optimizer: a `tf.compat.v1.train.Optimizer` that does not wrap another optimizer. Copies of it
        are trained. If the optimizer has no sparse update, only the dense variables are compared.
      steps: how many training steps to run.
      **to_keras_arguments: arguments of `to_keras`: `api`, `lr_attr`, `global_step_attr`, `fused`.

    Returns:
      A `Comparison`.

    Raises:
      ValueError: `steps` is not positive, `optimizer` wraps another optimizer, or the learning
        rate is a tensor of a graph.
    """
    argument_checks.positive_integer("steps", steps)
    supported.check_class(optimizer)
    supported.check_methods(optimizer)  # no run below would call an overridden minimize
    wrapped = [type(each).__name__ for each in nesting.leaves(optimizer) if each is not optimizer]
    if wrapped:
        raise ValueError(
            f"compare_with_session cannot train {type(optimizer).__name__}, because it wraps other "
            f"optimizers. Compare them one by one: {', '.join(wrapped)}."
        )
    rates = inspection.learning_rate_attributes(optimizer, to_keras_arguments.get("lr_attr"))
    step = inspection.step_attribute(optimizer, to_keras_arguments.get("global_step_attr"), rates)
    problem = _problem(optimizer, steps)
    replica = _replica(optimizer, rates, step)
    with side_by_side.scope(in_session=True) as initialize:
        global_step = v1.train.get_or_create_global_step()
        if step is not None:
            vars(replica)[step] = global_step
        for attribute, value in vars(replica).items():
            if schedules.is_v1_decay(value):
                vars(replica)[attribute] = schedules.in_plain_numbers(value.func)(global_step)
        expected = _run(_session_training(replica, problem), initialize, problem)
    with side_by_side.scope() as initialize:  # in a graph, Keras 3 creates its first variables here
        bridged = to_keras(_replica(optimizer, rates, step), **to_keras_arguments)
        actual = _run(side_by_side.training(bridged, problem, named=True), initialize, problem)
    names = tuple(problem.values)
    for (number, name), one in expected.items():
        other = actual[number, name]
        if not arrays.same(one, other):
            difference = float(np.max(arrays.differences(one, other)))
            return Comparison(False, steps, names, number, name, difference)
    return Comparison(True, steps, names)


def _problem(optimizer: V1Optimizer, steps: int) -> side_by_side.Problem:
    updates = "_resource_apply_sparse", "_resource_apply_sparse_duplicate_indices"
    cls = type(optimizer)
    takes_sparse = any(getattr(cls, name) is not getattr(inspection.BASE, name) for name in updates)
    shapes = {name: _SHAPES[name] for name in _SHAPES if takes_sparse or name not in _SPARSE}
    return side_by_side.Problem(*drawing.inputs(np.random.RandomState(0), shapes, _SPARSE, steps))


def _replica(optimizer: V1Optimizer, rates: Sequence[str], step: Optional[str]) -> V1Optimizer:
    """Returns a copy without state. Hyperparameters other than v1 decays become numbers."""
    replica = owned_state.unbound_copy(optimizer)
    changeable = {"_" + name for name in inspection.constructor_arguments(type(replica))} | {*rates}
    for attribute in sorted(changeable.intersection(vars(replica)) - {step}):
        value = vars(replica)[attribute]
        if schedules.is_v1_decay(value) or isinstance(value, CyclicalLearningRate):
            continue
        value = value() if takes_nothing(value) else value
        if argument_checks.is_tensor_like(value):
            if not hasattr(value, "numpy") or not tf.executing_eagerly():
                raise ValueError(
                    f"compare_with_session needs hyperparameters with a value, but "
                    f"{attribute.lstrip('_')} is {value!r}. Pass an optimizer with numbers."
                )
            value = value.numpy().item()
        vars(replica)[attribute] = value
    return replica


def _session_training(optimizer: V1Optimizer, problem: side_by_side.Problem) -> Any:
    step = v1.train.get_or_create_global_step()
    arguments = contract.accepted(optimizer.apply_gradients, global_step=step)
    return side_by_side.training(optimizer, problem, named=True, **arguments)


def _run(training: Any, initialize: Callable[[], None], problem: side_by_side.Problem) -> _Values:
    """Returns the values of the variables after each step, and of the slots after the last."""
    initialize()
    found = {}
    for step, gradients in enumerate(problem.gradients, start=1):
        found.update(((step, name), each) for name, each in training.step(gradients).items())
    slots = {}
    for name, variable in training.variables.items():
        for slot_name in sorted(training.optimizer.get_slot_names()):
            with contextlib.suppress(KeyError):  # Keras raises this error for a missing slot
                slots[f"{name}/{slot_name}"] = training.optimizer.get_slot(variable, slot_name)
    tensors = {key: tf.convert_to_tensor(slot) for key, slot in slots.items() if slot is not None}
    last = len(problem.gradients)
    found.update(((last, name), each) for name, each in training.values(tensors).items())
    return found


def _train(make: Any, proof: Proof, steps: Steps, is_bridged: bool = False) -> Iterator[Arrays]:
    """Trains with a v1 optimizer in a Session or through `to_keras`, or with one of `tf.keras`."""
    is_v1 = not is_bridged and _is_v1(make, steps[0])
    if not (is_v1 or is_bridged):
        refuse_warm(proof)
    elif proof.record.dtype == "float64":
        raise ProofError("v1 optimizers compute scalars in float32")
    problem = side_by_side.Problem(proof.start.variables, proof.gradients)
    with side_by_side.scope(in_session=is_v1) as initialize:
        arguments, settable = dict(steps[0]), None if is_v1 else ("learning_rate", "lr")
        if is_v1:
            for name in {name for changed in changes(steps) for name in changed}:
                arguments[name] = tf.compat.v2.Variable(steps[0][name], trainable=False)
            if arguments.get("global_step", "") is None:
                arguments["global_step"] = v1.train.get_or_create_global_step()
        optimizer = make(**arguments)
        if is_v1:
            training = _session_training(optimizer, problem)
        else:
            optimizer = to_keras(optimizer) if is_bridged else optimizer
            training = side_by_side.training(optimizer, problem, named=True)
        if is_bridged:
            trained = [training.variables[name] for name in proof.start.slots]
            versions.create_optimizer_weights(optimizer, trained)
        initialize()
        slots = {}
        if is_v1 or is_bridged:
            slots = _begun(training, proof)
        for gradients, changed in zip(problem.gradients, changes(steps, settable)):
            for name, value in changed.items():
                if is_v1:
                    training.write(arguments[name], value)
                else:
                    optimizer.learning_rate = value
            yield training.step(gradients)
        if slots:
            values = training.values({name: tf.convert_to_tensor(x) for name, x in slots.items()})
            found = {name: np.array(x, "float64") for name, x in values.items()}
            yield {**by_slot(proof.start.slots), **found}


def _begun(training: side_by_side.Training, proof: Proof) -> Dict[str, Variable]:
    """Writes the state with which a proof starts; returns the slots that exist."""
    optimizer, start, graph = training.optimizer, proof.start, v1.get_default_graph()
    if isinstance(optimizer, v1.train.Optimizer):
        slot_of, step = optimizer.get_slot, v1.train.get_or_create_global_step()
        pairs = [(optimizer._get_non_slot_variable(x, graph), y) for x, y in start.shared.items()]
    else:
        slot_of, step = optimizer.existing_slot, optimizer.steps_done().variable
        pairs = [(optimizer.non_slots.get(x), y) for x, y in start.shared.items()]
    slots = {
        f"{name}/{slot}": slot_of(training.variables[name], slot)
        for name, each in start.slots.items()
        for slot in each
    }
    if not is_fresh(proof):
        pairs.append((step, start.global_step))
        for name, each in start.slots.items():
            if any(gradients.get(name) is not None for gradients in proof.gradients):
                pairs += [(slots[f"{name}/{slot}"], array) for slot, array in each.items()]
        if any(variable is None for variable, _ in pairs):
            refuse_warm(proof)
        for variable, value in pairs:
            training.write(variable, value)
    return {name: variable for name, variable in slots.items() if variable is not None}


def _is_v1(make: Callable[..., Any], arguments: Mapping[str, Any]) -> bool:
    if isinstance(make, type):
        return issubclass(make, v1.train.Optimizer)
    with tf.Graph().as_default():
        return isinstance(make(**arguments), v1.train.Optimizer)


# For `legacy_opt.proofs.targets.find`.
KINDS = {"tf": _train, "to_keras": functools.partial(_train, is_bridged=True)}
