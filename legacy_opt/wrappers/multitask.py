"""Multi-task training: a gradient that is all zeros does not update its variable.

Source: `tf.contrib.opt.MultitaskOptimizerWrapper` and `clip_gradients_by_global_norm`.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core import argument_checks, gradient_values
from legacy_opt.core.conditions import run_by_cond
from legacy_opt.core.contract import UPDATE_METHODS
from legacy_opt.core.types import (
    GradAndVar,
    Gradient,
    GradsAndVars,
    Operation,
    Tensor,
    TensorLike,
    V1Optimizer,
    Variable,
)
from legacy_opt.core.variable_access import here
from legacy_opt.wrappers.base import OptimizerWrapper, name_of
from legacy_opt.wrappers.nested_optimizers import all_optimizers_in, inner_optimizers

v1 = tf.compat.v1
_BASIC_METHODS = "_apply_dense", "_apply_sparse", "_resource_apply_dense", "_resource_apply_sparse"


class MultitaskOptimizerWrapper(OptimizerWrapper):
    """Skips the update of a variable and its slots if the gradient is all zeros (tf.contrib.opt).

    In a batch without examples of a task, the gradients of variables that only this task uses are
    zeros. Without this wrapper, Momentum, Adam and similar optimizers would still decay their
    moments and change the variables. NaN is not zero. In a sparse gradient, rows with the same id
    are summed before the test, unless the inner optimizer applies rows without summing them, like
    GradientDescentOptimizer. The global step, and shared variables such as Adam's powers of beta,
    still change in every training step.

    To clip gradients by their global norm as well, use `clip_gradients_by_global_norm`, as the
    documentation of tf.contrib's class recommends.

    While `apply_gradients` runs, the update methods of the inner optimizer are replaced by methods
    that first test the gradient. If the inner optimizer is a wrapper, the update methods of the
    optimizers nested in it are replaced instead. When `apply_gradients` returns, the methods are
    restored.

    The class in tf.contrib changes the optimizer permanently, silently ignores wrappers, is not
    itself a `tf.compat.v1.train.Optimizer`, and fails for ref variables on TensorFlow 2. Like in
    tf.contrib, public attributes of the inner optimizer can be read from the wrapper.

    Example::

        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            w = tf.compat.v1.get_variable("w", initializer=[1.0])
            momentum = tf.compat.v1.train.MomentumOptimizer(0.1, momentum=0.9)
            grad = tf.compat.v1.placeholder(tf.float32, [1])
            train_op = legacy_opt.MultitaskOptimizerWrapper(momentum).apply_gradients([(grad, w)])
            session.run(tf.compat.v1.global_variables_initializer())
            for value in 1.0, 0.0:  # for the zero, Momentum alone would subtract 0.09
                session.run(train_op, {grad: [value]})
            print(session.run(w))  # [0.9]

    Args:
      opt: the v1 optimizer that computes and applies gradients.

    Raises:
      TypeError: `opt` is not a v1 optimizer; or `opt` or an optimizer nested in it updates
        variables in its own `apply_gradients`, not in the methods that TensorFlow calls for each
        variable.
    """

    _work_without_kernel = "tests whether gradients are zero"

    _opt = property(lambda self: self._wrapped[0])  # The class in tf.contrib has this attribute.

    def __init__(self, opt: V1Optimizer) -> None:
        super().__init__([opt], name=name_of(argument_checks.optimizer(type(self).__name__, opt)))
        for each in updating_optimizers(opt):
            if not any(_overrides(each, name) for name in _BASIC_METHODS):
                raise TypeError(
                    f"{type(self).__name__} cannot skip updates of {type(each).__name__}, "
                    "which updates all variables in its own apply_gradients, and not in methods "
                    "such as _apply_dense."
                )
        # (attributes of an optimizer, new methods, old methods); see `_conditional_updates`.
        self._replaced = []
        self._steps_being_built = 0

    def __getattr__(self, name: str) -> Any:
        # Private attributes of the inner optimizer are not returned, because TensorFlow gives each
        # optimizer, also the wrapper, private attributes with the same names.
        if name.startswith("_") or "_wrapped" not in vars(self):
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
        return getattr(self._wrapped[0], name)

    def apply_gradients(
        self,
        grads_and_vars: GradsAndVars,
        global_step: Optional[Variable] = None,
        name: Optional[str] = None,
    ) -> Optional[Operation]:
        """Applies gradients that are not all zeros."""
        with self._conditional_updates():
            return super().apply_gradients(grads_and_vars, global_step=global_step, name=name)

    @contextlib.contextmanager
    def _conditional_updates(self) -> Iterator[None]:
        """Scope in which the update methods do nothing for zero gradients.

        Replicas are threads: the first replaces the methods, and the last restores them.
        """
        self._steps_being_built += 1
        if self._steps_being_built == 1:
            for each in updating_optimizers(self):
                attributes = vars(each)
                methods = _conditional_methods(each)
                before = {name: attributes[name] for name in methods if name in attributes}
                self._replaced.append((attributes, methods, before))
                attributes.update(methods)
        try:
            yield
        finally:
            self._steps_being_built -= 1
            if self._steps_being_built == 0:
                for attributes, methods, before in self._replaced:
                    for name in methods:
                        del attributes[name]
                    attributes.update(before)
                self._replaced = []


def _conditional_methods(optimizer: V1Optimizer) -> Dict[str, Callable[..., Any]]:
    """Returns a dict from names of update methods to versions that skip zero gradients."""
    methods: Dict[str, Callable[..., Any]] = {}
    for name in UPDATE_METHODS:
        # The other methods of TensorFlow's base class only call the basic methods.
        if name in _BASIC_METHODS or _overrides(optimizer, name):
            methods[name] = _unless_zero(getattr(optimizer, name))
    if hasattr(optimizer, "prepare_step"):  # would change slots before the gradient is tested
        methods["prepare_step"] = lambda grads_and_vars: {}
    return methods


def _overrides(optimizer: V1Optimizer, name: str) -> bool:
    method_of_class = getattr(type(optimizer), name)
    return name in vars(optimizer) or method_of_class is not getattr(v1.train.Optimizer, name)


def _unless_zero(update: Callable[..., Any]) -> Callable[..., Any]:

    def update_unless_zero(grad: Gradient, *args: Any, **kwargs: Any) -> Any:
        is_nonzero = tf.reduce_any(tf.math.not_equal(gradient_values.values_of(grad), 0))
        building = versions.building()
        if building == versions.EAGER:
            return update(grad, *args, **kwargs) if is_nonzero.numpy() else None

        def updated() -> List[Any]:
            return [update(_in_branch(grad), *map(_in_branch, args), **kwargs)]

        is_function = building == versions.FUNCTION
        with contextlib.ExitStack() if is_function else versions.v1_control_flow():
            return run_by_cond(is_nonzero, updated).op

    return update_unless_zero


def _in_branch(value: Any) -> Any:
    if isinstance(value, tf.IndexedSlices):
        return tf.IndexedSlices(here(value.values), here(value.indices), value.dense_shape)
    return here(value)


def updating_optimizers(optimizer: V1Optimizer) -> List[V1Optimizer]:
    """Returns `optimizer`, or the innermost optimizers if `optimizer` is a wrapper."""
    return [each for each in all_optimizers_in(optimizer) if not inner_optimizers(each)]


def clip_gradients_by_global_norm(
    gradients_variables: GradsAndVars, clip_norm: TensorLike = 20.0
) -> Tuple[List[GradAndVar], Tensor]:
    """Clips gradients by their global norm.

    This is `tf.clip_by_global_norm` for (gradient, variable) pairs. Without native kernels, the
    results are bit for bit the same as in `tf.contrib.opt`. Sparse gradients and gradients of
    different dtypes are also allowed.

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
