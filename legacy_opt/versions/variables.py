"""Variables: parts of partitioned ones, components of distributed ones, what is saved."""

from typing import NamedTuple

import tensorflow as tf


class Part(NamedTuple):
    """What a part of a partitioned variable is of the whole.

    Attributes:
      full_name: the name of the whole.
      full_shape: its shape, a list.
      shape: the part's shape, a list.
      offset: where the part begins in each axis, a list.
    """

    full_name: str
    full_shape: list
    shape: list
    offset: list

    @property
    def axis(self):
        """The axis along which the variable is cut; None if this part is all of it."""
        sizes = enumerate(zip(self.shape, self.full_shape))
        return next((axis for axis, (size, full) in sizes if size != full), None)

    @property
    def place(self):
        """The name of this part, by what it has of the whole: "w/rows_0_to_3_of_7"."""
        if self.axis is None:
            return self.full_name
        unit = {0: "rows", 1: "columns"}.get(self.axis, f"axis_{self.axis}")
        begin, size, full = (each[self.axis] for each in (self.offset, self.shape, self.full_shape))
        return f"{self.full_name}/{unit}_{begin}_to_{begin + size}_of_{full}"


def part_of(variable):
    """Returns the `Part` that a variable is of a partitioned one; None if it is none."""
    whole = getattr(variable, "_save_slice_info", None)
    if whole is None:
        return None
    return Part(
        whole.full_name, list(whole.full_shape), list(whole.var_shape), list(whole.var_offset)
    )


class _Unsliced(tf.Variable.SaveSliceInfo):
    """Makes a Saver save a variable as a tensor of its own, under another name than the graph's."""

    spec = ""


def fit_slice_info(slot, variable, axes, part_by_part=False):
    """Tells the Saver what the slot of a partitioned variable holds.

    TensorFlow gives it the variable's own slice of the full shape, which is wrong for slots of
    other shapes. A slot whose axes include the one that the variable is cut along is a slice of
    one tensor, like the variable itself. Any other belongs to its part alone: its name in the
    checkpoint says which, so that a graph with other partitions does not find it.

    Args:
      slot: the slot variable.
      variable: its variable.
      axes: the variable's axes that the slot's are, in their order; () if it has others; None if
        the slot is of the whole variable, whichever part it lies beside.
      part_by_part: whether the checkpoint is to have each part's slot under its name in the graph.
    """
    part = part_of(variable)
    if part is None:
        return
    if not part_by_part and axes is not None:
        if list(axes) == list(range(len(part.shape))) and part_of(slot) is not None:
            return  # as TensorFlow has it
        if part.axis in axes:
            name = f"{part.full_name}/{slot.op.name[len(variable.op.name) + 1 :]}"
            full_shape, shape, offset = ([each[axis] for axis in axes] for each in part[1:])
            slot._set_save_slice_info(tf.Variable.SaveSliceInfo(name, full_shape, offset, shape))
            return
    name = slot.op.name
    if not part_by_part:
        place = part.full_name if axes is None else part.place
        name = name.replace(variable.op.name, place, 1)
    # A slice, be it all of the tensor, makes the Saver compare shapes; but not all have one.
    shape = slot.shape.as_list() if slot.shape.is_fully_defined() else []
    kind = tf.Variable.SaveSliceInfo if shape else _Unsliced
    slot._set_save_slice_info(kind(name, shape, [0] * len(shape), shape))


def own_aggregator(optimizer):
    """Returns the `gradient_aggregator` that a Keras 2 optimizer was given, or None."""
    aggregator = getattr(optimizer, "gradient_aggregator", None)
    by_default = getattr(aggregator, "__name__", None) == "all_reduce_sum_gradients"
    return None if by_default else aggregator


def awaits_restoration(trackable):
    """Whether a checkpoint holds more for an object than it has made so far."""
    return any(getattr(trackable, "_self_unconditional_deferred_dependencies", {}).values())


def own_component(variable):
    """Returns this replica's component of a distributed variable, any other as it is.

    To be called where one replica is being updated.
    """
    distributed = getattr(tf.distribute, "DistributedValues", ())  # from TensorFlow 2.1 on
    if not isinstance(variable, distributed) and not hasattr(variable, "_distributed_container"):
        return variable
    for name in ("_get", "get"):  # the first from TensorFlow 2.1 on
        if callable(getattr(variable, name, None)):
            return getattr(variable, name)()
    return variable


def saveable(name, variable):
    """Returns what a dict for a v1 Saver may have for a variable, whose name there is `name`."""
    by_attribute = getattr(variable, "_gather_saveables_for_checkpoint", dict)()
    for factory in by_attribute.values():
        if callable(factory):  # of a distributed variable, for which a Saver knows no other way
            return factory(name)
    return variable


def distributed_variable(variable):
    """Returns the distributed variable that `variable` is a component of, any other as it is."""
    container = getattr(variable, "_distributed_container", None)
    distributed = getattr(tf.distribute, "DistributedValues", ())
    if container is None and not isinstance(variable, distributed):
        # Newer TensorFlow notes it at the handle; asked for a handle, a distributed one fails.
        container = getattr(getattr(variable, "handle", None), "_distributed_container", None)
    whole = container() if callable(container) else None
    return variable if whole is None else whole
