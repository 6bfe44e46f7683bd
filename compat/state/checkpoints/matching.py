"""Matches the tensors of a v1 checkpoint with the state of a Keras model and its optimizer.

In this module, "the Keras side" means the state in Keras, a list of `StateTensor`.
"""

from __future__ import annotations

import collections
import re
from typing import Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from legacy_opt.core.array_parts import Shape
from legacy_opt.core.count_layout import CountLayout
from legacy_opt.core.shortened import quoted

from ... import plain_text
from ..checkpoint_contents import partitions
from ..checkpoint_contents.partitions import PART
from ..checkpoint_contents.stored import SLICES, StoredTensor
from ..checkpoint_files.reader import Checkpoint
from ..checkpoint_files.tensor_info import Infos, Place, is_integer
from .keras_state import SHARED, SLOT, STEP, VARIABLE, StateTensor


class Match(NamedTuple):
    """A tensor of the Keras side, and the matching tensor of a checkpoint."""

    tensor: StateTensor
    stored: StoredTensor  # counts of AdagradDecay may have another layout, integers another dtype

    @property
    def note(self) -> str:
        """How `read` changes the value, for the report; "" if the value is not changed."""
        notes = []
        stored = self.stored
        if stored.axis == SLICES:
            notes.append(plain_text.counted(len(stored.parts), "slice"))
        elif len(stored.names) > 1:
            notes.append(f"{len(stored.names)} parts")
        if len(stored.infos[0].shape) != len(self.tensor.shape):
            notes.append("counts in the other layout of AdagradDecay")
        if stored.dtype != self.tensor.dtype:
            notes.append(f"{stored.dtype} in the checkpoint")
        return ", ".join(notes)

    @property
    def _is_counts(self) -> bool:
        return self.tensor.slot == CountLayout.SLOT

    def verify(self, checkpoint: Checkpoint) -> None:
        """Raises the errors of `read`. Reads the value only if success depends on the value."""
        is_cast = any(info.dtype != self.tensor.dtype for info in self.stored.infos)
        if is_cast or self._is_counts:
            self.read(checkpoint)
        else:
            self.stored.verify(checkpoint)

    def read(self, checkpoint: Checkpoint) -> np.ndarray:
        """Reads the value from a checkpoint.

        Raises a ValueError if the parts cannot be joined, AdagradDecay's counts cannot be
        converted, or a number is too large for the tensor's dtype.
        """
        value = self.stored.read(checkpoint)
        if self._is_counts:
            counts = CountLayout(value.shape, self.stored.parts)
            value = counts.converted(value, CountLayout.whole(self.tensor.shape))
        return _cast(value, self.tensor.dtype)

    def split(self, value: np.ndarray) -> Iterator[Tuple[str, np.ndarray, Optional[Place]]]:
        """Yields (name, array, place), arguments of `CheckpointWriter.add`, for each tensor.

        This is the inverse of `read`. Slices of a tensor remain slices. Raises a ValueError if a
        number is too large for the dtype in the checkpoint.
        """
        stored = self.stored
        value = _cast(value, stored.dtype)
        if self._is_counts:
            counts = CountLayout(stored.shape or (), stored.parts)
            value = CountLayout.whole(self.tensor.shape).converted(value, counts)
        return stored.split(value)


class Misfit(NamedTuple):
    """A tensor of the Keras side that no tensor of the checkpoint matches."""

    tensor: StateTensor
    why: str
    names: Tuple[str, ...] = ()  # tensors that were found in the checkpoint but cannot be used


Result = Union[Match, Misfit]


def match(
    tensors: Sequence[StateTensor], infos: Infos, ignore: Sequence[re.Pattern] = ()
) -> Tuple[List[Match], List[Misfit]]:
    """Finds the `StateTensor` objects in the `tensors` of a checkpoint.

    A global step in a scope is not searched among names that match a pattern in `ignore`.
    """
    slots = [tensor for tensor in tensors if tensor.kind == SLOT]
    shared = [tensor for tensor in tensors if tensor.kind == SHARED]
    shapes = {tensor.name: tensor.shape for tensor in tensors if tensor.kind == VARIABLE}
    names = _SavedNames(infos, shapes)
    slot_scopes = _scopes(slots, names, prefer=[])
    scopes = {SLOT: slot_scopes, SHARED: _scopes(shared, names, prefer=slot_scopes)}
    others = [name for name in infos if not any(each.match(name) for each in ignore)]
    results = []
    for tensor in tensors:
        if tensor.kind == STEP:
            results.append(_find_step(tensor, scopes.values(), names, others))
        else:
            shape = shapes.get(tensor.variable or "")
            results.append(_find(tensor, scopes.get(tensor.kind, [""]), names, shape))
    claims = collections.Counter(name for each in results for name in _claimed_names(each))
    results = [_unless_claimed_twice(each, claims) for each in results]
    matches = [each for each in results if isinstance(each, Match)]
    return matches, [each for each in results if isinstance(each, Misfit)]


def _claimed_names(result: Result) -> Tuple[str, ...]:
    return result.stored.names if isinstance(result, Match) else ()


def _unless_claimed_twice(result: Result, claims: Mapping[str, int]) -> Result:
    """Returns `result`, or a `Misfit` if another match uses the same tensor of the checkpoint."""
    contested = tuple(name for name in _claimed_names(result) if claims[name] > 1)
    if not contested:
        return result
    why = f"{contested[0]!r} matches another variable or slot, too"
    return Misfit(result.tensor, why, contested)


class _SavedNames:
    """The names in a checkpoint, whose tensors are `infos`.

    `shapes` is a dict from the names of the Keras side's variables to shapes. `bare_names` has all
    but the mangled names, without the numbers or ranges of parts.
    """

    def __init__(self, infos: Infos, shapes: Mapping[str, Shape]) -> None:
        self.infos = infos
        self._parts = partitions.parts(infos)
        saved = {name: info.shape for name, info in infos.items()}
        self._mangled = partitions.mangled_slots(infos, {**saved, **shapes})
        mangled = {name for stored in self._mangled.values() for name in stored.names}
        self.bare_names = {PART.sub("", name) for name in set(infos) - mangled}

    def has_variable(self, scope: str, variable: Optional[str]) -> bool:
        """Returns whether a scope contains a variable of this name, whole or in parts."""
        if not scope or variable is None:
            return False
        return scope + variable in self.infos or f"{scope}{variable}/part_0" in self.infos

    def stored(self, tensor: StateTensor, scope: str) -> Optional[StoredTensor]:
        """Returns the `StoredTensor` of a `StateTensor`, or None. In parts, its `axis` is None."""
        name, variable = scope + tensor.name, tensor.variable
        if name in self.infos:
            return StoredTensor.of([name], self.infos)
        if variable is None or not (tensor.name + "/").startswith(variable + "/"):
            return None
        rest = tensor.name[len(variable) :]
        if (variable, rest[1:]) in self._mangled:
            return self._mangled[variable, rest[1:]]
        names = partitions.names_of_parts(self._parts, scope + variable, rest)
        return StoredTensor.of(names, self.infos, axis=None) if names else None


def _scopes(tensors: Iterable[StateTensor], names: _SavedNames, prefer: List[str]) -> List[str]:
    """Returns the scopes that fit most of the tensors: if possible one, a scope in `prefer`."""
    variables = {tensor.name: tensor.variable for tensor in tensors}
    counts = collections.Counter()
    for name in names.bare_names:
        for cut in [0] + [slash.end() for slash in re.finditer("/", name)]:
            scope, rest = name[:cut], name[cut:]
            # If the checkpoint has a variable named scope + variable, `name` is its slot, and not a
            # slot of the variable without the scope.
            if rest in variables and not names.has_variable(scope, variables[rest]):
                counts[scope] += 1
    if not counts:
        return [""]
    most = max(counts.values())
    best = sorted(scope for scope, count in counts.items() if count == most)
    for scope in prefer + [""]:
        if scope in best:
            return [scope]
    return best


def _find_step(
    step: StateTensor, scopes: Iterable[List[str]], names: _SavedNames, others: Iterable[str]
) -> Result:
    """Returns the `Match` of the global step, or a `Misfit`. A step in a scope is in `others`."""
    # Another network may have a step, too. Therefore a step in a scope must be in the only scope of
    # the slots or of the shared variables.
    steps = sorted(name for name in others if name.endswith("/" + step.name))
    with_step = [each[0] for each in scopes if len(each) == 1 and each[0] + step.name in steps]
    has_no_scope = step.name in names.infos or not with_step
    result = _find(step, [""] if has_no_scope else with_step[:1], names, variable_shape=None)
    if isinstance(result, Match) or result.names or not steps:
        return result
    why = f"{result.why}; if it is any of {quoted(steps)}, choose it with name_map"
    return result._replace(why=why)


def _find(
    tensor: StateTensor, scopes: List[str], names: _SavedNames, variable_shape: Optional[Shape]
) -> Result:
    """Returns the `Match` of a tensor, which is in one of the scopes, or a `Misfit`."""
    if tensor.kind == SLOT and tensor.name in names.infos:
        scopes = [""]
    if len(scopes) > 1:
        several = ", ".join(repr(scope + tensor.name) for scope in scopes)
        return Misfit(tensor, f"it could be any of {several}: choose one with name_map")
    (scope,) = scopes
    if names.has_variable(scope, tensor.variable):
        scope = ""
    name = scope + tensor.name
    stored = names.stored(tensor, scope)
    if stored is None:
        return Misfit(tensor, f"no tensor {name!r}")
    dtypes = {info.dtype for info in stored.infos} | {tensor.dtype}
    if len(dtypes) > 1 and not all(map(is_integer, dtypes)):
        why = f"{name!r} is {stored.dtype} in the checkpoint"
        return Misfit(tensor, why, stored.names)
    is_counts = tensor.slot == CountLayout.SLOT
    shapes = CountLayout.shapes(variable_shape).values() if is_counts else (tensor.shape,)
    for shape in shapes:
        fitting = stored.in_shape(shape)
        if fitting is not None:
            return Match(tensor, fitting)
    saved = " and ".join(str(list(info.shape)) for info in stored.infos)
    return Misfit(tensor, f"{name!r} has shape {saved} in the checkpoint", stored.names)


def _cast(value: np.ndarray, dtype: str) -> np.ndarray:
    """Casts integers, or raises a ValueError if one is too large. Others have the dtype already."""
    cast = value.astype(dtype, copy=False) if is_integer(dtype) else value
    if cast.dtype != value.dtype and not np.array_equal(cast, value):
        raise ValueError(f"its numbers are too large for {dtype}")
    return cast
