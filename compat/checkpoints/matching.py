"""Which tensors of a v1 checkpoint belong to which parts of a Keras model and its optimizer."""

import collections
import re
from typing import NamedTuple, Optional

import numpy as np
import tensorflow as tf

from .. import arrays
from ..checkpoint_contents import adagrad_decay_counts, partitioned_slots
from ..checkpoint_contents.partitioned_slots import PART
from .keras_state import SHARED, SLOT, Part


class Match(NamedTuple):
    """A part and the tensors of a checkpoint that it is in: one, or those of a partition.

    Attributes:
      part: the `Part` of the Keras side.
      names: the names of the tensors.
      infos: their `TensorInfo`s.
      axis: the dimension in which the tensors follow each other; None if they are all the same.
    """

    part: Part
    names: tuple
    infos: tuple
    axis: Optional[int]

    @property
    def note(self):
        """What happens on the way, for the report; "" if nothing does."""
        notes, info = [], self.infos[0]
        if len(self.names) > 1:
            notes.append(f"{len(self.names)} parts")
        if len(info.shape) != len(self.part.shape):
            notes.append("counts in the other layout of AdagradDecay")
        if info.dtype != self.part.dtype:
            notes.append(f"{info.dtype.name} in the checkpoint")
        return ", ".join(notes)

    @property
    def _is_counts(self):
        return self.part.slot == adagrad_decay_counts.SLOT

    def read(self, checkpoint):
        """Returns the part's value.

        Raises:
          ValueError: the values do not go together, or not into the part's dtype.
        """
        values = [checkpoint.read(name) for name in self.names]
        if self._is_counts:
            parts = [info.parts for info in self.infos]
            values = [adagrad_decay_counts.by_rows(*each) for each in zip(values, parts)]
        if self.axis is None:
            if not all(arrays.same(value, values[0]) for value in values):
                raise ValueError("its parts differ, and there is one value for all here")
            values = values[:1]
        value = values[0] if len(values) == 1 else np.concatenate(values, self.axis)
        if self._is_counts:
            value = adagrad_decay_counts.from_rows(value, self.part.shape)
        return _cast(value, self.part.dtype.as_numpy_dtype)

    def split(self, value):
        """Yields (name, array, None) for each tensor of a part's value; the reverse of `read`.

        Raises:
          ValueError: the value does not go into the tensors' dtype.
        """
        value = _cast(value, self.infos[0].dtype.as_numpy_dtype)
        if self._is_counts:
            value = adagrad_decay_counts.by_rows(value)
        begin = 0
        for name, info in zip(self.names, self.infos):
            piece = value
            if len(self.names) > 1 and self.axis is not None:
                end = begin + info.shape[self.axis]
                piece = value[(slice(None),) * self.axis + (slice(begin, end),)]
                begin = end
            if self._is_counts:
                piece = adagrad_decay_counts.from_rows(piece, info.shape, info.parts)
            yield name, piece, None


class SlicedMatch(NamedTuple):
    """A slot and the tensors that hold its slices; see `partitioned_slots`."""

    part: Part
    names: tuple
    infos: tuple

    @property
    def note(self):
        """What happens on the way, for the report."""
        count = len(self._pieces())
        return f"{count} slice{'' if count == 1 else 's'}"

    def _pieces(self):
        return [
            (name, piece)
            for name, info in zip(self.names, self.infos)
            for piece in partitioned_slots.pieces_of(info)
        ]

    def read(self, checkpoint):
        """Returns the part's value.

        Raises:
          ValueError: the values do not go into the part's dtype.
        """
        value = np.zeros(self.infos[0].shape, self.infos[0].dtype.as_numpy_dtype)
        for name, piece in self._pieces():
            value[adagrad_decay_counts.slices(*piece)] = checkpoint.read(name, piece)
        if self.part.slot == adagrad_decay_counts.SLOT:
            parts = [piece for _, piece in self._pieces()]
            value = adagrad_decay_counts.from_rows(
                adagrad_decay_counts.by_rows(value, parts), self.part.shape
            )
        return _cast(value, self.part.dtype.as_numpy_dtype)

    def split(self, value):
        """Yields (name, array, (shape of the whole, offset)) for each slice of a value."""
        shape, pieces = self.infos[0].shape, self._pieces()
        if self.part.slot == adagrad_decay_counts.SLOT:
            parts = [piece for _, piece in pieces]
            value = adagrad_decay_counts.from_rows(
                adagrad_decay_counts.by_rows(value), shape, parts
            )
        value = _cast(value, self.infos[0].dtype.as_numpy_dtype)
        for name, (piece_shape, offset) in pieces:
            yield name, value[adagrad_decay_counts.slices(piece_shape, offset)], (shape, offset)


class _Info(NamedTuple):
    """What there is to know of a tensor that is still to be written, like a `TensorInfo`."""

    dtype: tf.DType
    shape: tuple
    parts: tuple = ()


class Misfit(NamedTuple):
    """A part that no tensor of the checkpoint fits, and why."""

    part: Part
    why: str
    names: tuple = ()


def as_named(part):
    """Returns the `Match` of a part with a tensor of its own name, shape and dtype."""
    return Match(part, (part.name,), (_Info(part.dtype, part.shape),), None)


def match(parts, tensors):
    """Finds a checkpoint's tensors for the parts of a Keras model and its optimizer.

    Args:
      parts: a list of `Part`.
      tensors: a dict from names to `TensorInfo`.

    Returns:
      A list of `Match`, and a list of `Misfit`.
    """
    slots = [part for part in parts if part.kind == SLOT]
    shared = [part for part in parts if part.kind == SHARED]
    mangled = {name for names in partitioned_slots.find_all(tensors).values() for name in names}
    of_slots = _scopes(slots, tensors, mangled, prefer=[])
    scopes = {SLOT: of_slots, SHARED: _scopes(shared, tensors, mangled, prefer=of_slots)}
    found = [_find(part, scopes.get(part.kind, [""]), tensors, parts) for part in parts]
    claims = collections.Counter(
        name for each in found if not isinstance(each, Misfit) for name in each.names
    )
    found = [_unless_claimed(each, claims) for each in found]
    misfits = [each for each in found if isinstance(each, Misfit)]
    return [each for each in found if not isinstance(each, Misfit)], misfits


def _unless_claimed(found, claims):
    """Makes a `Misfit` of a `Match` with a tensor that something else has found, too."""
    twice = [name for name in found.names if claims[name] > 1]
    if not twice or isinstance(found, Misfit):
        return found
    return Misfit(found.part, f"{twice[0]!r} would be that of something else here, too", twice)


def _scopes(parts, tensors, mangled, prefer):
    """Returns the scope before the names of some parts in a checkpoint; several if unclear."""
    counts, wanted = collections.Counter(), {part.name: part.variable for part in parts}
    for name in {PART.sub("", name) for name in set(tensors) - mangled}:
        for cut in [0] + [found.end() for found in re.finditer("/", name)]:
            scope, rest = name[:cut], name[cut:]
            # Where there is such a variable in that scope, it is that variable's slot.
            if rest in wanted and not (scope and _has(scope, wanted[rest], tensors)):
                counts[scope] += 1
    if not counts:
        return [""]
    most = max(counts.values())
    best = sorted(scope for scope, count in counts.items() if count == most)
    for scope in prefer + [""]:
        if scope in best:
            return [scope]
    return best


def _has(scope, variable, tensors):
    if variable is None:
        return False
    return scope + variable in tensors or f"{scope}{variable}/part_0" in tensors


def _find(part, scopes, tensors, parts):
    """Returns the `Match` of a part, or a `Misfit`."""
    if part.kind == SLOT and part.name in tensors:
        scopes = [""]
    if len(scopes) > 1:
        names = ", ".join(repr(scope + part.name) for scope in scopes)
        return Misfit(part, f"it could be any of {names}: say which with name_map")
    (scope,) = scopes
    if scope and _has(scope, part.variable, tensors):
        scope = ""
    name = scope + part.name
    names = (name,) if name in tensors else ()
    if part.kind == SLOT and not names:
        slot = part.name[len(part.variable) + 1 :]
        whole = next(each.shape for each in parts if each.name == part.variable)
        names = partitioned_slots.find(part.variable, slot, (whole, part.shape), tensors)
        if names:
            return SlicedMatch(part, names, tuple(tensors[each] for each in names))
    names = names or _parts_of(part, scope, tensors)
    if not names:
        return Misfit(part, f"no tensor {name!r}")
    infos = tuple(tensors[each] for each in names)
    dtypes = {info.dtype for info in infos} | {part.dtype}
    if len(dtypes) > 1 and not all(getattr(dtype, "is_integer", False) for dtype in dtypes):
        return Misfit(part, f"{name!r} is {infos[0].dtype.name} there", names)
    shapes, wanted = [info.shape for info in infos], part.shape
    if part.slot == adagrad_decay_counts.SLOT:
        shapes, wanted = [shape[:1] for shape in shapes], wanted[:1]
    if all(shape == wanted for shape in shapes):
        return Match(part, names, infos, None)
    for axis, size in enumerate(wanted):
        rest = {shape[:axis] + shape[axis + 1 :] for shape in shapes}
        alike = rest == {wanted[:axis] + wanted[axis + 1 :]}
        if alike and sum(shape[axis] for shape in shapes) == size:
            return Match(part, names, infos, axis)
    there = " and ".join(str(list(info.shape)) for info in infos)
    return Misfit(part, f"{name!r} is of shape {there} there", names)


def _parts_of(part, scope, tensors):
    """Returns the names of the tensors x/part_0…, or x/part_0/Adam…, in order; () if none."""
    variable = part.variable
    if variable is None or not (part.name == variable or part.name.startswith(variable + "/")):
        return ()
    before, after = scope + variable, part.name[len(variable) :]
    names = [
        name
        for name in tensors
        if name.startswith(before + "/") and PART.sub("", name[len(before) :], 1) == after
        if PART.match(name, len(before))
    ]
    names = sorted(names, key=lambda name: partitioned_slots.position(name[len(before) :]))
    numbers = [partitioned_slots.position(name[len(before) :]) for name in names]
    numbered = all(partitioned_slots.is_numbered(name[len(before) :]) for name in names)
    return () if numbered and numbers != list(range(len(names))) else tuple(names)


def _cast(value, dtype):
    """Casts between integers; other dtypes are the same.

    Raises:
      ValueError: an integer is too large.
    """
    cast = value.astype(dtype, copy=False)
    if cast.dtype != value.dtype and not np.array_equal(cast, value):
        raise ValueError(f"its numbers are too large for {np.dtype(dtype).name}")
    return cast
