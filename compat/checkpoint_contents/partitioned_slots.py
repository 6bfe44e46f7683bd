"""Slots of partitioned variables that TensorFlow 1 made under a scope, and gave a mangled name.

To name the slot of ``x/part_0`` in a Saver's checkpoint, TensorFlow takes its name in the graph and
drops as many characters as "x/part_0/" has, to put "x/" before the rest. Where the optimizer was
made under a scope, as by `tf.contrib.layers.optimize_loss`, the name begins with that scope, and
its end stays: ``OptimizeLoss/matrix/part_0/Adam`` is saved as ``matrix/atrix/part_0/Adam``. Each
part has such a tensor of its own, of the shape of the whole, which holds its slice alone.
"""

import collections
import re

import numpy as np

# What stands in the name of a part: its number or, for a slot of another shape than the variable,
# which belongs to the part alone, what it has of the whole.
PART = re.compile(r"/(?:part_(\d+)|(?:rows|columns|axis_\d+)_(\d+)_to_\d+_of_\d+)(?=/|$)")
_END = re.compile(r"(?P<cut>.*?(?P<number>\d+)/)(?P<slot>[^/]+)$")


def position(name):
    """Returns a number by which parts are in their order; None if the name is none of a part."""
    found = PART.search(name)
    return None if found is None else int(found.group(1) or found.group(2))


def is_numbered(name):
    """Whether a part's name tells its number, and not what it has of the whole."""
    return PART.search(name).group(1) is not None


def slot_of(name, variable):
    """Returns the name of the slot, as "Adam_1", if it is one of `variable`; else None."""
    found = _END.match(name[len(variable) + 1 :]) if name.startswith(variable + "/") else None
    if not found:
        return None
    part, cut = f"{variable}/part_{found.group('number')}/", found.group("cut")
    return found.group("slot") if part.endswith(cut) or cut.endswith(part) else None


def find(variable, slot, shapes, tensors):
    """Returns the names of the tensors that hold a slot of all parts of a variable, () if none.

    Args:
      variable: the name of the variable.
      slot: the name of the slot.
      shapes: what the shape of the slot can be, tuples of ints.
      tensors: a dict from names to `TensorInfo`.
    """
    names = [
        name
        for name in tensors
        # What has a variable of its own, as w/1/Adam beside w/1, is no slice of w's.
        if slot_of(name, variable) == slot and name.rpartition("/")[0] not in tensors
    ]
    found = {tensors[name].shape for name in names}
    if len(found) != 1 or not found <= set(shapes):
        return ()
    pieces = [piece for name in names for piece in pieces_of(tensors[name])]
    numbers = sum(int(np.prod(piece_shape)) for piece_shape, _ in pieces)
    return tuple(names) if numbers == int(np.prod(found.pop())) else ()


def find_all(tensors):
    """Returns the names of all tensors that hold such slots, by (scope, variable, slot).

    The scope, with "/", as "OptimizeLoss/", is "" where other tensors do not tell it.
    """
    found = collections.OrderedDict()
    for name in sorted(tensors):
        words = name.split("/")
        for variable in ("/".join(words[:end]) for end in range(1, len(words))):
            slot = slot_of(name, variable) if variable in tensors else None
            if slot is not None:
                shape = tuple(tensors[variable].shape)
                names = find(variable, slot, (shape, shape[:1]), tensors)
                if name in names:
                    found[variable, slot] = names
    mangled = {name for names in found.values() for name in names}
    others = [name for name in tensors if name not in mangled]
    return collections.OrderedDict(
        ((_scope_of(names[0], variable, others), variable, slot), names)
        for (variable, slot), names in found.items()
    )


def _scope_of(name, variable, others):
    # It is as long as what is left of the slot's name before it.
    found = _END.match(name[len(variable) + 1 :])
    part, cut = f"{variable}/part_{found.group('number')}/", found.group("cut")
    prefixes = {other[: len(cut)] for other in others if len(other) > len(cut)}
    fitting = [each for each in prefixes if each.endswith("/") and (each + part).endswith(cut)]
    return fitting[0] if len(fitting) == 1 else ""


def pieces_of(info):
    """Returns the slices that a tensor holds, pairs (shape, offset)."""
    return info.parts or ((info.shape, (0,) * len(info.shape)),)
