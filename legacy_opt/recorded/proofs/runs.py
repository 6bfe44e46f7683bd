"""Reads and writes files of recorded trainings: several proofs, and the inputs of the model.

The arrays of the proof number i have the prefix "proof/i/". Those of inputs are "input/STEP/NAME";
texts are stored as bytes, with one more axis. The array "losses" has the loss of each step.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Mapping, Tuple

import numpy as np

from legacy_opt.core.shortened import quoted
from legacy_opt.durable_files import PathLike
from legacy_opt.recorded.proofs import files
from legacy_opt.recorded.proofs.files import check, parts_of
from legacy_opt.recorded.proofs.proof import MOST_STEPS, Arrays, Proof, ProofError, Run
from legacy_opt.recorded.state_files import taken

FORMAT = "legacy-opt run"
_HEAD, _LOSSES, _PROOF, _INPUT = "run", "losses", "proof/", "input/"


def write(path: PathLike, run: Run) -> None:
    """Writes a recorded training into a file, which is complete or not written.

    Raises:
      RecordError: a variable or input has a name or dtype that the file cannot have.
      ProofError: a proof is a drawn one, which `proofs.write` writes.
    """
    files.write_arrays(path, _arrays_of(run))


def read(path: PathLike) -> Run:
    """Reads a recorded training. A drawn proof is returned as a `Run` of this proof.

    Raises:
      ProofError: the file cannot be read, is damaged or of another kind, or its parts do not fit.
    """
    return files.read_with(path, _run_from)


def _arrays_of(run: Run) -> Iterator[Tuple[str, Any]]:
    texts = sorted({n for each in run.inputs for n, x in each.items() if x.dtype.kind == "S"})
    head = {
        "format": FORMAT,
        "version": files.VERSION,
        "made": dict(run.made),
        "proofs": list(run.proofs),
        "inputs": [sorted(each) for each in run.inputs],
        "texts": texts,
    }
    yield _HEAD, files.json_bytes(head, "the run has too many inputs for a file")
    yield _LOSSES, np.array(run.losses, np.float64)
    for i, (optimizer, proof) in enumerate(run.proofs.items()):
        if proof.has_bars:
            raise ProofError(f"{optimizer}: a proof with error bars has a file of its own")
        for name, array in files.arrays_of(proof):
            yield f"{_PROOF}{i}/{name}", array
    for step, inputs in enumerate(run.inputs, start=1):
        for name, array in inputs.items():
            if name in texts:
                flat = np.frombuffer(array.tobytes(), np.uint8)
                array = flat.reshape(*array.shape, array.itemsize)
            yield f"{_INPUT}{step}/{name}", array


def _run_from(arrays: Arrays) -> Run:
    if _HEAD not in arrays:
        proof = files.proof_from(arrays)
        return Run({proof.record.optimizer: proof}, made=proof.made)
    head = _head_of(arrays)
    count = len(arrays[_LOSSES]) if np.ndim(arrays.get(_LOSSES)) else 0
    check(count <= MOST_STEPS, "number of steps")
    losses = taken(arrays, _LOSSES, "float64", (count,)).tolist()
    proofs: Dict[str, Proof] = {}
    inputs: List[Arrays] = []
    for i, name in enumerate(head["proofs"]):
        proofs[name] = files.proof_from(parts_of(arrays, f"{_PROOF}{i}/"), is_recorded=True)
    for step, names in enumerate(head["inputs"], start=1):
        inputs.append({})
        for name in names:
            key = f"{_INPUT}{step}/{name}"
            if key not in arrays:
                raise ProofError(f"{key!r} is missing")
            array = arrays.pop(key)
            inputs[-1][name] = _text(array) if name in head["texts"] else array
    if arrays:
        raise ProofError(f"unknown arrays: {quoted(sorted(arrays))}")
    return Run(proofs, losses, inputs, head["made"])


def _text(array: np.ndarray) -> np.ndarray:
    """Returns bytes with one more axis as an array of texts."""
    check(array.dtype == np.uint8 and array.ndim > 0 and array.shape[-1] > 0, "texts")
    return array.view(f"S{array.shape[-1]}").reshape(array.shape[:-1])


def _head_of(arrays: Arrays) -> Mapping[str, Any]:
    """Removes the JSON text, and returns it with checked parts."""
    with files.reading("not a run"):
        head = files.head_from(arrays, _HEAD, FORMAT)
        for names in (head["proofs"], head["texts"], *head["inputs"]):
            is_right = type(names) is list and all(type(each) is str for each in names)
            check(is_right and len(names) == len(set(names)), "names")
        check(len(head["inputs"]) <= MOST_STEPS, "number of inputs")
    return head
