"""`legacy-opt audit`: every optimizer use of a code base, and what replaces it."""

from .. import plain_text
from . import tables, terminal

_DESCRIPTION = """\
Lists, line by line, every use of an optimizer in Python files and notebooks: what replaces it, and
what needs manual work. Nothing of it is run, and TensorFlow is not needed.
"""
_EPILOG = """\
example: legacy-opt audit training models/wide_and_deep.py

exit codes: 0; 1, something needs manual work; 2, there is no such path, or no Python below it
"""
_TO_DO = {"stays": "stays", "change": "change", "manual": "MANUAL"}


def add_command(commands):
    """Adds `audit` to the command line."""
    parser = terminal.add_parser(
        commands,
        "audit",
        "list the optimizers that code uses, and what replaces them",
        _DESCRIPTION,
        _EPILOG,
    )
    parser.add_argument(
        "paths", metavar="PATH", nargs="+", help="a file, or a folder with Python files below it"
    )
    parser.set_defaults(
        run=lambda arguments: terminal.run("audit", work, arguments, with_tensorflow=False)
    )


def work(arguments, screen):
    """Audits; returns an `Outcome`."""
    del screen
    from ..source_analysis.optimizer_uses import audit

    uses, files = audit(arguments.paths)
    counts = {key: sum(use.status == key for use in uses) for key in _TO_DO}
    facts = {
        "paths": arguments.paths,
        "files": files,
        "counts": counts,
        "uses": [use._asdict() for use in uses],
    }
    code = terminal.NEEDS_A_PERSON if counts["manual"] else terminal.FINE
    return terminal.Outcome(code, facts, tuple(_blocks(uses, files, counts)))


def _blocks(uses, files, counts):
    if uses:
        rows = [
            (
                f"{use.path}:{use.line}:{use.column}",
                use.kind,
                use.name,
                _TO_DO[use.status],
                _what(use),
            )
            for use in uses
        ]
        yield tables.Table(("where", "use", "of", "to do", "what"), rows)
        yield ""
    yield (
        f"{plain_text.counted(len(uses), 'use')} in {plain_text.counted(files, 'file')}: "
        f"{counts['stays']} stay, {counts['change']} to change, {counts['manual']} manual"
    )


def _what(use):
    instead = f"{use.instead}." if use.instead and use.advice else use.instead
    return " ".join(part for part in (instead, use.advice) if part)
