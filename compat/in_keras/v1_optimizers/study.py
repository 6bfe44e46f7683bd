"""Finds the facts about a v1 optimizer that a bridge needs; `to_keras` calls `study` once.

A leaf is an optimizer that updates variables itself; a wrapper contains other optimizers.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, FrozenSet, List, NamedTuple, Optional, Tuple, Union

import tensorflow as tf

from legacy_opt.core.hyperparameters import takes_step
from legacy_opt.core.types import KerasOptimizer, KerasSchedule, V1Optimizer

from . import inspection, nesting, schedules, supported
from .schedules import KerasPackage, Rate


class Options(NamedTuple):
    """The arguments of a bridged optimizer that Keras' own optimizers do not have."""

    # Arguments of `to_keras`.
    learning_rate: Rate = None
    lr_attr: Union[str, bool, None] = None
    global_step_attr: Optional[str] = None
    fused: bool = True
    # Arguments that only a saved configuration has.
    step_dtype: Union[str, List[str], None] = None  # of the global step; a list has one per leaf
    by_updates: Optional[bool] = None  # whether the schedule was a decay of v1
    learning_rates: Optional[List[KerasSchedule]] = None  # the schedule of each leaf


class StepInputs(NamedTuple):
    """The attributes of one v1 optimizer that `to_keras` may set in each training step."""

    rates: Tuple[str, ...] = ()  # the names of the attributes that contain the learning rate
    by_keras: bool = False  # whether `rates` are set to the Keras optimizer's learning rate
    # A result of `schedules.for_keras`, which computes the learning rate in each training step.
    # None if `by_keras` is True, or if the attributes in `rates` stay unchanged.
    schedule: Rate = None
    step: Optional[str] = None  # the name of the attribute that contains the global step
    step_dtype: tf.DType = tf.int64
    # The attributes with an integer variable, such as a wrapper's global step. `to_keras` sets
    # these attributes to Keras' `iterations`.
    counts: Tuple[str, ...] = ()
    # (attribute, function) pairs for hyperparameters, other than the learning rate, that are decays
    # such as `tf.compat.v1.train.polynomial_decay`. See `schedules.decays`.
    decays: Tuple[Tuple[str, Callable], ...] = ()
    # The other attributes with a tensor of a TF1 graph. See `schedules.depends_on_graph`.
    graph_tensors: Tuple[str, ...] = ()

    @property
    def rate_changes(self) -> bool:
        """Whether the learning rate is set in each step."""
        return self.by_keras or self.schedule is not None

    @property
    def depends_on_step(self) -> bool:
        """Whether the updates depend on the number of training steps done."""
        has_any = self.step is not None or self.schedule is not None
        return has_any or bool(self.counts or self.decays)


class BridgeSettings(NamedTuple):
    """The facts about a v1 optimizer that the bridge (the code behind `to_keras`) needs."""

    options: Options  # without learning rates
    inputs: Dict[int, StepInputs]  # by the `id` of the v1 optimizer, and of each nested optimizer
    # The names of the attributes that contain the learning rate. Empty if there is no learning
    # rate, or if there are several leaves, which have separate learning rates.
    rates: Tuple[str, ...]
    # The value of each hyperparameter that can be set while training, not rounded to float32. The
    # keys are "learning_rate" and argument names of the leaf's constructor. Empty if there are
    # several leaves.
    numbers: Dict[str, Any]
    # Whether the learning rate is a decay such as `tf.compat.v1.train.exponential_decay`. A decay
    # needs the number of updates as an integer; Keras would pass a float, or count batches.
    counts_updates: bool
    accumulates: bool  # whether the gradients of several batches are summed for one update
    # The arguments and hyperparameters of the v1 optimizer and of the optimizers nested in it,
    # without `name` and `global_step`. Names that are in `numbers`, too, can be set while training.
    own_names: FrozenSet[str]
    delegates_apply_gradients: bool  # whether to call the v1 optimizer's own `apply_gradients`
    step_dtype: tf.DType  # the dtype in which v1 checkpoints store the global step


def study(
    optimizer: V1Optimizer, owner: KerasOptimizer, keras: KerasPackage, options: Options
) -> BridgeSettings:
    """Returns the `BridgeSettings` of a v1 optimizer; raises the errors of `to_keras`.

    Learning rate decays of v1 will read the `iterations` of the Keras optimizer `owner`, which is
    of the package `keras`.
    """
    supported.check_class(optimizer)
    supported.check_methods(optimizer)
    supported.check_untrained(optimizer)
    nested = nesting.nested_optimizers(optimizer)
    leaves = nesting.leaves(optimizer)
    wrappers = [each.optimizer for each in nested if not each.is_leaf]
    inputs = {
        id(each): _with_decays(each, StepInputs(counts=inspection.integer_variables(each)))
        for each in wrappers
    }
    rate_for_keras = functools.partial(schedules.for_keras, optimizer=owner, keras=keras)
    rates, numbers, given_rate = (), {}, None  # if there are several leaves
    if len(leaves) == 1:
        leaf_inputs, numbers, given_rate = _study_only_leaf(leaves[0], rate_for_keras, options)
        inputs[id(leaves[0])] = leaf_inputs
        rates = leaf_inputs.rates
    else:
        _check_one_is_meant(optimizer, leaves, options)
        dtypes = _one_per_leaf(options.step_dtype, leaves)
        schedules_of_leaves = _one_per_leaf(options.learning_rates, leaves)
        for leaf, dtype, schedule in zip(leaves, dtypes, schedules_of_leaves):
            inputs[id(leaf)] = _study_one_leaf(leaf, rate_for_keras, dtype, schedule)
    counts_updates = options.by_updates
    if counts_updates is None:  # not from a saved configuration
        counts_updates = schedules.is_v1_decay(given_rate)
    return BridgeSettings(
        options=options._replace(learning_rate=None, learning_rates=None),
        inputs=inputs,
        rates=rates,
        numbers=numbers,
        counts_updates=counts_updates,
        accumulates=any(map(nesting.accumulates, nested)),
        own_names=_own_names(nested, with_lr=len(leaves) > 1),
        delegates_apply_gradients=bool(supported.own_apply_gradients(type(optimizer))),
        step_dtype=inputs[id(leaves[0])].step_dtype,
    )


def _one_per_leaf(saved: Any, leaves: List[V1Optimizer]) -> List[Any]:
    """Returns a list of a value per leaf; `saved` is such a list, or one value for all leaves."""
    return list(saved) if isinstance(saved, (list, tuple)) else [saved] * len(leaves)


def _own_names(nested: List[nesting.NestedOptimizer], with_lr: bool) -> FrozenSet[str]:
    names = set()
    for each, _ in nested:
        # Some hyperparameters are not arguments. For example, PowerSign has the argument `base`,
        # but its hyperparameter is the logarithm of `base`.
        names.update(vars(each).get("_hyperparameter_names", ()))
        names.update(inspection.constructor_arguments(type(each)))
    names -= {"name", "global_step", "lr"}
    return frozenset({*names, "lr"}) if with_lr else frozenset(names)


def _study_only_leaf(
    leaf: V1Optimizer, rate_for_keras: Callable[[Rate], Rate], options: Options
) -> Tuple[StepInputs, Dict[str, Any], Rate]:
    """Returns the `StepInputs`, the `numbers`, and the learning rate as it was given."""
    rates = inspection.learning_rate_attributes(leaf, options.lr_attr)
    leaf_inputs = _step_inputs(leaf, rates, options.global_step_attr, options.step_dtype)
    set_in_each_step = dict.fromkeys(rates, tf.float32)
    if leaf_inputs.step is not None:
        set_in_each_step[leaf_inputs.step] = leaf_inputs.step_dtype
    numbers = inspection.hyperparameters(leaf, set_in_each_step)
    learning_rate = options.learning_rate
    if rates:
        if learning_rate is None:
            learning_rate = vars(leaf)[rates[0]]
        numbers["learning_rate"] = rate_for_keras(learning_rate)
    elif learning_rate is not None:
        reason = "with lr_attr=False"
        if options.lr_attr is not False:
            reason = "for an optimizer without a learning rate, or made with learning_rate=None,"
        raise ValueError(f"learning_rate={learning_rate!r} {reason} has no effect.")
    return leaf_inputs._replace(by_keras=bool(rates)), numbers, learning_rate


def _study_one_leaf(
    leaf: V1Optimizer,
    rate_for_keras: Callable[[Rate], Rate],
    step_dtype: Optional[str],
    schedule: Optional[Rate],
) -> StepInputs:
    """Returns the `StepInputs`; `schedule` is the saved schedule of the learning rate, or None."""
    names = inspection.LEARNING_RATE_ATTRIBUTES
    rates = tuple(name for name in names if vars(leaf).get(name) is not None)
    leaf_inputs = _step_inputs(leaf, rates, None, step_dtype)
    if rates:
        v1_rate = vars(leaf)[rates[0]]
        rate = rate_for_keras(v1_rate if schedule is None else schedule)
        # In each step, `V1Driver` sets the attribute to the result of a schedule that the v1
        # optimizer cannot call, or of a decay that would read a step that Keras does not increment.
        if callable(rate) and (rate is not v1_rate or takes_step(rate)):
            leaf_inputs = leaf_inputs._replace(schedule=rate)
    return leaf_inputs


def _step_inputs(
    leaf: V1Optimizer, rates: Tuple[str, ...], global_step_attr: Optional[str], saved_dtype: Any
) -> StepInputs:
    """Returns the `StepInputs` of a leaf whose learning rate is in the attributes `rates`."""
    step = inspection.step_attribute(leaf, global_step_attr, rates)
    supported.check_variables(leaf, rates + (inspection.STEP_ATTRIBUTE, step))
    dtype = saved_dtype or getattr(vars(leaf).get(step), "dtype", tf.int64)
    inputs = StepInputs(rates, step=step, step_dtype=tf.as_dtype(dtype).base_dtype)
    return _with_decays(leaf, inputs)


def _with_decays(optimizer: V1Optimizer, inputs: StepInputs) -> StepInputs:
    """Returns the `StepInputs` with `decays` and `graph_tensors`."""
    others = [key for key in vars(optimizer) if key not in (*inputs.rates, inputs.step)]
    tensors = tuple(key for key in others if schedules.depends_on_graph(vars(optimizer)[key]))
    decays = schedules.decays(optimizer, inputs.rates)
    return inputs._replace(decays=tuple(decays.items()), graph_tensors=tensors)


def _check_one_is_meant(optimizer: V1Optimizer, leaves: List[V1Optimizer], options: Options):
    """Raises a ValueError if an argument of `to_keras` would have to mean one of several leaves."""
    start = f"{type(optimizer).__name__} contains {len(leaves)} optimizers, and "
    for name in "lr_attr", "global_step_attr":
        value = getattr(options, name)
        if value is not None:
            raise ValueError(
                f"{name}={value!r}: {start}it is not clear which of them is meant. Each "
                "of them keeps its own learning rate, and to_keras finds a global step only in the "
                f"attribute {inspection.STEP_ATTRIBUTE!r}."
            )
    if options.learning_rate is not None:
        raise ValueError(
            f"learning_rate={options.learning_rate!r}: {start}each has its own learning rate. "
            "Pass the learning rate to their constructors."
        )
