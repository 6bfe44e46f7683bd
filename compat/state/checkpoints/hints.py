"""Suggests in error messages why a checkpoint does not fit, and how to make it fit."""

from __future__ import annotations

import collections
import re
from typing import Dict, Iterable, Iterator, List, Set, Tuple

from legacy_opt.core.types import KerasOptimizer, V1Optimizer
from legacy_opt.wrappers.base import OptimizerWrapper

from ...in_keras.v1_optimizers.nesting import nested_optimizers
from .. import checkpoint_contents
from ..checkpoint_contents.items import Contents, Item
from ..checkpoint_files.reader import Checkpoint
from . import name_maps
from .keras_state import SLOT, VARIABLE, KerasState, StateTensor
from .matching import Match, Misfit

# The last words of variables' names with the same meaning. Words of different rows contradict each
# other; all other words may mean anything.
_MEANINGS = (
    ("kernel", "weights", "weight", "w", "depthwise_kernel", "depthwise_weights"),
    ("bias", "biases", "b", "beta", "offset"),
    ("gamma", "scale"),
    ("moving_mean", "running_mean"),
    ("moving_variance", "moving_var", "running_var"),
)
_MEANING_OF = {word: words for words in _MEANINGS for word in words}
# Optimizer names in the names of slots that a wrapper, not a wrapped optimizer, creates.
_WRAPPER_NAMES = {"ExponentialMovingAverage", "SWA", "Lookahead"}


def hints(
    checkpoint: Checkpoint, state: KerasState, matches: Iterable[Match], misfits: Iterable[Misfit]
) -> Iterator[str]:
    """Yields suggestions: a name_map that is guessed from shapes, and the optimizer to use."""
    claimed, missing = _unmatched(matches, misfits)
    if not missing and len(claimed) == len(checkpoint.tensors):
        return
    contents = checkpoint_contents.contents(checkpoint)
    name_map, unclear = _by_shape(contents, state, claimed, missing)
    if name_map:
        gap = " (it lacks variables that could be mapped in several ways)" if unclear else ""
        yield f"A guess by shapes and dtypes: name_map={name_maps.as_text(name_map)}{gap}"
    slots = {slot.item.name for each in contents.variables for slot in each.slots}
    has_unmatched_slots = slots - claimed or any(tensor.kind == SLOT for tensor in missing)
    if state.optimizer is not None and has_unmatched_slots:
        yield from _optimizers(contents, state.optimizer)


def guess(
    checkpoint: Checkpoint, state: KerasState, matches: Iterable[Match], misfits: Iterable[Misfit]
) -> Tuple[Dict[str, str], bool]:
    """Returns the result of `_by_shape`. The arguments are those of `hints`."""
    contents = checkpoint_contents.contents(checkpoint)
    return _by_shape(contents, state, *_unmatched(matches, misfits))


def _unmatched(
    matches: Iterable[Match], misfits: Iterable[Misfit]
) -> Tuple[Set[str], List[StateTensor]]:
    """Returns the arguments `claimed` and `missing` of `_by_shape`."""
    claimed = {name for match in matches for name in match.stored.names}
    return claimed, [misfit.tensor for misfit in misfits if not misfit.names]


def _by_shape(
    contents: Contents, state: KerasState, claimed: Set[str], missing: Iterable[StateTensor]
) -> Tuple[Dict[str, str], bool]:
    """Maps a variable to an item if no other variable and no other item has this shape and dtype.

    Other variables and items count even if they match: the match may be wrong, if the numbers of
    layers differ between model and graph (dense_1 for dense). The names of items with a match are
    `claimed`. The `StateTensor` objects without a match are `missing`. Returns the name_map, and
    whether it lacks a variable although items have its shape and dtype.
    """
    items = collections.defaultdict(list)
    for each in contents.variables:
        items[each.item.shape, each.item.dtype].append(each.item)
    variables = collections.Counter(
        (tensor.shape, tensor.dtype) for tensor in state.tensors if tensor.kind == VARIABLE
    )
    name_map, unclear = {}, False
    for tensor in missing:
        fitting = items[tensor.shape, tensor.dtype] if tensor.kind == VARIABLE else []
        is_only_pair = len(fitting) == variables[tensor.shape, tensor.dtype] == 1
        if is_only_pair and _may_match(tensor.label, fitting[0], claimed):
            name_map[tensor.label] = fitting[0].name
        elif fitting:
            unclear = True
    return name_map, unclear


def _may_match(label: str, item: Item, claimed: Set[str]) -> bool:
    if claimed.intersection(item.stored.names):
        return False
    meanings = {_MEANING_OF.get(_last_word(name)) for name in (label, item.name)}
    return None in meanings or len(meanings) == 1


def _last_word(name: str) -> str:
    return re.sub(r"_\d+$", "", name.rpartition("/")[2]).lower()


def _optimizers(contents: Contents, optimizer: KerasOptimizer) -> Iterator[str]:
    saved = sorted({(guess.label.split(",")[0], guess.name) for guess in contents.optimizers})
    nested = nested_optimizers(optimizer._v1.optimizer)
    leaves = {each.optimizer.get_name() for each in nested if each.is_leaf}
    known = {each.optimizer.get_name() for each in nested}
    names = {name for _, name in saved}
    makers = {_maker(name) for name in names - _WRAPPER_NAMES}
    if not saved:
        yield "The checkpoint has no slots: was it saved without the optimizer?"
    elif not leaves <= names or not makers <= known:
        yield (
            "The slots in the checkpoint are from "
            f"{' and '.join(_description(*each) for each in saved)}, but the optimizer passed is "
            f"{_nested(nested[0].optimizer)}. If only the name differs, create the optimizer "
            "with the name in the checkpoint."
        )


def _maker(name: str) -> str:
    """Returns the first part of `Guess.name`, which is the optimizer's name."""
    return name.split("/")[0]


def _description(label: str, name: str) -> str:
    name = _maker(name)
    return f"{'another optimizer' if label == 'unknown' else label} (name={name!r})"


def _nested(optimizer: V1Optimizer) -> str:
    """Returns the class and name of an optimizer, and of the optimizers that it wraps."""
    text = f"{type(optimizer).__name__} (name={optimizer.get_name()!r})"
    if not isinstance(optimizer, OptimizerWrapper):
        return text
    return f"{text} around {' and '.join(map(_nested, optimizer.wrapped))}"
