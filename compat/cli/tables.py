"""Tables and progress bars: those of rich on a terminal, where it is installed; else plain text.

Plain text is complete and without control characters: for files, pipes and logs.
"""

import contextlib
from typing import NamedTuple

from ..plain_text import printable, size


class Table(NamedTuple):
    """Rows of text.

    Attributes:
      columns: a tuple of headings; one that begins with ">" heads numbers, which go to the right.
      rows: a list of tuples of strings, as many as there are columns.
      title: what stands above, or "".
    """

    columns: tuple
    rows: list
    title: str = ""


def show(blocks, stream):
    """Prints lines of text and tables.

    Args:
      blocks: strings, each of which is a line, and `Table`s.
      stream: the file to print to.
    """
    rich = _rich(stream)
    for block in blocks:
        if isinstance(block, str):
            print(printable(block, stream), file=stream)
            continue
        block = block._replace(rows=[[printable(c, stream) for c in row] for row in block.rows])
        if rich is None:
            print("\n".join(plain_lines(block)), file=stream)
        else:
            _show_with_rich(block, stream)


def plain_lines(table):
    """Yields the lines of a table, aligned."""
    headings = [heading.lstrip(">") for heading in table.columns]
    widths = [max(map(len, column)) for column in zip(headings, *table.rows)]
    to_the_right = [heading.startswith(">") for heading in table.columns]
    if table.title:
        yield table.title
    for row in [headings, ["-" * width for width in widths]] + list(table.rows):
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, to_the_right)
        ]
        yield "  ".join(cells).rstrip()


def _rich(stream):
    """Returns rich, or None where it is not installed or `stream` is no terminal."""
    if not stream.isatty():
        return None
    try:
        import rich
    except ImportError:
        return None
    return rich


def _show_with_rich(table, stream):
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = RichTable(title=table.title or None, box=box.SIMPLE_HEAD, title_justify="left")
    for heading in table.columns:
        justify = "right" if heading.startswith(">") else "left"
        shown.add_column(Text(heading.lstrip(">")), justify=justify, overflow="fold")
    for row in table.rows:
        shown.add_row(*map(Text, row))  # names may hold what rich takes for markup
    Console(file=stream).print(shown)


@contextlib.contextmanager
def progress(label, total, stream):
    """Shows on a terminal how far some work has come; elsewhere nothing.

    Args:
      label: what is being done.
      total: how many bytes there are to do.
      stream: the terminal.

    Yields:
      A function to be called with the number of bytes that have just been done.
    """
    if not stream.isatty():
        yield lambda count: None
    elif _rich(stream) is None:
        yield _PlainProgress(label, total, stream).advance
    else:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        columns = [TextColumn("{task.description}"), BarColumn(), DownloadColumn()]
        console = Console(file=stream)
        shown = Progress(
            *columns,
            TimeRemainingColumn(),
            console=console,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        with shown:
            task = shown.add_task(label, total=total)
            yield lambda count: shown.advance(task, count)


class _PlainProgress:
    """Prints a line at each tenth."""

    def __init__(self, label, total, stream):
        self._label, self._total, self._stream = label, max(total, 1), stream
        self._done, self._told = 0, 0

    def advance(self, count):
        self._done += count
        tenth = 10 * self._done // self._total
        if tenth > self._told:
            self._told = tenth
            amount = f"{10 * tenth} % of {size(self._total)}"
            print(f"{self._label}: {amount}", file=self._stream, flush=True)
