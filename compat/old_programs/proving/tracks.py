"""Collects what one optimizer does in a training: its rule, states, gradients and more."""

from __future__ import annotations

import contextlib
import copy
import inspect
import math
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

import numpy as np
import tensorflow as tf

from legacy_opt import recorded
from legacy_opt.core import argument_checks, contract
from legacy_opt.core.types import Variable
from legacy_opt.native.updates.acceleration import accelerate
from legacy_opt.programs.operations import DTYPES
from legacy_opt.programs.program import Function, Program
from legacy_opt.recorded import records, state_files
from legacy_opt.recorded.arrays.interpreter import stored_shape
from legacy_opt.recorded.numpy import Rows
from legacy_opt.recorded.proofs import reference
from legacy_opt.recorded.proofs.judging import BOUND, largest_error
from legacy_opt.recorded.proofs.proof import Arrays, End, Proof
from legacy_opt.recorded.records import Group, Record, RecordError, Scalar, Slot
from legacy_opt.recorded.state_files import GLOBAL_STEP, RECORD, SHARED, VARIABLE, slot_key

from .updates import Update, upstream, written

v1 = tf.compat.v1
_NOTHING = Function((), {})


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
        found = _description(update, variables, record)
        self._record, tensors, self.state = found
        groups = self._record.groups
        self.reason = next((str(each.dense) for each in groups if not each.programs), "")
        self.operations = {x.op.name for key, x in self.state.items() if key != GLOBAL_STEP}
        self.name = update.optimizer.get_name() or type(update.optimizer).__name__
        gradients = {v.op.name: grad for grad, v in update.pairs if v.op.name in variables}
        self.fetches = gradients, dict(tensors)
        self.made = {"by": "record", "arguments": _constants_of(update.optimizer)}
        self.nbytes = 0
        self._states: Dict[int, Dict[str, Any]] = {}  # by steps: 0, and the ends
        self._gradients: List[Dict[str, Any]] = []
        self._hyperparameters: List[Dict[str, float]] = []
        self._runs: List[int] = []  # numbers of run calls
        self._owners: Dict[str, str] = {}  # of arrays with rows: from their names to variables
        for name, each in variables.items():
            group, rows = self._record.group_of(name, _shape_of(each)), _shape_of(each)[:1]
            is_sparse, program = isinstance(gradients[name], tf.IndexedSlices), group.sparse
            if is_sparse and isinstance(program, Program) and program.by_rows and not program.fades:
                keys = keys_of(name, group.slots)
                self._owners.update((x, name) for x in keys if _shape_of(self.state[x])[:1] == rows)

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

    @property
    def has_steps(self) -> bool:
        """Whether a step was added: the first run call may fail."""
        return bool(self._runs)

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
        record = _with_shapes(self._record, shapes)
        others = {
            RECORD: state_files.record_bytes(record),
            GLOBAL_STEP: np.array(arrays.get(GLOBAL_STEP, step), np.int64),
        }
        return state_files.state_from({**arrays, **others})


def _size(arrays: Mapping[str, Any]) -> int:
    parts = [each if isinstance(each, Rows) else (each,) for each in arrays.values()]
    return sum(x.nbytes for each in parts for x in each)


def keys_of(name: str, slots: Mapping[str, Any]) -> List[str]:
    """Returns the names of the arrays of a variable and of its slots in a state file."""
    return [VARIABLE + name, *(slot_key(name, slot) for slot in slots)]


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
    groups = proof.record.groups
    groups = tuple(x._replace(dense=problem, sparse=problem, first=None) for x in groups)
    nothing: Any = {"before": _NOTHING, "after": _NOTHING, "global_step": None, "clipping": None}
    record = proof.record._replace(groups=groups, **nothing)
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


def _description(
    update: Update, variables: Mapping[str, Variable], record: Optional[Record] = None
) -> Tuple[Record, Dict[str, Any], Dict[str, Any]]:
    """Describes the optimizer of an update.

    Returns its rule, which is `record` if this is given; the tensors of hyperparameters that are no
    numbers, by their names; and the variables of the state, by their names in a state file. If the
    rule cannot be recorded, the record has no updates, but texts that say why.
    """
    optimizer, shapes = update.optimizer, {name: _shape_of(x) for name, x in variables.items()}
    try:
        record = _with_shapes(record or _record(update, variables, shapes), shapes)
        numbers = record.hyperparameters.items()
        tensors = {name: _tensor(optimizer, name) for name, x in numbers if x.value is None}
        state = {
            slot_key(name, slot): optimizer.get_slot(each, slot)
            for name, each in variables.items()
            for slot in record.group_of(name, shapes[name]).slots
        }
        for name in record.shared:
            found = optimizer._get_non_slot_variable(name, graph=update.operation.graph)
            state[SHARED + name] = found
        if any(each is None for each in state.values()):
            raise RecordError("it lacks variables of its rule")
        if record.global_step is not None and not isinstance(update.global_step, tf.Variable):
            raise RecordError("its global step is no variable")
    except RecordError as error:
        reason = " ".join(str(error).split())
        record, tensors, state = _without_rule(update, variables, reason)
    state.update((VARIABLE + name, each) for name, each in variables.items())
    if isinstance(update.global_step, tf.Variable):
        state[GLOBAL_STEP] = update.global_step
    return record, tensors, state


def _record(
    update: Update, variables: Mapping[str, Variable], shapes: Mapping[str, Tuple[int, ...]]
) -> Record:
    for name, each in variables.items():
        if getattr(each, "constraint", None) is not None:
            raise RecordError(f"{name!r} has a constraint")
    optimizer = copy.copy(update.optimizer)
    if hasattr(optimizer, "_rule_step"):
        optimizer._rule_step = optimizer._rule_step.after()
    cls = type(optimizer)
    if "compute_gradients" in vars(cls) and contract.is_of_user(cls):  # it came before gradients
        skipped = ["compute_gradients", "__dict__", "__weakref__"]
        own = {name: each for name, each in vars(cls).items() if name not in skipped}
        optimizer.__class__ = type(cls.__name__, cls.__bases__, own)
    try:
        if ".contrib.opt." in type(optimizer).__module__:  # our class follows more hyperparameters
            vars(optimizer).update(_slots={}, _non_slot_dict={})
            optimizer = accelerate(optimizer)
        decays = getattr(update.optimizer, "decays", lambda variable: True)
        decayed = {each.op.name: decays(each) for _, each in update.pairs}
        if not all(decayed.values()):
            names = [name for name in shapes if decayed[name]]
            return recorded.record(optimizer, shapes, decay_var_list=names)
        with contextlib.suppress(RecordError):  # the rule may depend on names or shapes
            return recorded.record(optimizer)
        return recorded.record(optimizer, shapes)
    except RecordError:
        raise
    except Exception as error:  # a user's class may raise anything
        raise RecordError(f"{type(error).__name__}: {error}") from error


def _with_shapes(record: Record, shapes: Mapping[str, Tuple[int, ...]]) -> Record:
    """Returns a record with other shapes of its variables, such as those of some rows."""
    groups = [
        each._replace(variables=each.variables and {name: shapes[name] for name in each.variables})
        for each in record.groups
    ]
    return record._replace(groups=tuple(groups))


def _tensor(optimizer: Any, name: str) -> Any:
    """Returns the tensor of a hyperparameter in the training step."""
    step = getattr(optimizer, "_rule_step", None)  # of a RuleOptimizer
    found = step.tensors.get(name) if step else None
    found = _kept(optimizer, name, argument_checks.is_tensor_like) if found is None else found
    if found is None:
        raise RecordError(f"its hyperparameter {name!r} is neither a number nor a tensor")
    return found


def _shape_of(variable: Variable) -> Tuple[int, ...]:
    """Returns the shape of a variable, which is fully defined."""
    return tuple(int(each) for each in variable.shape.as_list() if each is not None)


def _constants_of(optimizer: Any) -> Dict[str, Any]:
    """Returns the constants among the constructor's arguments, as far as the optimizer has them."""
    names = inspect.signature(type(optimizer).__init__).parameters
    found = {name: _kept(optimizer, name, _is_constant) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def _is_constant(value: Any) -> bool:
    values: Any = value if isinstance(value, (list, tuple)) else [value]
    is_finite = isinstance(value, (int, float)) and abs(value) < math.inf
    return is_finite or all(isinstance(each, str) for each in values)


def _kept(optimizer: Any, name: str, is_right: Callable[[Any], bool]) -> Any:
    """Returns what an optimizer keeps of an argument, or None."""
    names = [name, *["lr"] * (name == "learning_rate")]
    texts = "_{}_t", "_{}_tensor", "_{}", "{}"
    found = [getattr(optimizer, text.format(each), None) for text in texts for each in names]
    return next((each for each in found if each is not None and is_right(each)), None)


def _without_rule(
    update: Update, variables: Mapping[str, Variable], reason: str
) -> Tuple[Record, Dict[str, Any], Dict[str, Any]]:
    """Returns the same as `_description`, for the variables that the update writes.

    Slots are those whose names begin with that of a variable; scalars are shared.
    """
    names = written(upstream([update.operation])) - {*variables}
    found = update.operation.graph.get_collection(v1.GraphKeys.GLOBAL_VARIABLES)
    others = {x.op.name: x for x in found if x.op.name in names and x is not update.global_step}
    state, groups = {}, []
    for name, each in sorted(variables.items(), reverse=True):  # "a/b" before "a"
        slots = {}
        for other in [x for x in others if x.startswith(name + "/")]:
            suffix, variable = other[len(name) + 1 :], others.pop(other)
            slot = _slot(suffix, variable, each)
            if slot is not None:
                slots[suffix], state[slot_key(name, suffix)] = slot, variable
        groups.append(Group({name: _shape_of(each)}, None, slots, reason, reason))
    shared = {name: x for name, x in others.items() if x.shape.rank == 0 and _dtype(x) in DTYPES}
    state.update((SHARED + name, each) for name, each in shared.items())
    optimizer, values, tensors = update.optimizer, {}, {}
    for name in inspect.signature(type(optimizer).__init__).parameters:
        number = _kept(optimizer, name, lambda x: type(x) in (int, float))
        tensor = _kept(optimizer, name, argument_checks.is_tensor_like)
        if number is not None:
            values[name] = float(number)
        elif tensor is not None:
            values[name], tensors[name] = None, tensor
    hyperparameters = {name: Scalar("float32", x) for name, x in values.items()}
    scalars = {name: Scalar(_dtype(each), 0) for name, each in shared.items()}
    rule = None, hyperparameters, scalars, _NOTHING, _NOTHING, tuple(groups)
    return Record(type(optimizer).__name__, "float32", *rule), tensors, state


def _slot(suffix: str, slot: Any, variable: Variable) -> Optional[Slot]:
    """Describes a slot; None if records have no such layout or dtype."""
    for layout in (records.ELEMENT, records.ROW, records.SCALAR):
        shape = stored_shape(layout, _shape_of(variable))
        if _dtype(slot) in DTYPES and slot.shape.as_list() == [*shape]:
            return Slot(layout, _dtype(slot), 0, suffix)
    return None


def _dtype(variable: Any) -> str:
    return variable.dtype.base_dtype.name
