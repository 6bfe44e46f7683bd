"""Compares a recorded training with one that computes its own gradients from the same inputs.

Both begin with the same state. TensorFlows add in other orders, so gradients differ by rounding,
and then everything does. How far that may go is seen from trainings whose start was moved by one
random rounding. Gradients are compared with this drift. Updates are compared with the recorded rule
that gets the gradients of the second training, for which there are error bars.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, Mapping, Sequence, Tuple

import numpy as np

from legacy_opt.core.shortened import quoted
from legacy_opt.proofs.replaying import Report
from legacy_opt.recorded.numpy import Rows
from legacy_opt.recorded.proofs.judging import (
    BOUND,
    DIFFERS,
    EQUAL,
    ROUNDING,
    Error,
    Verdict,
    judge,
)
from legacy_opt.recorded.proofs.proof import Proof, ProofError, Run, dense
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
    for name in found.gradients[0]:
        arrays = [
            np.asarray(dense(each.gradients[0][name], each.start.variables[name]))
            for each in (found, *others)
        ]
        limit = _RANDOM * float(np.max(np.abs(arrays[0]), initial=0.0))
        for each in arrays[1:]:
            if each.shape != arrays[0].shape or _largest(each, arrays[0]) > limit:
                raise ProofError(
                    "cannot be judged: trainings with the same inputs have other gradients of "
                    f"{name!r} in the first step, so the script has random numbers or data that "
                    "were not recorded"
                )


def _judged(
    proof: Proof, found: Proof, others: Sequence[Proof]
) -> Tuple[Verdict, str, Mapping[str, Mapping[int, float]]]:
    values = {step: end.values for step, end in found.ends.items()}
    drift: Dict[str, Dict[int, float]] = {}
    for step, end in proof.ends.items():
        for name, array in end.values.items():
            arrays = [each.ends[step].values[name] for each in (found, *others)]
            drift.setdefault(name, {})[step] = _ratio(array, *arrays)
    worst = max(Error(x, step, name) for name, each in drift.items() for step, x in each.items())
    for each in found.made.get("starts", ()):
        variable = each.partition("/")[2]
        return Verdict(DIFFERS, Error(np.inf, 1, variable)), OPTIMIZER, drift
    if all(
        np.array_equal(x, values[s][n]) for s, e in proof.ends.items() for n, x in e.values.items()
    ):
        return Verdict(EQUAL, worst), "", drift
    gradient = _first(_gradient_errors(proof, found, others))
    update = (
        _update_error(proof, found)
        if proof.has_rule
        else _first(
            Error(x, step, name) for name, each in drift.items() for step, x in each.items()
        )
    )
    if update.ratio > BOUND:
        # An update that was wrong since the last end makes later gradients wrong, too.
        right = max((step for step in proof.ends if step < update.step), default=0)
        if not (gradient.ratio > BOUND and gradient.step <= right + 1):
            return Verdict(DIFFERS, update), OPTIMIZER, drift
    if gradient.ratio > BOUND:
        return Verdict(DIFFERS, gradient), GRADIENT, drift
    return Verdict(ROUNDING, max(gradient, update)), "", drift


def _first(errors: Iterator[Error]) -> Error:
    """Returns the first error larger than the bound, else the largest."""
    in_order = sorted(errors, key=lambda each: each.step)
    return next((each for each in in_order if each.ratio > BOUND), max(in_order))


def _gradient_errors(proof: Proof, found: Proof, others: Sequence[Proof]) -> Iterator[Error]:
    for i, gradients in enumerate(proof.gradients):
        for name, gradient in gradients.items():
            runs = [gradient, *(each.gradients[i].get(name) for each in (found, *others))]
            yield Error(_gradient_ratio(name, runs, proof, found), i + 1, name)


def _gradient_ratio(name: str, gradients: Sequence[Any], proof: Proof, found: Proof) -> float:
    variable = proof.start.variables[name]
    ids = [np.unique(each.ids) if isinstance(each, Rows) else np.array([]) for each in gradients]
    rows = [each.made.get("rows", {}).get(name) for each in (proof, found)]
    if rows[0] != rows[1] or any(not np.array_equal(each, ids[0]) for each in ids):
        return np.inf  # of other rows
    return _ratio(*(np.asarray(dense(each, variable)) for each in gradients))


def _update_error(proof: Proof, found: Proof) -> Error:
    """Returns the error of the updates, whatever the gradients were."""
    rule = found._replace(start=found.start._replace(record=proof.record), ends={})
    rule = rule._replace(hyperparameters=proof.hyperparameters)
    ends = widened(with_ends(rule, proof.ends)).ends
    return judge(ends, {step: end.values for step, end in found.ends.items()}).error


def _ratio(recorded: np.ndarray, found: np.ndarray, *moved: np.ndarray) -> float:
    """Returns the largest difference, as a multiple of the error bar."""
    if not recorded.size:
        return 0.0
    with np.errstate(all="ignore"):
        difference = _largest(recorded, found)
        drift = max(_largest(each, found) for each in moved)
        bar = _DRIFTS * (drift + UNIT * float(np.max(np.abs(found))))
    if not np.isfinite(difference):
        return np.inf
    return difference / bar if difference else 0.0


def _largest(one: np.ndarray, other: np.ndarray) -> float:
    one, other = (np.asarray(each, np.float64) for each in (one, other))
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    return float(np.max(np.where(same, 0.0, np.abs(one - other)), initial=0.0))
