"""Prints the power of drawn proofs: the share of the edits of each rule that they notice.

    python -m tests.tools.proof_power [NAMES] [--single]

For each rule of the catalogue, dense and by rows, the table has the numbers of live and of noticed
edits (`legacy_opt.recorded.proofs.edits`), and the edits that are not noticed. The proofs of a rule
are those of `proofs_of`; with --single, only the first.
"""

import argparse

from legacy_opt import proofs, recorded
from legacy_opt.recorded.proofs import power

_BEFORE_A_PERIOD = 99_995  # AdagradDecay's accumulators decay every 100,000 steps


def proofs_of(record, rows):
    """Returns proofs with short hyperparameters, the recorded ones, and late in a training."""
    numbers = {
        name: each.value
        for name, each in record.hyperparameters.items()
        if name not in record.fixed and each.value is not None
    }
    found = [proofs.draw(record, 0, rows=rows), proofs.draw(record, 1, rows=rows, **numbers)]
    if record.optimizer.startswith("AdagradDecay"):
        found.append(proofs.draw(record, 2, rows=rows, global_step=_BEFORE_A_PERIOD))
    return found


def others_of(record, rows):
    """Returns proofs that show whether an edit changes anything."""
    return [proofs.draw(record, 3, 20, rows=rows)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", default=sorted(recorded.catalogue()))
    parser.add_argument("--single", action="store_true")
    arguments = parser.parse_args()
    totals = {"dense": [0, 0], "rows": [0, 0]}
    for name in arguments.names:
        record = recorded.load(name)
        for kind, total in totals.items():
            try:
                drawn = proofs_of(record, kind == "rows")
            except proofs.ProofError:
                continue
            others = drawn[1:] + others_of(record, kind == "rows")
            found = list(power.live(drawn[:1] if arguments.single else drawn, others))
            missed = [each for each, ratio in found if ratio <= proofs.BOUND]
            total[0] += len(found)
            total[1] += len(found) - len(missed)
            print(f"{name:33} {kind:5} live {len(found):4}  noticed {len(found) - len(missed):4}")
            for each in missed:
                print(f"    {each.kind}: {each.text}")
    for kind, (live, noticed) in totals.items():
        print(f"{kind}: {noticed} of {live} live edits, {noticed / max(live, 1):.2%}")


if __name__ == "__main__":
    main()
