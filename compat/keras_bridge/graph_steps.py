"""GraphSteps: the TF1 global steps that a bridged optimizer increments besides `iterations`."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Callable, List, Union

import tensorflow as tf

from legacy_opt.core.types import Operation, Tensor, Variable

if TYPE_CHECKING:
    from .protocol import StateOwner


class GraphSteps:
    """The step variables that one bridged optimizer increments in TF1 graphs.

    Keras increments only `iterations`, from which `to_keras` computes the hyperparameters instead.
    But hooks, summaries and other optimizers may read the global step. If several bridged
    optimizers use the same global step, only the first of them increments it.

    Args:
      owner: the bridged optimizer, a `StateOwner`.
    """

    # graph -> name of a global step -> weak reference to the `GraphSteps` that increments it
    _incrementing = weakref.WeakKeyDictionary()

    def __init__(self, owner: StateOwner):
        self._owner = owner
        self._variables = {}

    @property
    def variables(self) -> List[Variable]:
        """The step variables that `advance` increments."""
        return list(self._variables.values())

    def forget(self):
        """Forgets the step variables of the last training step, whose graph may be another one."""
        self._variables = {}

    def advance(self, by: Union[int, Tensor] = 1) -> List[Operation]:
        """Adds a number to the step variables. Returns a list of operations."""
        steps = self.variables
        return [step.assign_add(tf.cast(by, step.dtype.base_dtype)).op for step in steps]

    def counter_of(self, step: Variable, mine: Callable[[], Tensor]) -> Callable[[], Tensor]:
        """Returns a function that reads the `iterations` which a step variable counts.

        If the step variable is incremented by another bridged optimizer, these are the other's.
        Otherwise `advance` increments it.

        Args:
          step: the step variable.
          mine: the function that reads the `iterations` of this bridged optimizer.
        """
        iterations = self._owner.iterations, self._owner.steps_done().variable
        if any(step is each for each in iterations):  # as TensorFlow's Estimators make them
            return mine
        incrementing = self._incrementing.setdefault(step.graph, {})
        first = incrementing.setdefault(step.name, weakref.ref(self))()
        if first is None:  # it was deleted
            incrementing[step.name], first = weakref.ref(self), self
        if first is not self:
            return first._owner.steps_done().read
        self._variables[step.name] = step
        return mine
