"""Watches the optimizers of a script: which operation trains which variables, by which gradients.

Optimizers call each other: a subclass calls `apply_gradients` of its base class, a wrapper that of
the optimizer inside it. The innermost call counts, because it gets the gradients as they are
applied. Within a condition or loop, tensors cannot be fetched: then the call around it counts.
"""

from __future__ import annotations

import contextlib
import copy
import functools
from typing import Any, Callable, List, NamedTuple, Sequence

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core.types import GradAndVar, Operation, Tensor, V1Optimizer, Variable

v1 = tf.compat.v1


def replace(
    stack: contextlib.ExitStack, cls: Any, name: str, function: Callable[..., Any]
) -> None:
    """Replaces a method until the stack is closed, by a function that gets the method first."""
    method = vars(cls).get(name)
    if not callable(method) or hasattr(method, "is_replaced"):
        return

    @functools.wraps(method)
    def replaced(self: Any, *args: Any, **kwargs: Any) -> Any:
        return function(method, self, *args, **kwargs)

    replaced.is_replaced = True
    setattr(cls, name, replaced)
    stack.callback(setattr, cls, name, method)


class Update(NamedTuple):
    """A call of `apply_gradients`."""

    optimizer: V1Optimizer  # a copy, with the attributes that it had in the training step
    pairs: Sequence[GradAndVar]  # without those that have no gradient
    operation: Operation
    global_step: Any  # the variable that the optimizer reads, else the one that it increments
    created: Sequence[Variable]  # the variables that the call created


class Updates(List[Update]):
    """The updates of a script, in the order of the calls; `say` is called with problems.

    Attributes:
      losses: the losses of which gradients were computed.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__()
        self.losses: List[Tensor] = []
        self._say, self._depth = say, 0

    def watch(self, stack: contextlib.ExitStack) -> None:
        """Watches all optimizers until the stack is closed, also those of new classes."""

        def watch_class(cls: Any) -> None:
            replace(stack, cls, "apply_gradients", self._apply_gradients)
            replace(stack, cls, "compute_gradients", self._compute_gradients)

        def init_subclass(cls: Any, **kwargs: Any) -> None:
            super(V1Optimizer, cls).__init_subclass__(**kwargs)
            watch_class(cls)

        waiting = [V1Optimizer]
        while waiting:
            cls = waiting.pop()
            watch_class(cls)
            waiting += cls.__subclasses__()
        V1Optimizer.__init_subclass__ = classmethod(init_subclass)
        stack.callback(delattr, V1Optimizer, "__init_subclass__")

    def _compute_gradients(self, method: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        self.losses += [x for x in (*args[:1], kwargs.get("loss")) if isinstance(x, tf.Tensor)]
        return method(optimizer, *args, **kwargs)

    def _apply_gradients(
        self, method: Any, optimizer: Any, grads_and_vars: Any, *args: Any, **kwargs: Any
    ) -> Any:
        pairs = list(grads_and_vars)  # it may be an iterator
        count, before = len(self), {id(each) for each in v1.global_variables()}
        self._depth += 1
        try:
            result = method(optimizer, pairs, *args, **kwargs)
        finally:
            self._depth -= 1
        if len(self) > count:  # by a call inside
            return result
        problem = _problem(result)
        if not problem:
            step = args[0] if args else kwargs.get("global_step")
            if getattr(optimizer, "uses_global_step", False):
                step = optimizer.global_step_variable()
            update = Update(
                copy.copy(optimizer),
                [(grad, variable) for grad, variable in pairs if grad is not None],
                getattr(result, "op", result),
                getattr(optimizer, "_global_step", None) if step is None else step,
                [each for each in v1.global_variables() if id(each) not in before],
            )
            self.append(update)
        elif not self._depth:
            self._say(f"{type(optimizer).__name__} is not recorded: {problem}")
        return result


def _problem(result: Any) -> str:
    """Returns why an update cannot be recorded; "" if it can."""
    if tf.executing_eagerly():
        return "it trains eagerly, and not in a Session"
    if versions.building() != "graph":
        return "its update is inside of a condition, a loop or a function"
    if tf.distribute.has_strategy():
        return "it trains with a distribution strategy"
    if not hasattr(result, "op") and not isinstance(result, tf.Operation):
        return f"its apply_gradients returns {type(result).__name__}, and no operation"
    return ""
