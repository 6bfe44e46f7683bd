"""Recognises the tensors of a name-based checkpoint by name, shape and dtype.

The name of a slot contains the name of its variable: `x/Adam` is a slot of `x`.
`tf.contrib.layers.optimize_loss` puts a scope before the variable's name: `OptimizeLoss/x/Adam`. A
partitioned variable may be saved in parts: `x/part_0` and `x/part_1`. DeepRec's EmbeddingVariable,
a hash table, is saved as `x-keys`, `x-values` etc.
"""

import collections
import re

import numpy as np

from . import deeprec_embeddings, keras_names, partitioned_slots, slot_signatures
from .items import (
    EMBEDDING_VARIABLE,
    INCOMPLETE,
    OF_EACH_PART,
    PARTS,
    TENSOR,
    Contents,
    Guess,
    Item,
    SlotItem,
    Variable,
)
from .partitioned_slots import PART, position

_NUMBER = re.compile(r"_\d+$")
_POWER = re.compile(r"(beta[12]_power)(_\d+)?$")
_STEP_NAMES = ("global_step", "iter", "iteration")


def named_contents(tensors):
    """Finds the variables, slots and optimizers in a name-based checkpoint.

    Args:
      tensors: a dict from names to objects with a `dtype` and a `shape`.

    Returns:
      `Contents`.
    """
    items = {item.name: item for item in _items(tensors)}
    step = _step(items)
    of_keras = keras_names.names(items)
    powers = [item for item in items.values() if _is_power(item)]
    shared = powers + keras_names.for_all_variables(items, of_keras)
    shared = [item for item in shared if item != step]
    apart = {item.name for item in shared} | ({step.name} if step else set())
    owners = _owners({name: item for name, item in items.items() if name not in apart})
    slots = collections.defaultdict(list)
    for name, (owner, scope, suffix) in sorted(owners.items()):
        slots[owner].append(SlotItem(items[name], scope, suffix))
    variables = [
        Variable(item, tuple(sorted(slots[name], key=_order)))
        for name, item in sorted(items.items())
        if name not in owners and name not in apart
    ]
    powers = {_POWER.search(item.name).group(1) for item in powers}
    variables, optimizers = _recognised(variables, powers, of_keras)
    return Contents(True, variables, tuple(sorted(shared)), step, (), optimizers)


def item_of(name, tensors, pieces=None):
    """Returns the `Item` of one tensor, or one `Item` without a shape for several tensors."""
    pieces = pieces or (name,)
    first = tensors[pieces[0]]
    shape = tuple(first.shape) if len(pieces) == 1 else None
    incomplete = any(getattr(tensors[piece], "missing", 0) for piece in pieces)
    kind = INCOMPLETE if incomplete else TENSOR
    return _item(name, first.dtype, shape, kind, pieces, tensors)


def _item(name, dtype, shape, kind, pieces, tensors):
    numbers = [int(np.prod(tensors[piece].shape, dtype=np.int64)) for piece in pieces]
    sizes = [count * width(tensors[piece].dtype) for count, piece in zip(numbers, pieces)]
    dtype = getattr(dtype, "base_dtype", dtype)
    return Item(name, dtype, shape, kind, tuple(pieces), sum(numbers), sum(sizes))


def width(dtype):
    """Returns the bytes of one element; 0 for strings, because the index has no string lengths."""
    return 0 if dtype.name.startswith("string") else dtype.size


def _items(tensors):
    """Yields an `Item` for each tensor, or for several tensors that belong together."""
    embedding = _embedding_variables(tensors)
    for name, pieces in embedding.items():
        yield _embedding_item(name, pieces, tensors)
    taken = {piece for pieces in embedding.values() for piece in pieces}
    for (scope, variable, slot), pieces in partitioned_slots.find_all(tensors).items():
        yield _sliced_item(f"{scope}{variable}/{slot}", pieces, tensors)
        taken.update(pieces)
    names = sorted(set(tensors) - taken)
    axes = _partitioned(names, tensors)
    wholes = collections.defaultdict(list)
    for name in names:
        variable = _variable_of_part(name, axes) or _variable_of_slot(name, tensors)
        wholes[name if variable is None else PART.sub("", name), variable].append(name)
    for (whole, variable), pieces in wholes.items():
        parts = sorted(pieces, key=position) if variable else pieces
        shapes = [tuple(tensors[part].shape) for part in parts]
        numbered = bool(variable) and list(map(position, parts)) == list(range(len(parts)))
        if variable is None or (variable in axes and not numbered):
            for part in parts:
                yield item_of(part, tensors)
            continue
        shape, kind = None, PARTS
        if variable in axes:
            shape = joined_shape(shapes, axes[variable])
        elif set(shapes) == {()}:
            shape = ()
        elif numbered and all(map(partitioned_slots.is_numbered, parts)):
            # The variable is saved as one tensor, but its slot is saved in parts.
            full = tuple(tensors[variable].shape)
            joined = [joined_shape(shapes, axis) for axis in range(len(full))]
            shape = full if full in joined else None
        if shape is None:
            shape, kind = (shapes[0] if len(set(shapes)) == 1 else None), OF_EACH_PART
        yield _item(whole, tensors[parts[0]].dtype, shape, kind, parts, tensors)


def _sliced_item(name, pieces, tensors):
    first = tensors[pieces[0]]
    numbers = int(np.prod(first.shape, dtype=np.int64))
    return Item(
        name, first.dtype, tuple(first.shape), PARTS, pieces, numbers, numbers * width(first.dtype)
    )


def _partitioned(names, tensors):
    """Returns a dict from each partitioned variable to the axis along which its parts are joined.

    The dict lacks variables that also exist as one tensor, variables with missing parts, and
    variables whose parts cannot be joined.
    """
    parts = collections.defaultdict(list)
    for name in names:
        found = PART.search(name)
        if found and found.end() == len(name):
            parts[name[: found.start()]].append(name)
    axes = {}
    for name, pieces in parts.items():
        pieces = sorted(pieces, key=position)
        axis = joined_axis([tuple(tensors[piece].shape) for piece in pieces])
        complete = list(map(position, pieces)) == list(range(len(pieces)))
        if complete and axis is not None and name not in tensors:
            axes[name] = axis
    return axes


def _variable_of_part(name, variables):
    """Returns x for a name such as x/part_0, x/part_0/Adam or scope/x/part_0/Adam; else None.

    Args:
      name: the name of a tensor.
      variables: the names of variables to look for.
    """
    found = PART.search(name)
    words = name[: found.start()].split("/") if found else []
    candidates = ["/".join(words[start:]) for start in range(len(words))]
    return next((each for each in candidates if each in variables), None)


def _variable_of_slot(name, tensors):
    """Returns x for a name such as x/part_0/Adam, if x is saved as one tensor; else None."""
    variable = _variable_of_part(name, tensors)
    return variable if variable and PART.sub("", name) != variable else None


def joined_axis(shapes):
    """Returns the axis along which parts of these shapes can be joined, or None.

    If all parts have the same shape, several axes are possible, and the first axis is returned.
    """
    if len({len(shape) for shape in shapes}) > 1 or not shapes[0]:
        return None
    unequal = [axis for axis, sizes in enumerate(zip(*shapes)) if len(set(sizes)) > 1]
    if len(unequal) > 1:
        return None
    return unequal[0] if unequal else 0


def joined_shape(shapes, axis):
    """Returns the shape of parts joined along an axis; None if they cannot be joined.

    If the parts are scalars, the result is (), the shape of one scalar.
    """
    if set(shapes) == {()}:
        return ()
    rest = {shape[:axis] + shape[axis + 1 :] for shape in shapes}
    if len(rest) > 1 or any(len(shape) <= axis for shape in shapes):
        return None
    whole = list(shapes[0])
    whole[axis] = sum(shape[axis] for shape in shapes)
    return tuple(whole)


def _embedding_variables(tensors):
    """Groups the tensors of each EmbeddingVariable, with the tensors of all its partitions.

    Returns:
      A dict from the name of an EmbeddingVariable to a list of the names of its tensors.
    """
    wholes = collections.defaultdict(list)
    for name, pieces in deeprec_embeddings.embedding_variables(tensors).items():
        wholes[PART.sub("", name)] += pieces
    return wholes


def _embedding_item(name, pieces, tensors):
    rows = sum(tensors[piece].shape[0] for piece in pieces if piece.endswith("-keys"))
    values = next(tensors[piece] for piece in pieces if piece.endswith("-values"))
    shape = (rows,) + tuple(values.shape[1:])
    return _item(name, values.dtype, shape, EMBEDDING_VARIABLE, sorted(pieces), tensors)


def _is_integer_scalar(item):
    return item.shape == () and slot_signatures.is_integer(item.dtype)


def _step(items):
    """Returns the `Item` of the global step, or None.

    If several tensors have the name of a global step, the tensor in the fewest scopes is chosen.
    """
    found = [
        item
        for name, item in items.items()
        if name.split("/")[-1] in _STEP_NAMES and _is_integer_scalar(item)
    ]
    return min(found, key=lambda item: (item.name.count("/"), item.name)) if found else None


def _is_power(item):
    return item.shape == () and bool(_POWER.match(item.name.split("/")[-1]))


def _owners(items):
    """Returns a dict from the name of each slot to (variable, scope, suffix).

    In the slot's name, the scope precedes the variable's name, and the suffix follows it.
    """
    found = {}
    for name in items:
        owner = _owner(name, name, items)
        # If x is saved as one tensor, its slots may still be saved in parts, such as x/part_0/Adam.
        if owner is None:
            owner = _owner(name, PART.sub("", name), items)
        if owner is not None:
            found[name] = owner
    # A slot may itself have slots, such as a moving average. Assign a slot's slots to the variable.
    owners = {}
    for name, (owner, scope, suffix) in found.items():
        while owner in found:
            owner, outer_scope, outer_suffix = found[owner]
            scope = "/".join(filter(None, [scope, outer_scope]))
            suffix = outer_suffix + "/" + suffix
        owners[name] = owner, scope, suffix
    return owners


def _owner(tensor, name, items):
    words = name.split("/")
    for end in range(len(words) - 1, 0, -1):
        suffix = "/".join(words[end:])
        known = slot_signatures.is_known(suffix)
        for start in range(end):
            if start and not (known and end == len(words) - 1):
                break  # only slots of known optimizers may have a scope before the variable's name
            owner = "/".join(words[start:end])
            if owner in items and (known or _fits(tensor, suffix, owner, items)):
                return owner, "/".join(words[:start]), suffix
    return None


def _fits(tensor, suffix, owner, items):
    """Returns whether the shape and dtype of a tensor fit a slot of the variable `owner`."""
    slot, variable = items[tensor], items[owner]
    if slot.shape == variable.shape and slot.dtype == variable.dtype:
        return True
    # If `x/Name` is a slot, `x/Name_1` is a slot, too. It may have any shape and dtype.
    first = _NUMBER.sub("", tensor)
    return first != tensor and first in items and _fits(first, suffix, owner, items)


def _order(slot):
    number = _NUMBER.search(slot.suffix)
    return slot.scope, family(slot), int(number.group(0)[1:]) if number else 0, slot.suffix


def family(slot):
    """Returns the optimizer's name in a slot's suffix, without the number that TensorFlow appends.

    The result is the same for the suffixes `adam_m` and `adam_v` of BERT's optimizer.
    """
    return slot_signatures.family(slot.suffix)


def _recognised(variables, powers, of_keras):
    """Finds the optimizers that probably created the slots.

    Returns:
      A pair: the variables, with the roles of recognised slots; and a tuple of `Guess`.
    """
    counts, roles = keras_names.recognise(variables, of_keras)
    families = collections.OrderedDict()
    for variable in variables:
        for slot in (each for each in variable.slots if each.item.name not in roles):
            key = slot.scope, family(slot)
            families.setdefault(key, collections.OrderedDict())
            families[key].setdefault(variable.item.name, (variable, []))[1].append(slot)
    for (scope, name), members in families.items():
        layouts = [
            slot_signatures.layout(variable.item, [slot.item for slot in slots])
            for variable, slots in members.values()
        ]
        guessed = slot_signatures.recognise(name, layouts, powers)
        for (label, slot_roles), (_, slots) in zip(guessed, members.values()):
            counts[label, name, scope] += 1
            for number, slot in enumerate(slots if slot_roles else ()):
                roles[slot.item.name] = slot_roles[number % len(slot_roles)]
    guesses = tuple(Guess(*key, variables=counts[key]) for key in sorted(counts))
    named = [
        variable._replace(
            slots=tuple(slot._replace(role=roles.get(slot.item.name)) for slot in variable.slots)
        )
        for variable in variables
    ]
    return tuple(named), guesses
