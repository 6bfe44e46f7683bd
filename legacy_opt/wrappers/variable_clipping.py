"""Clips the norm of variables, not of gradients, after each update.

After an update of w by the inner optimizer, where ``|w|`` is the norm along given dimensions::

    w *= max_norm / max(|w|, max_norm)

Source: `tf.contrib.opt.VariableClippingOptimizer`. The constructor and the arithmetic are the same.
"""

from __future__ import annotations

import contextlib
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple, Union

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core import argument_checks, dynamic_embeddings, gradient_values
from legacy_opt.core.gradient_pairs import checked
from legacy_opt.core.hyperparameters import current_value
from legacy_opt.core.types import GradsAndVars, Hyperparameter, Operation, V1Optimizer, Variable
from legacy_opt.core.variable_access import Rows, WholeVariable, after, is_resource, variable_op
from legacy_opt.core.variable_lists import parts_of
from legacy_opt.wrappers.base import OptimizerWrapper


class VariableClippingOptimizer(OptimizerWrapper):
    """Clips variables to a norm after each update (tf.contrib.opt).

    After a sparse gradient, only the rows in the gradient are clipped, even if the inner optimizer
    changes all rows. However, if one of the dimensions is 0, the whole variable is clipped, which
    is slow. A variable without a gradient in a training step is not clipped in this step. To clip
    different variables to different norms, wrap one VariableClippingOptimizer in another.

    The class in tf.contrib has defects that this class does not have:

    * If a gradient contains the id of a row n times, the part of the row above the norm is
      subtracted n times, so that the row may change its direction.
    * With a sparse gradient, a negative number for the first axis means the rows in the gradient,
      not all rows.
    * Partitioned variables are never clipped.
    * Rows of ref variables may be read before they are updated.

    Example::

        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            w = tf.compat.v1.get_variable("w", initializer=[[3.0, 4.0], [0.3, 0.4]])
            descent = tf.compat.v1.train.GradientDescentOptimizer(1.0)
            optimizer = legacy_opt.VariableClippingOptimizer(descent, [(w, [1])], max_norm=1.0)
            train_op = optimizer.apply_gradients([(tf.zeros([2, 2]), w)])
            session.run(tf.compat.v1.global_variables_initializer())
            session.run(train_op)
            print(session.run(w).round(3).ravel())  # [0.6 0.8 0.3 0.4]

    Args:
      opt: the v1 optimizer that computes and applies gradients.
      vars_to_clip_dims: a dict from variables to lists of dimensions. The norm is computed along
        these dimensions. For example, ``{table: [1]}`` clips each row of a matrix. On TensorFlow 2,
        variables cannot be keys: write ``{table.ref(): [1]}`` or ``[(table, [1])]``.
      max_norm: the largest norm, above zero: a number, scalar tensor or variable, or a callable
        that returns one of these.
      use_locking: whether ref variables are locked while they are clipped.
      colocate_clip_ops_with_vars: whether to compute the clipping on the variables' devices.
      name: the name of the optimizer.

    Raises:
      TypeError: `opt` is not a v1 optimizer, or another argument has the wrong type.
      ValueError: `max_norm` is NaN, infinite or not above zero; a variable is listed twice; or a
        dimension does not exist, or is the axis along which the variable is partitioned.
    """

    _work_without_kernel = "clips variables"

    _opt = property(lambda self: self._wrapped[0])  # The class in tf.contrib has this attribute.

    def __init__(
        self,
        opt: V1Optimizer,
        vars_to_clip_dims: Union[Mapping[Any, Iterable[int]], Iterable[Tuple[Any, Iterable[int]]]],
        max_norm: Hyperparameter,
        use_locking: bool = False,
        colocate_clip_ops_with_vars: bool = False,
        name: str = "VariableClipping",
    ) -> None:
        super().__init__([opt], use_locking, name)
        self._clip_dims = _clip_dims(vars_to_clip_dims)
        for variable, _ in self._clip_dims:
            reason = "the table does not get the clipped rows"
            advice = "Pass max_norm=… to the lookup in the table."
            dynamic_embeddings.refuse(type(self).__name__, variable, reason, advice)
        self._max_norm = argument_checks.positive_hyperparameter("max_norm", max_norm)
        self._colocates = argument_checks.boolean(
            "colocate_clip_ops_with_vars", colocate_clip_ops_with_vars
        )

    def get_config(self) -> Dict[str, Any]:
        """Raises an error, because this optimizer cannot be saved with a Keras model (`to_keras`).

        Raises:
          ValueError: always.
        """
        raise ValueError(
            f"{type(self).__name__} cannot be saved: vars_to_clip_dims has variables, which a "
            "file cannot contain. Save the model without its optimizer, or only its weights, "
            "and create the optimizer again after loading."
        )

    def apply_gradients(
        self,
        grads_and_vars: GradsAndVars,
        global_step: Optional[Variable] = None,
        name: Optional[str] = None,
    ) -> Optional[Operation]:
        """Applies gradients, then clips. See `tf.compat.v1.train.Optimizer.apply_gradients`.

        Raises:
          ValueError: the method is called in a distribution strategy.
        """
        if tf.distribute.has_strategy():
            raise ValueError(
                f"{type(self).__name__} does not run in a tf.distribute strategy, where each "
                "replica has only the rows of its own gradients. Create the variables with "
                "constraint=… instead."
            )
        pairs = checked(type(self).__name__, grads_and_vars)
        with tf.compat.v1.name_scope(name, self._name) as scope:
            updated = super().apply_gradients(pairs, global_step=global_step)
            clipped = []
            with after(updated):
                for grad, variable in pairs:
                    dims = None if grad is None else self._dims_of(variable)
                    if dims is not None:
                        clipped.append(self._clip(grad, variable, dims))
            return tf.group(updated, *clipped, name=scope)

    def _dims_of(self, variable: Variable) -> Optional[List[int]]:
        """Returns the dimensions along which to clip a variable, or None if it is not clipped."""
        return next((dims for clipped, dims in self._clip_dims if clipped is variable), None)

    def _clip(self, grad: Any, variable: Variable, dims: List[int]) -> Optional[Operation]:
        access = WholeVariable()
        # Negative dimensions remain only if the rank is unknown, and may be the first dimension.
        if isinstance(grad, tf.IndexedSlices) and all(each > 0 for each in dims):
            access = Rows(tf.unique(grad.indices)[0])
        rows = None
        if access.indices is not None:
            with tf.device(variable.device):  # so that a parameter server sends only these rows
                if is_resource(variable):
                    rows = access.read(variable)
                else:  # tf.gather(variable, …) might read the value before the update
                    rows = tf.gather(variable.read_value(), access.indices)
        on_device = tf.device(variable.device) if self._colocates else contextlib.ExitStack()
        with on_device:
            values = variable.read_value() if rows is None else rows
            limit = current_value("max_norm", self._max_norm)
            limit = gradient_values.in_dtype(limit, variable.dtype.base_dtype)
            surplus = values - tf.clip_by_norm(values, limit, dims)
        if is_resource(variable):
            return access.subtract(variable, surplus)
        if access.indices is None:
            return tf.compat.v1.assign_sub(variable, surplus, use_locking=self._use_locking).op
        return variable_op(
            "ScatterSub",
            variable,
            indices=access.indices,
            updates=surplus,
            use_locking=self._use_locking,
        )


def _clip_dims(vars_to_clip_dims: Any) -> List[Tuple[Variable, List[int]]]:
    is_dict = hasattr(vars_to_clip_dims, "items")
    try:
        pairs = vars_to_clip_dims.items() if is_dict else vars_to_clip_dims
        pairs = [(key, list(dims)) for key, dims in pairs]
    except (TypeError, ValueError):
        raise TypeError(
            "vars_to_clip_dims must be a dict from variables to lists of dimensions, or a "
            f"list of pairs, such as [(table, [1])], got {vars_to_clip_dims!r}."
        ) from None
    clip_dims = []
    for key, dims in pairs:
        variable = versions.tf_variable(key.deref() if hasattr(key, "deref") else key)
        for part in parts_of(variable):
            if not hasattr(part, "assign_sub"):
                raise TypeError(f"vars_to_clip_dims must have variables as keys, got {part!r}.")
            if any(part is other for other, _ in clip_dims):
                raise ValueError(f"vars_to_clip_dims has the variable {part.name!r} twice.")
            clip_dims.append((part, [_dimension(part, each) for each in dims]))
    return clip_dims


def _dimension(variable: Variable, number: Any) -> int:
    """Returns a checked dimension. If the rank is known, the result is not negative."""
    rank = variable.shape.rank
    what = f"vars_to_clip_dims of variable {variable.name!r}"
    if isinstance(number, bool) or not hasattr(number, "__index__"):
        raise TypeError(f"{what} must contain only integers, got {number!r}.")
    number = int(number)
    if rank is None:
        return number
    if not -rank <= number < rank:
        raise ValueError(f"{what} has {number}, but its shape is {variable.shape}.")
    number %= rank
    part = versions.part_of(variable)
    if part is not None and part.axis == number:
        raise ValueError(
            f"{what} has {number}, along which the variable is partitioned: the norm over all "
            "partitions is not computed. Partition the variable along another dimension."
        )
    return number
