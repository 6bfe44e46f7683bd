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
from legacy_opt.core.types import GradAndVar, Operation, Tensor, V1Optimizer


def replace(stack: contextlib.ExitStack, cls: Any, **functions: Callable[..., Any]) -> None:
    """Replaces methods of a class until the stack is closed. Functions get the method first."""
    for name, function in functions.items():
        method = vars(cls).get(name)
        if callable(method) and not hasattr(method, "is_replaced"):
            replaced = functools.wraps(method)(_with_method(function, method))
            replaced.is_replaced = True
            setattr(cls, name, replaced)
            stack.callback(setattr, cls, name, method)


def _with_method(function: Any, method: Any) -> Any:
    return lambda self, *args, **kwargs: function(method, self, *args, **kwargs)


class Update(NamedTuple):
    """A call of `apply_gradients`."""

    optimizer: V1Optimizer  # a copy, with the attributes that it had in the training step
    pairs: Sequence[GradAndVar]  # without those that have no gradient
    operation: Operation
    global_step: Any  # the variable that the optimizer reads, else the one that it increments


class Updates(List[Update]):
    """The updates of a script, in the order of the calls; `say` is called with problems."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__()
        self.losses: List[Tensor] = []  # of which gradients were computed
        self._say, self._depth = say, 0

    def watch(self, stack: contextlib.ExitStack) -> None:
        """Watches all optimizers that are made until the stack is closed."""

        def init(method: Any, optimizer: Any, *args: Any, **kwargs: Any) -> None:
            for cls in type(optimizer).__mro__:
                replace(stack, cls, apply_gradients=self._apply, compute_gradients=self._compute)
            method(optimizer, *args, **kwargs)

        replace(stack, V1Optimizer, __init__=init)

    def _compute(self, method: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        self.losses += [x for x in (*args[:1], kwargs.get("loss")) if isinstance(x, tf.Tensor)]
        return method(optimizer, *args, **kwargs)

    def _apply(
        self, method: Any, optimizer: Any, grads_and_vars: Any, *args: Any, **kwargs: Any
    ) -> Any:
        pairs = list(grads_and_vars)  # it may be an iterator
        count, self._depth = len(self), self._depth + 1
        try:
            result = method(optimizer, pairs, *args, **kwargs)
        finally:
            self._depth -= 1
        problem = _problem(result)
        if len(self) == count and not problem:  # else a call inside counts
            step = args[0] if args else kwargs.get("global_step")
            if getattr(optimizer, "uses_global_step", False):
                step = optimizer.global_step_variable()
            step = getattr(optimizer, "_global_step", None) if step is None else step
            pairs = [(grad, variable) for grad, variable in pairs if grad is not None]
            self.append(Update(copy.copy(optimizer), pairs, getattr(result, "op", result), step))
        elif len(self) == count and not self._depth:
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
