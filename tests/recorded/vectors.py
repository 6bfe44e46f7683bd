"""Judges targets by all vectors, the proofs of the package legacy-opt-vectors."""

import functools

import pytest

from legacy_opt import proofs
from legacy_opt.recorded.proofs.proof import cast
from tests.tools import vectors

CELLS = [cell for cell in vectors.names() if vectors.path_of(*cell).exists()]
DENSE = [cell for cell in CELLS if cell[1].startswith("dense")]
# NumPy warns of sums of rows with inf - inf.
INVALID = pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")


@functools.lru_cache(maxsize=None)
def vector(name, kind):
    return proofs.read(vectors.path_of(name, kind))


def fails(judged, *expected, cells=CELLS):
    """Returns the verdicts that are not expected: a dict from names of files.

    Args:
      judged: a function that gets a proof and returns the name of a verdict.
      *expected: the names of verdicts.
      cells: pairs (name of a rule, kind).
    """
    found = {}
    for cell in cells:
        try:
            verdict = judged(copied(vector(*cell)))
        except (AssertionError, proofs.ProofError) as error:
            verdict = " ".join(f"{error}".split())
        if verdict not in expected:
            found[vectors.path_of(*cell).name] = verdict
    return found


def copied(proof):
    """Returns a proof whose arrays a target may change."""
    start = proof.start._replace(variables=cast(proof.start.variables, "float32"))
    gradients = [cast(each, "float32") for each in proof.gradients]
    return proof._replace(start=start, gradients=gradients)


def by(text):
    """Returns a function that judges a target of `proofs.find` by a proof.

    Vectors that begin late are judged in float32 alone.
    """
    target = proofs.find(text)

    def judged(proof):
        if not proof.start.global_step:
            return proofs.replay(proof, target, cause=False).verdict.name
        trained = target.train(proof, target.arguments(proof).steps)
        return proofs.judge(proof.ends, dict(enumerate(trained, start=1))).name

    return judged
