"""Reading and writing variables, ref or resource, whole or by rows, through one pair of objects.

`WholeVariable` and `Rows` offer the same five methods, so that an update can be written without
asking which kind of gradient or variable it serves. Writing returns an op in graphs and None when
executing eagerly.
"""

import tensorflow as tf


def is_resource(variable):
    """Whether `variable` is a resource variable (TF 1's default are ref variables)."""
    return hasattr(variable, "handle")


def variable_shape(variable):
    """Returns the shape of `variable` as an int32 tensor without reading its value."""
    if is_resource(variable):
        return tf.raw_ops.VariableShape(input=variable.handle)
    return tf.shape(variable)


def variable_op(name, variable, **arguments):
    """Runs ``tf.raw_ops.<name>`` on a ref, ``tf.raw_ops.Resource<name>`` on a resource variable.

    Returns:
      The operation; None when executing eagerly.
    """
    if is_resource(variable):
        handle = {"ref" if "Nd" in name else "resource": variable.handle}
        return getattr(tf.raw_ops, "Resource" + name)(**handle, **arguments)
    return getattr(tf.raw_ops, name)(ref=variable, **arguments).op


def after(*operations):
    """The scope of what runs after these; None is what has run already, executing eagerly."""
    return tf.control_dependencies([op for op in operations if op is not None])


def gather_nd(variable, positions):
    """Returns the elements at `positions` ``[n, rank]``, without reading the whole variable."""
    if is_resource(variable):
        return tf.raw_ops.ResourceGatherNd(
            resource=variable.handle, indices=positions, dtype=variable.dtype.base_dtype
        )
    return tf.gather_nd(variable, positions)


class WholeVariable:
    """Access to all of a variable."""

    indices = None

    @property
    def whole(self):
        """This object itself; `Rows` has the same property."""
        return self

    def read(self, variable):
        """Returns the value as a tensor that later writes do not change."""
        value = variable.read_value()
        # The value of a ref variable is its memory, also through Identity or Reshape.
        return value if is_resource(variable) else tf.raw_ops.DeepCopy(x=value)

    def assign(self, variable, value):
        """Sets the variable."""
        return variable.assign(value, read_value=False)

    def add(self, variable, value):
        """Adds to the variable."""
        return variable.assign_add(value, read_value=False)

    def subtract(self, variable, value):
        """Subtracts from the variable."""
        return variable.assign_sub(value, read_value=False)


class Rows:
    """Access to some rows of a variable.

    Args:
      indices: row numbers without duplicates, shape ``[n]``, int32 or int64.
    """

    def __init__(self, indices):
        self.indices = indices

    @property
    def whole(self):
        """Access to all rows, for what must reach untouched ones too."""
        return WholeVariable()

    def read(self, variable):
        """Returns the rows, shape ``[n, …]``."""
        return tf.gather(variable, self.indices)

    def assign(self, variable, value):
        """Sets the rows."""
        return self._scatter("ScatterUpdate", variable, value)

    def add(self, variable, value):
        """Adds to the rows."""
        return self._scatter("ScatterAdd", variable, value)

    def subtract(self, variable, value):
        """Subtracts from the rows."""
        return self._scatter("ScatterSub", variable, value)

    def _scatter(self, name, variable, value):
        return variable_op(name, variable, indices=self.indices, updates=value)
