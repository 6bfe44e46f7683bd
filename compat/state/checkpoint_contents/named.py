"""Recognises the tensors of a name-based checkpoint by name, shape and dtype.

The name of a slot contains the name of its variable: `x/Adam` is a slot of `x`.
`tf.contrib.layers.optimize_loss` puts a scope before the variable's name: `OptimizeLoss/x/Adam`. A
partitioned variable may be saved in parts: `x/part_0` and `x/part_1`. DeepRec's EmbeddingVariable,
a hash table, is saved as `x-keys`, `x-values` etc.
"""

from __future__ import annotations

import collections
import itertools
import re
from typing import Collection, Dict, Iterable, Iterator, List, Mapping, Optional, Set, Tuple

from ..checkpoint_files.tensor_info import Infos, is_integer
from . import deeprec_embeddings, keras_names, partitions, slot_signatures
from . import items as kinds
from .items import Contents, Guess, Item, SlotItem, Variable
from .partitions import PART, Parts
from .stored import COPIES, Axis, StoredTensor, joined_axis, joined_shape

Owner = Tuple[str, str, str]  # (variable, scope, suffix) of a slot
_NUMBER = re.compile(r"_\d+$")
_POWER = re.compile(r"(beta[12]_power)(_\d+)?$")
_STEP_NAMES = ("global_step", "iter", "iteration")


def named_contents(tensors: Infos) -> Contents:
    """Returns the `Contents` of a name-based checkpoint. `tensors`: {name: `TensorInfo`}."""
    items = {item.name: item for item in _items(tensors)}
    step = _step(items)
    keras_optimizers = keras_names.optimizer_names(items)
    powers = [item for item in items.values() if _is_power(item)]
    scalars = powers + keras_names.shared_scalars(items, keras_optimizers)
    shared = tuple(sorted(item for item in scalars if item != step))
    not_owned = {item.name for item in (*shared, step) if item is not None}
    owners = _owners({name: item for name, item in items.items() if name not in not_owned})
    slots = collections.defaultdict(list)
    for name, (owner, scope, suffix) in sorted(owners.items()):
        slots[owner].append(SlotItem(items[name], scope, suffix))
    variables = [
        Variable(item, tuple(sorted(slots[name], key=_sort_key)))
        for name, item in sorted(items.items())
        if name not in owners and name not in not_owned
    ]
    power_names = {_POWER.search(item.name).group(1) for item in powers}
    variables, guesses = _recognise_slots(variables, power_names, keras_optimizers)
    return Contents(
        by_name=True, variables=variables, shared=shared, step=step, other=(), optimizers=guesses
    )


def item_of(name: str, tensors: Infos, key: Optional[str] = None) -> Item:
    """Returns the `Item` of one tensor. `key` is its name in the checkpoint if it is not `name`."""
    stored = StoredTensor.of((name if key is None else key,), tensors)
    return _item(name, kinds.INCOMPLETE if stored.infos[0].missing else kinds.TENSOR, stored)


def _item(name: str, kind: str, stored: StoredTensor) -> Item:
    return Item(name, stored.dtype, stored.shape, kind, stored)


def _items(tensors: Infos) -> List[Item]:
    """Returns an `Item` for each tensor, or for several tensors that belong together."""
    items, remaining = [], dict(tensors)
    # A tensor belongs to the first item that is found for it. `list` ends the search in `remaining`
    # before names are deleted from it.
    for find in _embeddings, _mangled, _in_parts:
        for item in list(find(remaining)):
            if all(name in remaining for name in item.stored.names):
                items.append(item)
                for name in item.stored.names:
                    del remaining[name]
    return items + [item_of(name, remaining) for name in sorted(remaining)]


def _embeddings(tensors: Infos) -> Iterator[Item]:
    """Yields an `Item` for each EmbeddingVariable, with the tensors of all its partitions."""
    wholes = collections.defaultdict(list)
    for name, pieces in deeprec_embeddings.embedding_variables(tensors).items():
        wholes[PART.sub("", name)] += pieces
    for name, pieces in wholes.items():
        stored = StoredTensor.of(sorted(pieces), tensors, axis=None)  # keys, values etc.
        rows = sum(tensors[piece].shape[0] for piece in pieces if piece.endswith("-keys"))
        values = next(tensors[piece] for piece in pieces if piece.endswith("-values"))
        shape = (rows,) + values.shape[1:]
        yield Item(name, values.dtype, shape, kinds.EMBEDDING_VARIABLE, stored)


def _mangled(tensors: Infos) -> Iterator[Item]:
    """Yields an `Item` for each slot with mangled names (see `partitions`)."""
    slots = partitions.mangled_slots(tensors, {name: info.shape for name, info in tensors.items()})
    mangled = {name for stored in slots.values() for name in stored.names}
    others = [name for name in tensors if name not in mangled]
    for (variable, slot), stored in slots.items():
        scope = partitions.scope_of(stored, variable, others)
        yield _item(f"{scope}{variable}/{slot}", kinds.PARTS, stored)


def _in_parts(tensors: Infos) -> Iterator[Item]:
    """Yields an `Item` for each variable and each slot that is saved in parts."""
    groups = partitions.parts(name for name, info in tensors.items() if not info.missing)
    axes = _partitioned(groups, tensors)
    names = set(axes) | set(tensors)
    for (before, after), parts in groups.items():
        variable = _name_at_end(names, before)
        if variable in axes and parts.are_numbered:
            yield _joined(before + after, parts, axes[variable], tensors)
        elif variable in tensors and after:  # a variable that is saved whole, but its slot in parts
            shapes = [tensors[part].shape for part in parts.names]
            axis = joined_axis(shapes, tensors[variable].shape) if parts.are_numbered else None
            yield _joined(before + after, parts, axis, tensors)


def _partitioned(groups: Mapping[Tuple[str, str], Parts], tensors: Infos) -> Dict[str, int]:
    """Returns a dict from each partitioned variable to the axis along which its parts are joined.

    Variables that also exist as one tensor, and variables whose parts do not fit, are left out.
    """
    axes = {}
    for (variable, rest), parts in groups.items():
        axis = joined_axis([tensors[part].shape for part in parts.names])
        if not rest and parts.are_numbered and axis is not None and variable not in tensors:
            axes[variable] = axis
    return axes


def _joined(name: str, parts: Parts, axis: Axis, tensors: Infos) -> Item:
    """Returns the `Item` of parts, which are joined along an axis if this is possible."""
    shapes = [tensors[part].shape for part in parts.names]
    if set(shapes) == {()}:  # scalars are not divided: each part has a copy of the whole value
        axis = COPIES
    elif isinstance(axis, int) and joined_shape(shapes, axis) is None:
        axis = None
    kind = kinds.OF_EACH_PART if axis is None else kinds.PARTS
    return _item(name, kind, StoredTensor.of(parts.names, tensors, axis))


def _name_at_end(names: Collection[str], path: str) -> str:
    """Returns the longest end of a path that is in `names`, such as x for scope/x; or ""."""
    words = path.split("/")
    ends = ("/".join(words[start:]) for start in range(len(words)))
    return next((end for end in ends if end in names), "")


def _step(items: Mapping[str, Item]) -> Optional[Item]:
    """Returns the `Item` of the global step: of several, the one in the fewest scopes; or None."""
    steps = [
        item
        for name, item in items.items()
        if name.split("/")[-1] in _STEP_NAMES and item.shape == () and is_integer(item.dtype)
    ]
    return min(steps, key=lambda item: (item.name.count("/"), item.name)) if steps else None


def _is_power(item: Item) -> bool:
    return item.shape == () and bool(_POWER.match(item.name.split("/")[-1]))


def _owners(items: Mapping[str, Item]) -> Dict[str, Owner]:
    """Returns a dict from the name of each slot to its `Owner`."""
    direct_owners = {}
    for name in items:
        owner = _owner(name, name, items)
        # If x is saved as one tensor, its slots may still be saved in parts, such as x/part_0/Adam.
        if owner is None:
            owner = _owner(name, PART.sub("", name), items)
        if owner is not None:
            direct_owners[name] = owner
    # A slot may itself have slots, such as a moving average: x/Adam/avg is a slot of x/Adam, which
    # is a slot of x. Then x/Adam/avg becomes a slot of x with the suffix Adam/avg.
    owners = {}
    for name, (owner, scope, suffix) in direct_owners.items():
        while owner in direct_owners:
            owner, outer_scope, outer_suffix = direct_owners[owner]
            scope = "/".join(filter(None, [scope, outer_scope]))
            suffix = outer_suffix + "/" + suffix
        owners[name] = owner, scope, suffix
    return owners


def _owner(tensor: str, name: str, items: Mapping[str, Item]) -> Optional[Owner]:
    """Returns the `Owner` of a slot, or None. `name` is `tensor`, or lacks the number of a part."""
    words = name.split("/")
    for end in range(len(words) - 1, 0, -1):
        suffix = "/".join(words[end:])
        known = slot_signatures.is_known(suffix)
        # Only slots of known optimizers may have a scope before the variable's name.
        may_have_scope = known and end == len(words) - 1
        for start in range(end if may_have_scope else 1):
            owner = "/".join(words[start:end])
            if owner in items and (known or _fits(tensor, owner, items)):
                return owner, "/".join(words[:start]), suffix
    return None


def _fits(tensor: str, owner: str, items: Mapping[str, Item]) -> bool:
    """Returns whether the shape and dtype of a tensor fit a slot of the variable `owner`."""
    slot, variable = items[tensor], items[owner]
    if slot.shape == variable.shape and slot.dtype == variable.dtype:
        return True
    # If `x/Name` fits, `x/Name_1` fits, too, whatever its own shape and dtype are.
    first = _NUMBER.sub("", tensor)
    return first != tensor and first in items and _fits(first, owner, items)


def _sort_key(slot: SlotItem) -> Tuple[str, str, int, str]:
    match = _NUMBER.search(slot.suffix)
    number = int(match.group(0)[1:]) if match else 0
    return slot.scope, slot_signatures.family(slot.suffix), number, slot.suffix


def _families(
    variables: Iterable[Variable], recognised: Collection[str]
) -> Dict[Tuple[str, str], List[Tuple[Variable, List[SlotItem]]]]:
    """Returns {(scope, optimizer's name): [(variable, slots)]}, without the `recognised` slots."""
    families = collections.defaultdict(list)
    for variable in variables:
        slots = collections.defaultdict(list)
        for slot in variable.slots:
            if slot.item.name not in recognised:
                slots[slot.scope, slot_signatures.family(slot.suffix)].append(slot)
        for key, members in slots.items():
            families[key].append((variable, members))
    return families


def _recognise_slots(
    variables: Iterable[Variable], powers: Set[str], keras_optimizers: Set[str]
) -> Tuple[Tuple[Variable, ...], Tuple[Guess, ...]]:
    """Returns the variables, with the roles of recognised slots; and a tuple of `Guess`."""
    counts, roles = keras_names.recognise(variables, keras_optimizers)
    for (scope, name), members in _families(variables, roles).items():
        layouts = [
            [slot_signatures.forms(variable.item, slot.item) for slot in slots]
            for variable, slots in members
        ]
        guessed = slot_signatures.recognise(name, layouts, powers)
        for (label, slot_roles), (_, slots) in zip(guessed, members):
            counts[label, name, scope] += 1
            if slot_roles:  # `cycle`: several optimizers of this family may train the variable
                roles.update(zip((slot.item.name for slot in slots), itertools.cycle(slot_roles)))
    guesses = tuple(Guess(*key, variables=counts[key]) for key in sorted(counts))
    with_roles = []
    for variable in variables:
        slots = tuple(each._replace(role=roles.get(each.item.name)) for each in variable.slots)
        with_roles.append(variable._replace(slots=slots))
    return tuple(with_roles), guesses
