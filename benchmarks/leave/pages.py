"""Writes the results of `make bench-leave` for the picture of the gallery and for docs/native.md.

python -m benchmarks.leave.pages TORCH.json JAX.json
"""

import json
import sys
from pathlib import Path

import lanes
from benchmarks.gallery.files import read, write
from benchmarks.leave.cases import LIBRARIES

PAGE = "docs/native.md"
NAME = "leave_speed"  # of the data and of the markers of the tables


def collected(reports):
    """Returns the data of the picture.

    Args:
      reports: a dict from the name of a library to the report that `report.save_json` has written.
    """
    data = {
        "what": "medians of the ratios of two steps of the same round, right after an operation of "
        "the library, and after 30 ms of rest; the optimizer alone (`make bench-leave`)"
    }
    for library, report in reports.items():
        found = {}
        for each in report["results"]:
            row = found.setdefault((each["workload"], each["optimizer"], each["compared_with"]), [])
            row.append(round(each["ratio"]["median"], 3))
        rows = [[*names, *ratios] for names, ratios in found.items()]
        data[library] = {"environment": report["environment"], "rows": rows}
    return data


def table(data, library):
    """Returns the lines of a table of ratios, below a line that says what was measured."""
    facts = data[library]["environment"]
    versions = [f"{name} {facts[name]}" for name in ("torch", "jax", "optax") if name in facts]
    lines = [
        f"{LIBRARIES[library]} ({', '.join(versions)}; {facts['threads']} threads; {facts['cpu']}; "
        f"load {facts['load']:.1f}; {facts['date'][:10]}):",
        "",
        "| variables | optimizer | ratio to | after an operation | after 30 ms |",
        "|---|---|---|---|---|",
    ]
    for case, one, other, *ratios in data[library]["rows"]:
        lines.append("| " + " | ".join([case, one, other, *map(_short, ratios)]) + " |")
    return "\n".join(lines)


def _short(ratio):
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"


def main(paths):
    """Writes the data and the tables."""
    reports = [json.loads(Path(path).read_text(encoding="utf-8")) for path in paths]
    write(NAME, collected(dict(zip(LIBRARIES, reports))))
    for library in LIBRARIES:
        marker = f"{NAME}_{library}"
        lanes.write_page(PAGE, marker=marker, lines=table(read(NAME), library))


if __name__ == "__main__":
    main(sys.argv[1:])
