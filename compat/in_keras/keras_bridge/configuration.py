"""Writes the configuration of a bridged optimizer as plain data, and reads it back.

A bridged optimizer is a Keras optimizer that `to_keras` made from a v1 optimizer. Plain data are
numbers, strings, lists and dicts. A leaf is an optimizer that updates variables itself. A wrapper
is an optimizer that contains other optimizers.
"""

from __future__ import annotations

import numbers
from typing import Any, Dict, Optional

import tensorflow as tf

from legacy_opt.core.types import V1Optimizer

from ..v1_optimizers import inspection, nesting, owned_state, schedules, serialization
from ..v1_optimizers.schedules import KerasPackage
from ..v1_optimizers.serialization import Configuration
from .driver import V1Driver


def with_v1(configuration: Configuration, driver: V1Driver, keras: KerasPackage) -> Configuration:
    """Adds the configuration of the v1 optimizer to the one that Keras' own `get_config` returns.

    Raises a ValueError if an argument of the v1 optimizer cannot be read or is not plain data.
    """
    current = {name: driver.values.current(name) for name in driver.values.exact}
    options = driver.settings.options._asdict()
    kept = {name: options[name] for name in ("lr_attr", "global_step_attr", "fused")}
    result = dict(configuration, **kept)
    leaves = nesting.leaves(driver.optimizer)
    if all(vars(leaf).get("use_fused_kernels") is False for leaf in leaves):
        result["fused"] = False
    if driver.values.counts_updates:
        result["by_updates"] = True
    rates = driver.settings.rates
    if rates:
        result["learning_rate"] = current["learning_rate"]
        if not isinstance(current["learning_rate"], numbers.Real):
            current["learning_rate"] = 1.0  # the v1 optimizer's constructor needs a number
        for attribute in rates:
            current.setdefault(attribute.lstrip("_"), current["learning_rate"])
    dtypes = [leaf._step_inputs.step_dtype.name for leaf in leaves]
    if set(dtypes) != {tf.int64.name}:
        result["step_dtype"] = dtypes if len(dtypes) > 1 else dtypes[0]
    if any(leaf._step_inputs.schedule is not None for leaf in leaves):
        result["learning_rates"] = [_schedule(leaf, keras) for leaf in leaves]

    def configuration_of(optimizer: V1Optimizer) -> Configuration:
        inputs = optimizer._step_inputs
        overrides = current if optimizer is driver.leaf else _rate_arguments(optimizer)
        skip = (inputs.step or inspection.STEP_ATTRIBUTE,)
        cls = owned_state.original_class(optimizer)
        return serialization.to_config(optimizer, cls, overrides, skip, configuration_of)

    result["optimizer"] = configuration_of(driver.optimizer)
    return result


def _schedule(leaf: V1Optimizer, keras: KerasPackage) -> Optional[Configuration]:
    """Returns a leaf's learning rate schedule as plain data, or None if the leaf has none."""
    schedule = leaf._step_inputs.schedule
    if schedule is None:
        return None
    if not hasattr(schedule, "get_config"):
        raise ValueError(
            f"{type(leaf).__name__} cannot be saved: its learning rate is the schedule "
            f"{schedule!r}, which is not plain data. Pass it a Keras schedule."
        )
    return keras.optimizers.schedules.serialize(schedule)


def _rate_arguments(optimizer: V1Optimizer) -> Dict[str, Any]:
    """Returns a dict from each possible name of the learning rate argument to the learning rate."""
    inputs = optimizer._step_inputs
    if not inputs.rates:
        return {}
    # A schedule is saved separately, but the constructor still needs a number.
    rate = vars(optimizer)[inputs.rates[0]] if inputs.schedule is None else 1.0
    names = [attribute.lstrip("_") for attribute in inputs.rates]
    return dict.fromkeys(names + ["learning_rate"], rate)


def with_objects(
    configuration: Configuration, keras: KerasPackage, known: Optional[Dict[str, Any]]
) -> Configuration:
    """Returns a configuration in which v1 optimizers and schedules are objects, not plain data."""
    schedules.cyclical_classes(keras)  # registers them
    schedule_from = keras.optimizers.schedules.deserialize
    optimizer = serialization.from_config(configuration["optimizer"])
    result = dict(configuration, optimizer=optimizer)
    rates = result.get("learning_rates")
    if rates:
        result["learning_rates"] = [schedule_from(each, known) if each else None for each in rates]
    return result
