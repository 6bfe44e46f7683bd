"""Reads recorded rules, and checks everything that a target relies on.

A record is data, never code: a target interprets the nodes one by one.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Dict, Union

from legacy_opt.recorded.reading.checks import Reader, shown
from legacy_opt.recorded.records import FORMAT, VERSION, Record, RecordError

MOST_BYTES = 4 << 20  # so that a damaged or hostile file costs little time and memory


def catalogue() -> Dict[str, Path]:
    """Returns the records in this package: a dict from names of optimizers to files."""
    folder = Path(__file__).parents[1] / "rules"
    return {path.stem: path for path in sorted(folder.glob("*.json"))}


def load(source: Union[str, os.PathLike]) -> Record:
    """Reads a record.

    Args:
      source: the path of a file, or the name of an optimizer of the catalogue.

    Raises:
      RecordError: the file cannot be read, or is not a record that this version knows.
    """
    known = catalogue()
    path = Path(known.get(str(source), source))
    try:
        if not path.is_file():
            raise RecordError(
                f"{str(source)!r} is neither a file nor a recorded optimizer: {', '.join(known)}"
            )
        with open(str(path), "rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise RecordError(f"{str(source)!r} cannot be read: {error}") from error
    try:
        return loads(content)
    except RecordError as error:
        raise RecordError(f"{str(source)!r}: {error}") from error


def loads(text: Union[str, bytes]) -> Record:
    """Reads a record from JSON; see `load`."""
    if len(text) > MOST_BYTES:
        raise RecordError(f"a record has at most {MOST_BYTES} bytes")
    try:
        document = json.loads(text if isinstance(text, str) else text.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise RecordError(f"not a record: {type(error).__name__}: {error}"[:300]) from error
    return _record(document)


def _record(document: Any) -> Record:
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise RecordError(f"not a record: there is no format {FORMAT!r}")
    version = document.get("version")
    if version != VERSION:
        raise RecordError(
            f"version {shown(version)} of the format is not known: this legacy_opt reads "
            f"version {VERSION}. Record the optimizer again"
        )
    fields = {name: each for name, each in document.items() if name not in ("format", "version")}
    return Reader().read(Record, fields)
