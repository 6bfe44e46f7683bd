"""Finds the attributes of a v1 optimizer that `to_keras` sets: learning rate and global step.

A leaf is an optimizer that updates variables itself. A wrapper contains other optimizers.
"""

from typing import Any, NamedTuple, Optional, Tuple

import tensorflow as tf

from . import inspection, supported
from .nesting import nested_optimizers


class StepInputs(NamedTuple):
    """The attributes of one v1 optimizer that `to_keras` may set in each training step.

    Attributes:
      rates: the names of the attributes that contain the learning rate.
      by_keras: whether the attributes in `rates` are set to the Keras optimizer's learning rate.
      schedule: a result of `schedules.for_keras`, which computes the learning rate in each training
        step. None if `by_keras` is True, or if the attributes in `rates` stay unchanged.
      step: the name of the attribute that contains the global step, or None.
      step_dtype: the dtype of the global step.
      counts: the names of the attributes that contain an integer variable, such as a wrapper's
        global step. `to_keras` sets these attributes to Keras' `iterations`.
    """

    rates: Tuple[str, ...] = ()
    by_keras: bool = False
    schedule: Any = None
    step: Optional[str] = None
    step_dtype: tf.DType = tf.int64
    counts: Tuple[str, ...] = ()

    @property
    def rate_changes(self):
        """Whether the learning rate is set in each step."""
        return self.by_keras or self.schedule is not None

    @property
    def depends_on_step(self):
        """Whether the updates depend on the number of training steps done."""
        return self.step is not None or self.schedule is not None or bool(self.counts)


def find_step_inputs(optimizer, lr_attr=None, global_step_attr=None, step_dtype=None):
    """Finds the `StepInputs` of an optimizer and of all optimizers nested in it.

    Args:
      optimizer: the v1 optimizer.
      lr_attr: the argument `lr_attr` of `to_keras`.
      global_step_attr: the argument `global_step_attr` of `to_keras`.
      step_dtype: the dtype of the global step in a saved configuration, or None. If several
        optimizers update variables, a list with a dtype for each of these optimizers.

    Returns:
      A dict from the `id` of each optimizer to its `StepInputs`, in which `schedule` is None.

    Raises:
      ValueError: see `inspection` and `supported`; or `lr_attr` or `global_step_attr` is given
        although several optimizers update variables.
    """
    everything = nested_optimizers(optimizer)
    leaves = [nested.optimizer for nested in everything if nested.is_leaf]
    found = {id(nested.optimizer): _of_wrapper(nested.optimizer) for nested in everything}
    if len(leaves) == 1:
        found[id(leaves[0])] = _of_leaf(leaves[0], lr_attr, global_step_attr, step_dtype)
        return found
    for name, value in ("lr_attr", lr_attr), ("global_step_attr", global_step_attr):
        if value is not None:
            raise ValueError(
                f"{name}={value!r}: {type(optimizer).__name__} contains {len(leaves)} "
                "optimizers, and it is not clear which of them is meant. Each of them keeps its "
                "own learning rate, and to_keras finds a global step only in the attribute "
                f"{inspection.STEP_ATTRIBUTE!r}."
            )
    dtypes = step_dtype if isinstance(step_dtype, (list, tuple)) else [step_dtype] * len(leaves)
    for leaf, dtype in zip(leaves, dtypes):
        found[id(leaf)] = _of_several(leaf, dtype)
    return found


def _of_wrapper(optimizer):
    return StepInputs(counts=inspection.integer_variables(optimizer))


def _of_leaf(optimizer, lr_attr, global_step_attr, step_dtype):
    rates = inspection.learning_rate_attributes(optimizer, lr_attr)
    step = inspection.step_attribute(optimizer, global_step_attr, rates)
    supported.check_variables(optimizer, rates + (inspection.STEP_ATTRIBUTE, step))
    dtype = _step_dtype(optimizer, step, step_dtype)
    return StepInputs(rates, by_keras=bool(rates), step=step, step_dtype=dtype)


def _of_several(optimizer, step_dtype):
    state = vars(optimizer)
    rates = tuple(
        name for name in inspection.LEARNING_RATE_ATTRIBUTES if state.get(name) is not None
    )
    step = inspection.step_attribute(optimizer, None, rates)
    supported.check_variables(optimizer, rates + (inspection.STEP_ATTRIBUTE, step))
    return StepInputs(rates, step=step, step_dtype=_step_dtype(optimizer, step, step_dtype))


def _step_dtype(optimizer, step, saved):
    dtype = saved or getattr(getattr(optimizer, step or "", None), "dtype", tf.int64)
    return tf.as_dtype(dtype).base_dtype
