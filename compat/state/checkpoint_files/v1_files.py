"""Checks files in the Saver's V1 format, with some of which old TensorFlows crash."""

from __future__ import annotations

import mmap

from tensorflow.core.framework import types_pb2
from tensorflow.core.util import saved_tensor_slice_pb2

from legacy_opt.core.array_parts import Shape

from ... import arrays
from .index import check_shape, part_key, records_of

# {dtype: (the field of TensorProto that has the values, their number for each element)}
_VALUES = {
    types_pb2.DT_FLOAT: ("float_val", 1),
    types_pb2.DT_DOUBLE: ("double_val", 1),
    types_pb2.DT_INT64: ("int64_val", 1),
    types_pb2.DT_BOOL: ("bool_val", 1),
    types_pb2.DT_STRING: ("string_val", 1),
    types_pb2.DT_HALF: ("half_val", 1),
    types_pb2.DT_COMPLEX64: ("scomplex_val", 2),
    types_pb2.DT_COMPLEX128: ("dcomplex_val", 2),
}
_OTHERS = ("int_val", 1)  # of smaller integers


def check(path: str, with_data: bool) -> None:
    """Raises a ValueError for an impossible shape and, if `with_data`, for data that lack values.

    A remote file is not checked.
    """
    if "://" in path:
        return
    parse = saved_tensor_slice_pb2.SavedTensorSlices.FromString
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        records = records_of(content)
        needed = {}  # {key of a slice: (field, number of its values)}
        for tensor in parse(next(records)[1]).meta.tensor:
            shape = tuple(each.size for each in tensor.shape.dim)
            check_shape(shape, not tensor.shape.unknown_rank)
            field, width = _VALUES.get(tensor.type, _OTHERS)
            for part in tensor.slice:
                extents = [(x.start, x.length if x.length else -1) for x in part.extent]
                lengths: Shape = tuple(
                    size if length < 0 else length for (_, length), size in zip(extents, shape)
                )
                key = part_key(tensor.name.encode(), extents)
                needed[key] = field, arrays.count(lengths) * width
        for key, value in records if with_data else ():
            field, count = needed.get(key, ("float_val", 0))
            if len(getattr(parse(value).data.data, field)) < count:
                raise ValueError("the data of a tensor lack values")
