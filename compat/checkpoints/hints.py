"""What may help where a checkpoint does not fit: sentences for the error."""

from legacy_opt.wrappers.base import OptimizerWrapper

from .. import checkpoint_contents
from ..v1_optimizers.nesting import nested_optimizers
from . import name_maps
from .keras_state import SLOT, VARIABLE


def hints(checkpoint, state, matches, misfits):
    """Yields sentences.

    Args:
      checkpoint: a name-based `Checkpoint`.
      state: the `KerasState`.
      matches: a list of what was found.
      misfits: a list of `Misfit`.
    """
    claimed = {name for match in matches for name in match.names}
    missing = [misfit.part for misfit in misfits if not misfit.names]
    if not missing and len(claimed) == len(checkpoint.tensors):
        return
    found = checkpoint_contents.contents(checkpoint)
    name_map, unclear = _by_shape(
        [each.item for each in found.variables if not claimed.intersection(each.item.pieces)],
        [part for part in missing if part.kind == VARIABLE],
    )
    if name_map:
        yield "By their shapes, this could be meant: name_map={}{}".format(
            name_maps.as_text(name_map),
            " (for the others, several fit)" if unclear else "",
        )
    slots = {slot.item.name for each in found.variables for slot in each.slots}
    left = any(name not in claimed for name in slots)
    if state.optimizer is not None and (left or any(part.kind == SLOT for part in missing)):
        yield from _optimizers(found, state.optimizer)


def _by_shape(items, parts):
    """Returns a name_map of what leaves no doubt, and whether there is more."""
    name_map, unclear = {}, False
    for part in parts:
        same = [each.name for each in items if (each.shape, each.dtype) == (part.shape, part.dtype)]
        rivals = [
            other for other in parts if (other.shape, other.dtype) == (part.shape, part.dtype)
        ]
        if len(same) == 1 and len(rivals) == 1:
            name_map[part.label] = same[0]
        elif same:
            unclear = True
    return name_map, unclear


def _optimizers(found, optimizer):
    there = sorted({(guess.label.split(",")[0], guess.name) for guess in found.optimizers})
    everything = nested_optimizers(optimizer._v1.optimizer)
    leaves = {nested.optimizer.get_name() for nested in everything if nested.is_leaf}
    known = {nested.optimizer.get_name() for nested in everything}
    names = {name for _, name in there}
    if not there:
        yield "The checkpoint has no slots: was it saved without the optimizer?"
    elif not leaves <= names or any(_maker(name) not in known for name in names - _OF_WRAPPERS):
        yield (
            "The checkpoint's slots are those of "
            f"{' and of '.join(_told(*each) for each in there)}, and the optimizer here is a "
            f"{_nested(everything[0].optimizer)}. If it is the same but for its name, make it "
            "with that name."
        )


# The slots of wrappers, whose names tell what they are.
_OF_WRAPPERS = {"ExponentialMovingAverage"}


def _maker(name):
    """Returns the name of the optimizer that made the slots of a name."""
    return name.split("/")[0]


def _told(label, name):
    name = _maker(name)
    return f"{'another' if label == 'unknown' else label} (name={name!r})"


def _nested(optimizer):
    """Tells an optimizer, and what it holds."""
    told = f"{type(optimizer).__name__} (name={optimizer.get_name()!r})"
    if not isinstance(optimizer, OptimizerWrapper):
        return told
    return f"{told} around {' and '.join(map(_nested, optimizer.wrapped))}"
