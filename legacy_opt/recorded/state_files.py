"""Reads and writes the state of a training with a recorded rule: `.npz` files of NumPy.

The file has an array for each variable ("variable/NAME"), slot ("slot/NAME/SLOT") and shared
variable ("shared/NAME"), the "global_step", and the bytes of the "record" to which the state
belongs. With the package safetensors, the same arrays are a `.safetensors` file. Nothing here
needs TensorFlow.
"""

from __future__ import annotations

import copy
import zipfile
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Tuple

import numpy as np

from legacy_opt.core.shortened import quoted
from legacy_opt.durable_files import PathLike, replaced
from legacy_opt.recorded.arrays import interpreter
from legacy_opt.recorded.arrays.interpreter import stored_shape
from legacy_opt.recorded.numpy import NumpyOptimizer
from legacy_opt.recorded.reading import loads
from legacy_opt.recorded.records import Group, Record, RecordError
from legacy_opt.recorded.writing import dumps

__all__ = ["SavedState", "load_into", "read", "state_of", "write"]

VARIABLE, SLOT, SHARED = "variable/", "slot/", "shared/"
GLOBAL_STEP, RECORD = "global_step", "record"
_SAFETENSORS = ".safetensors"


class SavedState(NamedTuple):
    """The state of a training.

    Example::

        from legacy_opt.recorded import state_files
        from legacy_opt.recorded.numpy import NumpyOptimizer

        state = state_files.read("state.npz")
        weights = {name: state.variables[name] for name in state.slots}
        optimizer = NumpyOptimizer(state.record, weights)
        state_files.load_into(optimizer, state)
        optimizer.step(gradients)
        state_files.write("state.npz", state_files.state_of(optimizer))

    Attributes:
      record: the `Record`.
      global_step: the number of completed steps.
      shared: a dict from names of shared variables to scalars.
      variables: a dict from names to arrays.
      slots: a dict from names of variables to dicts from names of slots to arrays. Variables that
        are not trained have no entry.
    """

    record: Record
    global_step: int
    shared: Dict[str, Any]
    variables: Dict[str, np.ndarray]
    slots: Dict[str, Dict[str, np.ndarray]]


def state_of(optimizer: NumpyOptimizer) -> SavedState:
    """Returns a copy of the state of an optimizer."""
    state, variables = copy.deepcopy((optimizer.state, optimizer.variables))
    return SavedState(optimizer.record, state.global_step, state.shared, variables, state.slots)


def load_into(optimizer: NumpyOptimizer, state: SavedState) -> None:
    """Writes a state into the variables and slots of an optimizer.

    Raises:
      RecordError: the state belongs to another rule, or lacks a variable of the same shape, or its
        slots. Nothing has been changed.
    """
    check_rule(state, optimizer.record)
    for name, array in optimizer.variables.items():
        check_variable(state, name, array)
    for name, array in optimizer.variables.items():
        array[...] = state.variables[name]
        for slot, value in optimizer.state.slots[name].items():
            value[...] = state.slots[name][slot]
    optimizer.state.shared.update(state.shared)
    optimizer.state.global_step = state.global_step


def check_rule(state: SavedState, record: Record) -> None:
    """Raises a RecordError for a state of another rule; values of hyperparameters may differ."""
    interpreter.whole_step(state.global_step)
    if state.record.without_values() != record.without_values():
        raise RecordError(
            f"the state belongs to another rule, of {state.record.optimizer}, and not to this rule "
            f"of {record.optimizer}"
        )


def check_variable(state: SavedState, name: str, variable: Any, is_trained: bool = True) -> None:
    """Raises a RecordError if a state lacks a variable of this shape or, if trained, its slots."""
    if name not in state.variables:
        raise RecordError(
            f"the state has no variable {name!r}, but {quoted(sorted(state.variables))}"
        )
    value = state.variables[name]
    if not is_trained:
        interpreter.check_array(repr(name), variable, value.dtype, value.shape)
        return
    if name not in state.slots:
        raise RecordError(f"the state has no slots of {name!r}: the variable was not trained")
    found, shape = value.shape, tuple(variable.shape)
    if found != shape:
        raise RecordError(
            f"{name!r} has the shape {list(shape)}, but the shape {list(found)} in the state"
        )
    interpreter.check_slots(name, state.record.group_of(name, found), found, state.slots[name])


def named_variables(
    trained: Iterable[Tuple[Any, Any, Any]], names: Optional[Mapping[str, Any]]
) -> Iterator[Tuple[Any, Any, Any]]:
    """Yields the tuples (name, variable, group) of `trained`, renamed by `names`; see `distinct`.

    Variables that are only in `names`, such as moving averages, follow with the group None.
    """
    names = names or {}
    name_of = {id(each): name for name, each in names.items()}
    found = [(name_of.pop(id(each), name), each, group) for name, each, group in trained]
    others = [(name, each, None) for name, each in names.items() if id(each) in name_of]
    return distinct(found + others)


def distinct(named: Iterable[Tuple[Any, ...]]) -> Iterator[Tuple[Any, ...]]:
    """Yields tuples that begin with a name; raises a RecordError for None and repeated names."""
    seen = set()
    for each in named:
        if each[0] is None:
            raise RecordError("a parameter has no name: pass names={name: parameter}")
        if each[0] in seen:
            raise RecordError(f"two parameters have the name {each[0]!r}: pass other names")
        seen.add(each[0])
        yield each


def write(path: PathLike, state: SavedState) -> None:
    """Writes a state into a file, which is complete or not written.

    Args:
      path: the file; its name ends in `.npz`, or in `.safetensors` if this package is installed.
      state: the `SavedState`.

    Raises:
      RecordError: the name has another ending, safetensors is not installed, or a variable has a
        name or dtype that the file cannot have.
    """
    write_arrays(path, arrays_of(state))


def arrays_of(state: SavedState) -> Iterator[Tuple[str, Any]]:
    """Yields the pairs (name, array) that a file with this state has."""
    yield RECORD, record_bytes(state.record)
    yield GLOBAL_STEP, np.int64(interpreter.whole_step(state.global_step))
    for name, value in state.shared.items():
        yield SHARED + name, value
    for name, array in state.variables.items():
        yield VARIABLE + name, array
        for slot, value in state.slots.get(name, {}).items():
            yield slot_key(name, slot), value


def record_bytes(record: Record) -> np.ndarray:
    """Returns the array "record" of a file."""
    return np.frombuffer(dumps(record).encode("utf-8"), np.uint8)


def slot_key(variable: str, slot: str) -> str:
    """Returns the name of a slot's array."""
    return f"{SLOT}{variable}/{slot}"


def write_arrays(path: PathLike, arrays: Iterable[Tuple[str, Any]]) -> None:
    """Writes pairs (name, array); see `write`. An `.npz` file is written array by array."""
    path = Path(path)
    save = _save_safetensors if _is_safetensors(path) else save_npz
    with replaced(path) as temporary:
        save(temporary, checked(arrays))


def checked(arrays: Iterable[Tuple[str, Any]]) -> Iterator[Tuple[str, np.ndarray]]:
    """Yields checked arrays in this machine's order of bytes; may raise a RecordError."""
    names = set()
    for name, array in arrays:
        if name in names or "\0" in name or len(name.encode("utf-8")) > 60_000:
            raise RecordError(f"the file cannot have an array {name[:80]!r}")
        names.add(name)
        array = np.asarray(array)
        if array.dtype.kind not in "fiubc":
            raise RecordError(f"the file cannot have {name!r}, of the dtype {array.dtype}")
        yield name, array.astype(array.dtype.newbyteorder("="), copy=False)


def _is_safetensors(path: Path) -> bool:
    if path.suffix not in (".npz", _SAFETENSORS):
        raise RecordError(f"{str(path)!r}: the name of a state file ends in .npz or {_SAFETENSORS}")
    return path.suffix == _SAFETENSORS


def save_npz(path: Path, arrays: Iterable[Tuple[str, Any]]) -> None:
    """Writes pairs (name, array) into a file of NumPy, array by array."""
    with zipfile.ZipFile(str(path), "w") as archive:
        for name, array in arrays:
            with archive.open(name + ".npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _safetensors() -> Any:
    try:
        import safetensors.numpy
    except ImportError as error:
        raise RecordError("safetensors is not installed: pip install safetensors") from error
    return safetensors.numpy


def _save_safetensors(path: Path, arrays: Iterable[Tuple[str, Any]]) -> None:
    save = _safetensors().save_file
    # `np.ascontiguousarray` would add an axis to scalars.
    save({name: np.array(array, order="C") for name, array in arrays}, str(path))


def read(path: PathLike) -> SavedState:
    """Reads a state.

    Raises:
      RecordError: the file cannot be read, is damaged or of another kind, its arrays do not fit
        its record, or slots are missing.
    """
    path = Path(path)
    try:
        if not path.is_file():
            raise RecordError("there is no such file")
        if _is_safetensors(path):
            return state_from(_load_safetensors(path))
        return state_from(load_npz(str(path), path.stat().st_size))
    except RecordError as error:
        raise RecordError(f"{str(path)!r}: {error}") from error


def _load_safetensors(path: Path) -> Dict[str, np.ndarray]:
    load = _safetensors().load_file
    try:
        return load(str(path))
    except Exception as error:  # the package has its own class of errors
        raise RecordError(f"not a state file: {_line(error)}") from error


def load_npz(file: Any, size: int) -> Dict[str, np.ndarray]:
    """Reads all arrays of a path or file. Its size is the bound of their memory."""
    try:
        with zipfile.ZipFile(file) as archive:
            members = unpacked(archive, size)
            arrays = {}
            for member in members:
                name = member.filename[: -len(".npy")]
                if not member.filename.endswith(".npy") or name in arrays:
                    raise RecordError(f"not a state file: it has {member.filename[:80]!r}")
                arrays[name] = _load_array(archive, member)
            return arrays
    except RecordError:
        raise
    except Exception as error:  # a damaged file may cause any error of zipfile and NumPy
        raise RecordError(f"not a state file: {_line(error)}") from error


def unpacked(archive: zipfile.ZipFile, size: int) -> List[zipfile.ZipInfo]:
    """Returns the members of an archive with this size; a RecordError if they are compressed."""
    members = archive.infolist()
    if sum(member.file_size for member in members) > size:
        raise RecordError("not a state file: arrays are compressed, or overlap")
    return members


def _line(error: Exception) -> str:
    """Returns the beginning of an error's message as one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def _load_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    formats = np.lib.format
    with archive.open(member) as file:
        is_1_0 = formats.read_magic(file) == (1, 0)
        read_header = formats.read_array_header_1_0 if is_1_0 else formats.read_array_header_2_0
        shape, _, dtype = read_header(file)
        nbytes = dtype.itemsize
        for size in shape:  # in Python's integers, which do not overflow
            nbytes *= size
        if dtype.kind not in "fiubc" or min(shape, default=0) < 0:
            raise RecordError(f"not a state file: {member.filename[:80]!r} is no array of numbers")
        if nbytes != member.file_size - file.tell():
            raise RecordError(f"{member.filename[:80]!r} does not have the size of its shape")
    with archive.open(member) as file:  # from the beginning: `read_array` reads the header, too
        return formats.read_array(file, allow_pickle=False)


def state_from(arrays: Dict[str, np.ndarray]) -> SavedState:
    """Returns the state that a file with these arrays has, which must fit; see `read`."""
    if RECORD not in arrays:
        raise RecordError("not a state file: it has no record")
    record = loads(arrays.pop(RECORD).tobytes())
    step = int(taken(arrays, GLOBAL_STEP, "int64", shape=()))
    shared = {
        name: taken(arrays, SHARED + name, scalar.dtype, shape=())[()]
        for name, scalar in record.shared.items()
    }
    names = [key[len(VARIABLE) :] for key in arrays if key.startswith(VARIABLE)]
    variables = {name: arrays.pop(VARIABLE + name) for name in names}
    slots = {}
    for name, array in variables.items():
        group = group_of(record, name, array.dtype, array.shape)
        if group is None:
            continue
        keys = {slot: slot_key(name, slot) for slot in group.slots}
        # If all slots are missing, the variable was not trained.
        if not keys or any(key in arrays for key in keys.values()):
            slots[name] = {}
            for slot_name, slot in group.slots.items():
                shape = stored_shape(slot.layout, array.shape)
                slots[name][slot_name] = taken(arrays, keys[slot_name], slot.dtype, shape)
    if arrays:
        raise RecordError(f"the rule of {record.optimizer} has no {quoted(sorted(arrays))}")
    return SavedState(record, step, shared, variables, slots)


def group_of(record: Record, name: str, dtype: Any, shape: Tuple[int, ...]) -> Optional[Group]:
    """Returns the group of a variable; None if the rule does not train such a variable."""
    try:
        return record.group_of(name, shape, dtype)
    except RecordError:
        return None


def taken(arrays: Dict[str, np.ndarray], name: str, dtype: str, shape: Tuple[int, ...]) -> Any:
    """Removes an array from a dict, checks it, and returns it."""
    if name not in arrays:
        raise RecordError(f"{name!r} is missing")
    interpreter.check_array(repr(name), arrays[name], dtype, shape)
    return arrays.pop(name)
