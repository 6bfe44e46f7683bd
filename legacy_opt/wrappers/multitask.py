"""For losses of several tasks: a gradient of nothing but zeros updates nothing.

Source: `tf.contrib.opt.MultitaskOptimizerWrapper` and `clip_gradients_by_global_norm`.
"""

from __future__ import annotations

import contextlib
from typing import List, Optional, Tuple

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core import argument_checks, gradient_values
from legacy_opt.core.types import (
    GradAndVar,
    GradsAndVars,
    Operation,
    Tensor,
    TensorLike,
    V1Optimizer,
    Variable,
)
from legacy_opt.core.variable_access import after, here
from legacy_opt.wrappers.base import OptimizerWrapper, name_of
from legacy_opt.wrappers.nested_optimizers import all_held_by, held_by

v1 = tf.compat.v1
_UPDATES = "_apply_dense", "_apply_sparse", "_resource_apply_dense", "_resource_apply_sparse"
_WITH_DUPLICATES = "_apply_sparse_duplicate_indices", "_resource_apply_sparse_duplicate_indices"


class MultitaskOptimizerWrapper(OptimizerWrapper):
    """Leaves a variable and its slots as they are where its gradient is all zeros (tf.contrib.opt).

    In a batch without examples of a task, the gradients of what belongs to that task alone are
    zeros. They mean that nothing is known, not that all is well: to Momentum, Adam and their like
    they would be a reason to forget and to move on. NaN is no zero. A sparse gradient is all zeros
    if, with the rows of equal ids summed, its rows are. What all variables share, as Adam's powers
    of beta, and the global step advance as always.

    If gradients are clipped by their global norm as well, as the original tells, use
    `clip_gradients_by_global_norm`.

    What updates variables is told to leave some alone: the optimizer inside or, if that is a
    wrapper, those that it holds. They are as they were when `apply_gradients` returns: done better
    than in the original, which changes the optimizer that it is given for good, works on no wrapper
    (without a word), is no `tf.compat.v1.train.Optimizer` itself, and on TensorFlow 2 fails for ref
    variables. Public attributes of the optimizer inside are attributes of this one, as there.

    Args:
      opt: the v1 optimizer that computes and applies gradients.

    Raises:
      TypeError: `opt` is no v1 optimizer; or what updates variables, it or one that it holds, does
        so in its own `apply_gradients`, not in the methods that TensorFlow calls for each variable.
    """

    _opt = property(lambda self: self._wrapped[0])  # as the original keeps it

    def __init__(self, opt: V1Optimizer) -> None:
        super().__init__([opt], name=name_of(argument_checks.optimizer(type(self).__name__, opt)))
        for each in updating_optimizers(opt):
            if not any(_overrides(each, name) for name in _UPDATES):
                raise TypeError(
                    f"{type(self).__name__} cannot leave variables alone in "
                    f"{type(each).__name__}, which updates all in its own apply_gradients, "
                    "past the methods _apply_dense and so on."
                )
        self._changed = []  # while a step is built: attributes, and which of them were there before
        self._steps_being_built = 0

    def __getattr__(self, name):
        # TensorFlow keeps private attributes on every optimizer, which are not to be mixed up.
        if name.startswith("_") or "_wrapped" not in vars(self):
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
        return getattr(self._wrapped[0], name)

    def apply_gradients(
        self,
        grads_and_vars: GradsAndVars,
        global_step: Optional[Variable] = None,
        name: Optional[str] = None,
    ) -> Optional[Operation]:
        """Applies gradients that are not all zeros.

        See `tf.compat.v1.train.Optimizer.apply_gradients`.
        """
        with self._leaving_alone():
            return super().apply_gradients(grads_and_vars, global_step=global_step, name=name)

    @contextlib.contextmanager
    def _leaving_alone(self):
        """Has updates ask first; of replicas, threads that wait for each other, the first does."""
        self._steps_being_built += 1
        if self._steps_being_built == 1:
            for each in updating_optimizers(self):
                asking = _asking_methods(each)
                before = {name: vars(each)[name] for name in asking if name in vars(each)}
                self._changed.append((vars(each), asking, before))
                vars(each).update(asking)
        try:
            yield
        finally:
            self._steps_being_built -= 1
            if self._steps_being_built == 0:
                for attributes, asking, before in self._changed:
                    for name in asking:
                        del attributes[name]
                    attributes.update(before)
                self._changed = []


def _asking_methods(optimizer):
    """Returns an optimizer's methods that update, by name, made to ask first."""
    names = _UPDATES + tuple(name for name in _WITH_DUPLICATES if _overrides(optimizer, name))
    methods = {name: _unless_zero(getattr(optimizer, name)) for name in names}
    if hasattr(optimizer, "prepare_step"):  # which would change slots before anybody is asked
        methods["prepare_step"] = lambda grads_and_vars: {}
    return methods


def _overrides(optimizer, name):
    return name in vars(optimizer) or (
        getattr(type(optimizer), name) is not getattr(v1.train.Optimizer, name)
    )


def _unless_zero(update):
    """Returns a method that updates like `update`, but not where the gradient is all zeros."""

    def update_unless_zero(grad, *args, **kwargs):
        some = tf.reduce_any(tf.math.not_equal(gradient_values.values_of(grad), 0))
        building = versions.building()
        if building == versions.EAGER:
            return update(grad, *args, **kwargs) if some.numpy() else None

        def updated():
            with after(update(*map(_inside, (grad,) + args), **kwargs)):
                return tf.constant(True)

        v1_cond = versions.v1_control_flow
        with contextlib.ExitStack() if building == versions.FUNCTION else v1_cond():
            return tf.cond(some, updated, lambda: tf.constant(False)).op

    return update_unless_zero


def _inside(value):
    if isinstance(value, tf.IndexedSlices):
        return tf.IndexedSlices(here(value.values), here(value.indices), value.dense_shape)
    return here(value)


def updating_optimizers(optimizer):
    """Returns what updates variables: the optimizer itself or, of a wrapper, all that it holds."""
    return [each for each in all_held_by(optimizer) if not held_by(each)]


def clip_gradients_by_global_norm(
    gradients_variables: GradsAndVars, clip_norm: TensorLike = 20.0
) -> Tuple[List[GradAndVar], Tensor]:
    """Clips gradients by their global norm, to which those of nothing but zeros add nothing.

    So it is `tf.clip_by_global_norm` for pairs. Done better than in `tf.contrib.opt`, whose bits it
    has: sparse gradients are allowed, and so are gradients of different dtypes.

    Args:
      gradients_variables: a list of (gradient, variable) pairs; a gradient may be None.
      clip_norm: the largest norm, a number or scalar tensor above zero.

    Returns:
      A list of (gradient, variable) pairs, and the global norm before clipping, a scalar tensor.

    Raises:
      TypeError: an argument has the wrong type.
      ValueError: `clip_norm` is not above zero, or no variable has a gradient.
    """
    clip_norm = gradient_values.positive_scalar("clip_norm", clip_norm)
    pairs = gradient_values.some_gradients("clip_gradients_by_global_norm", gradients_variables)
    norm = gradient_values.global_norm(pairs)
    return gradient_values.clip_by_global_norm(pairs, clip_norm, norm), norm
