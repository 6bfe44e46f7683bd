"""Prints the reports of `legacy-opt prove`."""

from __future__ import annotations

import math
from typing import Any, Dict, Iterator, Mapping, Tuple

from . import terminal


def outcome(target: str, found: Mapping[str, Tuple[Any, Any]]) -> terminal.Outcome:
    """Returns the outcome of replays: pairs of a `Proof` and its `Report`, by optimizers."""
    from legacy_opt import proofs

    differs = any(report.verdict.name == proofs.DIFFERS for _, report in found.values())
    facts = [{"target": target, "optimizer": n, **_facts(*each)} for n, each in found.items()]
    lines = [line for n, each in found.items() for line in _lines(f"{target}, {n}", *each)]
    code = terminal.MANUAL_WORK if differs else terminal.SUCCESS
    return terminal.Outcome(code, facts[0] if len(facts) == 1 else {"reports": facts}, (*lines,))


def _facts(proof: Any, report: Any) -> Dict[str, Any]:
    """Returns a report for JSON."""
    verdict = report.verdict
    facts: Dict[str, Any] = {"rule": proof.record.optimizer, "verdict": verdict.name}
    if verdict.name != "EQUAL":
        ratio, facts["step"], facts["variable"] = verdict.place
        facts["error_bars"] = ratio if math.isfinite(ratio) else None  # JSON has no infinity
    facts.update(origin=report.origin, cause=report.cause)
    facts.update(notes=report.notes, versions=report.versions, made=proof.made)
    return facts


def _lines(title: str, proof: Any, report: Any) -> Iterator[str]:
    yield f"{title}: {report.verdict}"
    if report.origin:
        yield f"what differs first: the {report.origin}"
    if report.cause:
        yield f"cause: {report.cause}"
    yield from report.notes
    if report.verdict.name != "DIFFERS" and proof.made.get("by") == "draw":
        yield power(proof)
    yield f"versions: {listed(report.versions)}"


def listed(values: Mapping[str, Any]) -> str:
    """Returns a line of names and values."""
    return ", ".join(f"{name}={value}" for name, value in values.items())


def power(proof: Any) -> str:
    """Returns a line: how many small changes of the rule a proof notices."""
    counts = {kind: tuple(each) for kind, each in proof.made.get("power", {}).items()}
    if "all" not in counts:
        return "power: not measured, so another formula may be EQUAL, too"
    total = "{} of {}".format(*counts.pop("all"))
    missed = [f"{kind} ({one} of {of})" for kind, (one, of) in counts.items() if one < of]
    but = f"; not all of {', '.join(missed)}" if missed else ""
    return f"power: it notices {total} changes of the rule{but}"
