"""Reads and writes files of proofs: `.npz` files of NumPy, whose last 64 bytes are a hash.

The README of legacy-opt-vectors describes the format. Nothing here needs TensorFlow.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import zipfile
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Tuple

import numpy as np

from legacy_opt.core.shortened import quoted
from legacy_opt.durable_files import PathLike, replaced
from legacy_opt.recorded import state_files
from legacy_opt.recorded.numpy import Rows, check_ids
from legacy_opt.recorded.proofs.proof import MOST_STEPS, Arrays, End, Gradient, Proof, ProofError
from legacy_opt.recorded.records import RecordError
from legacy_opt.recorded.state_files import taken

FORMAT, VERSION = "legacy-opt proof", 1
_HEAD = "proof"  # the array with the JSON text
_START, _LAST = "start/", "last/"
_HASH = 64  # hexadecimal digits of SHA-256
_MOST_BYTES = 16 << 20  # of the JSON text
_DENSE, _ROWS, _IDS, _COUNTS = "gradient/", "rows/", "ids/", "counts/"
_ENDS = {"values": "float32", "exact": "float64", "bars": "float32"}


def write(path: PathLike, proof: Proof) -> None:
    """Writes a proof into a file, which is complete or not written.

    Raises:
      RecordError: a variable has a name or dtype that the file cannot have.
    """
    write_arrays(path, arrays_of(proof))


def write_arrays(path: PathLike, arrays: Iterable[Tuple[str, Any]]) -> None:
    """Writes pairs (name, array), and the hash; see `write`."""
    with replaced(path) as temporary:
        state_files.save_npz(temporary, state_files.checked(arrays))
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
    return read_with(path, proof_from)


def read_with(path: PathLike, parse: Callable[[Arrays], Any]) -> Any:
    """Returns what `parse` makes of the arrays of a file; a ProofError names the file."""
    path = Path(path)
    try:
        if not path.is_file():
            raise ProofError("there is no such file")
        # A file with holes may be larger than the memory.
        content = path.read_bytes() if zipfile.is_zipfile(str(path)) else b""
        if content[-_HASH:] != _hash_of(content[:-_HASH]):
            raise ProofError("not a proof, or a damaged one: its bytes do not have its hash")
        # The same bytes: the file may be replaced meanwhile.
        return parse(state_files.load_npz(io.BytesIO(content), len(content)))
    except (RecordError, OSError) as error:
        raise ProofError(f"{str(path)!r}: {error}") from error


def _hash_of(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


def arrays_of(proof: Proof) -> Iterator[Tuple[str, np.ndarray]]:
    """Yields the pairs (name, array) that a file with this proof has."""
    steps: Dict[str, List[int]] = {}  # by the names of variables
    for i, gradients in enumerate(proof.gradients, start=1):
        for name in [name for name, each in gradients.items() if each is not None]:
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
    yield _HEAD, json_bytes(head, f"{len(proof.gradients)} steps are too many for a file")
    for prefix, state in {_START: proof.start, _LAST: proof.last}.items():
        for name, array in state_files.arrays_of(state) if state else ():
            yield prefix + name, array
    for name, places in steps.items():
        yield from _gradients_of(name, [proof.gradients[i - 1][name] for i in places])
    for step, end in sorted(proof.ends.items()):
        for part, arrays in end._asdict().items():
            for name, array in arrays.items():
                yield f"{part}/{step}/{name}", array


def json_bytes(head: Mapping[str, Any], problem: str) -> np.ndarray:
    """Returns JSON text as an array; a ProofError with the problem if it is too long."""
    text = json.dumps(head, sort_keys=True).encode("utf-8")
    if len(text) > _MOST_BYTES:
        raise ProofError(problem)
    return np.frombuffer(text, np.uint8)


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


def parts_of(arrays: Arrays, prefix: str) -> Arrays:
    """Removes the arrays with a prefix, and returns them without it."""
    return {key[len(prefix) :]: arrays.pop(key) for key in [*arrays] if key.startswith(prefix)}


def proof_from(arrays: Arrays, is_recorded: bool = False) -> Proof:
    """Returns the proof that a file with these arrays has, which must fit; see `read`.

    The ends of a recorded training have values alone.
    """
    head = _head_of(arrays)
    state = state_files.state_from(parts_of(arrays, _START))
    last = parts_of(arrays, _LAST)
    if state.record.dtype != "float32":
        raise ProofError(f"the rule is of {state.record.dtype}, not of float32")
    gradients: List[Dict[str, Gradient]] = [{} for _ in range(head["steps"])]
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
                if part == "values" or not is_recorded
            }
            for part, dtype in _ENDS.items()
        )
        if not all(np.all(np.nan_to_num(each) > 0) for each in bars.values()):
            raise ProofError("error bars must be positive")
        ends[step] = End(values, exact, bars)
    if arrays:
        raise ProofError(f"unknown arrays: {quoted(sorted(arrays))}")
    numbers = head["hyperparameters"]
    if {*numbers} != {*state.record.hyperparameters}:
        raise ProofError("the hyperparameters are not those of the rule")
    steps = [{name: x[i] for name, x in numbers.items()} for i in range(head["steps"])]
    after = state_files.state_from(last) if last else None
    return Proof(state, steps, gradients, ends, head["flushes_denormals"], head["made"], after)


def head_from(arrays: Arrays, name: str, form: str) -> Dict[str, Any]:
    """Removes a JSON text from arrays, and returns its data; see `json_bytes`."""
    content = arrays.pop(name)
    check(content.nbytes <= _MOST_BYTES, "length")
    head = json.loads(content.tobytes().decode("utf-8"), parse_constant=lambda text: 1 / 0)  # NaN
    if (head["format"], head["version"]) != (form, VERSION):
        raise ProofError(f"this legacy_opt reads version {VERSION} of {form!r}")
    check(type(head["made"]) is dict, "made")
    return head


def _head_of(arrays: Arrays) -> Mapping[str, Any]:
    """Removes the JSON text, and returns it with checked parts."""
    if "run" in arrays:
        raise ProofError("a recorded training with several proofs: read it with read_run")
    with reading("not a proof"):
        head = head_from(arrays, _HEAD, FORMAT)
        steps, numbers = head["steps"], head["hyperparameters"]
        check(type(steps) is int and 1 <= steps <= MOST_STEPS, "steps")
        check(type(head["flushes_denormals"]) is bool, "flushes_denormals")
        for each in head["made"].get("power", {}).values():
            check([*map(type, each)] == [int, int], "power")
        for places in [head["ends"], *head["gradients"].values()]:
            inside = all(type(each) is int and 1 <= each <= steps for each in places)
            check(inside and places == sorted(set(places)), "numbers of steps")
        for name, texts in numbers.items():
            check(isinstance(texts, list) and len(texts) == steps, "hyperparameters")
            numbers[name] = [float.fromhex(each) for each in texts]
            check(all(map(math.isfinite, numbers[name])), "hyperparameters")
        check(any(head["gradients"].values()) and bool(head["ends"]), "gradients or ends")
    return head


@contextlib.contextmanager
def reading(otherwise: str) -> Iterator[None]:
    """Scope that reads parts of a JSON text, whose errors become a ProofError."""
    try:
        yield
    except RecordError:
        raise
    except Exception as error:  # a damaged text may cause any error
        text = f"{type(error).__name__}: {error}"[:200]
        raise ProofError(f"{otherwise}: its JSON text has wrong parts ({text})") from error


def check(condition: bool, what: str) -> None:
    """Raises a ProofError unless a part of the JSON text is right."""
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
