"""The optimizer that `to_keras` makes for Keras 3. Importing this module imports Keras 3.

Keras handles learning rate, iterations, clipping, moving averages of weights, checkpoints and
replicas; the v1 optimizer computes the updates.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Collection, Dict, Iterable, List, Optional, Union

import numpy as np
import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core import argument_checks
from legacy_opt.core.gradient_order import writes_after
from legacy_opt.core.step import alone
from legacy_opt.core.types import GradAndVar, Gradient, GradsAndVars, KerasVariable, V1Optimizer

from ...v1_optimizers import schedules
from ...v1_optimizers.schedules import Rate
from ...v1_optimizers.study import BridgeSettings
from ...v1_optimizers.temporary_attributes import with_attributes
from .. import configuration
from ..protocol import GlobalStep
from .contained import CLIPPING, EMA
from .gradients import Gradients, of_dtype
from .hyperparameters import Keras3Hyperparameters, add_number, as_keras_takes_it
from .state import Keras3State, keras

_ONLY_OF_KERAS = {"_hyper": {}}  # set while Keras' code runs that must read Keras' options
_OF_KERAS_2 = ("minimize", "compute_gradients", "get_gradients", "get_updates")
_APPLY = (
    "Compute gradients with a tf.GradientTape and call optimizer.apply(gradients, variables), or "
    "pass api='optimizer_v2' to to_keras for the optimizer of Keras 2, which has minimize."
)


class BridgedOptimizer(Keras3State):
    """A Keras 3 optimizer that computes updates with a copy of a `tf.compat.v1.train.Optimizer`.

    In `tf.function` and `fit`, variables and slots are bit for bit equal to the variables and slots
    of the v1 optimizer in a Session. `get_slot(variable, name)` and `get_slot_names()` use the v1
    names of slots. `V1InKeras` describes the arguments.
    """

    _hyper = {}  # the constructor replaces it by `Keras3Hyperparameters`
    _is_updating = False

    def _init_keras(
        self,
        optimizer: V1Optimizer,
        name: Optional[str],
        global_step: GlobalStep,
        settings: BridgeSettings,
        keras_arguments: Dict[str, Any],
    ):
        check_arguments(keras_arguments, has_rate=bool(settings.rates))
        _check_accumulation(keras_arguments, settings.accumulates)
        owner = type(optimizer).__name__
        check_names(keras_arguments, settings.own_names, set_names=settings.numbers, owner=owner)
        rate = settings.numbers.get("learning_rate", 0.0)
        with _counting_in(global_step):
            self._init_state(
                learning_rate=as_keras_takes_it(rate),
                name=optimizer.get_name().replace("/", "_") if name is None else name,
                **keras_arguments,
            )
        self._make_rate_float32(rate)

    def _add_hyperparameters(self):
        vars(self)["_hyper"] = Keras3Hyperparameters(self)

    def _make_rate_float32(self, rate: Rate):
        """Replaces the variable that Keras has created with the dtype `floatx`."""
        variable = self._learning_rate
        if getattr(variable, "dtype", "float32") != "float32":
            self._untrack_variable(variable)
            self._learning_rate = add_number(self, "learning_rate", rate)

    # The training step.

    def apply(
        self, grads: Iterable[Any], trainable_variables: Optional[Iterable[KerasVariable]] = None
    ):
        """Updates variables, and builds the optimizer if it is not built yet.

        Args:
          grads: a list of gradients: tensors, IndexedSlices or None.
          trainable_variables: a list of the gradients' variables; None for the variables for which
            the optimizer was built.

        Raises:
          ValueError: the optimizer was built without one of the variables, or a StatelessScope is
            active.
        """
        grads, variables = self._prepared(grads, trainable_variables)
        with alone(self._v1.optimizer), with_attributes(self, {"_is_updating": True}):
            if versions.for_a_session():
                return self._apply_in_graph(grads, variables)  # the call waits for its inputs
            with writes_after(grads):
                return super().apply(grads, variables)

    def apply_gradients(
        self,
        grads_and_vars: GradsAndVars,
        decay_var_list: Optional[Collection[KerasVariable]] = None,
    ) -> Union[KerasVariable, tf.Operation]:
        """Updates variables, like `apply`.

        Args:
          grads_and_vars: (gradient, variable) pairs.
          decay_var_list: the variables to which weight decay applies, as in v1; None for all.

        Returns:
          The number of training steps done, a keras.Variable; in a TF1 graph an operation to run.

        Raises:
          TypeError: `decay_var_list` is given, but the v1 optimizer has no decoupled weight decay.
        """
        pairs = list(grads_and_vars)
        with self._decaying_only(decay_var_list):
            done = self.apply([grad for grad, _ in pairs], [variable for _, variable in pairs])
        return self._iterations if done is None else done

    def _apply_in_graph(
        self, grads: Gradients, variables: Optional[List[KerasVariable]]
    ) -> tf.Operation:
        """Updates variables in a TF1 graph. Unlike Keras' `apply`, returns an operation to run."""
        self._adapter.check_graph_options(self)
        if variables is not None and not self.built:
            self.build(variables)
        self._hyper.are_constants = True

        @tf.function(autograph=False)
        def step():
            super(BridgedOptimizer, self).apply(grads, variables)
            return tf.convert_to_tensor(self._iterations)

        # An input may be read from a variable that the function updates: first read all inputs.
        traced = step.get_concrete_function()
        inputs = [tf.identity(x) for x in traced.captured_inputs if x.dtype != tf.resource]
        with tf.control_dependencies(inputs):
            return traced().op

    def _clip_gradients(self, grads: Gradients) -> Gradients:
        with with_attributes(self, _ONLY_OF_KERAS):
            return super()._clip_gradients(grads)

    def _backend_update_step(
        self, grads: Gradients, trainable_variables: List[KerasVariable], learning_rate: Any
    ):
        grads = [of_dtype(*pair) for pair in zip(grads, trainable_variables)]
        super()._backend_update_step(grads, trainable_variables, learning_rate)

    def _distributed_tf_update_step(
        self, distribution: tf.distribute.Strategy, grads_and_vars: GradsAndVars, learning_rate: Any
    ):
        pairs = list(grads_and_vars)
        hyper = self._hyper
        with self._v1.step(pairs, hyper.rate(), hyper.tensors()):
            if self._v1.settings.delegates_apply_gradients:
                self._apply_and_count(pairs)
                return
            super()._distributed_tf_update_step(distribution, pairs, learning_rate)
            self._v1.finish(distribution, [variable for _, variable in pairs])

    def _apply_and_count(self, pairs: List[GradAndVar]):
        """Calls the v1 optimizer's own apply_gradients with `_iterations` as the global step.

        Keras always adds 1 to `_iterations` afterwards, so this method sets `_iterations` to the
        correct value minus 1.
        """
        variable, steps = self.steps_done()
        before = variable.read_value()
        variable.assign(steps)  # less than `before` if Keras accumulates gradients
        try:
            self._v1.apply_gradients(pairs, variable)
            if not self.gradient_accumulation_steps:
                before = variable.read_value() - 1  # so that `_iterations` counts updates
        finally:
            variable.assign(before)

    def update_step(self, gradient: Gradient, variable: KerasVariable, learning_rate: Any):
        """Updates one variable; Keras calls this method."""
        del learning_rate  # the v1 optimizer has it already
        if isinstance(gradient, tf.IndexedSlices):
            self._v1.update_sparse(gradient.values, variable, gradient.indices)
        else:
            self._v1.update_dense(gradient, variable)

    # Hyperparameters.

    def __getattr__(self, name: str):
        if name in self._hyper:
            return self._hyper[name]
        if name in _OF_KERAS_2:
            raise AttributeError(f"Optimizers of Keras 3 have no {name}. {_APPLY}")
        if name == "learning_rate":  # the property has raised an AttributeError
            self._v1.values.check_settable(name)
            raise AttributeError(f"{type(self._v1.optimizer).__name__} has no learning rate.")
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any):
        if name in self._hyper:
            self._hyper.set(name, value)
            return
        if self._v1 is not None:  # otherwise Keras' own constructor sets attributes
            self._v1.values.check_settable(name)
            if name == "lr":
                raise AttributeError("Keras 3 has no lr. Set learning_rate.")
        super().__setattr__(name, value)

    @property
    def learning_rate(self):
        """The current learning rate; it can be set to a number, schedule or function."""
        has_rate = self._v1 is None or self._v1.settings.rates
        if not (has_rate or self._is_updating):  # in an update, Keras reads even an unused rate
            raise AttributeError  # `__getattr__` gives the reason
        return self._get_current_learning_rate()

    @learning_rate.setter
    def learning_rate(self, rate: Rate):
        self._hyper.set_rate(rate)

    def _get_current_learning_rate(self):
        rate = self._learning_rate
        is_schedule = self._adapter.is_schedule(rate)
        if self._v1 is not None and self._v1.values.counts_updates and is_schedule:
            return rate(self.iterations)
        if versions.for_a_session() and argument_checks.is_function(rate) and not is_schedule:
            return schedules.called_outside(rate)
        return super()._get_current_learning_rate()

    def _reader(self, name: str) -> Optional[Callable[[str], Any]]:
        return self._hyper.__getitem__ if name in self._hyper else None

    def _apply_weight_decay(self, variables: List[KerasVariable]):
        if "weight_decay" not in self._hyper:
            super()._apply_weight_decay(variables)

    def decays(self, variable: KerasVariable) -> bool:
        # Users can exclude variables with Keras' `exclude_from_weight_decay`.
        return self._use_weight_decay(self._trainable_variables[self._get_variable_index(variable)])

    def present_value(self, name: str):
        if name != "learning_rate":
            return self._hyper[name].numpy()
        rate = self._configuration_of_keras()["learning_rate"]
        return np.float32(rate) if isinstance(rate, float) else rate

    # Configuration.

    def _configuration_of_keras(self) -> configuration.Configuration:
        """Returns Keras' own `get_config`; a function as learning rate counts as its value now."""
        rate = self._learning_rate
        changed: Dict[str, Any] = dict(_ONLY_OF_KERAS)
        if argument_checks.is_function(rate) and not hasattr(rate, "get_config"):
            changed["_learning_rate"] = tf.convert_to_tensor(rate())
        with with_attributes(self, changed):
            return super().get_config()

    def get_config(self) -> configuration.Configuration:
        """Returns plain data from which `from_config` makes an equal optimizer without state.

        Raises:
          ValueError: an argument of the v1 optimizer cannot be read or is not plain data.
        """
        of_keras = self._configuration_of_keras()
        if not self._v1.settings.rates:
            del of_keras["learning_rate"]
        return configuration.with_v1(of_keras, self._v1, keras)


def _counting_in(global_step: GlobalStep):
    """Returns a scope in which Keras creates no `iterations`, but takes a global step."""
    if not hasattr(global_step, "assign_add"):
        return contextlib.ExitStack()

    def create(next_creator: Callable[..., Any], **arguments: Any) -> Any:
        is_iterations = arguments.get("name") == "iteration"
        return global_step if is_iterations else next_creator(**arguments)

    return tf.variable_creator_scope(create)


def check_arguments(keras_arguments: Dict[str, Any], has_rate: bool):
    """Raises an error for arguments that Keras would accept, and then ignore or misuse."""
    if keras_arguments.get("decay") is not None:
        raise ValueError(
            f"decay={keras_arguments['decay']!r}: Keras 3 has no learning rate decay of that "
            "kind. Pass a schedule as learning_rate."
        )
    for name in (*CLIPPING, "loss_scale_factor"):
        if keras_arguments.get(name) is not None:
            argument_checks.positive(name, keras_arguments[name])
    steps = keras_arguments.get("gradient_accumulation_steps")
    if steps is not None:
        argument_checks.positive_integer("gradient_accumulation_steps", steps)
    decay = keras_arguments.get("weight_decay")
    if decay is not None and argument_checks.number("weight_decay", decay) < 0:
        raise ValueError(f"weight_decay must not be negative, got {decay!r}.")
    if decay and not has_rate:
        raise ValueError(
            f"weight_decay={decay!r}: Keras multiplies it by the learning rate, which this "
            "optimizer does not have."
        )


def _check_accumulation(keras_arguments: Dict[str, Any], accumulates: bool):
    """Raises a ValueError for options that do not fit a GradientAccumulationOptimizer."""
    for name in ("gradient_accumulation_steps", "weight_decay", "use_ema"):
        if accumulates and keras_arguments.get(name):
            raise ValueError(
                f"{name}={keras_arguments[name]!r}: Keras would apply this option in each batch, "
                "but GradientAccumulationOptimizer makes one update for several batches. Use "
                "Keras' gradient_accumulation_steps without GradientAccumulationOptimizer, or "
                "a nested optimizer that decays or averages the weights itself."
            )


def check_names(
    keras_arguments: Dict[str, Any], names: Iterable[str], set_names: Iterable[str], owner: str
):
    """Raises a ValueError for options of Keras that are arguments of the inner optimizer, too.

    `names` are the arguments of the inner optimizer, and `owner` is the name of its class. The
    arguments in `set_names` are hyperparameters, which can be set while training.
    """
    given = {name for name, value in keras_arguments.items() if value is not None}
    taken = {"weight_decay", *CLIPPING} & given & set(names)
    # Keras reads these options in any case, and would read the hyperparameters instead.
    always_read = {"use_ema", "loss_scale_factor", "gradient_accumulation_steps"}
    if keras_arguments.get("use_ema"):
        always_read.update(EMA)
    taken |= always_read & set(set_names)
    for name in sorted(taken):  # reports the first
        raise ValueError(
            f"{name}={keras_arguments.get(name)!r}: Keras would apply it besides {owner}, which "
            f"has an argument of the same name. Pass the value to {owner} instead, or rename its "
            "argument."
        )


versions.register_with(versions.keras_3(), BridgedOptimizer)
