"""The state of a Keras model and its bridged optimizer, under the names of a v1 checkpoint.

A bridged optimizer is a Keras optimizer that `to_keras` made from a v1 optimizer.
"""

from __future__ import annotations

import collections.abc
import re
from typing import Any, Callable, Collection, Dict, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np
import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core.nearest_names import did_you_mean
from legacy_opt.core.shortened import quoted
from legacy_opt.core.types import KerasOptimizer, KerasVariable, ModelOrVariables, NameMap

from ...in_keras.keras_adapters import adapter_of
from ...in_keras.v1_optimizers import graph_names
from ..checkpoint_files import tensor_names

VARIABLE, SLOT, SHARED, STEP = "variable", "slot", "shared variable", "step"
_STEP_NAME = "global_step"
_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*")  # an operation's name in a graph

Rename = Callable[[str], Optional[str]]


class StateTensor(NamedTuple):
    """A variable of a model, or a slot, shared variable or `iterations` of its optimizer."""

    kind: str  # VARIABLE, SLOT, SHARED or STEP
    label: str  # the name shown to users, such as "dense/kernel" or "dense/kernel, slot m"
    name: str  # in a v1 checkpoint, without a scope that the checkpoint may have before it
    shape: Tuple[int, ...]
    dtype: str  # the name of the dtype
    variable: Optional[str] = None  # the v1 name of the variable, or of the slot's variable
    slot: Optional[str] = None  # the name of the slot or of the shared variable


class KerasState:
    """The variables of a model and the state of its bridged optimizer, a list of `tensors`.

    For the arguments and their errors see `load_v1_checkpoint`.
    """

    def __init__(
        self,
        model_or_variables: ModelOrVariables,
        optimizer: Optional[KerasOptimizer],
        name_map: Optional[NameMap] = None,
    ) -> None:
        check_optimizer(optimizer)
        if not tf.executing_eagerly() and not versions.for_a_session():
            raise ValueError("Checkpoints can be read and written only outside of tf.function.")
        if optimizer is not None:
            adapter_of(optimizer).check_readable()
        self.optimizer = optimizer
        self._default_names = set()
        self._rename, self._rename_state = renaming(name_map)
        self._labels, self._variables = self._named(model_or_variables)
        self._trained = [] if optimizer is None else self._find_trained(model_or_variables)
        self.tensors = list(self._find_tensors())
        if optimizer is not None:  # otherwise the map may have names of slots, which are unknown
            names = "the names of the model and its optimizer"
            refuse_unknown_names(name_map, self._default_names, names)

    def _named(
        self, model_or_variables: ModelOrVariables
    ) -> Tuple[Dict[str, str], Dict[Any, KerasVariable]]:
        """Returns two dicts: from v1 names to labels, and from v1 names to variables."""
        entries = {}
        for label, variable in labelled(model_or_variables):
            self._default_names.add(label)
            name = self._rename(label)
            if name is None:
                continue
            if name in entries and {entries[name][0], label} != {name}:  # the map renames one
                raise ValueError(
                    f"name_map gives two variables, {entries[name][0]!r} and {label!r}, the name "
                    f"{name!r}. Map one of them to another name, or to None."
                )
            if name in entries:
                raise ValueError(
                    f"Two variables are called {name!r}. Pass a dict from names in the checkpoint "
                    "to variables as model_or_variables."
                )
            entries[name] = label, variable
        for name in entries:
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise ValueError(
                    f"{name!r} cannot be the name of a variable in a TF1 graph. Map it to the name "
                    "in the graph with name_map, or pass a dict from names to variables."
                )
        if len({id(variable) for _, variable in entries.values()}) < len(entries):
            raise ValueError("model_or_variables has the same variable under two names.")
        labels = {name: label for name, (label, _) in entries.items()}
        return labels, {name: each for name, (_, each) in entries.items()}

    def _find_trained(self, model_or_variables: ModelOrVariables) -> List[KerasVariable]:
        """Returns the trainable variables, and frozen ones for which the optimizer has slots."""
        optimizer = self.optimizer
        trained = trainable(model_or_variables)
        keys = [optimizer.variable_key(variable) for variable in trained]
        keys_with_slots = optimizer.keys_with_slots()
        if adapter_of(optimizer).is_built_once and optimizer.trained_variables():
            built_keys = [optimizer.variable_key(each) for each in optimizer.trained_variables()]
            if any(key not in built_keys for key in keys):
                raise ValueError(
                    f"The optimizer {optimizer.name!r} was built without some of the {len(keys)} "
                    "trainable variables of model_or_variables. Optimizers of Keras 3 are built "
                    "once: make a new optimizer with to_keras."
                )
        for variable in self._variables.values():
            key = optimizer.variable_key(variable)
            if key in keys_with_slots and key not in keys:
                trained.append(variable)
                keys.append(key)
        foreign_keys = [key for key in keys_with_slots if key not in keys]
        if foreign_keys:
            raise ValueError(
                f"The optimizer {optimizer._v1.optimizer.get_name()!r} has slots for "
                f"{len(foreign_keys)} variables that are not among model_or_variables: pass all "
                "variables that it trains, or a new optimizer."
            )
        return trained

    def _find_tensors(self) -> Iterator[StateTensor]:
        for name, variable in self._variables.items():
            shape, dtype = _spec(variable)
            yield StateTensor(VARIABLE, self._labels[name], name, shape, dtype.name, variable=name)
        if self.optimizer is None:
            return
        trained_ids = set(map(id, self._trained))
        specs = {name: _spec(v) for name, v in self._variables.items() if id(v) in trained_ids}
        names = graph_names.names(self.optimizer, specs, self._variables)
        for (variable, slot_name), (name, shape, dtype) in names.slots.items():
            label = f"{self._labels[variable]}, slot {slot_name}"
            name = self._renamed(name)
            if name is not None:
                yield StateTensor(SLOT, label, name, shape, dtype.name, variable, slot_name)
        for shared_name, (name, shape, dtype) in names.shared.items():
            name = self._renamed(name)
            if name is not None:
                yield StateTensor(SHARED, shared_name, name, shape, dtype.name, slot=shared_name)
        step = self._renamed(_STEP_NAME)
        if step is not None:
            dtype = tf.as_dtype(self.optimizer._v1.settings.step_dtype)
            # Shampoo casts the global step to float, but checkpoints contain an integer.
            saved_dtype = dtype.name if dtype.is_integer else "int64"
            yield StateTensor(STEP, "iterations", step, (), saved_dtype)

    def _renamed(self, default_name: str) -> Optional[str]:
        self._default_names.add(default_name)
        return self._rename_state(default_name)

    @property
    def needs_step(self) -> bool:
        """Whether the next updates depend on the number of training steps done."""
        optimizer = self.optimizer
        options = ("_initial_decay", "ema_overwrite_frequency", "gradient_accumulation_steps")
        has_option = any(getattr(optimizer, option, None) for option in options)
        rate = optimizer._v1.values.exact.get("learning_rate", 0.0)
        is_number = isinstance(rate, (int, float, np.number))
        return optimizer._v1.depends_on_step or has_option or not is_number

    def build(self) -> None:
        """Creates the optimizer's slots and shared variables that do not exist yet."""
        if self._trained:
            versions.create_optimizer_weights(self.optimizer, self._trained)

    def variable_of(self, tensor: StateTensor) -> KerasVariable:
        """Returns the Keras variable of a `StateTensor`; call `build` first."""
        if tensor.kind == VARIABLE:
            return self._variables[tensor.variable]
        if tensor.kind == SLOT:
            variable = versions.tf_variable(self._variables[tensor.variable])
            return self.optimizer.existing_slot(variable, tensor.slot)
        if tensor.kind == SHARED:
            return self.optimizer.non_slots[tensor.slot]
        return self.optimizer.steps_done().variable

    def value(self, tensor: StateTensor) -> np.ndarray:
        """Returns the value of a `StateTensor` as an array."""
        value = versions.value_of(self.variable_of(tensor))
        return value // batches_a_step(self.optimizer) if tensor.kind == STEP else value

    def assign(self, tensor: StateTensor, value: np.ndarray) -> None:
        """Assigns a value to the variable of a `StateTensor`."""
        if tensor.kind == STEP:
            value = value * batches_a_step(self.optimizer)
        versions.assign_to(self.variable_of(tensor), value)


def reset_derived_state(optimizer: Optional[KerasOptimizer]) -> None:
    """Sets Keras 3's moving averages to the loaded values, and accumulated gradients to 0."""
    if getattr(optimizer, "use_ema", False):
        averages = optimizer._model_variables_moving_average
        for average, variable in zip(averages, optimizer._trainable_variables):
            versions.assign_to(average, versions.value_of(variable))
    if batches_a_step(optimizer) > 1:
        for total in optimizer._accumulated_gradients:
            versions.assign_to(total, np.zeros_like(versions.value_of(total)))


def is_from_optimizer_v2(optimizer: Any) -> bool:
    """Whether `to_keras` made this optimizer from an OptimizerV2, which is in `_inner`."""
    return versions.api_of(getattr(optimizer, "_inner", None)) == "optimizer_v2"


def check_optimizer(optimizer: Any) -> None:
    """Raises a TypeError, which says what to pass instead, for optimizers not of `to_keras`."""
    if optimizer is None or graph_names.is_bridged(optimizer):
        return
    name = type(optimizer).__name__
    inner = getattr(optimizer, "inner_optimizer", None) or getattr(optimizer, "_optimizer", None)
    if inner is not None and graph_names.is_bridged(inner):
        way_out = "Pass the wrapped optimizer: optimizer.inner_optimizer."
    elif is_from_optimizer_v2(optimizer):
        way_out = (
            "This one was made from an OptimizerV2, whose state no v1 checkpoint contains: see "
            "load_optimizer_v2 and save_optimizer_v2."
        )
    elif isinstance(optimizer, tf.compat.v1.train.Optimizer):
        way_out = (
            "For Keras, pass to_keras(optimizer). In a TF1 graph, tf.compat.v1.train.Saver "
            "restores its state."
        )
    else:
        way_out = (
            "To load a checkpoint, pass an optimizer made by to_keras, and then translate the "
            f"loaded optimizer with to_plain_keras. To save a checkpoint, translate the {name} "
            "with from_plain_keras, and pass the attribute `optimizer` of its result. For the "
            "weights alone, pass optimizer=None."
        )
    raise TypeError(f"optimizer must be made by to_keras, got {name}. {way_out}")


def renaming(name_map: Optional[NameMap]) -> Tuple[Rename, Rename]:
    """Returns two functions from a default name to the name in the checkpoint.

    The first function is for variables. The second function is for slots, shared variables and the
    global step. A result of None means that the tensor is left out.
    """
    if callable(name_map):
        return name_map, lambda name: name
    if not isinstance(name_map, (collections.abc.Mapping, type(None))):
        raise TypeError(f"name_map must be a dict or a function, got {name_map!r}.")
    new_names = name_map or {}
    for name in new_names.values():
        if name is not None and (tensor_names.problem(name) or ":" in name):
            raise ValueError(
                f"name_map: {name!r} cannot be the name of a tensor in a checkpoint. Pass a "
                "string without ':0', or None to leave a variable out."
            )

    def mapped(name: str) -> Optional[str]:
        return new_names.get(name, name)

    return mapped, mapped


def refuse_unknown_names(name_map: Optional[NameMap], known: Collection[str], names: str) -> None:
    """Raises a ValueError if a name_map has unknown keys; `names` describes the `known` keys."""
    is_dict = isinstance(name_map, collections.abc.Mapping)
    unknown = sorted(set(name_map) - known, key=str) if is_dict else []
    known = sorted(known)
    if unknown:
        raise ValueError(
            f"name_map has {quoted(unknown)}, but {names} are {quoted(known)}."
            f"{did_you_mean(unknown[0], known)}"
        )


def batches_a_step(optimizer: Any) -> int:
    """Returns the number of batches for one update.

    With gradient accumulation, Keras 3 counts batches, but v1 graphs and Keras 2 count updates.
    """
    return getattr(optimizer, "gradient_accumulation_steps", None) or 1


def labelled(model_or_variables: ModelOrVariables) -> List[Tuple[Any, KerasVariable]]:
    """Returns (name in Keras, variable) of given variables, or of a model's; of a dict, its items.

    Raises a TypeError for an object that is not a variable.
    """
    if isinstance(model_or_variables, collections.abc.Mapping):
        labels, variables = model_or_variables, model_or_variables.values()
    else:
        variables = _variables_of(model_or_variables)
        labels = map(_keras_name, variables)
    for value in variables:
        if not hasattr(value, "assign") or not hasattr(value, "shape"):
            raise TypeError(
                "model_or_variables must be a Keras model, a list of variables or a dict from "
                f"names to variables; got {value!r}, which is not a variable."
            )
    return list(zip(labels, variables))


def _variables_of(model_or_variables: ModelOrVariables) -> List[Any]:
    """Returns a list of the given variables, or of the variables of a built model."""
    if not hasattr(model_or_variables, "weights"):
        try:
            return list(model_or_variables)
        except TypeError:
            return [model_or_variables]  # `labelled` raises an error for it
    model = model_or_variables
    # If the model has no variables yet, Keras 2 raises its own ValueError here.
    variables = list(model.weights)
    if not variables:
        raise ValueError(
            f"The model {model.name!r} has no variables yet: build it, or call it once, first."
        )
    return variables


def trainable(model_or_variables: ModelOrVariables) -> List[KerasVariable]:
    """Returns a list of the trainable variables."""
    if hasattr(model_or_variables, "trainable_variables"):
        return list(model_or_variables.trainable_variables)
    is_dict = isinstance(model_or_variables, collections.abc.Mapping)
    variables = model_or_variables.values() if is_dict else model_or_variables
    return [variable for variable in variables if variable.trainable]


def _keras_name(variable: KerasVariable) -> str:
    """Returns the name of a variable in Keras: its path in Keras 3."""
    path = getattr(variable, "path", None) if versions.is_keras_3_variable(variable) else None
    return path or variable.name.split(":")[0]


def _spec(variable: KerasVariable) -> Tuple[Any, tf.DType]:
    shape = tf.TensorShape(variable.shape).as_list()
    return tuple(shape), tf.as_dtype(variable.dtype).base_dtype
