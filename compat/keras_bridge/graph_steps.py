"""GraphSteps: the TF1 global steps that a bridged optimizer increments besides `iterations`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Dict, List, NamedTuple, Optional, Set, Union

import tensorflow as tf

from legacy_opt.core.graphs import attached, source_of
from legacy_opt.core.types import Operation, Tensor, Variable
from legacy_opt.core.user_warnings import GlobalStepWarning, warn

if TYPE_CHECKING:
    from .protocol import StateOwner

# The attribute of a graph with a dict from names of global steps to `_Incrementing`. The operations
# that increment a step live as long as their graph, so the graph has to keep the optimizer, too.
_GRAPH_ATTRIBUTE = "_legacy_opt_incrementing"
_INCREMENTS = ("AssignAdd", "AssignAddVariableOp")
_NAMES_IN_KERAS = ("iter", "iteration", "iterations")


class _Incrementing(NamedTuple):
    """A bridged optimizer that increments a global step.

    Attributes:
      owner: the bridged optimizer, a `StateOwner`.
      variables: the names of the variables that it trains.
    """

    owner: StateOwner
    variables: Set[str]


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
        self._variables = {}  # {name of a step: (the step, the names of the trained variables)}

    @property
    def variables(self) -> List[Variable]:
        """The step variables that `advance` increments."""
        return [step for step, _ in self._variables.values()]

    def forget(self):
        """Forgets the step variables of the last training step, whose graph may be another one."""
        self._variables = {}

    def advance(self, by: Union[int, Tensor] = 1) -> List[Operation]:
        """Adds a number to the step variables. Returns a list of operations."""
        # An optimizer whose training step could not be built does not come here, so it is not noted
        # as the first.
        for step, trained in self._variables.values():
            _incrementing_in(step.graph).setdefault(step.name, _Incrementing(self._owner, trained))
        return [step.assign_add(tf.cast(by, step.dtype.base_dtype)).op for step in self.variables]

    def counter_of(
        self, step: Variable, mine: Callable[[], Tensor], trained: Set[str]
    ) -> Optional[Callable[[], Tensor]]:
        """Returns a function that reads the `iterations` which a step variable counts.

        If the step variable is incremented by another bridged optimizer, these are the other's.
        If something else increments it, the result is None. Otherwise `advance` increments it.

        Args:
          step: the step variable.
          mine: the function that reads the `iterations` of this bridged optimizer.
          trained: the names of the variables that this bridged optimizer trains.
        """
        iterations = self._owner.iterations, self._owner.steps_done().variable
        if any(step is each for each in iterations):  # as TensorFlow's Estimators make them
            return mine
        first = _incrementing_in(step.graph).get(step.name)
        if first is None and _is_incremented(step):
            return None
        if first is not None and first.owner is not self._owner:
            if not first.variables.isdisjoint(trained):
                warn(
                    f"{step.name} is incremented by another optimizer, which trains the same "
                    "variables. The hyperparameters follow the steps of that optimizer, so it has "
                    "to run, too. If this optimizer replaces it, build a new graph.",
                    GlobalStepWarning,
                )
            return first.owner.steps_done().read
        self._variables[step.name] = step, trained
        return mine


def _incrementing_in(graph: tf.Graph) -> Dict[str, _Incrementing]:
    return attached(graph, _GRAPH_ATTRIBUTE, dict)


def _is_incremented(step: Variable) -> bool:
    """Returns whether a graph has an operation that increments a step variable.

    The iterations of Keras 3's own optimizers are incremented in functions. Functions are not
    searched: the variable's name decides.
    """
    types = {each.type for each in source_of(step).outputs[0].consumers()}
    if not types.isdisjoint(_INCREMENTS):
        return True
    is_named = step.op.name.rpartition("/")[2].partition("_")[0] in _NAMES_IN_KERAS
    return is_named and any(each.endswith("PartitionedCall") for each in types)
