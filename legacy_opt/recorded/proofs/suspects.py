"""Edits of rules that are likely causes: what other implementations compute differently."""

from __future__ import annotations

import itertools
from typing import Any, Callable, Dict, Iterator, List, Mapping, Sequence, Tuple

from legacy_opt.programs.operations import FLOATS
from legacy_opt.programs.program import GRADIENT, NUMBER, SCALAR, TENSOR, Input, Program
from legacy_opt.recorded.formulas import Graph, Value
from legacy_opt.recorded.proofs.drawing import RATES
from legacy_opt.recorded.proofs.edits import FACTORS, VARIABLE, Edit, Rewrite, edits_of
from legacy_opt.recorded.proofs.plain import STEP, shown
from legacy_opt.recorded.proofs.proof import Proof
from legacy_opt.recorded.records import Record

Rewrites = Iterator[List[Rewrite]]
_DECAYS = ("weight_decay", "weight_decay_rate", "l2")
_EPSILONS = (1e-6, 1e-7, 1e-8, 1e-10)
_OTHERS = {"Abs": "Square", "Square": "Abs"}
_VERBS = {"Add": "is added to", "Mul": "multiplies", "RealDiv": "divides"}


def suspects(
    proof: Proof, record: Record, constants: Sequence[float], kinds: Sequence[str] = ()
) -> Iterator[Edit]:
    """Yields edits of a rule in the plain form.

    Args:
      proof: the proof.
      record: the rule.
      constants: numbers that the implementation knows, such as defaults of its arguments.
      kinds: the kinds of edits of programs; by default, all.
    """

    def further(program: Program) -> Rewrites:
        rule = _Rule(program, record, constants)
        for rewrites in (_bias, _decays, _factors, _moves, _operands):
            yield from rewrites(rule)

    yield from edits_of(proof, record, further, kinds, sorted({0.0, 0.1, 1.0, *constants}))
    yield from _of_hyperparameters(proof, record, constants)


class _Rule:
    """A program, and its parts by what they do."""

    def __init__(self, program: Program, record: Record, constants: Sequence[float]) -> None:
        self.program, self.nodes, self.constants = program, program.nodes, constants
        self.names = [name for name, x in record.hyperparameters.items() if x.dtype in FLOATS]
        self.rate = next((name for name in RATES if name in self.names), None)
        self.slots = {each.node: name for name, each in program.changes.items()}
        self.needed: List[Any] = []  # for each node, the positions of all that it is computed from
        self.users: List[List[int]] = [[] for _ in self.nodes]
        for i, node in enumerate(self.nodes):
            self.needed.append({i}.union(*(self.needed[x] for x in node.inputs)))
            for x in {*node.inputs}:
                self.users[x].append(i)
        self.gradient = [i for i, x in enumerate(self.nodes) if x.detail == (TENSOR, GRADIENT)]

    def inputs(self, name: str) -> List[int]:
        """Returns the positions of a scalar."""
        return [i for i, node in enumerate(self.nodes) if node.detail == (NUMBER, name)]

    def shown(self, position: int) -> str:
        return self.slots.get(position) or shown(self.program, position)

    def places(self) -> Iterator[Tuple[int, Any]]:
        """Yields the tensors that are read, with one user; or with all of them."""
        for i, node in enumerate(self.nodes):
            if node.level != SCALAR and node.dtype in FLOATS:
                users: List[Any] = [x for x in self.users[i] if self.nodes[x].dtype in FLOATS]
                others = [self.slots[i], None] if i in self.slots else [None] * (len(users) > 1)
                yield from ((i, user) for user in (*users, *others))


def _bias(rule: _Rule) -> Rewrites:
    """The bias of moments is not corrected."""
    steps = {*rule.inputs(STEP)}
    powers = [
        i
        for i, node in enumerate(rule.nodes)
        if node.operation == "Pow" and steps & rule.needed[node.inputs[1]]
    ]
    for each in [powers, *([i] for i in powers)] if powers else []:
        names = ", ".join(f"1 - {rule.shown(i)}" for i in each)
        text = f"no bias correction: without {names}"
        yield [Rewrite("bias", i, 0.0, text=text) for i in each]


def _decays(rule: _Rule) -> Rewrites:
    """Weights decay in another way: by a hyperparameter, or by a constant."""
    value, names = rule.program.value, [name for name in _DECAYS if name in rule.names]
    for rate in (*names, *(each for each in rule.constants if 0 < each < 1)):
        ways: List[Any] = [
            ("added to the gradient (L2), not decoupled", g, ("Add", g, ("Mul", rate, VARIABLE)))
            for g in rule.gradient
        ]
        for times in (None, rule.rate):
            factor = ("Mul", rate, times) if times else rate
            of_rate = f", multiplied by {times}" if times else ""
            for what, name in ((VARIABLE, "old"), (value, "new")):
                text = f"decoupled: subtracted from the {name} variable{of_rate}"
                ways.append((text, value, ("Sub", value, ("Mul", factor, what))))
        for text, at, new in ways:
            instead = Rewrite("decay", at, new, text=f"weight decay by {rate} is {text}")
            yield [instead, *(Rewrite("", i, 0.0) for i in rule.inputs(f"{rate}"))]


def _factors(rule: _Rule) -> Rewrites:
    """A small number is added to a root or a divisor; the gradient is multiplied."""
    nodes = rule.nodes
    places = {node.inputs[1] for node in nodes if node.operation == "RealDiv"}
    for i, node in enumerate(nodes):
        places |= {i, *node.inputs} if node.operation == "Sqrt" else set()
    for i in sorted(x for x in places if nodes[x].level != SCALAR):
        for small in {*_EPSILONS, *(each for each in rule.constants if 0 < each < 0.5)}:
            text = f"{small:.7g} is added to {rule.shown(i)}"
            yield [Rewrite("added", i, ("Add", i, small), rule.slots.get(i), text=text)]
    factors: Dict[str, Any] = {f"(1 - {name})": ("Sub", 1.0, name) for name in rule.names}
    numbers = {*rule.constants, *(1 - each for each in rule.constants if 0 < each < 1)} - {0.0, 1.0}
    factors.update({f"{each:.7g}": each for each in numbers})
    for g, name in itertools.product(rule.gradient, factors):
        new = ("Mul", g, factors[name])
        yield [Rewrite("factor", g, new)]
        text = f"from the second step on, the gradient is multiplied by {name} (dampening)"
        yield [Rewrite("factor", g, ("Select", ("Equal", STEP, 1.0), g, new), text=text)]


def _moves(rule: _Rule) -> Rewrites:
    """An operation with a scalar is done at another place."""
    nodes = rule.nodes
    for a, node in enumerate(nodes):
        for k, s in enumerate(node.inputs if node.operation in _VERBS else ()):
            x, scalar = node.inputs[1 - k], nodes[s]
            is_divisor = node.operation != "RealDiv" or k == 1
            if scalar.level != SCALAR or scalar.operation == "Const" or not is_divisor:
                continue
            operations: List[str] = [node.operation]
            scalars: List[Any] = [(s, {})]
            if not rule.needed[s].isdisjoint(rule.inputs(STEP)):  # a correction of a bias
                operations = ["Mul", "RealDiv"]
                if scalar.operation == "Sqrt":
                    scalars.append((scalar.inputs[0], {}))  # the place is in a root
                elif any(nodes[i].operation == "Sqrt" for i in rule.users[a]):
                    scalars.append(("Sqrt", (s, {})))
            for y, user in rule.places():
                if y != a and (y, user) != (x, a):
                    for operation, each in itertools.product(operations, scalars):
                        text = _text_of_move(rule, a, x, s, y, user, operation, each)
                        new = (operation, y, each)
                        yield [Rewrite("move", y, new, user, text=text), Rewrite("", a, x)]
    if rule.rate:
        value = rule.program.value
        update = ("Mul", rule.rate, ("Sub", value, VARIABLE))
        text = f"{rule.rate} multiplies the whole update, and nothing that a slot keeps"
        removed = [Rewrite("", i, 1.0) for i in rule.inputs(rule.rate)]
        yield [Rewrite("move", value, ("Add", VARIABLE, update), text=text), *removed]


def _text_of_move(
    rule: _Rule, a: int, x: int, s: int, y: int, user: Any, operation: str, scalar: Any
) -> str:
    nodes, named = rule.nodes, rule.shown(s)
    where = f" in {shown(rule.program, user)}" if isinstance(user, int) else ""
    old = f"{_VERBS[nodes[a].operation]} {rule.shown(x)}"
    new = rule.shown(scalar[0]) if isinstance(scalar[0], int) else f"sqrt({named})"
    text = f"{new} {_VERBS[operation]} {rule.shown(y)}{where}; by the rule, {named} {old}"
    for i, node in enumerate(nodes if "** t" in named else ()):
        added = [rule.shown(each) for each in node.inputs if nodes[each].level == SCALAR]
        if node.operation == "Add" and added:
            is_before = y in rule.needed[i] and user != rule.slots.get(y)
            if is_before != (a in rule.needed[i]):
                when, whose = ("after", "PyTorch") if is_before else ("before", "TensorFlow 1")
                text = f"{added[0]} is added {when} the bias correction, as in {whose}: {text}"
    return text


def _operands(rule: _Rule) -> Rewrites:
    """Another tensor is read, or another operation is computed."""
    tensors = [
        i
        for i, node in enumerate(rule.nodes)
        if i in rule.slots or node.operation == "Input" and node.level != SCALAR
    ]
    for i, node in enumerate(rule.nodes):
        for x in [x for x in tensors if x in node.inputs]:
            for operation in ("Sign", "Abs", "Square", "Sqrt"):
                yield [Rewrite("operation", x, (operation, x), i)]
            for y in tensors:
                if y != x and i not in rule.needed[y]:
                    yield [Rewrite("operand", x, (y, {}), i)]
                    yield [Rewrite("operand", x, ("Sub", x, (y, {})), i)]
        if node.operation in _OTHERS:
            yield [Rewrite("operation", i, (_OTHERS[node.operation], *node.inputs))]


def _of_hyperparameters(proof: Proof, record: Record, constants: Sequence[float]) -> Iterator[Edit]:
    """Yields rules that read another value, or another hyperparameter."""
    names = [name for name, each in record.hyperparameters.items() if each.dtype in FLOATS]
    for name in names:
        values = {each[name] for each in proof.hyperparameters}
        for each in {0.0, 1.0, *constants, record.hyperparameters[name].value} - {None}:
            if values != {each}:
                new = _with_scalars(record, {name: lambda old, x=each: x})
                yield Edit("unused", f"{name} is not used: it is always {each:.7g}", new)
        for factor in FACTORS:
            new = _with_scalars(record, {name: lambda old, x=name, y=factor: old[x] * y})
            yield Edit("scale", f"{name} is multiplied by {factor:g}", new)
        for other in names:
            one = {name: lambda old, x=other: old[x]}
            both = {**one, other: lambda old, x=name: old[x]}
            if other != name:
                text = f"{name} is not used: {other} is read in its place"
                yield Edit("unused", text, _with_scalars(record, one))
            if other < name:
                yield Edit(
                    "swapped", f"{other} and {name} are swapped", _with_scalars(record, both)
                )
        if len(values) > 1:
            first = Input(f"first {name}", SCALAR, record.dtype)
            new = record._replace(
                shared={**record.shared, first.name: record.hyperparameters[name]},
                initial={**record.initial, first.name: name},
            )
            new = _with_scalars(new, {name: lambda old, x=name, y=first: old[x].graph.input(y)})
            yield Edit("first", f"{name} stays at its first value", new)


def _with_scalars(record: Record, made: Mapping[str, Callable[[Any], Any]]) -> Record:
    """Returns a rule whose programs read other values of some scalars; see `Record.before`."""
    graph = Graph("float64", record.before.nodes)
    old = {name: Value(graph, i) for name, i in record.before.results.items()}
    new = {name: graph.value(make(old)) for name, make in made.items()}
    return record._replace(before=graph.function({**old, **new}))
