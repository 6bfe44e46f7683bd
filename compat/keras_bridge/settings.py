"""Studies a v1 optimizer once, before Keras' own constructor runs: `study` -> `BridgeSettings`."""

from typing import Any, Dict, FrozenSet, NamedTuple, Tuple

import tensorflow as tf

from legacy_opt.core.hyperparameters import takes_step

from ..v1_optimizers import inspection, nesting, schedules, step_inputs, supported


class BridgeSettings(NamedTuple):
    """The facts about a v1 optimizer that its bridge needs.

    Attributes:
      arguments: the arguments `lr_attr`, `global_step_attr` and `fused` of `to_keras`, a dict.
      inputs: a dict from the `id` of each optimizer, nested ones included, to its `StepInputs`.
      rates: the names of the attributes that hold the learning rate; none where several optimizers
        update variables, each of which keeps its own, or where there is no learning rate.
      numbers: a dict from hyperparameters that can be set while training, as v1's constructor calls
        them, to their values, not rounded to float32.
      counts_updates: whether the learning rate is one of v1's decays. These count updates, not
        batches of which several make one update, and compare integers.
      accumulates: whether v1 sums the gradients of several steps for one update.
      not_settable: the names of v1's arguments, which must not be set unless they are in `numbers`.
      delegates_apply_gradients: whether v1 overrides `apply_gradients`, so that the bridge has to
        call that method itself.
      step_dtype: the dtype of v1's global step, which its checkpoints keep.
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
      keras: that optimizer's Keras.
      learning_rate: the argument of `to_keras`, or None.
      saved: what a saved configuration tells in addition: a dict with `step_dtype`,
        `counts_updates` and `schedules`, each None if there is none.
      **arguments: `lr_attr`, `global_step_attr` and `fused`, as for `to_keras`.

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
        # Hyperparameters are not always arguments: PowerSign keeps the logarithm of its base.
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
    """Returns `rates` and `numbers` of the only optimizer that updates variables, and its rate."""
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
    """Puts the schedules of several optimizers that update variables into their `inputs`."""
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
            # v1 cannot call every schedule itself, and its own decays would read a step that
            # nothing advances here.
            if callable(rate) and (rate is not in_v1 or takes_step(rate)):
                inputs[id(leaf)] = own._replace(schedule=rate)
