"""`legacy-opt audit`: lists uses of optimizers and removed names in source code, with advice."""

from __future__ import annotations

import argparse
from typing import Any, Dict, Iterator, List, TextIO, Union

from .. import plain_text
from . import tables, terminal

_DESCRIPTION = """\
Lists every use of an optimizer, of tf.contrib and of other names that TensorFlow 2 has removed, in
Python files and notebooks, and says whether the use can stay, what replaces it, or that it needs
manual work. The code is read, not run; TensorFlow is not needed.
"""
_EPILOG = """\
example: legacy-opt audit training models/wide_and_deep.py

exit codes: 0, success; 1, something needs manual work; 2, no such path, or no Python code in it
"""
_TO_DO = {"stays": "stays", "change": "change", "manual": "MANUAL"}


def add_command(commands: terminal.Commands):
    """Adds `audit` to the command line."""
    summary = "list the optimizers and removed names that code uses, and their replacements"
    parser = terminal.add_parser(commands, "audit", summary, _DESCRIPTION, _EPILOG, execute)
    parser.add_argument(
        "paths", metavar="PATH", nargs="+", help="a Python file, a notebook, or a folder of these"
    )


def execute(arguments: argparse.Namespace, screen: TextIO) -> terminal.Outcome:
    """Audits the given paths and returns an `Outcome`."""
    from ..old_programs.source_analysis.optimizer_uses import audit

    uses, files = audit(arguments.paths)
    counts = {key: sum(use.status == key for use in uses) for key in _TO_DO}
    facts = {
        "paths": arguments.paths,
        "files": files,
        "counts": counts,
        "uses": [use._asdict() for use in uses],
    }
    code = terminal.MANUAL_WORK if counts["manual"] else terminal.SUCCESS
    return terminal.Outcome(code, facts, tuple(_blocks(uses, files, counts)))


def _blocks(
    uses: List[Any], files: int, counts: Dict[str, int]
) -> Iterator[Union[str, tables.Table]]:
    if uses:
        rows = []
        for use in uses:
            location = f"{use.path}:{use.line}:{use.column}"
            rows.append((location, use.kind, use.name, _TO_DO[use.status], _advice(use)))
        yield tables.Table(("location", "kind", "name", "action", "advice"), rows)
        yield ""
    total = f"{plain_text.counted(len(uses), 'use')} in {plain_text.counted(files, 'file')}"
    sums = f"{counts['stays']} stay, {counts['change']} to change, {counts['manual']} manual"
    yield f"{total}: {sums}"


def _advice(use: Any) -> str:
    """Returns the replacement and the advice: two sentences, one of both, or nothing."""
    if use.instead and use.advice:
        return f"{use.instead}. {use.advice}"
    return use.instead or use.advice or ""
