"""The report of loading or writing a checkpoint: the transferred tensors and the leftovers."""

from __future__ import annotations

from typing import Any, Callable, Iterable, List, NamedTuple, Optional, Sequence, Tuple

import tensorflow as tf

from legacy_opt.core.shortened import first_few
from legacy_opt.core.types import DType


class UnknownType(NamedTuple):
    """A dtype that the installed TensorFlow does not have."""

    name: str


class Transfer(NamedTuple):
    """A value that was copied between a checkpoint and Keras, or from one checkpoint to another.

    Attributes:
      source: the name of a tensor in a checkpoint, or of a variable or slot in Keras; "(computed)"
        for a computed value; the path of the checkpoint `like` for a tensor copied from `like`.
      target: the name of the destination, such as a tensor, variable or slot.
      shape: the shape of the target, a tuple of ints.
      dtype: the `tf.DType` of the target.
      note: how the value was changed, such as "3 parts"; "" or "copied" if it was not changed.
    """

    source: str
    target: str
    shape: Tuple[int, ...]
    dtype: DType
    note: str = ""


class Leftover(NamedTuple):
    """A tensor of a checkpoint, or a variable or slot in Keras, that has no counterpart.

    Attributes:
      name: the name of the tensor in a checkpoint, or of the variable or slot in Keras.
      shape: the shape, a tuple of ints, or None.
      dtype: the `tf.DType`, or None.
      why: the reason.
    """

    name: str
    shape: Optional[Tuple[int, ...]]
    dtype: Optional[DType]
    why: str

    def __str__(self) -> str:
        spec = "" if self.dtype is None else f" ({_described(self.shape, self.dtype)})"
        return f"{self.name}{spec}: {self.why}"


def leftover(name: str, tensor: Any, why: str) -> Leftover:
    """Returns a `Leftover` for an object with a `shape` and a `dtype`."""
    return Leftover(name, *_spec(tensor), why)


def transfer(source: str, target: str, tensor: Any, note: str = "") -> Transfer:
    """Returns a `Transfer` to an object with a `shape` and a `dtype`."""
    return Transfer(source, target, *_spec(tensor), note)


def _spec(tensor: Any) -> Tuple[Tuple[int, ...], Any]:
    try:
        return tuple(tensor.shape), tf.as_dtype(tensor.dtype)
    except TypeError:
        return tuple(tensor.shape), UnknownType(tensor.dtype)


def first_and_last(names: Sequence[str]) -> str:
    """Returns a name, or the first and the last of several names, for users."""
    return names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}"


class Report(NamedTuple):
    """The result of loading, writing or converting a checkpoint; `str` formats it.

    Attributes:
      transferred: a tuple of `Transfer`.
      left_in_checkpoint: a tuple of `Leftover`: tensors without a counterpart in the model.
      left_in_model: a tuple of `Leftover`: variables and slots without a value in the checkpoint.
      notes: a tuple of further sentences.
    """

    transferred: Tuple[Transfer, ...]
    left_in_checkpoint: Tuple[Leftover, ...]
    left_in_model: Tuple[Leftover, ...]
    notes: Tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether there are no leftovers."""
        return not (self.left_in_checkpoint or self.left_in_model)

    def __str__(self) -> str:
        count = len(self.transferred)
        lines = ["1 tensor matches." if count == 1 else f"{count} tensors match."]
        width = max((len(each.source) for each in self.transferred), default=0)
        for each in self.transferred:
            note = "; " + each.note if each.note else ""
            spec = _described(each.shape, each.dtype)
            lines.append(f"  {each.source.ljust(width)} -> {each.target} ({spec}{note})")
        return "\n".join(lines + self.leftovers())

    def leftovers(self) -> List[str]:
        """Returns the notes, and lines that list all leftovers."""
        return self._lines(list)

    def _lines(self, shortened: Callable[[Iterable[str]], List[str]]) -> List[str]:
        lines = list(self.notes)
        if self.left_in_model:
            lines.append("In the model or its optimizer, but not in the checkpoint:")
            lines += shortened(f"  {each}" for each in self.left_in_model)
        if self.left_in_checkpoint:
            lines.append("In the checkpoint, but not in the model or its optimizer:")
            lines += shortened(f"  {each}" for each in self.left_in_checkpoint)
        return lines


class CheckpointMismatch(ValueError):
    """A checkpoint does not fit the model. Nothing has been loaded or written.

    The message has the notes, such as a guess, and the first leftovers. `report` has all leftovers.

    Example::

        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            w = tf.compat.v1.get_variable("old_name", initializer=1.0)
            session.run(w.initializer)
            tf.compat.v1.train.Saver().save(session, "./model.ckpt-1")
        try:
            legacy_opt.compat.load_v1_checkpoint(".", {"new_name": tf.Variable(0.0)}, None)
        except legacy_opt.compat.CheckpointMismatch as error:
            print([each.name for each in error.report.left_in_checkpoint])  # ['old_name']

    Attributes:
      report: the `Report`.
    """

    def __init__(self, message: str, report: Report) -> None:
        super().__init__("\n".join([message, *report._lines(_first_few)]))
        self.report = report


def _first_few(lines: Iterable[str]) -> List[str]:
    return first_few(lines, "  … and {} more, see the error's report".format)


def _described(shape: Any, dtype: DType) -> str:
    return f"{dtype.name} {list(shape)}"
