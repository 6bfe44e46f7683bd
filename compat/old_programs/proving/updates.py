"""Watches the optimizers of a script: which operation trains which variables, by which gradients.

Optimizers call each other: a subclass calls `apply_gradients` of its base class, a wrapper that of
the optimizer inside it. The innermost call counts, because it gets the gradients as they are
applied. Within a condition or loop, tensors cannot be fetched: then the call around it counts.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import threading
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core.types import GradAndVar, Operation, Tensor, V1Optimizer, Variable

v1 = tf.compat.v1


class Update(NamedTuple):
    """A call of `apply_gradients`."""

    optimizer: V1Optimizer  # a copy, with the attributes that it had in the training step
    pairs: Sequence[GradAndVar]  # without those that have no gradient
    operation: Operation
    loss: Optional[Tensor]
    global_step: Any  # the variable that the optimizer reads, else the one that it increments
    decayed: Optional[List[str]]  # the names of the decayed variables; None for all
    created: Sequence[Variable]  # the variables that the call created


class Updates(List[Update]):
    """The updates of a script, in the order of the calls; `say` is called with problems."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__()
        self._say = say
        self._losses: Dict[int, Tensor] = {}  # by ids of optimizers; 0 for the last of all
        self._threads = threading.local()

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Scope that watches all optimizers, also those of classes that are defined in it."""
        replaced: List[Tuple[Any, str, Any]] = []
        watch_class = functools.partial(self._watch_class, replaced)

        def init_subclass(cls: Any, **kwargs: Any) -> None:
            super(V1Optimizer, cls).__init_subclass__(**kwargs)
            watch_class(cls)

        waiting = [V1Optimizer]
        while waiting:
            cls = waiting.pop()
            watch_class(cls)
            waiting += cls.__subclasses__()
        V1Optimizer.__init_subclass__ = classmethod(init_subclass)
        try:
            yield
        finally:
            del V1Optimizer.__init_subclass__
            for cls, name, method in replaced:
                setattr(cls, name, method)

    def _watch_class(self, replaced: List[Tuple[Any, str, Any]], cls: Any) -> None:
        watched = {"apply_gradients": self._apply_gradients, "compute_gradients": self._gradients}
        for name, function in watched.items():
            method = vars(cls).get(name)
            if callable(method) and not hasattr(method, "is_watched"):
                wrapped = functools.wraps(method)(_method(function, method))
                wrapped.is_watched = True
                setattr(cls, name, wrapped)
                replaced.append((cls, name, method))

    def _gradients(self, method: Any, optimizer: Any, args: Tuple[Any, ...], kwargs: Any) -> Any:
        loss = args[0] if args else kwargs.get("loss")
        if isinstance(loss, tf.Tensor):
            self._losses[id(optimizer)] = self._losses[0] = loss
        return method(optimizer, *args, **kwargs)

    def _apply_gradients(self, method: Any, optimizer: Any, args: Any, kwargs: Any) -> Any:
        args, name = list(args), "grads_and_vars"
        pairs = list(args[0] if args else kwargs[name])  # it may be an iterator
        if args:
            args[0] = pairs
        else:
            kwargs[name] = pairs
        calls = vars(self._threads).setdefault("calls", [])
        call = {"is_known": False, "problem": ""}
        calls.append(call)
        before = {id(each) for each in v1.global_variables()}
        try:
            result = method(optimizer, *args, **kwargs)
        finally:
            calls.pop()
        if not call["is_known"]:
            call["problem"] = _problem(result) or call["problem"]
            call["is_known"] = not _problem(result)
            if call["is_known"]:
                created = [each for each in v1.global_variables() if id(each) not in before]
                step = args[1] if len(args) > 1 else kwargs.get("global_step")
                self.append(self._update(optimizer, pairs, result, step, created))
        if calls:
            calls[-1]["is_known"] |= call["is_known"]
            calls[-1]["problem"] = call["problem"]
        elif not call["is_known"]:
            self._say(f"{type(optimizer).__name__} is not recorded: {call['problem']}")
        return result

    def _update(
        self, optimizer: Any, pairs: Any, result: Any, step: Any, created: Sequence[Variable]
    ) -> Update:
        pairs = [(grad, variable) for grad, variable in pairs if grad is not None]
        operation = result if isinstance(result, tf.Operation) else result.op
        loss = self._losses.get(id(optimizer), self._losses.get(0))
        if loss is not None and loss.graph is not operation.graph:
            loss = None
        decays = getattr(optimizer, "decays", None)
        decayed = [each.op.name for _, each in pairs if decays is None or decays(each)]
        read = getattr(optimizer, "global_step_variable", lambda: None)
        step = read() if getattr(optimizer, "uses_global_step", False) else step
        return Update(
            copy.copy(optimizer),
            pairs,
            operation,
            loss,
            getattr(optimizer, "_global_step", None) if step is None else step,
            None if len(decayed) == len(pairs) else decayed,
            created,
        )


def _method(function: Any, method: Any) -> Any:
    return lambda self, *args, **kwargs: function(method, self, args, kwargs)


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
