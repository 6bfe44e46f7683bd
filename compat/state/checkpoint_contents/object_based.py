"""Recognises the tensors of an object-based checkpoint by its object graph."""

from __future__ import annotations

from ..checkpoint_files.object_graph import NAMED_BY_NUMBER, NUMBERED, ObjectGraph, SavedOptimizer
from ..checkpoint_files.tensor_info import Infos
from . import keras_names, slot_signatures
from .items import Contents, Guess, SlotItem, Variable
from .named import item_of

STEP_NAMES = ("iter", "iteration", "_iterations")


def contents(tensors: Infos, graph: ObjectGraph) -> Contents:
    """Returns the `Contents` of an object-based checkpoint. `tensors`: {key: `TensorInfo`}."""
    slots = {}
    for optimizer in graph.optimizers:
        for (variable, slot_name), key in optimizer.slots.items():
            item = item_of(f"{variable}, slot {slot_name}", tensors, key)
            slot = SlotItem(item, scope=optimizer.path, suffix=slot_name, role=slot_name)
            slots.setdefault(variable, []).append(slot)
    variables = tuple(
        Variable(item_of(name, tensors, key), tuple(slots.get(name, ())))
        for name, key in sorted(graph.variables.items())
    )
    shared, step = [], None
    for optimizer in graph.optimizers:
        for name, key in optimizer.variables.items():
            path = "/".join(filter(None, (optimizer.path, name)))
            item = item_of(path, tensors, key)
            if local_name(name) in STEP_NAMES and step is None:
                step = item
            else:
                shared.append(item)
    shared = tuple(shared)
    guesses = tuple(_guess(optimizer, tensors, graph) for optimizer in graph.optimizers)
    result = Contents(
        by_name=False, variables=variables, shared=shared, step=step, other=(), optimizers=guesses
    )
    recognised = {key for item in result.items() for key in item.stored.names}
    other = (item_of(key, tensors) for key in sorted(set(tensors) - recognised))
    return result._replace(other=tuple(other))


def local_name(path: str) -> str:
    """Returns the part of a path after the last "/"."""
    return path.rsplit("/", 1)[-1]


def is_keras_own(optimizer: SavedOptimizer) -> bool:
    """Returns whether an optimizer is Keras' own, not a v1 optimizer and not made by `to_keras`."""
    if optimizer.kind == NAMED_BY_NUMBER:  # only optimizers made by `to_keras` have such names
        return False
    if optimizer.kind == NUMBERED:  # only Keras' own optimizers save such lists
        return True
    # Keras' own OptimizerV2 classes save the hyperparameter `decay`. V1 optimizers do not save it.
    # Optimizers made by `to_keras` save it only if they were made with Keras' argument `decay`.
    return "decay" in map(local_name, optimizer.variables)


def _guess(optimizer: SavedOptimizer, tensors: Infos, graph: ObjectGraph) -> Guess:
    roles = tuple(sorted({role for _, role in optimizer.slots}))
    trained = {variable for variable, _ in optimizer.slots}
    if not is_keras_own(optimizer):
        label = "made by to_keras, or of v1: " + _likely_class(optimizer, tensors, graph)
    elif roles:
        label = "Keras' own " + keras_names.BY_SLOTS.get(roles, "optimizer, unknown")
    else:
        label = "Keras' own, without slots, like SGD"
    return Guess(label, ", ".join(roles) or "none", optimizer.path, len(trained))


def _likely_class(optimizer: SavedOptimizer, tensors: Infos, graph: ObjectGraph) -> str:
    """Returns the v1 class that such slots and shared variables suggest, as a text for users."""
    if not optimizer.slots:
        return "without slots, like GradientDescent"
    shared = {local_name(name).replace("shared_", "") for name in optimizer.variables}
    forms = {}
    for (variable, role), key in optimizer.slots.items():
        whole = tensors[graph.variables[variable]]
        forms.setdefault(variable, {})[role] = slot_signatures.forms(whole, tensors[key])
    return slot_signatures.recognise_roles(list(forms.values()), shared)
