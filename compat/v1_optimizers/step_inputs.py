"""What a bridge feeds the optimizers that it drives: their learning rates, and the step."""

from typing import Any, NamedTuple, Optional, Tuple

import tensorflow as tf

from . import inspection, supported
from .nesting import parts


class Feed(NamedTuple):
    """What one optimizer is fed in each step.

    Attributes:
      rates: the names of the attributes that hold its learning rate.
      by_keras: whether Keras' learning rate goes there.
      schedule: what goes there in place of that, as `schedules.for_keras` returns it; None if it
        keeps what it has.
      step: the name of the attribute that holds the global step, or None.
      step_dtype: the dtype of the step there.
      counts: the names of attributes that hold the global step as the variable that is advanced.
    """

    rates: Tuple[str, ...] = ()
    by_keras: bool = False
    schedule: Any = None
    step: Optional[str] = None
    step_dtype: tf.DType = tf.int64
    counts: Tuple[str, ...] = ()

    @property
    def is_fed_a_rate(self):
        """Whether its learning rate is another one in each step."""
        return self.by_keras or self.schedule is not None

    @property
    def attributes(self):
        """The names of all attributes that may be fed."""
        steps = () if self.step is None else (self.step,)
        return self.rates + steps + self.counts


def feeds(optimizer, lr_attr=None, global_step_attr=None, step_dtype=None):
    """Finds out what there is to feed.

    Args:
      optimizer: the v1 optimizer.
      lr_attr: the user's word on the attribute of the learning rate; see `to_keras`.
      global_step_attr: the same on that of the step.
      step_dtype: the dtype of the step, if a configuration tells it; of several optimizers inside a
        list.

    Returns:
      A dict from the `id` of each optimizer that belongs together to its `Feed`; no schedules.

    Raises:
      ValueError: see `inspection`; or the user's word is for one of several optimizers.
    """
    everything = parts(optimizer)
    leaves = [part.optimizer for part in everything if part.is_leaf]
    found = {id(part.optimizer): _of_wrapper(part.optimizer) for part in everything}
    if len(leaves) == 1:
        found[id(leaves[0])] = _of_leaf(leaves[0], lr_attr, global_step_attr, step_dtype)
        return found
    for name, value in ("lr_attr", lr_attr), ("global_step_attr", global_step_attr):
        if value is not None:
            raise ValueError(
                f"{name}={value!r}: {type(optimizer).__name__} holds {len(leaves)} "
                "optimizers, and there is no telling which of them is meant. Learning rates "
                f"stay their own; keep a step in the attribute {inspection.STEP_ATTRIBUTE!r}."
            )
    dtypes = step_dtype if isinstance(step_dtype, (list, tuple)) else [step_dtype] * len(leaves)
    for leaf, dtype in zip(leaves, dtypes):
        found[id(leaf)] = _of_several(leaf, dtype)
    return found


def _of_wrapper(optimizer):
    return Feed(counts=inspection.integer_variables(optimizer))


def _of_leaf(optimizer, lr_attr, global_step_attr, step_dtype):
    rates = inspection.learning_rate_attributes(optimizer, lr_attr)
    step = inspection.step_attribute(optimizer, global_step_attr, rates)
    supported.check_variables(optimizer, rates + (inspection.STEP_ATTRIBUTE, step))
    dtype = _step_dtype(optimizer, step, step_dtype)
    return Feed(rates, by_keras=bool(rates), step=step, step_dtype=dtype)


def _of_several(optimizer, step_dtype):
    state = vars(optimizer)
    rates = tuple(
        name for name in inspection.LEARNING_RATE_ATTRIBUTES if state.get(name) is not None
    )
    step = inspection.step_attribute(optimizer, None, rates)
    supported.check_variables(optimizer, rates + (inspection.STEP_ATTRIBUTE, step))
    return Feed(rates, step=step, step_dtype=_step_dtype(optimizer, step, step_dtype))


def _step_dtype(optimizer, step, told):
    dtype = told or getattr(getattr(optimizer, step or "", None), "dtype", tf.int64)
    return tf.as_dtype(dtype).base_dtype
