"""Silences TensorFlow's log output."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import warnings
from typing import Iterator, TextIO


@contextlib.contextmanager
def silence() -> Iterator[TextIO]:
    """Keeps TensorFlow's logs off the terminal, and yields a stream to the terminal's stderr."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.stderr.flush()
    stderr_copy = os.dup(2)
    with contextlib.ExitStack() as scopes:
        log = scopes.enter_context(tempfile.TemporaryFile())
        screen = scopes.enter_context(os.fdopen(os.dup(stderr_copy), "w"))
        scopes.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        # Text that TensorFlow prints to stdout would corrupt the output of --json.
        stdout = scopes.enter_context(open(os.devnull, "w"))
        scopes.enter_context(contextlib.redirect_stdout(stdout))
        os.dup2(log.fileno(), 2)
        try:
            yield screen
        finally:
            sys.stderr.flush()
            os.dup2(stderr_copy, 2)
            os.close(stderr_copy)
