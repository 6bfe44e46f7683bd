"""Prints the power of the vectors: the share of the edits of each rule that they notice.

    python -m tests.tools.proof_power [NAMES] [--single]

For each rule of the catalogue, dense and by rows, the table has the numbers of live and of noticed
edits (`legacy_opt.recorded.proofs.edits`), and the edits that are not noticed. With --single, only
the first vector of a rule counts.
"""

import argparse

from legacy_opt import proofs, recorded
from legacy_opt.recorded.proofs import edits
from tests.tools import vectors


def found_by(name, gradients, single=False):
    """Returns the live edits of a rule, and their largest errors in its vectors.

    Args:
      name: the name of the rule.
      gradients: "dense" or "rows".
      single: whether only the first vector counts; the others show which edits are live.
    """
    paths = [vectors.path_of(name, kind) for kind in vectors.KINDS if kind.startswith(gradients)]
    known = [proofs.read(path) for path in paths if path.exists()]
    if not known:
        return []
    others = known[1:] if single else []
    others.append(proofs.draw(recorded.load(name), 3, 20, rows=gradients == "rows"))
    return list(edits.live(known[:1] if single else known, others))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", default=sorted(recorded.catalogue()))
    parser.add_argument("--single", action="store_true")
    arguments = parser.parse_args()
    totals = {"dense": [0, 0], "rows": [0, 0]}
    for name in arguments.names:
        for gradients, total in totals.items():
            found = found_by(name, gradients, arguments.single)
            missed = [each for each, ratio in found if ratio <= proofs.BOUND]
            total[0] += len(found)
            total[1] += len(found) - len(missed)
            counts = f"live {len(found):4}  noticed {len(found) - len(missed):4}"
            print(f"{name:33} {gradients:5} {counts}", flush=True)
            for each in missed:
                print(f"    {each.kind}: {each.text}")
    for gradients, (live, noticed) in totals.items():
        print(f"{gradients}: {noticed} of {live} live edits, {noticed / max(live, 1):.2%}")


if __name__ == "__main__":
    main()
