"""Trains a script again with the start and the inputs of a recorded run, in other processes."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Callable, List, Sequence

from legacy_opt import proofs
from legacy_opt.recorded.proofs.proof import ProofError, Run

_SEEDS = "", "1", "2"  # the first training starts as recorded, the others with a moved start


def trained(path: str, words: Sequence[str], advance: Callable[[int], Any]) -> List[Run]:
    """Trains as recorded in a file, and with moved starts; see `compare_runs`.

    Args:
      path: the file of the recorded run.
      words: the script and its arguments, after options of `legacy-opt run`.
      advance: is called with 1 after each training.

    Raises:
      ProofError: a training failed, or trained less.
    """
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in _SEEDS:
            out = str(Path(folder) / f"{seed or 'same'}.run")
            command = [sys.executable, "-m", "legacy_opt", "prove", "record", "--out", out]
            process = subprocess.Popen(
                [*command, "--replay", path, seed, *words],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                universal_newlines=True,
            )
            output, _ = process.communicate()
            if not Path(out).exists():
                script = next(each for each in words if each != "--")
                raise ProofError(_reason(output.splitlines(), script))
            runs.append(proofs.read_run(out))
            advance(1)
    return runs


def _reason(lines: Sequence[str], script: str) -> str:
    """Returns why a script that printed some lines was not recorded."""
    if any("variables that do not match" in each for each in lines):
        return f"{script} trains none of the recorded variables: they may have other names"
    starts = "legacy-opt prove replay: ", "legacy-opt run: "
    found = [each[len(x) :] for each in lines for x in starts if each.startswith(x)]
    last = [each.strip() for each in lines if each.strip() and not each.startswith("legacy-opt ")]
    return found[-1] if found else f"{script} failed: {''.join(last[-1:]) or 'it prints nothing'}"
