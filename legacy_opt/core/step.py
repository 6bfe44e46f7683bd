"""The state of one training step of a `RuleOptimizer`, and the scope of a training step."""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional

import tensorflow as tf

from legacy_opt.core.contract import of_users
from legacy_opt.core.kernel_hook import NO_KERNELS, StepKernels
from legacy_opt.core.named_values import NamedValues
from legacy_opt.core.types import DType, GradAndVar, Tensor, Variable
from legacy_opt.core.update import Values

_locks = {}  # {id of an optimizer: lock}; optimizers with locks as attributes cannot be pickled
_new_lock = threading.Lock()
_running = set()  # (id of the optimizer, class, thread) of each scope `alone` that is entered


@contextlib.contextmanager
def alone(optimizer: Any, cls: Optional[type] = None) -> Iterator[None]:
    """Scope in which no other thread runs a step of an optimizer, or of the optimizers in it.

    The `apply_gradients` of a class `cls` passes `cls`: it refuses a step within its own step.
    """
    step = id(optimizer), cls, threading.get_ident()
    if cls is not None and step in _running:
        raise RuntimeError(
            f"{type(optimizer).__name__} began a training step in its own training step. Its rule "
            "and its callable hyperparameters must not call minimize or apply_gradients of the "
            "same optimizer. Call them after the step, or make a second optimizer."
        )
    with contextlib.ExitStack() as stack:
        # Replicas are threads that wait for each other, so a lock would block all of them forever.
        if not tf.distribute.has_strategy():
            for each in sorted(_innermost(optimizer), key=id):  # always in the same order
                stack.enter_context(_lock_of(each))
        stack.callback(_running.discard, step)
        _running.add(step)
        yield


def _lock_of(optimizer: Any) -> Any:
    key = id(optimizer)
    if key not in _locks:
        with _new_lock:
            if key not in _locks:  # another thread may have added it while this one waited
                weakref.finalize(optimizer, _locks.pop, key)
                _locks[key] = threading.RLock()
    return _locks[key]


def _innermost(optimizer: Any) -> List[Any]:
    """Returns the optimizers that a wrapper contains, at any depth; [optimizer] for others."""
    is_wrapper = hasattr(optimizer, "_optimizers_to_lock")
    inner = optimizer._optimizers_to_lock() if is_wrapper else ()
    return [leaf for each in inner for leaf in _innermost(each)] or [optimizer]


class TakesTurns:
    """Base class of optimizers: `minimize` and `apply_gradients` of users' classes run `alone`.

    These methods may set attributes that the rest of the training step reads.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        handled = [each for each in cls.__bases__ if issubclass(each, TakesTurns)]
        for name in ("minimize", "apply_gradients"):
            owners = of_users(cls.__mro__, name)  # also mixins and other base classes
            new = [each for each in owners if not any(issubclass(base, each) for base in handled)]
            # The methods of classes that list TakesTurns as a base class call `alone` themselves.
            if new or (name in vars(cls) and TakesTurns not in cls.__bases__):
                setattr(cls, name, _turn(cls, name, vars(cls).get(name)))


def _turn(cls: type, name: str, method: Optional[Callable]) -> Callable:
    """Returns `method` of `cls` (if None, the inherited method), which runs `alone`."""

    @functools.wraps(method or getattr(cls, name))
    def run_alone(self: Any, *args: Any, **kwargs: Any) -> Any:
        with alone(self):
            if method is None:
                return getattr(super(cls, self), name)(*args, **kwargs)
            return method.__get__(self, type(self))(*args, **kwargs)

    return run_alone


class Inputs(NamedTuple):
    """The tensors from which the hyperparameters of a rule are computed, by names."""

    tensors: Mapping[str, Tensor]  # the hyperparameters in this training step
    non_slots: Mapping[str, Tensor]  # the values of non-slot variables
    exact: Mapping[DType, Mapping[str, Tensor]]  # scalars of a dtype, not rounded to float32 first
    global_step: Optional[Tensor]  # None if the optimizer does not need the global step
    once: Mapping[str, Tensor]  # the result of `RuleOptimizer.once_per_step`

    def hyper(self, what: str, dtype: DType, non_slots: bool = True) -> Values:
        """Returns the hyperparameters as attributes; all but `global_step` and `once` are cast."""
        values = {name: tf.cast(tensor, dtype) for name, tensor in self.tensors.items()}
        values.update(self.exact.get(dtype, {}))
        if non_slots:
            values.update((name, tf.cast(each, dtype)) for name, each in self.non_slots.items())
        if self.global_step is not None:
            values["global_step"] = self.global_step
        return NamedValues.of(what, dict(values, **self.once))

    def scalars(self) -> Dict[str, Tensor]:
        """Returns all tensors, as a dict from name to tensor. `replaced` takes such a dict."""
        scalars = dict(self.tensors, **self.non_slots)
        for dtype, exact in self.exact.items():
            scalars.update((f"{dtype.name} {name}", tensor) for name, tensor in exact.items())
        if self.global_step is not None:
            scalars["global_step"] = self.global_step
        return dict(scalars, **self.once)

    def replaced(self, scalars: Mapping[str, Tensor]) -> Inputs:
        """Returns inputs with other tensors, a dict like the result of the method `scalars`."""

        def selected(names: Iterable[str], prefix: str = "") -> Dict[str, Tensor]:
            return {name: scalars[prefix + name] for name in names}

        return Inputs(
            tensors=selected(self.tensors),
            non_slots=selected(self.non_slots),
            exact={dtype: selected(exact, f"{dtype.name} ") for dtype, exact in self.exact.items()},
            global_step=None if self.global_step is None else scalars["global_step"],
            once=selected(self.once),
        )


class Step(NamedTuple):
    """The state of one training step; `RuleOptimizer._rule_step` is the latest."""

    # Hyperparameters by name. They are kept after the training step, because TF1 programs read
    # attributes such as `optimizer._lr_t` for summaries.
    tensors: Dict[str, Tensor]
    prepared: Dict[int, Any]  # the result of `RuleOptimizer.prepare_step`
    kernels: StepKernels = NO_KERNELS
    pairs: Optional[List[GradAndVar]] = None  # None (unknown) outside of `RuleOptimizer.applying`
    incremented_step: Optional[Variable] = None  # the step that is incremented after the updates
    global_step: Optional[Tensor] = None  # None if the optimizer does not need it
    once: Mapping[str, Tensor] = {}  # the result of `RuleOptimizer.once_per_step`
    inputs: Optional[Inputs] = None  # None if hyperparameters are read when they are needed

    def with_inputs(self, inputs: Inputs) -> Step:
        return self._replace(
            tensors=dict(inputs.tensors),
            global_step=inputs.global_step,
            once=inputs.once,
            inputs=inputs,
        )

    def after(self) -> Step:
        """Returns the state that is kept after the training step."""
        return self._replace(prepared={}, kernels=NO_KERNELS, pairs=None, incremented_step=None)
