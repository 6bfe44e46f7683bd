"""From one checkpoint to another, tensor by tensor, by the names of their tensors alone."""

import collections
from typing import Any, Callable, NamedTuple, Optional

import numpy as np

from .. import arrays, checkpoint_contents, plain_text
from ..checkpoint_contents import adagrad_decay_counts, deeprec_embeddings
from ..checkpoint_contents.items import EMBEDDING_VARIABLE, INCOMPLETE, OF_EACH_PART, PARTS
from ..checkpoint_files import CheckpointError, CheckpointWriter
from .report import Report, Transfer

V1_LAYOUT, V2_LAYOUT = "V1", "V2"


class Move(NamedTuple):
    """What becomes one tensor of the new checkpoint.

    Attributes:
      target: its name.
      sources: the names of the tensors it is made of; none for one that is computed.
      shape: its shape.
      dtype: its dtype.
      note: what happens on the way, or "".
      make: called with the arrays of the sources, returns its value; None to copy the source, or
        join the sources if there are several.
    """

    target: str
    sources: tuple
    shape: tuple
    dtype: Any
    note: str = ""
    make: Optional[Callable] = None

    def write(self, checkpoint, writer):
        """Writes it; a copy never has more than one source in memory."""
        if self.make is not None:
            try:
                value = self.make(*map(checkpoint.read, self.sources))
            except CheckpointError:
                raise
            except ValueError as error:
                raise CheckpointError(
                    f"{checkpoint.path!r}: {', '.join(self.sources)} cannot be converted: {error}."
                ) from error
            writer.add(self.target, value)
        elif len(self.sources) == 1 or checkpoint.tensors[self.sources[0]].parts:
            for source in self.sources:  # each holds its slices
                writer.copy(self.target, checkpoint, source)
        else:
            for source, offset in self._offsets(checkpoint):
                writer.copy(self.target, checkpoint, source, part=(self.shape, offset))

    def _offsets(self, checkpoint):
        shapes = [checkpoint.tensors[source].shape for source in self.sources]
        # The one along which they add up; along others they are as long as the whole.
        axis = next((i for i, size in enumerate(self.shape) if shapes[0][i] != size), 0)
        begin = 0
        for source, shape in zip(self.sources, shapes):
            offset = [0] * len(shape)
            offset[axis] = begin
            begin += shape[axis]
            yield source, tuple(offset)

    def nbytes(self, checkpoint):
        """Returns how many bytes are to be read, or to be written if it is computed."""
        if self.sources:
            return sum(checkpoint.tensors[source].nbytes for source in self.sources)
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.size


def write(moves, checkpoint, path, overwrite=False, advance=lambda count: None):
    """Writes a checkpoint; it appears whole or not at all.

    Args:
      moves: a list of `Move`.
      checkpoint: the `Checkpoint` that holds the sources.
      path: the prefix of the new one.
      overwrite: whether to replace one that is there.
      advance: called with the number of bytes done after each move.

    Raises:
      CheckpointError: the destination is there, two tensors would have the same name, or the
        source is damaged.
    """
    names = collections.Counter(move.target for move in moves)
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise CheckpointError(
            f"Two tensors would be called {twice[0]!r} in {path!r}. Give one of them another "
            "name with --name-map."
        )
    with CheckpointWriter(path, overwrite=overwrite) as writer:
        for move in moves:
            move.write(checkpoint, writer)
            advance(move.nbytes(checkpoint))


def report(moves, notes=(), labels=None):
    """Returns the `Report` of moves.

    Args:
      moves: a list of `Move`.
      notes: sentences.
      labels: a dict from names of sources to what people call them.
    """
    transferred = [
        Transfer(_many(move.sources, labels or {}), move.target, move.shape, move.dtype, move.note)
        for move in moves
    ]
    return Report(tuple(transferred), (), (), tuple(notes))


def _many(sources, labels):
    names = [labels.get(source, source) for source in sources]
    if len(names) < 2:
        return names[0] if names else "(computed)"
    return f"{names[0]} … {names[-1]}"


def to_saver(checkpoint, name_map=None):
    """Plans a name-based checkpoint in V2 format, with the parts of variables put together.

    Args:
      checkpoint: a name-based `Checkpoint`.
      name_map: a dict from names there to new ones. The slots of a variable follow it. None leaves
        a tensor out.

    Returns:
      A list of `Move`.

    Raises:
      CheckpointError: it holds what TensorFlow cannot restore, or lacks a name of the map.
    """
    found = checkpoint_contents.contents(checkpoint)
    refuse_what_is_no_tensor(checkpoint, found)
    rename = Renaming(checkpoint, name_map)
    moves = []
    for variable in found.variables:
        name = rename(variable.item.name)
        moves.append(_move(variable.item, name))
        for slot in variable.slots:
            target = rename(slot.item.name, _slot_name(slot, variable.item.name, name))
            alone = variable.item.kind == PARTS and slot.item.kind != PARTS
            if target is not None and (alone or slot.item.kind == OF_EACH_PART):
                raise CheckpointError(
                    f"{checkpoint.path!r}: the parts of {variable.item.name} have "
                    f"{slot.item.name} each for itself, and none for the whole. Restore it "
                    "with the same partitions; or leave it out, with null in the name map."
                )
            counts = slot.role == adagrad_decay_counts.SLOT and variable.item.kind == PARTS
            moves.append(_move(slot.item, target, counts))
    for item in found.shared + found.other + ((found.step,) if found.step else ()):
        moves.append(_move(item, rename(item.name)))
    rename.check()
    return [move for move in moves if move is not None and move.target is not None]


def _slot_name(slot, variable, new_name):
    """Returns what a slot is called if its variable is renamed; None if that is left out."""
    if new_name is None:
        return None
    scope = slot.scope + "/" if slot.scope else ""
    # It may have more than the suffix there, as in x/part_0/Adam of a variable x.
    rest = slot.item.name[len(scope + variable) :]
    return scope + new_name + rest


def _move(item, target, counts=False):
    if item.kind != PARTS:
        return Move(target, item.pieces, item.shape, item.dtype)
    note = plain_text.counted(len(item.pieces), "part")
    if item.shape == ():
        return Move(target, item.pieces, (), item.dtype, note, _one_value)
    if counts:

        def join(*parts):
            rows = np.concatenate([adagrad_decay_counts.by_rows(part) for part in parts])
            return adagrad_decay_counts.from_rows(rows, item.shape)

        return Move(target, item.pieces, item.shape, item.dtype, note, join)
    return Move(target, item.pieces, item.shape, item.dtype, note)


def _one_value(*parts):
    if not all(arrays.same(part, parts[0]) for part in parts):
        raise ValueError("each part has a value of its own, and they differ")
    return parts[0]


class Renaming:
    """New names for tensors, which notes what of the map has been asked for.

    Args:
      checkpoint: for messages.
      name_map: a dict, or None.
    """

    def __init__(self, checkpoint, name_map):
        self._checkpoint = checkpoint
        self._map = dict(name_map or {})
        self._unused = set(self._map)
        self._asked = []

    def __call__(self, *names):
        """Returns the new name.

        Args:
          *names: the old one, and what it would be called otherwise, which the map may name, too.
        """
        usual = names[-1]
        for name in names:
            self._asked.append(name)
            self._unused.discard(name)
            if name in self._map:
                usual = self._map[name]
                break
        return usual

    def check(self):
        """Raises a CheckpointError if the map names what is not there."""
        if self._unused:
            raise CheckpointError(
                f"{self._checkpoint.path!r} holds nothing that is called "
                f"{', '.join(map(repr, sorted(self._unused)))}, which the name map names."
            )


def refuse_what_is_no_tensor(checkpoint, found):
    """Raises a CheckpointError for EmbeddingVariables of DeepRec, and for incomplete tensors."""
    for kind, why in (
        (EMBEDDING_VARIABLE, deeprec_embeddings.WHY),
        (INCOMPLETE, "parts of it are missing"),
    ):
        names = [item.name for item in found.items() if item.kind == kind]
        if names:
            raise CheckpointError(
                f"{checkpoint.path!r}: {', '.join(names)} cannot be converted: {why}."
            )


def to_decay_layout(checkpoint, layout):
    """Plans a copy with the counts of AdagradDecay in one of its layouts.

    Args:
      checkpoint: a name-based `Checkpoint`.
      layout: V1_LAYOUT or V2_LAYOUT.

    Returns:
      A list of `Move`.

    Raises:
      CheckpointError: there are no such counts, or they belong to variables in parts.
    """
    found = checkpoint_contents.contents(checkpoint)
    refuse_what_is_no_tensor(checkpoint, found)
    moves, counts = {}, 0
    for variable in found.variables:
        for slot in variable.slots:
            if slot.role != adagrad_decay_counts.SLOT:
                continue
            if {variable.item.kind, slot.item.kind} & {PARTS, OF_EACH_PART}:
                raise CheckpointError(
                    f"{checkpoint.path!r} holds {slot.item.name} in parts. Put them together "
                    "first: --to v1"
                )
            counts += 1
            moves[slot.item.name] = _relaid(checkpoint, variable.item, slot.item, layout)
    if not counts:
        raise CheckpointError(
            f"{checkpoint.path!r} holds no counts of AdagradDecay: there are no slots like its own."
        )
    return [
        moves.get(name) or Move(name, (name,), info.shape, info.dtype)
        for name, info in checkpoint.tensors.items()
    ]


def _relaid(checkpoint, variable, slot, layout):
    wanted = variable.shape if layout == V1_LAYOUT else variable.shape[:1]
    if slot.shape == wanted:
        return Move(slot.name, (slot.name,), wanted, slot.dtype)
    # In a partitioned variable, which is saved whole, each part counts for itself.
    parts = checkpoint.tensors[variable.name].parts

    def change_layout(counts):
        rows = adagrad_decay_counts.by_rows(counts, parts if layout == V2_LAYOUT else ())
        return rows if layout == V2_LAYOUT else adagrad_decay_counts.from_rows(rows, wanted, parts)

    note = f"counts in layout {layout}"
    return Move(slot.name, (slot.name,), wanted, slot.dtype, note, change_layout)


def power(beta, steps):
    """Returns what v1's Adam keeps as a power of beta after some steps.

    It multiplies float32 numbers, step by step, in threads that take the smallest ones for 0.

    Args:
      beta: the number that it starts at.
      steps: how many have been done.
    """
    factor, smallest = np.float32(beta), np.finfo(np.float32).tiny
    result = factor
    for _ in range(steps):
        previous, result = result, result * factor
        if result < smallest:
            return np.float32(0)
        if result == previous:
            break
    return result
