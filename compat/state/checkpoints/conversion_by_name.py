"""Converts name-based checkpoints tensor by tensor, without Keras and without a model."""

from __future__ import annotations

import collections
import functools
from typing import Any, Callable, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from legacy_opt.core.array_parts import Part, Shape
from legacy_opt.core.count_layout import CountLayout
from legacy_opt.core.shortened import quoted

from ... import plain_text
from .. import checkpoint_contents
from ..checkpoint_contents import deeprec_embeddings
from ..checkpoint_contents import items as kinds
from ..checkpoint_contents.items import OF_EACH_PART, PARTS, Contents, Item, SlotItem
from ..checkpoint_contents.stored import COPIES, StoredTensor, new_tensor
from ..checkpoint_files.errors import CheckpointError
from ..checkpoint_files.reader import Checkpoint, nbytes_of
from ..checkpoint_files.writer import CheckpointWriter
from .name_maps import OldToNew
from .report import Report, first_and_last, transfer


class Move(NamedTuple):
    """One tensor of the new checkpoint and its source in the old checkpoint."""

    target: Optional[str]  # the name in the new checkpoint; None if the tensor is left out
    shape: Shape
    dtype: str  # the name of the dtype
    stored: Optional[StoredTensor] = None  # None if the value does not depend on the old checkpoint
    note: str = ""  # for the report: how the tensor is changed; "" if it is copied
    # From the value of `stored`, if there is one, to the tensor's value. None copies the tensors of
    # `stored`, without reading all of them into memory.
    make: Optional[Callable[..., Any]] = None
    parts: Tuple[Part, ...] = ()  # in which the result of `make` is saved; () to save it whole

    @property
    def sources(self) -> Tuple[str, ...]:
        """The names of the tensors in the old checkpoint."""
        return () if self.stored is None else self.stored.names

    def write(self, checkpoint: Checkpoint, writer: CheckpointWriter) -> None:
        """Writes the tensor. If `make` is not None, reads the whole value into memory."""
        assert self.target is not None  # only moves that have a target are written
        if self.make is None:
            self.stored.copy(self.target, checkpoint, writer)
            return
        try:
            values = [] if self.stored is None else [self.stored.read(checkpoint)]
            value = self.make(*values)
        except CheckpointError:
            raise
        except ValueError as error:
            raise CheckpointError(
                f"{checkpoint.path!r}: {', '.join(self.sources)} cannot be converted: {error}."
            ) from error
        for piece in new_tensor(self.target, self.dtype, self.shape, self.parts).split(value):
            writer.add(*piece)

    @property
    def nbytes(self) -> int:
        """The number of bytes to read or, if there are no sources, to write."""
        if self.stored is None:
            return nbytes_of(self.dtype, self.shape)
        return sum(info.nbytes for info in self.stored.infos)


def copied(checkpoint: Checkpoint, name: str, target: Optional[str]) -> Move:
    """Returns the `Move` that copies a tensor of a checkpoint."""
    stored = StoredTensor.of([name], checkpoint.tensors)
    return Move(target, stored.infos[0].shape, stored.dtype, stored)


def write(
    moves: Sequence[Move],
    checkpoint: Checkpoint,
    path: str,
    overwrite: bool = False,
    advance: Callable[[int], Any] = lambda count: None,
) -> None:
    """Writes moves from a checkpoint to a new checkpoint, which appears complete, or not at all.

    After each move, calls `advance`, which shows progress, with the number of the move's bytes. Two
    tensors of the same name, and the errors of reading and writing, raise a CheckpointError.
    """
    names = collections.Counter(move.target for move in moves)
    duplicates = [name for name, count in names.items() if count > 1]
    if duplicates:
        raise CheckpointError(
            f"Two tensors would be called {duplicates[0]!r} in {path!r}. Give one of them another "
            "name with --name-map."
        )
    with CheckpointWriter(path, overwrite=overwrite) as writer:
        for move in moves:
            move.write(checkpoint, writer)
            advance(move.nbytes)


def report(
    moves: Iterable[Move], notes: Iterable[str] = (), labels: Optional[Mapping[Any, str]] = None
) -> Report:
    """Returns the `Report` of moves. `labels` maps names of sources to names shown to users."""
    transferred = []
    for move in moves:
        names = [(labels or {}).get(source, source) for source in move.sources] or ["(computed)"]
        transferred.append(transfer(first_and_last(names), move.target or "", move, move.note))
    return Report(tuple(transferred), (), (), tuple(notes))


def to_saver(checkpoint: Checkpoint, name_map: Optional[OldToNew] = None) -> List[Move]:
    """Returns the moves to a name-based checkpoint in which the parts of variables are joined.

    `name_map` is a dict from old names to new names, or to None to leave a tensor out. The slots of
    a variable are renamed or left out together with the variable. Tensors that cannot be converted,
    and names in the map that no tensor has, raise a CheckpointError.
    """
    contents = checkpoint_contents.contents(checkpoint)
    refuse_unconvertible(checkpoint, contents)
    rename = Renaming(checkpoint, name_map)
    moves = []
    for variable in contents.variables:
        name = rename(variable.item.name)
        if name is not None and variable.item.kind == OF_EACH_PART:  # a slot of unknown kind
            raise _cannot_be_joined(checkpoint, variable.item.name, "a variable")
        moves.append(_move(variable.item, name))
        for slot in variable.slots:
            target = rename(slot.item.name, _slot_name(slot, variable.item.name, name))
            is_of_one_part = variable.item.kind == PARTS and slot.item.kind != PARTS
            if target is not None and (is_of_one_part or slot.item.kind == OF_EACH_PART):
                raise _cannot_be_joined(checkpoint, slot.item.name, variable.item.name)
            if slot.role == CountLayout.SLOT:
                moves.append(_move_counts(slot.item, target))
            else:
                moves.append(_move(slot.item, target))
    for item in (*contents.shared, *contents.other, contents.step):
        if item is not None:
            moves.append(_move(item, rename(item.name)))
    rename.check()
    return [move for move in moves if move.target is not None]


def _cannot_be_joined(checkpoint: Checkpoint, slot: str, variable: str) -> CheckpointError:
    return CheckpointError(
        f"{checkpoint.path!r}: each part of {variable} has its own {slot}, and these slots cannot "
        "be joined. Restore the checkpoint with the same partitions; or leave the slot out, with "
        "null in the name map."
    )


def _slot_name(slot: SlotItem, variable: str, new_name: Optional[str]) -> Optional[str]:
    """Returns a slot's name after its variable was renamed; None if the variable is left out."""
    if new_name is None:
        return None
    scope = slot.scope + "/" if slot.scope else ""
    # `slot.suffix` may be too short: if x is saved as one tensor, but its slots are saved in parts,
    # the slot x/part_0/Adam has the suffix Adam, and its new name must contain part_0, too.
    rest = slot.item.name[len(scope + variable) :]
    return scope + new_name + rest


def _move(item: Item, target: Optional[str]) -> Move:
    stored = item.stored
    note = plain_text.counted(len(stored.names), "part") if item.kind == PARTS else ""
    has_copies = stored.axis == COPIES and len(stored.names) > 1
    make = (lambda value: value) if has_copies else None  # `read` compares the copies
    return Move(target, stored.shape, stored.dtype, stored, note, make)


def _move_counts(item: Item, target: Optional[str]) -> Move:
    """Returns the `Move` that joins the counts of parts to counts of an unpartitioned variable."""
    parts = item.stored.parts
    if not parts or not item.shape:
        return _move(item, target)
    note = plain_text.counted(len(parts), "part")
    counts = CountLayout(item.shape, parts)
    join = functools.partial(counts.converted, to=CountLayout.whole(item.shape))
    return Move(target, item.shape, item.dtype, item.stored, note, join)


class Renaming:
    """Renames tensors with a name map (see `to_saver`), and finds names that no tensor has."""

    def __init__(self, checkpoint: Checkpoint, name_map: Optional[OldToNew]) -> None:
        self._checkpoint = checkpoint
        self._map = dict(name_map or {})
        self._unused = set(self._map)

    def __call__(self, *names: Optional[str]) -> Optional[str]:
        """Returns the new name of a tensor; None to leave it out.

        `names`: the old name and, if it differs, the default new name. Both may be keys of the map.
        """
        for name in names:
            self._unused.discard(name)
            if name in self._map:
                return self._map[name]
        return names[-1]

    def check(self) -> None:
        """Raises a CheckpointError if the map contains a name that no tensor has."""
        if self._unused:
            raise CheckpointError(
                f"The name map has {quoted(sorted(self._unused))}, but no tensor in "
                f"{self._checkpoint.path!r} has such a name."
            )


def refuse_unconvertible(checkpoint: Checkpoint, contents: Contents) -> None:
    """Raises a CheckpointError for EmbeddingVariables of DeepRec, and for incomplete tensors."""
    reasons = {kinds.EMBEDDING_VARIABLE: deeprec_embeddings.WHY}
    reasons[kinds.INCOMPLETE] = "parts of it are missing"
    for kind, why in reasons.items():
        names = [item.name for item in contents.items() if item.kind == kind]
        if names:
            raise CheckpointError(
                f"{checkpoint.path!r}: {quoted(names)} cannot be converted: {why}."
            )


def to_decay_layout(checkpoint: Checkpoint, layout: str) -> List[Move]:
    """Returns the moves to a copy in which AdagradDecay's counts have the layout "V1" or "V2".

    Raises a CheckpointError if there are no counts, the counts or their variables are saved in
    parts, or the checkpoint contains tensors that cannot be converted.
    """
    contents = checkpoint_contents.contents(checkpoint)
    refuse_unconvertible(checkpoint, contents)
    moves = {}
    for variable in contents.variables:
        for slot in variable.slots:
            if slot.role != CountLayout.SLOT:
                continue
            if {variable.item.kind, slot.item.kind} & {PARTS, OF_EACH_PART}:
                raise CheckpointError(
                    f"{checkpoint.path!r} stores {slot.item.name} in parts. Join the parts first: "
                    "--to v1"
                )
            moves[slot.item.name] = _in_layout(variable.item, slot.item, layout)
    if not moves:
        raise CheckpointError(
            f"{checkpoint.path!r} contains no counts of AdagradDecay: no slots look like "
            "AdagradDecay slots."
        )
    return [moves.get(name) or copied(checkpoint, name, name) for name in checkpoint.tensors]


def _in_layout(variable: Item, slot: Item, layout: str) -> Move:
    old = CountLayout(slot.shape or (), slot.stored.parts)
    # Each part of a partitioned variable has its own counts, even if one tensor contains all parts.
    like = variable if layout == "V1" else slot
    parts = like.stored.parts if old.parts else ()
    new = CountLayout.of(CountLayout.NAMES[layout], variable.shape or (), parts)
    if slot.shape == new.shape:
        return _move(slot, slot.name)
    note = f"counts in layout {layout}"
    make = functools.partial(old.converted, to=new)
    return Move(slot.name, new.shape, slot.dtype, slot.stored, note, make, new.parts)
