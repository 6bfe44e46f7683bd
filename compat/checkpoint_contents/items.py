"""What a checkpoint holds, recognised."""

from typing import NamedTuple, Optional

TENSOR, PARTS, EMBEDDING_VARIABLE = "tensor", "parts", "EmbeddingVariable"
OF_EACH_PART, INCOMPLETE = "of each part", "incomplete"


class Item(NamedTuple):
    """A tensor, or several that are parts of one thing.

    Attributes:
      name: its name; that of the whole for parts.
      dtype: a `tf.DType`; of an EmbeddingVariable that of its values.
      shape: a tuple of ints, the whole one for parts; None where parts make no whole, and are not
        all of one shape. Of an EmbeddingVariable: its rows and their length.
      kind: TENSOR, PARTS, EMBEDDING_VARIABLE; OF_EACH_PART, a slot of which each part of a variable
        has one of its own; or INCOMPLETE, a tensor of which the file holds some slices only.
      pieces: the names of its tensors in the checkpoint; parts in their order.
      numbers: how many numbers all its tensors hold.
      bytes: how many bytes.
    """

    name: str
    dtype: object
    shape: Optional[tuple]
    kind: str
    pieces: tuple
    numbers: int
    bytes: int


class Slot(NamedTuple):
    """What an optimizer keeps for a variable.

    Attributes:
      item: its `Item`.
      scope: what its name has before the variable's, as "OptimizeLoss", or "".
      suffix: what its name has after the variable's, as "Adam_1".
      role: what the optimizer calls it, as "v"; None if unknown.
    """

    item: Item
    scope: str
    suffix: str
    role: Optional[str] = None


class Variable(NamedTuple):
    """A variable, an `Item`, and a tuple of its `Slot`s."""

    item: Item
    slots: tuple


class Guess(NamedTuple):
    """Which optimizer slots look like.

    Attributes:
      label: its name for people, "unknown" with what there is if nothing is like it.
      name: what the slots are called: the optimizer's `name`, as "Adam".
      scope: see `Slot`.
      variables: the number of variables that have them.
    """

    label: str
    name: str
    scope: str
    variables: int


class Contents(NamedTuple):
    """What a checkpoint holds.

    Attributes:
      by_name: whether tensors go by the names of variables (Saver); else by objects
        (`tf.train.Checkpoint`).
      variables: a tuple of `Variable`, in the order of their names.
      shared: a tuple of `Item`s that belong to an optimizer and to no variable, as beta1_power.
      step: the `Item` of the global step, or None.
      other: a tuple of `Item`s that an object-based checkpoint holds besides.
      optimizers: a tuple of `Guess`.
    """

    by_name: bool
    variables: tuple
    shared: tuple
    step: Optional[Item]
    other: tuple
    optimizers: tuple

    def items(self):
        """Yields every `Item`."""
        for variable in self.variables:
            yield variable.item
            for slot in variable.slots:
                yield slot.item
        yield from self.shared + self.other
        if self.step is not None:
            yield self.step
