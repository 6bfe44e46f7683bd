"""Compares a recorded training with one that computes its own gradients from the same inputs.

Both begin with the same state. TensorFlows add in other orders, so gradients differ by rounding,
and then everything does. How far that may go is seen from trainings whose start was moved by one
random rounding. Gradients are compared with this drift. Updates are compared with the recorded rule
that gets the gradients of the second training, for which there are error bars.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, Sequence, Tuple

import numpy as np

from legacy_opt.core.shortened import quoted
from legacy_opt.proofs.replaying import Report
from legacy_opt.recorded.numpy import Rows
from legacy_opt.recorded.proofs import judging
from legacy_opt.recorded.proofs.judging import BOUND, DIFFERS, EQUAL, ROUNDING, Error, Verdict
from legacy_opt.recorded.proofs.proof import Arrays, End, Proof, ProofError, Run, dense
from legacy_opt.recorded.proofs.reference import UNIT, widened, with_ends

# The error bar, as a multiple of the drift that one rounding of the start causes.
_DRIFTS = 4.0
# The largest change of a gradient in the first step by this rounding, as a share of the gradient.
_RANDOM = 1e-2
GRADIENT, OPTIMIZER = "gradient", "optimizer"


def compare_runs(recorded: Run, again: Run, moved: Sequence[Run]) -> Dict[str, Report]:
    """Judges a training that had the start and the inputs of a recorded one.

    Args:
      recorded: the recorded `Run`.
      again: the second training.
      moved: others, whose start was moved by one random rounding of float32.

    Returns:
      A dict from names of optimizers to `Report`.

    Raises:
      ProofError: a training has other variables or inputs, or fewer steps; or the script is random.
    """
    if not moved:
        raise ProofError("there is no training with a moved start")
    for old, new in zip(recorded.inputs[1:], again.inputs[1:]):
        if set(new) - set(old):
            raise ProofError(
                "cannot be judged: the script has inputs or random operations that the recorded "
                f"one lacks: {quoted(sorted(set(new) - set(old)))}"
            )
    reports = {}
    for name, proof in recorded.proofs.items():
        found = _like(proof, again)
        others = [_like(proof, each) for each in moved]
        _check_same(found, others)
        verdict, origin, drift = _judged(proof, found, others)
        starts = found.made.get("starts")
        notes = [f"the script itself has other first values of {quoted(starts)}"] if starts else []
        fed = again.made.get("fed_otherwise")
        if fed:
            notes.append(f"the script itself feeds other numbers than the recorded {quoted(fed)}")
        versions, losses = again.made.get("versions", {}), (recorded.losses, again.losses)
        reports[name] = Report(verdict, tuple(notes), versions, drift, losses, origin)
    wrong = [name for name, each in reports.items() if each.origin == OPTIMIZER]
    for name, each in reports.items():
        if each.origin == GRADIENT and wrong:
            note = f"other gradients may follow from the updates of {quoted(wrong)}"
            reports[name] = each._replace(notes=(*each.notes, note))
    return reports


def _like(proof: Proof, run: Run) -> Proof:
    """Returns the proof of a run that has the variables and steps of another proof."""
    names, count = set(proof.start.variables), len(proof.gradients)
    for each in run.proofs.values():
        if set(each.start.variables) == names and len(each.gradients) == count:
            return each
    raise ProofError(f"no optimizer has trained {quoted(sorted(names))} in {count} steps")


def _check_same(found: Proof, others: Sequence[Proof]) -> None:
    """Raises a ProofError if first gradients differ by more than one rounding of the start does."""
    first, *gradients = (_gradients(each, found)[1] for each in (found, *others))
    for name, gradient in first.items():
        limit = _RANDOM * float(np.max(np.abs(gradient), initial=0.0))
        if any(_largest(each[name], gradient) > limit for each in gradients):
            raise ProofError(
                "cannot be judged: trainings with the same inputs have other gradients of "
                f"{name!r} in the first step, so the script has random numbers or data that "
                "were not recorded"
            )


def _judged(
    proof: Proof, found: Proof, others: Sequence[Proof]
) -> Tuple[Verdict, str, Mapping[str, Mapping[int, float]]]:
    values, *moved = (
        {step: end.values for step, end in each.ends.items()} for each in (found, *others)
    )
    ends = _with_bars({step: end.values for step, end in proof.ends.items()}, values, moved)
    verdict, drift = judging.judge(ends, values), judging.drift(ends, values)
    for each in found.made.get("starts", ()):
        error = Error(np.inf, 1, each.partition("/")[2])
        return Verdict(DIFFERS, error), OPTIMIZER, drift
    if verdict.name == EQUAL:
        return verdict, "", drift
    recorded, gradients, *moved = (_gradients(x, proof) for x in (proof, found, *others))
    gradient = judging.largest_error(_with_bars(recorded, gradients, moved), gradients)
    update = verdict.error
    if proof.has_rule:  # whatever the gradients were
        rule = found._replace(start=found.start._replace(record=proof.record), ends={})
        rule = rule._replace(hyperparameters=proof.hyperparameters)
        update = judging.largest_error(widened(with_ends(rule, proof.ends)).ends, values)
    if update.ratio > BOUND:
        # An update that was wrong since the last end makes later gradients wrong, too.
        right = max((step for step in proof.ends if step < update.step), default=0)
        if not (gradient.ratio > BOUND and gradient.step <= right + 1):
            return Verdict(DIFFERS, update), OPTIMIZER, drift
    if gradient.ratio > BOUND:
        return Verdict(DIFFERS, gradient), GRADIENT, drift
    return Verdict(ROUNDING, max(gradient, update)), "", drift


def _gradients(proof: Proof, like: Proof) -> Dict[int, Arrays]:
    """Returns dense gradients by step; NaN if they are not of the rows of another proof."""

    def rows(each: Proof, i: int, name: str) -> Any:
        gradient = each.gradients[i].get(name)
        ids = np.unique(gradient.ids).tolist() if isinstance(gradient, Rows) else gradient is None
        return ids, each.made.get("rows", {}).get(name)

    return {
        i + 1: {
            name: np.asarray(dense(proof.gradients[i][name], proof.start.variables[name]))
            if rows(proof, i, name) == rows(like, i, name)
            else np.full(like.start.variables[name].shape, np.nan)
            for name in gradients
        }
        for i, gradients in enumerate(like.gradients)
    }


def _with_bars(
    recorded: Mapping[int, Arrays], found: Mapping[int, Arrays], moved: Sequence[Any]
) -> Dict[int, End]:
    """Returns ends whose error bars come from the drift of trainings with moved starts."""
    ends = {}
    for step, arrays in recorded.items():
        bars = {}
        for name, array in arrays.items():
            drift = max(_largest(each[step][name], found[step][name]) for each in moved)
            size = np.abs(found[step][name], dtype="float64")
            size = np.max(np.where(np.isfinite(size), size, 0.0), initial=0.0)
            bars[name] = np.full(array.shape, _DRIFTS * (drift + UNIT * size))
        ends[step] = End(arrays, {n: x.astype("float64") for n, x in arrays.items()}, bars)
    return ends


def _largest(one: np.ndarray, other: np.ndarray) -> float:
    if one.shape != other.shape:
        return np.inf
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    with np.errstate(all="ignore"):
        differences = np.abs(one.astype("float64") - other)
    differences = np.where(np.isnan(differences), np.inf, differences)
    return float(np.max(np.where(same, 0.0, differences), initial=0.0))
