"""Reads and writes files of proofs: `.npz` files of NumPy, whose last 64 bytes are a hash.

The README of legacy-opt-vectors describes the format. Nothing here needs TensorFlow.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import zipfile
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Tuple

import numpy as np

from legacy_opt.core.shortened import quoted
from legacy_opt.recorded import state_files
from legacy_opt.recorded.numpy import Rows, check_ids
from legacy_opt.recorded.proofs.proof import (
    MOST_STEPS,
    Arrays,
    End,
    Gradient,
    Proof,
    ProofError,
)
from legacy_opt.recorded.records import RecordError
from legacy_opt.recorded.state_files import taken
from legacy_opt.recorded.writing import PathLike, replaced

FORMAT, VERSION = "legacy-opt proof", 1
_HEAD = "proof"  # the array with the JSON text
_START = "start/"
_HASH = 64  # hexadecimal digits of SHA-256
_MOST_BYTES = 4 << 20  # of the JSON text
_DENSE, _ROWS, _IDS, _COUNTS = "gradient/", "rows/", "ids/", "counts/"
_ENDS = {"values": "float32", "exact": "float64", "bars": "float32"}


def write(path: PathLike, proof: Proof) -> None:
    """Writes a proof into a file, which is complete or not written.

    Raises:
      RecordError: a variable has a name or dtype that the file cannot have.
    """
    with replaced(path) as temporary:
        state_files.save_npz(temporary, state_files.checked(_arrays_of(proof)))
        add_hash(temporary)


def add_hash(path: PathLike) -> None:
    """Writes the hash of a file of NumPy at its end."""
    with zipfile.ZipFile(str(path), "a") as archive:
        archive.comment = b"0" * _HASH
    with open(str(path), "r+b") as file:
        content = file.read()[:-_HASH]
        file.seek(len(content))
        file.write(_hash_of(content))


def read(path: PathLike) -> Proof:
    """Reads a proof.

    Raises:
      ProofError: the file cannot be read, is damaged or of another kind, or its parts do not fit.
    """
    path = Path(path)
    try:
        if not path.is_file():
            raise ProofError("there is no such file")
        content = path.read_bytes()
        if content[-_HASH:] != _hash_of(content[:-_HASH]):
            raise ProofError("not a proof, or a damaged one: its bytes do not have its hash")
        # The same bytes: the file may be replaced meanwhile.
        return _proof_from(state_files.load_npz(io.BytesIO(content), len(content)))
    except (RecordError, OSError) as error:
        raise ProofError(f"{str(path)!r}: {error}") from error


def _hash_of(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


def _arrays_of(proof: Proof) -> Iterator[Tuple[str, np.ndarray]]:
    steps: Dict[str, List[int]] = {}  # by the names of variables
    for i, gradients in enumerate(proof.gradients, start=1):
        for name, gradient in gradients.items():
            if gradient is not None:
                steps.setdefault(name, []).append(i)
    head = {
        "format": FORMAT,
        "version": VERSION,
        "made": dict(proof.made),
        "flushes_denormals": proof.flushes_denormals,
        "steps": len(proof.gradients),
        "gradients": steps,
        "ends": sorted(proof.ends),
        "hyperparameters": {
            name: [float(each[name]).hex() for each in proof.hyperparameters]
            for name in proof.hyperparameters[0]
        },
    }
    text = json.dumps(head, sort_keys=True).encode("utf-8")
    if len(text) > _MOST_BYTES:
        raise ProofError(f"{len(proof.gradients)} steps are too many for a file")
    yield _HEAD, np.frombuffer(text, np.uint8)
    for name, array in state_files.arrays_of(proof.start):
        yield _START + name, array
    for name, places in steps.items():
        yield from _gradients_of(name, [proof.gradients[i - 1][name] for i in places])
    for step, end in sorted(proof.ends.items()):
        for part, arrays in end._asdict().items():
            for name, array in arrays.items():
                yield f"{part}/{step}/{name}", array


def _gradients_of(name: str, gradients: List[Any]) -> Iterator[Tuple[str, np.ndarray]]:
    kinds = {isinstance(each, Rows) for each in gradients}
    if kinds == {False}:
        yield _DENSE + name, np.stack(gradients)
        return
    if kinds == {True, False}:
        raise ProofError(f"{name!r} has dense and sparse gradients: a file has one kind of them")
    yield _COUNTS + name, np.array([len(each.ids) for each in gradients], np.int64)
    yield _IDS + name, np.concatenate([each.ids for each in gradients]).astype(np.int64)
    yield _ROWS + name, np.concatenate([each.values for each in gradients])


def _proof_from(arrays: Arrays) -> Proof:
    head = _head_of(arrays)
    start = {key[len(_START) :]: arrays.pop(key) for key in [*arrays] if key.startswith(_START)}
    state = state_files.state_from(start)
    if state.record.dtype != "float32":
        raise ProofError(f"the rule is of {state.record.dtype}, not of float32")
    steps = head["steps"]
    gradients: List[Dict[str, Gradient]] = [{} for _ in range(steps)]
    for name, places in head["gradients"].items():
        if name not in state.variables:
            raise ProofError(f"there is no variable {name!r}")
        for place, gradient in zip(places, _taken_gradients(arrays, name, state, len(places))):
            gradients[place - 1][name] = gradient
    ends = {}
    for step in head["ends"]:
        values, exact, bars = (
            {
                name: taken(arrays, f"{part}/{step}/{name}", dtype, each.shape)
                for name, each in state.variables.items()
            }
            for part, dtype in _ENDS.items()
        )
        if not all(np.all(np.nan_to_num(each) > 0) for each in bars.values()):
            raise ProofError("error bars must be positive")
        ends[step] = End(values, exact, bars)
    if arrays:
        raise ProofError(f"unknown arrays: {quoted(sorted(arrays))}")
    if set(head["hyperparameters"]) != set(state.record.hyperparameters):
        raise ProofError("the hyperparameters are not those of the rule")
    hyperparameters = [
        {name: numbers[i] for name, numbers in head["hyperparameters"].items()}
        for i in range(steps)
    ]
    return Proof(state, hyperparameters, gradients, ends, head["flushes_denormals"], head["made"])


def _head_of(arrays: Arrays) -> Mapping[str, Any]:
    """Removes the JSON text, and returns it with checked parts."""
    try:
        content = arrays.pop(_HEAD).tobytes()
        _check(len(content) <= _MOST_BYTES, "length")
        head = json.loads(content.decode("utf-8"), parse_constant=lambda text: 1 / 0)  # NaN
        if head["format"] != FORMAT:
            raise ProofError(f"not a proof: the format is not {FORMAT!r}")
        if head["version"] != VERSION:
            raise ProofError(f"this legacy_opt reads version {VERSION} of proofs")
        steps = head["steps"]
        _check(type(steps) is int and 1 <= steps <= MOST_STEPS, "steps")
        _check(type(head["flushes_denormals"]) is bool, "flushes_denormals")
        _check(type(head["made"]) is dict, "made")
        for numbers in head["made"].get("power", {}).values():
            _check([type(each) for each in numbers] == [int, int], "power")
        for places in [head["ends"], *head["gradients"].values()]:
            inside = all(type(each) is int and 1 <= each <= steps for each in places)
            _check(inside and places == sorted(set(places)), "numbers of steps")
        numbers = head["hyperparameters"]
        for name, texts in numbers.items():
            _check(isinstance(texts, list) and len(texts) == steps, "hyperparameters")
            numbers[name] = [float.fromhex(each) for each in texts]
            _check(all(map(math.isfinite, numbers[name])), "hyperparameters")
        _check(any(head["gradients"].values()) and bool(head["ends"]), "gradients or ends")
    except RecordError:
        raise
    except Exception as error:  # a damaged text may cause any error
        text = f"{type(error).__name__}: {error}"[:200]
        raise ProofError(f"not a proof: its JSON text has wrong parts ({text})") from error
    return head


def _check(condition: bool, what: str) -> None:
    if not condition:
        raise ProofError(f"not a proof: wrong {what} in its JSON text")


def _taken_gradients(arrays: Arrays, name: str, state: Any, count: int) -> Iterator[Gradient]:
    """Removes the gradients of a variable from a dict, and yields them."""
    shape = state.variables[name].shape
    if _DENSE + name in arrays:
        yield from taken(arrays, _DENSE + name, "float32", (count, *shape))
        return
    counts = taken(arrays, _COUNTS + name, "int64", (count,))
    total = sum(map(int, counts))  # in Python's integers, which do not overflow
    if not shape or np.any(counts < 0):
        raise ProofError(f"{name!r} cannot have such sparse gradients")
    ids = taken(arrays, _IDS + name, "int64", (total,))
    rows = taken(arrays, _ROWS + name, "float32", (total, *shape[1:]))
    check_ids(name, ids, state.variables[name])
    places = np.cumsum(counts)[:-1]
    yield from map(Rows, np.split(ids, places), np.split(rows, places))
