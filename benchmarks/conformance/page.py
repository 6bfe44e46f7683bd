"""Writes the tables of docs/conformance.md: python -m benchmarks.conformance.page FOLDER

FOLDER has the JSON files of run.py. Environments without a file are left out.
"""

import collections
import datetime
import json
import sys
from pathlib import Path

from benchmarks.conformance.cases import FAMILIES
from benchmarks.conformance.places import PLACES
from tests.support.pages import table, with_part
from tests.support.paths import DOCS

PAGE = DOCS / "conformance.md"


def cell(found):
    """Returns a verdict as text."""
    verdict = found["verdict"]
    if verdict == "DIFFERS":
        return f"another (step {found['step']}, `{found['variable']}`)"
    if verdict == "ERROR":
        return ":".join(found["why"].split(":")[:2])
    return {"EQUAL": "**same**", "ROUNDING": "**rounding**"}[verdict]


def family(name, results):
    """Returns the part of the page about a family of rules."""
    rules = FAMILIES[name].rules
    versions = collections.OrderedDict()
    for each in results:
        if each["family"] == name:
            call = f"`{each['name'].rpartition(':')[2]}`"
            if each["mapping"]:
                call = f"{call} with {', '.join(f'`{x}`' for x in each['mapping'].split())}"
            verdicts = tuple(cell(each["verdicts"][column]) for column in rules)
            key = call, verdicts, each["note"]
            versions.setdefault(key, []).append(f"{each['label']} {each['version']}")
    rows = []
    for (call, verdicts, note), found in versions.items():
        rows.append([", ".join(dict.fromkeys(found)), call + (f": {note}" if note else ""), *verdicts])
    about = "".join(f"* **{column}**: {rule.about}\n" for column, rule in rules.items())
    return f"## {name}\n\n{about}\n{table(['library', 'optimizer', *rules], rows)}"


def tables(results):
    """Returns all parts, and how many verdicts there are."""
    verdicts = [x["verdict"] for each in results for x in each["verdicts"].values()]
    counts = ", ".join(f"{verdicts.count(x)} {x}" for x in ("EQUAL", "ROUNDING", "DIFFERS"))
    text = f"{len(verdicts)} replays on {datetime.date.today()}: {counts}.\n\n"
    return text + "\n".join(family(name, results) for name in FAMILIES)


def read(folder):
    """Returns the results of all environments."""
    paths = [folder / f"{name}.json" for name in PLACES]
    return [x for path in paths if path.exists() for x in json.loads(path.read_text("utf-8"))]


if __name__ == "__main__":
    text = with_part(PAGE.read_text("utf-8"), "tables", tables(read(Path(sys.argv[1]))))
    PAGE.write_text(text, encoding="utf-8")
