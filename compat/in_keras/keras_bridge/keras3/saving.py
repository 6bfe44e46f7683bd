"""Saves the variables of bridged Keras 3 optimizers (made by `to_keras`) under names.

Keras itself saves an optimizer's variables under numbers. With numbers, the state of another
optimizer, or of the same optimizer with other options, would be loaded into wrong variables if the
shapes fit. With names, loading such a state raises an error.
"""

from __future__ import annotations

import contextlib
import json
import warnings
from typing import Any, Callable, Dict, Iterable, List, Optional, Union

import numpy as np
import tensorflow as tf

from legacy_opt.core.types import KerasOptimizer, KerasVariable

# Key under which the number of trained variables is saved.
_TRAINED = "trained"
# Names of the variables that exist before `build`.
_STEP = "iteration"
_RATE = "learning_rate"
_HYPER = "hyper_"  # begins the names of the other hyperparameters
# Names in checkpoints of other optimizers: the step of Keras 2, and the attributes in which Keras
# 3's own optimizers track their variables.
_STEP_OF_KERAS_2 = "iter"
_NUMBERED = ("_variables", "_trainable_variables", "_iterations", "_learning_rate")
# The shape of each variable; for _TRAINED, a number.
Shapes = Dict[str, Union[List[int], int]]


class SavedVariables:
    """The variables of a bridged Keras 3 optimizer, under the names with which they are saved."""

    def __init__(self, optimizer: KerasOptimizer):
        self._optimizer = optimizer
        self._names = {}
        self._awaited = None  # the shapes in a checkpoint that was read before `build`
        self._later = []  # the weights of variables that `build` will create
        self._layout = _Layout(self)

    def add(self, name: str, variable: KerasVariable):
        """Sets the name under which a variable of the optimizer is saved."""
        self._names[name.replace("/", "|")] = variable

    def remove(self, variable: KerasVariable):
        """Forgets a variable of the optimizer."""
        self._names = {name: each for name, each in self._names.items() if each is not variable}

    def add_numbered(self, name: Optional[str], variable: KerasVariable):
        """Names one of Keras' moving averages or accumulated gradients."""
        number = len([known for known in self._names if known.startswith(f"{name}_")])
        self.add(f"{name}_{number}", variable)

    def variables_by_name(self) -> Dict[str, KerasVariable]:
        """Returns a dict from names to all variables of the optimizer."""
        optimizer = self._optimizer
        variables = dict(self._names)
        known = {id(variable) for variable in variables.values()}
        others = [variable for variable in optimizer._variables if id(variable) not in known]
        known_names = {id(optimizer._iterations): _STEP, id(optimizer._learning_rate): _RATE}
        for number, variable in enumerate(others):
            name = known_names.get(id(variable), f"variable_{number}")
            variables[name] = variable
        return variables

    def shapes(self) -> Shapes:
        """Returns a dict from names to shapes, and from _TRAINED to the number of variables."""
        shapes = {name: list(variable.shape) for name, variable in self.variables_by_name().items()}
        return dict(shapes, **{_TRAINED: len(self._optimizer._trainable_variables)})

    def _misfit(self, saved: Shapes) -> Optional[str]:
        """Returns the first difference between the saved and the present `shapes`, or None."""
        own = self.shapes()
        if not (_is_built(own) and _is_built(saved)):
            own, saved = _shapes_before_build(own), _shapes_before_build(saved)
        for name in sorted(set(own) | set(saved)):
            if name == _RATE and not (name in own and name in saved):
                continue  # one of the optimizers has a schedule instead
            if name == _TRAINED and own[name] != saved[name]:
                return (
                    f"the saved optimizer trains {saved[name]} variables, and this optimizer "
                    f"trains {own[name]}"
                )
            if own.get(name) != saved.get(name):
                in_saved = f"of shape {saved[name]}" if name in saved else "missing"
                here = f"of shape {own[name]}" if name in own else "missing"
                return f"{name} is {in_saved} in the saved optimizer, and {here} in this optimizer"
        return None

    # .keras and .weights.h5

    def save(self, store: Any):
        """Writes all variables into a store of Keras."""
        for name, variable in self.variables_by_name().items():
            store[name] = variable.numpy()
        store[_TRAINED] = np.int64(len(self._optimizer._trainable_variables))

    def load(self, store: Any):
        """Reads all variables from a store of Keras, or none if the state is another optimizer's.

        If the saved optimizer was built, but this optimizer is not built yet, nothing is loaded,
        and a warning is issued. Keras' own optimizers do the same.
        """
        optimizer = self._optimizer
        variables = self.variables_by_name()
        names = store.keys()  # a store is no dict
        saved = {name: store[name] for name in names}
        shapes: Shapes = {name: list(value.shape) for name, value in saved.items()}
        if _TRAINED in saved:
            shapes[_TRAINED] = int(np.array(saved[_TRAINED]))
        if _is_built(shapes) and not optimizer.has_trained:
            warnings.warn(
                f"Skipping variable loading for optimizer {optimizer.name!r}, because it is not "
                f"built yet: it has {len(variables)} variables whereas the saved optimizer has "
                f"{len(saved) - (_TRAINED in saved)}. Call optimizer.build("
                "model.trainable_variables) before loading to continue from the saved state.",
                stacklevel=3,
            )
            return
        self._check(
            shapes,
            file="The file",
            advice="Nothing was loaded into this optimizer. To load only the model's weights, pass "
            "skip_mismatch=True to load_weights, or load before compile.",
        )
        for name, value in saved.items():
            if name in variables:
                variables[name].assign(value)

    def set_weights(
        self, weights: List[np.ndarray], set_weights_of_keras: Callable[[List[np.ndarray]], None]
    ):
        """Sets all variables, in the order of `variables`, with Keras' own method.

        If the number of weights or a shape is wrong, raises a ValueError, and sets nothing.
        """
        optimizer = self._optimizer
        later = []
        if optimizer.built and not optimizer.has_trained:
            # For a model from .h5, Keras has called `build([])`. Slots do not exist yet, so their
            # weights are set in the next call of `build`.
            count = len(optimizer.variables)
            weights, later = weights[:count], weights[count:]
        _check_shapes(optimizer.variables, weights)
        set_weights_of_keras(weights)
        # Copy the weights, because Keras closes the file from which they are read.
        self._later = [np.array(weight) for weight in later]

    # tf.train.Checkpoint

    def children(self, children: Dict[str, Any], save_type: str) -> Dict[str, Any]:
        """Replaces the children that Keras tracks under numbers by variables under names."""
        children = {name: child for name, child in children.items() if name not in _NUMBERED}
        children.update(self.variables_by_name())
        if save_type == "checkpoint":
            children["layout"] = self._layout
        return children

    def awaits_state(self) -> bool:
        """Whether state was loaded from a checkpoint before `build`."""
        return self._awaited is not None or bool(self._later)

    def await_build(self, saved: Shapes):
        """Checks the shapes in a checkpoint before restoring, and stores them until `build`."""
        self._check(saved)
        self._awaited = None if self._optimizer.has_trained else saved

    @contextlib.contextmanager
    def restoring_what_is_created(self):
        """If state was loaded before `build`, restores the variables that this scope creates."""
        optimizer = self._optimizer
        names_before = set(self._names)
        count = len(optimizer.variables)
        yield
        if self._later and optimizer.has_trained:
            _check_shapes(optimizer.variables[count:], self._later)
            for variable, value in zip(optimizer.variables[count:], self._later):
                variable.assign(value)
            self._later = []
        if self._awaited is not None:
            self._check(self._awaited)
        self._awaited = None
        for name in set(self._names) - names_before:
            optimizer._handle_deferred_dependencies(name=name, trackable=self._names[name])

    def _check(self, saved: Shapes, file: str = "This checkpoint", advice: Optional[str] = None):
        misfit = self._misfit(saved)
        if misfit is not None:
            advice = advice or "No state of the optimizer was restored. " + _LEAVE_OUT
            raise ValueError(
                f"{file} contains the state of an optimizer other than {self._optimizer.name!r}: "
                f"{misfit}. {advice}"
            )


OF_V1_OR_KERAS_2 = (
    "This checkpoint was written with an optimizer of TensorFlow 1 or Keras 2, whose slots Keras 3 "
    "would not restore. Convert it to a v1 checkpoint with `legacy-opt convert`, and load the v1 "
    "checkpoint with load_v1_checkpoint; or leave the optimizer out: tf.train.Checkpoint(model=…)."
)
STATE_OF_OPTIMIZER_V2 = (
    "This checkpoint was written with an optimizer of Keras 2 or TensorFlow 1. To load the state "
    "of an OptimizerV2 of Keras 2, call legacy_opt.compat.load_optimizer_v2(path, model, "
    "optimizer); or leave the optimizer out: tf.train.Checkpoint(model=…)."
)
_LEAVE_OUT = "To restore the weights alone, leave the optimizer out: tf.train.Checkpoint(model=…)."


class SavedUnderNames:
    """Mixin for a Keras 3 optimizer that saves and loads its variables by `SavedVariables`.

    Overrides methods of Keras and TensorFlow. The class after this one must be a Keras optimizer.
    Subclasses need the property `has_trained`, as `ContainsOptimizer` has it.
    """

    _saved: SavedVariables
    of_another_keras = OF_V1_OR_KERAS_2  # the error for checkpoints of other optimizers
    __init__: Any  # subclasses have another base class, whose constructor takes arguments

    def awaits_state(self) -> bool:
        return self._saved.awaits_state()

    def __dir__(self) -> List[str]:
        # Keras saves slots like the optimizer's other variables. TensorFlow's checkpoint code would
        # raise an error for such slots if `dir(optimizer)` contained get_slot_names.
        return [name for name in super().__dir__() if name != "get_slot_names"]

    def add_variable_from_reference(
        self, reference_variable: KerasVariable, name: Optional[str] = None, **options: Any
    ) -> KerasVariable:
        variable = super().add_variable_from_reference(reference_variable, name=name, **options)
        self._saved.add_numbered(name, variable)
        return variable

    def save_own_variables(self, store: Any):
        self._saved.save(store)

    def load_own_variables(self, store: Any):
        self._saved.load(store)

    def set_weights(self, weights: Iterable[np.ndarray]):
        self._saved.set_weights(list(weights), super().set_weights)

    def _trackable_children(
        self, save_type: str = "checkpoint", **arguments: Any
    ) -> Dict[str, Any]:
        children = super()._trackable_children(save_type, **arguments)
        return self._saved.children(children, save_type)

    def _lookup_dependency(self, name: str, *cached: Any):
        if cached:  # TensorFlow passes `cached` only if the checkpoint contains `name`
            self._check_child(name)
        return super()._lookup_dependency(name, *cached)

    def _create_or_restore_slot_variable(self, *args: Any, **kwargs: Any):
        # TensorFlow calls this for checkpoints of v1 and Keras 2 optimizers. Without this method,
        # TensorFlow would silently restore nothing.
        raise ValueError(self.of_another_keras)

    def _check_child(self, name: str):
        """Raises an error if a child of an optimizer in a checkpoint is of another Keras class."""
        if name in _NUMBERED:
            raise ValueError(
                "This checkpoint was written with an optimizer of Keras' own, whose state does not "
                "fit an optimizer made by to_keras. " + _LEAVE_OUT
            )
        if name == _STEP_OF_KERAS_2:
            raise ValueError(self.of_another_keras)


class _Layout(tf.train.experimental.PythonState):
    """Saves the shapes of `SavedVariables`, so that restoring can check them first."""

    def __init__(self, variables: SavedVariables):
        self._variables = variables

    def serialize(self) -> str:
        return json.dumps(self._variables.shapes())

    def deserialize(self, string_value: str):
        self._variables.await_build(json.loads(string_value))


def _check_shapes(variables: List[KerasVariable], weights: List[np.ndarray]):
    shapes = [tuple(variable.shape) for variable in variables]
    weight_shapes = [tuple(weight.shape) for weight in weights]
    if shapes != weight_shapes:
        raise ValueError(
            f"The optimizer has variables of the shapes {shapes}, but the weights to set have "
            f"the shapes {weight_shapes}. Nothing was set. Before the first step, create the "
            "slots: optimizer.build(variables)."
        )


def _shapes_before_build(shapes: Shapes) -> Shapes:
    """Returns a dict with only those names whose variables exist before `build`."""
    names = [name for name in shapes if name in (_STEP, _RATE) or name.startswith(_HYPER)]
    return {name: shapes[name] for name in names}


def _is_built(shapes: Shapes) -> bool:
    return bool(shapes.get(_TRAINED))
