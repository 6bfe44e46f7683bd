"""A variable or slot as a checkpoint stores it: as one tensor, or in parts under several names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterator, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from legacy_opt.core.array_parts import Part, Shape, slices, whole

from ... import arrays
from ..checkpoint_files.tensor_info import Infos, Place, TensorInfo

if TYPE_CHECKING:  # they need TensorFlow, and this module does not
    from ..checkpoint_files.reader import Checkpoint
    from ..checkpoint_files.writer import CheckpointWriter

COPIES, SLICES = "copies", "slices"
Axis = Union[str, int, None]  # COPIES, SLICES, an axis, or None: see `StoredTensor`


class StoredTensor(NamedTuple):
    """One or several tensors of a checkpoint that contain the value of one variable or slot."""

    names: Tuple[str, ...]  # of the tensors in the checkpoint; parts are in order
    infos: Tuple[TensorInfo, ...]
    # How the tensors form the value. COPIES: each contains the whole value; usually there is one.
    # A number: they are joined along this axis. SLICES: each has the shape of the value, but only
    # some slices of it (see `partitions`). None: they belong together, but do not form one value.
    axis: Axis = COPIES

    @classmethod
    def of(cls, names: Sequence[str], tensors: Infos, axis: Axis = COPIES) -> StoredTensor:
        """Returns the `StoredTensor` of these names. `tensors`: {name: `TensorInfo`}."""
        return cls(tuple(names), tuple(tensors[name] for name in names), axis)

    @property
    def dtype(self) -> str:
        """The name of the dtype of the first tensor."""
        return self.infos[0].dtype

    @property
    def shape(self) -> Any:
        """The shape of the value. If `axis` is None: of all tensors, or None if they differ."""
        shapes = [info.shape for info in self.infos]
        if isinstance(self.axis, int):
            return joined_shape(shapes, self.axis)
        return shapes[0] if len(set(shapes)) == 1 else None

    @property
    def parts(self) -> Tuple[Part, ...]:
        """The saved parts of the value, as pairs (shape, offset in the value).

        () if the value is saved whole, and for one tensor in V1 format, whose parts are unknown.
        """
        if self.axis in (COPIES, None) and not self.infos[0].parts:
            return ()
        return tuple(part for _, part in self._named_parts())

    def in_shape(self, shape: Shape) -> Optional[StoredTensor]:
        """Returns these tensors with the `axis` that gives them this shape; None if none does."""
        shapes = [info.shape for info in self.infos]
        if self.axis == SLICES:
            return self if set(shapes) == {shape} else None
        axis = COPIES if set(shapes) == {shape} else joined_axis(shapes, shape)
        return None if axis is None else self._replace(axis=axis)

    @property
    def numbers(self) -> int:
        """The number of saved elements."""
        return sum(arrays.count(info.shape) for info in self._counted)

    @property
    def bytes(self) -> int:
        """The number of bytes of the saved elements; strings and unknown dtypes count as 0."""
        return sum(
            info.nbytes for info in self._counted if info.is_readable and info.dtype != "string"
        )

    @property
    def _counted(self) -> Tuple[TensorInfo, ...]:
        """The tensors to count. Of slices, it is one: each repeats the shape of the value."""
        return self.infos[:1] if self.axis == SLICES else self.infos

    def _named_parts(self) -> Iterator[Tuple[str, Part]]:
        """Yields a pair (name of a tensor, part of the value that it contains) for each part."""
        begin = 0
        for name, info in zip(self.names, self.infos):
            if isinstance(self.axis, int):
                offset = [0] * len(info.shape)
                offset[self.axis] = begin
                begin += info.shape[self.axis]
                yield name, (info.shape, tuple(offset))
            else:
                for part in info.parts or (whole(info.shape),):
                    yield name, part

    def verify(self, checkpoint: Checkpoint) -> None:
        """Raises the errors of `read`. Reads the value only if success depends on the value."""
        if isinstance(self.axis, int) or len(self.names) == 1:
            checkpoint.verify(self.names)
        else:  # copies may differ; `Checkpoint.verify` cannot check tensors that lack slices
            self.read(checkpoint)

    def read(self, checkpoint: Any) -> np.ndarray:
        """Reads the value. Raises a ValueError if copies of the value differ."""
        if self.axis == SLICES:
            pieces = [(part, checkpoint.read(name, part)) for name, part in self._named_parts()]
            value = np.zeros(self.infos[0].shape, pieces[0][1].dtype)
            for part, piece in pieces:
                value[slices(*part)] = piece
            return value
        values = [checkpoint.read(name) for name in self.names]
        if isinstance(self.axis, int):
            return np.concatenate(values, self.axis)
        if not all(arrays.same(value, values[0]) for value in values):
            raise ValueError("the parts have different values, but one value is needed for all")
        return values[0]

    def split(self, value: np.ndarray) -> Iterator[Tuple[str, np.ndarray, Optional[Place]]]:
        """Yields (name, array, place), arguments of `CheckpointWriter.add`, for each part.

        This is the inverse of `read`. Slices of a tensor remain slices.
        """
        if not self.parts:
            for name in self.names:
                yield name, value, None
            return
        for name, (shape, offset) in self._named_parts():
            place = None if isinstance(self.axis, int) else (value.shape, offset)
            yield name, value[slices(shape, offset)], place

    def copy(self, target: str, checkpoint: Checkpoint, writer: CheckpointWriter) -> None:
        """Copies the tensors to one tensor named `target`, without reading all of them at once."""
        offsets = {name: offset for name, (_, offset) in self._named_parts()}
        is_joined = isinstance(self.axis, int) and len(self.names) > 1
        for name in self.names:
            place = (self.shape, offsets[name]) if is_joined else None
            writer.copy(target, checkpoint, name, place)


def new_tensor(name: str, dtype: str, shape: Shape, parts: Tuple[Part, ...] = ()) -> StoredTensor:
    """Returns the `StoredTensor` of one tensor that is not in a checkpoint yet."""
    return StoredTensor((name,), (TensorInfo(dtype, shape, 0, parts),))


def joined_shape(shapes: Sequence[Shape], axis: int) -> Optional[Shape]:
    """Returns the shape of parts joined along an axis; None if they cannot be joined."""
    rest = {shape[:axis] + shape[axis + 1 :] for shape in shapes}
    if len(rest) > 1 or any(len(shape) <= axis for shape in shapes):
        return None
    first = shapes[0]
    size = sum(shape[axis] for shape in shapes)
    return first[:axis] + (size,) + first[axis + 1 :]


def joined_axis(shapes: Sequence[Shape], whole: Optional[Shape] = None) -> Optional[int]:
    """Returns the first axis along which parts can be joined (to the shape `whole`), or None."""
    for axis in range(len(shapes[0])):
        joined = joined_shape(shapes, axis)
        if joined is not None and (whole is None or joined == whole):
            return axis
    return None
