"""Converts object-based checkpoints (`tf.train.Checkpoint`) to checkpoints of a TF1 graph."""

from __future__ import annotations

import functools
import re
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

import numpy as np
import tensorflow as tf

from legacy_opt.core.count_layout import CountLayout
from legacy_opt.recorded import neighbours

from ...in_keras import beta_powers
from ...in_keras.v1_optimizers import graph_names, owned_state
from .. import user_objects
from ..checkpoint_contents.object_based import STEP_NAMES, is_keras_own, local_name
from ..checkpoint_files.errors import CheckpointError
from ..checkpoint_files.object_graph import NUMBERED, ObjectGraph, SavedOptimizer
from ..checkpoint_files.reader import Checkpoint
from ..checkpoint_files.tensor_info import Infos
from . import conversion_by_name
from .conversion_by_name import Move, Renaming, copied
from .name_maps import OldToNew
from .report import CheckpointMismatch, Leftover, Report, leftover

# Maps the shared variables of v1's Adam, powers of a beta, to the names of the betas in Keras.
_BETAS = {"beta1_power": "beta_1", "beta2_power": "beta_2"}
# Slots of TensorFlow Addons: those with another name here, and one that it never uses.
_ADDONS, _UNUSED = {"moving_average": "average"}, "conditional_gradient"
# Shared variables that count updates, as `iter` of Keras 2 does, also of wrappers ("SWA/step").
_COUNT = re.compile(r"(.*/)?step(_\d+)?")
_HYPER = "hyper_"
_RATES = ("learning_rate", "decay")
_NO_PLACE = "the v1 optimizer has no such slot"
_NOT_SAVED = "the v1 optimizer needs it, but the checkpoint does not contain it"


def plan(
    checkpoint: Checkpoint,
    optimizer_name: Optional[str],
    name_map: Optional[OldToNew] = None,
    partial: bool = False,
) -> Tuple[List[Move], Report]:
    """Plans the conversion of an object-based checkpoint to a checkpoint of a TF1 graph.

    Args:
      checkpoint: an object-based `Checkpoint`.
      optimizer_name: where to import the user's v1 optimizer from ("module:object"), or None.
      name_map: a dict from names to new names, or to None to leave a tensor out. For a variable,
        the key is the name in the checkpoint. For a slot, a shared variable or the global step, the
        key is the default v1 name.
      partial: whether to leave out state that does not fit (only the checkpoint or only the v1
        optimizer has it, or its shape or dtype differs). Otherwise it raises a CheckpointMismatch.
    """
    graph: Any = checkpoint.object_graph
    try:
        saved = graph.optimizer
    except ValueError as error:
        raise CheckpointError(f"{checkpoint.path!r}: {error}") from error
    refuse(checkpoint, saved, optimizer_name)
    rename = Renaming(checkpoint, name_map)
    names = {full_name: rename(full_name) for full_name in graph.variables}
    moves = [copied(checkpoint, key, names[name]) for name, key in graph.variables.items()]
    left, missing = [], []
    if saved is not None:
        optimizer = None if optimizer_name is None else user_objects.made(optimizer_name)
        state = OptimizerConversion(checkpoint, saved, names, optimizer)
        moves += [move._replace(target=rename(move.target)) for move in state.moves]
        left, missing = state.left, state.missing
    rename.check()
    moves = [move for move in moves if move.target is not None]
    labels = _labels(graph, saved)
    notes = _notes(checkpoint.tensors, labels, moves, left)
    report = conversion_by_name.report(moves, notes, labels)
    report = report._replace(left_in_checkpoint=tuple(left), left_in_model=tuple(missing))
    if not report.complete and not partial:
        raise CheckpointMismatch(
            f"{checkpoint.path!r} does not fit {optimizer_name or 'a v1 graph'}. --partial "
            "writes what fits.",
            report,
        )
    return moves, report


def refuse(checkpoint: Any, saved: Optional[SavedOptimizer], optimizer_name: Optional[str]) -> None:
    """Raises a CheckpointError for state that has another meaning in v1 optimizers."""
    if saved is None:
        return
    if saved.kind == NUMBERED:
        raise CheckpointError(
            f"{checkpoint.path!r} was written with an optimizer of Keras 3, or with a new "
            "optimizer of Keras 2.11 to 2.15. No v1 optimizer can use its state unchanged. In "
            "Python, translate it with compat.from_plain_keras and write it with "
            "compat.save_v1_checkpoint."
        )
    slots = {slot for _, slot in saved.slots}
    has_momentum = "momentum" in slots and not slots & {"rms", "velocity", "norm"}
    has_momentum |= "m" in slots and saved.name == "SGD"  # of TensorFlow 2.11 to 2.15, in .h5
    if has_momentum and is_keras_own(saved):
        raise CheckpointError(
            f"{checkpoint.path!r} was written with Keras' own SGD, whose momentum contains the "
            "learning rate. The momentum of the v1 optimizer does not. In Python, translate it "
            "with compat.from_plain_keras and write it with compat.save_v1_checkpoint. For "
            "an optimizer made by to_keras with the argument decay, omit the translation. For SGDW "
            "and wrappers of TensorFlow Addons, assign -momentum / learning_rate to the slots."
        )
    if slots and optimizer_name is None:
        raise CheckpointError(
            f"{checkpoint.path!r} contains the slots {', '.join(sorted(slots))}. Pass --optimizer "
            "module:object, the v1 optimizer that will use the slots. It determines their names."
        )


def _labels(graph: ObjectGraph, saved: Optional[SavedOptimizer]) -> Dict[Optional[str], str]:
    """Returns a dict from the keys of the tensors to names shown to users."""
    labels: Dict[Optional[str], str] = {key: name for name, key in graph.variables.items()}
    if saved is not None:
        labels.update((key, name) for name, key in saved.variables.items())
        labels.update((key, "{}, slot {}".format(*pair)) for pair, key in saved.slots.items())
    labels.update((key, path) for path, key in graph.python_states.items())
    labels[graph.save_counter] = "save_counter"
    return labels


def _notes(
    tensors: Infos, labels: Mapping[Optional[str], str], moves: List[Move], left: List[Leftover]
) -> List[str]:
    """Returns a list with a note about tensors that are not converted, or an empty list."""
    used = {key for move in moves for key in move.sources}
    names = {labels.get(key, key) for key in set(tensors) - used}
    names -= {each.name for each in left}
    if not names:
        return []
    return [f"not needed, or left out by the name map: {', '.join(sorted(names))}"]


class OptimizerConversion:
    """The conversion of an optimizer's state.

    Of a `Checkpoint` it needs only path, tensors, object_graph.variables and read(). The targets of
    the `moves` are default v1 names. `left` are tensors of the checkpoint without a counterpart in
    the TF1 graph, and `missing` are tensors of the v1 optimizer that the checkpoint does not have.
    """

    def __init__(
        self, checkpoint: Any, saved: SavedOptimizer, names: OldToNew, optimizer: Any
    ) -> None:
        self.moves, self.left, self.missing = [], [], []
        self._checkpoint = checkpoint
        self._saved = saved
        self._is_keras_own = is_keras_own(saved)
        # Of equal names, such as `iter` in an optimizer and its wrapper, the shortest path wins.
        paths = sorted(saved.variables, key=len, reverse=True)
        self._variables = {local_name(path): saved.variables[path] for path in paths}
        self._optimizer = optimizer
        if graph_names.is_bridged(optimizer):
            self._optimizer = owned_state.unbound_copy(optimizer._v1.optimizer)
        graph: Any = checkpoint.object_graph
        with_slots = sorted({full_name for full_name, _ in saved.slots})
        trained: Dict[Any, str] = {names[each]: each for each in with_slots}
        trained.pop(None, None)  # variables that the name map leaves out
        if optimizer is not None:
            infos = {new: checkpoint.tensors[graph.variables[trained[new]]] for new in trained}
            specs = {new: (info.shape, tf.as_dtype(info.dtype)) for new, info in infos.items()}
            v1_names = graph_names.names(optimizer, specs)
            self._place_slots(trained, v1_names.slots)
            self._place_shared(v1_names.shared)
            if not self._is_keras_own:
                self._leave_shared()
        for path, key in saved.unassigned.items():
            self._leave(path, key, "the checkpoint does not say which variable it belongs to")
        self._place_step("global_step", "int64")

    def _step_key(self) -> Any:
        return next((self._variables[each] for each in STEP_NAMES if each in self._variables), None)

    def _place_step(self, target: str, dtype: str) -> bool:
        """Adds the move of the step to a tensor of this name; returns whether there is a step."""
        step = self._step_key()
        if step is not None:
            move = copied(self._checkpoint, step, target)
            if move.dtype != dtype:
                move = move._replace(dtype=dtype, note="cast", make=np.dtype(dtype).type)
            self.moves.append(move)
        return step is not None

    def _leave(self, name: str, key: str, why: str) -> None:
        self.left.append(leftover(name, self._checkpoint.tensors[key], why))

    def _place_slots(
        self,
        full_names: Mapping[Any, str],
        v1_slots: Mapping[Tuple[str, str], graph_names.NamedTensor],
    ) -> None:
        used_keys = {key for (_, slot), key in self._saved.slots.items() if slot == _UNUSED}
        for (variable, slot_name), tensor in v1_slots.items():
            full_name = full_names[variable]
            key = self._slot_key(full_name, slot_name)
            label = f"{full_name}, slot {slot_name}"
            if key is None and self._is_keras_own and slot_name == "momentum":
                zeros = functools.partial(np.zeros, tensor.shape, tensor.dtype.as_numpy_dtype)
                note = "0: Keras' optimizer has no momentum"
                self.moves.append(_computed(tensor, note, zeros))
                continue
            if key is None:
                self.missing.append(leftover(label, tensor, _NOT_SAVED))
                continue
            used_keys.add(key)
            info = self._checkpoint.tensors[key]
            # The shape of AdagradDecay's counts depends on their layout, except the first axis.
            axes = 1 if slot_name == CountLayout.SLOT else None
            if info.dtype != tensor.dtype.name or info.shape[:axes] != tensor.shape[:axes]:
                self._leave(label, key, f"it is {tensor.dtype.name} {list(tensor.shape)} in v1")
            else:
                move = copied(self._checkpoint, key, tensor.name)
                self.moves.append(_in_shape(move, tensor.shape))
        for (full_name, slot_name), key in self._saved.slots.items():
            if key not in used_keys and full_name in full_names.values():
                self._leave(f"{full_name}, slot {slot_name}", key, _NO_PLACE)

    def _slot_key(self, full_name: str, slot_name: str) -> Optional[str]:
        """Returns the checkpoint key of the slot with this v1 name, or None."""
        rows = neighbours.of_library(neighbours.KERAS).values() if self._is_keras_own else ()
        keras_names = (each for (row,) in rows for each in row.slots.get(slot_name, ()))
        names = slot_name, *keras_names, _ADDONS.get(slot_name, slot_name)
        keys = (self._saved.slots.get((full_name, each)) for each in names)
        return next((key for key in keys if key is not None), None)

    def _place_shared(self, v1_shared: Mapping[str, graph_names.NamedTensor]) -> None:
        for name, tensor in v1_shared.items():
            key = self._variables.get("shared_" + name, self._variables.get(name))
            if key is not None:
                self.moves.append(copied(self._checkpoint, key, tensor.name))
            elif self._is_keras_own and name in _BETAS and _BETAS[name] in self._variables:
                self.moves.append(self._power(name, tensor))
            elif not (_COUNT.fullmatch(name) and self._place_step(tensor.name, tensor.dtype.name)):
                self.missing.append(leftover(name, tensor, _NOT_SAVED))

    def _leave_shared(self) -> None:
        """Adds saved variables to `left` if the v1 optimizer lacks them; omits hyperparameters."""
        used = {key for move in self.moves for key in move.sources}
        for name, key in self._variables.items():
            if key in used or name in STEP_NAMES or name.startswith(_HYPER) or name in _RATES:
                continue
            if not any(hasattr(self._optimizer, each) for each in ("_" + name, name)):
                self._leave(name, key, "the v1 optimizer has no such variable")

    def _power(self, name: str, tensor: graph_names.NamedTensor) -> Move:
        """Returns the `Move` that computes a beta to the power of the global step plus 1."""
        beta = self._checkpoint.read(self._variables[_BETAS[name]]).item()
        v1_beta = getattr(self._optimizer, "_" + name.split("_")[0], None)
        if isinstance(v1_beta, (int, float)) and np.float32(v1_beta) != np.float32(beta):
            raise CheckpointError(
                f"{self._checkpoint.path!r} was trained with {_BETAS[name]}={beta:g}, and the "
                f"v1 optimizer has {v1_beta:g}, so the powers of beta differ. Create the v1 "
                f"optimizer with {beta:g}."
            )
        steps = int(self._checkpoint.read(self._step_key()))
        note = f"{beta:g} to the power of {steps + 1}"
        return _computed(tensor, note, functools.partial(beta_powers.power, beta, steps))


def _computed(tensor: graph_names.NamedTensor, note: str, make: Callable[..., Any]) -> Move:
    return Move(tensor.name, tensor.shape, tensor.dtype.name, note=note, make=make)


def _in_shape(move: Move, shape: Tuple[int, ...]) -> Move:
    """Returns the move to a tensor of this shape. Only AdagradDecay's counts are reshaped."""
    if move.shape == shape:
        return move
    note = "counts in the other layout of AdagradDecay"
    old, new = map(CountLayout.whole, (move.shape, shape))
    return move._replace(shape=shape, note=note, make=functools.partial(old.converted, to=new))
