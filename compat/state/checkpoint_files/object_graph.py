"""Finds variables, optimizers and their slots in the object graph of an object-based checkpoint.

`tf.train.Checkpoint` and Keras' `save_weights` name tensors after the path from object to object,
and save the graph of these objects. The graph describes the slots of an optimizer in one of three
ways. In this list, a bridged optimizer is a Keras optimizer that `to_keras` made.

* SLOT_VARIABLES: the graph contains references (variable, name of the slot, slot). V1 optimizers,
  Keras' OptimizerV2 classes and bridged optimizers of Keras 2 save such references.
* NAMED_BY_NUMBER: the name of a slot contains the number of the trained variable, such as
  `slot_0_m`. Bridged optimizers of Keras 3 save such names.
* NUMBERED: the graph contains a list of all variables of the optimizer, with paths such as
  `_variables/7`. Keras 3's own optimizers and the new optimizer classes of Keras 2.11 to 2.15 save
  this list. It does not say to which trained variable a slot belongs. The parser applies the first
  rule that fits:

  1. The graph has a list of the trained variables, and a list of slots in the same order, such as
     `_momentums`. A slot belongs to the variable at the same position.
  2. The slot's name contains the name of a variable. The slot belongs to this variable.
  3. There are slots with equal names, one for each trained variable. They are assigned in the order
     of the trained variables.

  If no rule fits, the slot stays unassigned.
"""

from __future__ import annotations

import collections
import re
from typing import Any, Collection, Dict, List, NamedTuple, Optional, Tuple

from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import trackable_object_graph_pb2

from .tensor_names import OBJECT_GRAPH  # noqa: F401

SLOT_VARIABLES, NAMED_BY_NUMBER, NUMBERED = "slot variables", "named by number", "numbered"

_VALUE = "VARIABLE_VALUE"
_BRIDGED_SLOT = re.compile(r"slot_(\d+)_(.*)")
# A path costs time and memory: a small file may have a chain of objects, or optimizers that contain
# each other. Those of a model with 10,000 layers cost a tenth of this.
_WORK_OF_OBJECT, _MOST_WORK = 16, 50_000_000
_VARIABLES, _TRAINED, _STEP = "_variables", "_trainable_variables", "_iterations"


class SavedOptimizer(NamedTuple):
    """An optimizer in an object-based checkpoint."""

    path: str  # from the saved object to the optimizer, such as "optimizer"
    kind: str  # how the graph describes the slots: SLOT_VARIABLES, NAMED_BY_NUMBER or NUMBERED
    slots: Dict[Tuple[str, str], str]  # {(trained variable, name of the slot): checkpoint key}
    # {path in the optimizer: checkpoint key} of the other variables, such as hyperparameters.
    variables: Dict[str, str]
    unassigned: Dict[str, str]  # the same for the slots whose trained variable is unknown
    name: str = ""  # given by Keras 2, by default that of the class; "" if unknown


class ObjectGraph(NamedTuple):
    """The parsed object graph of a checkpoint."""

    # {full name: checkpoint key} of the variables, except variables of optimizers. The path of a
    # variable replaces a full name that is empty or not unique.
    variables: Dict[str, str]
    optimizers: Tuple[SavedOptimizer, ...]
    save_counter: Optional[str]  # the key of the counter that `tf.train.Checkpoint` adds
    python_states: Dict[str, str]  # {path: checkpoint key} of Python objects saved as strings

    @property
    def optimizer(self) -> Optional[SavedOptimizer]:
        """The only optimizer, or None. Several optimizers raise a ValueError."""
        if len(self.optimizers) > 1:
            paths = ", ".join(optimizer.path for optimizer in self.optimizers)
            raise ValueError(f"The checkpoint contains several optimizers: {paths}.")
        return self.optimizers[0] if self.optimizers else None


def parse_object_graph(serialized: bytes) -> ObjectGraph:
    """Returns the ObjectGraph in the bytes of `OBJECT_GRAPH`. Other bytes raise a ValueError."""
    try:
        proto = trackable_object_graph_pb2.TrackableObjectGraph.FromString(serialized)
        return _GraphParser(proto).parsed()
    except (DecodeError, IndexError, KeyError) as error:
        raise ValueError(str(error) or type(error).__name__) from error


class _SavedObject:
    """A node of the graph: its children, slots and keys, and its full name if it is a variable."""

    def __init__(self, proto: Any) -> None:
        self.children = {child.local_name: child.node_id for child in proto.children}
        self.slots = [
            (slot.original_variable_node_id, slot.slot_name, slot.slot_variable_node_id)
            for slot in proto.slot_variables
        ]
        self.keys = {each.name: each.checkpoint_key for each in proto.attributes}
        self.full_name = "".join(each.full_name for each in proto.attributes if each.name == _VALUE)

    @property
    def key(self) -> Optional[str]:
        """The checkpoint key of a variable; None for other objects."""
        return self.keys.get(_VALUE)

    @property
    def numbered(self) -> List[int]:
        """The node numbers of a list's items, in the order of the list."""
        numbers = sorted(int(name) for name in self.children if name.isdigit())
        return [self.children[str(number)] for number in numbers]


class _GraphParser:
    """Finds the optimizers in a graph, and separates their variables from all other variables."""

    def __init__(self, proto: Any) -> None:
        self._work = 0
        self._nodes = [_SavedObject(node) for node in proto.nodes]
        self._paths = self._paths_from(0)
        kinds = {number: self._kind(number) for number in range(len(self._nodes))}
        self._kinds = {number: kind for number, kind in kinds.items() if kind is not None}
        self._trained = {each for number in self._kinds for each in self._trained_by(number)}
        owned = {each for number in self._kinds for each in self._members(number)}
        self._model_variables = {
            number
            for number in self._paths
            if self._nodes[number].key and number not in owned - self._trained
        }
        self._counter = self._nodes[0].children.get("save_counter")
        self._model_variables.discard(self._counter)
        self._names = self._unique_names()

    def parsed(self) -> ObjectGraph:
        nodes = self._nodes
        nested = {
            each
            for number in self._kinds
            for each in self._members(number)
            if each != number and number not in self._members(each)
        }
        python_states = {
            path: key
            for number, path in self._paths.items()
            for name, key in nodes[number].keys.items()
            if name != _VALUE
        }
        variables = sorted(self._model_variables)
        return ObjectGraph(
            variables={self._names[each]: nodes[each].keys[_VALUE] for each in variables},
            optimizers=tuple(self._optimizer(each) for each in self._kinds if each not in nested),
            save_counter=None if self._counter is None else nodes[self._counter].key,
            python_states=python_states,
        )

    def _kind(self, number: int) -> Optional[str]:
        """Returns the `kind` of an optimizer; None if the node is not an optimizer."""
        node = self._nodes[number]
        if _VARIABLES in node.children and _STEP in node.children:
            return NUMBERED
        if "layout" in node.children and "iteration" in node.children:
            return NAMED_BY_NUMBER
        step = node.children.get("iter")
        if node.slots or (step is not None and self._nodes[step].full_name.endswith("/iter")):
            return SLOT_VARIABLES
        return None

    def _trained_by(self, number: int) -> List[int]:
        node = self._nodes[number]
        if _TRAINED in node.children:
            return self._nodes[node.children[_TRAINED]].numbered
        return [variable for variable, _, _ in node.slots]

    def _paths_from(self, start: int, stop: Collection[int] = ()) -> Dict[int, str]:
        """Returns a dict from reachable nodes to their shortest paths. No path enters `stop`."""
        paths, queue = {start: ""}, [start]
        for number in queue:
            for name, child in self._nodes[number].children.items():
                if child not in paths and child not in stop:
                    paths[child] = f"{paths[number]}/{name}" if paths[number] else name
                    self._work += _WORK_OF_OBJECT + len(paths[child])
                    if self._work > _MOST_WORK:
                        raise ValueError("its objects have more paths than those of a training")
                    queue.append(child)
        return paths

    def _members(self, number: int) -> Dict[int, str]:
        """Returns a dict from the nodes of an optimizer and of nested optimizers to their paths."""
        return self._paths_from(number, self._trained)

    def _unique_names(self) -> Dict[int, str]:
        names = {number: self._nodes[number].full_name for number in self._model_variables}
        counts = collections.Counter(names.values())
        return {
            number: name if name and counts[name] == 1 else self._paths[number]
            for number, name in names.items()
        }

    def _optimizer(self, number: int) -> SavedOptimizer:
        members = self._members(number)
        slots, places = {}, {}
        for inner in members:
            places.update(self._places(inner))
        for slot, (variable, name) in places.items():
            slots.setdefault((self._names[variable], name), []).append(slot)
        variables, unassigned = {}, {}
        for member, path in members.items():
            if self._nodes[member].key and member not in places:
                last = path.rsplit("/", 1)[-1]
                is_slot = last.isdigit() or _BRIDGED_SLOT.match(last)
                keys = unassigned if is_slot else variables
                keys[path] = self._nodes[member].key
        for key in [key for key, nodes in slots.items() if len(nodes) > 1]:
            for slot in slots.pop(key):  # several nodes fit this slot: assign none of them
                key = self._nodes[slot].key  # the path of a slot of a nested wrapper is unknown
                unassigned[members.get(slot, key)] = key
        return SavedOptimizer(
            path=self._paths[number],
            kind=self._kinds[number],
            slots={key: self._nodes[slot].key for key, (slot,) in slots.items()},
            variables=variables,
            unassigned=unassigned,
            name=self._scope_of_step(members),
        )

    def _scope_of_step(self, members: Collection[int]) -> str:
        """Returns the name "Adam" for an optimizer whose step is "Adam/iter"; "" for others."""
        full_names = [self._nodes[each].full_name for each in members]
        scopes = [each.split("/")[-2] for each in full_names if each.endswith("/iter")]
        return scopes[0] if scopes else ""

    def _places(self, number: int) -> Dict[int, Tuple[int, str]]:
        """Returns a dict from each slot's node to (node of the variable, name of the slot)."""
        kind = self._kinds.get(number)
        if kind == SLOT_VARIABLES:
            return {slot: (variable, name) for variable, name, slot in self._nodes[number].slots}
        if kind == NAMED_BY_NUMBER:
            return self._places_by_number(number)
        return self._places_in_lists(number) if kind == NUMBERED else {}

    def _places_by_number(self, number: int) -> Dict[int, Tuple[int, str]]:
        slots = collections.defaultdict(dict)  # {number: {name of the slot: node}}
        places = {}
        for local_name, child in self._nodes[number].children.items():
            match = _BRIDGED_SLOT.match(local_name)
            if match:
                slots[match.group(1)][match.group(2)] = child
        for group in slots.values():
            fitting = [
                variable
                for variable in self._model_variables
                if all(self._slot_name(slot, variable) == name for name, slot in group.items())
            ]
            if len(fitting) == 1:
                places.update((slot, (fitting[0], name)) for name, slot in group.items())
        return places

    def _places_in_lists(self, number: int) -> Dict[int, Tuple[int, str]]:
        """Applies the three rules for NUMBERED optimizers in the docstring of this module."""
        node = self._nodes[number]
        trained = self._trained_by(number)
        places, in_lists, namesakes = {}, {}, {}
        for name, child in node.children.items():
            if name not in (_VARIABLES, _TRAINED):
                for position, member in enumerate(self._nodes[child].numbered):
                    in_lists[member] = (name.strip("_"), position)
        known = set(node.children.values())
        for slot in self._nodes[node.children[_VARIABLES]].numbered:
            if slot in known:
                continue
            name, position = in_lists.get(slot, (None, len(trained)))  # None: in no list
            variables = trained[position : position + 1] or trained or sorted(self._model_variables)
            variable, slot_name = self._best_name(slot, variables)
            if slot_name is not None:
                places[slot] = (variable, slot_name)
            elif position < len(trained):
                places[slot] = (trained[position], name)
            else:
                namesakes.setdefault(self._local_name(slot), []).append(slot)
        for name, slots in namesakes.items():
            if len(slots) == len(trained) > 1:  # one per trained variable, in the same order
                places.update(zip(slots, [(variable, name) for variable in trained]))
        return places

    def _local_name(self, slot: int) -> str:
        """Returns a slot's full name without the name of its optimizer."""
        return self._nodes[slot].full_name.partition("/")[2]

    def _best_name(self, slot: int, variables: List[int]) -> Tuple[Optional[int], Optional[str]]:
        """Returns (variable, name of the slot); (None, None) if not exactly one variable fits."""
        by_length = collections.defaultdict(list)
        for variable in variables:
            name = self._slot_name(slot, variable)
            if name is not None:
                by_length[len(name)].append((variable, name))
        # The longest name of a variable leaves the shortest name for the slot.
        fitting = by_length[min(by_length)] if by_length else ()
        return fitting[0] if len(fitting) == 1 else (None, None)

    def _slot_name(self, slot: int, variable: int) -> Optional[str]:
        """Returns a slot's name without the variable's name, or None if it lacks this name."""
        local_name = self._local_name(slot)
        full_name = self._nodes[variable].full_name
        if not full_name:
            return None
        if local_name.endswith("/" + full_name):  # Keras 2.11 to 2.15
            return local_name[: -len(full_name) - 1]
        for start in (full_name + "_0_", full_name + "_"):  # "x_0_" for the tf.Variable "x:0"
            start = start.replace("/", "_")
            if local_name.startswith(start):
                return local_name[len(start) :]
        return None
