"""Counts false alarms.

    python -m benchmarks.conformance.sound PLACE FOLDER [COUNT]

FOLDER has the JSON files of run.py. Optimizers that had a rule there are replayed with proofs of
other seeds, from 1000 on, and so are legacy-opt's own targets; none may differ.
"""

import itertools
import json
import sys
from pathlib import Path

from benchmarks.conformance.cases import FAMILIES, Rule
from benchmarks.conformance.places import PLACES
from benchmarks.conformance.run import prepared, replayed
from legacy_opt import proofs, recorded

SEED = 1000
OWN = {"torch": ("torch-exact", "torch-fast", "numpy"), "jax": ("jax-exact", "jax-fast", "optax")}


def sound_pairs(name, folder):
    """Returns pairs of a rule and a target that computed the same."""
    place = PLACES[name]
    pairs = []
    for each in json.loads((folder / f"{name}.json").read_text("utf-8")):
        _, pattern, _ = place.optimizers[each["label"]]
        for column, found in each["verdicts"].items():
            if found["verdict"] in (proofs.EQUAL, proofs.ROUNDING):
                rule = FAMILIES[each["family"]].rules[column]
                target = prepared(each["library"], pattern, each["name"], each["mapping"])
                pairs.append((rule, target))
    for target in OWN.get(place.base, ()):
        target = proofs.find(f"legacy-opt:{target}")
        pairs += [(Rule(rule, ""), target) for rule in recorded.catalogue()]
    return pairs


def main(name, folder, count=300):
    pairs = sound_pairs(name, Path(folder))
    verdicts = []
    for number, (rule, target) in enumerate(itertools.islice(itertools.cycle(pairs), int(count))):
        found = replayed(rule, target, seed=SEED + number)
        verdicts.append(found["verdict"])
        if found["verdict"] not in (proofs.EQUAL, proofs.ROUNDING):
            print(f"seed {SEED + number}, {rule.name}, {target.text}: {found}", flush=True)
    counts = {verdict: verdicts.count(verdict) for verdict in sorted(set(verdicts))}
    print(f"{name}: {len(pairs)} pairs, {len(verdicts)} replays: {counts}")


if __name__ == "__main__":
    main(*sys.argv[1:])
