"""The recognised contents of a checkpoint: variables, slots, shared variables, the global step."""

from __future__ import annotations

from typing import Iterator, NamedTuple, Optional, Tuple

from legacy_opt.core.array_parts import Shape

from .stored import StoredTensor

# Kinds of items.
TENSOR = "tensor"  # one whole tensor
PARTS = "parts"  # the parts of a partitioned variable or slot
EMBEDDING_VARIABLE = "EmbeddingVariable"  # the tensors of a DeepRec EmbeddingVariable
OF_EACH_PART = "of each part"  # slots of a partitioned variable's parts that cannot be joined
INCOMPLETE = "incomplete"  # a tensor with slices that are missing in the checkpoint


class Item(NamedTuple):
    """A tensor of a checkpoint, or several tensors that belong together."""

    # In a name-based checkpoint, the name of the tensor, or of the variable or slot that several
    # tensors form. In an object-based checkpoint, a name made from the object graph, such as "x,
    # slot m"; for a tensor in `Contents.other`, its checkpoint key.
    name: str
    dtype: str  # as in `TensorInfo`; for an EmbeddingVariable, of its values
    # For PARTS, of the joined parts; for an EmbeddingVariable, (rows, length of a row); for
    # OF_EACH_PART, of one slot, or None if the slots have different shapes.
    shape: Optional[Shape]
    kind: str  # see above
    stored: StoredTensor


class SlotItem(NamedTuple):
    """A slot variable in a checkpoint."""

    item: Item
    scope: str  # before the variable's name, such as "OptimizeLoss", or the optimizer's path
    suffix: str  # the rest of the slot's name after the variable's, such as "Adam_1"; or the role
    role: Optional[str] = None  # the slot's name in the optimizer, such as "v"; None if unknown


class Variable(NamedTuple):
    """A variable: its `Item` and a tuple of `SlotItem`."""

    item: Item
    slots: Tuple[SlotItem, ...]


class Guess(NamedTuple):
    """An optimizer that probably created the slots of some variables."""

    label: str  # for users; contains the word "unknown" if the optimizer is unknown
    # The optimizer's name in the names of its slots, such as "Adam". In an object-based checkpoint,
    # the roles of the slots, such as "m, v"; "none" if there are no slots.
    name: str
    scope: str  # see `SlotItem`
    variables: int  # the number of variables with these slots


class Contents(NamedTuple):
    """The contents of a checkpoint."""

    by_name: bool  # True for a name-based checkpoint (Saver), False for `tf.train.Checkpoint`
    variables: Tuple[Variable, ...]  # sorted by name
    shared: Tuple[Item, ...]  # the optimizers' variables that are not slots, such as beta1_power
    step: Optional[Item]  # the global step
    other: Tuple[Item, ...]  # the remaining tensors of an object-based checkpoint
    optimizers: Tuple[Guess, ...]

    def items(self) -> Iterator[Item]:
        for variable in self.variables:
            yield variable.item
            yield from (slot.item for slot in variable.slots)
        yield from self.shared + self.other
        if self.step is not None:
            yield self.step
