"""Functions for partitioned and distributed variables, and for saving variables."""

from __future__ import annotations

import sys
from typing import Any, Callable, List, NamedTuple, Optional, Sequence

import tensorflow as tf


class Part(NamedTuple):
    """The position of a part (one of the partitions) in a partitioned variable."""

    full_name: str  # of the whole variable
    full_shape: List[int]  # of the whole variable
    shape: List[int]  # of the part
    offset: List[int]  # the first index of the part along each axis

    @property
    def axis(self) -> Optional[int]:
        """The axis along which the variable is partitioned, or None if there is only one part."""
        for axis, (size, full_size) in enumerate(zip(self.shape, self.full_shape)):
            if size != full_size:
                return axis
        return None

    @property
    def position_name(self) -> str:
        """A name with the position, for example "w/rows_0_to_3_of_7" for rows 0, 1 and 2 of 7."""
        if self.axis is None:
            return self.full_name
        unit = {0: "rows", 1: "columns"}.get(self.axis, f"axis_{self.axis}")
        begin = self.offset[self.axis]
        end = begin + self.shape[self.axis]
        return f"{self.full_name}/{unit}_{begin}_to_{end}_of_{self.full_shape[self.axis]}"


def part_of(variable: tf.Variable) -> Optional[Part]:
    """Returns a `Part` if `variable` is a part of a partitioned variable, else None."""
    info = getattr(variable, "_save_slice_info", None)
    if info is None:
        return None
    return Part(info.full_name, list(info.full_shape), list(info.var_shape), list(info.var_offset))


class _Unsliced(tf.Variable.SaveSliceInfo):
    """Slice info with which a Saver saves a variable as a whole tensor, named `full_name`."""

    spec = ""


def fit_slice_info(
    slot: tf.Variable,
    variable: tf.Variable,
    axes: Optional[Sequence[int]],
    part_by_part: bool = False,
):
    """Sets the slice info with which a Saver saves the slot of a partitioned variable.

    TensorFlow copies the slice info of the variable, which is wrong if the slot differs in shape.
    If the slot has the axis along which the variable is partitioned (see `Slot.axes`), the slot is
    saved as a slice of one tensor. Otherwise, the slot of each part is saved separately, under a
    name with the position of the part, so that a graph with other partitions does not restore the
    slot. If `part_by_part` is true, this is always so, but under the slot's name in the graph.
    """
    part = part_of(variable)
    if part is None:
        return
    if not part_by_part and axes is not None:
        has_all_axes = list(axes) == list(range(len(part.shape)))
        if has_all_axes and part_of(slot) is not None:
            return  # the copied slice info is right
        if part.axis in axes:
            suffix = slot.op.name[len(variable.op.name) + 1 :]
            lists = part.full_shape, part.shape, part.offset
            full_shape, shape, offset = ([each[axis] for axis in axes] for each in lists)
            slot._set_save_slice_info(
                tf.Variable.SaveSliceInfo(f"{part.full_name}/{suffix}", full_shape, offset, shape)
            )
            return
    name = slot.op.name
    if not part_by_part:
        part_name = part.full_name if axes is None else part.position_name
        name = name.replace(variable.op.name, part_name, 1)
    # With ordinary slice info, a Saver compares shapes. `_Unsliced` is for scalars and for slots of
    # unknown shape, which it must not compare.
    shape = slot.shape.as_list() if slot.shape.is_fully_defined() else []
    slice_info = tf.Variable.SaveSliceInfo if shape else _Unsliced
    slot._set_save_slice_info(slice_info(name, shape, [0] * len(shape), shape))


def is_dynamic_embedding(variable: tf.Variable) -> bool:
    """Whether `variable` contains the rows of a hash table that a training step looks up.

    TensorFlow Recommenders Addons creates such a variable in each lookup (`TrainableWrapper`). The
    number of rows changes from step to step, although the static `shape` contains a number.
    """
    return hasattr(type(variable), "prefetch_values")


def creates_dynamic_slots(optimizer: Any) -> bool:
    """Whether the optimizer was passed to Recommenders Addons' `DynamicEmbeddingOptimizer`."""
    return "_get_or_make_slot_with_initializer" in vars(optimizer)


def static_shape(variable: tf.Variable) -> tf.TensorShape:
    """Returns the shape of `variable`, as far as it is known before the training step runs."""
    if is_dynamic_embedding(variable):
        return tf.TensorShape([None]).concatenate(variable.shape[1:])
    return variable.shape


def read_value(variable: tf.Variable) -> tf.Tensor:
    """Reads a variable in an update. A new lookup of a dynamic embedding would undo the writes."""
    if is_dynamic_embedding(variable):
        return variable.read_value(do_prefetch=False)
    return variable.read_value()


def own_aggregator(optimizer: Any) -> Optional[Callable]:
    """Returns a Keras 2 optimizer's `gradient_aggregator`, or None if it is the default one."""
    aggregator = getattr(optimizer, "gradient_aggregator", None)
    is_default = getattr(aggregator, "__name__", None) == "all_reduce_sum_gradients"
    return None if is_default else aggregator


def awaits_restoration(trackable: Any) -> bool:
    """Whether a restored checkpoint has values for attributes that do not exist yet."""
    return any(getattr(trackable, "_self_unconditional_deferred_dependencies", {}).values())


def writing_saved_model() -> bool:
    """Whether TensorFlow's SavedModel writer, which passes no file format, is on the call stack."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__", "").endswith(".python.saved_model.save"):
            return True
        frame = frame.f_back
    return False


def called_by_checkpoint() -> bool:
    """Whether TensorFlow's object-based checkpoint code called the function that calls this one."""
    module = sys._getframe(2).f_globals.get("__name__", "")
    return ".python.training.tracking." in module or ".python.checkpoint." in module


def _is_distributed(variable: tf.Variable) -> bool:
    """Whether a variable has a component for each replica."""
    if hasattr(tf.distribute, "DistributedValues"):  # from TensorFlow 2.1 on
        return isinstance(variable, tf.distribute.DistributedValues)
    return hasattr(type(variable), "_get_closest")


def own_component(variable: tf.Variable) -> tf.Variable:
    """Returns the replica's component of a distributed variable, in replica or update context."""
    if not _is_distributed(variable) and not hasattr(variable, "_distributed_container"):
        return variable
    for name in ("_get", "get"):  # _get from TensorFlow 2.1 on
        if callable(getattr(variable, name, None)):
            return getattr(variable, name)()
    return variable


def ref_of(variable: tf.Variable) -> tf.Tensor:
    """Returns the ref tensor of a ref variable, through which operations change the variable."""
    return variable._ref()


def saveable(name: Any, variable: tf.Variable) -> Any:
    """Returns what a v1 Saver saves for a variable: the variable, unless it is distributed."""
    by_attribute = getattr(variable, "_gather_saveables_for_checkpoint", dict)()
    for factory in by_attribute.values():
        if callable(factory):  # a Saver does not accept the distributed variable itself
            return factory(name)
    return variable


def distributed_variable(variable: tf.Variable) -> tf.Variable:
    """Returns the distributed variable that contains `variable`, or `variable` if there is none."""
    container = getattr(variable, "_distributed_container", None)
    if container is None and not _is_distributed(variable):
        # Newer versions of TensorFlow store the container in an attribute of the handle. The
        # `handle` of a distributed variable is not read, because it may raise an error.
        container = getattr(getattr(variable, "handle", None), "_distributed_container", None)
    whole: Any = container() if callable(container) else None
    return variable if whole is None else whole
