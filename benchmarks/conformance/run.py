"""Replays the cases of an environment.

python -m benchmarks.conformance.run PLACE OUT.json
"""

import datetime
import functools
import importlib.util
import json
import sys
import types
from importlib.metadata import version
from pathlib import Path

from benchmarks.conformance.cases import FAMILIES, IN_FLOAT32
from benchmarks.conformance.places import PLACES
from benchmarks.conformance.rules import RULES
from legacy_opt import proofs, recorded


def kinds():
    """Returns the targets of TensorFlow, where it is installed."""
    if importlib.util.find_spec("tensorflow") is None:
        return {}
    from legacy_opt.compat.in_keras.session_comparison import KINDS

    return {name: functools.partial(in_its_dtype, train) for name, train in KINDS.items()}


def in_its_dtype(train, make, proof, steps):
    """Trains while Keras creates slots and rates in the dtype of the proof."""
    modules = [sys.modules[name] for name in ("keras", "tf_keras") if name in sys.modules]
    for module in modules:
        module.backend.set_floatx(proof.record.dtype)
    try:
        yield from train(make, proof, steps)
    finally:
        for module in modules:
            module.backend.set_floatx("float32")


def in_float32_alone(train, proof, steps):
    """Trains in float32, and refuses float64."""
    if proof.record.dtype == "float64":
        raise proofs.ProofError("computes in float32")
    return train(proof, steps)


def without_init(package):
    """Makes modules of a package importable, without executing the package's `__init__.py`."""
    module = types.ModuleType(package)
    module.__path__ = list(importlib.util.find_spec(package).submodule_search_locations)
    sys.modules[package] = module


def replayed(rule, target, seed=0):
    """Returns the verdict as a dict."""
    record = RULES.get(rule.name) or recorded.load(rule.name)
    try:
        proof = proofs.draw(record, seed, hyperparameters=rule.values)
        verdict = proofs.replay(proof, target, cause=False).verdict
    except proofs.ProofError as error:
        return {"verdict": "ERROR", "why": f"{error}"}
    _, step, variable = verdict.place
    return {"verdict": verdict.name, "step": step, "variable": variable}


def prepared(library, pattern, name, mapping):
    """Returns a target; None if this version of the library has no such optimizer."""
    text, own = pattern.format(name), kinds()
    given = dict(each.split("=") for each in mapping.split())
    try:
        found = proofs.find(text, given, own if text.partition(":")[0] in own else None)
    except proofs.ProofError as error:
        if "has no attribute" not in f"{error}":
            raise
        return None
    if (library, name) in IN_FLOAT32:
        found = found._replace(train=functools.partial(in_float32_alone, found.train))
    return found


def results(place):
    """Yields the facts of an environment, for JSON."""
    for label, (library, pattern, package) in place.optimizers.items():
        for family, (rules, cases) in FAMILIES.items():
            for case in cases:
                if case.library != library:
                    continue
                target = prepared(library, pattern, case.name, case.mapping)
                if target is not None:
                    facts = {"family": family, "label": label, "version": version(package)}
                    facts["date"] = f"{datetime.date.today()}"
                    verdicts = {name: replayed(rule, target) for name, rule in rules.items()}
                    print(*facts.values(), target.text, case.mapping, verdicts, flush=True)
                    yield {**facts, **case._asdict(), "verdicts": verdicts}


if __name__ == "__main__":
    name, out = sys.argv[1:]
    for package in PLACES[name].bare:
        without_init(package)
    lines = ",\n".join(map(json.dumps, results(PLACES[name])))
    Path(out).write_text(f"[\n{lines}\n]\n", encoding="utf-8")
