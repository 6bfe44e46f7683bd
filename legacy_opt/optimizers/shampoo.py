"""Shampoo: a preconditioner for each axis, from the second moments of the slices along that axis.

A gradient g has n axes. For each axis i, ``G_i(g)`` is the matrix of the inner products of all
pairs of slices of g along this axis. (If g is a matrix, ``G_0(g) = g gT`` and ``G_1(g) = gT g``.)
The decays, weights and intervals may depend on ``T = global_step + 1``::

    gbar = gbar_decay * gbar + gbar_weight * g
    Gbar_i = mat_gbar_decay * Gbar_i + mat_gbar_weight * G_i(g)
    H_i = (Gbar_i / length of axis i + epsilon * I) ** (-alpha / n)
    w -= learning_rate * (gbar, contracted with H_i along each axis i)

Source: `tf.contrib.opt.ShampooOptimizer` of TensorFlow 1.15, after Gupta, Koren and Singer,
"Shampoo: Preconditioned Stochastic Tensor Optimization" (2018).
"""

from __future__ import annotations

import numbers
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

import tensorflow as tf

from legacy_opt.core import argument_checks
from legacy_opt.core.hyperparameters import current_value, takes_step, wide_dtype
from legacy_opt.core.named_values import changed
from legacy_opt.core.rule_optimizer import RuleOptimizer
from legacy_opt.core.slots import RowSlot, Slot, TensorSlot
from legacy_opt.core.types import (
    DType,
    FunctionOfStep,
    GlobalStep,
    Hyperparameter,
    Tensor,
    TensorLike,
    TensorShape,
    Variable,
)
from legacy_opt.core.update import Addition, RuleResult, Values
from legacy_opt.optimizers import shampoo_matrices


class ShampooOptimizer(RuleOptimizer):
    """Kronecker-factored preconditioning (tf.contrib.opt).

    For an axis longer than `max_matrix_size`, only the diagonal of the matrix is stored. The power
    of the diagonal is computed element by element, without epsilon; the power of zero is defined as
    zero. The diagonal of ``G_i`` is divided by the length of the axis before it is added to
    ``Gbar_i``, except for vectors.

    Slots, named after the optimizer (`w/Shampoo`, `w/Shampoo_1`, …), in this order:

    * `gbar`: shape and dtype of the variable, initialized to zero.
    * for each axis i: first `H_i`, a matrix initialized to the identity, only if `svd_interval` is
      not 1 and the axis is not longer than `max_matrix_size`; then `Gbar_i`, a matrix or a
      diagonal, initialized to zero. `H_i`, `Gbar_i` and the arithmetic are float32, or float64 for
      float64 variables. Each partition of a partitioned variable has separate matrices, which only
      a graph with the same partitions can restore.

    The default ``global_step=0`` is a constant. If an interval is not 1, or if a parameter is a
    function of the global step, the training has to increment the global step. A
    `GlobalStepWarning` is issued if the global step may stay constant. As in tf.contrib, the global
    step is rounded to float32. So intervals and functions of the global step get only every second
    value from `2**24` (1.7e7) on, only every fourth value from `2**25` on, and so on.

    If the first axis is longer than `max_matrix_size` and `gbar_decay` is 0, a sparse gradient
    changes only the rows in the gradient, and `mat_gbar_decay` has to be 1. As in tf.contrib, such
    an update ignores `gbar_weight`, and does not divide diagonals by lengths of axes. All other
    sparse gradients are made dense.

    Unlike the class in tf.contrib, this class also trains float64, float16 and bfloat16 variables,
    treats scalars as vectors of one element, and accepts a function for `svd_interval` in Python 3.
    If `mat_gbar_decay` is 0 and `precond_update_interval` is not 1, this class keeps ``Gbar_i``
    until the next update of the matrices, while tf.contrib uses zeros.

    With `use_iterative_root`, the iterations stop too early if the norm of ``Gbar_i / length +
    epsilon * I`` is less than the relative error of the first iteration. For example, for 0.01
    times the 25 by 25 identity, the diagonal of the power -1/4 is 4.73 instead of 3.16. The class
    in tf.contrib has the same error, and its results are reproduced bit for bit.

    Example::

        with tf.Graph().as_default():
            w = tf.compat.v1.get_variable("w", [20, 30])
            step = tf.compat.v1.train.get_or_create_global_step()
            optimizer = legacy_opt.ShampooOptimizer(step, learning_rate=0.1)
            train_op = optimizer.minimize(tf.reduce_sum(w * w), global_step=step)
            shapes = [slot.shape.as_list() for slot in optimizer.variables()]
            print(shapes)  # [[20, 30], [20, 20], [30, 30]]

    Args:
      global_step: the scalar variable that counts training steps, or a number that is not negative;
        None means the graph's global step (`tf.compat.v1.train.get_global_step`).
      max_matrix_size: the longest axis that has a matrix.
      gbar_decay: a number, scalar tensor or variable, or a callable that returns one of these. The
        callable has either no argument, or the argument ``T``, a float32 tensor. The same types are
        accepted for `gbar_weight`, `mat_gbar_decay`, `mat_gbar_weight`, `learning_rate`,
        `svd_interval`, `precond_update_interval`, `epsilon` and `alpha`.
      gbar_weight: see the formulas of this module.
      mat_gbar_decay: see the formulas of this module; not negative.
      mat_gbar_weight: see the formulas of this module; not negative.
      learning_rate: the factor of the update.
      svd_interval: 1 or more; the powers ``H_i`` are computed if T is a multiple of this number.
      precond_update_interval: 1 or more; the matrices are updated if T is a multiple of this
        number, and ``mat_gbar_weight`` is multiplied by this number.
      epsilon: added to the matrices' diagonals; not negative.
      alpha: the exponent of the matrices is ``-alpha / n``, where n is the number of axes.
      use_iterative_root: whether to compute powers by iterations of matrix products in place of the
        singular value decomposition. Then ``rank / (2 * alpha)`` must be a whole number. For
        matrices with a small norm, the powers are inexact, as described above.
      use_locking: has no effect; True gives a `UseLockingWarning`.
      name: the name of the optimizer and its slots.

    Raises:
      TypeError: an argument has the wrong type.
      ValueError: an argument is NaN or out of range. The error is also raised when gradients are
        applied, if a variable's shape is unknown or does not fit the arguments.
    """

    allows_constant_step = True
    whole_tensor = True

    def __init__(
        self,
        global_step: Union[GlobalStep, float, None] = 0,
        max_matrix_size: int = 768,
        gbar_decay: Union[Hyperparameter, FunctionOfStep] = 0.0,
        gbar_weight: Union[Hyperparameter, FunctionOfStep] = 1.0,
        mat_gbar_decay: Union[Hyperparameter, FunctionOfStep] = 1.0,
        mat_gbar_weight: Union[Hyperparameter, FunctionOfStep] = 1.0,
        learning_rate: Union[Hyperparameter, FunctionOfStep] = 1.0,
        svd_interval: Union[Hyperparameter, FunctionOfStep] = 1,
        precond_update_interval: Union[Hyperparameter, FunctionOfStep] = 1,
        epsilon: Union[Hyperparameter, FunctionOfStep] = 1e-4,
        alpha: Union[Hyperparameter, FunctionOfStep] = 0.5,
        use_iterative_root: bool = False,
        use_locking: bool = False,
        name: str = "Shampoo",
    ) -> None:
        # RuleOptimizer converts the learning rate to a tensor. The other parameters stay Python
        # numbers, as in tf.contrib, because tensors would round differently.
        hyperparameters: Dict[str, Any] = {}
        if not takes_step(learning_rate):
            hyperparameters["learning_rate"] = learning_rate
        self.full_precision = tuple(hyperparameters)
        super().__init__(use_locking, name, global_step, **hyperparameters)
        self._learning_rate = _parameter("learning_rate", learning_rate)
        self._gbar_decay = _parameter("gbar_decay", gbar_decay)
        self._gbar_weight = _parameter("gbar_weight", gbar_weight)
        # The next two must not be negative, because the powers exist only for positive matrices.
        self._mat_gbar_decay = _parameter("mat_gbar_decay", mat_gbar_decay, least=0)
        self._mat_gbar_weight = _parameter("mat_gbar_weight", mat_gbar_weight, least=0)
        self._svd_interval = _parameter("svd_interval", svd_interval, least=1)
        self._precond_update_interval = _parameter(
            "precond_update_interval", precond_update_interval, least=1
        )
        self._epsilon = _parameter("epsilon", epsilon, least=0)
        self._alpha = _parameter("alpha", alpha, least=0)
        self._max_matrix_size = argument_checks.positive_integer("max_matrix_size", max_matrix_size)
        self._use_iterative_root = argument_checks.boolean("use_iterative_root", use_iterative_root)
        if self._use_iterative_root and not isinstance(self._alpha, numbers.Real):
            raise TypeError(f"alpha must be a number if use_iterative_root=True, got {alpha!r}.")

    @property
    def uses_global_step(self) -> bool:
        """Whether there are intervals other than 1, or functions of the step."""
        # Not with getattr: `to_keras` would note that each step reads these attributes.
        values = {name: vars(self)["_" + name] for name in _PARAMETERS}
        intervals = values["svd_interval"], values["precond_update_interval"]
        has_intervals = not all(_is_number(each, 1) for each in intervals)
        has_functions = any(map(takes_step, values.values()))
        return has_functions or has_intervals

    def slot_layouts(self, variable: Variable) -> Dict[str, Slot]:
        shape = _lengths(variable)
        dtype = wide_dtype(variable.dtype.base_dtype)
        if self._use_iterative_root and not shampoo_matrices.whole_root(-self._alpha / len(shape)):
            raise ValueError(
                f"{type(self).__name__}: use_iterative_root=True needs a whole number for "
                f"rank / (2 * alpha), got alpha={self._alpha!r} for variable "
                f"{variable.name!r} of rank {len(shape)}."
            )
        layouts = {"gbar": Slot()}
        for axis, length in enumerate(shape):
            if length <= self._max_matrix_size:
                layout = TensorSlot([length, length], dtype=dtype)
                if not _is_number(self._svd_interval, 1):
                    layouts[f"H_{axis}"] = IdentitySlot([length, length], dtype=dtype)
            elif axis > 0:
                layout = TensorSlot([length], dtype=dtype)
            else:
                layout = _RowsOfAPart(dtype=dtype)
            layouts[f"Gbar_{axis}"] = layout
        return layouts

    def needs_whole_tensor(self, variable: Variable) -> bool:
        has_matrix_of_rows = _lengths(variable)[0] <= self._max_matrix_size
        return has_matrix_of_rows or not _is_number(self._gbar_decay, 0)

    def hyperparameters(self, dtype: DType, non_slots: bool = True) -> Values:
        wide = wide_dtype(dtype)
        hyper = super().hyperparameters(wide, non_slots)
        if self.uses_global_step:
            hyper = changed(hyper, time=tf.cast(hyper.global_step, tf.float32) + 1)
        missing = [name for name in _PARAMETERS if not hasattr(hyper, name)]
        values = {name: self._current_parameter(name, hyper, wide) for name in missing}
        return changed(hyper, **values)

    def _current_parameter(self, name: str, hyper: Values, dtype: DType) -> Any:
        """Returns the current value of a parameter: a Python number, or a tensor of `dtype`."""
        value = getattr(self, "_" + name)
        if takes_step(value):
            value = argument_checks.hyperparameter(name, value(hyper.time))
        value = current_value(name, value)
        return tf.cast(value, dtype) if argument_checks.is_tensor_like(value) else value

    def rule(self, grad: Tensor, value: Tensor, slots: Values, hyper: Values) -> RuleResult:
        return self._update(grad, value, slots, hyper, is_sparse=False)

    def sparse_rule(self, grad: Tensor, value: Tensor, slots: Values, hyper: Values) -> RuleResult:
        if not _is_number(self._mat_gbar_decay, 1):
            raise ValueError(
                f"{type(self).__name__}: a sparse gradient of a variable of more than "
                f"max_matrix_size={self._max_matrix_size} rows needs mat_gbar_decay=1.0, got "
                f"{self._mat_gbar_decay!r}, which would have to decay rows outside the gradient, "
                "too."
            )
        return self._update(grad, value, slots, hyper, is_sparse=True)

    def _update(
        self, grad: Tensor, value: Tensor, slots: Values, hyper: Values, is_sparse: bool
    ) -> RuleResult:
        grad.set_shape(value.shape)  # a sparse gradient that was made dense has lost its shape
        is_scalar = not value.shape.rank  # a scalar is treated as a vector of one element
        grad = tf.reshape(grad, [1]) if is_scalar else grad
        grad = tf.cast(grad, wide_dtype(value.dtype))
        direction = grad
        changes = {}
        rank = grad.shape.rank
        if not is_sparse:
            gbar = tf.reshape(slots.gbar, [1]) if is_scalar else slots.gbar
            gbar = tf.cast(gbar, grad.dtype)
            direction, added = _average(gbar, hyper.gbar_decay, hyper.gbar_weight * grad)
            if added is not None:
                changes["gbar"] = Addition(tf.cast(tf.reshape(added, value.shape), value.dtype))
        rate = hyper.learning_rate
        for axis in range(rank):
            size: Any = grad.shape.as_list()[axis]
            if (is_sparse and axis == 0) or size > self._max_matrix_size:
                factor = self._diagonal(axis, grad, slots, hyper, changes, is_sparse)
                direction = _next_axis_first(direction)
                if axis == rank - 1:
                    # The rate is multiplied by the factor first, because Grappler uses this order
                    # in tf.contrib's graph. Grappler does not reorder a multiply_no_nan.
                    direction = tf.math.multiply_no_nan(direction, rate * factor)
                    rate = None
                else:
                    direction *= factor
            else:
                factor = self._matrix(axis, size, grad, slots, hyper, changes)
                direction = shampoo_matrices.contract_first_axis(direction, factor, size)
        change = direction if rate is None else rate * direction
        change = tf.reshape(change, []) if is_scalar else change
        return tf.cast(change, value.dtype), changes

    def _diagonal(
        self,
        axis: int,
        grad: Tensor,
        slots: Values,
        hyper: Values,
        changes: Dict[str, Any],
        is_sparse: bool,
    ) -> Tensor:
        """Puts the change of an axis' diagonal into `changes`; returns the diagonal's power."""
        name = f"Gbar_{axis}"
        weight = hyper.mat_gbar_weight
        other_axes = [each for each in range(grad.shape.rank) if each != axis]
        if other_axes:
            if not is_sparse:
                weight = weight * _reciprocal(grad.shape.as_list()[axis], grad.dtype)
            square = weight * tf.reduce_sum(tf.square(grad), axis=other_axes)
        else:
            square = tf.math.multiply_no_nan(grad, weight * grad)
        diagonal = tf.reshape(getattr(slots, name), [-1])
        diagonal, added = _average(diagonal, hyper.mat_gbar_decay, square)
        if added is not None:
            changes[name] = Addition(added)
        power = shampoo_matrices.power(diagonal, -hyper.alpha / grad.shape.rank)
        return tf.compat.v2.where(diagonal > 0, power, tf.zeros_like(power))

    def _matrix(
        self,
        axis: int,
        size: int,
        grad: Tensor,
        slots: Values,
        hyper: Values,
        changes: Dict[str, Any],
    ) -> Tensor:
        """Puts the change of an axis' matrix into `changes`; returns the power of the new matrix.

        Between two computations of the power (see `svd_interval`), the power is read from the slot.
        """
        name = f"Gbar_{axis}"
        weight = hyper.mat_gbar_weight * hyper.precond_update_interval
        exponent = -hyper.alpha / grad.shape.rank
        reciprocal = _reciprocal(size, grad.dtype)

        def products(factor: float = 1) -> Tensor:
            return weight * factor * shampoo_matrices.products_of_slices(grad, axis, size)

        old = getattr(slots, name)
        if not _is_number(self._precond_update_interval, 1):
            added = tf.cond(
                _is_due(hyper.time, hyper.precond_update_interval),
                lambda: _added(old, hyper.mat_gbar_decay, products()),
                lambda: tf.zeros_like(old),
            )
            matrix = (old + added) * reciprocal
            changes[name] = Addition(added)
        elif _is_number(hyper.mat_gbar_decay, 0):
            # `weight` is multiplied by `reciprocal` first, so that eager execution rounds like
            # graphs, in which Grappler uses this order.
            matrix = products(reciprocal)
        else:
            added = _added(old, hyper.mat_gbar_decay, products())
            matrix = (old + added) * reciprocal
            changes[name] = Addition(added)
        power_of = shampoo_matrices.power_by_svd
        if self._use_iterative_root:
            power_of = shampoo_matrices.power_by_iteration
        if _is_number(self._svd_interval, 1):
            return power_of(matrix, size, exponent, hyper.epsilon)
        power = tf.cond(
            _is_due(hyper.time, hyper.svd_interval),
            lambda: power_of(matrix, size, exponent, hyper.epsilon),
            lambda: getattr(slots, f"H_{axis}"),
        )
        changes[f"H_{axis}"] = power
        return power


class _RowsOfAPart(RowSlot):
    """One value per row; only a graph with the same partitions can restore the slot.

    In a graph with other partitions, a shorter partition may have a matrix instead of a diagonal.
    """

    def axes(self, variable: Variable) -> Tuple[int, ...]:
        return ()


class IdentitySlot(TensorSlot):
    """A square matrix, initialized to the identity."""

    def initializer(
        self, variable: Variable, shape: TensorShape, dtype: DType
    ) -> Callable[..., Tensor]:
        rows: Any = shape.as_list()[0]
        return lambda *_, **__: tf.eye(rows, dtype=dtype)


_PARAMETERS = (
    "gbar_decay",
    "gbar_weight",
    "mat_gbar_decay",
    "mat_gbar_weight",
    "learning_rate",
    "svd_interval",
    "precond_update_interval",
    "epsilon",
    "alpha",
)


def _parameter(name: str, value: Any, least: Optional[float] = None) -> Any:
    """Checks a parameter, which may also be a function of the global step, and returns it."""
    if not takes_step(value):
        value = argument_checks.hyperparameter(name, value)
    if least is not None and isinstance(value, numbers.Real) and value < least:
        raise ValueError(f"{name} must be at least {least!r}, got {value!r}.")
    return value


def _is_number(parameter: Any, number: float) -> bool:
    return isinstance(parameter, numbers.Real) and parameter == number


def _lengths(variable: Variable) -> List[Any]:
    """Returns the lengths of a variable's axes; a scalar is a vector of one element."""
    if not variable.shape.is_fully_defined():
        raise ValueError(
            f"ShampooOptimizer needs the static shape of variable {variable.name!r}, got "
            f"{variable.shape}: give it a static shape."
        )
    return variable.shape.as_list() or [1]


def _is_due(time: Tensor, interval: TensorLike) -> Tensor:
    return tf.math.floormod(time, tf.cast(interval, time.dtype)) < 1


def _average(old: Tensor, decay: TensorLike, addition: Tensor) -> Tuple[Tensor, Optional[Tensor]]:
    """Returns the new average, and the value to add to its slot (None if the slot is not used)."""
    if _is_number(decay, 0):
        return addition, None
    added = _added(old, decay, addition)
    return old + added, added


def _added(old: Tensor, decay: TensorLike, addition: Tensor) -> Tensor:
    """Returns the value to add to `old`, so that the sum is ``decay * old + addition``."""
    return addition if _is_number(decay, 1) else (decay - 1) * old + addition


def _reciprocal(size: Any, dtype: DType) -> Any:
    """Returns the factor ``1 / size``. In graphs, Grappler replaces divisions by such factors."""
    numpy_type = dtype.as_numpy_dtype
    return numpy_type(1) / numpy_type(size)


def _next_axis_first(tensor: Tensor) -> Tensor:
    """Moves the first axis to the end."""
    rank = tensor.shape.rank
    if rank == 1:
        return tensor
    return tf.transpose(tensor, [*range(1, rank), 0])
