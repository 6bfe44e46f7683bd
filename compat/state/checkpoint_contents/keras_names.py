"""Recognises the Keras optimizers that `to_v1` put into a TF1 graph, in a Saver's checkpoint.

A Keras optimizer named Adam has the slot `x/Adam/m` for a variable `x`, and the shared variables
`Adam/iter` and `Adam/learning_rate`. The shared variables of a second optimizer with the same name
have numbers: `Adam/iter_1` and `Adam/learning_rate_1`.
"""

from __future__ import annotations

import collections
import re
from typing import Collection, Counter, Dict, Iterable, List, Mapping, Set, Tuple

from ..checkpoint_files.tensor_info import is_integer
from .items import Item, Variable

# Maps the sorted slot names of Keras' own optimizers, in Keras 2 and 3, to descriptions for users.
BY_SLOTS = {
    ("m", "v"): "Adam, Adamax or Nadam",
    ("m", "v", "vhat"): "Adam with amsgrad",
    ("accumulator",): "Adagrad",
    ("accum_grad", "accum_var"): "Adadelta",
    ("accumulator", "linear"): "Ftrl",
    ("momentum",): "SGD with momentum",
    ("rms",): "RMSprop",
    ("momentum", "rms"): "RMSprop with momentum",
    ("mg", "rms"): "centered RMSprop",
    ("mg", "momentum", "rms"): "centered RMSprop with momentum",
    ("momentum", "velocity"): "Adam",
    ("m", "u"): "Adamax",
    ("accumulated_delta_var", "accumulated_grad"): "Adadelta",
    ("velocity",): "RMSprop",
}
# Class names that `to_v1` uses as names of optimizers. Several classes have the same slots, so the
# name identifies the class better than the slots do.
_CLASSES = ("Adam", "AdamW", "Adamax", "Nadam", "Lamb", "Lion", "Muon", "Adafactor")
_STEP = re.compile(r"(.+)/(?:iter|iteration)$")
_NUMBER = re.compile(r"_\d+$")


def optimizer_names(items: Mapping[str, Item]) -> Set[str]:
    """Returns a set of the names of the Keras optimizers in a dict from names to `Item`."""
    names = [
        _STEP.match(name).group(1)
        for name, item in items.items()
        if _STEP.match(name) and item.shape == () and is_integer(item.dtype)
    ]
    return {name for name in names if name + "/learning_rate" in items or _has_slots(name, items)}


def _has_slots(name: str, items: Mapping[str, Item]) -> bool:
    middle = f"/{name}/"
    return any(middle in each and each.split(middle)[0] in items for each in items)


def shared_scalars(items: Mapping[str, Item], optimizers: Collection[str]) -> List[Item]:
    """Returns the scalars of these Keras optimizers, except slots, as `Item` objects."""
    return [
        item
        for name, item in items.items()
        if item.shape == ()
        and name.rpartition("/")[0] in optimizers
        # A scope of the model may have the same name as an optimizer. A scalar with slots is a
        # variable in such a scope, because an optimizer's own scalars have no slots.
        and not any(other.startswith(f"{name}/{each}/") for other in items for each in optimizers)
    ]


def recognise(
    variables: Iterable[Variable], optimizers: Collection[str]
) -> Tuple[Counter[Tuple[str, str, str]], Dict[str, str]]:
    """Finds the classes of Keras optimizers (see `optimizer_names`), and their slots' roles.

    Returns a Counter from (label shown to users, name of the optimizer, scope) to the number of
    variables; and a dict from the names of slots to their roles, such as "m".
    """
    slots = collections.defaultdict(dict)  # {(optimizer, scope): {variable: roles}}
    roles = {}
    for variable in variables:
        for slot in variable.slots:
            name, _, role = slot.suffix.rpartition("/")
            if name in optimizers:
                role = _NUMBER.sub("", role)
                roles[slot.item.name] = role
                roles_by_variable = slots[name, slot.scope]
                roles_by_variable.setdefault(variable.item.name, []).append(role)
    counts = collections.Counter()
    for (name, scope), roles_by_variable in slots.items():
        label = _label(name, roles_by_variable.values())
        counts[label, name, scope] = len(roles_by_variable)
    return counts, roles


def _label(name: str, roles_of_variables: Collection[List[str]]) -> str:
    distinct = tuple(sorted({role for roles in roles_of_variables for role in roles}))
    description = name if name in _CLASSES else BY_SLOTS.get(distinct, "optimizer, unknown,")
    label = f"Keras' {description} in a TF1 graph (to_v1)"
    has_duplicates = any(len(roles) > len(set(roles)) for roles in roles_of_variables)
    return label + ", more than one" if has_duplicates else label
