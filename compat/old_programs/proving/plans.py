"""Finds what a run call of a Session reaches in its graph: updates, inputs of the model, writes."""

from __future__ import annotations

import re
from typing import Any, Collection, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence

import tensorflow as tf

from legacy_opt.core.types import Operation, Tensor

from .updates import Updates

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

    updates: Sequence[int] = ()  # positions in the list of updates
    inputs: Sequence[Tensor] = ()  # what the caller feeds, and the results of sources
    variables: Collection[str] = ()  # the names of the operations of variables
    # By updates, and for -1 of all: the variables that something other than the update writes.
    written: Mapping[int, Collection[str]] = {-1: ()}
    loss: Optional[Tensor] = None
    problems: Sequence[str] = ()  # why a training with the same inputs may differ


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
            fetched = [graph.as_graph_element(each) for each in _flat(fetches)]
            fed = [
                graph.as_graph_element(each, allow_operation=False) for each in _flat(list(feeds))
            ]
        except (TypeError, ValueError, KeyError, RuntimeError):
            return Plan()
        names = frozenset(each.name for each in fetched), frozenset(each.name for each in fed)
        key = id(graph), len(self._updates), *names
        if key not in self._known:
            self._known[key] = self._plan(graph, fetched, fed)
        return self._known[key]

    def _plan(self, graph: tf.Graph, fetched: List[Any], fed: List[Tensor]) -> Plan:
        cut = {each.name for each in fed}
        reached = _upstream([getattr(each, "op", each) for each in fetched], cut)
        updates = {i: x for i, x in enumerate(self._updates) if x.operation in reached}
        inputs, problems = list(fed), []
        for each in sorted(reached, key=lambda each: each.name):
            if _CALL.match(each.type):
                problems.append(f"{each.name!r} calls functions, which may be random")
            elif _SOURCE.match(each.type) and not graph.is_fetchable(each):
                problems.append(f"{each.name!r} is in a condition or loop, and gives other inputs")
            elif _SOURCE.match(each.type):
                inputs += [x for x in _readable(each) if x.name not in cut and x.op in reached]
        losses = [
            *self._updates.losses,
            *(x for x in fetched if getattr(x, "shape", None) == () and x.dtype.is_floating),
        ]
        written = {i: _written(reached - _upstream([x.operation], cut)) for i, x in updates.items()}
        return Plan(
            updates=list(updates),
            inputs=inputs,
            variables={each.name for each in reached if _VARIABLE.match(each.type)},
            written={**written, -1: _written(reached)},
            # Other losses may need more feeds.
            loss=next((x for x in losses if x.op in reached and graph.is_fetchable(x)), None),
            problems=problems,
        )


def _written(operations: Iterable[Operation]) -> Collection[str]:
    """Returns the names of variables that operations write."""
    writes = [each for each in operations if _WRITE.search(each.type) and len(each.inputs)]
    return {each.inputs[0].op.name for each in writes}


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


def _upstream(operations: Iterable[Operation], cut: Collection[str]) -> set:
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
