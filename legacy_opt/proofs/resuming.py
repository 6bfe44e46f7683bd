"""Compares two states around a save and a load, and names what was lost or changed."""

from __future__ import annotations

import itertools
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from legacy_opt.core.shortened import quoted
from legacy_opt.proofs import changes
from legacy_opt.proofs.changes import same
from legacy_opt.proofs.replaying import replay
from legacy_opt.proofs.states import STEPS, TORCH, Key, State, label, state_of
from legacy_opt.proofs.targets import Target
from legacy_opt.recorded.neighbours import NEIGHBOURS, Neighbour
from legacy_opt.recorded.proofs import reference
from legacy_opt.recorded.proofs.judging import DIFFERS, EQUAL, Verdict, judge
from legacy_opt.recorded.proofs.proof import Proof, ProofError
from legacy_opt.recorded.records import Record
from legacy_opt.recorded.state_files import SavedState


class Finding(NamedTuple):
    """A difference between two states.

    Attributes:
      variable: the name of the variable; "" for what all variables share.
      slot: the name of the slot or hyperparameter; "" for the variable itself.
      cause: "missing", "lost" (reset to one value), "cast", "moved" (the value of another slot or
        variable), "average" (of the weights), "transposed", "reordered", "step",
        "reset" or "changed" (a hyperparameter), "frozen" (in the recorded steps). It is "" if no
        such change of the state before gives the state after.
      text: the difference as a sentence.
    """

    variable: str
    slot: str
    cause: str
    text: str


class Resumed(NamedTuple):
    """What the comparison of two states found.

    Attributes:
      name: "EQUAL" or "DIFFERS"; with recorded steps, it may be "ROUNDING".
      step: the number of completed steps before the save; None if it is unknown.
      findings: the differences; those of variables and slots come first.
      verdict: the `Verdict` on the recorded steps, or None.
      notes: texts that say what was not compared.
    """

    name: str
    step: Optional[int]
    findings: Sequence[Finding]
    verdict: Optional[Verdict]
    notes: Sequence[str]


def resume(
    before: Any,
    after: Any,
    steps: Optional[Proof] = None,
    name_map: Optional[Mapping[str, Optional[str]]] = None,
    target: Optional[Target] = None,
    rule: Optional[Record] = None,
) -> Resumed:
    """Compares the state when a training was saved with the state that the resumed program has.

    Example::

        model.load_state_dict(torch.load("model.pt"))
        optimizer.load_state_dict(torch.load("optimizer.pt"))
        resumed = proofs.resume("optimizer.pt", {"model": model, "optimizer": optimizer})
        for finding in resumed.findings:
            print(finding.text)

    Args:
      before: a file of PyTorch with a `state_dict` or a dict of them; a state file; a `SavedState`;
        a dict of arrays; or a tree of JAX such as {"params": …, "opt_state": …}.
      after: the same; or an optimizer of PyTorch, or a dict of a model and its optimizer. Only a
        model, or `named_parameters` given to the optimizer, shows whether parameters have another
        order than before.
      steps: a `Proof` of steps that were recorded after the load. The rule trains from `before`
        with the recorded gradients and hyperparameters, and must end in the recorded variables.
      name_map: a dict from names of variables in `before` to their names in `after`; None leaves a
        variable out.
      target: the `Target` that trains instead of the rule.
      rule: the rule whose initial values are lost states, by default that of `steps`.

    Raises:
      ProofError: a state cannot be read, both have no variable in common, or the recorded steps
        cannot be judged.
    """
    first, second, notes = _named_alike(
        state_of(before), state_of(after, is_after=True), name_map or {}
    )
    rule = rule or (steps and steps.record)
    starts = {name: value for name, value, _ in (rule.starts if rule else ())}
    first = first._replace(start={**first.start, **starts})
    comparison = _Comparison(first, second, notes)
    findings = list(comparison.findings())
    step, verdict = _step(first), None
    if steps is not None:
        proof = steps._replace(start=_saved(first, step, steps))
        if target is not None:
            proof = reference.with_bars(proof) if proof.has_rule else proof
            verdict = replay(proof, target).verdict
        else:
            ends = reference.with_ends(proof, proof.ends).ends
            verdict = judge(ends, {i: end.values for i, end in steps.ends.items()})
        findings += _frozen(steps)
    name = DIFFERS if findings else EQUAL if verdict is None else verdict.name
    return Resumed(name, step, findings, verdict, notes)


def _step(state: State) -> Optional[int]:
    steps = (np.asarray(x) for (_, s), x in state.values.items() if s.split(" ")[-1] in STEPS)
    numbers = (x for x in steps if x.ndim == 0 and x.dtype.kind in "iuf" and np.isfinite(x))
    return next((int(x) for x in numbers), None)


def _named_alike(
    first: State, second: State, name_map: Mapping[str, Any]
) -> Tuple[State, State, List[str]]:
    """Returns both states with the names of the second, and notes."""
    notes = []
    unknown = sorted(set(name_map) - set(first.names()))
    if unknown:
        raise ProofError(f"the name map has {unknown[0]!r}, but the state before has no such name")
    if not name_map and len(first.order) == len(second.order) and first.order != second.order:
        is_numbered = [each.order[0].startswith("parameter ") for each in (first, second)]
        if is_numbered[0] != is_numbered[1]:
            notes.append("parameters were compared in their order: the names of one are unknown")
        if is_numbered == [True, False]:
            first = first.renamed(dict(zip(first.order, second.order)), {})
        if is_numbered == [False, True]:
            second = second.renamed(dict(zip(second.order, first.order)), {})
    first = first.renamed(name_map, {})
    if not set(first.names()) & set(second.names()):  # Keras adds the model's name, or does not
        first, second = first.without_scope(), second.without_scope()
    parts = [{part for part, _ in each.beside} for each in (first, second)]
    if not (set(first.names()) & set(second.names()) or parts[0] & parts[1]):
        raise ProofError(
            f"the states have no variable in common: {quoted(first.names())} before, "
            f"{quoted(second.names())} after. Pass a name map"
        )
    return first.renamed({}, _translation(first.slots(), second.slots())), second, notes


def _translation(first: Any, second: Any) -> Mapping[str, str]:
    """Returns a dict from names of slots to those of another library."""
    best: List[Mapping[str, str]] = [{name: name for name in first & second}]
    for row, other in itertools.product(NEIGHBOURS, NEIGHBOURS):
        if set(row.rules).isdisjoint(other.rules):
            continue
        for names, others in itertools.product(_vocabularies(row), _vocabularies(other)):
            pairs = {names[x]: others[x] for x in names if x in others}
            pairs = {a: b for a, b in pairs.items() if a in first and b in second}
            if len(pairs) > len(best[0]):
                best = [pairs]
    return best[0]


def _vocabularies(row: Neighbour) -> Sequence[Mapping[str, str]]:
    """Returns dicts from our names of slots to ours, to those of Keras 2 or others, and Keras 3."""
    ours = {name: name for name in row.slots}
    return [ours, *({name: x[i] for name, x in row.slots.items()} for i in (0, -1))]


class _Comparison:
    def __init__(self, before: State, after: State, notes: List[str]) -> None:
        self._before, self._after, self._notes = before, after, notes
        self._is_same_library = before.library == after.library
        self._has_other_axes = (before.library == TORCH) != (after.library == TORCH)
        self._axes: Dict[str, Tuple[int, ...]] = {}

    def findings(self) -> Iterator[Finding]:
        """Yields the differences, in the order of the variables; shared values come last."""
        before, after = self._before, self._after
        has_variables = any(name and not slot for name, slot in after.values)
        if not has_variables and any(name and not slot for name, slot in before.values):
            self._notes.append("the state after has no variables: only slots were compared")
        for key in sorted(before.values, key=lambda key: not key[0]):  # sorting is stable
            if key[1] or has_variables:
                yield from self._compared(key, before.values, after.values)
        steps = [_step(before), _step(after)]
        if not self._is_same_library and None not in steps and steps[0] != steps[1]:
            yield Finding("", "step", "step", f"the step is {steps[1]} instead of {steps[0]}")
        parts = {part for part, _ in after.beside}
        for key in before.beside:
            if key[0] in parts:
                yield from self._compared(key, before.beside, after.beside)
        for part in dict.fromkeys(part for part, _ in before.beside if part not in parts):
            arrays = (x for (name, _), x in before.beside.items() if name == part)
            is_model = any(np.ndim(x) and np.asarray(x).dtype.kind == "f" for x in arrays)
            if self._is_same_library and is_model:
                yield Finding(part, "", "missing", f"{part} is missing")
            else:  # such as the epoch, and the state of a generator of random numbers
                self._notes.append(f"not compared: {part!r}, which the state after lacks")
        pairs = (before.values, after.values), (before.beside, after.beside)
        added = [label(key) for old, new in pairs for key in new if key not in old]
        if added and self._is_same_library:
            self._notes.append(f"only in the state after: {quoted(added)}")

    def _compared(self, key: Key, values: Any, others: Any) -> Iterator[Finding]:
        old, new = values[key], others.get(key)
        is_same, found = self._is_same_library, None
        is_array = [isinstance(each, np.ndarray) for each in (old, new)]
        if key not in others and not is_array[0]:
            found = ("missing", "is missing") if is_same else None
        elif key in others and not all(is_array) and (is_same or not any(is_array)):
            found = _hyperparameter(key, old, new, values)
        elif not is_array[0]:
            pass  # another library has an array instead
        elif new is None:
            kept = [n for (n, s), x in self._after.values.items() if s and np.ndim(x)]
            if self._is_same_library or not key[1] or key[0] and key[0] not in kept:
                found = self._missing(key, old)
            elif key[0]:
                self._notes.append(f"not compared: {label(key)}, which the other library lacks")
        elif self._has_rate(key):
            self._notes.append(f"not compared: {label(key)}, which contains the rate in Keras")
        else:
            found = self._change(key, old, np.asarray(new))
        if found:
            cause, text = found
            yield Finding(*key, cause, f"{label(key)} {text}")

    def _has_rate(self, key: Key) -> bool:
        """Whether a slot is the momentum of SGD in Keras, and of another optimizer elsewhere."""
        slots = {slot for name, slot in self._after.values if name == key[0] and slot}
        return slots == {key[1]} == {"momentum"} and not self._is_same_library

    def _missing(self, key: Key, old: np.ndarray) -> Tuple[str, str]:
        others = changes.holders(key, old, self._after.values) if old.ndim else ()
        kept = self._before.values
        other = next((x for x in others if x not in kept or not same(kept[x], old)), None)
        where = "" if other is None else f"; its value is in {label(other)}"
        return "missing" if other is None else "moved", f"is missing{where}"

    def _change(self, key: Key, old: Any, new: Any) -> Optional[Tuple[str, str]]:
        name, slot = key
        if self._has_other_axes and old.ndim > 1:
            if not slot and not same(old, new):
                for axes in changes.orders_of_axes(old.ndim):
                    if same(old.transpose(axes), new):
                        self._axes[name] = axes
                        self._notes.append(f"{name} has its axes in the order {list(axes)}")
            if len(self._axes.get(name, ())) == old.ndim:
                old = old.transpose(self._axes[name])
        # optax adds the trace of RMSProp, and others subtract the momentum.
        is_negated = slot == "trace" and not self._is_same_library and same(-old, new)
        if same(old, new) or is_negated:
            states = (self._before, old), (self._after, new)
            dtypes = [state.narrow.get(key, str(x.dtype)) for state, x in states]
            if old.ndim == 0 or dtypes[0] == dtypes[1] or not self._is_same_library:
                return None
            return "cast", f"was cast to {dtypes[1]}, with the same values"
        arrays = {**self._before.values, **self._before.beside}
        return changes.change(key, old, new, arrays, self._before.start)


def _hyperparameter(key: Key, old: Any, new: Any, values: Any) -> Optional[Tuple[str, str]]:
    old, new = (x.tolist() if isinstance(x, np.ndarray) else x for x in (old, new))
    if old == new or old != old and new != new:  # NaN
        return None
    text = f"is {new} instead of {old}"
    if new == values.get((key[0], f"initial_{key[1]}"), old):
        return "reset", f"{text}: it was reset to its initial value"
    return "changed", text


def _saved(state: State, step: Optional[int], proof: Proof) -> SavedState:
    """Returns a state for the rule of a proof; raises a ProofError for what it lacks."""
    start, values = proof.start, proof.hyperparameters[0]
    slots = {slot for each in start.slots.values() for slot in each}
    found = state.renamed({}, _translation(state.slots(), slots)).values

    def taken(name: str, slot: str, like: Any) -> Any:
        array = found.get((name, slot))
        if array is None or array.shape != np.shape(like):
            raise ProofError(
                f"the state before has no {label((name, slot))} for the recorded steps"
            )
        return array.astype(np.asarray(like).dtype)

    shared = {}
    for name, value in start.shared.items():
        beta = values.get(name.replace("_power", ""))
        if ("", name) not in found and beta is not None and step is not None:
            power = np.float32(beta)
            for _ in range(step):
                power = power * np.float32(beta)
            shared[name] = power
        else:
            shared[name] = taken("", name, value)[()]
    if step is None:
        raise ProofError("the state before has no step, which the recorded steps need")
    return SavedState(
        record=start.record,
        global_step=step,
        shared=shared,
        variables={name: taken(name, "", array) for name, array in start.variables.items()},
        slots={
            name: {slot: taken(name, slot, array) for slot, array in each.items()}
            for name, each in start.slots.items()
        },
    )


def _frozen(proof: Proof) -> Iterator[Finding]:
    """Yields the variables that the recorded steps did not change, though all had gradients."""
    for name in proof.start.slots:
        arrays = [end.values[name] for end in proof.ends.values()]
        gradients = [each.get(name) for each in proof.gradients]
        has_gradients = all(x is not None and np.any(getattr(x, "values", x)) for x in gradients)
        if has_gradients and all(same(proof.start.variables[name], each) for each in arrays):
            text = f"{name} did not change in {len(gradients)} steps, though it had gradients"
            yield Finding(name, "", "frozen", text)
