"""Tests of `StoredTensor`, which reads and writes a value that several names store."""

import numpy as np
import pytest

from legacy_opt.compat.state.checkpoint_contents.stored import COPIES, SLICES, StoredTensor
from legacy_opt.compat.state.checkpoint_files.reader import open_checkpoint
from legacy_opt.compat.state.checkpoint_files.writer import CheckpointWriter

VALUE = np.arange(24, dtype=np.float32).reshape(6, 4)
# {how a checkpoint stores VALUE: (axis, arguments of `CheckpointWriter.add`)}
WAYS = {
    "whole": (COPIES, [("w", VALUE)]),
    "copies": (COPIES, [("a/w", VALUE), ("b/w", VALUE)]),
    "one tensor in slices": (
        COPIES,
        [("w", VALUE[:2], ((6, 4), (0, 0))), ("w", VALUE[2:], ((6, 4), (2, 0)))],
    ),
    "rows": (0, [("w/part_0", VALUE[:2]), ("w/part_1", VALUE[2:])]),
    "columns": (1, [("w/part_0", VALUE[:, :1]), ("w/part_1", VALUE[:, 1:])]),
    "slices": (
        SLICES,
        [("w/0/m", VALUE[:, 2:], ((6, 4), (0, 2))), ("w/1/m", VALUE[:, :2], ((6, 4), (0, 0)))],
    ),
}
# The parts of VALUE: pairs (shape, offset).
PARTS = {
    "one tensor in slices": (((2, 4), (0, 0)), ((4, 4), (2, 0))),
    "rows": (((2, 4), (0, 0)), ((4, 4), (2, 0))),
    "columns": (((6, 1), (0, 0)), ((6, 3), (0, 1))),
    "slices": (((6, 2), (0, 2)), ((6, 2), (0, 0))),
}


def written(path, pieces):
    with CheckpointWriter(path) as writer:
        for piece in pieces:
            writer.add(*piece)
    return open_checkpoint(path)


@pytest.mark.parametrize("way", list(WAYS))
def test_split_is_the_inverse_of_read(way, tmp_path):
    axis, pieces = WAYS[way]
    checkpoint = written(tmp_path / "model", pieces)
    stored = StoredTensor.of(list(checkpoint.tensors), checkpoint.tensors, axis)
    assert (stored.shape, stored.parts) == (VALUE.shape, PARTS.get(way, ()))
    stored.verify(checkpoint)
    np.testing.assert_array_equal(stored.read(checkpoint), VALUE)
    again = written(tmp_path / "again", stored.split(VALUE))
    assert again.tensors == checkpoint.tensors
    np.testing.assert_array_equal(stored.read(again), VALUE)
    if way != "copies":
        with CheckpointWriter(tmp_path / "copy") as writer:
            stored.copy("x", checkpoint, writer)
        np.testing.assert_array_equal(open_checkpoint(tmp_path / "copy").read("x"), VALUE)


def test_copies_that_differ_are_refused(tmp_path):
    checkpoint = written(tmp_path / "model", [("a/w", VALUE), ("b/w", VALUE + 1)])
    stored = StoredTensor.of(["a/w", "b/w"], checkpoint.tensors)
    for check in (stored.read, stored.verify):
        with pytest.raises(ValueError, match="the parts have different values"):
            check(checkpoint)


@pytest.mark.parametrize(
    ["shapes", "shape", "axis"],
    [
        ([(3, 4), (2, 4)], (5, 4), 0),
        ([(4, 3), (4, 2)], (4, 5), 1),
        ([(4, 4), (4, 4)], (8, 4), 0),
        ([(4, 4), (4, 4)], (4, 8), 1),
        ([(4, 4), (4, 4)], (4, 4), COPIES),
        ([(3, 4), (2, 4)], (5, 5), None),
        ([(3, 4), (2,)], (5, 4), None),
        ([(8,), (8, 1)], (8, 2), None),
    ],
)
def test_the_axis_along_which_parts_form_a_shape(shapes, shape, axis, tmp_path):
    pieces = [(f"w/part_{number}", np.zeros(each)) for number, each in enumerate(shapes)]
    tensors = written(tmp_path / "model", pieces).tensors
    found = StoredTensor.of(list(tensors), tensors, None).in_shape(shape)
    assert (None if found is None else found.axis) == axis
