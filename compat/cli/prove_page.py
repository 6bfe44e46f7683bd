"""A report of `legacy-opt prove` as one page of HTML, which loads nothing else."""

from __future__ import annotations

import html
import math
from typing import Any, List, Mapping, Sequence, Tuple

from legacy_opt.durable_files import replaced
from legacy_opt.proofs import BOUND, DIFFERS, EQUAL, ROUNDING, Report

from ..plain_text import counted, printable
from .prove_report import listed, power

_SHOWN = 20  # variables of a table; the others are folded
_DRAWN = 4  # variables with a curve, the worst ones
_FLOOR = 0.01  # error bars; smaller errors are drawn here
_SENTENCES = {  # the best verdict first
    EQUAL: "All compared values are the same, bit for bit.",
    ROUNDING: "The formula is the same; some last digits differ.",
    DIFFERS: "{} differs from step {} on, first in {}.",
}
_ORIGINS = {
    "gradient": "The gradient differs first: another model, other inputs or another loss.",
    "optimizer": "The optimizer differs: it gets the same gradients.",
}
# The colours can be seen on white and on black.
_PAGE = """\
<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<style>
:root {{ color-scheme: light dark; font: 1rem/1.5 system-ui, sans-serif }}
body {{ margin: auto; max-width: 54rem; padding: 1rem; overflow-wrap: anywhere }}
h1, h2 {{ font-size: 1.3rem; margin-top: 2.5rem }} h3 {{ font-size: 1rem }} figure {{ margin: 0 }}
.EQUAL, .ROUNDING, .DIFFERS {{ border-left: .4rem solid #2a8c46; padding-left: .8rem }}
.ROUNDING {{ border-color: #2f7de1 }} .DIFFERS {{ border-color: #d93f4c }}
dt, figcaption, text {{ opacity: .75 }} dd {{ margin: 0 0 .5rem }} ul {{ padding-left: 1rem }}
.box {{ overflow-x: auto }} table {{ border-collapse: collapse; width: 100%; min-width: 30rem }}
th, td {{ border-bottom: 1px solid #8888; padding: .3rem .8rem .3rem 0; text-align: right }}
th:first-child {{ text-align: left; min-width: 10rem }} tbody th {{ font-weight: normal }}
td, thead th {{ overflow-wrap: normal }} figcaption li {{ display: flex; align-items: center }}
.plot {{ padding: 0 1rem 2rem 4rem }} svg {{ overflow: visible; width: 100% }}
li svg {{ flex: none; width: 3rem; margin-right: .5rem }} line {{ stroke: #8888 }}
text {{ fill: currentColor; font-size: .8rem }}
path {{ fill: none; stroke: #2f7de1; stroke-width: 2; vector-effect: non-scaling-stroke }}
.recorded {{ stroke-width: 5 }} .k1, .replayed {{ stroke: #c4620a; stroke-dasharray: 8 4 }}
.k2 {{ stroke: #2a8c46; stroke-dasharray: 2 4 }} .bound {{ stroke: #d93f4c }}
.k3 {{ stroke: #9a6be0; stroke-dasharray: 9 4 2 4 }}
</style></head><body><main><h1>{title}</h1>
<p class="{name}"><strong>{name}</strong>: {sentence}</p>
<h2>What was compared</h2><dl>{facts}</dl>
{sections}
<h2>What it does not tell</h2>{limits}
</main></body></html>
"""
_FIGURE = """\
<figure><h3>{title}</h3><div class="plot"><svg height="220" role="img">
<title>{title}</title><desc>{about}</desc>{axes}
<svg height="100%" viewBox="0 0 100 100" preserveAspectRatio="none">{paths}</svg></svg></div>
<figcaption>{about}<ul>{keys}</ul></figcaption></figure>
"""
_KEY = '<li><svg aria-hidden="true" height="12"><path class="{}" d="M0,6 H44"/></svg>{}</li>'
Found = Mapping[str, Tuple[Any, Report]]  # pairs of a `Proof` and its report, by optimizers
_Curve = Tuple[str, str, Mapping[int, float]]  # a style, a name, and values by step


def write(path: str, facts: Mapping[str, str], found: Found, made: Mapping[str, Any]):
    """Writes a page into a file, which is complete or not written; see `page`."""
    with replaced(path) as temporary:
        temporary.write_text(page(facts, found, made), encoding="utf-8")


def page(facts: Mapping[str, str], found: Found, made: Mapping[str, Any]) -> str:
    """Returns reports as HTML: `facts` are what was compared, `made` how the file was made."""
    worst = max(found, key=lambda each: list(_SENTENCES).index(found[each][1].verdict.name))
    name, (_, step, variable) = found[worst][1].verdict.name, found[worst][1].verdict.place
    steps = max(len(proof.hyperparameters) for proof, _ in found.values())
    versions = {
        name: each for _, report in found.values() for name, each in report.versions.items()
    }
    rows = {
        **facts,
        "recorded": made.get("command"),
        "recorded with": made.get("versions"),
        "steps": steps,
        "replayed with": versions,
    }
    source = "Gradients come from the file: the model that computes them was not compared."
    if any(report.losses for _, report in found.values()):
        source = "Inputs come from the file: the program that reads the data was not compared."
    limits = [
        source,
        f"Steps after step {steps}, other inputs and several processes were not compared.",
        *(power(proof) for proof, _ in found.values() if made.get("by") == "draw"),
        *(made.get("left_out") or ()),
    ]
    return _PAGE.format(
        title=_text(", ".join(facts.values())),
        name=name,
        sentence=_SENTENCES[name].format(_text(worst), step, _text(variable)),
        facts="".join(f"<dt>{x}</dt><dd>{_text(rows[x])}</dd>" for x in rows if rows[x]),
        sections="\n".join(_section(each, report) for each, (_, report) in found.items()),
        limits=_items(limits),
    )


def _text(value: Any) -> str:
    """Returns a part of a file or a text of a user, which may contain anything, for HTML."""
    if isinstance(value, dict):
        value = listed(value)
    elif isinstance(value, list):
        value = " ".join(map(str, value))
    return html.escape(printable(f"{value}"))


def _items(texts: Sequence[Any]) -> str:
    return f"<ul>{''.join(f'<li>{_text(each)}</li>' for each in texts)}</ul>"


def _section(name: str, report: Report) -> str:
    texts = [_ORIGINS.get(report.origin), report.cause and f"Cause: {report.cause}."]
    lines = [f"<h2>{_text(name)}</h2><p><strong>{_text(report.verdict)}</strong></p>"]
    lines += [f"<p>{_text(each)}</p>" for each in texts if each]
    return "\n".join([*lines, _items(report.notes), _variables(report), _losses(report)])


def _variables(report: Report) -> str:
    """Returns a table and a plot of variables, the worst first."""
    found = sorted(
        (min((s for s in steps if steps[s] > BOUND), default=math.inf), -max(steps.values()), name)
        for name, steps in report.drift.items()
        if steps
    )
    if not found:
        return ""
    rows, whole = [], report.verdict
    for first, negative, name in found:
        verdict = EQUAL if whole.name == EQUAL else DIFFERS if first < math.inf else ROUNDING
        if verdict != whole.name == DIFFERS and name == whole.place.variable:
            verdict = f"{DIFFERS} in float64"
        cells = f"<td>{verdict}</td><td>{first if first < math.inf else 'none'}</td>"
        cells += f"<td>{-negative:.3g}</td>"
        rows.append(f'<tr><th scope="row">{_text(name)}</th>{cells}</tr>')
    table = _table(rows[:_SHOWN])
    if rows[_SHOWN:]:
        more = counted(len(rows) - _SHOWN, "more variable")
        table += f"<details><summary>{more}</summary>{_table(rows[_SHOWN:])}</details>"
    curves: List[_Curve] = [
        (f"k{i}", name, report.drift[name]) for i, (*_, name) in enumerate(found[:_DRAWN])
    ]
    bound = {step: BOUND for _, _, curve in curves for step in curve}
    curves.append(("bound", f"bound of rounding: {BOUND:g}", bound))
    about = f"Errors of variables in error bars (log scale), by step; up to {BOUND:g} is rounding."
    return f"<h3>Variables</h3>{table}{_plot('Drift', about, curves, is_log=True)}"


def _table(rows: Sequence[str]) -> str:
    names = "variable", "verdict", f"first step over {BOUND:g}", "largest error, in error bars"
    head = "".join(f'<th scope="col">{each}</th>' for each in names)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return f'<div class="box" role="group" aria-label="Variables" tabindex="0">{table}</div>'


def _losses(report: Report) -> str:
    if not report.losses:
        return ""
    one, other = (
        {step: x for step, x in enumerate(losses, start=1) if abs(x) < 1e300}
        for losses in report.losses
    )
    apart, step = max(((abs(one[s] - other[s]), s) for s in one if s in other), default=(0, 0))
    found = f"The largest difference is {apart:.3g}, in step {step}."
    about = f"The loss, by step. {found if apart else 'All losses are equal.'}"
    curves = [("recorded", "recorded", one), ("replayed", "replayed", other)]
    return _plot("Loss", about, curves, is_log=False)


def _plot(title: str, about: str, curves: Sequence[_Curve], is_log: bool) -> str:
    """Returns a figure, or nothing for fewer than two steps."""
    steps = sorted({step for _, _, curve in curves for step in curve})
    if len(steps) < 2:
        return ""

    def scaled(value: float) -> float:
        return math.log10(max(value, _FLOOR)) if is_log else value

    values = [scaled(x) for _, _, curve in curves for x in curve.values() if x < math.inf]
    low, high = min(values + [0.0] * is_log), max(values)  # one error bar at least
    margin = (high - low) / 20 or abs(high) / 20 or 1.0
    low, high = low - margin, high + margin

    def x(step: int) -> str:
        return f"{(step - steps[0]) / (steps[-1] - steps[0]) * 100:.2f}"

    def y(value: float) -> str:
        return f"{(high - min(value, high)) / (high - low) * 100:.2f}"

    axes = '<text y="100%" dy="1.4em" x="-8" text-anchor="end">step</text>'
    for step in sorted({steps[0], steps[len(steps) // 2], steps[-1]}):
        axes += f'<text x="{x(step)}%" y="100%" dy="1.4em" text-anchor="middle">{step}</text>'
    unit = 10.0 ** math.floor(math.log10((high - low) / 6))
    unit *= next(k for k in (1, 2, 5, 10, 20) if unit * k >= max((high - low) / 6, is_log))
    for i in range(math.ceil(low / unit), math.floor(high / unit) + 1):  # two to six round numbers
        at, label = f"{y(unit * i)}%", 10.0 ** (unit * i) if is_log else unit * i
        axes += f'<line x2="100%" y1="{at}" y2="{at}"/>'
        axes += f'<text x="-8" y="{at}" dy=".3em" text-anchor="end">{label:.6g}</text>'
    paths = ""
    for style, _, curve in curves:
        points = " ".join(f"{x(step)},{y(scaled(curve[step]))}" for step in sorted(curve))
        paths += f'<path class="{style}" d="M{points}"/>'
    keys = "".join(_KEY.format(style, _text(name)) for style, name, _ in curves)
    return _FIGURE.format(title=title, about=about, axes=axes, paths=paths, keys=keys)
