"""A slot that grows: rows, of which there may be more after each step."""

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.access import is_resource
from legacy_opt.slots import Slot


class GrowingSlot(Slot):
    """Rows, as many as there are: a slot that changes its first dimension and starts with none.

    Those of a variable that is partitioned by rows are kept together, beside one of its parts.

    Args:
      of_rows: whether each is as a row of the variable; else they are scalars.
      dtype: the slot's dtype; None takes the variable's.
    """

    def __init__(self, of_rows, dtype=None):
        super().__init__(dtype=dtype)
        self.of_rows = of_rows

    def axes(self, variable):
        return None if is_cut_by_rows(variable) else ()

    def static_shape(self, variable):
        return rows_shape(variable) if self.of_rows else tf.TensorShape([None])

    def dynamic_shape(self, variable):
        shape = self.static_shape(variable)
        if shape.rank is not None and shape[1:].is_fully_defined():
            return [0] + shape[1:].as_list()
        return tf.concat([[0], super().dynamic_shape(variable)[1:]], axis=0)

    def create(self, optimizer, variable, slot_name, op_name):
        def make(next_creator, **arguments):
            # By itself a resource takes the shape of its first value, which has no rows.
            shape = self.static_shape(variable) if is_resource(variable) else None
            arguments.update(shape=shape, validate_shape=False)
            return next_creator(**arguments)

        with tf.variable_creator_scope(make):
            return super().create(optimizer, variable, slot_name, op_name)


def is_cut_by_rows(variable):
    """Whether this is a part of a partitioned variable with whole rows."""
    part = versions.part_of(variable)
    return part is not None and part.axis in (None, 0)


def rows_shape(variable):
    """Returns the shape of any number of rows of a variable."""
    if variable.shape.rank is None:
        return variable.shape
    return tf.TensorShape([None]).concatenate(variable.shape[1:])
