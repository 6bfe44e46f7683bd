"""Compares two states around a save and a load, and names what was lost or changed."""

from __future__ import annotations

from typing import Any, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from legacy_opt.core.shortened import quoted
from legacy_opt.proofs import changes
from legacy_opt.proofs.states import STEPS, State, label, state_of
from legacy_opt.recorded.proofs import reference
from legacy_opt.recorded.proofs.judging import DIFFERS, EQUAL, Verdict, judge
from legacy_opt.recorded.proofs.proof import Proof, ProofError
from legacy_opt.recorded.state_files import GLOBAL_STEP, SavedState


class Finding(NamedTuple):
    """A difference between two states.

    Attributes:
      variable: the name of the variable; "" for what all variables share.
      slot: the name of the slot or hyperparameter; "" for the variable itself.
      cause: "missing", "lost" (reset to one value), "cast", "moved" (the value of another slot or
        variable), "average" (of the weights), "transposed", "reordered", "step",
        "reset" or "changed" (a hyperparameter). It is "" if no such change of the state before
        gives the state after.
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
      after: the same, of the same library; or an optimizer of PyTorch, or a dict of a model and its
        optimizer. Only with the model, another order of the parameters is seen.
      steps: a `Proof` of steps that were recorded after the load. The rule trains from `before`
        with the recorded gradients, and must end in the recorded variables.
      name_map: a dict from names of variables in `before` to their names in `after`; None leaves a
        variable out.

    Raises:
      ProofError: a state cannot be read, both cannot be compared, or the steps cannot be judged.
    """
    first, second, notes = state_of(before), state_of(after, is_after=True), []
    if first.library != second.library:
        raise ProofError(
            f"the states are of {first.library} before, and of {second.library} after: only states "
            "of one library can be compared"
        )
    first, second = _named_alike(first, second, notes, name_map or {})
    findings = list(_differences(first, second, notes))
    verdict = None
    if steps is not None:
        proof = steps._replace(start=_saved(first, steps))
        ends = reference.with_ends(proof, proof.ends).ends
        verdict = judge(ends, {i: end.values for i, end in steps.ends.items()})
    name = DIFFERS if findings else EQUAL if verdict is None else verdict.name
    return Resumed(name, _step(first), findings, verdict, notes)


def _step(state: State) -> Optional[int]:
    for (name, slot), x in state.values.items():
        is_step = slot in STEPS and name not in state.parts
        if is_step and x.ndim == 0 and x.dtype.kind in "iuf" and np.isfinite(x):
            return int(x)
    return None


def _named_alike(
    first: State, second: State, notes: List[str], name_map: Mapping[str, Optional[str]]
) -> Tuple[State, State]:
    """Returns both states with the names of the second."""
    unknown = sorted(set(name_map) - set(first.names()))
    if unknown:
        raise ProofError(f"the name map has {unknown[0]!r}, but the state before has no such name")
    is_numbered = [each.order[:1] == ["parameter 0"] for each in (first, second)]
    if not name_map and len(first.order) == len(second.order) and len({*is_numbered}) == 2:
        notes.append("parameters were compared in their order: the names of one are unknown")
        if is_numbered[0]:
            first = first.renamed(dict(zip(first.order, second.order)))
        else:
            second = second.renamed(dict(zip(second.order, first.order)))
    elif all(is_numbered):
        notes.append("parameters were compared in their order: their names are unknown")
    first = first.renamed(name_map)
    if {*first.names(), *first.parts}.isdisjoint({*second.names(), *second.parts}):
        raise ProofError(
            f"the states have no variable in common: {quoted(first.names())} before, "
            f"{quoted(second.names())} after. Pass a name map"
        )
    return first, second


def _differences(before: State, after: State, notes: List[str]) -> Iterator[Finding]:
    """Yields the differences in the order of the variables, then of shared values and parts."""
    variables = [(name, "") for name in before.names()]
    has_variables = any((name, "") in after.values for name in after.names())
    if not has_variables and not before.values.keys().isdisjoint(variables):
        notes.append("the state after has no variables: only slots were compared")
    lacking = [part for part in before.parts if part not in after.parts]
    keys = sorted(before.values, key=lambda key: (key[0] in before.parts, not key[0]))
    for key in keys:
        if key[0] not in lacking and (has_variables or key not in variables):
            change = changes.change(key, before, after)
            if change is not None:
                yield Finding(*key, change[0], f"{label(key)} {change[1]}")
    for part in lacking:
        arrays = [x for (name, _), x in before.values.items() if name == part]
        if any(x.ndim and x.dtype.kind == "f" for x in arrays):  # a model
            yield Finding(part, "", "missing", f"{part} is missing")
        else:  # such as the epoch, and the state of a generator of random numbers
            notes.append(f"not compared: {part!r}, which the state after lacks")
    added = [label(key) for key in after.values if key not in before.values]
    if added:
        notes.append(f"only in the state after: {quoted(added)}")


def _saved(state: State, proof: Proof) -> SavedState:
    """Returns a state for the rule of a proof; raises a ProofError for what it lacks."""

    def taken(name: str, slot: str, like: Any) -> Any:
        array = state.values.get((name, slot))
        if array is None or array.shape != np.shape(like):
            what = f"{label((name, slot))} of the shape {list(np.shape(like))}"
            raise ProofError(f"the state before has no {what}, which the recorded steps need")
        return array.astype(np.asarray(like).dtype)

    start = proof.start
    return start._replace(
        global_step=int(taken("", GLOBAL_STEP, 0)),
        shared={name: taken("", name, value)[()] for name, value in start.shared.items()},
        variables={name: taken(name, "", array) for name, array in start.variables.items()},
        slots={
            name: {slot: taken(name, slot, array) for slot, array in each.items()}
            for name, each in start.slots.items()
        },
    )
