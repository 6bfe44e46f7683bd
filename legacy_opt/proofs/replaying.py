"""Replays proofs: trains an implementation with the inputs of a proof, and judges it."""

from __future__ import annotations

import sys
from typing import Dict, Mapping, NamedTuple, Sequence, Tuple

from legacy_opt.programs.operations import INTEGERS
from legacy_opt.proofs.targets import Target
from legacy_opt.recorded.proofs.judging import EQUAL, Verdict, drift, judge
from legacy_opt.recorded.proofs.proof import Arrays, Proof, ProofError, cast
from legacy_opt.recorded.records import RecordError

_PACKAGES = ["legacy_opt", "numpy", "torch", "jax", "optax", "keras", "tf_keras", "tensorflow"]


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


def replay(proof: Proof, target: Target) -> Report:
    """Judges whether a target computes the same as the rule of a proof.

    The target trains twice. If not all values are the same, it trains again in float64, if it can.
    Modes of the library are set meanwhile, so replays must not run in several threads.

    Raises:
      ProofError: the target cannot be judged: it raises an error, or is random.
    """
    found, again = (_trained(proof, target, "float32") for _ in range(2))
    if any(x.tobytes() != again[i][n].tobytes() for i in found for n, x in found[i].items()):
        raise ProofError(
            f"cannot be judged: two trainings of {target.text} with the same inputs differ, so it "
            "is random, or a training changes the next one"
        )
    verdict, notes = judge(proof.ends, found), target.arguments(proof).notes
    if verdict.name != EQUAL:
        try:
            verdict = judge(proof.ends, found, _trained(proof, target, "float64"))
        except ProofError as error:
            notes.append(f"judged in float32 alone; in float64, it {error}")
    names = [*_PACKAGES, *target.text.replace(":", ".").split(".")[1:2]]
    modules = {name: sys.modules[name] for name in names if name in sys.modules}
    versions = {name: getattr(each, "__version__", None) for name, each in modules.items()}
    known = {name: f"{x}" for name, x in versions.items() if x}
    return Report(verdict, tuple(notes), known, drift(proof.ends, found))


def _trained(proof: Proof, target: Target, dtype: str) -> Dict[int, Arrays]:
    """Returns the variables after the steps with ends."""
    start, dtypes = proof.start, proof.record.hyperparameters
    try:
        if start.global_step:
            raise ProofError(f"the proof begins after step {start.global_step}")
        variables = cast(start.variables, dtype)
        inputs = proof._replace(
            start=start._replace(record=proof.record.in_dtype(dtype), variables=variables),
            gradients=[cast(each, dtype) for each in proof.gradients],
            hyperparameters=[
                {name: int(x) if dtypes[name].dtype in INTEGERS else x for name, x in each.items()}
                for each in proof.hyperparameters
            ],
        )
        training = enumerate(target.train(inputs, target.arguments(inputs).steps), start=1)
        return {step: arrays for step, arrays in training if step in proof.ends}
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a user's class may raise anything
        text = f"{error}" if isinstance(error, RecordError) else f"{type(error).__name__}: {error}"
        raise ProofError(f"cannot be judged: {' '.join(text.split())[:500]}") from error
