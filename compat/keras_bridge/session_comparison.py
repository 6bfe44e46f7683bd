"""Runs a v1 optimizer in a Session and through `to_keras`, and finds the first difference."""

from __future__ import annotations

import contextlib
import functools
from typing import Any, NamedTuple, Optional, Tuple

import numpy as np
import tensorflow as tf

from legacy_opt.core import argument_checks
from legacy_opt.core.types import V1Optimizer

from .. import arrays
from ..v1_optimizers import inspection, nesting, owned_state, schedules, supported
from .bridge import to_keras

v1 = tf.compat.v1
_SHAPES = {"kernel": (6, 4), "bias": (4,), "table": (9, 3)}
_SPARSE = ("table",)


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

    def __bool__(self):
        return self.equal

    def __str__(self):
        if self.equal:
            what = f"{self.steps} steps of {', '.join(self.variables)}"
            left_out = [name for name in _SHAPES if name not in self.variables]
            note = (
                f" (without {', '.join(left_out)}: the optimizer has no sparse update)"
                if left_out
                else ""
            )
            return f"equal bit for bit: {what}, and all slots{note}"
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
    table's gradients contain repeated ids. If the learning rate is a decay such as
    `tf.compat.v1.train.exponential_decay`, the learning rate changes in both runs. If the learning
    rate is another function or a variable, both runs use its current value.

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
    wrapped = [type(each).__name__ for each in nesting.leaves(optimizer) if each is not optimizer]
    if wrapped:
        raise ValueError(
            f"compare_with_session cannot train {type(optimizer).__name__}, because it wraps other "
            f"optimizers. Compare them one by one: {', '.join(wrapped)}."
        )
    rates = inspection.learning_rate_attributes(optimizer, to_keras_arguments.get("lr_attr"))
    step = inspection.step_attribute(optimizer, to_keras_arguments.get("global_step_attr"), rates)
    problem = _Problem(optimizer, steps)
    expected = _session_run(_replica(optimizer, rates), rates, step, problem)
    make = functools.partial(to_keras, _replica(optimizer, rates), **to_keras_arguments)
    run = _function_run if tf.executing_eagerly() else _graph_run
    actual = run(make, problem)
    return _first_difference(expected, actual, problem)


class _Problem:
    """The starting values of the variables, and the gradients of each step."""

    def __init__(self, optimizer, steps):
        random = np.random.RandomState(0)
        shapes = dict(_SHAPES)
        if not _has_sparse_update(optimizer):
            for name in _SPARSE:
                del shapes[name]
        draw = lambda *shape: random.standard_normal(shape).astype(np.float32)  # noqa: E731
        self.values = {name: draw(*shape) for name, shape in shapes.items()}
        self.steps = [[self._gradient(name, random, draw) for name in shapes] for _ in range(steps)]

    def _gradient(self, name, random, draw):
        if name not in _SPARSE:
            return draw(*_SHAPES[name])
        ids = random.randint(0, _SHAPES[name][0], size=5)
        ids[-1] = ids[0]
        return draw(5, *_SHAPES[name][1:]), ids.astype(np.int64)

    def specs(self):
        """Yields the dtype and the shape of each placeholder."""
        for name, value in self.values.items():
            if name in _SPARSE:
                yield tf.float32, (None,) + value.shape[1:]
                yield tf.int64, (None,)
            else:
                yield tf.float32, value.shape

    def pairs(self, tensors, variables):
        """Yields (gradient, variable) pairs from a flat list of one step's tensors."""
        tensors = iter(tensors)
        for name, variable in variables.items():
            grad = next(tensors)
            if name in _SPARSE:
                grad = tf.IndexedSlices(grad, next(tensors), variable.shape)
            yield grad, variable


def _has_sparse_update(optimizer):
    cls, base = type(optimizer), inspection.BASE
    return (
        cls._resource_apply_sparse is not base._resource_apply_sparse
        or cls._resource_apply_sparse_duplicate_indices
        is not base._resource_apply_sparse_duplicate_indices
    )


def _replica(optimizer, rates):
    """Returns a copy without state. A learning rate other than a v1 decay becomes a number."""
    replica = owned_state.unbound_copy(optimizer)
    for attribute in rates:
        vars(replica)[attribute] = _portable(vars(replica)[attribute])
    return replica


def _portable(rate):
    if isinstance(rate, functools.partial):  # a v1 learning rate decay, bound to a global step
        return rate
    if callable(rate) and not argument_checks.is_tensor_like(rate):
        rate = rate()
    if argument_checks.is_tensor_like(rate):
        if not hasattr(rate, "numpy") or not tf.executing_eagerly():
            raise ValueError(
                f"compare_with_session needs a learning rate with a value, got {rate!r}. Pass "
                "an optimizer whose learning rate is a number."
            )
        rate = rate.numpy().item()
    return rate


def _session_run(optimizer, rates, step_attribute, problem):
    with tf.Graph().as_default() as graph:
        variables = {
            name: v1.get_variable(name, initializer=value, use_resource=True)
            for name, value in problem.values.items()
        }
        step = v1.train.get_or_create_global_step(graph)
        if step_attribute is not None:
            vars(optimizer)[step_attribute] = step
        for attribute in rates:
            rate = vars(optimizer)[attribute]
            if isinstance(rate, functools.partial):
                vars(optimizer)[attribute] = schedules.in_plain_numbers(rate.func)(step)
        inputs = [v1.placeholder(*spec) for spec in problem.specs()]
        train_op = optimizer.apply_gradients(list(problem.pairs(inputs, variables)), step)
        return _run(train_op, inputs, variables, optimizer, problem)


def _graph_run(make, problem):
    with tf.Graph().as_default():
        optimizer = make()  # Keras 3 creates its first variables here
        variables = _keras_variables(problem)
        inputs = [v1.placeholder(*spec) for spec in problem.specs()]
        train_op = optimizer.apply_gradients(list(problem.pairs(inputs, variables)))
        return _run(train_op, inputs, variables, optimizer, problem)


def _run(train_op, inputs, variables, optimizer, problem):
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        seen = []
        for step in problem.steps:
            session.run(train_op, dict(zip(inputs, tf.nest.flatten(step))))
            seen.append(session.run(variables))
        return seen, session.run(_slots(optimizer, variables))


def _function_run(make, problem):
    optimizer = make()
    variables = _keras_variables(problem)

    @tf.function(input_signature=[tf.TensorSpec(shape, kind) for kind, shape in problem.specs()])
    def train(*tensors):
        optimizer.apply_gradients(list(problem.pairs(tensors, variables)))

    seen = []
    for step in problem.steps:
        train(*map(tf.constant, tf.nest.flatten(step)))
        seen.append({name: variable.numpy() for name, variable in variables.items()})
    return seen, {key: slot.numpy() for key, slot in _slots(optimizer, variables).items()}


def _keras_variables(problem):
    return {name: tf.compat.v2.Variable(value, name=name) for name, value in problem.values.items()}


def _slots(optimizer, variables):
    found = {}
    for name, variable in variables.items():
        for slot_name in sorted(optimizer.get_slot_names()):
            with contextlib.suppress(KeyError):  # Keras raises this error for a missing slot
                found[f"{name}/{slot_name}"] = optimizer.get_slot(variable, slot_name)
    return {key: tf.convert_to_tensor(slot) for key, slot in found.items() if slot is not None}


def _first_difference(expected, actual, problem):
    names = tuple(problem.values)
    rounds = list(zip(expected[0], actual[0])) + [(expected[1], actual[1])]
    for number, (one, other) in enumerate(rounds, start=1):
        for name in one:
            if not arrays.same(one[name], other[name]):
                gap = arrays.largest_difference(one[name], other[name])
                step = min(number, len(problem.steps))
                return Comparison(False, len(problem.steps), names, step, name, gap)
    return Comparison(True, len(problem.steps), names)
