"""Turns the argument of to_v1 into a function that makes a Keras optimizer for each graph."""

from __future__ import annotations

import inspect
import numbers
import re
from concurrent import futures
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core import contract
from legacy_opt.core.types import KerasOptimizer, V1Optimizer

from ... import messages
from ..keras_adapters import KERAS_2, adapter_of, adapter_of_api
from ..keras_adapters.base import FACTORY
from ..v1_optimizers import copying, graph_names, inspection, nesting, owned_state, schedules

v1 = tf.compat.v1
Make = Callable[[], KerasOptimizer]


def find(source: Any) -> Union[V1Optimizer, Tuple[Make, str]]:
    """Converts the argument of `to_v1` to a function that makes Keras optimizers, and a name.

    `source` is a Keras optimizer, a function that makes one, the class of a Keras optimizer, or the
    name of the class. If `source` was made by `to_keras` and uses no options of Keras (such as
    clipping) and no Keras schedule, the result is a copy of the v1 optimizer in it instead.
    """
    if isinstance(source, str):
        source = _class_named(source)
    is_class = isinstance(source, type)
    cls = source if is_class else type(source)
    if issubclass(cls, v1.train.Optimizer):
        raise TypeError(f"to_v1 takes a Keras optimizer, but {source!r} is a v1 optimizer already.")
    if not is_class and versions.api_of(source) is not None:
        original = _bridged_from(source)
        if original is not None:
            return original
        _check_methods(source)
        return _maker_from(source), _stable_name(source)
    if is_class or not callable(source):
        _refuse_unless_known(source)
    name = source.__name__ if is_class else "KerasOptimizer"
    return source, name


def checked(optimizer: KerasOptimizer) -> KerasOptimizer:
    """Returns what a factory has made, after checking that it is an optimizer for any graph."""
    _refuse_unless_known(optimizer)
    _check_methods(optimizer)
    if graph_names.is_bridged(optimizer) and not isinstance(optimizer._v1.global_step, str):
        raise ValueError(
            f"{optimizer!r} was made with global_step={optimizer._v1.global_step!r}, but to_v1's "
            "optimizer increments the step that minimize gets. Use the v1 optimizer that to_keras "
            "got."
        )
    return optimizer


def _check_methods(optimizer: KerasOptimizer):
    scales_loss = hasattr(optimizer, "get_scaled_loss")  # and trains with the optimizer in it
    for each in versions.with_wrapped(optimizer) if scales_loss else [optimizer]:
        if versions.api_of(each) == "optimizer_v2":
            contract.check("to_v1", each, ValueError)


def _refuse_unless_known(source: Any):
    if versions.api_of(source) is not None:
        return
    cls = source if isinstance(source, type) else type(source)
    KERAS_2.refuse_new(cls, ", which cannot run in a TF1 graph. Pass")
    raise TypeError(
        "to_v1 takes a Keras optimizer (OptimizerV2 or Keras 3), a function that makes one, "
        f"its class or its name, got {source!r}."
    )


def _class_named(name: str) -> type:
    """Finds the class of a Keras optimizer by its name, ignoring case and underscores."""
    classes = {
        key: cls
        for key, cls in inspect.getmembers(adapter_of_api().optimizers, inspect.isclass)
        if versions.api_of(cls) is not None and key != "Optimizer"
    }
    for key, cls in classes.items():
        if key.lower() == name.replace("_", "").lower():
            return cls
    raise ValueError(f"Keras has no optimizer {name!r}. It has: {', '.join(classes)}.")


def _stable_name(optimizer: KerasOptimizer) -> str:
    """Returns an optimizer's name; if this is Keras' default name, returns the class name.

    A default name depends on the optimizers that the process has made before, because Keras adds
    numbers to default names (`adam_1`).
    """
    name = getattr(optimizer, "name", None) or optimizer._name
    cls = type(optimizer).__name__
    words = re.sub("(.)([A-Z][a-z0-9]+)", r"\1_\2", cls)
    snake = re.sub("([a-z])([A-Z])", r"\1_\2", words).lower()  # as Keras makes its default names
    return cls if re.fullmatch(re.escape(snake) + r"(_\d+)?", name) else name


# Optimizers made by to_keras without options of Keras.


def _bridged_from(optimizer: KerasOptimizer) -> Optional[V1Optimizer]:
    """Returns a copy, with the current hyperparameters, of the v1 optimizer in a bridged optimizer.

    Returns None if `optimizer` is not bridged, or if the v1 optimizer alone would train differently
    than `optimizer`.
    """
    if not graph_names.is_bridged(optimizer) or _uses_options_of_keras(optimizer):
        return None
    driver = optimizer._v1
    if any(map(_has_another_schedule, nesting.leaves(driver.optimizer))):
        return None
    result = owned_state.unbound_copy(driver.optimizer)
    state = vars(nesting.leaves(result)[0])
    rates = driver.settings.rates
    for name, number in driver.values.exact.items():
        attributes = rates if name == "learning_rate" else ("_" + name,)
        for attribute in attributes:
            state[attribute] = _current_value(optimizer, name, number, state[attribute])
    if any(state[attribute] is None for attribute in rates):
        return None
    return result


def _has_another_schedule(leaf: V1Optimizer) -> bool:
    """Returns whether a leaf has a learning rate schedule that is not a decay of v1."""
    inputs = leaf._step_inputs
    return inputs.schedule is not None and not schedules.is_v1_decay(vars(leaf)[inputs.rates[0]])


def _uses_options_of_keras(optimizer: KerasOptimizer) -> bool:
    """Returns whether the Keras optimizer uses options that v1 does not have, such as clipping."""
    options = ("clipnorm", "clipvalue", "global_clipnorm", "weight_decay", "use_ema")
    options += ("loss_scale_factor", "gradient_accumulation_steps", "gradient_transformers")
    numbers_of_v1 = optimizer._v1.values.exact
    excluded = ("_exclude_from_weight_decay", "_exclude_from_weight_decay_pattern")
    if "weight_decay" in numbers_of_v1 and any(getattr(optimizer, each, None) for each in excluded):
        return True
    if getattr(optimizer, "_initial_decay", 0.0) or versions.own_aggregator(optimizer):
        return True
    return any(getattr(optimizer, each, None) for each in options if each not in numbers_of_v1)


def _current_value(optimizer: KerasOptimizer, name: str, number: Any, v1_value: Any) -> Any:
    """Returns the current value of a hyperparameter for the v1 optimizer.

    Returns None if a v1 optimizer cannot have this value, such as a schedule of Keras. `number` is
    the value that the user has set, and `v1_value` the value in the v1 optimizer's attribute.
    """
    if name == "learning_rate" and optimizer._v1.values.counts_updates:
        return v1_value if schedules.is_v1_decay(v1_value) else None
    if _is_schedule(number):
        return None
    is_number = isinstance(number, numbers.Real)
    if number is v1_value and (not is_number or adapter_of(optimizer).is_in_a_graph(optimizer)):
        return v1_value
    if not is_number:
        return None
    current = _eagerly(lambda: optimizer._v1.values.current(name))
    return None if isinstance(current, dict) else current  # the configuration of a schedule


# Keras' own optimizers, and optimizers made by to_keras with options of Keras.


def _maker_from(optimizer: KerasOptimizer) -> Make:
    """Returns a function that makes optimizers with the current settings of `optimizer`."""
    cls = type(optimizer)
    settings = _settings_of(optimizer)
    undecayed_pattern = getattr(optimizer, "_exclude_from_weight_decay_pattern", None)
    if not graph_names.is_bridged(optimizer):  # bridged optimizers have a complete get_config
        for name in inspection.missing_arguments(optimizer, settings):  # the first is reported
            raise ValueError(
                f"get_config of {cls.__name__} does not include its argument {name}, so the "
                f"optimizer cannot be copied. {FACTORY % cls.__name__}"
            )

    def make() -> KerasOptimizer:
        # Copy the settings, because `from_config` of some versions of Keras changes its argument.
        arguments = copying.copied(settings)
        inner = arguments.get("inner_optimizer")
        if callable(inner):
            return cls(**dict(arguments, inner_optimizer=inner()))
        new_optimizer = cls.from_config(arguments)
        if undecayed_pattern is not None:
            new_optimizer._exclude_from_weight_decay_pattern = undecayed_pattern
        return new_optimizer

    try:
        with tf.Graph().as_default():
            checked(make())
    except Exception as error:
        raise ValueError(
            f"{cls.__name__} cannot be made again from its get_config: "
            f"{messages.first_line(error)}. {FACTORY % cls.__name__}"
        ) from error
    return make


def _settings_of(optimizer: KerasOptimizer) -> Dict[str, Any]:
    """Returns a dict of the settings with which `_maker_from` copies an optimizer."""
    adapter = adapter_of(optimizer)
    adapter.check_copyable(optimizer)
    scaling = adapter.scaling_arguments(optimizer)
    if scaling is not None:
        return dict(scaling, inner_optimizer=_maker_from(optimizer.inner_optimizer))
    hyper = adapter.raw_hyperparameters(optimizer)
    for name, value in hyper.items():
        _check_settled(optimizer, name, value)
    try:
        settings = dict(_eagerly(optimizer.get_config))
    except Exception as error:
        raise ValueError(
            f"The settings of this {type(optimizer).__name__} cannot be read: "
            f"{messages.first_line(error)}. {FACTORY % type(optimizer).__name__}"
        ) from error
    rate = hyper.get("learning_rate")
    if "learning_rate" in settings and _is_schedule(rate):
        settings["learning_rate"] = rate
    return settings


def _is_schedule(value: Any) -> bool:
    return callable(value) and hasattr(value, "get_config")


def _check_settled(optimizer: KerasOptimizer, name: str, value: Any):
    """Raises a ValueError for a value, such as a function, that get_config would not return."""
    is_kept = _is_schedule(value) or isinstance(value, tf.Variable)
    if not is_kept and (callable(value) or tf.is_tensor(value)):
        cls = type(optimizer).__name__
        raise ValueError(
            f"{name} of {cls} is {value!r}. A copy of the optimizer would keep only the current "
            f"number. {FACTORY % cls}"
        )


def _eagerly(function: Callable[[], Any]) -> Any:
    """Calls a function eagerly even if a graph is active, because it may read eager variables."""
    if tf.executing_eagerly():
        return function()

    def call() -> List[Any]:
        # In TensorFlow 1, the default mode is graph mode.
        return [function()] if tf.executing_eagerly() else []

    # A new thread starts in TensorFlow's default mode, even if a graph is active in this thread.
    with futures.ThreadPoolExecutor(max_workers=1) as executor:
        outcome = executor.submit(call).result()
    return outcome[0] if outcome else function()
