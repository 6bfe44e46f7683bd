"""Proofs: the inputs of a training, and what a rule makes of them."""

from __future__ import annotations

from typing import Any, Dict, Mapping, NamedTuple, Sequence, Union

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
      values: the results of the rule in float32.
      exact: the results of the rule in float64.
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
    """

    start: SavedState
    hyperparameters: Sequence[Mapping[str, float]]
    gradients: Sequence[Mapping[str, Gradient]]
    ends: Mapping[int, End]
    flushes_denormals: bool = True
    made: Mapping[str, Any] = {}

    @property
    def record(self) -> Record:
        """The rule."""
        return self.start.record


def cast(values: Mapping[str, Any], dtype: str) -> Dict[str, Any]:
    """Returns copies of variables or gradients in a dtype."""
    return {
        name: Rows(each.ids, each.values.astype(dtype))
        if isinstance(each, Rows)
        else np.array(each, dtype)
        for name, each in values.items()
    }


def dense(gradient: Any, variable: np.ndarray) -> Any:
    """Returns a gradient as an array of the variable's shape; rows with the same id are added."""
    if not isinstance(gradient, Rows):
        return gradient
    return gradient.dense(variable, flush_denormals=variable.dtype == "float32")
