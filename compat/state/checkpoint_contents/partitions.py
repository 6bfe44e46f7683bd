"""Finds the parts of partitioned variables and of their slots by the names of the tensors.

The name of a part contains its number (x/part_0), and so do the names of its slots (x/part_0/Adam).
If a slot lacks the axis along which the variable is partitioned, the names of the parts' slots
contain ranges instead (x/rows_0_to_9_of_20/Adafactor).

A Saver's checkpoint may contain mangled names. To name the slot of ``x/part_0``, TensorFlow 1 takes
the slot's name in the graph, drops as many characters as "x/part_0/" has, and puts "x/" before the
rest. If the optimizer was created in a scope, for example by `tf.contrib.layers.optimize_loss`, the
slot's name starts with the scope. TensorFlow then drops the wrong characters:
``OptimizeLoss/matrix/part_0/Adam`` is saved as ``matrix/atrix/part_0/Adam``. Therefore the slots of
the parts are saved as tensors with different names, not as slices of one tensor. Each of these
tensors has the shape of the whole slot, but contains only the slice of one part.
"""

from __future__ import annotations

import collections
import re
from typing import Collection, Dict, Iterable, List, Mapping, Match, NamedTuple, Optional, Tuple

from legacy_opt.core.array_parts import Shape

from ... import arrays
from ..checkpoint_files.tensor_info import Infos
from .stored import SLICES, StoredTensor

PART = re.compile(r"/(?:part_(\d+)|(?:rows|columns|axis_\d+)_(\d+)_to_\d+_of_\d+)(?=/|$)")
_END = re.compile(r"(?P<cut>.*?(?P<number>\d+)/)(?P<slot>[^/]+)$")


class Parts(NamedTuple):
    """The names of the parts of a variable or slot."""

    names: Tuple[str, ...]  # in the order of their numbers or ranges
    are_numbered: bool  # whether they contain 0, 1, 2 etc., and no number is missing
    have_ranges: bool  # whether they contain ranges, of which some may be missing


def parts(names: Iterable[str]) -> Dict[Tuple[str, str], Parts]:
    """Returns a dict from (words before the number or range, words after it) to `Parts`.

    For example, the key of x/part_0/Adam and x/part_1/Adam is ("x", "/Adam").
    """
    groups = collections.defaultdict(list)
    for name in sorted(names):
        for match in PART.finditer(name):
            groups[name[: match.start()], name[match.end() :]].append(match)
    return {key: _in_order(group) for key, group in groups.items()}


def _in_order(matches: List[Match[str]]) -> Parts:
    # Group 1 is the number of a part. If it is None, group 2 is the start of a range.
    matches = sorted(matches, key=lambda match: int(match.group(1) or match.group(2)))
    names = tuple(match.string for match in matches)
    numbers = [None if match.group(1) is None else int(match.group(1)) for match in matches]
    are_numbered = numbers == list(range(len(numbers)))
    return Parts(names, are_numbered, have_ranges=None in numbers)


def names_of_parts(
    groups: Mapping[Tuple[str, str], Parts], variable: str, rest: str
) -> Tuple[str, ...]:
    """Returns the names of the parts of a variable or slot; () if the `parts` have none."""
    found = groups.get((variable, rest))
    return found.names if found and (found.are_numbered or found.have_ranges) else ()


def mangled_slots(
    tensors: Infos, shapes: Mapping[str, Shape]
) -> Dict[Tuple[str, str], StoredTensor]:
    """Returns a dict from (variable, slot) to the `StoredTensor` of a slot with mangled names.

    The dict lacks slots of which slices are missing. `shapes`: {name of a variable: its shape}.
    """
    names = mangled_names(tensors, shapes)
    slots = {key: StoredTensor.of(each, tensors, SLICES) for key, each in names.items()}
    return {key: slot for key, slot in slots.items() if _is_slot(slot, shapes[key[0]])}


def mangled_names(
    tensors: Collection[str], variables: Collection[str]
) -> Dict[Tuple[str, str], List[str]]:
    """Returns a dict from (variable, slot) to the names that may be mangled names of the slot."""
    names = collections.defaultdict(list)
    for name in sorted(tensors):
        if name.rpartition("/")[0] in tensors:
            continue  # if there is a variable w/1, then w/1/Adam is its slot, and not a slice
        words = name.split("/")
        for variable in ("/".join(words[:end]) for end in range(1, len(words))):
            match = _match_end(name, variable) if variable in variables else None
            if match:
                names[variable, match.group("slot")].append(name)
    return names


def _match_end(name: str, variable: str) -> Optional[Match[str]]:
    """Matches the end of a name after the variable; None if it is no mangled name of a slot."""
    match = _END.match(name[len(variable) + 1 :])
    if not match:
        return None
    part = f"{variable}/part_{match.group('number')}/"
    cut = match.group("cut")
    return match if part.endswith(cut) or cut.endswith(part) else None


def _is_slot(stored: StoredTensor, shape_of_variable: Shape) -> bool:
    """Returns whether a slot has all of its slices; a single tensor also needs a usual shape."""
    saved = sum(arrays.count(shape) for shape, _ in stored.parts)
    is_usual = stored.shape in (shape_of_variable, shape_of_variable[:1])
    is_sliced = stored.shape is not None and len(stored.names) > 1
    return (is_usual or is_sliced) and saved == stored.numbers


def scope_of(slot: StoredTensor, variable: str, names: Iterable[str]) -> str:
    """Returns the scope of a slot with mangled names, such as "OptimizeLoss/"; "" if unknown.

    Mangled names lack some or all characters of the scope. Therefore this function searches the
    other names in the checkpoint for prefixes that fit, and returns the prefix if only one fits.
    """
    # From the start of scope + part + slot, TensorFlow has dropped len(part) characters. The rest
    # is cut + slot, so `cut` is as long as the scope.
    match = _match_end(slot.names[0], variable)
    part = f"{variable}/part_{match.group('number')}/"
    cut = match.group("cut")
    prefixes = {name[: len(cut)] for name in names if len(name) > len(cut)}
    fitting = [each for each in prefixes if each.endswith("/") and (each + part).endswith(cut)]
    return fitting[0] if len(fitting) == 1 else ""
