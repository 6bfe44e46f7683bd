"""Writes the tables of docs/conformance.md: python -m benchmarks.conformance.page."""

import json

from benchmarks.conformance.cases import FAMILIES
from benchmarks.conformance.places import PLACES
from tests.support.pages import table, with_part
from tests.support.paths import DOCS

PAGE = DOCS / "conformance.md"
DATA = DOCS / "data" / "conformance"


def cell(found):
    """Returns a verdict as text."""
    verdict = found["verdict"]
    if verdict == "DIFFERS":
        return f"step {found['step']}, `{found['variable']}`"
    return {"EQUAL": "**same**", "ROUNDING": "**rounding**", "ERROR": "cannot be judged"}[verdict]


def family(name, results):
    """Returns the part of the page about a family of rules."""
    rules = FAMILIES[name].rules
    found = {}  # {an optimizer and its verdicts: {library: its versions}}
    for each in results:
        if each["family"] == name:
            verdicts = tuple(cell(each["verdicts"][column]) for column in rules)
            versions = found.setdefault((call(each, verdicts), verdicts), {})
            version = each["version"].partition("+")[0]
            versions.setdefault(each["label"], {})[version] = None  # an ordered set
    rows = [
        [", ".join(f"{label} {' and '.join(x)}" for label, x in versions.items()), text, *verdicts]
        for (text, verdicts), versions in found.items()
    ]
    about = "".join(f"* **{column}**: {rule.about}\n" for column, rule in rules.items())
    rows.sort()
    return f"## {name}\n\n{about}\n{table(['library', 'optimizer', *rules], rows)}"


def call(each, verdicts):
    """Returns how an optimizer was called, with its note if it has none of the rules."""
    text = f"`{each['name'].rpartition(':')[2]}`"
    if each["mapping"]:
        text += f" with {', '.join(f'`{x}`' for x in each['mapping'].split())}"
    if each["note"] and not {"**same**", "**rounding**"}.intersection(verdicts):
        text += f": {each['note']}"
    return text


def page(text):
    """Returns the page's text with new tables, from the files that run.py wrote."""
    paths = [DATA / f"{name}.json" for name in PLACES]
    results = [each for path in paths for each in json.loads(path.read_text("utf-8"))]
    count = sum(len(each["verdicts"]) for each in results)
    tables = "\n".join(family(name, results) for name in FAMILIES)
    newest = max(each["date"] for each in results)
    return with_part(text, "tables", f"From {count} replays, until {newest}.\n\n{tables}")


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), encoding="utf-8")
