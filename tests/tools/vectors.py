"""Draws the vectors, the data of the package legacy-opt-vectors. Needs NumPy alone.

    python -m tests.tools.vectors [NAME ...]

Each file of `vectors/legacy_opt_vectors/data` is a proof; `KINDS` says what differs between the
files of a rule. Together, they notice at least 99 % of the edits of a rule
(`python -m tests.tools.proof_power`).
"""

import sys
from pathlib import Path

from legacy_opt import proofs, recorded

FOLDER = Path(__file__).resolve().parents[2] / "vectors" / "legacy_opt_vectors" / "data"
ENDS = {"ends": [1, 2, 10]}
DEFAULTS = {"ends": [1, 8], "steps": 8, "seed": 1}
EXTREME = {"extreme": True, "steps": 4, "ends": [1, 4], "seed": 2}
LATE = {"global_step": 99_995, "ends": [1, 10], "seed": 3}
KINDS = {
    "dense": ENDS,
    "dense-defaults": DEFAULTS,
    "dense-extreme": EXTREME,
    "dense-late": LATE,
    "rows": dict(ENDS, rows=True, seed=4),
    "rows-defaults": dict(DEFAULTS, rows=True),
    "rows-extreme": dict(EXTREME, rows=True),
    "rows-late": dict(LATE, rows=True),
}
LATE_RULES = "AdagradDecayOptimizer", "AdagradDecayOptimizerV2"  # their first decay is at 100,000


def names():
    """Yields pairs (name of a rule, kind) of all vectors."""
    for name in recorded.catalogue():
        for kind in KINDS:
            if name in LATE_RULES or not kind.endswith("-late"):
                yield name, kind


def drawn(name, kind):
    """Returns a vector; None if the rule has no such update."""
    record = recorded.load(name)
    values = {}
    if kind.endswith("-defaults"):
        values = {key: each.value for key, each in record.hyperparameters.items()}
    try:
        return proofs.draw(record, **KINDS[kind], hyperparameters=values)
    except proofs.ProofError:
        return None


def path_of(name, kind):
    """Returns the path of a vector."""
    return FOLDER / f"{name}-{kind}.npz"


def main(wanted):
    """Writes the vectors of some rules, or of all."""
    FOLDER.mkdir(exist_ok=True)
    for name, kind in names():
        if not wanted or name in wanted:
            proof = drawn(name, kind)
            if proof is not None:
                proofs.write(path_of(name, kind), proof)


if __name__ == "__main__":
    main(sys.argv[1:])
