"""`legacy-opt build-kernels`: compiles native kernels, and the operations that run them."""

from __future__ import annotations

import argparse
import contextlib
from typing import TextIO

from . import tables, terminal

_DESCRIPTION = """\
Compiles the operations that run native kernels, for the installed TensorFlow, and the kernels of
the optimizers of legacy_opt for float32 variables. This needs a C and a C++ compiler and takes 10
to 20 seconds. Other kernels are compiled when an optimizer with native="auto" or native="require"
first needs them.
"""
_EPILOG = """\
exit codes: 0, success; 2, a compiler is missing or fails, or the folder of kernels cannot be used
"""


def add_command(commands: terminal.Commands):
    """Adds `build-kernels` to the command line."""
    terminal.add_parser(
        commands, "build-kernels", "compile native kernels", _DESCRIPTION, _EPILOG, execute
    )


def execute(arguments: argparse.Namespace, screen: TextIO) -> terminal.Outcome:
    """Compiles everything, and returns an `Outcome`."""
    from legacy_opt.native.runtime import cache, standalone, tensorflow_operations
    from legacy_opt.programs.program import UnsupportedError

    from . import native_diagnosis

    sources = []
    for cls in native_diagnosis.classes():
        with contextlib.suppress(UnsupportedError):  # `legacy-opt doctor` names the reason
            sources += native_diagnosis.sources(cls)
    sources = list(dict.fromkeys(sources))  # some optimizers share kernels
    path = str(tensorflow_operations.build())
    standalone.build()  # checks kernels before they are used
    keys = set()
    with tables.progress("build-kernels", len(sources), screen, unit=" kernels") as advance:
        for source in sources:
            key, _ = cache.load(source)
            keys.add(key)
            advance(1)
    facts = {"operations": path, "kernels": len(keys)}
    return terminal.Outcome(terminal.SUCCESS, facts, (path, f"{len(keys)} kernels"))
