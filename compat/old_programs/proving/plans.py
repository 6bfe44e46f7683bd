"""Finds what a run call of a Session reaches in its graph: updates, inputs of the model, writes."""

from __future__ import annotations

import re
from typing import Any, Collection, Dict, Iterable, List, Mapping, NamedTuple, Optional, Set, Tuple

import tensorflow as tf

from legacy_opt.core.types import Operation, Tensor

from .updates import Update, Updates

# Operations whose results differ from run to run: inputs, and random numbers.
_SOURCE = re.compile(
    "IteratorGetNext|OptionalGetValue|Queue(Many|UpTo)?Dequeue|QueueDequeue|ReaderRead|Unstage|"
    "(Eager)?PyFunc|Random|Multinomial|(Parameterized)?TruncatedNormal|\\w*CandidateSampler|"
    "Stateful(Random|TruncatedNormal|StandardNormal|Uniform)"
)
_VARIABLE = re.compile("Variable(V2)?$|VarHandleOp$")
_WRITE = re.compile("Assign|Apply|Scatter")
_CALL = re.compile("(Stateful)?PartitionedCall$|If$|While$")


class Plan(NamedTuple):
    """What a run call reaches."""

    updates: Mapping[int, Update] = {}  # by positions in the list of updates
    inputs: Collection[Tensor] = ()  # what the caller feeds, and the results of sources
    variables: Collection[str] = ()  # the names of the operations of variables
    # By updates, and for -1 of all: the variables that something other than the update writes.
    written: Mapping[int, Set[str]] = {-1: set()}
    loss: Optional[Tensor] = None
    problems: Tuple[str, ...] = ()  # why a training with the same inputs may differ


class Plans:
    """The plans of run calls; equal calls have the same plan."""

    def __init__(self, updates: Updates) -> None:
        self._updates = updates
        self._known: Dict[Any, Plan] = {}

    def of(self, graph: tf.Graph, fetches: Any, feeds: Iterable[Any]) -> Plan:
        """Returns the plan of a run call; it is empty if the Session will refuse the call."""
        if not self._updates:
            return Plan()
        try:
            fetched, fed = ([*map(graph.as_graph_element, _flat(x))] for x in (fetches, [*feeds]))
        except (TypeError, ValueError, KeyError, RuntimeError):
            return Plan()
        names = (frozenset(x.name for x in each) for each in (fetched, fed))
        key = id(graph), len(self._updates), *names
        if key not in self._known:
            self._known[key] = self._plan(graph, fetched, fed)
        return self._known[key]

    def _plan(self, graph: tf.Graph, fetched: List[Any], fed: List[Tensor]) -> Plan:
        cut = {each.name for each in fed}
        reached = upstream([getattr(each, "op", each) for each in fetched], cut)
        updates = {i: x for i, x in enumerate(self._updates) if x.operation in reached}
        inputs, problems = list(fed), []
        for each in sorted(reached, key=lambda each: each.name):
            if _CALL.match(each.type):
                problems.append(f"{each.name!r} calls functions, which may be random")
            elif _SOURCE.match(each.type) and not graph.is_fetchable(each):
                problems.append(f"{each.name!r} is in a condition or loop, and gives other inputs")
            elif _SOURCE.match(each.type):
                inputs += [x for x in _readable(each) if x.name not in cut and x.op in reached]
        losses = [x for x in fetched if getattr(x, "shape", None) == () and x.dtype.is_floating]
        # Other losses may need more feeds.
        losses = [x for x in self._updates.losses + losses if x.op in reached]
        others = {i: written(reached - upstream([x.operation], cut)) for i, x in updates.items()}
        return Plan(
            updates=updates,
            inputs=inputs,
            variables={each.name for each in reached if _VARIABLE.match(each.type)},
            written={**others, -1: written(reached)},
            loss=next(filter(graph.is_fetchable, losses), None),
            problems=tuple(problems),
        )


def written(operations: Iterable[Operation]) -> Set[str]:
    """Returns the names of variables that operations write."""
    writes = (each for each in operations if _WRITE.search(each.type))
    return {x.op.name for each in writes for x in [*each.inputs][:1]}


def read_variable(gradient: Any) -> str:
    """Returns the name of the variable whose value a gradient is; "" if it is computed.

    Such a gradient may be fetched when the variable has changed already.
    """
    operation = getattr(gradient, "values", gradient).op
    while re.match("(Ref)?Identity$|Read|Assign", operation.type) and len(operation.inputs):
        operation = operation.inputs[0].op
    return operation.name if _VARIABLE.match(operation.type) else ""


def _flat(structure: Any) -> List[Any]:
    """Returns the leaves of nested fetches; `tf.nest` cannot sort the keys of some dicts."""
    if isinstance(structure, Mapping):
        structure = list(structure.values())
    if isinstance(structure, (list, tuple)):
        return [leaf for each in structure for leaf in _flat(each)]
    leaves = tf.nest.flatten(structure, expand_composites=True)
    return [each for each in leaves if each is not None]


def upstream(operations: Iterable[Operation], cut: Collection[str] = ()) -> set:
    """Returns operations and all that they depend on, but not what only sources depend on."""
    found, waiting = set(), list(operations)
    while waiting:
        each = waiting.pop()
        if each not in found:
            found.add(each)
            if not _SOURCE.match(each.type):
                waiting += [x.op for x in each.inputs if x.name not in cut]
            waiting += each.control_inputs
    return found


def _readable(operation: Operation) -> Iterable[Tensor]:
    """Yields the results of a source; variants become the tensors that are made of them."""
    for tensor in operation.outputs:
        if tensor.dtype not in (tf.variant, tf.resource):
            yield tensor
        elif tensor.dtype == tf.variant:
            for consumer in tensor.consumers():
                yield from _readable(consumer)
