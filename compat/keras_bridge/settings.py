"""Examines a v1 optimizer with `study`, which `to_keras` calls once.

A leaf is an optimizer that updates variables itself; a wrapper contains other optimizers.
"""

from typing import Any, Dict, FrozenSet, NamedTuple, Tuple

import tensorflow as tf

from legacy_opt.core.hyperparameters import takes_step

from ..v1_optimizers import inspection, nesting, schedules, step_inputs, supported


class BridgeSettings(NamedTuple):
    """The facts about a v1 optimizer that the bridge (the code behind `to_keras`) needs.

    Attributes:
      arguments: the arguments `lr_attr`, `global_step_attr` and `fused` of `to_keras`, a dict.
      inputs: a dict with a `StepInputs` for the v1 optimizer and for each optimizer nested in it.
        The key is the `id` of the optimizer.
      rates: the names of the attributes that contain the learning rate. Empty if there is no
        learning rate, or if there are several leaves, which have separate learning rates.
      numbers: a dict with the value of each hyperparameter that can be set while training. Numbers
        are not rounded to float32. The keys are "learning_rate" and argument names of the leaf's
        constructor. The dict is empty if there are several leaves.
      counts_updates: whether the learning rate is a decay such as
        `tf.compat.v1.train.exponential_decay`. A decay needs the number of updates as an integer,
        but Keras would pass a float, or the number of batches.
      accumulates: whether the v1 optimizer sums the gradients of several batches for one update.
      own_names: the names of arguments and hyperparameters of the v1 optimizer and of the
        optimizers nested in it, without `name` and `global_step`. The names that are also in
        `numbers` can be set while training.
      delegates_apply_gradients: whether the v1 optimizer overrides `apply_gradients`, so that the
        bridge has to call that method.
      step_dtype: the dtype in which v1 checkpoints store the global step.
    """

    arguments: Dict[str, Any]
    inputs: Dict[int, step_inputs.StepInputs]
    rates: Tuple[str, ...]
    numbers: Dict[str, Any]
    counts_updates: bool
    accumulates: bool
    own_names: FrozenSet[str]
    delegates_apply_gradients: bool
    step_dtype: tf.DType


def study(optimizer, owner, keras, learning_rate, saved, **arguments):
    """Returns the `BridgeSettings` of a v1 optimizer.

    Args:
      optimizer: the v1 optimizer.
      owner: the Keras optimizer. Learning rate decays of v1 will read its `iterations`.
      keras: the Keras package of the Keras optimizer.
      learning_rate: the argument of `to_keras`, or None.
      saved: a dict with the `step_dtype`, `counts_updates` and `schedules` of a saved
        configuration. Values that the configuration does not contain are None.
      **arguments: the arguments `lr_attr`, `global_step_attr` and `fused` of `to_keras`.

    Raises:
      TypeError: see `to_keras`.
      ValueError: see `to_keras`.
    """
    supported.check_class(optimizer)
    supported.check_untrained(optimizer)
    inputs = step_inputs.find_step_inputs(
        optimizer, arguments["lr_attr"], arguments["global_step_attr"], saved["step_dtype"]
    )
    everything, leaves = nesting.nested_optimizers(optimizer), nesting.leaves(optimizer)
    own_names = set()
    for each, _ in everything:
        # Some hyperparameters are not arguments. For example, PowerSign has the argument `base`,
        # but its hyperparameter is the logarithm of `base`.
        own_names.update(vars(each).get("_hyperparameter_names", ()))
        own_names.update(inspection.constructor_arguments(type(each)))
    own_names -= {"name", "global_step", "lr"}
    rates, numbers = (), {}
    if len(leaves) == 1:
        rates, numbers, given = _numbers(leaves[0], inputs, owner, keras, learning_rate, arguments)
    else:
        given = None
        own_names.add("lr")
        _set_schedules(optimizer, leaves, inputs, owner, keras, learning_rate, saved["schedules"])
    counts_updates = saved["counts_updates"]
    return BridgeSettings(
        arguments=arguments,
        inputs=inputs,
        rates=rates,
        numbers=numbers,
        counts_updates=schedules.is_v1_decay(given) if counts_updates is None else counts_updates,
        accumulates=any(map(nesting.accumulates, everything)),
        own_names=frozenset(own_names),
        delegates_apply_gradients=supported.overrides_apply_gradients(optimizer),
        step_dtype=inputs[id(leaves[0])].step_dtype,
    )


def _numbers(leaf, inputs, owner, keras, learning_rate, arguments):
    """Returns `rates`, `numbers` and the learning rate (as it was given) of the only leaf."""
    own = inputs[id(leaf)]
    set_in_each_step = dict.fromkeys(own.rates, tf.float32)
    if own.step is not None:
        set_in_each_step[own.step] = own.step_dtype
    numbers = inspection.hyperparameters(leaf, set_in_each_step)
    if own.rates:
        if learning_rate is None:
            learning_rate = vars(leaf)[own.rates[0]]
        numbers["learning_rate"] = schedules.for_keras(learning_rate, owner, keras)
    elif learning_rate is not None:
        reason = "with lr_attr=False"
        if arguments["lr_attr"] is not False:
            reason = "for an optimizer made with learning_rate=None, which has its own schedule,"
        raise ValueError(f"learning_rate={learning_rate!r} {reason} has no effect.")
    return own.rates, numbers, learning_rate


def _set_schedules(optimizer, leaves, inputs, owner, keras, learning_rate, saved):
    """Sets `schedule` in the `inputs` of the leaves whose schedule `V1Driver` must call."""
    if learning_rate is not None:
        raise ValueError(
            f"learning_rate={learning_rate!r}: {type(optimizer).__name__} contains "
            f"{len(leaves)} optimizers, and each has its own learning rate. Pass the learning rate "
            "to their constructors."
        )
    for leaf, schedule in zip(leaves, saved or [None] * len(leaves)):
        own = inputs[id(leaf)]
        if own.rates:
            in_v1 = vars(leaf)[own.rates[0]]
            given = in_v1 if schedule is None else schedule
            rate = schedules.for_keras(given, owner, keras)
            # In each step, `V1Driver` will set the learning rate attribute to the schedule's
            # result. This is needed if the v1 optimizer cannot call the schedule. It is also needed
            # for a learning rate decay of v1, because Keras does not increment the global step that
            # the decay would read.
            if callable(rate) and (rate is not in_v1 or takes_step(rate)):
                inputs[id(leaf)] = own._replace(schedule=rate)
