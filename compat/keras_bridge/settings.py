"""`study` examines a v1 optimizer once, before Keras' own constructor runs."""

from typing import Any, Dict, FrozenSet, NamedTuple, Tuple

import tensorflow as tf

from legacy_opt.core.hyperparameters import takes_step

from ..v1_optimizers import inspection, nesting, schedules, step_inputs, supported


class BridgeSettings(NamedTuple):
    """The facts about a v1 optimizer that its bridge needs.

    Attributes:
      arguments: the arguments `lr_attr`, `global_step_attr` and `fused` of `to_keras`, a dict.
      inputs: a dict from the `id` of the optimizer, and of each nested one, to its `StepInputs`.
      rates: the names of the attributes that hold the learning rate. Empty if there is no learning
        rate, or if there are several leaves (optimizers that update variables themselves, not
        wrappers), because each leaf keeps its own.
      numbers: a dict from the hyperparameters that can be set while training to their values, not
        rounded to float32. The keys are argument names of the v1 optimizer's constructor.
      counts_updates: whether the learning rate is one of v1's learning rate decays. These need the
        number of updates as an integer. Keras would pass a float, or the number of batches.
      accumulates: whether the v1 optimizer sums the gradients of several steps for one update.
      not_settable: the names of the v1 optimizer's arguments. Those that are not in `numbers`
        cannot be set while training.
      delegates_apply_gradients: whether the v1 optimizer overrides `apply_gradients`, so that the
        bridge has to call that method.
      step_dtype: the dtype of the v1 global step, which v1 checkpoints keep.
    """

    arguments: Dict[str, Any]
    inputs: Dict[int, step_inputs.StepInputs]
    rates: Tuple[str, ...]
    numbers: Dict[str, Any]
    counts_updates: bool
    accumulates: bool
    not_settable: FrozenSet[str]
    delegates_apply_gradients: bool
    step_dtype: tf.DType


def study(optimizer, owner, keras, learning_rate, saved, **arguments):
    """Returns the `BridgeSettings` of a v1 optimizer.

    Args:
      optimizer: the v1 optimizer.
      owner: the Keras optimizer, whose `iterations` v1 schedules will read.
      keras: the Keras package of that optimizer.
      learning_rate: the argument of `to_keras`, or None.
      saved: a dict with the `step_dtype`, `counts_updates` and `schedules` of a saved
        configuration. Values that it does not contain are None.
      **arguments: the arguments `lr_attr`, `global_step_attr` and `fused` of `to_keras`.

    Raises:
      TypeError: see `to_keras`.
      ValueError: see `to_keras`.
    """
    supported.check_class(optimizer)
    inputs = step_inputs.find_step_inputs(
        optimizer, arguments["lr_attr"], arguments["global_step_attr"], saved["step_dtype"]
    )
    everything, leaves = nesting.nested_optimizers(optimizer), nesting.leaves(optimizer)
    own_names = set()
    for each, _ in everything:
        # Some hyperparameters are not arguments: PowerSign has the logarithm of its base.
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
        not_settable=frozenset(own_names),
        delegates_apply_gradients=supported.overrides_apply_gradients(optimizer),
        step_dtype=inputs[id(leaves[0])].step_dtype,
    )


def _numbers(leaf, inputs, owner, keras, learning_rate, arguments):
    """Returns `rates`, `numbers` and the learning rate as given, for the only leaf."""
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
            reason = "for an optimizer made with learning_rate=None, which has its own schedule"
        raise ValueError(f"learning_rate={learning_rate!r} {reason}.")
    return own.rates, numbers, learning_rate


def _set_schedules(optimizer, leaves, inputs, owner, keras, learning_rate, saved):
    """Puts the schedules of several leaves into `inputs`."""
    if learning_rate is not None:
        raise ValueError(
            f"learning_rate={learning_rate!r}: {type(optimizer).__name__} holds "
            f"{len(leaves)} optimizers, and each has its own learning rate. Pass it to them."
        )
    for leaf, schedule in zip(leaves, saved or [None] * len(leaves)):
        own = inputs[id(leaf)]
        if own.rates:
            in_v1 = vars(leaf)[own.rates[0]]
            given = in_v1 if schedule is None else schedule
            rate = schedules.for_keras(given, owner, keras)
            # v1 optimizers cannot call all schedules, and v1's own learning rate decays would
            # read a global step that the Keras optimizer does not increment.
            if callable(rate) and (rate is not in_v1 or takes_step(rate)):
                inputs[id(leaf)] = own._replace(schedule=rate)
