"""Prints the reports of `legacy-opt prove`."""

from __future__ import annotations

import math
from typing import Any, Dict, List, Mapping, Tuple

from . import terminal


def outcome(target: str, found: Mapping[str, Tuple[Any, Any]]) -> terminal.Outcome:
    """Returns the outcome of replays: pairs of a `Proof` and its `Report`, by optimizers."""
    facts: List[Dict[str, Any]] = []
    lines: List[str] = []
    code = terminal.SUCCESS
    for optimizer, (proof, report) in found.items():
        verdict = report.verdict
        facts.append({"target": target, "optimizer": optimizer, "rule": proof.record.optimizer})
        facts[-1].update(verdict=verdict.name, notes=report.notes, versions=report.versions)
        facts[-1].update(origin=report.origin, cause=report.cause, made=proof.made)
        if verdict.name != "EQUAL":
            ratio, step, variable = verdict.place
            ratio = ratio if math.isfinite(ratio) else None  # JSON has no infinity
            facts[-1].update(step=step, variable=variable, error_bars=ratio)
        lines.append(f"{target}, {optimizer}: {verdict}")
        lines += [f"what differs first: the {report.origin}"] if report.origin else []
        lines += [f"cause: {report.cause}"] if report.cause else []
        lines += report.notes
        if verdict.name == "DIFFERS":
            code = terminal.MANUAL_WORK
        elif proof.made.get("by") == "draw":
            lines.append(power(proof))
        lines.append(f"versions: {listed(report.versions)}")
    return terminal.Outcome(code, facts[0] if len(facts) == 1 else {"reports": facts}, (*lines,))


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
