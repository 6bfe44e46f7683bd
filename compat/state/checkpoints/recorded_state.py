"""Finds the state of a recorded rule in the checkpoint of a Saver.

A slot's name is the variable's name, "/" and the suffix that the record has. All other tensors are
variables, except shared variables and the global step. Slots, shared variables and the step may be
in one scope. If there are slots of other optimizers, the name map must choose, because slots of one
optimizer with shared variables of another would train wrongly. Nothing here needs TensorFlow.
"""

from __future__ import annotations

import collections
import re
from typing import Collection, Dict, Iterator, List, Mapping, NamedTuple, NoReturn, Optional, Tuple

import numpy as np

from legacy_opt.core.array_parts import Shape, whole
from legacy_opt.core.count_layout import CountLayout
from legacy_opt.core.shortened import quoted
from legacy_opt.recorded import state_files
from legacy_opt.recorded.arrays.interpreter import stored_shape
from legacy_opt.recorded.records import Record, Slot

from ..checkpoint_contents import partitions
from ..checkpoint_contents.stored import StoredTensor
from ..checkpoint_files.errors import CheckpointError
from ..checkpoint_files.plain_reader import PlainCheckpoint
from ..checkpoint_files.tensor_info import Place
from .name_maps import OldToNew

STEP = state_files.GLOBAL_STEP
# The ends of names of averages and slow weights, which are no slots of the recorded optimizer.
_SHADOWS = ("/ExponentialMovingAverage", "/SWA", "/Lookahead")


class StateArray(NamedTuple):
    """An array of the state."""

    key: str  # the array's name in a state file
    dtype: str  # the name of the dtype
    shape: Shape  # in a state file
    stored: StoredTensor  # of another shape if `counts` is given
    counts: Optional[CountLayout] = None  # the layout in the checkpoint, if the file has another

    def read(self, checkpoint: PlainCheckpoint) -> np.ndarray:
        """Reads the array. Raises a CheckpointError also if copies of the same rows differ."""
        try:
            value = self.stored.read(checkpoint)
        except CheckpointError:
            raise
        except ValueError as error:
            raise CheckpointError(
                f"{checkpoint.path!r}: the slots of the parts cannot be joined, because each part "
                f"has another {self.stored.names[1]!r}."
            ) from error
        if self.counts is None:
            return value
        try:
            return self.counts.converted(value, CountLayout.whole(self.shape))
        except ValueError as error:
            raise CheckpointError(f"{checkpoint.path!r}: {self.key!r}: {error}") from error

    def split(self, value: np.ndarray) -> Iterator[Tuple[str, np.ndarray, Optional[Place]]]:
        """Yields arguments of `CheckpointWriter.add` for each tensor; the inverse of `read`."""
        if self.counts is not None:
            value = CountLayout.whole(self.shape).converted(value, self.counts)
        return self.stored.split(value)


class Plan(NamedTuple):
    """The state of a rule in a checkpoint."""

    arrays: Tuple[StateArray, ...]  # without the global step
    step: Optional[str]  # the name of the global step in the checkpoint; None if there is none
    trained: Tuple[str, ...]  # the variables that the rule trains, by their names in state files
    untrained: Tuple[str, ...]  # the names of the other variables
    left_out: Tuple[str, ...]  # tensors of the checkpoint that are not part of the state


def plan(checkpoint: PlainCheckpoint, record: Record, name_map: Optional[OldToNew] = None) -> Plan:
    """Returns the `Plan` of the state of a rule, a `Record`, in a `PlainCheckpoint`.

    `name_map` is a dict from names of variables to their names in the state file. A variable that
    is mapped to None is left out, with its slots. The dict may also have the global step and shared
    variables. If slots of other optimizers remain, the state has only the variables in the dict.
    A checkpoint of another rule, and a map that does not fit, raise a CheckpointError.
    """
    return _Planner(checkpoint, record, name_map or {}).plan()


class _Planner:
    def __init__(self, checkpoint: PlainCheckpoint, record: Record, name_map: OldToNew) -> None:
        self._path, self._tensors = checkpoint.path, checkpoint.tensors
        self._record = record
        self._map = name_map
        self._ends = collections.defaultdict(list)  # {end after a "/": names with this end}
        for name in self._tensors:
            for slash in re.finditer("/", name):
                self._ends[name[slash.end() :]].append(name)
        self._parts = partitions.parts(self._tensors)
        self._mangled = partitions.mangled_names(self._tensors, self._tensors)
        self._old_names = {new: name for name, new in name_map.items()}
        self._scopes = collections.defaultdict(set)  # {variable: scopes of its slots}
        self._has_several_optimizers = False
        self._sources = {name: self._source(name) for name in record.shared}
        self._suffixes = {slot.suffix for group in record.groups for slot in group.slots.values()}

    def _refuse(self, problem: str) -> NoReturn:
        raise CheckpointError(f"{self._path!r}: {problem}")

    def _is_of_another_rule(self, problem: str) -> NoReturn:
        self._refuse(f"the checkpoint does not belong to {self._record.optimizer}: {problem}")

    def plan(self) -> Plan:
        found = [self._shared(name) for name in self._record.shared]
        others = [name for name in self._tensors if name not in self._sources.values()]
        slots = {name: self._slots(name) for name in others}
        step = self._step()
        taken = {tensor for each in slots.values() for tensor in _tensors_of(each)}
        variables = [name for name in others if name not in taken and name != step]
        new_names = self._new_names(variables, slots, step)
        trained, untrained, left_out = [], [], []
        for name, new_name in new_names.items():
            info = self._tensors[name]
            if new_name is None or not info.is_readable:
                left_out += [name, *_tensors_of(slots[name])]
                continue
            group = state_files.group_of(self._record, new_name, info.dtype, info.shape)
            is_trained = group is not None and len(slots[name]) == len(group.slots)
            names = trained if is_trained else untrained
            names.append(new_name)
            found.append(self._array(state_files.VARIABLE + new_name, name))
            found += slots[name]
        if not trained:
            self._is_of_another_rule("no variable has its slots")
        return Plan(tuple(found), step, tuple(trained), tuple(untrained), tuple(left_out))

    def _source(self, name: str) -> str:
        """Returns the name of a scalar: from the map, without a scope, or in the only scope."""
        if self._old_names.get(name):
            return self._old_names[name]
        in_scopes = [each for each in self._ends[name] if each not in self._map]
        has_no_scope = name in self._tensors and name not in self._map
        return in_scopes[0] if len(in_scopes) == 1 and not has_no_scope else name

    def _step(self) -> Optional[str]:
        """Returns the name of the global step, without a scope or in the optimizer's; or None."""
        source = self._source(STEP)
        found = [each for each in self._ends[STEP] if each not in self._map]
        if source not in self._tensors and len(found) > 1:
            self._refuse(
                f"there are {quoted(found)}: with the name map, map one to {STEP!r}, or all to null"
            )
        scopes = {tensor[: -len(name)] for name, tensor in self._sources.items()}
        scopes.update(*self._scopes.values())
        # A step in another scope may be the step of another network.
        is_chosen = STEP in self._old_names or source[: -len(STEP)] in {"", *scopes}
        step = source if is_chosen and source in self._tensors else None
        if STEP not in self._old_names and step in self._map:  # the map leaves it out
            step = None
        if step is not None and self._tensors[step].shape:
            self._refuse(f"{step!r} is no scalar")
        if self._record.global_step is not None and step is None:
            self._is_of_another_rule(f"it has no {STEP!r}{self._hint(STEP)}")
        return step

    def _shared(self, name: str) -> StateArray:
        dtype = self._record.shared[name].dtype
        source = self._sources[name]
        info = self._tensors.get(source)
        if info is None or (info.dtype, info.shape) != (dtype, ()):
            self._is_of_another_rule(
                f"it has no scalar {source!r} of the dtype {dtype}{self._hint(name)}"
            )
        same = re.compile(f"(.*/)?{re.escape(name)}(_\\d+)?")  # in a scope, or with a number
        for other in self._tensors:
            if other != source and same.fullmatch(other):
                self._has_several_optimizers = True
                if other not in self._map:
                    self._refuse(
                        f"there are {source!r} and {other!r}: the graph had several optimizers. "
                        f"Choose with the name map: map {other!r} to null, or {source!r} to null "
                        f"and {other!r} to {name!r}; and map each variable to its new name, or to "
                        "null if the other optimizer trained it"
                    )
        return self._array(state_files.SHARED + name, source)

    def _hint(self, name: str) -> str:
        found = self._ends.get(name)
        return f"; the name map can choose {quoted(found)}" if found else ""

    def _array(self, key: str, tensor: str) -> StateArray:
        stored = StoredTensor.of([tensor], self._tensors)
        return StateArray(key, stored.dtype, stored.shape, stored)

    def _slots(self, name: str) -> List[StateArray]:
        """Returns the arrays of a variable's slots, which must fit; [] if it has no slots."""
        new_name = self._map.get(name, name)
        if new_name is None:
            return []
        info = self._tensors[name]
        try:
            group = self._record.group_of(new_name, info.shape)
        except state_files.RecordError:
            return []
        found = {key: self._stored(name, slot) for key, slot in group.slots.items()}
        missing = [group.slots[key].suffix for key, stored in found.items() if not stored]
        if len(missing) == len(found):
            return []
        if missing:
            self._refuse(f"the slot {name + '/' + missing[0]!r} is missing")
        if info.dtype != self._record.dtype:
            self._refuse(f"{name!r} is {info.dtype}, but the record is for {self._record.dtype}")
        return [
            self._slot_array(state_files.slot_key(new_name, key), name, group.slots[key], stored)
            for key, stored in found.items()
            if stored
        ]

    def _with_scopes(self, variable: str, suffix: str) -> List[str]:
        """Returns the names of a slot's tensors, with and without scopes; usually only one."""
        name = f"{variable}/{suffix}"
        found = [name] if name in self._tensors else []
        for each in self._ends[name]:
            words = each[: -len(name)].split("/")
            longer = ("/".join(words[start:]) + variable for start in range(len(words) - 1))
            if self._tensors.keys().isdisjoint(longer):  # otherwise a slot of another variable
                found.append(each)
        return found

    def _stored(self, name: str, slot: Slot) -> Optional[StoredTensor]:
        """Returns the tensor of a slot, or the tensors of its parts; None if there are none."""
        found = self._with_scopes(name, slot.suffix)
        self._scopes[name].update(each[: -len(f"{name}/{slot.suffix}")] for each in found)
        if len(found) > 1:
            self._refuse(
                f"{quoted(found)} are slots of {name!r}: several optimizers trained it. Map it to "
                "null with the name map"
            )
        if not found and len(self._mangled.get((name, slot.suffix), ())) == 1:
            found = self._mangled[name, slot.suffix]
        if not found:
            found = partitions.names_of_parts(self._parts, name, "/" + slot.suffix)
            found = found if len(found) == len(self._tensors[name].parts) else ()
        return StoredTensor.of(found, self._tensors) if found else None

    def _slot_array(self, key: str, name: str, slot: Slot, stored: StoredTensor) -> StateArray:
        """Returns the array of a slot, after checks that its tensors fit the variable."""
        variable = self._tensors[name]
        is_counts = slot.layout in CountLayout.KINDS
        shape = stored_shape(slot.layout, variable.shape)
        joined = stored
        if len(stored.names) > 1:
            joined = stored.in_shape(shape)
            parts = [
                (stored_shape(slot.layout, size), stored_shape(slot.layout, offset))
                for size, offset in sorted(variable.parts, key=lambda part: part[1])
            ]
            shapes = [{part_shape} for part_shape, _ in parts]
        else:
            parts = stored.infos[0].parts or (whole(stored.shape),)
            allowed = CountLayout.shapes(variable.shape).values() if is_counts else [shape]
            shapes = [set(allowed)]
        for tensor, info, allowed in zip(stored.names, stored.infos, shapes):
            if info.dtype != slot.dtype or info.shape not in allowed or joined is None:
                self._is_of_another_rule(
                    f"{tensor!r} is {info.dtype} of the shape {list(info.shape)}; the rule "
                    f"has a slot of {slot.dtype}, of the layout {slot.layout!r}"
                )
        joined = joined or stored
        counts = CountLayout(joined.shape, tuple(parts)) if is_counts else None
        is_alike = counts == CountLayout.whole(shape)
        return StateArray(key, slot.dtype, shape, joined, None if is_alike else counts)

    def _new_names(
        self, variables: List[str], slots: Mapping[str, List[StateArray]], step: Optional[str]
    ) -> Dict[str, Optional[str]]:
        """Returns a dict from the names of the variables to new names; None leaves a tensor out."""
        unknown = sorted(set(self._map) - {*variables, *self._sources.values(), step})
        if unknown:
            self._refuse(f"the name map has {unknown[0]!r}, but there is no such variable")
        new_names = {name: self._map.get(name, name) for name in variables}
        undecided = []
        for name in variables:
            if name in self._map or slots[name]:
                continue
            owner = self._owner(name, new_names)  # if any, the tensor is another optimizer's slot
            if owner is not None:
                if new_names[owner] is not None:
                    undecided.append(name)
                new_names[name] = None
        named = {name for name in variables if self._map.get(name) is not None}
        unnamed = [name for name in variables if slots[name] and name not in self._map]
        if self._has_several_optimizers and unnamed:
            self._refuse(
                "the graph had several optimizers: the name map must have each variable, with its "
                f"new name, or null if the other optimizer trained it. It lacks {quoted(unnamed)}"
            )
        scopes = set().union(*(self._scopes[name] for name in new_names if new_names[name]))
        if len(scopes) > 1:
            self._refuse(
                f"slots are in the scopes {quoted(sorted(scopes))}, of several optimizers. Map the "
                "variables of the others to null with the name map"
            )
        if undecided and (self._has_several_optimizers or not named):
            self._is_of_another_rule(
                f"it has {quoted(undecided)}, slots of another optimizer. If the graph had several,"
                ' choose with the name map: {"variable": "its new name"} for each variable to '
                "export, or null for each one to leave out"
            )
        if undecided:
            new_names = {name: new if name in named else None for name, new in new_names.items()}
        in_order = sorted(name for name in new_names.values() if name is not None)
        for one, other in zip(in_order, in_order[1:]):
            if one == other:
                self._refuse(f"two variables would have the name {one!r}")
        return new_names

    def _owner(self, name: str, variables: Collection[str]) -> Optional[str]:
        """Returns the variable of a slot VARIABLE/… or SCOPE/VARIABLE/SUFFIX; None if no slot."""
        if name.endswith(_SHADOWS):
            return None
        words = name.split("/")
        candidates = ["/".join(words[:end]) for end in range(len(words) - 1, 0, -1)]
        for suffix in self._suffixes:
            if name.endswith("/" + suffix):
                words = name[: -len(suffix) - 1].split("/")
                candidates += ["/".join(words[start:]) for start in range(1, len(words))]
        return next((each for each in candidates if each in variables), None)


def _tensors_of(slots: List[StateArray]) -> List[str]:
    return [name for each in slots for name in each.stored.names]
