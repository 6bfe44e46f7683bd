"""Watches the optimizers of a script, and finds what a run call of a Session reaches.

Optimizers call each other: a subclass calls `apply_gradients` of its base class, a wrapper that of
the optimizer inside it. The innermost call counts, because it gets the gradients as they are
applied. Within a condition or loop, tensors cannot be fetched: then the call around it counts.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import re
from typing import Any, Callable, Collection, Dict, Iterable, List, Mapping, NamedTuple, Set, Tuple

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core.types import GradAndVar, Operation, Tensor, V1Optimizer

# Operations whose results differ from run to run: inputs, and random numbers.
_SOURCE = re.compile(
    "IteratorGetNext|OptionalGetValue|Queue(Many|UpTo)?Dequeue|QueueDequeue|ReaderRead|Unstage|"
    "(Eager)?PyFunc|Random|Multinomial|(Parameterized)?TruncatedNormal|\\w*CandidateSampler|"
    "Stateful(Random|TruncatedNormal|StandardNormal|Uniform)"
)
_VARIABLE = re.compile("Variable(V2)?$|VarHandleOp$")
_WRITE = re.compile("Assign|Apply|Scatter")
_CALL = re.compile("(Stateful)?PartitionedCall$|If$|While$")


class Update(NamedTuple):
    """A call of `apply_gradients`."""

    optimizer: V1Optimizer  # a copy, with the attributes that it had in the training step
    pairs: List[GradAndVar]  # without those that have no gradient
    operation: Operation
    global_step: Any  # the variable that the optimizer reads, else the one that it increments


class Plan(NamedTuple):
    """What a run call reaches."""

    updates: Mapping[int, Update] = {}  # by positions in the list of updates
    inputs: Collection[Tensor] = ()  # what the caller feeds, and the results of sources
    variables: Collection[str] = ()  # the names of the operations of variables
    # By updates, and for -1 of all: the variables that something other than the update writes.
    written: Mapping[int, Set[str]] = {-1: set()}
    losses: Tuple[Tensor, ...] = ()  # the first one, if there is one
    problems: Tuple[str, ...] = ()  # why a training with the same inputs may differ


class Updates(List[Update]):
    """The updates of a script, in the order of the calls; `say` is called with problems."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__()
        self.losses: List[Tensor] = []  # of which gradients were computed
        self._say, self._depth = say, 0
        self._plans: Dict[Any, Plan] = {}  # equal calls have the same plan

    def watch(self, stack: contextlib.ExitStack) -> None:
        """Watches all optimizers that are made until the stack is closed."""

        def init(method: Any, optimizer: Any, *args: Any, **kwargs: Any) -> None:
            for cls in type(optimizer).__mro__:
                replace(stack, cls, apply_gradients=self._apply, compute_gradients=self._compute)
            method(optimizer, *args, **kwargs)

        replace(stack, V1Optimizer, __init__=init)

    def _compute(self, method: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        self.losses += [x for x in (*args[:1], kwargs.get("loss")) if isinstance(x, tf.Tensor)]
        return method(optimizer, *args, **kwargs)

    def _apply(
        self, method: Any, optimizer: Any, grads_and_vars: Any, *args: Any, **kwargs: Any
    ) -> Any:
        pairs = list(grads_and_vars)  # it may be an iterator
        count, self._depth = len(self), self._depth + 1
        try:
            result = method(optimizer, pairs, *args, **kwargs)
        finally:
            self._depth -= 1
        problem = _problem(result)
        if len(self) == count and not problem:  # else a call inside counts
            step = args[0] if args else kwargs.get("global_step")
            if getattr(optimizer, "uses_global_step", False):
                step = optimizer.global_step_variable()
            step = getattr(optimizer, "_global_step", None) if step is None else step
            pairs = [(grad, variable) for grad, variable in pairs if grad is not None]
            self.append(Update(copy.copy(optimizer), pairs, getattr(result, "op", result), step))
        elif len(self) == count and not self._depth:
            self._say(f"{type(optimizer).__name__} is not recorded: {problem}")
        return result

    def plan_of(self, graph: tf.Graph, fetches: Any, feeds: Iterable[Any]) -> Plan:
        """Returns the plan of a run call; it is empty if the Session will refuse the call."""
        if not self:
            return Plan()
        try:
            fetched, fed = ([*map(graph.as_graph_element, _flat(x))] for x in (fetches, [*feeds]))
        except (TypeError, ValueError, KeyError, RuntimeError):
            return Plan()
        names = (frozenset(x.name for x in each) for each in (fetched, fed))
        key = id(graph), len(self), *names
        if key not in self._plans:
            self._plans[key] = self._plan(graph, fetched, fed)
        return self._plans[key]

    def _plan(self, graph: tf.Graph, fetched: List[Any], fed: List[Tensor]) -> Plan:
        cut = {each.name for each in fed}
        reached = upstream([getattr(each, "op", each) for each in fetched], cut)
        updates = {i: x for i, x in enumerate(self) if x.operation in reached}
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
        losses = [x for x in self.losses + losses if x.op in reached]
        others = {i: written(reached - upstream([x.operation], cut)) for i, x in updates.items()}
        return Plan(
            updates=updates,
            inputs=inputs,
            variables={each.name for each in reached if _VARIABLE.match(each.type)},
            written={**others, -1: written(reached)},
            losses=tuple(filter(graph.is_fetchable, losses))[:1],
            problems=tuple(problems),
        )


def _problem(result: Any) -> str:
    """Returns why an update cannot be recorded; "" if it can."""
    if tf.executing_eagerly():
        return "it trains eagerly, and not in a Session"
    if versions.building() != "graph":
        return "its update is inside of a condition, a loop or a function"
    if tf.distribute.has_strategy():
        return "it trains with a distribution strategy"
    if not hasattr(result, "op") and not isinstance(result, tf.Operation):
        return f"its apply_gradients returns {type(result).__name__}, and no operation"
    return ""


def replace(stack: contextlib.ExitStack, cls: Any, **functions: Callable[..., Any]) -> None:
    """Replaces methods of a class until the stack is closed. Functions get the method first."""
    for name, function in functions.items():
        method = vars(cls).get(name)
        if callable(method) and not hasattr(method, "is_replaced"):
            replaced = functools.wraps(method)(_with_method(function, method))
            replaced.is_replaced = True
            setattr(cls, name, replaced)
            stack.callback(setattr, cls, name, method)


def _with_method(function: Any, method: Any) -> Any:
    return lambda self, *args, **kwargs: function(method, self, *args, **kwargs)


def written(operations: Iterable[Operation]) -> Set[str]:
    """Returns the names of variables that operations write."""
    writes = (each for each in operations if _WRITE.search(each.type))
    return {x.op.name for each in writes for x in [*each.inputs][:1]}


def read_variable(tensor: Any, of_refs: bool = False) -> str:
    """Returns the name of the variable whose value a tensor is; "" if it is computed.

    Such a tensor may be fetched when the variable has changed already. `of_refs`: only of variables
    without a resource, whose memory the tensor shares.
    """
    operation = getattr(tensor, "values", tensor).op
    while re.match("(Ref)?Identity$|Read|Assign", operation.type) and len(operation.inputs):
        operation = operation.inputs[0].op
    kinds = re.compile("Variable(V2)?$") if of_refs else _VARIABLE
    return operation.name if kinds.match(operation.type) else ""


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
