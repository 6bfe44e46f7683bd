"""Moves the state of a recorded rule between checkpoints of a Saver and state files."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Optional, Tuple

import numpy as np

from legacy_opt.recorded import state_files
from legacy_opt.recorded.arrays import interpreter
from legacy_opt.recorded.records import Record, RecordError
from legacy_opt.recorded.state_files import SavedState

from ..checkpoint_files.plain_reader import PlainCheckpoint
from . import recorded_state
from .name_maps import OldToNew
from .recorded_state import Plan, StateArray


def export_state(
    path: str, record: Record, destination: str, name_map: Optional[OldToNew] = None
) -> Tuple[Plan, int]:
    """Writes the state in a checkpoint to a state file, array by array, without TensorFlow.

    For `record` and `name_map` see `recorded_state.plan`. Returns the `Plan` and the global step.
    After a CheckpointError or RecordError, nothing has been written.
    """
    checkpoint = PlainCheckpoint(path)
    plan = recorded_state.plan(checkpoint, record, name_map)
    step = 0 if plan.step is None else interpreter.whole_step(checkpoint.read(plan.step))

    def arrays() -> Iterator[Tuple[str, Any]]:
        yield state_files.RECORD, state_files.record_bytes(record)
        yield recorded_state.STEP, np.int64(step)
        for each in plan.arrays:
            yield each.key, each.read(checkpoint)

    state_files.write_arrays(destination, arrays())
    return plan, step


def import_state(
    source: str,
    like: str,
    destination: str,
    overwrite: bool = False,
    name_map: Optional[OldToNew] = None,
) -> Tuple[SavedState, Plan, List[str]]:
    """Writes a copy of a checkpoint with the state of a state file. Needs TensorFlow.

    The copy has the names, shapes and parts of `like`, a checkpoint of the same rule. Variables
    that the rule does not train keep their values if the file lacks them. Returns the `SavedState`,
    the `Plan` of the copy, and the names of the tensors that keep their values. After a
    CheckpointError or RecordError, nothing has been written.
    """
    from ..checkpoint_files.reader import open_checkpoint
    from ..checkpoint_files.writer import CheckpointWriter

    state = state_files.read(source)
    checkpoint = PlainCheckpoint(like)
    plan = recorded_state.plan(checkpoint, state.record, name_map)
    values = dict(state_files.arrays_of(state))
    kept = {state_files.VARIABLE + name for name in plan.untrained} - set(values)
    wanted = {each.key: each for each in plan.arrays if each.key not in kept}
    _check(state, values, plan, wanted)
    if plan.step is not None:
        dtype = checkpoint.tensors[plan.step].dtype
        if np.dtype(dtype).kind == "i" and state.global_step > np.iinfo(dtype).max:
            raise RecordError(
                f"the global step is {dtype} in the checkpoint, which cannot be {state.global_step}"
            )
    kept_arrays = [each for each in plan.arrays if each.key in kept]
    copied = [name for each in kept_arrays for name in each.stored.names]
    copied += plan.left_out
    old = open_checkpoint(checkpoint.path)
    with CheckpointWriter(destination, overwrite) as writer:
        if plan.step is not None:
            info = checkpoint.tensors[plan.step]
            writer.add(plan.step, np.asarray(state.global_step, info.dtype))
        for key, each in wanted.items():
            for piece in each.split(values[key]):
                writer.add(*piece)
        for name in copied:
            writer.copy(name, old)
    return state, plan, copied


def _check(
    state: SavedState, values: Dict[str, np.ndarray], plan: Plan, wanted: Dict[str, StateArray]
) -> None:
    """Raises a RecordError if the file and the checkpoint do not have the same arrays."""
    for name in state.variables:
        if state_files.VARIABLE + name not in wanted:
            raise RecordError(f"the checkpoint has no variable {name!r}, which the state file has")
    for name in plan.trained:
        state_files.check_variable(state, name, wanted[state_files.VARIABLE + name])
    for key, each in wanted.items():  # in `values`: other keys are kept, or refused above
        if values[key].shape != each.shape or values[key].dtype != each.dtype:
            raise RecordError(
                f"{key!r} is {each.dtype} of the shape {list(each.shape)} in the checkpoint, but "
                f"{values[key].dtype} of the shape {list(values[key].shape)} in the state file"
            )
    extra = sorted(set(state.slots) - set(plan.trained))
    if extra:
        raise RecordError(f"{extra[0]!r} has slots in the state file, but not in the checkpoint")
