"""Replays proofs: trains an implementation with the inputs of a proof, and judges it."""

from __future__ import annotations

import sys
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence, Tuple

import numpy as np

from legacy_opt.programs.operations import INTEGERS
from legacy_opt.proofs.targets import Target
from legacy_opt.recorded.numpy import Rows
from legacy_opt.recorded.proofs import causes
from legacy_opt.recorded.proofs.judging import (
    BOUND,
    DIFFERS,
    EQUAL,
    Verdict,
    drift,
    judge,
    largest_error,
)
from legacy_opt.recorded.proofs.proof import Arrays, End, Proof, ProofError, by_slot, cast
from legacy_opt.recorded.proofs.reference import UNIT, fresh, start_from, with_bars
from legacy_opt.recorded.records import RecordError
from legacy_opt.recorded.state_files import state_of

_PACKAGES = ["legacy_opt", "numpy", "torch", "jax", "optax", "keras", "tf_keras", "tensorflow"]
_NO_SLOTS = "the slots after the last step were not compared"
_COUNTED = ("bool", *INTEGERS)
_SAMPLES = 8  # trainings that show how far an implementation goes by rounding


class Report(NamedTuple):
    """What a replay found.

    Attributes:
      verdict: the `Verdict`.
      notes: texts about arguments, gradients and dtypes.
      versions: the versions of packages, a dict from names.
      drift: for each variable, a dict from steps to its largest error, as a multiple of the error
        bar.
      losses: of a training with its own gradients: the recorded losses, and those found.
      origin: of such a training that differs: what differs first, "gradient" or "optimizer".
      cause: the change of the rule that explains a difference, and was confirmed; else "".
    """

    verdict: Verdict
    notes: Tuple[str, ...]
    versions: Mapping[str, str]
    drift: Mapping[str, Mapping[int, float]] = {}
    losses: Tuple[Sequence[float], ...] = ()
    origin: str = ""
    cause: str = ""


def replay(proof: Proof, target: Target, cause: bool = True) -> Report:
    """Judges whether a target computes the same as the rule of a proof.

    The target trains twice. If not all values are the same, it trains again in float64, if it can.
    Modes of the library are set meanwhile, so replays must not run in several threads.

    Args:
      proof: the proof.
      target: the implementation.
      cause: whether to search for the cause of a difference, which may take half a minute.

    Raises:
      ProofError: the target cannot be judged: it raises an error, or is random.
    """
    found, again = (_trained(proof, target) for _ in range(2))
    if any(x.tobytes() != again[i][n].tobytes() for i in found for n, x in found[i].items()):
        raise ProofError(
            f"cannot be judged: two trainings of {target.text} with the same inputs differ, so it "
            "is random, or a training changes the next one"
        )
    arguments, is_of_rule = target.arguments(proof), True
    notes = arguments.notes
    if not proof.has_bars:
        try:
            proof = _with_bars_of_rule(proof, found, notes)
        except RecordError as error:
            proof, is_of_rule = _with_own_bars(proof, target, found, f"{error}", notes), False
    verdict, known, dtype = judge(proof.ends, found), found, "float32"
    if verdict.name != EQUAL and is_of_rule:
        try:
            known, dtype = _trained(proof, target, "float64"), "float64"
            verdict = judge(proof.ends, found, known)
        except ProofError as error:
            notes.append(f"judged in float32 alone; in float64, it {error}")
    why = ""
    if cause and is_of_rule and verdict.name == DIFFERS:
        train = lambda other: _trained(other, target, dtype)  # noqa: E731
        why = causes.find(proof, known, dtype == "float64", train, arguments.constants)
    packages = versions(*target.text.replace(":", ".").split(".")[1:2])
    return Report(verdict, tuple(notes), packages, drift(proof.ends, found), cause=why)


def versions(*others: str) -> Dict[str, str]:
    """Returns the versions of the packages that are imported, by their names."""
    modules = [(name, sys.modules.get(name)) for name in (*_PACKAGES, *others)]
    found = {name: getattr(module, "__version__", None) for name, module in modules}
    return {name: f"{version}" for name, version in found.items() if version}


def _with_bars_of_rule(proof: Proof, found: Mapping[int, Arrays], notes: List[str]) -> Proof:
    """Returns a recorded proof with error bars; raises a RecordError if its rule is another."""
    if not proof.has_rule:
        why = next(f"{x.dense}".partition(". ")[0] for x in proof.record.groups if not x.programs)
        raise ProofError(f"{proof.record.optimizer} was recorded without a rule: {why}")
    slots = None if proof.last is None else {*by_slot(proof.last.slots)}
    has_slots = slots is not None and slots <= {*found.get(len(proof.gradients), {})}
    judged = with_bars(proof, has_slots)
    recorded = largest_error(judged.ends, {i: x.values for i, x in judged.ends.items()})
    if recorded.ratio > BOUND:
        raise ProofError(
            f"the recorded training is not that of the rule of {proof.record.optimizer}: in step "
            f"{recorded.step}, {recorded.variable!r} is {recorded.ratio:.3g} error bars away"
        )
    notes += [] if has_slots else [_NO_SLOTS]
    return judged


def _with_own_bars(
    proof: Proof, target: Target, found: Mapping[int, Arrays], problem: str, notes: List[str]
) -> Proof:
    """Returns a proof whose error bars are those of the implementation itself.

    They are how far it goes if the variables before the first step, gradients and hyperparameters
    are rounded differently, as a share of an element and of the way that it has gone. The largest
    share of a variable counts: few trainings do not show how far each element goes.
    """
    recorded = [(i, n, x) for i, end in sorted(proof.ends.items()) for n, x in end.values.items()]
    is_equal = all(np.array_equal(x, found[i][n]) for i, n, x in recorded)
    if proof.has_rule or not is_equal:
        notes.append(f"{problem}; so the error bars are those of {target.text} itself")
    notes += [] if proof.last is None else [_NO_SLOTS]
    moved = [] if is_equal else [_trained(_moved(proof, seed), target) for seed in range(_SAMPLES)]
    ends = {i: End(end.values, {}, {}) for i, end in proof.ends.items()}
    before = dict(proof.start.variables)
    ways: Dict[str, Any] = dict.fromkeys(before, 0.0)
    for i, name, array in recorded:
        exact = array.astype("float64")
        ways[name] = ways[name] + np.abs(exact - before[name])
        before[name] = array
        sizes = np.abs(exact) + ways[name] + np.finfo("float32").tiny
        distances = [np.abs(each[i][name] - found[i][name]) / sizes for each in moved]
        share = np.max(np.where(np.isfinite(distances), distances, 0.0), initial=UNIT)
        bars = (sizes * share + np.finfo("float32").tiny).astype("float32")
        ends[i].exact[name], ends[i].bars[name] = exact, bars
    return proof._replace(ends=ends)


def _moved(proof: Proof, seed: int) -> Proof:
    """Returns a proof with other last digits, also of numbers that float32 does not have."""
    random = np.random.RandomState(seed)

    def moved(values: Mapping[str, Any]) -> Dict[str, Any]:
        found = {}
        for name, x in values.items():
            array: Any = x.values if isinstance(x, Rows) else x
            signs = np.where(random.random_sample(np.shape(array)) < 0.5, -1, 1)
            array = None if array is None else np.float32(array * (1 + signs * 2 * UNIT))
            found[name] = Rows(x.ids, array) if isinstance(x, Rows) else array
        return found

    signs = {name: random.choice([-UNIT, UNIT]) for name in proof.record.hyperparameters}
    return proof._replace(
        start=proof.start._replace(variables=moved(proof.start.variables)),
        gradients=[*map(moved, proof.gradients)],
        hyperparameters=[
            {name: x if np.float32(x) == x else x * (1 + signs[name]) for name, x in each.items()}
            for each in proof.hyperparameters
        ],
    )


def _trained(proof: Proof, target: Target, dtype: str = "float32") -> Dict[int, Arrays]:
    """Returns the variables after the steps with ends, and the slots after the last step."""
    dtypes = {name: each.dtype for name, each in proof.record.hyperparameters.items()}
    kinds = {name: bool if x == "bool" else int for name, x in dtypes.items() if x in _COUNTED}
    try:
        start = proof.start._replace(record=proof.record.in_dtype(dtype))
        optimizer = fresh(proof._replace(start=start))
        start_from(proof, optimizer)  # slots in the dtypes of the record
        inputs = proof._replace(
            start=state_of(optimizer),
            gradients=[cast(each, dtype) for each in proof.gradients],
            hyperparameters=[
                {name: kinds[name](x) if name in kinds else x for name, x in each.items()}
                for each in proof.hyperparameters
            ],
        )
        found: Dict[int, Arrays] = {}
        trained = target.train(inputs, target.arguments(inputs).steps)
        for step, arrays in enumerate(trained, start=1):
            step = min(step, len(proof.gradients))
            if step in proof.ends:
                found[step] = {**arrays, **found.get(step, {})}
        return found
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a user's class may raise anything
        text = f"{error}" if isinstance(error, RecordError) else f"{type(error).__name__}: {error}"
        raise ProofError(f"cannot be judged: {' '.join(text.split())[:500]}") from error
