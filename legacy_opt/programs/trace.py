"""Converts the TensorFlow operations of a rule to a `Program`."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import tensorflow as tf

from legacy_opt.core.types import Operation, Tensor
from legacy_opt.programs import matrix_axes
from legacy_opt.programs import program as programs
from legacy_opt.programs.operations import KERNEL_DTYPES, OPERATIONS, SUMS
from legacy_opt.programs.program import Change, Function, Input, Node, Program, UnsupportedError

# Operations that return their inputs. IdentityN comes from functions with custom gradients.
_UNCHANGED = ("Identity", "IdentityN", "PreventGradient", "Snapshot", "StopGradient")
# Operations that change only the shape, which does not matter for a value with one element.
_RESHAPING = ("ExpandDims", "Reshape", "Squeeze")
# Different versions of TensorFlow have different names for these operations. A `Program` uses one
# name, so that the kernel is the same on all versions.
_NAMES = {"AddV2": "Add", "Div": "RealDiv", "Inv": "Reciprocal", "SelectV2": "Select"}


class Results(NamedTuple):
    """The result of a rule."""

    update: Any  # the tensor to subtract from the variable; None if `value` is given
    changes: Mapping[str, Tuple[str, Any, Any]]  # of slots: (how, tensor, factor), as in `Change`
    value: Any = None  # the variable's new value; None if `update` is given

    def new_value(self, old: Any) -> Any:
        """Returns the variable's new value as a tensor; `old` is the tensor of its old value."""
        new = old - self.update if self.value is None else self.value
        return tf.convert_to_tensor(new, old.dtype)


def trace(
    inputs: List[Input],
    shape: Optional[Sequence[Optional[int]]],
    rule: Callable[[Dict[Input, Any]], Results],
    by_rows: bool = False,
) -> Program:
    """Calls a rule with placeholders in a new graph, and reads the operations that it creates.

    Among the inputs are those named `GRADIENT` and `VALUE`. The shape is that of the variable or,
    if `by_rows`, of the rows that a sparse gradient touches. A rule may read the shape in Python.
    Unknown lengths are None; the shape is None if the rank is unknown. Raises an UnsupportedError
    if the rule cannot be compiled, for example because one of its operations has no C code.
    """
    has_lines = any(each.level in programs.LINES for each in inputs)
    reader = _MatrixReader(shape) if has_lines else _GraphReader(shape)
    with tf.Graph().as_default():
        tensors = {each: reader.placeholder(each) for each in inputs}
        (value,) = [tensor for each, tensor in tensors.items() if each.name == programs.VALUE]
        slots = {each.name: each for each in inputs if each.is_slot}
        try:
            results = rule(tensors)
        except Exception as error:  # whatever the rule's own code raises
            text = f"{type(error).__name__}: {error}"
            raise UnsupportedError(f"the rule cannot be traced in a new graph: {text}") from error
        new_value = reader.read(results.new_value(value))
        changes = {
            name: reader.change(how, tf.convert_to_tensor(change, slots[name].dtype), factor)
            for name, (how, change, factor) in results.changes.items()
        }
    changes = dict(sorted(changes.items()))
    program = Program(by_rows, tuple(reader.nodes), new_value, changes).pruned()
    programs.check(program, slots.values())
    return program


def trace_scalars(
    dtypes: Mapping[str, str], function: Callable[[Dict[str, Tensor]], Mapping[str, Tensor]]
) -> Function:
    """Calls a function of scalars with placeholders, by name, in a new graph; see `trace`."""
    reader = _GraphReader([])
    with tf.Graph().as_default():
        inputs = [Input(name, programs.SCALAR, dtype) for name, dtype in dtypes.items()]
        tensors = {each.name: reader.placeholder(each) for each in inputs}
        results = function(tensors)
        found = {name: reader.read(tf.convert_to_tensor(each)) for name, each in results.items()}
    return Function(tuple(reader.nodes), dict(sorted(found.items())))


class _GraphReader:
    """Converts tensors to nodes. Methods take and return nodes as their positions in `nodes`."""

    def __init__(self, shape: Optional[Sequence[Optional[int]]]) -> None:
        self.nodes: List[Node] = []
        self._stages: List[int] = []  # the stages of `nodes`
        self._shape = shape
        self._rank = None if shape is None else len(shape)
        self._inputs = {}  # name of a placeholder -> Input
        self._tensor_nodes = {}  # (name of an operation, number of its output) -> position
        # (node without its detail, repr of the detail) -> position; NaN would not equal NaN.
        self._positions = {}

    def placeholder(self, input_: Input) -> Tensor:
        tensor = tf.compat.v1.placeholder(input_.dtype, self.shape(input_.level))
        self._inputs[tensor.op.name] = input_
        return tensor

    def shape(self, level: str) -> Optional[Sequence[Optional[int]]]:
        """Returns the shape of the placeholder for an input of this level."""
        shape = self._shape
        if level == programs.SCALAR:
            return []
        if level == programs.ROW and shape:
            return [shape[0]] + [1] * (len(shape) - 1)
        return shape

    def change(self, how: str, tensor: Tensor, factor: Any) -> Change:
        if how == programs.FADE:
            factor = self.read(tf.convert_to_tensor(factor, tensor.dtype))
        return Change(how, self.read(tensor), factor)

    def read(self, tensor: Tensor) -> int:
        """Returns the node of a tensor. Raises an UnsupportedError if there is no C code for it."""
        waiting = [tensor]
        while waiting:  # not recursive, because a rule may have thousands of operations
            last = waiting[-1]
            if self._key(last) in self._tensor_nodes:
                waiting.pop()
                continue
            unread = [each for each in _operands(last) if self._key(each) not in self._tensor_nodes]
            if unread:
                waiting += unread
                continue
            self._tensor_nodes[self._key(last)] = self._read_one(last)
        return self._tensor_nodes[self._key(tensor)]

    @staticmethod
    def _key(tensor: Tensor) -> Tuple[str, int]:
        return tensor.op.name, tensor.value_index

    def _read_one(self, tensor: Tensor) -> int:
        operation, dtype = tensor.op, tensor.dtype.base_dtype.name
        kind = _NAMES.get(operation.type, operation.type)
        if dtype not in KERNEL_DTYPES:
            raise UnsupportedError(
                f"kernels do not support the dtype {dtype} of {operation.name!r}"
            )
        if kind == "Placeholder":
            input_ = self._inputs.get(operation.name)
            if input_ is None:
                raise UnsupportedError("the rule reads a tensor in an attribute of the optimizer")
            return self._node("Input", dtype, (), input_.level, input_.key)
        if kind in ("Const", "OnesLike", "ZerosLike"):
            return self._node("Const", dtype, (), programs.SCALAR, _constant(operation))
        nodes = tuple(self._tensor_nodes[self._key(each)] for each in _operands(tensor))
        if kind in _UNCHANGED or kind == "Fill":
            return nodes[0]
        levels = [self.nodes[each].level for each in nodes]
        if kind in _RESHAPING and self.keeps_elements(tensor, levels[0]):
            return nodes[0]
        if kind in SUMS:
            return self._sum(kind, tensor, nodes[0])
        if kind not in OPERATIONS:
            raise UnsupportedError(
                f"kernels do not support the operation {operation.type} ({operation.name!r})"
            )
        return self._node(kind, dtype, nodes, self.level(tensor, levels))

    def keeps_elements(self, tensor: Tensor, level: str) -> bool:
        """Whether a kernel can ignore the operation of `tensor`, which reshapes a value."""
        del tensor
        return level == programs.SCALAR

    def level(self, tensor: Tensor, levels: Sequence[str]) -> str:
        """Returns the level of the result of an elementwise operation."""
        del tensor
        return programs.highest(levels)

    def level_of_sum(self, tensor: Tensor, level: str) -> str:
        """Returns the level of a sum from its operand's; `_sum` completes messages of errors."""
        operand = tensor.op.inputs[0]
        axes = _constant_array(tensor.op.inputs[1].op)
        rank = operand.shape.rank
        if rank is None:
            raise UnsupportedError("of a value of unknown rank")
        if rank:
            summed = set() if axes is None else {int(axis) % rank for axis in axes.flat}
            if len(summed) < rank:
                raise UnsupportedError("over some of the axes")
        if level != programs.ELEMENT:
            raise UnsupportedError("of a value with fewer elements than the variable")
        return programs.SCALAR

    def _sum(self, kind: str, tensor: Tensor, node: int) -> int:
        try:
            level = self.level_of_sum(tensor, self.nodes[node].level)
        except UnsupportedError as error:
            raise UnsupportedError(
                f"kernels do not support {kind} {error} ({tensor.op.name!r})"
            ) from None
        result = self._node(kind, tensor.dtype.base_dtype.name, (node,), level)
        if self._stages[node] == self._stages[result]:
            raise UnsupportedError(
                f"kernels do not support {kind} of a value that depends on another sum "
                f"({tensor.op.name!r})"
            )
        return result

    def _node(
        self, operation: str, dtype: str, inputs: Tuple[int, ...], level: str, detail: Any = None
    ) -> int:
        node = Node(operation, dtype, level, inputs, detail)
        key = node[:-1], repr(detail)
        if key not in self._positions:
            self._positions[key] = len(self.nodes)
            self.nodes.append(node)
            stages_of_inputs = [self._stages[each] for each in inputs]
            self._stages.append(programs.stage_of(operation, level, stages_of_inputs))
        return self._positions[key]


class _MatrixReader(_GraphReader):
    """A `_GraphReader` for variables with slots for rows or columns of matrices."""

    _shape: Sequence[Optional[int]]
    _rank: int

    def __init__(self, shape: Optional[Sequence[Optional[int]]]) -> None:
        super().__init__(shape)
        self._axes = {}  # (name of an operation, number of its output) -> axes

    def placeholder(self, input_: Input) -> Tensor:
        tensor = super().placeholder(input_)
        self._axes[self._key(tensor)] = matrix_axes.axes_of(input_.level, self._rank)
        return tensor

    def shape(self, level: str) -> Optional[Sequence[Optional[int]]]:
        return [self._shape[axis] for axis in matrix_axes.axes_of(level, self._rank)]

    def _axes_of(self, tensor: Tensor) -> matrix_axes.Axes:
        """Returns the axes of a tensor (see `matrix_axes`); no axes for a constant."""
        while tensor.op.type in _UNCHANGED:
            tensor = tensor.op.inputs[0]
        return self._axes.get(self._key(tensor), ())

    def keeps_elements(self, tensor: Tensor, level: str) -> bool:
        if tensor.op.type == "ExpandDims":
            position = _constant_array(tensor.op.inputs[1].op)
            if position is not None:
                axes = self._axes_of(tensor.op.inputs[0])
                self._axes[self._key(tensor)] = matrix_axes.expanded(axes, int(position))
                return True
        return super().keeps_elements(tensor, level)

    def level(self, tensor: Tensor, levels: Sequence[str]) -> Any:
        axes = matrix_axes.broadcast(map(self._axes_of, _operands(tensor)))
        self._axes[self._key(tensor)] = axes
        return matrix_axes.level_with(axes, self._rank, levels)

    def level_of_sum(self, tensor: Tensor, level: str) -> Any:
        operation = tensor.op
        positions = _constant_array(operation.inputs[1].op)
        if positions is None:
            raise UnsupportedError("over unknown axes")
        operand_axes = self._axes_of(operation.inputs[0])
        if len(operand_axes) != operation.inputs[0].shape.rank:
            raise UnsupportedError("of a constant")
        keeps_dims = operation.get_attr("keep_dims")
        axes = matrix_axes.reduced(operand_axes, map(int, positions.flat), keeps_dims)
        self._axes[self._key(tensor)] = axes
        result = matrix_axes.level_with(axes, self._rank, [programs.MATRIX])
        kept = set(axes) - {None}
        if level == programs.ELEMENT and not kept:
            return programs.SCALAR
        # `result` is also MATRIX if no axis is kept.
        axes_of_stack = set(matrix_axes.axes_of(programs.MATRIX, self._rank))
        is_whole = result != programs.MATRIX or kept == axes_of_stack
        if is_whole and (level, result) in programs.SUMS_OF_LEVELS:
            return result
        raise UnsupportedError("over some of the axes")


def _operands(tensor: Tensor) -> List[Tensor]:
    """Returns the inputs of a tensor's operation, except inputs that only describe a shape."""
    operation = tensor.op
    if operation.type == "Fill":
        return list(operation.inputs)[1:]
    if operation.type == "IdentityN":
        return [operation.inputs[tensor.value_index]]
    if operation.type in ("OnesLike", "ZerosLike"):
        return []
    if operation.type in SUMS + _RESHAPING:
        return list(operation.inputs)[:1]
    return list(operation.inputs)


def _constant(operation: Operation) -> Any:
    """Returns the number that all elements of a constant have, or raises an UnsupportedError."""
    if operation.type in ("OnesLike", "ZerosLike"):
        number = int(operation.type == "OnesLike")
        return float(number) if operation.outputs[0].dtype.is_floating else number
    values = _constant_array(operation)
    if not values.size:
        raise UnsupportedError(
            f"kernels do not support a constant without elements ({operation.name!r})"
        )
    first = values.flat[0]
    are_both_nan = (values != values) & (first != first)
    if not np.all((values == first) | are_both_nan):
        raise UnsupportedError(
            f"kernels do not support a constant whose elements differ ({operation.name!r})"
        )
    return first.item() if hasattr(first, "item") else first


def _constant_array(operation: Operation) -> Optional[np.ndarray]:
    return tf.make_ndarray(operation.get_attr("value")) if operation.type == "Const" else None
