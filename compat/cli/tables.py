"""Plain-text tables, and a progress bar for terminals.

Names in tables contain no control characters. On a terminal, headings and some words have colours,
and long texts in the last column are wrapped.
"""

from __future__ import annotations

import contextlib
import functools
import shutil
import textwrap
from typing import (
    Any,
    Callable,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Sequence,
    TextIO,
    Tuple,
    Union,
)

from ..plain_text import printable
from . import colours

NARROWEST = 30  # characters of a wrapped column
INDENT = "    "  # of texts below their rows


class Table(NamedTuple):
    """A table of text cells."""

    columns: Tuple[str, ...]  # the headings; ">" at the beginning right-aligns the column
    rows: List[Tuple[str, ...]]  # one string per column


def show(blocks: Iterable[Union[str, Table]], stream: TextIO):
    """Prints lines of text (strings without line breaks) and tables."""
    for block in blocks:
        if isinstance(block, Table):
            rows = [[printable(cell, stream) for cell in row] for row in block.rows]
            columns = shutil.get_terminal_size().columns or 80
            width = columns if stream.isatty() else None
            paint = functools.partial(colours.painted, stream=stream)
            print("\n".join(lines(block._replace(rows=rows), width, paint)), file=stream)
        else:
            print(printable(block, stream), file=stream)


def lines(
    table: Table,
    width: Optional[int] = None,
    paint: Callable[[str, Optional[str]], str] = lambda text, colour: text,
) -> Iterator[str]:
    """Yields the lines of a table, with aligned columns.

    If the table is wider than `width`, which may be None, texts of the last column are wrapped. If
    this column would become too narrow, its texts stand below the rows. `paint(text, colour)`
    returns the text with the codes of the colour.
    """
    headings = [heading.lstrip(">") for heading in table.columns]
    right_aligned = [heading.startswith(">") for heading in table.columns]
    widths = [max(map(len, column)) for column in zip(headings, *table.rows)]
    room = widths[-1] if width is None else width - sum(each + 2 for each in widths[:-1])
    is_below = len(headings) > 1 and room < min(widths[-1], NARROWEST)
    if is_below:
        headings = headings[:-1]
        room = max(width - len(INDENT), 1)
    else:
        room = min(widths[-1], max(room, 1))
        widths[-1] = room

    def line(cells: Sequence[str], colour: Optional[str] = None) -> str:
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, widths, right_aligned)
        ]
        cells[-1] = cells[-1].rstrip()  # before painting: padding must have no colour
        return "  ".join(
            paint(x, colour or colours.OF_CELLS.get(x.strip())) for x in cells
        ).rstrip()

    yield line(headings, "bold")
    yield line(["-" * width for width in widths[: len(headings)]])
    for *cells, text in table.rows:
        parts = textwrap.wrap(text, room, break_on_hyphens=False) if len(text) > room else [text]
        if is_below:
            yield line(cells)
            yield from (INDENT + part for part in parts if part)
        else:
            yield line([*cells, parts[0]])
            yield from (line([""] * len(cells) + [part]) for part in parts[1:])


@contextlib.contextmanager
def progress(
    label: str, total: int, stream: TextIO, unit: str = "B"
) -> Iterator[Callable[[int], Any]]:
    """Shows progress if `stream` is a terminal: a bar of tqdm, or a line if it is not installed.

    The scope gets a function that advances the bar by a number of units. `total` is the number of
    units. `unit` is the name of the unit: "B" for bytes, or a space and a word.
    """
    if not stream.isatty():
        yield lambda count: None
        return
    tqdm = _tqdm()
    if tqdm is None:
        with _line_of_progress(label, total, stream, unit) as advance:
            yield advance
        return
    with tqdm(desc=label, total=total, file=stream, unit=unit, unit_scale=True) as bar:
        yield bar.update


@contextlib.contextmanager
def _line_of_progress(
    label: str, total: int, stream: TextIO, unit: str
) -> Iterator[Callable[[int], None]]:
    """Shows the progress on one line, which is removed at the end."""
    done = 0

    def advance(count: int):
        nonlocal done
        done += count
        if unit == "B":
            text = f"{label}: {done * 100 // max(total, 1)} %"
        else:
            text = f"{label}: {done} of {total}{unit}"
        stream.write("\r" + text)
        stream.flush()

    try:
        yield advance
    finally:
        stream.write("\r\x1b[K")
        stream.flush()


def _tqdm() -> Any:
    """Returns the class `tqdm.tqdm`, or None if tqdm is not installed."""
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    return tqdm
