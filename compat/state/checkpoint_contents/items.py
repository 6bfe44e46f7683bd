"""The recognised contents of a checkpoint: variables, slots, shared variables, the global step."""

from __future__ import annotations

from typing import Iterator, NamedTuple, Optional, Tuple

from legacy_opt.core.array_parts import Shape

from .stored import StoredTensor

TENSOR, PARTS, EMBEDDING_VARIABLE = "tensor", "parts", "EmbeddingVariable"
OF_EACH_PART, INCOMPLETE = "of each part", "incomplete"


class Item(NamedTuple):
    """A tensor of a checkpoint, or several tensors that belong together.

    Attributes:
      name: in a name-based checkpoint, the name of the tensor. If there are several tensors, the
        name of the variable or slot that they form. In an object-based checkpoint, a name made from
        the object graph, such as "x, slot m"; for a tensor in `Contents.other`, its checkpoint key.
      dtype: the name of the dtype, as in `TensorInfo`; for an EmbeddingVariable, of its values.
      shape: a tuple of ints. For PARTS, the shape of the joined parts; for an EmbeddingVariable,
        (rows, length of a row); for OF_EACH_PART, the shape of one slot, or None if the slots have
        different shapes.
      kind: one of these:
        TENSOR: one whole tensor.
        PARTS: the parts of a partitioned variable or slot.
        EMBEDDING_VARIABLE: the tensors of a DeepRec EmbeddingVariable.
        OF_EACH_PART: the slots of a partitioned variable's parts, if the slots cannot be joined.
        INCOMPLETE: a tensor with slices that are missing in the checkpoint.
      stored: the `StoredTensor`.
    """

    name: str
    dtype: str
    shape: Optional[Shape]
    kind: str
    stored: StoredTensor


class SlotItem(NamedTuple):
    """A slot variable in a checkpoint.

    Attributes:
      item: the slot's `Item`.
      scope: in a name-based checkpoint, the scope that precedes the variable's name in the slot's
        name, such as "OptimizeLoss", or "". In an object-based checkpoint, the optimizer's path.
      suffix: the rest of the slot's name after the variable's name, such as "Adam_1". In an
        object-based checkpoint, the same as `role`.
      role: the slot's name in the optimizer, such as "v"; None if unknown.
    """

    item: Item
    scope: str
    suffix: str
    role: Optional[str] = None


class Variable(NamedTuple):
    """A variable: its `Item` and a tuple of `SlotItem`."""

    item: Item
    slots: Tuple[SlotItem, ...]


class Guess(NamedTuple):
    """An optimizer that probably created the slots of some variables.

    Attributes:
      label: a description for users, which contains the word "unknown" if the optimizer is unknown.
      name: the optimizer's name in the names of its slots, such as "Adam". In an object-based
        checkpoint, the roles of the slots, such as "m, v"; "none" if there are no slots.
      scope: see `SlotItem`.
      variables: the number of variables with these slots.
    """

    label: str
    name: str
    scope: str
    variables: int


class Contents(NamedTuple):
    """The contents of a checkpoint.

    Attributes:
      by_name: True for a name-based checkpoint (Saver), False for `tf.train.Checkpoint`.
      variables: a tuple of `Variable`, sorted by name.
      shared: a tuple of `Item`: the optimizers' variables that are not slots, such as beta1_power.
      step: the `Item` of the global step, or None.
      other: a tuple of `Item`: the remaining tensors of an object-based checkpoint.
      optimizers: a tuple of `Guess`.
    """

    by_name: bool
    variables: Tuple[Variable, ...]
    shared: Tuple[Item, ...]
    step: Optional[Item]
    other: Tuple[Item, ...]
    optimizers: Tuple[Guess, ...]

    def items(self) -> Iterator[Item]:
        for variable in self.variables:
            yield variable.item
            yield from (slot.item for slot in variable.slots)
        yield from self.shared + self.other
        if self.step is not None:
            yield self.step
