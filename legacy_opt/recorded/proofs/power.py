"""The power of proofs: the share of the edits of a rule that they notice."""

from __future__ import annotations

from typing import Dict, Iterator, Sequence, Tuple

import numpy as np

from legacy_opt.recorded.proofs.edits import KINDS, Edit, edits
from legacy_opt.recorded.proofs.judging import BOUND, largest_error
from legacy_opt.recorded.proofs.proof import Proof
from legacy_opt.recorded.proofs.reference import run
from legacy_opt.recorded.records import RecordError

_LIVE = 1e-6  # error bars


def power(proofs: Sequence[Proof], others: Sequence[Proof] = ()) -> Dict[str, Tuple[int, int]]:
    """Returns how many edits of a rule some proofs notice together, by kinds of edits.

    An edit is noticed if an element is more than `BOUND` error bars away. It counts if it is live:
    it changes anything in these proofs or in `others`.

    Returns:
      A dict from kinds (see `edits.KINDS`) to pairs: the numbers of noticed and of live edits.
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
