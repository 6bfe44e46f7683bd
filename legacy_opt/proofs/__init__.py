"""Proofs that an implementation of an optimizer computes the same as a recorded rule.

A proof is one file: inputs of a training, and what the rule makes of them, with error bars. It is
drawn (`draw`), written (`write`) and read (`read`); a recorded training (`Run`, of a `Recorder`)
has several (`read_run`). `replay` trains an implementation (`find`) with the same inputs, and
`judge` says whether it ends in the same variables. Needs NumPy alone, and the library of the
implementation. `legacy-opt docs prove` has examples.
"""

from legacy_opt.proofs.recorder import Recorder
from legacy_opt.proofs.replaying import Report, replay
from legacy_opt.proofs.resuming import Finding, Resumed, resume
from legacy_opt.proofs.targets import Target, find
from legacy_opt.proofs.trainings import compare_runs
from legacy_opt.recorded.proofs.drawing import draw
from legacy_opt.recorded.proofs.files import read, write
from legacy_opt.recorded.proofs.judging import (
    BOUND,
    DIFFERS,
    EQUAL,
    ROUNDING,
    Error,
    Verdict,
    judge,
)
from legacy_opt.recorded.proofs.proof import End, Proof, ProofError, Run
from legacy_opt.recorded.proofs.runs import read as read_run
from legacy_opt.recorded.proofs.runs import write as write_run

__all__ = ["BOUND", "DIFFERS", "EQUAL", "End", "Error", "Proof", "ProofError", "ROUNDING"]
__all__ += ["Finding", "Recorder", "Report", "Resumed", "Run", "Target", "Verdict", "compare_runs"]
__all__ += ["draw", "find", "judge", "read", "read_run", "replay", "resume", "write", "write_run"]
