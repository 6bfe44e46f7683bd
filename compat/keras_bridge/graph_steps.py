"""GraphSteps: the TF1 global steps that a bridged optimizer increments besides `iterations`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List, NamedTuple, Optional, Set, Union

import tensorflow as tf

from legacy_opt.core.global_step import global_step_of
from legacy_opt.core.graphs import attached, follows_updates, increments
from legacy_opt.core.types import Operation, Tensor, Variable
from legacy_opt.core.user_warnings import GlobalStepWarning, warn

if TYPE_CHECKING:
    from .protocol import StateOwner, StepsDone

# The attribute of a graph with a dict from names of global steps to `_Incrementing`. The operations
# that increment a step live as long as their graph, so the graph has to keep the optimizer, too.
_GRAPH_ATTRIBUTE = "_legacy_opt_incrementing"


class _Incrementing(NamedTuple):
    """The bridged optimizer that increments a global step.

    Attributes:
      owner: the bridged optimizer, a `StateOwner`.
      variables: the names of the variables that it trains.
      is_replacement: whether another optimizer has incremented the step before, so that the step is
        larger than the `iterations` of this one.
    """

    owner: StateOwner
    variables: Set[str]
    is_replacement: bool


class GraphSteps:
    """The step variables that one bridged optimizer increments in TF1 graphs.

    Keras increments only `iterations`, from which `to_keras` computes the hyperparameters instead.
    But hooks, summaries and other optimizers may read the global step. If several bridged
    optimizers use the same global step, only the first of them increments it.

    Args:
      owner: the bridged optimizer, a `StateOwner`.
    """

    def __init__(self, owner: StateOwner):
        self._owner = owner
        self._incremented = {}  # {name of a step: (the step, an `_Incrementing`)}

    @property
    def variables(self) -> List[Variable]:
        """The step variables that `advance` increments."""
        return [step for step, _ in self._incremented.values()]

    def forget(self):
        """Forgets the step variables of the last training step, whose graph may be another one."""
        self._incremented = {}

    def advance(self, by: Union[int, Tensor] = 1) -> List[Operation]:
        """Adds a number to the step variables. Returns a list of operations."""
        # An optimizer whose training step could not be built does not come here, so it is not noted
        # as the one that increments the step.
        for step, incrementing in self._incremented.values():
            _incrementing_in(step.graph)[step.name] = incrementing
        return [step.assign_add(tf.cast(by, step.dtype.base_dtype)).op for step in self.variables]

    def counter_of(self, step: Variable, mine: StepsDone, trained: Set[str]) -> Optional[StepsDone]:
        """Returns the `StepsDone` which a step variable counts.

        * If another bridged optimizer increments the step variable, these are the other's.
        * If something else increments it, the result is None: hyperparameters follow the step
          variable itself.
        * If another optimizer increments it that trains the same variables, this one is taken to
          replace it, so `advance` increments the step variable as well, and the result is None.
        * Otherwise `advance` increments it.

        Args:
          step: the step variable.
          mine: the `StepsDone` of this bridged optimizer.
          trained: the names of the variables that this bridged optimizer trains.
        """
        # TensorFlow's Estimators make the global step the `iterations`.
        if any(step is each for each in (self._owner.iterations, mine.variable)):
            return mine
        known = _incrementing_in(step.graph).get(step.name)
        if known is None:
            others = increments(step)
            # A v1 optimizer increments the global step. Another variable may be the `iterations` of
            # another Keras optimizer.
            is_global = step is global_step_of(step.graph)
            replaces = is_global and any(follows_updates(each, trained) for each in others)
            if others and not replaces:
                return None
        elif known.owner is self._owner:
            self._incremented[step.name] = step, known._replace(variables=trained | known.variables)
            return None if known.is_replacement else mine
        else:
            replaces = not known.variables.isdisjoint(trained)
            if not replaces:
                _warn_of_the_first(step)
                return None if known.is_replacement else known.owner.steps_done()
        if replaces:
            _warn_of_a_replacement(step)
        self._incremented[step.name] = step, _Incrementing(self._owner, trained, replaces)
        return None if replaces else mine


def _warn_of_the_first(step: Variable):
    warn(
        f"{step.name} is incremented by the first optimizer that was built with it. The "
        "hyperparameters of this one follow the steps of the first, so train both. If you train "
        "one after the other, compute the hyperparameters of this one from another step.",
        GlobalStepWarning,
    )


def _warn_of_a_replacement(step: Variable):
    warn(
        f"{step.name} is also incremented by another optimizer, which trains the same variables. "
        "This optimizer is taken to replace it: it increments the variable, too, and its "
        "hyperparameters follow the variable. If you run both, compute the hyperparameters of this "
        "one from another step.",
        GlobalStepWarning,
    )


def _incrementing_in(graph: tf.Graph) -> Dict[str, _Incrementing]:
    return attached(graph, _GRAPH_ATTRIBUTE, dict)
