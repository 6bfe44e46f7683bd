"""The optimizer that `to_keras` makes for Keras 3 from an OptimizerV2 of Keras 2."""

from __future__ import annotations

import contextlib
import functools
from typing import Any, Callable, ContextManager, Dict, Iterable, Iterator, List, Optional

import numpy as np
import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core import argument_checks
from legacy_opt.core.gradient_order import writes_after
from legacy_opt.core.step import alone
from legacy_opt.core.types import KerasOptimizer, KerasVariable, Tensor, Variable

from ..keras_bridge.keras3 import saving
from ..keras_bridge.keras3.contained import CLIPPING, SHARED_WITH_KERAS, ContainsOptimizer
from ..keras_bridge.keras3.gradients import Gradients, of_dtype
from ..keras_bridge.keras3.optimizer import check_arguments, check_names
from ..v1_optimizers.temporary_attributes import with_attributes
from . import configuration as optimizer_v2_configuration
from .copies import as_numbers, check_is_alone, copy_without_variables, untrained_copy

keras = versions.keras_3()


class OptimizerV2InKeras3(ContainsOptimizer, saving.SavedUnderNames, keras.optimizers.Optimizer):
    """A Keras 3 optimizer that updates variables by a copy of an OptimizerV2.

    `legacy_opt.compat.to_keras` makes such optimizers, and describes the arguments. The methods of
    the OptimizerV2 compute the updates, so variables and slots are bit for bit equal to Keras 2's.
    All variables of the OptimizerV2 belong to Keras 3, which saves them. The hyperparameters of the
    OptimizerV2 can be set: ``optimizer.momentum = 0.5``.
    """

    of_another_keras = saving.STATE_OF_OPTIMIZER_V2
    _inner: Any = None  # the copy of the OptimizerV2; None while Keras' own constructor runs
    _creates_variable = False

    def __init__(
        self, optimizer: KerasOptimizer, name: Optional[str] = None, **keras_arguments: Any
    ):
        inner = untrained_copy(optimizer)
        has_rate = "learning_rate" in inner._hyper or hasattr(type(inner), "learning_rate")
        check_arguments(keras_arguments, has_rate)
        names = set(inner._hyper)
        others = set(SHARED_WITH_KERAS) - names  # reading a hyperparameter would create a variable
        names.update(each for each in others if getattr(inner, each, None) is not None)
        check_names(keras_arguments, names=names, set_names=names, owner=type(inner).__name__)
        vars(self).update(
            _saved=saving.SavedVariables(self),
            _created=[],  # the variables of the OptimizerV2, as keras.Variables
            _clips=any(keras_arguments.get(name) is not None for name in CLIPPING),
            _rate_of_step=None,  # the learning rate that Keras reads in a training step
        )
        super().__init__(
            learning_rate=_no_rate,  # with a function, Keras creates no variable
            name=inner._name.replace("/", "_") if name is None else name,
            **keras_arguments,
        )
        vars(self).update(_inner=inner, _untrained=copy_without_variables(inner))
        inner.iterations = versions.tf_variable(self._iterations)
        # Create these variables before all slots: files in .h5 depend on the order of variables.
        with self._creating():
            for each in versions.with_wrapped(inner):
                each._create_hypers()
        self._name_what_was_created([])

    def __repr__(self) -> str:
        return f"<{type(self._inner).__name__} of Keras 2, in Keras 3 by to_keras>"

    @property
    def contained(self) -> KerasOptimizer:
        return self._inner

    # Variables.

    def _create_state(self, targets: List[Variable]):
        with self._named_by_paths(), self._creating():
            versions.create_optimizer_weights(self._inner, targets)
        self._name_what_was_created(targets)

    def _create(self, next_creator: Any, **arguments: Any) -> Variable:
        """Creates a variable of the OptimizerV2 as a variable of Keras 3."""
        if self._creates_variable:
            return next_creator(**arguments)
        value = arguments["initial_value"]
        value = value() if argument_checks.is_function(value) else value
        if arguments.get("dtype") is not None:
            if not tf.is_tensor(value):
                value = np.asarray(value)  # keeps all bits of a number
            value = tf.cast(value, arguments["dtype"])
        value = tf.convert_to_tensor(value)
        name = (arguments.get("name") or "variable").replace("/", "_").replace(":", "_")
        with with_attributes(self, {"_creates_variable": True}):
            made = self.add_variable(
                shape=tuple(value.shape),
                dtype=value.dtype.name,
                initializer=lambda shape, dtype=None: value,
                name=name,
            )
        self._created.append(made)
        return made.value

    def _name_what_was_created(self, targets: List[Variable]):
        """Sets the names under which the variables of the OptimizerV2 are saved."""
        made = {id(each.value): each for each in self._created}
        for depth, inner in enumerate(versions.with_wrapped(self._inner)):
            prefix = f"{depth}_" if depth else ""  # for an optimizer that another one wraps
            for name, value in inner._hyper.items():
                is_rate = name == "learning_rate" and not depth
                full_name = name if is_rate else f"hyper_{prefix}{name}"
                if isinstance(value, tf.Variable):  # `made` lacks it if the user has made it
                    self._saved.add(full_name, made.pop(id(value), value))
            for number, target in enumerate(targets):
                slots = inner._slots.get(versions.slot_key(target), {})
                for name, slot in slots.items():
                    self._saved.add(f"slot_{number}_{prefix}{name}", made.pop(id(slot), slot))
        for number, variable in enumerate(made.values()):
            self._saved.add(f"other_{number}", variable)

    def get_slot(self, variable: KerasVariable, slot_name: str) -> Variable:
        """Returns a slot, a tf.Variable.

        Raises:
          KeyError: the variable has no slot of that name, or the slot is not created yet.
        """
        return self._inner.get_slot(versions.tf_variable(variable), slot_name)

    def get_slot_names(self) -> List[str]:
        """Returns the names of the slots; there are none before `build`."""
        return list(self._inner.get_slot_names())

    def _named_by_paths(self) -> ContextManager:
        """Returns a scope in which the names of the trained variables are their paths.

        An OptimizerV2 may compare the names with patterns, for example to exclude biases. The
        names of Keras 3's tf.Variables lack the names of layers in subclassed models.
        """
        scope = contextlib.ExitStack()
        for variable in self._trainable_variables:
            target = versions.tf_variable(variable)
            path = getattr(variable, "path", None)
            changed: Dict[str, Any] = {} if path is None else {"_handle_name": f"{path}:0"}
            if target.constraint is not None:
                changed["_constraint"] = None  # Keras 3 applies it after the update
            scope.enter_context(with_attributes(target, changed))
        return scope

    # The training step.

    def apply(
        self, grads: Iterable[Any], trainable_variables: Optional[Iterable[KerasVariable]] = None
    ):
        """Updates variables, and builds the optimizer if it is not built yet; see Keras 3.

        Raises:
          ValueError: the optimizer was built without one of the variables, or a StatelessScope or a
            distribution strategy is active.
        """
        check_is_alone(type(self._inner).__name__)
        grads, variables = self._prepared(grads, trainable_variables)
        updating = with_attributes(self, {"_rate_of_step": _no_rate()})
        with alone(self), writes_after(grads), updating:
            super().apply(grads, variables)

    def _backend_update_step(
        self, grads: Gradients, trainable_variables: List[KerasVariable], learning_rate: Any
    ):
        del learning_rate  # the OptimizerV2 has it
        pairs = [
            (of_dtype(grad, target), versions.tf_variable(target))
            for grad, target in zip(grads, trainable_variables)
        ]
        # The OptimizerV2 adds 1 to `_iterations`, or nothing if it skips the update. Afterwards
        # Keras 3 adds 1, so subtract 1 here. If Keras 3 accumulates gradients, `_iterations` counts
        # batches, and `iterations` counts updates.
        variable = versions.tf_variable(self._iterations)
        batches = self.gradient_accumulation_steps
        before = variable.read_value()
        updates = tf.convert_to_tensor(self.iterations)
        if batches:
            variable.assign(updates)
        with self._named_by_paths(), tf.variable_creator_scope(self._refuse_variable):
            self._inner.apply_gradients(pairs)
        correction = variable.read_value() - updates - 1  # 0, or -1 if the update was skipped
        variable.assign(before + correction * tf.cast(batches or 1, correction.dtype))

    def _clip_gradients(self, grads: Gradients) -> Gradients:
        return super()._clip_gradients(grads) if self._clips else grads

    def _refuse_variable(self, next_creator: Any, **arguments: Any) -> Variable:
        raise ValueError(
            f"{type(self._inner).__name__} creates a variable in a training step "
            f"({arguments.get('name') or 'without a name'}), which no file of Keras 3 would "
            "contain. Create it in _create_slots."
        )

    # Hyperparameters.

    def __getattr__(self, name: str):
        inner = self._inner
        if name == "lr":
            return self.learning_rate
        if name == "learning_rate":  # the property has raised an AttributeError
            raise AttributeError(f"{type(inner).__name__} has no learning rate.")
        if inner is not None and self._is_of_inner(name):
            return getattr(inner, name)
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any):
        inner = self._inner
        if inner is None:  # Keras' own constructor sets attributes
            super().__setattr__(name, value)
        elif name == "lr":
            self.learning_rate = value
        elif name in inner._hyper:
            self._set(name, value)
        elif self._is_of_inner(name) and name not in vars(self) and not hasattr(type(self), name):
            self._set_plain(name, value)  # such as `epsilon` and `amsgrad` of Adam
        else:
            super().__setattr__(name, value)

    def _is_of_inner(self, name: str) -> bool:
        """Whether an attribute is one of the OptimizerV2, or a public one of the user's class."""
        inner = self._inner
        if name in inner._hyper or name in vars(inner):
            return True
        is_of_class = hasattr(type(inner), name) and not hasattr(versions.optimizer_v2(), name)
        return is_of_class and not name.startswith("_")

    def _reader(self, name: str) -> Optional[Callable[[str], Any]]:
        if self._inner is None:  # Keras' own constructor, or get_config
            return None
        is_of_inner = self._is_of_inner(name)
        if name in CLIPPING:  # Keras reads its own limits only if it clips
            is_of_inner = not self._clips
        return functools.partial(getattr, self._inner) if is_of_inner else None

    def _set_plain(self, name: str, value: Any):
        """Sets an attribute that is no hyperparameter, also for `new_optimizer_v2`."""
        for each in (self._inner, self._untrained):
            setattr(each, name, value)

    @contextlib.contextmanager
    def _creating(self) -> Iterator[None]:
        """A scope in which the variables that the OptimizerV2 creates belong to Keras 3."""
        with tf.init_scope(), tf.variable_creator_scope(self._create):
            yield

    def _set(self, name: str, value: Any):
        value = optimizer_v2_configuration.hyperparameter(name, value)
        before = self._inner._hyper[name]
        setattr(self._inner, name, value)
        if self._inner._hyper[name] is not before:  # a schedule or function replaces the variable
            for variable in [each for each in self._variables if each.value is before]:
                self._untrack_variable(variable)
                self._saved.remove(variable)
            self._saved.remove(before)  # a variable of the user

    @property
    def learning_rate(self) -> Any:
        """The learning rate; it can be set to a number, a function or a schedule."""
        return self._get_current_learning_rate()

    @learning_rate.setter
    def learning_rate(self, rate: Any):
        if not hasattr(type(self._inner), "learning_rate"):
            raise AttributeError(f"{type(self._inner).__name__} has no learning rate.")
        self._inner.learning_rate = rate  # a property of an optimizer that wraps another one

    def _get_current_learning_rate(self) -> Any:
        # Keras 3 reads the rate in each update. A user's function must not be called twice a step.
        if self._inner is None:
            return _no_rate()
        if self._rate_of_step is not None:
            return self._rate_of_step
        rate = self._inner.learning_rate
        return rate(self.iterations) if hasattr(rate, "get_config") else rate

    def _apply_weight_decay(self, variables: List[KerasVariable]):
        if self.weight_decay is not None and not self._is_of_inner("weight_decay"):
            with with_attributes(self, {"_rate_of_step": self._decayed_rate()}):
                super()._apply_weight_decay(variables)

    def _decayed_rate(self) -> Tensor:
        """Returns the learning rate of the next update, with the legacy `decay`."""
        for each in versions.with_wrapped(self._inner):
            if "learning_rate" in each._hyper:
                steps = {"_iterations": tf.convert_to_tensor(self.iterations)}
                with with_attributes(each, steps):
                    return each._decayed_lr(tf.float32)
        return tf.convert_to_tensor(self._inner.learning_rate)

    # Configuration.

    def new_optimizer_v2(self) -> KerasOptimizer:
        """Returns a new OptimizerV2 with the current hyperparameters, without state."""
        made = copy_without_variables(self._untrained)
        created = {id(each.value) for each in self._created}
        pairs = zip(versions.with_wrapped(made), versions.with_wrapped(self._inner))
        for copy, inner in pairs:
            copy._hyper.update(as_numbers(inner._hyper, lambda each: id(each) in created))
        return made

    def get_config(self) -> Dict[str, Any]:
        """Returns plain data from which `from_config` makes an equal optimizer without state.

        Raises:
          ValueError: the `get_config` of the OptimizerV2 is not complete.
        """
        inner = self._inner
        # While `_inner` is None, Keras reads its own options, not the OptimizerV2's.
        with with_attributes(self, {"_learning_rate": tf.constant(0.0), "_inner": None}):
            config = super().get_config()
        del config["learning_rate"]
        return dict(config, optimizer=optimizer_v2_configuration.configuration_of(inner))

    @classmethod
    def from_config(
        cls, config: Dict[str, Any], custom_objects: Optional[Dict[str, Any]] = None
    ) -> KerasOptimizer:
        """Makes the optimizer that `get_config` described.

        Raises:
          ValueError: the class of the OptimizerV2 is not registered.
        """
        optimizer = optimizer_v2_configuration.optimizer_from(config["optimizer"], custom_objects)
        return super().from_config(dict(config, optimizer=optimizer), custom_objects)


def _no_rate() -> Tensor:
    """Returns a learning rate for Keras 3, which only passes it to methods that do not use it."""
    return tf.constant(0.0)


versions.register_with(versions.keras_3(), OptimizerV2InKeras3)
