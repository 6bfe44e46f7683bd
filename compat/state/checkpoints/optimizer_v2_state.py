"""The state of a Keras 3 model and its OptimizerV2, under the names in files of Keras 2."""

from __future__ import annotations

import collections.abc
from typing import Any, Collection, Dict, Iterable, Mapping, Optional, Set, Tuple

import numpy as np
import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core.shortened import quoted
from legacy_opt.core.types import KerasOptimizer, ModelOrVariables, NameMap

from ...in_keras.v1_optimizers import graph_names
from ..checkpoint_contents.keras_2_state import STEP, Pair
from . import keras_state
from .keras_state import batches_a_step

_STEP = ("", STEP)


class OptimizerV2State:
    """The variables of a Keras 3 model and of its OptimizerV2, except hyperparameters.

    The optimizer is built if it is not built yet. For the arguments and their errors see
    `load_optimizer_v2`; `saved_names` are the names of the variables in the file.

    Attributes:
      tensors: a dict from pairs, as in `SavedByKeras2.keys`, to tf.Variables.
      inner: the OptimizerV2.
      hyperparameters: names, also of the hyperparameters of optimizers that the OptimizerV2 wraps.
      title: the class and the name of the OptimizerV2.
    """

    def __init__(
        self,
        model_or_variables: ModelOrVariables,
        optimizer: KerasOptimizer,
        name_map: Optional[NameMap] = None,
        saved_names: Collection[str] = (),
    ) -> None:
        self._optimizer = optimizer
        self.inner = optimizer_v2_of(optimizer)
        self.hyperparameters = {
            name for each in versions.with_wrapped(self.inner) for name in each._hyper
        }
        self.title = f"{type(self.inner).__name__} (name={self.inner._name!r})"
        self._labels, variables = _named(model_or_variables, name_map, saved_names)
        if not optimizer.has_trained:
            optimizer.build(keras_state.trainable(model_or_variables))
        trained = [versions.tf_variable(each) for each in optimizer._trainable_variables]
        names = {id(each): name for name, each in variables.items()}
        foreign = [each.name for each in trained if id(each) not in names]
        if foreign:
            raise ValueError(
                f"The optimizer {optimizer.name!r} trains variables that are not among "
                f"model_or_variables, or that name_map leaves out: {quoted(foreign)}."
            )
        self._trained = {names[id(each)]: each for each in trained}
        self.tensors = {(name, ""): each for name, each in variables.items()}
        self.tensors.update(_of_optimizer(self.inner, self._trained))

    def label(self, pair: Pair) -> str:
        """Returns the name of a variable or slot that is shown to users."""
        name, slot = pair
        label = self._labels.get(name, name)
        if name and slot:
            return f"{label}, slot {slot}"
        return label or slot

    def value(self, pair: Pair) -> Any:
        """Returns the value of one of the `tensors`, as Keras 2 has it."""
        value = self.tensors[pair].numpy()
        return value // batches_a_step(self._optimizer) if pair == _STEP else value

    def assign(self, pair: Pair, value: np.ndarray) -> None:
        """Assigns a value of Keras 2 to one of the `tensors`."""
        if pair == _STEP:
            value = value * batches_a_step(self._optimizer)
        self.tensors[pair].assign(value)

    def without_slots(self, saved: Iterable[Pair]) -> Set[str]:
        """Returns the trained variables without slots in a file; none if it has no slots at all."""
        with_slots = {name for name, slot in saved if slot and name}
        return set(self._trained) - with_slots if with_slots else set()

    def start_slots(self, names: Collection[str]) -> None:
        """Assigns initial values to slots, as Keras 2 does when a first gradient arrives."""
        _, variables, _ = self._new_in_keras_2()
        for (name, slot), variable in variables.items():
            if name in names:
                self.tensors[name, slot].assign(variable)

    def copied_to_keras_2(self) -> Tuple[Dict[str, tf.Variable], Any]:
        """Returns a dict of copied variables by name, and an OptimizerV2 with a copied state."""
        copies, variables, optimizer = self._new_in_keras_2()
        for pair, variable in variables.items():
            variable.assign(self.value(pair))
        return copies, optimizer

    def batches_without_update(self) -> int:
        """Returns the number of batches whose gradients Keras 3 has accumulated, but not used."""
        return int(self.tensors[_STEP]) % batches_a_step(self._optimizer)

    def _new_in_keras_2(self) -> Tuple[Dict[str, tf.Variable], Dict[Pair, tf.Variable], Any]:
        """Copies the variables, and creates an OptimizerV2 that trains the copies.

        Returns copies by name, variables of the new OptimizerV2 by pair, and the new OptimizerV2.
        """
        copies = {
            name: tf.Variable(self.value((name, "")), name=name)
            for name, slot in self.tensors
            if not slot
        }
        made = self._optimizer.new_optimizer_v2()
        trained = {name: copies[name] for name in self._trained}
        versions.create_optimizer_weights(made, list(trained.values()))
        return copies, _of_optimizer(made, trained), made


def optimizer_v2_of(optimizer: Any) -> Any:
    """Returns the OptimizerV2 from which `to_keras` made a Keras 3 optimizer."""
    if keras_state.is_from_optimizer_v2(optimizer):
        return optimizer._inner
    if keras_state.is_from_optimizer_v2(getattr(optimizer, "inner_optimizer", None)):
        way_out = " Pass the wrapped optimizer: optimizer.inner_optimizer."
    elif graph_names.is_bridged(optimizer):
        way_out = " This one was made from a v1 optimizer: see load_v1_checkpoint."
    else:
        way_out = ""
    raise TypeError(
        "optimizer must be made by to_keras(an_optimizer_v2, api='keras3'), got "
        f"{type(optimizer).__name__}.{way_out}"
    )


def _of_optimizer(optimizer: Any, trained: Mapping[str, tf.Variable]) -> Dict[Pair, tf.Variable]:
    """Returns a dict from pairs to the variables of an OptimizerV2 and of optimizers in it.

    Hyperparameters are left out. `trained` is a dict from names to the trained tf.Variables.
    """
    tensors: Dict[Pair, Any] = {_STEP: optimizer.iterations}
    for inner in versions.with_wrapped(optimizer):
        for name, each in inner._trackable_children().items():
            if name not in (STEP, *inner._hyper) and isinstance(each, tf.Variable):
                tensors["", name] = each
        for name, variable in trained.items():
            for slot, each in inner._slots.get(versions.slot_key(variable), {}).items():
                if tensors.setdefault((name, slot), each) is not each:
                    raise TypeError(
                        f"{type(optimizer).__name__} and an optimizer that it wraps have slots of "
                        f"the name {slot!r}. A file of Keras 2 does not tell one from the other."
                    )
    return tensors


def _named(
    model_or_variables: ModelOrVariables, name_map: Optional[NameMap], saved_names: Collection[str]
) -> Tuple[Dict[str, str], Dict[str, tf.Variable]]:
    """Returns two dicts from names in the file: to names in Keras 3, and to tf.Variables."""
    has_names = isinstance(model_or_variables, collections.abc.Mapping)  # those in the file
    rename, _ = keras_state.renaming(None if has_names else name_map)
    scope = f"{getattr(model_or_variables, 'name', '')}/"
    given = keras_state.labelled(model_or_variables)
    labels, variables = {}, {}
    for label, variable in given:
        name = rename(label)
        may_lack_scope = name == label and not has_names and name not in saved_names
        if may_lack_scope and name.startswith(scope):
            name = name[len(scope) :]
        if name in variables:
            raise ValueError(
                f"Two variables, {labels[name]!r} and {label!r}, have the name {name!r} in the "
                "file. Map one of them to another name with name_map."
            )
        if name is not None:
            labels[name], variables[name] = label, versions.tf_variable(variable)
    keras_state.refuse_unknown_names(name_map, {label for label, _ in given}, "the names")
    return labels, variables
