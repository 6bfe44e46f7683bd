"""Finds why an implementation differs from a rule: the smallest edit of the rule that explains it.

Candidates are other rules of the catalogue, edits of the rule (`suspects`), other values of
hyperparameters, and two edits together. They are searched with the smallest variable. A cause is
named only if it then explains all variables, and a second proof with other numbers.
"""

from __future__ import annotations

import contextlib
import math
from typing import (
    Any,
    Callable,
    Dict,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

import numpy as np

from legacy_opt.programs.operations import FLOATS
from legacy_opt.programs.program import NUMBER, Function, Program
from legacy_opt.recorded.numpy import NumpyLibrary, NumpyOptimizer, Rows
from legacy_opt.recorded.proofs.drawing import USUAL, draw, other_number
from legacy_opt.recorded.proofs.edits import Edit
from legacy_opt.recorded.proofs.judging import BOUND, WIDE_BOUND, largest_error
from legacy_opt.recorded.proofs.plain import plain
from legacy_opt.recorded.proofs.proof import Arrays, End, Proof
from legacy_opt.recorded.proofs.reference import UNIT, fresh, is_fresh, run, with_ends
from legacy_opt.recorded.proofs.suspects import suspects, with_constant
from legacy_opt.recorded.reading import catalogue, load
from legacy_opt.recorded.records import Record, RecordError
from legacy_opt.recorded.state_files import state_of

Found = Mapping[int, Arrays]  # the variables of an implementation, by step
# The largest error of the same formula in float64, in error bars of float32.
_SAME = 1e-3
_FAR = 300 * BOUND  # where the error bars of an edited rule need not be computed
_WIDTH = 8  # of the beam, by each of three measures
_WORK = 4_000_000  # nodes that a search computes: about half a minute
_ENOUGH = 20  # steps to compare, if there is a difference in them
_STEPS = 3  # of a training whose result is far away
_DEPTH = 3  # the largest number of edits
_SIMPLE = ("again", "bias", "bypass", "decay", "first", "frozen", "maximum", "move", "old", "root")
_SIMPLE += ("added", "start", "swap", "unused")  # the kinds of further edits
_SEED = 1_000_003  # of the second proof
# Of several causes, the one with the lowest cost is named.
_COSTS = {"rule": 0.5, "start": 0.8, "ids": 0.8, "rows": 0.8, "step": 0.9, "bias": 0.9, "late": 0.9}
_COSTS.update(unused=0.95, swapped=0.95, swap=1.0, root=1.0, bypass=1.05, old=1.1, again=1.1)
_COSTS.update(maximum=1.1, decay=1.1, move=1.1, first=1.15, order=1.2, scale=1.2, fitted=1.2)
_COMPANIONS = ("start", "decay", "first")  # edits that may show only together with another one


class _Score(NamedTuple):
    worst: float  # error bars
    mean: float = np.inf  # of the logarithms of errors
    wrong: float = 1.0  # the share of numbers
    late: float = 1.0  # the share of steps


class _Quick(NumpyLibrary):
    """Computes elementary functions as NumPy does, and does not round them exactly."""

    def function(self, operation: Any, operands: Sequence[Any], dtype: str) -> Any:
        return getattr(np, "power" if operation.fast == "pow" else operation.fast)(*operands)


_QUICK = _Quick(flush_denormals=False)


def find(
    proof: Proof,
    found: Found,
    is_wide: bool,
    train: Optional[Callable[[Proof], Found]] = None,
    constants: Sequence[float] = (),
) -> str:
    """Returns a sentence that says why an implementation differs from a rule, or "".

    Args:
      proof: the proof.
      found: the variables of the implementation, by step.
      is_wide: whether the implementation trained in float64.
      train: trains the implementation with another proof in the same way. If it is None, only other
        variables and later steps confirm a cause.
      constants: numbers that the implementation knows, such as defaults of its arguments.
    """
    bound, field = (WIDE_BOUND, "exact") if is_wide else (BOUND, "values")
    wrong = largest_error(proof.ends, found, bound, field).step
    last = max(each for each in proof.ends if each <= max(wrong, _ENOUGH))
    proof = _of_variables(proof, [*proof.start.variables], last)
    texts = {_cause(each, found, is_wide, train, constants) for each in _by_kind(proof)} - {None}
    return texts.pop() or "" if len(texts) == 1 else ""


def _by_kind(proof: Proof) -> List[Proof]:
    """Returns the proofs of variables with dense, and with sparse gradients."""
    kinds: Dict[bool, Dict[str, None]] = {}
    for gradients in proof.gradients:
        for name, each in gradients.items():
            if each is not None:
                kinds.setdefault(isinstance(each, Rows), {})[name] = None
    if proof.record.clipping:
        return [proof]
    return [_of_variables(proof, [*names]) for names in kinds.values()]


def _cause(
    proof: Proof,
    found: Found,
    is_wide: bool,
    train: Optional[Callable[[Proof], Found]],
    constants: Sequence[float],
) -> Optional[str]:
    """Returns why variables with the same kind of gradients differ, or ""; None if they do not."""
    try:
        rule = plain(proof.record)
        checks = [_Search(proof, found, is_wide)]
        if checks[0].explains(Edit("", "", rule)):
            return None  # or in float32 alone
        search = _Search(_part(proof, is_single=train is None), found, is_wide)
        if search.explains(Edit("", "", rule)):
            return ""
        other = ""
        for edits in search.causes(rule, sorted(set(constants))):
            for each in edits:
                if train is not None and len(checks) == 1 and checks[0].explains(each):
                    checks.append(_Search(*_trained_again(proof, train), is_wide))
                if all(check.explains(each) for check in checks):
                    if each.kind != "rule":
                        return each.text + (f" ({other})" if other else "")
                    other = other or each.text
    except RecordError:  # nothing can be told without a rule, or without a second training
        pass
    return ""


def _part(proof: Proof, is_single: bool) -> Proof:
    """Returns a proof of the smallest variable; if it is the only one, of half of the steps."""
    variables, ends = proof.start.variables, proof.ends
    trained = {name for each in proof.gradients for name, x in each.items() if x is not None}
    names = sorted(trained, key=lambda name: (variables[name].size, name))
    names = names if proof.record.clipping else names[:1]

    if is_single and len(trained) == len(names):
        ends = {step: ends[step] for step in sorted(ends)[: (len(ends) + 1) // 2]}
    return _of_variables(proof, names, max(ends))


def _of_variables(proof: Proof, names: Sequence[str], last: Optional[int] = None) -> Proof:
    """Returns the proof of some variables, up to the step `last`."""

    def part(values: Mapping[str, Any]) -> Dict[str, Any]:
        return {name: values[name] for name in names if name in values}

    return proof._replace(
        start=proof.start._replace(
            variables=part(proof.start.variables), slots=part(proof.start.slots)
        ),
        gradients=[part(each) for each in proof.gradients[:last]],
        ends={i: End(*map(part, x)) for i, x in proof.ends.items() if i <= (last or i)},
    )


def _trained_again(proof: Proof, train: Callable[[Proof], Found]) -> Tuple[Proof, Found]:
    """Returns a proof with other gradients and hyperparameters, and what was found with it."""
    scalars, gradients = proof.record.hyperparameters, proof.gradients
    rows = any(isinstance(x, Rows) for each in gradients for x in each.values())
    values = {
        name: x if x in (0, 1) or "power" in name else other_number(x)
        for name, x in proof.hyperparameters[0].items()
        if scalars[name].dtype == proof.record.dtype
    }
    other = draw(proof.record, _SEED, rows=rows, hyperparameters=values)
    other = other._replace(made={**proof.made, **other.made})
    return other, train(other)


class _Search:
    """Searches for edits of a rule after which it computes what an implementation does."""

    def __init__(self, proof: Proof, found: Found, is_wide: bool) -> None:
        self.proof, self.found, self.is_wide = proof, found, is_wide
        self.near = _SAME if is_wide else _FAR
        self.work = _WORK

    def causes(self, rule: Record, constants: Sequence[float]) -> Iterator[List[Edit]]:
        """Yields lists of edits that explain the variables of this proof, the likeliest first."""
        yield [each for each in _catalogue(self.proof.record) if self.explains(each)]
        edits, companions = [*suspects(self.proof, rule, constants)], []
        for depth in range(_DEPTH):
            bound = self.near if depth == _DEPTH - 1 else np.inf  # nothing is scored after the last
            steps = 1 if depth else _STEPS
            scored = [(each, self._score(each, bound, steps)) for each in edits]
            found = [each for each, score in scored if self._is_same(each, score)]
            yield sorted(found, key=_cost)
            if not depth:
                yield [each for each in self._fitted(rule) if self.explains(each)]
                companions = [each for each in edits if each.kind in _COMPANIONS]
            edits = self._further([*companions, *_nearest(scored)], constants)

    def _further(self, firsts: Sequence[Edit], constants: Sequence[float]) -> Iterator[Edit]:
        """Yields edits with one more edit, until the search has computed enough."""
        for first in firsts:
            for second in suspects(self.proof, _pruned(first.record), constants, _SIMPLE):
                if self.work < 0:
                    return
                yield _both(first, second)

    def explains(self, edit: Edit) -> bool:
        """Tells whether an edited rule computes what the implementation does."""
        return self._is_same(edit, self._score(edit, self.near))

    def _is_same(self, edit: Edit, score: _Score) -> bool:
        if self.is_wide or score.worst > _FAR or edit.optimizer_class is not NumpyOptimizer:
            return score.worst <= (_SAME if self.is_wide else BOUND)
        start = self.proof.start._replace(record=edit.record.in_dtype("float32"))
        edited = self.proof._replace(start=start)
        if is_fresh(self.proof):  # then the edited rule has its own first values, too
            edited = edited._replace(start=state_of(fresh(edited)))
        own = with_ends(edited, self.proof.ends)  # has its error bars
        return largest_error(own.ends, self.found).ratio <= BOUND

    def _score(self, edit: Edit, bound: float = np.inf, steps: int = _STEPS) -> _Score:
        """Compares with the implementation, until an error is larger than `bound`.

        After a difference, at least the first `steps` are compared.
        """
        worst, logs, wrong = 0.0, [], []
        try:
            for errors in map(np.abs, self._errors(edit)):
                worst = max(worst, float(np.max(errors)))
                if worst > bound:
                    return _Score(np.inf)
                logs.append(np.mean(np.log10(np.clip(errors, 1e-2, 1e12))))
                wrong.append(np.mean(errors > BOUND))
                if len(logs) >= steps and worst > self.near:
                    break
        except RecordError:  # nothing can train with it
            return _Score(np.inf)
        return _Score(worst, *(float(np.mean(each)) for each in (logs, wrong, np.ceil(wrong))))

    def _errors(self, edit: Edit) -> Iterator[np.ndarray]:
        """Yields the differences to the implementation after each step, in error bars."""
        nodes = sum(len(each.nodes) for group in edit.record.groups for each in group.programs)
        training = run(self.proof, edit.record, _QUICK, edit.optimizer_class)
        for step, arrays in enumerate(training, start=1):
            self.work -= nodes
            end, errors = self.proof.ends.get(step), []
            for name, array in arrays.items() if end else ():
                got = self.found[step][name]
                is_same = (array == got) | (np.isnan(array) & np.isnan(got))
                with np.errstate(all="ignore"):
                    # What is 0 in the rule has no error bar, and may be a number here.
                    bars = end.bars[name] + UNIT * np.abs(array)
                    error = np.where(is_same, 0.0, (array - got) / bars)
                errors.append(np.where(np.isfinite(error), error, 1e30).ravel())
            if end:
                yield np.concatenate(errors)

    def _fitted(self, rule: Record) -> Iterator[Edit]:
        """Yields edits with another value of a hyperparameter, or with a factor."""
        for name, before in self.proof.hyperparameters[0].items():
            if rule.hyperparameters[name].dtype in FLOATS and before > 0:
                with contextlib.suppress(RecordError):
                    for is_factor in (False, True):
                        value = self._fit(rule, name, 1.0 if is_factor else before, is_factor)
                        what = "multiplied by" if is_factor else "always"
                        new = with_constant(rule, name, value, is_factor)
                        yield Edit("fitted", f"{name} is {what} {value:.7g}", new)

    def _fit(self, rule: Record, name: str, start: float, is_factor: bool) -> float:
        """Returns the value of a hyperparameter that explains best, by Newton's method."""
        rest = 0.5 <= start < 1  # the distance from 1 is fitted

        def value(x: float) -> float:
            return 1 - math.exp(x) if rest else math.exp(x)

        def errors(x: float) -> np.ndarray:
            new = with_constant(rule, name, value(x), is_factor)
            return np.concatenate([*self._errors(Edit("", "", new))])

        x, small = math.log(1 - start if rest else start), 1e-6
        for _ in range(12):
            error = errors(x)
            slope = (errors(x + small) - error) / small
            x -= float(np.clip(error @ slope / max(slope @ slope, 1e-300), -2, 2))
        return float(f"{value(x):.7g}")


def _nearest(scored: Sequence[Tuple[Edit, _Score]]) -> List[Edit]:
    """Returns edits after which the rule is near to the implementation."""
    best = {score: each for each, score in sorted(scored, key=lambda x: -_cost(x[0]))}
    nearest: Dict[_Score, Edit] = {}
    for field in _Score._fields[1:]:
        for score in sorted(best, key=lambda score: getattr(score, field))[:_WIDTH]:
            nearest[score] = best[score]
    return [*nearest.values()]


def _cost(edit: Edit) -> float:
    return sum(_COSTS.get(kind, 1.3) for kind in edit.kind.split("+"))


def _both(first: Edit, second: Edit) -> Edit:
    """Returns two edits as one; `second` is an edit of the rule of `first`."""
    classes = {first.optimizer_class, second.optimizer_class}
    made = next((each for each in classes if each is not NumpyOptimizer), NumpyOptimizer)
    text = f"{first.text}; and {second.text}"
    return Edit(f"{first.kind}+{second.kind}", text, second.record, made)


def _pruned(record: Record) -> Record:
    groups = [
        each._replace(
            **{
                field: part.pruned()
                for field, part in each._asdict().items()
                if isinstance(part, Program)
            }
        )
        for each in record.groups
    ]
    return record._replace(groups=tuple(groups))


def _catalogue(record: Record) -> Iterator[Edit]:
    """Yields the other rules of the catalogue, with the hyperparameters of a record."""
    for optimizer in sorted(catalogue(), key=len):
        if optimizer != record.optimizer:
            with contextlib.suppress(RecordError):
                other = _renamed(plain(load(optimizer)), plain(record))
                yield Edit("rule", f"it computes the rule of {optimizer}", other)


def _renamed(other: Record, record: Record) -> Record:
    """Returns a rule whose hyperparameters have the usual other names that a record has."""
    names: Dict[str, str] = {}
    for name in other.hyperparameters:
        usual = [y for x, y in USUAL if x == name] + [x for x, y in USUAL if y == name]
        names[name] = next((x for x in (name, *usual) if x in record.hyperparameters), name)

    def renamed(function: Function) -> Function:
        nodes = [
            each._replace(detail=(NUMBER, names.get(each.detail[1], each.detail[1])))
            if each.operation == "Input"
            else each
            for each in function.nodes
        ]
        return function._replace(nodes=tuple(nodes))

    taken = {names[name]: each for name, each in other.hyperparameters.items()}
    return other._replace(
        hyperparameters={**record.hyperparameters, **taken},
        before=renamed(other.before),
        after=renamed(other.after),
        initial={slot: names[name] for slot, name in other.initial.items()},
        fixed={},
        nonzero=(),
    )
