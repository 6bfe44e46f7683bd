"""Trains a script again with the start and the inputs of a recorded run, in other processes."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Callable, List, Sequence

from legacy_opt import proofs
from legacy_opt.recorded.proofs.proof import ProofError, Run


def trained(path: str, words: Sequence[str], advance: Callable[[int], Any]) -> List[Run]:
    """Trains as recorded in a file, and twice with moved starts; see `compare_runs`.

    Args:
      path: the file of the recorded run.
      words: the script and its arguments, after options of `legacy-opt run`.
      advance: is called with 1 after each training.

    Raises:
      ProofError: a training failed, or trained less.
    """
    runs = []
    command = [sys.executable, "-m", "legacy_opt", "prove", "record", "--replay", path]
    with tempfile.TemporaryDirectory() as folder:
        for seed in "", "1", "2":
            out = Path(folder) / f"{seed}.run"
            done = subprocess.run(
                [*command, seed, "--out", str(out), *words],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                universal_newlines=True,
            )
            if not out.exists():
                raise ProofError(_reason(done.stdout))
            runs.append(proofs.read_run(out))
            advance(1)
    return runs


def _reason(output: str) -> str:
    """Returns why a script that printed some lines was not recorded."""
    lines = [each.strip() for each in output.splitlines() if each.strip()]
    for start in "legacy-opt prove replay: ", "legacy-opt run: ":
        for each in lines:
            if each.startswith(start):
                return each[len(start) :]
    return f"the training failed: {'; '.join(lines[-2:]) or 'it prints nothing'}"
