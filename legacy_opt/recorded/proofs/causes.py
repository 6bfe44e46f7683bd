"""Finds why an implementation differs from a rule: the smallest edit of the rule that explains it.

Candidates are other rules of the catalogue, edits of the rule (`suspects`), other values of
hyperparameters, and two edits together. They are searched with the smallest variable. A cause is
named only if it then explains all variables, and a second proof with other numbers.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Sequence, Tuple

import numpy as np

from legacy_opt.recorded.numpy import NumpyLibrary, NumpyOptimizer, Rows
from legacy_opt.recorded.proofs.drawing import draw, other_number
from legacy_opt.recorded.proofs.edits import Edit
from legacy_opt.recorded.proofs.judging import BOUND, WIDE_BOUND, largest_error
from legacy_opt.recorded.proofs.plain import plain
from legacy_opt.recorded.proofs.proof import Arrays, End, Proof
from legacy_opt.recorded.proofs.reference import UNIT, fresh, is_fresh, run, with_ends
from legacy_opt.recorded.proofs.suspects import suspects
from legacy_opt.recorded.reading import catalogue, load
from legacy_opt.recorded.records import Record, RecordError
from legacy_opt.recorded.state_files import state_of

Found = Mapping[int, Arrays]  # the variables of an implementation, by step
Train = Callable[[Proof], Found]
# The largest error of the same formula in float64, in error bars of float32.
_SAME = 1e-3
_FAR = 300 * BOUND  # where the error bars of an edited rule need not be computed
_WIDTH = 8  # of the beam, by each of three measures
_WORK = 4_000_000  # nodes that a search computes: about half a minute
_ENOUGH = 20  # steps to compare, if there is a difference in them
_STEPS = 3  # of a training whose result is far away
_DEPTH = 3  # the largest number of edits
_SEED = 1_000_003  # of the second proof
# Kinds of edits, the likeliest first. Other kinds are single edits, or the first of several.
_LIKELY = "start ids rows step bias first unused swapped swap bypass old again maximum decay move"
_KINDS = (*_LIKELY.split(), "added")
_COMPANIONS = ("start", "decay")  # edits that may show only together with another one


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
    proof: Proof, found: Found, is_wide: bool, train: Train, constants: Sequence[float] = ()
) -> str:
    """Returns a sentence that says why an implementation differs from a rule, or "".

    Args:
      proof: the proof.
      found: the variables of the implementation, by step.
      is_wide: whether the implementation trained in float64.
      train: trains the implementation with another proof in the same way.
      constants: numbers that the implementation knows, such as defaults of its arguments.
    """
    bound, field = (WIDE_BOUND, "exact") if is_wide else (BOUND, "values")
    wrong = largest_error(proof.ends, found, bound, field).step
    last = max(each for each in proof.ends if each <= max(wrong, _ENOUGH))
    trained = {name: x for each in proof.gradients for name, x in each.items() if x is not None}
    sparse = {name for name, x in trained.items() if isinstance(x, Rows)}
    parts = [{*trained}] if proof.record.clipping else [sparse, {*trained} - sparse]
    texts = {
        _cause(_of_variables(proof, names, last), found, is_wide, train, sorted({*constants}))
        for names in parts
        if names
    } - {None}
    return texts.pop() or "" if len(texts) == 1 else ""


def _cause(
    proof: Proof, found: Found, is_wide: bool, train: Train, constants: Sequence[float]
) -> Any:
    """Returns why variables with the same kind of gradients differ, or ""; None if they do not."""
    variables = proof.start.variables
    smallest = sorted(variables, key=lambda name: (variables[name].size, name))
    names = smallest if proof.record.clipping else smallest[:1]
    try:
        rule = plain(proof.record)
        checks = [_Search(proof, found, is_wide)]
        if checks[0].explains(Edit("", "", rule)):
            return None  # or in float32 alone
        search = _Search(_of_variables(proof, names, max(proof.ends)), found, is_wide)
        if search.explains(Edit("", "", rule)):
            return ""
        other = ""
        for edits in search.causes(rule, constants):
            for each in edits:
                if len(checks) == 1 and checks[0].explains(each):
                    checks.append(_Search(*_trained_again(proof, train), is_wide))
                if all(check.explains(each) for check in checks):
                    if each.kind != "rule":
                        return each.text + (f" ({other})" if other else "")
                    other = other or each.text
    except RecordError:  # nothing can be told without a rule, or without a second training
        pass
    return ""


def _of_variables(proof: Proof, names: Any, last: int) -> Proof:
    """Returns the proof of some variables, up to the step `last`."""

    def part(values: Mapping[str, Any]) -> Dict[str, Any]:
        return {name: x for name, x in values.items() if name in names}

    start, ends = proof.start, proof.ends.items()
    return proof._replace(
        start=start._replace(variables=part(start.variables), slots=part(start.slots)),
        gradients=[part(each) for each in proof.gradients[:last]],
        ends={step: End(*map(part, end)) for step, end in ends if step <= last},
    )


def _trained_again(proof: Proof, train: Train) -> Tuple[Proof, Found]:
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
                companions = [each for each in edits if each.kind in _COMPANIONS]
            edits = self._further([*companions, *_nearest(scored)], constants)

    def _further(self, firsts: Sequence[Edit], constants: Sequence[float]) -> Iterator[Edit]:
        """Yields edits with one more edit, until the search has computed enough."""
        for first in firsts:
            for second in suspects(self.proof, first.record, constants, _KINDS):
                if self.work < 0:
                    return
                trains = first if second.optimizer_class is NumpyOptimizer else second
                kind, text = f"{first.kind}+{second.kind}", f"{first.text}; and {second.text}"
                yield Edit(kind, text, second.record, trains.optimizer_class)

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


def _nearest(scored: Sequence[Tuple[Edit, _Score]]) -> List[Edit]:
    """Returns edits after which the rule is near to the implementation."""
    best = {score: each for each, score in sorted(scored, key=lambda x: -_cost(x[0]))}
    nearest: Dict[_Score, Edit] = {}
    for field in _Score._fields[1:]:
        for score in sorted(best, key=lambda score: getattr(score, field))[:_WIDTH]:
            nearest[score] = best[score]
    return [*nearest.values()]


def _cost(edit: Edit) -> int:
    kinds = edit.kind.split("+")
    return sum(_KINDS.index(kind) if kind in _KINDS else len(_KINDS) for kind in kinds)


def _catalogue(record: Record) -> Iterator[Edit]:
    """Yields the other rules of the catalogue that have only hyperparameters of a record."""
    for optimizer in sorted(catalogue(), key=len):
        other, text = load(optimizer), f"it computes the rule of {optimizer}"
        if optimizer != record.optimizer and {*other.hyperparameters} <= {*record.hyperparameters}:
            scalars = plain(record).hyperparameters
            other = plain(other)._replace(hyperparameters=scalars, fixed={}, nonzero=())
            yield Edit("rule", text, other)
