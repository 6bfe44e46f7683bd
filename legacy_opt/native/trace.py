"""Reads the TensorFlow operations of a rule into a `Program`."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

import numpy as np
import tensorflow as tf

from legacy_opt.native.operations import DTYPES, ELEMENTWISE
from legacy_opt.native.program import (
    ADD,
    ELEMENT,
    FADE,
    ROW,
    SCALAR,
    SUMS,
    VALUE,
    Change,
    Input,
    Node,
    Program,
    UnsupportedError,
)

# Operations that return their first input.
_UNCHANGED = ("Identity", "PreventGradient", "Snapshot", "StopGradient")
# Operations that change only the shape, which does not matter for a value with one element.
_RESHAPING = ("ExpandDims", "Reshape", "Squeeze")
# Operations that have several names in TensorFlow, and the name that a `Program` uses, so that all
# versions of TensorFlow give the same kernel.
_NAMES = {
    "AddV2": "Add",
    "Div": "RealDiv",
    "Inv": "Reciprocal",
    "SelectV2": "Select",
}


class Results(NamedTuple):
    """What a rule returns, as tensors.

    Attributes:
      update: the tensor to subtract from the variable; None if `value` is given.
      changes: a dict from the name of a slot to (how, tensor, factor), as in `Change`.
      value: the variable's new value; None if `update` is given.
    """

    update: Any
    changes: Mapping[str, Tuple[str, Any, Any]]
    value: Any = None

    def new_value(self, old: Any) -> Any:
        """Returns the variable's new value as a tensor; `old` is the tensor of its old value."""
        new = old - self.update if self.value is None else self.value
        return tf.convert_to_tensor(new, old.dtype)


def trace(inputs: List[Input], rank: int, rule: Callable[[Dict[Input, Any]], Results]) -> Program:
    """Calls a rule with placeholders, and reads the operations that it creates.

    Args:
      inputs: the inputs of the rule, among them the inputs named `GRADIENT` and `VALUE`.
      rank: the rank of the variable.
      rule: a function that takes a dict from inputs to tensors, and returns `Results`. It is called
        in a graph of its own.

    Raises:
      UnsupportedError: the rule cannot be compiled, for example because one of its operations has
        no C code.
    """
    reader = _Reader()
    with tf.Graph().as_default():
        tensors = {each: reader.placeholder(each, rank) for each in inputs}
        (value,) = [tensor for given, tensor in tensors.items() if given.name == VALUE]
        dtypes = {given.name: given.dtype for given in inputs if given.is_slot}
        try:
            results = rule(tensors)
        except (TypeError, ValueError) as error:
            raise UnsupportedError(f"the rule cannot be traced in a new graph: {error}") from error
        new = reader.read(results.new_value(value))
        changes = {
            name: reader.change(how, tf.convert_to_tensor(change, dtypes[name]), factor)
            for name, (how, change, factor) in results.changes.items()
        }
    program = reader.program(inputs, new, changes)
    _check(program)
    return program


class _Reader:
    """Converts tensors to nodes."""

    def __init__(self):
        self._inputs = {}  # name of a placeholder -> Input
        self._of_tensors = {}  # (name of an operation, number of its output) -> Node
        self._nodes = {}  # (operation, dtype, numbers of the inputs, detail) -> Node
        self._sums = []

    def placeholder(self, given, rank):
        """Returns a placeholder for an `Input`."""
        shape = {SCALAR: [], ROW: ([None] + [1] * (rank - 1))[:rank], ELEMENT: [None] * rank}
        tensor = tf.compat.v1.placeholder(given.dtype, shape[given.level])
        self._inputs[tensor.op.name] = given
        return tensor

    def change(self, how, tensor, factor):
        """Returns the `Change` of a slot."""
        if how == FADE:
            factor = self.read(tf.convert_to_tensor(factor, tensor.dtype))
        return Change(how, self.read(tensor), factor)

    def read(self, tensor):
        """Returns the node of a tensor. Raises an UnsupportedError if there is no C code for it."""
        waiting = [tensor]
        while waiting:  # not recursive, because a rule may have thousands of operations
            each = waiting[-1]
            if self._key(each) in self._of_tensors:
                waiting.pop()
                continue
            missing = [item for item in _operands(each) if self._key(item) not in self._of_tensors]
            if missing:
                waiting += missing
                continue
            self._of_tensors[self._key(each)] = self._read_one(each)
        return self._of_tensors[self._key(tensor)]

    @staticmethod
    def _key(tensor):
        return tensor.op.name, tensor.value_index

    def _read_one(self, tensor):
        operation, dtype = tensor.op, tensor.dtype.base_dtype.name
        kind = _NAMES.get(operation.type, operation.type)
        if dtype not in DTYPES:
            raise UnsupportedError(f"the dtype {dtype} of {operation.name!r}")
        if kind == "Placeholder":
            given = self._inputs[operation.name]
            return self._node("Input", dtype, (), given.level, given)
        if kind in ("Const", "OnesLike", "ZerosLike"):
            return self._node("Const", dtype, (), SCALAR, _constant(operation))
        nodes = tuple(self._of_tensors[self._key(each)] for each in _operands(tensor))
        if kind in _UNCHANGED or kind == "Fill":
            return nodes[0]
        if kind in _RESHAPING and nodes[0].level == SCALAR:
            return nodes[0]
        if kind in SUMS:
            return self._sum(kind, tensor, nodes[0])
        if kind not in ELEMENTWISE:
            raise UnsupportedError(f"the operation {operation.type} ({operation.name!r})")
        return self._node(kind, dtype, nodes, max(each.level for each in nodes))

    def _sum(self, kind, tensor, node):
        operand = tensor.op.inputs[0]
        axes = _constant_array(tensor.op.inputs[1].op)
        rank = operand.shape.rank
        if rank and (axes is None or {int(axis) % rank for axis in axes.flat} != set(range(rank))):
            raise UnsupportedError(f"{kind} over some of the axes ({tensor.op.name!r})")
        if node.level != ELEMENT:
            raise UnsupportedError(
                f"{kind} of a value with fewer elements than the variable ({tensor.op.name!r})"
            )
        if node.after_sums:
            raise UnsupportedError(
                f"{kind} of a value that depends on another sum ({tensor.op.name!r})"
            )
        known = len(self._sums)
        found = self._node(kind, tensor.dtype.base_dtype.name, (node,), SCALAR)
        if found.detail is None:
            found.detail = known
            self._sums.append(found)
        return found

    def _node(self, operation, dtype, inputs, level, detail=None):
        key = operation, dtype, tuple(each.number for each in inputs), repr(detail)
        if key not in self._nodes:
            self._nodes[key] = Node(len(self._nodes), operation, dtype, inputs, level, detail)
        return self._nodes[key]

    def program(self, inputs, value, changes):
        """Returns the `Program`, without scalars that the rule does not use."""
        used = [node.detail.name for node in self._nodes.values() if node.operation == "Input"]
        slots = [each for each in inputs if each.is_slot]
        scalars = [
            each
            for each in inputs
            if not each.is_slot and each.level == SCALAR and each.name in used
        ]
        (dtype,) = [each.dtype for each in inputs if each.name == VALUE]
        return Program(
            dtype,
            scalars,
            *([each for each in slots if each.level == level] for level in (ELEMENT, ROW, SCALAR)),
            list(self._nodes.values()),
            self._sums,
            value,
            changes,
        )


def _operands(tensor):
    """Returns the inputs of a tensor's operation, without those that only describe shapes."""
    operation = tensor.op
    if operation.type == "Fill":
        return list(operation.inputs)[1:]
    if operation.type in SUMS + _RESHAPING + ("OnesLike", "ZerosLike"):
        return list(operation.inputs)[:1]
    return list(operation.inputs)


def _constant(operation):
    """Returns the number that all elements of a constant have in common."""
    if operation.type in ("OnesLike", "ZerosLike"):
        return int(operation.type == "OnesLike")
    values = _constant_array(operation)
    if not values.size:
        raise UnsupportedError(f"a constant without elements ({operation.name!r})")
    first = values.flat[0]
    same = (values == first) | (values != values) & (first != first)
    if not np.all(same):
        raise UnsupportedError(f"a constant that is no scalar ({operation.name!r})")
    return first.item() if hasattr(first, "item") else first


def _constant_array(operation) -> Optional[np.ndarray]:
    return tf.make_ndarray(operation.get_attr("value")) if operation.type == "Const" else None


def _check(program):
    """Raises an UnsupportedError if a slot changes in a way that kernels do not support."""
    slots = {each.name: each for each in program.all_slots}
    for name, change in program.changes.items():
        slot = slots[name]
        if slot.level < ELEMENT and (change.node.level > slot.level or change.node.after_sums):
            raise UnsupportedError(
                f"the slot {name!r}, which has no value per element, but whose new value needs one"
            )
        if slot.level == ELEMENT and change.how == ADD:
            raise UnsupportedError(f"an addition to the slot {name!r}")
        if change.how == FADE and (slot.level < ELEMENT or change.factor.level != SCALAR):
            raise UnsupportedError(f"the slot {name!r}, whose factor is no scalar")
