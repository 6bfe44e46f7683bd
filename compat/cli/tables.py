"""Plain-text tables, and a progress bar for terminals.

Tables contain no control characters, so that terminals, files, pipes and logs get the same text.
"""

import contextlib
from typing import NamedTuple

from ..plain_text import printable


class Table(NamedTuple):
    """A table of text cells.

    Attributes:
      columns: a tuple of column headings; a heading that begins with ">" right-aligns its column.
      rows: a list of tuples of strings, one string per column.
      title: the line above the table, or "".
    """

    columns: tuple
    rows: list
    title: str = ""


def show(blocks, stream):
    """Prints lines of text and tables.

    Args:
      blocks: an iterable of `Table` objects and of strings without line breaks.
      stream: the file to print to.
    """
    for block in blocks:
        if isinstance(block, Table):
            rows = [[printable(cell, stream) for cell in row] for row in block.rows]
            print("\n".join(plain_lines(block._replace(rows=rows))), file=stream)
        else:
            print(printable(block, stream), file=stream)


def plain_lines(table):
    """Yields the lines of a table, with aligned columns."""
    headings = [heading.lstrip(">") for heading in table.columns]
    widths = [max(map(len, column)) for column in zip(headings, *table.rows)]
    right_aligned = [heading.startswith(">") for heading in table.columns]
    if table.title:
        yield table.title
    for row in [headings, ["-" * width for width in widths]] + list(table.rows):
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, right_aligned)
        ]
        yield "  ".join(cells).rstrip()


@contextlib.contextmanager
def progress(label, total, stream, unit="B"):
    """Shows a progress bar if `stream` is a terminal and tqdm is installed.

    Args:
      label: the name of the work.
      total: the number of units to process.
      stream: the file to print to.
      unit: the name of the unit; by default, a byte.

    Yields:
      A function that advances the bar by a number of units.
    """
    tqdm = _tqdm() if stream.isatty() else None
    if tqdm is None:
        yield lambda count: None
        return
    with tqdm(desc=label, total=total, file=stream, unit=unit, unit_scale=True) as bar:
        yield bar.update


def _tqdm():
    """Returns the class `tqdm.tqdm`, or None if tqdm is not installed."""
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    return tqdm
