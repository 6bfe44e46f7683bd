"""Collects what one optimizer does in a training: gradients, hyperparameters and states."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Tuple

import numpy as np
import tensorflow as tf

from legacy_opt.core.types import Variable
from legacy_opt.programs.program import Program
from legacy_opt.recorded import state_files
from legacy_opt.recorded.numpy import Rows
from legacy_opt.recorded.proofs import reference
from legacy_opt.recorded.proofs.judging import BOUND, largest_error
from legacy_opt.recorded.proofs.proof import Arrays, End, Proof
from legacy_opt.recorded.records import Record, RecordError
from legacy_opt.recorded.state_files import GLOBAL_STEP, VARIABLE

from . import descriptions
from .descriptions import shape_of
from .updates import Update


class Track:
    """The training of some variables of float32 by one optimizer.

    Of variables whose rows do not depend on each other, it keeps the rows with gradients.

    Attributes:
      state: the variables of the state, by their names in a state file.
      operations: the names of their operations, without the global step.
      reason: why there is no rule, else "".
      fetches: the tensors to fetch in each step.
      made: facts for `Proof.made`.
      nbytes: about the size of the proof.
    """

    def __init__(
        self, update: Update, variables: Mapping[str, Variable], record: Optional[Record] = None
    ) -> None:
        found = descriptions.description(update, variables, record)
        self._record, tensors, self.state = found
        groups = self._record.groups
        self.reason = next((str(each.dense) for each in groups if not each.programs), "")
        self.operations = {x.op.name for key, x in self.state.items() if key != GLOBAL_STEP}
        self.name = update.optimizer.get_name() or type(update.optimizer).__name__
        gradients = {v.op.name: grad for grad, v in update.pairs if v.op.name in variables}
        self.fetches = gradients, dict(tensors)
        self.made = {"by": "record", "arguments": descriptions.constants_of(update.optimizer)}
        self.nbytes = 0
        self._states: Dict[int, Dict[str, Any]] = {}  # by steps: 0, and the ends
        self._gradients: List[Dict[str, Any]] = []
        self._hyperparameters: List[Dict[str, float]] = []
        self._runs: List[int] = []  # numbers of run calls
        self._owners: Dict[str, str] = {}  # of arrays with rows: from their names to variables
        for name, each in variables.items():
            group, rows = self._record.group_of(name, shape_of(each)), shape_of(each)[:1]
            is_sparse, program = isinstance(gradients[name], tf.IndexedSlices), group.sparse
            if is_sparse and isinstance(program, Program) and program.by_rows and not program.fades:
                keys = keys_of(name, group.slots)
                self._owners.update((x, name) for x in keys if shape_of(self.state[x])[:1] == rows)

    def start(self, state: Arrays) -> None:
        """Adds the state before the first step."""
        self._states[0] = state
        self.nbytes += 2 * _size({key: x for key, x in state.items() if key not in self._owners})

    def step(self, run: int, fetched: Any) -> None:
        """Adds a step; `fetched` has the values of `fetches`."""
        gradients, values = fetched
        found: Dict[str, Any] = {  # copies: what was fetched may share memory
            name: Rows(np.array(each.indices, np.int64), np.array(each.values))
            if hasattr(each, "indices")
            else np.array(each)
            for name, each in gradients.items()
        }
        self.nbytes += _size(found)
        self._gradients.append(found)
        scalars = self._record.hyperparameters.items()
        self._hyperparameters.append({n: float(values.get(n, x.value)) for n, x in scalars})
        self._runs.append(run)

    def _rows(self) -> Dict[str, np.ndarray]:
        """Returns the rows that had gradients until now, but at least one of a variable."""
        ids = {x: [each[x].ids for each in self._gradients] for x in {*self._owners.values()}}
        found = {name: np.unique(np.concatenate(x)) for name, x in ids.items()}
        return {name: x if x.size else np.zeros(1, int) for name, x in found.items()}

    def end(self, state: Arrays) -> None:
        """Adds the state after the last step."""
        rows = self._rows()
        of_rows = {key: Rows(rows[n], state[key][rows[n]]) for key, n in self._owners.items()}
        self._states[len(self._gradients)] = end = {**state, **of_rows}
        self.nbytes += _size({key: x for key, x in end.items() if key.startswith(VARIABLE)})

    def proof(self) -> Proof:
        """Returns the proof of what was added, up to the last end."""
        rows = self._rows()
        states = {step: self._arrays(step, rows) for step in sorted(self._states)}
        count = max(states)
        made = {"runs": self._runs[:count], **self.made}
        if rows:
            made["rows"] = {name: each.tolist() for name, each in rows.items()}
        gradients = [
            {
                name: x._replace(ids=np.searchsorted(rows[name], x.ids)) if name in rows else x
                for name, x in each.items()
            }
            for each in self._gradients[:count]
        ]
        start, last = (self._saved(step, states[step]) for step in (0, count))
        del states[0]
        names = [*self.fetches[0]]
        ends = {i: End({n: x[VARIABLE + n] for n in names}, {}, {}) for i, x in states.items()}
        return Proof(start, self._hyperparameters[:count], gradients, ends, made=made, last=last)

    def _arrays(self, step: int, rows: Arrays) -> Arrays:
        """Returns a state; rows without a gradient until then have their first values."""
        arrays = dict(self._states[step])
        for key, name in self._owners.items():
            arrays[key] = self._states[0][key][rows[name]]
            if step:
                ids, values = self._states[step][key]
                arrays[key][np.searchsorted(rows[name], ids)] = values
        return arrays

    def _saved(self, step: int, arrays: Arrays) -> state_files.SavedState:
        shapes = {name: arrays[VARIABLE + name].shape for name in self.fetches[0]}
        record = descriptions.with_shapes(self._record, shapes)
        others = {
            state_files.RECORD: state_files.record_bytes(record),
            GLOBAL_STEP: np.array(arrays.get(GLOBAL_STEP, step), np.int64),
        }
        return state_files.state_from({**arrays, **others})


def _size(arrays: Mapping[str, Any]) -> int:
    parts = [each if isinstance(each, Rows) else (each,) for each in arrays.values()]
    return sum(x.nbytes for each in parts for x in each)


def keys_of(name: str, slots: Mapping[str, Any]) -> List[str]:
    """Returns the names of the arrays of a variable and of its slots in a state file."""
    return [VARIABLE + name, *(state_files.slot_key(name, slot) for slot in slots)]


def explained(proof: Proof) -> Tuple[Proof, str]:
    """Returns a proof, without its rule if this does not make what was recorded, and why not."""
    values = {step: end.values for step, end in proof.ends.items()}
    try:
        # Error bars of all operations take about 20 times as long.
        error = largest_error(_roughly(proof).ends, values)
        if error.ratio > BOUND:
            error = largest_error(reference.with_bars(proof).ends, values)
        if error.ratio <= BOUND:
            return proof, ""
        problem = (
            f"from step {error.step} on it alone does not explain {error.variable!r} (other "
            "operations change it, too?)"
        )
    except RecordError as refusal:
        problem = " ".join(str(refusal).split())
    record = descriptions.without_updates(proof.record, problem)
    start, last = (each and each._replace(record=record) for each in (proof.start, proof.last))
    return proof._replace(start=start, last=last), problem


def _roughly(proof: Proof) -> Proof:
    """Returns a proof with bars of one rounding of each element, and of the way it has gone."""
    before, ends = proof.start.variables, {}
    ways: Dict[str, Any] = dict.fromkeys(before, 0.0)
    with np.errstate(all="ignore"):
        for step, arrays in enumerate(reference.run(proof), start=1):
            ways = {name: ways[name] + np.abs(x - before[name]) for name, x in arrays.items()}
            if step in proof.ends:
                bars = {n: reference.UNIT * (np.abs(x) + ways[n]) for n, x in arrays.items()}
                ends[step] = End(proof.ends[step].values, arrays, bars)
            before = arrays
    return proof._replace(ends=ends)
