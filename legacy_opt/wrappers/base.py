"""The base class of optimizers that wrap other optimizers."""

from __future__ import annotations

import contextlib
from typing import Any, ClassVar, Iterable, Iterator, List, Optional, Sequence, Tuple

import numpy as np
import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core import argument_checks, gradient_pairs
from legacy_opt.core.constructors import CheckedConstructors
from legacy_opt.core.global_step import wrapper_increments
from legacy_opt.core.kernel_hook import kernels_for
from legacy_opt.core.step import TakesTurns
from legacy_opt.core.types import GradAndVar, GradsAndVars, Loss, Operation, V1Optimizer, Variable
from legacy_opt.core.variable_access import WholeVariable, after

v1 = tf.compat.v1


class OptimizerWrapper(CheckedConstructors, TakesTurns, v1.train.Optimizer):
    """Base class of optimizers that wrap inner optimizers. The inner optimizers apply gradients.

    During training, the wrapper calls only `compute_gradients` and `apply_gradients` of the inner
    optimizers. Therefore any v1 optimizer can be an inner optimizer, even another wrapper. Slots of
    inner optimizers keep their names.

    In an object-based checkpoint (`tf.train.Checkpoint`), the inner optimizers are the attributes
    `optimizer_0`, `optimizer_1`, … of the wrapper, and each inner optimizer has its own slots.

    Example::

        class HalfGradientsOptimizer(legacy_opt.OptimizerWrapper):
            def apply_gradients(self, grads_and_vars, *args, **kwargs):
                halves = [(grad / 2, variable) for grad, variable in grads_and_vars]
                return super().apply_gradients(halves, *args, **kwargs)

        w = tf.Variable([1.0, 2.0])
        optimizer = HalfGradientsOptimizer([legacy_opt.LazyAdamOptimizer(0.1)])
        train_op = optimizer.apply_gradients([(tf.constant([1.0, 2.0]), w)])

    Args:
      wrapped: an iterable of the inner optimizers.
      use_locking: see `tf.compat.v1.train.Optimizer`; this base class does not use it.
      name: the wrapper's name.

    Raises:
      TypeError: an inner optimizer is not a v1 optimizer, or the name is not a string.
      ValueError: the name is empty.
    """

    native: Optional[str] = None  # like `RuleOptimizer.native`, for the wrapper's own computations
    # The work for which there are no kernels, for a warning: a predicate such as "clips values".
    _work_without_kernel: ClassVar[str] = ""
    _set_by_constructor = "_wrapped"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Disables AutoGraph, which is slow and fails on TF 1.15."""
        super().__init_subclass__(**kwargs)
        for name in ("compute_gradients", "apply_gradients"):
            if name in vars(cls):
                setattr(cls, name, tf.autograph.experimental.do_not_convert(vars(cls)[name]))

    def __init__(
        self,
        wrapped: Iterable[V1Optimizer],
        use_locking: bool = False,
        name: str = "OptimizerWrapper",
    ) -> None:
        super().__init__(use_locking, argument_checks.text("name", name))
        class_name = type(self).__name__
        self._wrapped = tuple(argument_checks.optimizer(class_name, each) for each in wrapped)
        self.track_wrapped()

    def _optimizers_to_lock(self) -> Tuple[V1Optimizer, ...]:
        """Returns the inner optimizers, which only one thread at a time may use."""
        return self._wrapped

    def track_wrapped(self) -> None:
        """Adds the inner optimizers to object-based checkpoints.

        If the wrapper is copied, call this method of the copy, too.
        """
        for number, inner in enumerate(self._wrapped):
            self._track_trackable(inner, f"optimizer_{number}")

    @property
    def wrapped(self) -> Tuple[V1Optimizer, ...]:
        """The inner optimizers, a tuple."""
        return self._wrapped

    def compute_gradients(
        self, loss: Loss, var_list: Optional[Iterable[Variable]] = None, *args: Any, **kwargs: Any
    ) -> List[GradAndVar]:
        """Computes gradients with the only inner optimizer."""
        (inner,) = self._wrapped
        gradient_pairs.check_variables(type(self).__name__, var_list)
        return inner.compute_gradients(loss, var_list, *args, **kwargs)

    def apply_gradients(
        self,
        grads_and_vars: GradsAndVars,
        global_step: Optional[Variable] = None,
        name: Optional[str] = None,
    ) -> Optional[Operation]:
        """Applies the gradients with the only inner optimizer."""
        if self._work_without_kernel:
            kernels_for(self).warn_of_operations(self._work_without_kernel)
        (inner,) = self._wrapped
        pairs = gradient_pairs.checked(type(self).__name__, grads_and_vars)
        done = inner.apply_gradients(pairs, global_step=global_step, name=name)
        return versions.lock_global_step_increment(done)

    def _create_slots(self, var_list: Sequence[Variable]) -> None:
        """Creates the slots of all inner optimizers. Outer wrappers and `to_keras` call this."""
        for inner in self._wrapped:
            inner._create_slots(var_list)

    def own_slot(self, var: Variable, name: str) -> Optional[Variable]:
        """Returns a slot of the wrapper itself, or None if the wrapper has no such slot."""
        return super().get_slot(var, name)

    def _own_count(self, name: str) -> Any:
        """Returns a shared variable that `_create_count` has created for this wrapper, or None."""
        name = f"{self._name}/{name}"
        with tf.init_scope():
            return self._get_non_slot_variable(name, graph=graph_of_variables())

    def _create_count(self, name: str, variables: Iterable[Variable]) -> None:
        """Creates a shared int64 variable, 0 at first, unless it exists already."""
        first = min(variables, key=lambda variable: variable.name)  # in any order of variables
        self._create_non_slot_variable(np.int64(0), f"{self._name}/{name}", colocate_with=first)

    def get_slot(self, var: Variable, name: str) -> Optional[Variable]:
        """Returns a slot of the wrapper or of an inner optimizer, or None if it does not exist."""
        slot = self.own_slot(var, name)
        for inner in self._wrapped:
            if slot is None:
                slot = inner.get_slot(var, name)
        return slot

    def get_slot_names(self) -> List[str]:
        """Returns the slot names of the wrapper and the inner optimizers, sorted and unique."""
        names = set(super().get_slot_names())
        if not versions.called_by_checkpoint():  # a checkpoint calls the inner optimizers itself
            names.update(*(inner.get_slot_names() for inner in self._wrapped))
        return sorted(names)

    def variables(self) -> List[Variable]:
        """Returns the variables of the wrapper and of the inner optimizers."""
        variables = super().variables()
        for inner in self._wrapped:
            variables += inner.variables()
        return variables


def graph_of_variables() -> Optional[tf.Graph]:
    """Returns the TF1 graph in which variables are created, or None for eager variables."""
    with tf.init_scope():
        return None if tf.executing_eagerly() else v1.get_default_graph()


def name_of(optimizer: V1Optimizer) -> str:
    """Returns an optimizer's name, or the name of its class if the optimizer has no name."""
    return getattr(optimizer, "_name", type(optimizer).__name__)


def check_step_to_increment(global_step: Any) -> None:
    """Raises a TypeError if `global_step` is neither a variable nor None."""
    if global_step is not None and not hasattr(global_step, "assign_add"):
        raise TypeError(
            "global_step must be a variable, for example from "
            f"tf.compat.v1.train.get_or_create_global_step(), or None, got {global_step!r}."
        )


@contextlib.contextmanager
def parts_of_a_step(global_step: Optional[Variable]) -> Iterator[None]:
    """Scope in which the inner optimizers apply their gradients, without `global_step`.

    After this scope, call `whole_step`. It increments the global step, which inner optimizers read
    before. Operations of inner optimizers are not added to the collection TRAIN_OP, because some
    programs run its first operation as the whole training step.
    """
    check_step_to_increment(global_step)
    with wrapper_increments(global_step):
        if tf.executing_eagerly():
            yield
            return
        train_ops = v1.get_collection_ref(v1.GraphKeys.TRAIN_OP)
        before = list(train_ops)
        yield
        train_ops[:] = before


def whole_step(
    parts: Iterable[Any], global_step: Optional[Variable], name: str
) -> Optional[Operation]:
    """Increments the global step after `parts`, the operations of the inner optimizers.

    Returns the training step, which is in the collection TRAIN_OP; None when executing eagerly.
    """
    is_eager = tf.executing_eagerly()
    with v1.name_scope(name) as scope:
        parts = [] if is_eager else list(parts)  # eager operations have run already
        if global_step is not None:
            parts.append(_increment(global_step, parts))
        if is_eager:
            return None
        step = tf.group(*parts, name=scope)
    train_ops = v1.get_collection_ref(v1.GraphKeys.TRAIN_OP)
    if step not in train_ops:
        train_ops.append(step)
    return step


def _increment(global_step: Variable, parts: Sequence[Any]) -> Any:
    """Increments `global_step` after `parts`, with several replicas once, not once per replica."""
    if not tf.distribute.has_strategy():
        with after(*parts), v1.colocate_with(global_step):
            # Without the lock, increments of a ref variable by concurrent threads can be lost.
            return global_step.assign_add(1, use_locking=True, read_value=False)

    def add_one(strategy: Any, step: Variable) -> Any:
        with after(*parts):
            return strategy.extended.update(step, WholeVariable().add, args=(1,))

    return tf.distribute.get_replica_context().merge_call(add_one, args=(global_step,))
