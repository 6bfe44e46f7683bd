"""Trains a script again with the start and the inputs of a recorded run."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import Any, Callable, Collection, Dict, List, Mapping, NamedTuple, Optional, Sequence

import numpy as np
import tensorflow as tf

from legacy_opt import proofs
from legacy_opt.core.shortened import quoted
from legacy_opt.recorded import state_files
from legacy_opt.recorded.proofs.proof import Proof, ProofError, Run
from legacy_opt.recorded.proofs.reference import is_fresh
from legacy_opt.recorded.state_files import GLOBAL_STEP, RECORD, VARIABLE

from .tracks import keys_of


class Options(NamedTuple):
    """What is recorded."""

    steps: int
    ends: Collection[int]  # the steps after which the variables are kept
    inputs: bool
    variables: str = ""  # a regular expression that the names of the variables must have
    limit: float = 256.0  # in MB


class Replayed:
    """A recorded run whose start and inputs a training gets.

    If a `seed` is given, all float numbers of the start are moved by one rounding of float32.

    Attributes:
      fed_otherwise: recorded single numbers, such as a rate, of which the script feeds others.
    """

    def __init__(self, run: Run, seed: Optional[int] = None) -> None:
        if not run.inputs:
            raise ProofError("the inputs of the model were not recorded: record with --inputs")
        self._run, self._inputs = run, [dict(each) for each in run.inputs]
        self._random = None if seed is None else np.random.RandomState(seed)
        self.fed_otherwise: Dict[str, np.ndarray] = {}

    @property
    def options(self) -> Options:
        """What is recorded of the training: the same as of the recorded one."""
        proofs = self._run.proofs.values()
        names = {re.escape(name) for each in proofs for name in each.start.variables}
        ends = {each.made["runs"][end - 1] for each in proofs for end in each.ends}
        variables = f"^({'|'.join(sorted(names))})$"
        return Options(len(self._run.losses), ends, True, variables, limit=np.inf)

    def fed(self, graph: tf.Graph, step: int, feeds: Mapping[Any, Any]) -> Dict[Any, Any]:
        """Returns the feeds of a step: those of the script, replaced by the recorded ones."""
        recorded = self._inputs[step - 1].items()
        try:
            values = {graph.as_graph_element(name).name: value for name, value in recorded}
        except (KeyError, ValueError) as error:
            raise ProofError(f"the model has no such input as the recorded one: {error}") from error
        tensors: Dict[Any, Any] = dict(values)
        for key, value in feeds.items():
            parts = tf.nest.flatten(key, expand_composites=True)
            names = [graph.as_graph_element(each).name for each in parts]
            if values.keys().isdisjoint(names):
                tensors[key] = value
            for name in values.keys() & names:
                number = values[name]
                is_number = number.shape == () and number.dtype.kind in "fiub"
                if is_number and np.asarray(value).astype(number.dtype) != number:
                    self.fed_otherwise[name] = number
        return tensors

    def load(self, run: Any, state: Mapping[str, Any]) -> List[str]:
        """Writes the recorded start into the variables of an optimizer's state.

        Returns the names of those that the script itself starts with other values, although the
        recorded optimizer began its training there.
        """
        proof = self.proof_of([x[len(VARIABLE) :] for x in state if x.startswith(VARIABLE)])
        recorded = dict(state_files.arrays_of(proof.start))
        rows = {
            key: ids
            for name, ids in proof.made.get("rows", {}).items()
            for key in keys_of(name, proof.start.slots[name])
        }
        own = {key: np.array(value) for key, value in run(dict(state)).items()}
        shapes = ({(k, k in rows or np.shape(x)) for k, x in y.items()} for y in (own, recorded))
        wrong = {key for key, _ in set.symmetric_difference(*shapes)} - {RECORD, GLOBAL_STEP}
        if wrong:
            raise ProofError(f"the recorded optimizer has another state: {quoted(sorted(wrong))}")
        others, is_first = [], is_fresh(proof)
        for key, variable in state.items():
            array, value = own[key], recorded[key]
            part: Any = ... if array.shape == np.shape(value) else rows[key]
            is_slot = not key.startswith(VARIABLE) and key != GLOBAL_STEP
            if is_slot and is_first and not np.array_equal(array[part], value):
                others.append(key)
            array[part] = value
            self._assign(run, variable, array)
        return others

    def load_others(self, run: Any, variables: Mapping[str, Any]) -> None:
        """Writes the recorded start, which is among the first inputs, into other variables."""
        for name, variable in variables.items():
            if name in self._inputs[0]:
                self._assign(run, variable, self._inputs[0].pop(name))

    def proof_of(self, names: Collection[str]) -> Proof:
        """Returns the proof of variables, or raises a ProofError."""
        for each in self._run.proofs.values():
            if {*each.start.variables} == {*names}:
                return each
        raise ProofError(f"no recorded optimizer trains only these: {quoted(sorted(names))}")

    def _assign(self, run: Any, variable: Any, value: Any) -> None:
        if self._random is not None and value.dtype == np.float32:
            to = np.where(self._random.rand(*value.shape) < 0.5, -np.inf, np.inf)
            value = np.where(value == 0, value, np.nextafter(value, to.astype(np.float32)))
        run(variable.initializer, {variable.initializer.inputs[1]: value})


def trained(path: str, words: Sequence[str], advance: Callable[[int], Any]) -> List[Run]:
    """Trains a script as recorded in a file, and twice with moved starts, in other processes.

    `words` are the script and its arguments, after options of `legacy-opt run`. `advance` is called
    with 1 after each training. Raises a ProofError if a training failed, or trained less.
    """
    runs = []
    command = [sys.executable, "-m", "legacy_opt", "prove", "record", "--replay", path]
    with tempfile.TemporaryDirectory() as folder:
        for seed in "", "1", "2":
            out = Path(folder) / f"{seed}.run"
            arguments = [*command, seed, "--out", str(out), *words]
            output = subprocess.run(arguments, stdout=PIPE, stderr=STDOUT, text=True).stdout
            if not out.exists():
                lines = [each.strip() for each in output.splitlines() if each.strip()]
                raise ProofError(f"the training failed: {'; '.join(lines[-2:])}")
            runs.append(proofs.read_run(out))
            advance(1)
    return runs
