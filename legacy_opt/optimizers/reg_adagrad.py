"""RegAdagrad: Adagrad that can apply a gradient without updating the accumulator.

The update of a variable w with the gradient g::

    accumulator += g * g      (not inside avoid_updating_slots)
    w -= learning_rate * g / sqrt(accumulator)

Source: `RegAdagradOptimizer` of TensorFlow 1's `tf.contrib.opt`, with the same constructor, slot,
variable names and arithmetic.
"""

from __future__ import annotations

import contextlib
import threading
from types import SimpleNamespace
from typing import Dict, Iterator, Optional

import tensorflow as tf

from legacy_opt.core import argument_checks, fused_kernels
from legacy_opt.core.hyperparameters import tensor_of
from legacy_opt.core.rule_optimizer import RuleOptimizer
from legacy_opt.core.slots import Slot
from legacy_opt.core.types import Hyperparameter, Operation, Tensor, Variable
from legacy_opt.core.update import RuleResult, Update, Values


class RegAdagradOptimizer(RuleOptimizer):
    """Adagrad that can leave its slots unchanged (`tf.contrib.opt.RegAdagradOptimizer`).

    For example, the gradient of a regularization term should not add to the accumulator, because a
    larger accumulator makes the updates for other losses smaller.

    The optimizer has one slot, `accumulator` (`w/RegAdagrad`), with the variable's shape and dtype,
    initialized to `initial_accumulator_value`. Outside `avoid_updating_slots` the results are bit
    for bit those of `tf.compat.v1.train.AdagradOptimizer`.

    Example::

        with tf.Graph().as_default():
            w = tf.compat.v1.get_variable("w", initializer=[1.0, 2.0])
            optimizer = legacy_opt.RegAdagradOptimizer(0.1)
            train_op = optimizer.minimize(tf.reduce_sum(tf.square(w - 1.0)))
            with optimizer.avoid_updating_slots():
                regularize_op = optimizer.minimize(0.01 * tf.reduce_sum(tf.square(w)))

    Args:
      learning_rate: a number, scalar tensor or variable, or a callable that returns one of these.
      initial_accumulator_value: initial value of the accumulator, above zero.
      use_locking: whether TensorFlow's Adagrad kernel and native kernels lock the variables while
        they write.
      name: the name of the optimizer and its slot.

    Raises:
      TypeError: an argument has the wrong type.
      ValueError: an argument is NaN or out of range.
    """

    def __init__(
        self,
        learning_rate: Hyperparameter,
        initial_accumulator_value: float = 0.1,
        use_locking: bool = False,
        name: str = "RegAdagrad",
    ) -> None:
        super().__init__(use_locking, name, learning_rate=learning_rate)
        self._initial_accumulator_value = argument_checks.positive(
            "initial_accumulator_value", initial_accumulator_value
        )
        # The ids of threads in `avoid_updating_slots`; shared by the copies that `to_keras` makes.
        self._avoiding = SimpleNamespace(threads=[])
        self._updates_slots = True

    @contextlib.contextmanager
    def avoid_updating_slots(self) -> Iterator[None]:
        """Returns a context manager in which updates do not change the slots.

        The context affects calls of `minimize` and `apply_gradients`. Eager code calls them in each
        training step. A graph calls them when it is built, a `tf.function` when it is traced. So
        the context has no effect on operations and traces that were created outside. Those that
        were created inside do not change the slots, even when they run outside. Do not call the
        same `tf.function` both inside and outside: write two functions. Contexts can be nested, and
        have no effect on calls in other threads.

        The context also affects Keras optimizers that `legacy_opt.compat.to_keras` has created from
        this optimizer. In your own `train_step`, write ``with optimizer.avoid_updating_slots():
        keras_optimizer.apply_gradients(…)``. (As always in Keras, this call increments the Keras
        optimizer's `iterations`.)
        """
        self._avoiding.threads.append(threading.get_ident())
        try:
            yield
        finally:
            self._avoiding.threads.remove(threading.get_ident())

    # Private attributes of the class in tf.contrib, which subclasses may read.
    _learning_rate_tensor = tensor_of("learning_rate")

    @property
    def _should_update_slots(self) -> bool:
        threads = self._avoiding.threads
        # Under a strategy, another thread than the one in the context may update the variables.
        may_be_inside = threading.get_ident() in threads or tf.distribute.has_strategy()
        return not (threads and may_be_inside)

    def _prepare(self) -> None:
        self._updates_slots = self._should_update_slots  # kernels notice a changed attribute
        super()._prepare()

    def slot_layouts(self, variable: Variable) -> Dict[str, Slot]:
        return {"accumulator": Slot(self._initial_accumulator_value)}

    def rule(self, grad: Tensor, value: Tensor, slots: Values, hyper: Values) -> RuleResult:
        accumulator = slots.accumulator
        if self._updates_slots:
            accumulator += grad * grad
        change = grad * hyper.learning_rate * tf.math.rsqrt(accumulator)
        return change, {"accumulator": accumulator}

    def fused(self, update: Update) -> Optional[Operation]:
        return fused_kernels.apply(
            "Adagrad",
            update,
            use_locking=self._use_locking,
            accum=update.slots.accumulator,
            lr=update.hyper.learning_rate,
            update_slots=self._updates_slots,
        )
