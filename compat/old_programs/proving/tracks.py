"""Collects what one optimizer does in a training: gradients, hyperparameters and states."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional

import numpy as np
import tensorflow as tf

from legacy_opt.core.types import Variable
from legacy_opt.programs.program import Program
from legacy_opt.recorded.numpy import Rows
from legacy_opt.recorded.proofs import reference
from legacy_opt.recorded.proofs.judging import BOUND, largest_error
from legacy_opt.recorded.proofs.proof import Arrays, End, Gradient, Proof
from legacy_opt.recorded.records import Record, RecordError
from legacy_opt.recorded.state_files import GLOBAL_STEP, SHARED, VARIABLE, SavedState, slot_key

from .descriptions import arguments_of, description, group_of, shape_of, without_updates
from .updates import Update


class Track:
    """The training of some variables of float32 by one optimizer.

    Attributes:
      reason: why there is no rule, else "".
      state: the variables of the state, by their names in a state file.
      operations: the names of their operations, without the global step.
      name: the name of the optimizer.
      made: facts for `Proof.made`.
      fetches: the tensors to fetch in each step.
    """

    def __init__(
        self, update: Update, variables: Mapping[str, Variable], record: Optional[Record] = None
    ) -> None:
        found = description(update, variables, record)
        self.record, self.reason, self._tensors, self.state = found
        self.operations = {x.op.name for key, x in self.state.items() if key != GLOBAL_STEP}
        self.name = update.optimizer.get_name() or type(update.optimizer).__name__
        gradients = {v.op.name: grad for grad, v in update.pairs if v.op.name in variables}
        self.fetches = gradients, dict(self._tensors)
        self._states: Dict[int, Arrays] = {}  # by steps: 0, and the ends
        self._gradients: List[Dict[str, Gradient]] = []
        self._hyperparameters: List[Dict[str, float]] = []
        self._runs: List[int] = []  # numbers of run calls
        # The rows that gradients touched, of the variables of which other rows do not matter.
        self._touched = {
            name: np.zeros(shape_of(each)[:1], bool)
            for name, each in variables.items()
            if isinstance(gradients[name], tf.IndexedSlices) and self._is_by_rows(name, each)
        }
        self._rows_of_ends: Dict[int, Arrays] = {}
        self.made: Dict[str, Any] = {"arguments": arguments_of(update.optimizer)}
        self.nbytes = 0

    def _is_by_rows(self, name: str, variable: Variable) -> bool:
        program = group_of(self.record, name, variable).sparse
        return isinstance(program, Program) and program.by_rows and not program.fades

    def start(self, state: Arrays) -> None:
        """Adds the state before the first step."""
        self._states[0] = state
        self.nbytes += sum(2 * each.nbytes for key, each in state.items() if not self._rows(key))

    def _rows(self, key: str) -> Optional[str]:
        """Returns the variable by whose rows an array of the state is kept, or None."""
        state = self._states[0]
        for name in self._touched:
            is_of = key == VARIABLE + name or key.startswith(slot_key(name, ""))
            if is_of and state[key].shape[:1] == state[VARIABLE + name].shape[:1]:
                return name
        return None

    def step(self, run: int, fetched: Any) -> None:
        """Adds a step; `fetched` has the values of `fetches`."""
        gradients, hyperparameters = fetched
        found: Dict[str, Gradient] = {}
        for name, each in gradients.items():
            if hasattr(each, "indices"):  # copies: what was fetched may share memory
                each = Rows(np.array(each.indices, np.int64), np.array(each.values))
                self.nbytes += each.ids.nbytes + each.values.nbytes
                if name in self._touched:
                    self._touched[name][each.ids] = True
            else:
                each = np.array(each)
                self.nbytes += each.nbytes
            found[name] = each
        self._gradients.append(found)
        scalars = self.record.hyperparameters.items()
        numbers = {name: hyperparameters.get(name, each.value) for name, each in scalars}
        self._hyperparameters.append({name: float(x) for name, x in numbers.items()})
        self._runs.append(run)

    def end(self, state: Arrays) -> None:
        """Adds the state after the last step. Of large tables, it keeps the touched rows."""
        rows = {name: np.flatnonzero(each) for name, each in self._touched.items()}
        for key, each in state.items():
            name = self._rows(key)
            if name is not None:
                state[key] = each[rows[name]]
            self.nbytes += state[key].nbytes if key.startswith(VARIABLE) else 0
        self._states[len(self._gradients)] = state
        self._rows_of_ends[len(self._gradients)] = rows

    @property
    def has_end(self) -> bool:
        """Whether the state after the last step is known."""
        return len(self._gradients) in self._states

    def proof(self, reason: str = "") -> Proof:
        """Returns the proof of what was added, up to the last end.

        If a `reason` is given, the proof has no rule.
        """
        if reason:
            self.record = without_updates(self.record, reason)
        for each in self._touched.values():
            each[:1] |= not each.any()
        rows = {name: np.flatnonzero(each) for name, each in self._touched.items()}
        states = {step: self._saved(step, rows) for step in sorted(self._states)}
        start, count = states.pop(0), max(self._states)
        made = {"by": "record", "runs": self._runs[:count], **self.made}
        if rows:
            made["rows"] = {name: each.tolist() for name, each in rows.items()}
        return Proof(
            start=start,
            hyperparameters=self._hyperparameters[:count],
            gradients=[_renumbered(each, rows) for each in self._gradients[:count]],
            ends={step: End(state.variables, {}, {}) for step, state in states.items()},
            made=made,
            last=states[count],
        )

    def _saved(self, step: int, rows: Arrays) -> SavedState:
        arrays, first = dict(self._states[step]), self._states[0]
        for key in arrays:
            name = self._rows(key)
            if name is not None:
                found = first[key][rows[name]]
                if step:  # rows that were touched later have their first values
                    found[np.searchsorted(rows[name], self._rows_of_ends[step][name])] = arrays[key]
                arrays[key] = found
        variables = {name: arrays[VARIABLE + name] for name in self.fetches[0]}
        groups = [
            each._replace(variables={name: variables[name].shape for name in each.variables})
            if each.variables
            else each
            for each in self.record.groups
        ]
        record = self.record._replace(groups=tuple(groups))
        slots = {
            name: {slot: arrays[slot_key(name, slot)] for slot in group.slots}
            for name, each in variables.items()
            for group in [record.group_of(name, each.shape)]
        }
        shared = {name: arrays[SHARED + name][()] for name in record.shared}
        return SavedState(record, int(arrays.get(GLOBAL_STEP, step)), shared, variables, slots)


def unexplained(proof: Proof) -> str:
    """Returns what the rule of a recorded proof does not explain, "" if it explains all."""
    try:
        if _is_close(proof):
            return ""
        values = {step: end.values for step, end in proof.ends.items()}
        error = largest_error(reference.with_bars(proof).ends, values)
    except RecordError as problem:
        return " ".join(str(problem).split())
    if error.ratio <= BOUND:
        return ""
    return (
        f"from step {error.step} on it alone does not explain {error.variable!r} (other operations "
        "change it, too?)"
    )


def _is_close(proof: Proof) -> bool:
    """Whether the rule clearly makes what was recorded; if not, only error bars tell.

    Error bars take about 20 times as long. This allows some roundings of each element, and of the
    way that it has gone.
    """
    before = proof.start.variables
    ways: Dict[str, Any] = dict.fromkeys(before, 0.0)
    for step, arrays in enumerate(reference.run(proof), start=1):
        with np.errstate(all="ignore"):
            for name, array in arrays.items():
                ways[name] = ways[name] + np.abs(array - before[name])
            for name, recorded in proof.ends[step].values.items() if step in proof.ends else ():
                distance = np.abs(recorded - arrays[name])
                allowed = BOUND * reference.UNIT * (np.abs(arrays[name]) + ways[name])
                if not np.all(distance <= allowed):
                    return False
        before = arrays
    return True


def _renumbered(gradients: Mapping[str, Gradient], rows: Arrays) -> Dict[str, Gradient]:
    """Returns gradients of variables that have only some rows of those that were trained."""
    return {
        name: each._replace(ids=np.searchsorted(rows[name], each.ids)) if name in rows else each
        for name, each in gradients.items()
    }
