"""Edits of rules that are likely causes: what other implementations compute differently."""

from __future__ import annotations

import itertools
from typing import (
    Any,
    Callable,
    Collection,
    Dict,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
    Set,
    Tuple,
)

from legacy_opt.programs.operations import FLOATS
from legacy_opt.programs.program import (
    GRADIENT,
    NUMBER,
    SCALAR,
    TENSOR,
    Input,
    Program,
)
from legacy_opt.recorded.formulas import Graph, Value, cast
from legacy_opt.recorded.proofs.drawing import RATES
from legacy_opt.recorded.proofs.edits import VARIABLE, Edit, Rewrite, edits_of
from legacy_opt.recorded.proofs.plain import STEP, shown, without
from legacy_opt.recorded.proofs.proof import Proof
from legacy_opt.recorded.records import Record

Rewrites = Iterator[List[Rewrite]]
_DECAYS = ("weight_decay", "weight_decay_rate", "l2")
_USUAL_DECAYS = (0.1, 1e-2, 1e-3, 5e-4, 1e-4)
_EPSILONS = (1e-6, 1e-7, 1e-8, 1e-10, 1e-12)
_VERBS = {"Add": "is added to", "Mul": "multiplies", "RealDiv": "divides"}
_OTHERS = {
    "Abs": ["Square"],
    "Add": ["Maximum", "Sub"],
    "Maximum": ["Add", "Minimum"],
    "Minimum": ["Maximum"],
    "Mul": ["RealDiv"],
    "RealDiv": ["Mul"],
    "Square": ["Abs"],
    "Sub": ["Add"],
}


def suspects(
    proof: Proof,
    record: Record,
    constants: Sequence[float] = (),
    kinds: Optional[Collection[str]] = None,
) -> Iterator[Edit]:
    """Yields edits of a rule in the plain form.

    Args:
      proof: the proof.
      record: the rule, of float64.
      constants: numbers that the implementation knows, such as defaults of its arguments.
      kinds: the kinds of edits of programs; by default, all.
    """
    generators = _roots, _bias, _first_step, _decays, _clips, _factors, _moves, _operands

    def further(program: Program, record: Record) -> Rewrites:
        rule = _Rule(program, record, constants)
        for each in generators:
            yield from each(rule)

    yield from edits_of(proof, record, further, kinds)
    yield from _of_hyperparameters(proof, record, constants)
    for name, old, dtype in record.starts:
        for start in (0.1, *constants):
            if dtype in FLOATS and start != old:
                new = record.with_starts({name: start})
                new = new._replace(initial=without(record.initial, [name]))
                yield Edit("start", f"{name} starts at {start:.7g}", new)


class _Rule:
    """A program, and its parts by what they do."""

    def __init__(self, program: Program, record: Record, constants: Sequence[float]) -> None:
        self.program, self.nodes, self.constants = program, program.nodes, constants
        hyper = record.hyperparameters
        self.names = [name for name, each in hyper.items() if each.dtype in FLOATS]
        self.rate = next((name for name in RATES if name in hyper), None)
        self.slots = {each.node: name for name, each in program.changes.items()}
        self.needed: List[Set[int]] = []  # for each node, all that it is computed from
        self.users: Dict[int, List[int]] = {}
        for i, node in enumerate(self.nodes):
            self.needed.append({i}.union(*(self.needed[x] for x in node.inputs)))
            for x in dict.fromkeys(node.inputs):
                self.users.setdefault(x, []).append(i)
        self.tensors = [
            i
            for i, node in enumerate(self.nodes)
            if node.level != SCALAR and (node.operation == "Input" or i in self.slots)
        ]
        self.gradient = [i for i in self.tensors if self.nodes[i].detail == (TENSOR, GRADIENT)]

    def inputs(self, name: str) -> List[int]:
        """Returns the positions of a scalar."""
        return [i for i, node in enumerate(self.nodes) if node.detail == (NUMBER, name)]

    def shown(self, position: int) -> str:
        return self.slots.get(position) or shown(self.program, position)

    def places(self) -> Iterator[Tuple[int, Any]]:
        """Yields the tensors that are read, with one user; or with all of them."""
        for i, node in enumerate(self.nodes):
            if node.level != SCALAR and node.dtype in FLOATS:
                users = [x for x in self.users.get(i, ()) if self.nodes[x].dtype in FLOATS]
                yield from ((i, user) for user in users)
                if i in self.slots:
                    yield i, self.slots[i]
                if len(users) > 1 or i in self.slots:
                    yield i, None


def _roots(rule: _Rule) -> Rewrites:
    """A scalar moves into a root or out of it, and becomes its square or root."""
    for i, node in enumerate(rule.nodes):
        for x in node.inputs:
            inner = rule.nodes[x]
            if node.operation == "Sqrt" and inner.operation in ("Add", "Mul", "RealDiv"):
                for y, s in (inner.inputs, inner.inputs[::-1]):
                    if rule.nodes[s].level == SCALAR:
                        yield [Rewrite("root", i, (inner.operation, ("Sqrt", y), ("Sqrt", s)))]
            if inner.operation == "Sqrt" and node.operation in ("Add", "Mul"):
                (s,) = [each for each in node.inputs if each != x] or [x]
                if rule.nodes[s].level == SCALAR:
                    inside = (node.operation, inner.inputs[0], ("Square", s))
                    yield [Rewrite("root", i, ("Sqrt", inside))]


def _bias(rule: _Rule) -> Rewrites:
    """The bias of moments is not corrected."""
    powers = [
        i
        for i, node in enumerate(rule.nodes)
        if node.operation == "Pow" and {*rule.inputs(STEP)} & rule.needed[node.inputs[1]]
    ]
    for each in [powers, *([i] for i in powers)] if powers else []:
        names = ", ".join(f"1 - {rule.shown(i)}" for i in each)
        text = f"no bias correction: without {names}"
        yield [Rewrite("bias", i, 0.0, text=text) for i in each]


def _first_step(rule: _Rule) -> Rewrites:
    """In the first step, a slot gets the gradient."""
    for i, name in rule.slots.items():
        for g in rule.gradient:
            firsts = {
                "gradient": g,
                "gradient's square": ("Square", g),
                "gradient's size": ("Abs", g),
            }
            for word, new in firsts.items():
                text = f"in the first step, {name} is the {word}"
                yield [Rewrite("first", i, ("Select", ("Equal", STEP, 1.0), new, i), text=text)]


def _decays(rule: _Rule) -> Rewrites:
    """Weights decay in another way: by a hyperparameter, or by a constant."""
    value, names = rule.program.value, [name for name in _DECAYS if name in rule.names]
    known = (*names, *(each for each in rule.constants if 0 < each < 1))
    for rate in (*known, *_USUAL_DECAYS):
        kind = "decay" if rate in known else "usual decay"
        removed = [Rewrite("", i, 0.0) for i in rule.inputs(f"{rate}")]
        instead = f"weight decay by {rate}"
        for g in rule.gradient:
            for user in (None, *rule.users[g]):
                where = "" if user is None else f" in {shown(rule.program, user)}"
                text = f"{instead} is added to the gradient{where} (L2), not decoupled"
                new = ("Add", g, ("Mul", rate, VARIABLE))
                yield [Rewrite(kind, g, new, user, text=text), *removed]
        for times in (None, rule.rate):
            factor = ("Mul", rate, times) if times else rate
            of_rate = "" if times is None else f", multiplied by {times}"
            for what, text in ((VARIABLE, "the old variable"), (value, "the new variable")):
                text = f"{instead} is decoupled: subtracted from {text}{of_rate}"
                new = ("Sub", value, ("Mul", factor, what))
                yield [Rewrite(kind, value, new, text=text), *removed]


def _clips(rule: _Rule) -> Rewrites:
    """Values are clipped, the gradient by its norm, too; or a small number is added to a root."""
    nodes = rule.nodes
    roots = [i for i, node in enumerate(nodes) if node.operation == "Sqrt"]
    roots += [nodes[i].inputs[0] for i in roots]
    roots += [node.inputs[1] for node in nodes if node.operation == "RealDiv"]
    for i in sorted({x for x in roots if nodes[x].level != SCALAR}):
        for small in {*_EPSILONS, *(each for each in rule.constants if 0 < each < 0.5)}:
            text = f"{small:.7g} is added to {rule.shown(i)}"
            yield [Rewrite("added", i, ("Add", i, small), rule.slots.get(i), text=text)]
    for limit in {1.0, *(each for each in rule.constants if each > 0)}:
        for i, node in enumerate(nodes):
            is_used = node.dtype in FLOATS and i != rule.program.value
            if is_used and (node.inputs or i in rule.gradient):
                for operation, word in (("Minimum", "most"), ("Maximum", "least")):
                    text = f"{rule.shown(i)} is at {word} {limit:.7g}"
                    yield [Rewrite("clip", i, (operation, i, limit), text=text)]
        for g in rule.gradient:
            text = f"the gradient is clipped to [-{limit:.7g}, {limit:.7g}]"
            yield [Rewrite("clip", g, ("ClipByValue", g, -limit, limit), text=text)]
            norm = ("Sqrt", ("Sum", ("Square", g)))
            text = f"the gradient is clipped by its norm to {limit:.7g}"
            new = ("Mul", g, ("Minimum", 1.0, ("RealDiv", limit, norm)))
            yield [Rewrite("clip", g, new, text=text)]


def _factors(rule: _Rule) -> Rewrites:
    """Tensors are multiplied or divided by hyperparameters and constants."""
    factors = [(("Mul", each), each) for each in rule.names]
    factors += [(("Mul", ("Sub", 1.0, each)), f"(1 - {each})") for each in rule.names]
    factors += [(("RealDiv", each), f"1 / {each}") for each in rule.names]
    factors += [(("Mul", each), each) for each in rule.constants if each not in (0, 1)]
    factors += [(("Mul", 1 - each), f"{1 - each:.7g}") for each in rule.constants if 0 < each < 1]
    for i, user in rule.places():
        is_read = i in rule.tensors and rule.nodes[i].detail != VARIABLE.key
        for (operation, factor), name in factors if is_read or user is None else ():
            new = (operation, i, factor)
            yield [Rewrite("factor", i, new, user)]
            if i in rule.gradient and operation == "Mul":
                text = f"from the second step on, the gradient is multiplied by {name} (dampening)"
                new = ("Select", ("Equal", STEP, 1.0), i, new)
                yield [Rewrite("factor", i, new, user, text=text)]
    for name in rule.names:
        for i in rule.inputs(name):
            yield [Rewrite("factor", i, ("Square", i))]
            yield [Rewrite("factor", i, ("Sqrt", i))]


def _moves(rule: _Rule) -> Rewrites:
    """An operation with a scalar is done at another place."""
    nodes = rule.nodes
    for a, node in enumerate(nodes):
        for k, s in enumerate(node.inputs if node.operation in _VERBS else ()):
            x, scalar = node.inputs[1 - k], nodes[s]
            is_divisor = node.operation != "RealDiv" or k == 1
            if scalar.level != SCALAR or scalar.operation == "Const" or not is_divisor:
                continue
            is_correction = not rule.needed[s].isdisjoint(rule.inputs(STEP))
            operations = ["Mul", "RealDiv"] if is_correction else [node.operation]
            scalars: List[Any] = [(s, {})]
            if is_correction and scalar.operation == "Sqrt":
                scalars.append((scalar.inputs[0], {}))  # the place is in a root
            elif is_correction and any(nodes[i].operation == "Sqrt" for i in rule.users.get(a, ())):
                scalars.append(("Sqrt", (s, {})))
            for y, user in rule.places():
                if y != a and (y, user) != (x, a):
                    for each in itertools.product(operations, scalars):
                        yield _moved(rule, a, x, s, y, user, *each)
    if rule.rate:
        value = rule.program.value
        update = ("Mul", rule.rate, ("Sub", value, VARIABLE))
        text = f"{rule.rate} multiplies the whole update, and nothing that a slot keeps"
        removed = [Rewrite("", i, 1.0) for i in rule.inputs(rule.rate)]
        yield [Rewrite("move", value, ("Add", VARIABLE, update), text=text), *removed]


def _moved(
    rule: _Rule, a: int, x: int, s: int, y: int, user: Any, operation: str, scalar: Any
) -> List[Rewrite]:
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
                when = "after" if is_before else "before"
                whose = "PyTorch" if is_before else "TensorFlow 1"
                text = f"{added[0]} is added {when} the bias correction, as in {whose}: {text}"
    return [Rewrite("move", y, (operation, y, scalar), user, text=text), Rewrite("", a, x)]


def _operands(rule: _Rule) -> Rewrites:
    """Another tensor or hyperparameter is read, or another operation is computed."""
    for i, node in enumerate(rule.nodes):
        for operation in _OTHERS.get(node.operation, ()):
            yield [Rewrite("operation", i, (operation, *node.inputs))]
        for x in dict.fromkeys(node.inputs):
            for y in rule.tensors if x in rule.tensors else ():
                if y != x and i not in rule.needed[y]:
                    yield [Rewrite("operand", x, (y, {}), i)]
                    yield [Rewrite("operand", x, ("Sub", x, (y, {})), i)]
            for operation in ("Sign", "Abs", "Square", "Sqrt") if x in rule.tensors else ():
                yield [Rewrite("operation", x, (operation, x), i)]
            if rule.nodes[x].detail in [(NUMBER, name) for name in rule.names]:
                yield from ([Rewrite("operand", x, name, i)] for name in rule.names)


def _of_hyperparameters(proof: Proof, record: Record, constants: Sequence[float]) -> Iterator[Edit]:
    names = [name for name, each in record.hyperparameters.items() if each.dtype in FLOATS]
    values = {name: {each[name] for each in proof.hyperparameters} for name in names}
    for i, name in enumerate(names):
        for other in names:
            if other != name:
                text = f"{name} is not used: {other} is read in its place"
                new = with_scalars(record, {name: lambda old, other=other: old[other]})
                yield Edit("unused", text, new)
        for other in names[:i]:
            text = f"{other} and {name} are swapped"
            swap = {name: lambda old, x=other: old[x], other: lambda old, x=name: old[x]}
            yield Edit("swapped", text, with_scalars(record, swap))
        default = record.hyperparameters[name].value
        for each in {0.0, 1.0, *constants} | ({default} if default is not None else set()):
            if values[name] != {each}:
                text = f"{name} is not used: it is always {each:.7g}"
                yield Edit("unused", text, with_constant(record, name, each))
        if len(values[name]) > 1:
            for is_late in (False, True):
                yield _late(record, name, is_late)
    rounded: Any = {name: lambda old, name=name: cast(cast(old[name], "float32")) for name in names}
    yield Edit("rounded", "hyperparameters are rounded to float32", with_scalars(record, rounded))


def with_constant(record: Record, name: str, value: float, is_factor: bool = False) -> Record:
    """Returns a rule in which a hyperparameter has a constant value, or a factor."""
    return with_scalars(record, {name: lambda old: old[name] * value if is_factor else value})


def with_scalars(record: Record, made: Mapping[str, Callable[[Any], Any]]) -> Record:
    """Returns a rule whose programs read other values of some scalars; see `Record.before`."""
    graph = Graph("float64", record.before.nodes)
    old = {name: Value(graph, i) for name, i in record.before.results.items()}
    new = {name: graph.value(make(old)) for name, make in made.items()}
    return record._replace(before=graph.function({**old, **new}))


def _late(record: Record, name: str, is_late: bool) -> Edit:
    """A hyperparameter has the value of the step before, or always the first one."""
    other = f"{name} before"
    dtype = record.dtype
    shared = {**record.shared, other: record.hyperparameters[name]}
    initial = {**record.initial, other: name}
    after = Graph(dtype, record.after.nodes)
    results = {each: Value(after, i) for each, i in record.after.results.items()}
    if is_late:
        results[other] = after.input(Input(name, SCALAR, dtype))
    new = record._replace(shared=shared, initial=initial, after=after.function(results))
    before = Input(other, SCALAR, dtype)
    new = with_scalars(new, {name: lambda old: old[name].graph.input(before)})
    text = "is that of the step before" if is_late else "stays at its first value"
    return Edit("late", f"{name} {text}", new)
