"""The methods with which a Keras optimizer creates and saves the state of a v1 optimizer."""

from __future__ import annotations

from typing import Any, Callable, Dict, Hashable, List, NamedTuple, Optional, Union

import numpy as np
import tensorflow as tf

from legacy_opt.core import argument_checks
from legacy_opt.core.types import KerasVariable, Tensor, TensorLike, Variable

from ..v1_optimizers.nesting import NewVariable, StateKey

# A number, an array, a tensor, or a function that returns a tensor.
InitialValue = Union[TensorLike, np.ndarray, Callable[[], Tensor]]
# The argument `global_step` of `to_keras`: a variable, None or "iterations".
GlobalStep = Union[Variable, str, None]


class StepsDone(NamedTuple):
    """The number of training steps done before the current one."""

    variable: Variable  # counts the steps
    # `variable`; or a tensor of the current graph, if `variable` has a component for each replica
    # or counts something else.
    now: Union[Variable, Tensor]


class StateOwner:
    """The interface of the Keras optimizers that `to_keras` makes (bridged optimizers).

    A bridged optimizer contains a `V1Driver`, which runs the v1 optimizer. The `V1Driver` calls
    these methods to create and find variables, and the Keras optimizer's `weights` and
    `get_slot_names`.
    """

    creates_variables = False  # whether the Keras optimizer itself is creating a variable now
    non_slots: Dict[str, Variable]  # the shared (non-slot) variables, by name
    has_trained: bool  # whether the optimizer was built, or has made a training step
    __init__: Any  # subclasses have another base class, whose constructor takes arguments

    def get_or_create_slot(self, variable: Variable, slot_name: str, new: NewVariable) -> Variable:
        """Returns a slot of a `tf.Variable`; creates or restores the slot if it is missing."""
        raise NotImplementedError

    def get_or_create_shared(
        self, key: StateKey, name: str, initial_value: InitialValue
    ) -> Variable:
        """Returns a shared variable; creates or restores the variable if it is missing.

        `key` identifies the v1 optimizer to which the variable belongs; `name` is the name there.
        """
        name = key.shared(name)
        if name not in self.non_slots:
            is_function = argument_checks.is_function(initial_value)
            # A Python float becomes float32, like in v1.
            value = tf.convert_to_tensor(initial_value() if is_function else initial_value)
            self.non_slots[name] = self._new_shared(key, name, value)
        return self.non_slots[name]

    def _new_shared(self, key: StateKey, name: str, value: Tensor) -> Variable:
        """Creates a shared variable with an initial value, under its name in Keras."""
        raise NotImplementedError

    def existing_slot(self, variable: Variable, slot_name: str) -> Optional[Variable]:
        """Returns a slot of a `tf.Variable`, or None."""
        raise NotImplementedError

    def variable_name(self, variable: KerasVariable) -> str:
        """Returns the name, equal in all replicas, by which v1 optimizers select variables."""
        raise NotImplementedError

    def decays(self, variable: Variable) -> bool:
        """Whether the Keras optimizer's settings allow weight decay for a variable."""
        return True

    def present_value(self, name: str):
        """Returns a hyperparameter's current value: a number or the configuration of a schedule."""
        raise NotImplementedError

    def steps_done(self) -> StepsDone:
        """Returns a `StepsDone`: the number of training steps done before the current step."""
        raise NotImplementedError

    def variable_key(self, variable: KerasVariable) -> Hashable:
        """Returns the key that identifies a variable in `keys_with_slots`."""
        raise NotImplementedError

    def keys_with_slots(self) -> List[Hashable]:
        """Returns the keys of variables with slots, in the order in which their training began."""
        raise NotImplementedError

    def trained_variables(self) -> List[KerasVariable]:
        """Returns the variables that have state, in the order in which their training began."""
        raise NotImplementedError

    def awaits_state(self) -> bool:
        """Whether state was loaded from a checkpoint. Call this only if `has_trained` is false."""
        raise NotImplementedError
