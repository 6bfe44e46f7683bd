"""Matches the tensors of a v1 checkpoint with the state of a Keras model and its optimizer.

In this module, "the Keras side" means the state in Keras, a list of `StateTensor`.
"""

import collections
import re
from typing import NamedTuple, Optional

import numpy as np
import tensorflow as tf

from .. import arrays
from ..checkpoint_contents import adagrad_decay_counts, partitioned_slots
from ..checkpoint_contents.partitioned_slots import PART
from .keras_state import SHARED, SLOT, StateTensor


class Match(NamedTuple):
    """A tensor of the Keras side, and the matching tensor of a checkpoint, whole or in parts.

    Attributes:
      tensor: the `StateTensor` of the Keras side.
      names: the names of the tensors in the checkpoint.
      infos: the `TensorInfo`s of these tensors.
      axis: the axis along which the tensors are joined; None if each contains the whole value.
    """

    tensor: StateTensor
    names: tuple
    infos: tuple
    axis: Optional[int]

    @property
    def note(self):
        """How `read` changes the value, for the report; "" if the value is not changed."""
        notes, info = [], self.infos[0]
        if len(self.names) > 1:
            notes.append(f"{len(self.names)} parts")
        if len(info.shape) != len(self.tensor.shape):
            notes.append("counts in the other layout of AdagradDecay")
        if info.dtype != self.tensor.dtype:
            notes.append(f"{info.dtype.name} in the checkpoint")
        return ", ".join(notes)

    @property
    def _is_counts(self):
        return self.tensor.slot == adagrad_decay_counts.SLOT

    def verify(self, checkpoint):
        """Checks that `read` will succeed. Reads the value only if success depends on the value.

        Raises:
          CheckpointError, ValueError: see `read`.
        """
        is_cast = any(info.dtype != self.tensor.dtype for info in self.infos)
        if is_cast or self._is_counts or (self.axis is None and len(self.names) > 1):
            self.read(checkpoint)
        else:
            checkpoint.verify(self.names)

    def read(self, checkpoint):
        """Reads the value from a checkpoint.

        Raises:
          CheckpointError: the data are damaged.
          ValueError: the parts cannot be joined, AdagradDecay's counts cannot be converted, or a
            number is too large for the tensor's dtype.
        """
        values = [checkpoint.read(name) for name in self.names]
        if self._is_counts:
            values = [self._by_rows(*each) for each in zip(values, self.infos)]
        if self.axis is None:
            if not all(arrays.same(value, values[0]) for value in values):
                raise ValueError("the parts differ, but Keras has one value for all parts")
            values = values[:1]
        value = values[0] if len(values) == 1 else np.concatenate(values, self.axis)
        if self._is_counts:
            value = adagrad_decay_counts.from_rows(value, self.tensor.shape)
        return _cast(value, self.tensor.dtype.as_numpy_dtype)

    def _by_rows(self, counts, info):
        # One tensor without slices may be that of a partitioned variable, in V1 format.
        is_known = info.parts or len(self.names) > 1
        parts = partitioned_slots.pieces_of(info) if is_known else ()
        return adagrad_decay_counts.by_rows(counts, parts)

    def split(self, value):
        """Yields (name, array, part), arguments of `CheckpointWriter.add`, for each tensor.

        This is the inverse of `read`. Slices of a tensor remain slices.

        Raises:
          ValueError: a number is too large for the dtype in the checkpoint.
        """
        value = _cast(value, self.infos[0].dtype.as_numpy_dtype)
        if self._is_counts:
            value = adagrad_decay_counts.rows_of(value)
        begin = 0
        for name, info in zip(self.names, self.infos):
            piece = value
            if len(self.names) > 1 and self.axis is not None:
                end = begin + info.shape[self.axis]
                piece = value[(slice(None),) * self.axis + (slice(begin, end),)]
                begin = end
            if self._is_counts:
                piece = adagrad_decay_counts.from_rows(piece, info.shape, info.parts)
            for array, part in adagrad_decay_counts.pieces(piece, info.parts):
                yield name, array, part


class SlicedMatch(NamedTuple):
    """A slot, and the tensors of a checkpoint that contain its slices; see `partitioned_slots`."""

    tensor: StateTensor
    names: tuple
    infos: tuple

    @property
    def note(self):
        """The number of slices, for the report."""
        count = len(self._pieces())
        return f"{count} slice{'' if count == 1 else 's'}"

    def _pieces(self):
        return [
            (name, piece)
            for name, info in zip(self.names, self.infos)
            for piece in partitioned_slots.pieces_of(info)
        ]

    def verify(self, checkpoint):
        """Reads the value, because `Checkpoint.verify` cannot check tensors that lack slices."""
        self.read(checkpoint)

    def read(self, checkpoint):
        """Reads the value from a checkpoint.

        Raises:
          CheckpointError: the data are damaged.
          ValueError: AdagradDecay's counts cannot be converted, or a number is too large for the
            tensor's dtype.
        """
        value = np.zeros(self.infos[0].shape, self.infos[0].dtype.as_numpy_dtype)
        for name, piece in self._pieces():
            value[adagrad_decay_counts.slices(*piece)] = checkpoint.read(name, piece)
        if self.tensor.slot == adagrad_decay_counts.SLOT:
            parts = [piece for _, piece in self._pieces()]
            value = adagrad_decay_counts.from_rows(
                adagrad_decay_counts.by_rows(value, parts), self.tensor.shape
            )
        return _cast(value, self.tensor.dtype.as_numpy_dtype)

    def split(self, value):
        """Yields (name, array, part), arguments of `CheckpointWriter.add`, for each slice."""
        shape, pieces = self.infos[0].shape, self._pieces()
        if self.tensor.slot == adagrad_decay_counts.SLOT:
            parts = [piece for _, piece in pieces]
            value = adagrad_decay_counts.from_rows(
                adagrad_decay_counts.rows_of(value), shape, parts
            )
        value = _cast(value, self.infos[0].dtype.as_numpy_dtype)
        for name, (piece_shape, offset) in pieces:
            yield name, value[adagrad_decay_counts.slices(piece_shape, offset)], (shape, offset)


class _Info(NamedTuple):
    """Replaces `TensorInfo` in a `Match` whose tensor is not in a checkpoint yet."""

    dtype: tf.DType
    shape: tuple
    parts: tuple = ()


class Misfit(NamedTuple):
    """A tensor of the Keras side that no tensor of the checkpoint matches.

    Attributes:
      tensor: the `StateTensor`.
      why: the reason.
      names: the names of tensors that were found in the checkpoint but cannot be used.
    """

    tensor: StateTensor
    why: str
    names: tuple = ()


def as_named(tensor):
    """Returns a `Match` that writes a tensor unchanged under its v1 name."""
    return Match(tensor, (tensor.name,), (_Info(tensor.dtype, tensor.shape),), None)


def match(tensors, infos):
    """Finds the tensors of a Keras model and its optimizer in a checkpoint.

    Args:
      tensors: a list of `StateTensor`.
      infos: the checkpoint's tensors, a dict from names to `TensorInfo`.

    Returns:
      A pair: a list of `Match` and `SlicedMatch` objects, and a list of `Misfit` objects.
    """
    slots = [tensor for tensor in tensors if tensor.kind == SLOT]
    shared = [tensor for tensor in tensors if tensor.kind == SHARED]
    mangled = {name for names in partitioned_slots.find_all(infos).values() for name in names}
    of_slots = _scopes(slots, infos, mangled, prefer=[])
    scopes = {SLOT: of_slots, SHARED: _scopes(shared, infos, mangled, prefer=of_slots)}
    found = [_find(tensor, scopes.get(tensor.kind, [""]), infos, tensors) for tensor in tensors]
    claims = collections.Counter(
        name for each in found if not isinstance(each, Misfit) for name in each.names
    )
    found = [_unless_claimed(each, claims) for each in found]
    misfits = [each for each in found if isinstance(each, Misfit)]
    return [each for each in found if not isinstance(each, Misfit)], misfits


def _unless_claimed(found, claims):
    """Returns `found`, or a `Misfit` if another match uses the same tensor of the checkpoint."""
    twice = [name for name in found.names if claims[name] > 1]
    if not twice or isinstance(found, Misfit):
        return found
    return Misfit(found.tensor, f"{twice[0]!r} matches another variable or slot, too", twice)


def _scopes(tensors, infos, mangled, prefer):
    """Returns a list of the possible scopes before the tensors' names, usually only one.

    Args:
      tensors: the `StateTensor`s of one kind.
      infos: a dict from names to `TensorInfo`.
      mangled: the mangled names (see `partitioned_slots`), which are ignored.
      prefer: scopes to choose first if several scopes fit equally well.
    """
    counts, wanted = collections.Counter(), {tensor.name: tensor.variable for tensor in tensors}
    for name in {PART.sub("", name) for name in set(infos) - mangled}:
        for cut in [0] + [found.end() for found in re.finditer("/", name)]:
            scope, rest = name[:cut], name[cut:]
            # If the checkpoint has a variable named scope + variable, `name` is its slot, and not a
            # slot of the variable without the scope.
            if rest in wanted and not (scope and _has(scope, wanted[rest], infos)):
                counts[scope] += 1
    if not counts:
        return [""]
    most = max(counts.values())
    best = sorted(scope for scope, count in counts.items() if count == most)
    for scope in prefer + [""]:
        if scope in best:
            return [scope]
    return best


def _has(scope, variable, infos):
    if variable is None:
        return False
    return scope + variable in infos or f"{scope}{variable}/part_0" in infos


def _find(tensor, scopes, infos, tensors):
    """Returns the `Match` of a tensor, or a `Misfit`."""
    if tensor.kind == SLOT and tensor.name in infos:
        scopes = [""]
    if len(scopes) > 1:
        names = ", ".join(repr(scope + tensor.name) for scope in scopes)
        return Misfit(tensor, f"it could be any of {names}: choose one with name_map")
    (scope,) = scopes
    if scope and _has(scope, tensor.variable, infos):
        scope = ""
    name = scope + tensor.name
    names = (name,) if name in infos else ()
    if tensor.kind == SLOT and not names:
        slot = tensor.name[len(tensor.variable) + 1 :]
        whole = next(each.shape for each in tensors if each.name == tensor.variable)
        names = partitioned_slots.find(tensor.variable, slot, (whole, tensor.shape), infos)
        if names:
            return SlicedMatch(tensor, names, tuple(infos[each] for each in names))
    names = names or _parts_of(tensor, scope, infos)
    if not names:
        return Misfit(tensor, f"no tensor {name!r}")
    found = tuple(infos[each] for each in names)
    dtypes = {info.dtype for info in found} | {tensor.dtype}
    if len(dtypes) > 1 and not all(getattr(dtype, "is_integer", False) for dtype in dtypes):
        return Misfit(tensor, f"{name!r} is {found[0].dtype.name} in the checkpoint", names)
    shapes, wanted = [info.shape for info in found], tensor.shape
    if tensor.slot == adagrad_decay_counts.SLOT:
        shapes, wanted = [shape[:1] for shape in shapes], wanted[:1]
    if all(shape == wanted for shape in shapes):
        return Match(tensor, names, found, None)
    for axis, size in enumerate(wanted):
        rest = {shape[:axis] + shape[axis + 1 :] for shape in shapes}
        alike = rest == {wanted[:axis] + wanted[axis + 1 :]}
        if alike and sum(shape[axis] for shape in shapes) == size:
            return Match(tensor, names, found, axis)
    saved = " and ".join(str(list(shape)) for shape in shapes)
    return Misfit(tensor, f"{name!r} has shape {saved} in the checkpoint", names)


def _parts_of(tensor, scope, infos):
    """Returns the names of a tensor's parts in order, such as x/part_0/Adam and x/part_1/Adam.

    Returns () if there are no parts, or if one of the numbers is missing.
    """
    variable = tensor.variable
    if variable is None or not (tensor.name == variable or tensor.name.startswith(variable + "/")):
        return ()
    before, after = scope + variable, tensor.name[len(variable) :]
    names = [
        name
        for name in infos
        if name.startswith(before + "/") and PART.sub("", name[len(before) :], 1) == after
        if PART.match(name, len(before))
    ]
    names = sorted(names, key=lambda name: partitioned_slots.position(name[len(before) :]))
    numbers = [partitioned_slots.position(name[len(before) :]) for name in names]
    numbered = all(partitioned_slots.is_numbered(name[len(before) :]) for name in names)
    return () if numbered and numbers != list(range(len(names))) else tuple(names)


def _cast(value, dtype):
    """Casts integers to another integer dtype. Other values already have the right dtype.

    Raises:
      ValueError: an integer is too large for the dtype.
    """
    cast = value.astype(dtype, copy=False)
    if cast.dtype != value.dtype and not np.array_equal(cast, value):
        raise ValueError(f"its numbers are too large for {np.dtype(dtype).name}")
    return cast
