"""Finds slots of partitioned variables whose names TensorFlow 1 has mangled.

To name the slot of ``x/part_0`` in a Saver's checkpoint, TensorFlow takes the slot's name in the
graph, drops as many characters as "x/part_0/" has, and puts "x/" before the rest. If the optimizer
was created in a scope, for example by `tf.contrib.layers.optimize_loss`, the slot's name starts
with the scope. TensorFlow then drops the wrong characters: ``OptimizeLoss/matrix/part_0/Adam`` is
saved as ``matrix/atrix/part_0/Adam``. Therefore the slots of the parts are saved as tensors with
different names, not as slices of one tensor. Each of these tensors has the shape of the whole slot,
but contains only the slice of one part.
"""

import collections
import re

import numpy as np

# The name of a part, or of a slot that is saved for one part, contains the part's number (x/part_0,
# x/part_0/Adam) or the part's range (x/rows_0_to_9_of_20/Adafactor).
PART = re.compile(r"/(?:part_(\d+)|(?:rows|columns|axis_\d+)_(\d+)_to_\d+_of_\d+)(?=/|$)")
_END = re.compile(r"(?P<cut>.*?(?P<number>\d+)/)(?P<slot>[^/]+)$")


def position(name):
    """Returns the number of a part, or the start of the part's range, from a tensor's name.

    Parts are sorted by the result. It is None if `name` contains neither a number nor a range.
    """
    found = PART.search(name)
    return None if found is None else int(found.group(1) or found.group(2))


def is_numbered(name):
    """Returns whether the name of a part contains the part's number, not the part's range."""
    return PART.search(name).group(1) is not None


def slot_of(name, variable):
    """Returns a slot's name, like "Adam_1", if `name` is a mangled name of a slot of `variable`.

    Returns None for other names.
    """
    found = _END.match(name[len(variable) + 1 :]) if name.startswith(variable + "/") else None
    if not found:
        return None
    part, cut = f"{variable}/part_{found.group('number')}/", found.group("cut")
    return found.group("slot") if part.endswith(cut) or cut.endswith(part) else None


def find(variable, slot, shapes, tensors):
    """Returns the names of the tensors with the slices of a slot.

    Returns () if slices are missing, if the tensors have different shapes, or if their shape is not
    in `shapes`.

    Args:
      variable: the name of the variable.
      slot: the name of the slot.
      shapes: the possible shapes of the slot, tuples of ints.
      tensors: a dict from names to `TensorInfo`.
    """
    names = [
        name
        for name in tensors
        # If a variable w/1 exists, then w/1/Adam is its slot, and not a slice of the slot of w.
        if slot_of(name, variable) == slot and name.rpartition("/")[0] not in tensors
    ]
    found = {tensors[name].shape for name in names}
    if len(found) != 1 or not found <= set(shapes):
        return ()
    pieces = [piece for name in names for piece in pieces_of(tensors[name])]
    numbers = sum(int(np.prod(piece_shape)) for piece_shape, _ in pieces)
    return tuple(names) if numbers == int(np.prod(found.pop())) else ()


def find_all(tensors):
    """Finds all slots with mangled names.

    Returns:
      A dict from (scope, variable, slot) to the names of the tensors. The scope ends with "/", such
      as "OptimizeLoss/". Mangled names lack some or all characters of the scope. Therefore this
      function searches the checkpoint's other names for prefixes that fit. If exactly one prefix
      fits, this prefix is the scope; otherwise the scope is "".
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
    # From the start of scope + part + slot, TensorFlow has dropped len(part) characters. The rest
    # is cut + slot, so `cut` is as long as the scope.
    found = _END.match(name[len(variable) + 1 :])
    part, cut = f"{variable}/part_{found.group('number')}/", found.group("cut")
    prefixes = {other[: len(cut)] for other in others if len(other) > len(cut)}
    fitting = [each for each in prefixes if each.endswith("/") and (each + part).endswith(cut)]
    return fitting[0] if len(fitting) == 1 else ""


def pieces_of(info):
    """Returns the saved slices of a tensor, as pairs (shape, offset in the tensor)."""
    return info.parts or ((info.shape, (0,) * len(info.shape)),)
