"""Reads and writes the data of the pictures: one JSON file per picture."""

import json
import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "docs" / "data" / "gallery"
IMAGES = ROOT / "docs" / "images"


def write(name, data):
    """Writes the data of a picture; each list of numbers takes one line.

    Args:
      name: the file's name without its extension.
      data: a dict. Its value "what" says what was run.
    """
    DATA.mkdir(parents=True, exist_ok=True)
    path = DATA / (name + ".json")
    temporary = path.with_suffix(".new")
    temporary.write_text(_text(data, "\n") + "\n", encoding="utf-8")
    os.replace(str(temporary), str(path))
    print(f"Wrote {path}.")


def _text(value, line):
    inner = line + "  "
    if isinstance(value, dict):
        items = [f"{json.dumps(key)}: {_text(each, inner)}" for key, each in value.items()]
        return "{" + inner + ("," + inner).join(items) + line + "}"
    if isinstance(value, list) and any(isinstance(each, (dict, list)) for each in value):
        items = [_text(each, inner) for each in value]
        return "[" + inner + ("," + inner).join(items) + line + "]"
    return json.dumps(value)


def read(name):
    """Returns the data that `write` has written."""
    return json.loads((DATA / (name + ".json")).read_text(encoding="utf-8"))


def block_means(values, blocks):
    """Returns the means of `blocks` consecutive parts of an array, and the middles of the parts."""
    edges = [round(number * len(values) / blocks) for number in range(blocks + 1)]
    pairs = list(zip(edges, edges[1:]))
    means = [round(float(values[start:stop].mean()), 5) for start, stop in pairs]
    return means, [(start + stop) // 2 for start, stop in pairs]
