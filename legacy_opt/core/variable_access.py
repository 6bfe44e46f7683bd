"""Reads and writes ref variables and resource variables, as a whole or by rows.

`WholeVariable` and `Rows` have the same methods, so that the same code works with dense and sparse
gradients. The methods that write return an operation in graphs, and None when executing eagerly.
"""

from __future__ import annotations

import contextlib
import re
from typing import Any, ContextManager, Iterator, Optional, Union

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core.types import Operation, Tensor, TensorLike, Variable

# Operations whose output may share memory with an input, according to the sources of TensorFlow.
_MAY_SHARE_MEMORY = re.compile(
    "Bitcast|Cast|CheckNumerics(V2)?|EnsureShape|IdentityN|PlaceholderWithDefault|PreventGradient|"
    "Print|PyFunc(Stateless)?|Snapshot|StopGradient|"
    # Operations that share memory if they change nothing, for example with a single input.
    "AddN|BroadcastTo|Concat(V2)?|(Conjugate)?Transpose|ExpandDims|Max|Mean|Min|MirrorPad|Pack|"
    "Pad(V2)?|Prod|Reshape|Reverse(V2)?|(Strided)?Slice|Split(V)?|Squeeze|Sum|Tile|Unpack|"
    # Control flow, which may forward an input.
    "(Ref)?(Enter|Exit|Identity|Merge|NextIteration|Switch)|Select(V2)?|"
    "(Stateless)?(Case|If|While)|(Stateful)?PartitionedCall"
)


def is_resource(variable: Any) -> bool:
    """Whether `variable` is a resource variable (by default TF 1 creates ref variables)."""
    return hasattr(variable, "handle")


def variable_shape(variable: Variable) -> Tensor:
    """Returns the shape of `variable` as an int32 tensor, without reading the variable's value."""
    if is_resource(variable):
        return tf.raw_ops.VariableShape(input=variable.handle)
    return tf.shape(variable)


def variable_op(name: str, variable: Variable, **arguments: Any) -> Any:
    """Runs ``tf.raw_ops.<name>``, or ``tf.raw_ops.Resource<name>`` for a resource variable.

    Returns the operation; None when executing eagerly.
    """
    if is_resource(variable):
        parameter = "ref" if "Nd" in name else "resource"  # the handle's name in the raw op
        arguments[parameter] = variable.handle
        return getattr(tf.raw_ops, "Resource" + name)(**arguments)
    return getattr(tf.raw_ops, name)(ref=variable, **arguments).op


def after(*operations: Any) -> ContextManager[Any]:
    """Scope with control dependencies on operations and tensors; ignores None and eager tensors."""
    inputs = [getattr(here(each), "op", each) for each in operations if each is not None]
    return tf.control_dependencies([each for each in inputs if isinstance(each, tf.Operation)])


@contextlib.contextmanager
def on_any_device() -> Iterator[None]:
    """Scope that ignores the device and colocation scopes around it, such as an update method's."""
    if versions.building() == versions.EAGER:
        yield
        return
    graph = tf.compat.v1.get_default_graph()
    with graph.colocate_with(None, ignore_existing=True), tf.device(None):
        yield


def read_on_own_device(variable: Variable) -> Tensor:
    """Returns the value of a variable, read on its device, even in the scope of another device."""
    with on_any_device():
        in_graph = versions.building() not in (versions.EAGER, versions.FUNCTION)
        with tf.device(variable.device if in_graph else None):
            return variable.read_value()


def here(value: Any) -> Any:
    """Copies a tensor into the branch, loop or function that is being built.

    Without the copy, a control dependency on a tensor from outside would not work: v1 control flow
    drops the dependency, and TensorFlow 2.4 raises an error. Values that are no tensors, and
    tensors that need no copy, are returned unchanged.
    """
    if not isinstance(value, tf.Tensor):
        return value
    building = versions.building()
    # In v1 control flow, no public API tells whether a tensor is from outside.
    needs_copy = building == versions.CONTROL_FLOW
    if building == versions.FUNCTION:
        needs_copy = getattr(value, "graph", None) is not tf.compat.v1.get_default_graph()
    return tf.identity(value) if needs_copy else value


def may_share_memory(tensor: Tensor) -> bool:
    """Whether a graph tensor may share a variable's memory, for example `tf.identity(w)`."""
    tensors = _sharing_memory(tensor)
    return any(_is_ref(each) or each.op.type == "ReadVariableOp" for each in tensors)


def may_share_ref_memory(tensor: Tensor) -> bool:
    """Whether a graph tensor may share a ref variable's memory, and so change with the variable.

    Writes to a resource variable do not change memory that a tensor shares.
    """
    return any(map(_is_ref, _sharing_memory(tensor)))


def copied(tensor: Tensor) -> Tensor:
    """Copies a tensor that may share a ref variable's memory; returns other tensors unchanged."""
    if not (in_session_graph(tensor) and may_share_ref_memory(tensor)):
        return tensor
    return tf.raw_ops.DeepCopy(x=tensor)


def in_session_graph(tensor: Any) -> bool:
    """Whether `tensor` is in a graph whose operations are ordered by dependencies only."""
    return versions.is_symbolic(tensor) and not versions.runs_in_order()


def _is_ref(tensor: Tensor) -> bool:
    return tensor.dtype != tensor.dtype.base_dtype


def _sharing_memory(tensor: Tensor) -> Iterator[Tensor]:
    """Yields a tensor and all tensors whose memory it may share."""
    waiting = [tensor]
    seen = set()
    while waiting:
        each = waiting.pop()
        yield each
        if each.op not in seen and _MAY_SHARE_MEMORY.fullmatch(each.op.type):
            seen.add(each.op)
            waiting += each.op.inputs


def gather_nd(variable: Variable, positions: Tensor) -> Tensor:
    """Returns the elements at `positions`, and reads no other elements.

    `positions` are indices of elements, shape ``[n, rank]``, or ``[rank]`` for one element.
    """
    if is_resource(variable):
        return tf.raw_ops.ResourceGatherNd(
            resource=variable.handle, indices=positions, dtype=variable.dtype.base_dtype
        )
    return tf.gather_nd(variable, positions)


class WholeVariable:
    """Reads and writes all rows of a variable."""

    indices = None

    @property
    def whole(self) -> WholeVariable:
        """This object; `Rows` has a property of the same name."""
        return self

    def read(self, variable: Variable) -> Tensor:
        """Returns the value, as a tensor that later writes do not change."""
        value = versions.read_value(variable)
        # The value of a ref variable shares the variable's memory, so it is copied.
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
    """Reads and writes some rows of a variable.

    Args:
      indices: row numbers, shape ``[n]``, int32 or int64; without duplicates if `assign` is called.
    """

    def __init__(self, indices: Tensor) -> None:
        self.indices = indices

    @property
    def whole(self) -> WholeVariable:
        """A `WholeVariable`, which reads and writes all rows."""
        return WholeVariable()

    def read(self, variable: Variable) -> Tensor:
        """Returns the rows, shape ``[n, …]``."""
        if versions.is_dynamic_embedding(variable):
            return tf.gather(versions.read_value(variable), self.indices)
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

    def _scatter(self, name: str, variable: Variable, value: TensorLike) -> Optional[Operation]:
        return variable_op(name, variable, indices=self.indices, updates=value)


# The type of `Update.access`.
Access = Union[WholeVariable, Rows]
