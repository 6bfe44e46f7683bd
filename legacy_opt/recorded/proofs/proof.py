"""Proofs: the inputs of a training, and what a rule makes of them."""

from __future__ import annotations

from typing import Any, Dict, Mapping, NamedTuple, Optional, Sequence, Union

import numpy as np

from legacy_opt.recorded.numpy import Rows
from legacy_opt.recorded.records import Record, RecordError
from legacy_opt.recorded.state_files import SavedState

Arrays = Dict[str, np.ndarray]
Gradient = Union[np.ndarray, Rows]
MOST_STEPS = 100_000


class ProofError(RecordError):
    """A proof cannot be made, read or judged. The message says why."""


class End(NamedTuple):
    """The variables after a step, dicts from names to arrays.

    Attributes:
      values: the results of the rule in float32; in a recorded training, what was recorded.
      exact: the results of the rule in float64; empty until they are computed.
      bars: the error bars: how far rounding may move each element. They are float32.
    """

    values: Arrays
    exact: Arrays
    bars: Arrays


class Proof(NamedTuple):
    """The inputs of a training, and what a rule makes of them.

    Attributes:
      start: the state before the first step, with the rule.
      hyperparameters: for each step, a dict from names to numbers.
      gradients: for each step, a dict from names of variables to arrays or `Rows`.
      ends: a dict from numbers of steps, counted from 1, to the `End` after this step.
      flushes_denormals: whether denormal numbers became zero, as in TensorFlow.
      made: a dict for JSON that says how the proof was made, such as its seed.
      last: the state after the last step of a recorded training, else None.
    """

    start: SavedState
    hyperparameters: Sequence[Mapping[str, float]]
    gradients: Sequence[Mapping[str, Gradient]]
    ends: Mapping[int, End]
    flushes_denormals: bool = True
    made: Mapping[str, Any] = {}
    last: Optional[SavedState] = None

    @property
    def record(self) -> Record:
        """The rule."""
        return self.start.record

    @property
    def has_bars(self) -> bool:
        """Whether the ends have error bars; those of a recorded training have none at first."""
        return all(end.bars for end in self.ends.values())

    @property
    def has_rule(self) -> bool:
        """Whether the record has an update; else, it only describes the state of an optimizer."""
        return any(group.programs for group in self.record.groups)


class Run(NamedTuple):
    """A recorded training.

    Attributes:
      proofs: a dict from names of optimizers to their proofs. The ends have values alone.
      losses: the loss of each step, NaN where there is none.
      inputs: for each step, a dict from names of tensors to what the model was fed; empty if inputs
        were not recorded.
      made: a dict for JSON that says how the run was made: "by", "versions", "left_out" (texts:
        what was not recorded, and why), and others.
    """

    proofs: Mapping[str, Proof]
    losses: Sequence[float] = ()
    inputs: Sequence[Mapping[str, np.ndarray]] = ()
    made: Mapping[str, Any] = {}


def cast(values: Mapping[str, Any], dtype: str) -> Dict[str, Any]:
    """Returns copies of variables or gradients in a dtype."""
    return {
        name: Rows(each.ids, each.values.astype(dtype))
        if isinstance(each, Rows)
        else np.array(each, dtype)
        for name, each in values.items()
        if each is not None
    }


def by_slot(slots: Mapping[str, Mapping[str, Any]]) -> Arrays:
    """Returns copies of the slots of variables in float64, by "variable/slot"."""
    return {
        f"{name}/{slot}": np.array(array, "float64")
        for name, each in slots.items()
        for slot, array in each.items()
    }


def dense(gradient: Any, variable: np.ndarray) -> Any:
    """Returns a gradient as an array of the variable's shape; rows with the same id are added."""
    if not isinstance(gradient, Rows):
        return gradient
    return gradient.dense(variable, flush_denormals=variable.dtype == "float32")
