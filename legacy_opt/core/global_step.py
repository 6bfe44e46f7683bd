"""Finds, creates and checks the global step, the variable that counts training steps."""

from __future__ import annotations

import contextlib
import threading
from typing import Any, Iterable, Iterator, Optional

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core.types import GlobalStep, Operation, Tensor, Variable
from legacy_opt.core.user_warnings import GlobalStepWarning, warn

v1 = tf.compat.v1
_local = threading.local()  # `step` is the global step that surrounding wrappers will increment


@contextlib.contextmanager
def wrapper_increments(global_step: Optional[GlobalStep]) -> Iterator[None]:
    """Scope in which `step_of_wrapper` returns `global_step`; if None, that of an outer wrapper."""
    outer = step_of_wrapper()
    _local.step = outer if global_step is None else global_step
    try:
        yield
    finally:
        _local.step = outer


def step_of_wrapper() -> Optional[GlobalStep]:
    """Returns the global step that a wrapper around the caller will increment, or None."""
    return getattr(_local, "step", None)


def checked_for_overflow(optimizer_name: str, step: Tensor) -> Tensor:
    """Returns `step` with a runtime check that incrementing an int32 step will not overflow.

    With a negative step, Adam's ``beta**t`` would become infinite, and decays would restart or stay
    constant. An int64 step does not overflow in practice.
    """
    if step.dtype != tf.int32:
        return step
    message = (
        f"{optimizer_name}: an int32 global_step must be from 0 to {step.dtype.max - 1}, so "
        "that t = global_step + 1 does not overflow. Use int64, as "
        "tf.compat.v1.train.get_or_create_global_step() does. The value is"
    )  # Assert appends the value of `step`
    in_range = tf.logical_and(step >= 0, step < step.dtype.max)
    with tf.control_dependencies([tf.debugging.Assert(in_range, [message, step])]):
        return tf.identity(step)


@contextlib.contextmanager
def found_as_global_step(step: GlobalStep) -> Iterator[None]:
    """Scope in which TensorFlow finds a tensor or variable as the current graph's global step."""
    steps = v1.get_default_graph().get_collection_ref(v1.GraphKeys.GLOBAL_STEP)
    before = steps[:]
    steps[:] = [step]
    try:
        yield
    finally:
        steps[:] = before


def find_global_step() -> Any:
    """Returns the global step of the current graph or of an outer graph, or None."""
    step = _found_in(v1.get_default_graph())
    if step is None:
        with tf.init_scope():  # outside of the tf.function or branch that is being built
            step = _found_in(v1.get_default_graph())
    return step


def _found_in(graph: tf.Graph) -> Optional[GlobalStep]:
    step = global_step_of(graph)
    if step is not None and step.dtype.base_dtype.is_integer:
        return step
    # TensorFlow also finds a tensor named "global_step"; it raises a TypeError for other dtypes.
    return v1.train.get_global_step(graph)


def global_step_of(graph: tf.Graph) -> Optional[Variable]:
    """Returns the global step variable of a graph, or None.

    A scalar variable named "global_step" counts, too. Unlike `tf.compat.v1.train.get_global_step`,
    this function accepts floating point variables, and resource variables outside the collection.
    """
    steps = graph.get_collection(v1.GraphKeys.GLOBAL_STEP)
    if not steps:
        variables = graph.get_collection(v1.GraphKeys.GLOBAL_VARIABLES)
        steps = [each for each in variables if each.name == "global_step:0"]
    is_unique = len(steps) == 1 and isinstance(steps[0], tf.Variable)
    return steps[0] if is_unique and steps[0].shape.rank == 0 else None


def check_graph_of_step(optimizer_name: str, step: GlobalStep):
    """Raises a ValueError if a TF1 graph is being built, and `step` belongs to another graph."""
    in_tf1_graph = versions.building() in (versions.GRAPH, versions.CONTROL_FLOW)
    if in_tf1_graph and step.graph is not v1.get_default_graph():
        raise ValueError(
            f"{optimizer_name}: global_step={step!r} belongs to another graph than the one being "
            "built. Pass global_step=None to use the global step of each graph."
        )


def warn_if_step_is_constant(
    optimizer_name: str, argument: Any, step: Any, incremented_step: Optional[GlobalStep]
):
    """Warns if an optimizer, made with global_step=`argument`, reads a step that stays constant."""
    remedy = "Pass global_step=… to minimize() or apply_gradients()"
    if isinstance(argument, (int, float)):
        problem = f"reads the constant global_step={argument!r}"
        remedy = "Pass the graph's global step to the constructor: global_step=…"
    elif incremented_step is None:
        problem = "increments no global_step, because none was passed"
    else:
        if step is incremented_step or not isinstance(step, tf.Variable):
            return  # a tensor may be computed from the incremented variable
        if step.name == incremented_step.name and not tf.executing_eagerly():
            return  # the same variable; two eager variables may have the same name
        problem = f"reads the step {step.name}, but increments {incremented_step.name}"
    warn(
        f"{optimizer_name} {problem}. Unless something else increments the global step that the "
        "optimizer reads, bias corrections, decays and intervals stay constant. "
        f"{remedy}, or set optimizer.global_step_is_advanced = True.",
        GlobalStepWarning,
    )


def warn_if_step_is_not_counted(optimizer: Any, step: Tensor, operations: Iterable[Operation]):
    """Warns if the `operations` of `apply_gradients` (for example BERT's) do not use its `step`."""
    uses = {each.type for each in operations for tensor in each.inputs if tensor.op == step.op}
    is_only_read = uses <= {"Identity", "ReadVariableOp"}
    if is_only_read and not getattr(optimizer, "global_step_is_advanced", False):
        name = type(optimizer).__name__
        warn(
            f"{name}.apply_gradients does not increment its global_step. Unless something else "
            "increments it, schedules and max_steps stay where they are. Increment it there, or "
            f"set global_step_is_advanced = True in the {name}.",
            GlobalStepWarning,
        )


class NewStep:
    """Creates a global step if TensorFlow finds none, and stores the global step of eager code.

    The variable is stored, because TensorFlow may not find it later: if it is created while a
    `tf.function` is traced, only the traced graph lists it among its global steps.
    """

    def __init__(self):
        self._of_eager_code = None

    def get(self) -> Variable:
        """Returns the global step of the TF1 graph, or of eager code and all `tf.function`s."""
        with tf.init_scope():
            if not tf.executing_eagerly():
                return v1.train.get_or_create_global_step()
            if self._of_eager_code is None:
                self._of_eager_code = v1.train.create_global_step()
            return self._of_eager_code
