"""Single edits of rules, such as an epsilon outside of the root, and how many proofs notice."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Sequence, Tuple

import numpy as np

from legacy_opt.programs import program as programs
from legacy_opt.programs.operations import COMPARISONS, FLOATS, SUMS
from legacy_opt.programs.program import ELEMENT, NUMBER, SCALAR, Change, Input, Node, Program
from legacy_opt.recorded.formulas import Graph, Value
from legacy_opt.recorded.numpy import NumpyOptimizer, Rows
from legacy_opt.recorded.proofs.judging import BOUND, largest_error
from legacy_opt.recorded.proofs.plain import COMPLETED, STEP, plain, shown, without
from legacy_opt.recorded.proofs.proof import Proof
from legacy_opt.recorded.proofs.reference import run
from legacy_opt.recorded.records import Group, Record, RecordError, slot_inputs

KINDS = {
    "bypass": "an operation is left out",
    "swap": "an operation with a scalar changes places with the operation before or after it",
    "order": "the two operands of an operation change places",
    "scale": "an operand is multiplied by 2, 1/2 or -1",
    "hyperparameter": "a value is multiplied by a hyperparameter",
    "constant": "a constant is 0 or 1",
    "old": "the old value of a slot is read, not the new one",
    "again": "the update of a slot is applied twice before it is read, as in Nesterov's momentum",
    "maximum": "the largest value of a slot so far is read, as in AMSGrad",
    "bias": "a slot is divided by 1 - hyperparameter ** step before it is read",
    "decay": "a part of the variable is added to the gradient, or subtracted from the variable",
    "frozen": "a slot or shared variable keeps its value",
    "start": "a slot or shared variable starts at 0, 1/8 or 1",
    "step": "the step is one less or one more",
    "ids": "of rows of equal ids, the first, the last or the mean counts, or each is an update",
    "rows": "a sparse gradient updates all rows, not only its own, or the other way round",
}
_WITH_SCALARS = ("Add", "Sub", "Mul", "RealDiv", "Maximum", "Minimum")
_ORDERED = ("Sub", "RealDiv", "Pow", "Select", *COMPARISONS)
_SIDES = {("Sqrt", "Add"): "outside", ("Add", "Sqrt"): "inside"}
FACTORS = (2.0, 0.5, -1.0)
_DECAY = 2.0**-5
_LIVE = 1e-6  # error bars
_RESULT = "the variable"
_GRADIENT = (programs.TENSOR, programs.GRADIENT)
VARIABLE = Input(programs.VALUE, ELEMENT, "float64")


class Edit(NamedTuple):
    """An edited rule of float64: the kind, a description, and what trains with it."""

    kind: str
    text: str
    record: Record
    optimizer_class: Callable[..., NumpyOptimizer] = NumpyOptimizer


class Rewrite(NamedTuple):
    """A change of one value in a program."""

    kind: str  # of the edit
    at: int  # the position of the node
    # What is read instead: a number; a position of a node; a name of a scalar; an `Input`; a tuple
    # of an operation and its operands; or a tuple of a node and a dict from positions to what is
    # read instead of these nodes when the node is computed again.
    new: Any
    # The node that reads `new`; or the slot whose new value does not; None if all users do.
    users: Any = None
    slot: str = ""  # the name of a further slot that gets `new`
    text: str = ""  # a sentence; by default, the formulas before and after the edit
    words: str = ""  # before these formulas


def _edited(part: Program, rewrites: Sequence[Rewrite]) -> Tuple[Any, str]:
    """Returns a program with changes, and a text; see `Rewrite`."""
    graph = Graph("float64")
    values: List[Value] = []
    changed: Dict[int, Value] = {}  # the new values, by positions in `rewrites`

    def read(user: Any, i: int) -> Value:
        for place, new in changed.items():
            users = rewrites[place].users
            if i == rewrites[place].at and (user == users) == isinstance(users, int):
                return new
        return values[i]

    def computed(i: int, known: Dict[int, Value]) -> Value:
        if i not in known:
            node = part.nodes[i]
            known[i] = graph.again(node, [computed(each, known) for each in node.inputs])
        return known[i]

    def value(what: Any) -> Any:
        if isinstance(what, str):
            what = Input(what, SCALAR, "float64")
        if isinstance(what, Input):
            return graph.input(what)
        if isinstance(what, tuple) and isinstance(what[0], str):
            level = SCALAR if what[0] in SUMS else None
            return graph.operation(what[0], [value(each) for each in what[1:]], level)
        if isinstance(what, tuple):
            return computed(what[0], {i: value(each) for i, each in what[1].items()})
        return values[what] if type(what) is int else what

    for i, node in enumerate(part.nodes):
        operands = [read(i, each) for each in node.inputs]
        is_old = node.inputs == tuple(each.position for each in operands)
        values.append(graph.kept(node) if is_old else graph.again(node, operands))
        for place, each in enumerate(rewrites):
            if i == each.at:
                changed[place] = graph.value(value(each.new))
    changes = {
        each.slot: Change(programs.ASSIGN, changed[place].position)
        for place, each in enumerate(rewrites)
        if each.slot
    }
    for name, (how, i, factor) in part.changes.items():
        factor = None if factor is None else read(name, factor).position
        changes[name] = Change(how, read(name, i).position, factor)
    new = Program(part.by_rows, tuple(graph.nodes), read(_RESULT, part.value).position, changes)
    if rewrites[0].text:
        return new, rewrites[0].text
    at, users = rewrites[0].at, rewrites[0].users
    place, after = (users, values[users]) if isinstance(users, int) else (at, changed[0])
    following = [i for i, node in enumerate(part.nodes) if place in node.inputs]
    while part.nodes[place].level == SCALAR and following:  # a formula of tensors says more
        place, after = following[0], values[following[0]]
        following = [i for i, node in enumerate(part.nodes) if place in node.inputs]
    return new, f"{rewrites[0].words}{shown(new, after.position)} instead of {shown(part, place)}"


def _of_nodes(program: Program, names: Sequence[str]) -> Iterator[Rewrite]:
    """Yields changes of nodes; `names` are the hyperparameters by which values are multiplied."""
    nodes = program.nodes
    for i, node in enumerate(nodes):
        if node.operation == "Const" and node.dtype in FLOATS:
            yield from (Rewrite("constant", i, each) for each in (0.0, 1.0))
        elif node.detail in ((NUMBER, STEP), (NUMBER, COMPLETED)):
            for each in np.array([-1, 1]):
                text = f"the first step is counted as {1 + each}, not as 1"
                yield Rewrite("step", i, ("Add", i, each), text=text)
        elif node.detail == _GRADIENT:
            yield Rewrite("decay", i, ("Add", i, ("Mul", _DECAY, VARIABLE)))
        for place, each in enumerate(node.inputs):
            if nodes[each].dtype == node.dtype and node.operation not in SUMS:
                yield Rewrite("bypass", i, each)
            if nodes[each].dtype in FLOATS:
                yield from (Rewrite("scale", each, ("Mul", each, x), i) for x in FACTORS)
            yield from _swaps(program, i, place)
        if node.operation in _ORDERED:
            a, b = node.inputs[-2:]
            yield Rewrite("order", i, (i, {a: b, b: a}))
        if node.dtype in FLOATS and node.level != SCALAR:
            yield from (Rewrite("hyperparameter", i, ("Mul", i, each)) for each in names)


def _swaps(part: Program, i: int, place: int) -> Iterator[Rewrite]:
    nodes, a = part.nodes, part.nodes[i].inputs[place]

    def scalars_of(node: Node, place: int) -> List[int]:
        others = [x for j, x in enumerate(node.inputs) if j != place]
        return [x for x in others if nodes[x].level == SCALAR and node.operation in _WITH_SCALARS]

    for j, x in enumerate(nodes[a].inputs):
        scalars = [*scalars_of(nodes[i], place), *scalars_of(nodes[a], j)]
        if nodes[x].level != SCALAR and scalars:
            where = _SIDES.get((nodes[i].operation, nodes[a].operation))
            words = f"{shown(part, scalars[0])} is {where} of the root: " if where else ""
            yield Rewrite("swap", i, (a, {x: (i, {a: x})}), words=words)


def _of_slots(program: Program, group: Group, betas: Sequence[str]) -> Iterator[Rewrite]:
    """Yields changes of what reads the new value of a slot."""
    for slot in slot_inputs(group.slots, program.by_rows):
        if slot.name not in program.changes or slot.dtype not in FLOATS:
            continue
        at, top = program.changes[slot.name].node, slot._replace(name=f"{slot.name} maximum")
        olds = [i for i, node in enumerate(program.nodes) if node.detail == slot.key]
        text = f"the update reads the old {slot.name}, from before the step"
        yield Rewrite("old", at, slot, slot.name, text=text)
        text = f"Nesterov: the update reads {slot.name} as after one more step"
        yield Rewrite("again", at, (at, dict.fromkeys(olds, at)), slot.name, text=text)
        text = f"AMSGrad: the update reads the largest {slot.name} so far"
        yield Rewrite("maximum", at, ("Maximum", top, at), slot.name, top.name, text=text)
        for beta in betas:
            bias = ("Sub", 1.0, ("Pow", beta, STEP))
            text = f"the bias of {slot.name} is corrected: divided by 1 - {beta} ** t"
            yield Rewrite("bias", at, ("RealDiv", at, bias), slot.name, text=text)
    yield Rewrite("decay", program.value, ("Sub", program.value, ("Mul", _DECAY**2, VARIABLE)))


def edits(proof: Proof) -> Iterator[Edit]:
    """Yields the edits of a rule that could change what a proof computes."""
    record = plain(proof.record, short=False)
    known: Any = {(repr(record), NumpyOptimizer)}
    for edit in edits_of(proof, record):
        key = repr(edit.record), edit.optimizer_class
        if key not in known:
            known.add(key)
            yield edit


def edits_of(
    proof: Proof,
    record: Record,
    further: Callable[[Program], Any] = lambda _: (),
    kinds: Sequence[str] = (),
    starts: Sequence[float] = (0.0, 0.125, 1.0),
) -> Iterator[Edit]:
    """Yields edits of a rule, of which some may be equal.

    Args:
      proof: the proof.
      record: the rule in the plain form.
      further: a function that returns further edits of a program.
      kinds: the kinds of edits of programs; by default, all.
      starts: other first values of slots and shared variables.
    """
    rows = any(isinstance(each, Rows) for each in proof.gradients[0].values())
    groups = [record.group_of(name, each.shape) for name, each in proof.start.variables.items()]
    for name in record.after.results:
        after = record.after._replace(results=without(record.after.results, [name]))
        yield Edit("frozen", f"{name} never changes", record._replace(after=after))
    for group in record.groups:
        if group in groups:
            yield from _of_group(record, group, rows, further, kinds)
    for (name, old, dtype), start in itertools.product(record.starts, starts):
        if dtype in FLOATS and start != old:
            new = record.with_starts({name: start})
            new = new._replace(initial=without(record.initial, [name]))
            yield Edit("start", f"{name} starts at {start:.7g}", new)
    yield from _of_ids(record) if rows else ()


def _of_group(record: Record, group: Group, rows: bool, further: Any, kinds: Any) -> Iterator[Edit]:
    def edit(kind: str, text: str, **fields: Any) -> Edit:
        new = group._replace(**fields)
        groups = tuple(new if each is group else each for each in record.groups)
        return Edit(kind, text, record._replace(groups=groups))

    names = [name for name, each in record.hyperparameters.items() if each.dtype in FLOATS]
    betas = [name for name in names if 0.5 <= (record.hyperparameters[name].value or 0) < 1]
    for field in ("sparse", "first") if rows else ("dense",):
        program = getattr(group, field)
        if not isinstance(program, Program):
            continue
        found = [*_of_nodes(program, names), *_of_slots(program, group, betas)]
        for rewrites in (*([each] for each in found), *further(program)):
            first, slots = rewrites[0], dict(group.slots)
            if first.slot:
                slots[first.slot] = slots[first.users]._replace(initial=0.0)
            if not kinds or first.kind in kinds:
                with contextlib.suppress(RecordError):  # the operands do not fit
                    new, text = _edited(program, rewrites)
                    yield edit(first.kind, text, slots=slots, **{field: new.pruned()})
        for name in program.changes:
            new = program._replace(changes=without(program.changes, [name]))
            yield edit("frozen", f"{name} never changes", **{field: new.pruned()})
        is_elementwise = {each.level for each in program.nodes} <= {SCALAR, ELEMENT}
        if field == "sparse" and is_elementwise and not program.needs_all_elements:
            new = program._replace(by_rows=not program.by_rows)
            rows_of = {True: "only the rows of the gradient are", False: "all rows are"}
            text = f"{rows_of[new.by_rows]} updated; {rows_of[program.by_rows]} by the rule"
            yield edit("rows", text, sparse=new)


def _of_ids(record: Record) -> Iterator[Edit]:
    def first(ids: np.ndarray, values: np.ndarray) -> List[Rows]:
        ids, places = np.unique(ids, return_index=True)
        return [Rows(ids, values[places])]

    def mean(ids: np.ndarray, values: np.ndarray) -> List[Rows]:
        return [Rows(ids, (values.T / np.sum(ids[:, None] == ids, axis=0)).T)]

    ways: Mapping[str, Callable[..., List[Rows]]] = {
        "only the first counts": first,
        "only the last counts": lambda ids, values: first(ids[::-1], values[::-1]),
        "the mean counts": mean,
        "each is an update": lambda ids, values: [*map(Rows, ids[:, None], values[:, None])],
    }
    for name, way in ways.items():

        class Other(NumpyOptimizer):
            def _run(self, found: Any, scalars: Any, limit: Any, way: Any = way) -> None:
                for update in found:
                    for rows in way(*update.gradient):
                        super()._run([update._replace(gradient=rows)], scalars, None)

        yield Edit("ids", f"of rows of equal ids, {name}", record, Other)


def power(proofs: Sequence[Proof], others: Sequence[Proof] = ()) -> Dict[str, Tuple[int, int]]:
    """Returns how many edits of a rule some proofs notice together, by kinds of edits.

    An edit is noticed if an element is more than `BOUND` error bars away. It counts if it is live:
    it changes anything in these proofs or in `others`. The result is a dict from `KINDS` to pairs:
    the numbers of noticed and of live edits.
    """
    found: Dict[str, Tuple[int, int]] = dict.fromkeys(KINDS, (0, 0))
    for edit, ratio in live(proofs, others):
        noticed, count = found[edit.kind]
        found[edit.kind] = noticed + (ratio > BOUND), count + 1
    return {kind: each for kind, each in found.items() if each[1]}


def live(proofs: Sequence[Proof], others: Sequence[Proof] = ()) -> Iterator[Tuple[Edit, float]]:
    """Yields each live edit, and its largest error in the proofs; see `power`."""
    for edit in edits(proofs[0]):
        ratio = _largest(edit, proofs)
        if ratio > _LIVE or _largest(edit, others) > _LIVE:
            yield edit, ratio


def _largest(edit: Edit, proofs: Sequence[Proof]) -> float:
    """Returns the largest error of an edit, or the first one that is noticed."""
    ratio = 0.0
    try:
        for proof in proofs:
            training = run(proof, edit.record, optimizer_class=edit.optimizer_class)
            for step, found in enumerate(training, start=1):
                if step in proof.ends:
                    end = {step: proof.ends[step]}
                    ratio = max(ratio, largest_error(end, {step: found}, field="exact").ratio)
                if ratio > BOUND:
                    return ratio
    except RecordError:  # nothing can train with it
        return np.inf
    return ratio
