"""A slot that grows: rows, of which there may be more after each step."""

import tensorflow as tf

from legacy_opt.access import is_resource
from legacy_opt.slots import Slot


class GrowingSlot(Slot):
    """Rows, as many as there are: a slot that changes its first dimension and starts with none.

    Args:
      op_name: see `Slot`; a checkpoint has such rows of a partitioned variable part by part.
      of_rows: whether each is as a row of the variable; else they are scalars.
      dtype: the slot's dtype; None takes the variable's.
    """

    def __init__(self, op_name, of_rows, dtype=None):
        super().__init__(dtype=dtype, op_name=op_name)
        self.of_rows = of_rows

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


def rows_shape(variable):
    """Returns the shape of any number of rows of a variable."""
    if variable.shape.rank is None:
        return variable.shape
    return tf.TensorShape([None]).concatenate(variable.shape[1:])
