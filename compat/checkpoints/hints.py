"""Suggests in error messages why a checkpoint does not fit, and how to make it fit."""

from legacy_opt.wrappers.base import OptimizerWrapper

from .. import checkpoint_contents
from ..v1_optimizers.nesting import nested_optimizers
from . import name_maps
from .keras_state import SLOT, VARIABLE


def hints(checkpoint, state, matches, misfits):
    """Yields suggestions: a name_map that is guessed from shapes, and the optimizer to use.

    Args:
      checkpoint: a name-based `Checkpoint`.
      state: the `KerasState`.
      matches: a list of `Match` and `SlicedMatch`.
      misfits: a list of `Misfit`.
    """
    claimed = {name for match in matches for name in match.names}
    missing = [misfit.tensor for misfit in misfits if not misfit.names]
    if not missing and len(claimed) == len(checkpoint.tensors):
        return
    contents = checkpoint_contents.contents(checkpoint)
    name_map, unclear = _by_shape(contents, claimed, missing)
    if name_map:
        yield "A guess by shapes and dtypes: name_map={}{}".format(
            name_maps.as_text(name_map),
            " (it lacks variables that could be mapped in several ways)" if unclear else "",
        )
    slots = {slot.item.name for each in contents.variables for slot in each.slots}
    left = any(name not in claimed for name in slots)
    if state.optimizer is not None and (left or any(tensor.kind == SLOT for tensor in missing)):
        yield from _optimizers(contents, state.optimizer)


def guess(checkpoint, matches, misfits):
    """Returns the name_map that `hints` suggests; {} if it suggests none."""
    claimed = {name for match in matches for name in match.names}
    missing = [misfit.tensor for misfit in misfits if not misfit.names]
    return _by_shape(checkpoint_contents.contents(checkpoint), claimed, missing)[0]


def _by_shape(contents, claimed, missing):
    """Maps a variable to an item if no other variable or item has this shape and dtype.

    Args:
      contents: the variables of the checkpoint, with their slots.
      claimed: the names of the checkpoint's tensors that have a match.
      missing: the `StateTensor`s of the model without a match.

    Returns:
      The name_map, and whether it lacks a variable because several items or several variables have
      that variable's shape and dtype.
    """
    items = [each.item for each in contents.variables if not claimed.intersection(each.item.pieces)]
    variables = [tensor for tensor in missing if tensor.kind == VARIABLE]
    name_map, unclear = {}, False
    for variable in variables:
        spec = variable.shape, variable.dtype
        fitting = [item.name for item in items if (item.shape, item.dtype) == spec]
        rivals = [other for other in variables if (other.shape, other.dtype) == spec]
        if len(fitting) == 1 and len(rivals) == 1:
            name_map[variable.label] = fitting[0]
        elif fitting:
            unclear = True
    return name_map, unclear


def _optimizers(contents, optimizer):
    saved = sorted({(guess.label.split(",")[0], guess.name) for guess in contents.optimizers})
    everything = nested_optimizers(optimizer._v1.optimizer)
    leaves = {nested.optimizer.get_name() for nested in everything if nested.is_leaf}
    known = {nested.optimizer.get_name() for nested in everything}
    names = {name for _, name in saved}
    if not saved:
        yield "The checkpoint has no slots: was it saved without the optimizer?"
    elif not leaves <= names or any(_maker(name) not in known for name in names - _OF_WRAPPERS):
        yield (
            "The slots in the checkpoint are from "
            f"{' and '.join(_described(*each) for each in saved)}, but the optimizer passed is "
            f"{_nested(everything[0].optimizer)}. If only the name differs, create the optimizer "
            "with the name in the checkpoint."
        )


# Optimizer names in the names of slots that a wrapper, not a wrapped optimizer, creates.
_OF_WRAPPERS = {"ExponentialMovingAverage"}


def _maker(name):
    """Returns the first part of `Guess.name`, which is the optimizer's name."""
    return name.split("/")[0]


def _described(label, name):
    name = _maker(name)
    return f"{'another optimizer' if label == 'unknown' else label} (name={name!r})"


def _nested(optimizer):
    """Returns the class and name of an optimizer, and of the optimizers that it wraps."""
    text = f"{type(optimizer).__name__} (name={optimizer.get_name()!r})"
    if not isinstance(optimizer, OptimizerWrapper):
        return text
    return f"{text} around {' and '.join(map(_nested, optimizer.wrapped))}"
