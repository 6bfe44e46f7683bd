"""Reading and writing variables, ref or resource, whole or by rows, through one pair of objects.

`WholeVariable` and `Rows` offer the same five methods, so that an update can be written without
asking which kind of gradient or variable it serves. Writing returns an op in graphs and None when
executing eagerly.
"""

from __future__ import annotations

import re
from typing import Optional, Union

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core.types import Operation, Tensor, TensorLike, Variable

# Operations whose result may be the memory that they are given, by TensorFlow's kernels.
_HANDS_ON_MEMORY = re.compile(
    "Bitcast|Cast|CheckNumerics(V2)?|EnsureShape|IdentityN|PlaceholderWithDefault|PreventGradient|"
    "Print|PyFunc(Stateless)?|Snapshot|StopGradient|"
    # if there is but one, if nothing is summed, cut off, padded, turned around and so on
    "AddN|BroadcastTo|Concat(V2)?|(Conjugate)?Transpose|ExpandDims|Max|Mean|Min|MirrorPad|Pack|"
    "Pad(V2)?|Prod|Reshape|Reverse(V2)?|(Strided)?Slice|Split(V)?|Squeeze|Sum|Tile|Unpack|"
    # if control flow goes that way
    "(Ref)?(Enter|Exit|Identity|Merge|NextIteration|Switch)|Select(V2)?|"
    "(Stateless)?(Case|If|While)|(Stateful)?PartitionedCall"
)


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
    """The scope of what runs after these operations and tensors.

    None and tensors of eager code are there already.
    """
    found = [getattr(here(each), "op", each) for each in operations if each is not None]
    return tf.control_dependencies([each for each in found if isinstance(each, tf.Operation)])


def here(value):
    """Returns a tensor of the branch, loop or function that is being built; all else as it is.

    Nothing can wait for a tensor from outside: v1 control flow drops the control dependency, and
    TensorFlow 2.4 raises an error.
    """
    if not isinstance(value, tf.Tensor):
        return value
    building = versions.building()
    outside = building == versions.CONTROL_FLOW  # of which no public name tells what is inside
    if building == versions.FUNCTION:
        outside = getattr(value, "graph", None) is not tf.compat.v1.get_default_graph()
    return tf.identity(value) if outside else value


def is_value(tensor):
    """Whether a tensor of a graph may be what was read from a variable, as `tf.identity(w)` is."""
    return any(_is_ref(each) or each.op.type == "ReadVariableOp" for each in _handed_on(tensor))


def copied(tensor):
    """Returns a tensor that no write to a variable changes.

    A copy of what may be the memory of a ref variable, which its value is; anything else as it is.
    """
    if not (in_session_graph(tensor) and any(map(_is_ref, _handed_on(tensor)))):
        return tensor
    return tf.raw_ops.DeepCopy(x=tensor)


def in_session_graph(tensor):
    """Whether it is a tensor of a graph in which nothing but dependencies gives an order."""
    return versions.is_symbolic(tensor) and not versions.runs_in_order()


def _is_ref(tensor):
    return tensor.dtype != tensor.dtype.base_dtype


def _handed_on(tensor):
    """Yields a tensor and those which it may be, handed on."""
    waiting, seen = [tensor], set()
    while waiting:
        each = waiting.pop()
        yield each
        if each.op not in seen and _HANDS_ON_MEMORY.fullmatch(each.op.type):
            seen.add(each.op)
            waiting += each.op.inputs


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
    def whole(self) -> WholeVariable:
        """This object itself; `Rows` has the same property."""
        return self

    def read(self, variable: Variable) -> Tensor:
        """Returns the value as a tensor that later writes do not change."""
        value = variable.read_value()
        # The value of a ref variable is its memory, also through Identity or Reshape.
        return value if is_resource(variable) else tf.raw_ops.DeepCopy(x=value)

    def assign(self, variable: Variable, value: TensorLike) -> Optional[Operation]:
        """Sets the variable."""
        return variable.assign(value, read_value=False)

    def add(self, variable: Variable, value: TensorLike) -> Optional[Operation]:
        """Adds to the variable."""
        return variable.assign_add(value, read_value=False)

    def subtract(self, variable: Variable, value: TensorLike) -> Optional[Operation]:
        """Subtracts from the variable."""
        return variable.assign_sub(value, read_value=False)


class Rows:
    """Access to some rows of a variable.

    Args:
      indices: row numbers without duplicates, shape ``[n]``, int32 or int64.
    """

    def __init__(self, indices: Tensor) -> None:
        self.indices = indices

    @property
    def whole(self) -> WholeVariable:
        """Access to all rows, for what must reach untouched ones too."""
        return WholeVariable()

    def read(self, variable: Variable) -> Tensor:
        """Returns the rows, shape ``[n, …]``."""
        return tf.gather(variable, self.indices)

    def assign(self, variable: Variable, value: TensorLike) -> Optional[Operation]:
        """Sets the rows."""
        return self._scatter("ScatterUpdate", variable, value)

    def add(self, variable: Variable, value: TensorLike) -> Optional[Operation]:
        """Adds to the rows."""
        return self._scatter("ScatterAdd", variable, value)

    def subtract(self, variable: Variable, value: TensorLike) -> Optional[Operation]:
        """Subtracts from the rows."""
        return self._scatter("ScatterSub", variable, value)

    def _scatter(self, name, variable, value):
        return variable_op(name, variable, indices=self.indices, updates=value)


# What rules and slots are given to read and write with.
Access = Union[WholeVariable, Rows]
