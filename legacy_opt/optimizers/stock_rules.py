"""The updates of TensorFlow's own v1 optimizers, as pure functions.

The functions compute the formulas of TensorFlow's kernels (training_ops.cc), with the operations in
the same order. Native kernels are generated from these functions. The Keras bridge calls them when
XLA compiles a sparse update, for which XLA has no kernel.
"""

from __future__ import annotations

import functools
import operator
from types import SimpleNamespace
from typing import Callable, Collection, Dict, Iterable, Mapping, NamedTuple, Optional, Tuple, Union

import tensorflow as tf

from legacy_opt.core.types import DType, Tensor, V1Optimizer
from legacy_opt.core.update import Values
from legacy_opt.core.variable_access import read_on_own_device
from legacy_opt.optimizers import adam_base

v1 = tf.compat.v1.train

# A `StockFunction` has the arguments of `RuleOptimizer.rule`. It returns the new value of the
# variable and a dict from slot names to the new values of the slots.
NewValues = Tuple[Tensor, Dict[str, Tensor]]
StockFunction = Callable[[Tensor, Tensor, Values, Values], NewValues]


class StockRule(NamedTuple):
    """The update of one of TensorFlow's v1 optimizers."""

    function: StockFunction  # of whole tensors, or of the rows in a sparse gradient
    # {name of a hyperparameter in `function`: attribute of the optimizer}. After `_prepare`, the
    # attribute is a tensor or a number. Of a tuple of names, the first that exists is used.
    tensors: Mapping[str, Union[str, Tuple[str, ...]]]
    flags: Dict[str, Callable[[V1Optimizer], bool]] = {}  # by their names in `function`
    sparse_function: Optional[StockFunction] = None  # None means `function`
    whole_tensor: bool = False  # whether a sparse gradient updates all rows
    powers: bool = False  # whether there are variables `beta1_power` and `beta2_power`
    # Returns why `function` does not compute the update of TensorFlow's kernel, or "" if it does.
    refused: Callable[[V1Optimizer], str] = lambda optimizer: ""

    def function_for(self, sparse: bool) -> StockFunction:
        if sparse and self.sparse_function is not None:
            return self.sparse_function
        return self.function


def _gradient_descent(grad: Tensor, value: Tensor, slots: Values, hyper: Values) -> NewValues:
    return value - hyper.learning_rate * grad, {}


def _momentum(
    grad: Tensor, value: Tensor, slots: Values, hyper: Values, of_rows: bool = False
) -> NewValues:
    momentum = slots.momentum * hyper.momentum + grad
    change = momentum * hyper.learning_rate
    if hyper.use_nesterov and not of_rows:
        change = grad * hyper.learning_rate + momentum * hyper.momentum * hyper.learning_rate
    elif hyper.use_nesterov:  # the order of products in the kernel for sparse gradients
        change = grad * hyper.learning_rate + momentum * (hyper.learning_rate * hyper.momentum)
    return value - change, {"momentum": momentum}


def _adam(
    grad: Tensor, value: Tensor, slots: Values, hyper: Values, rounding: str = adam_base.AS_FUSED
) -> NewValues:
    m, v = adam_base.moments(grad, slots, hyper, rounding)
    change = adam_base.corrected_rate(hyper) * m / (tf.sqrt(v) + hyper.epsilon)
    return value - change, {"m": m, "v": v}


def _adagrad(grad: Tensor, value: Tensor, slots: Values, hyper: Values) -> NewValues:
    accumulator = slots.accumulator + grad * grad
    change = grad * hyper.learning_rate * tf.math.rsqrt(accumulator)
    return value - change, {"accumulator": accumulator}


def _adadelta(grad: Tensor, value: Tensor, slots: Values, hyper: Values) -> NewValues:
    rho = hyper.rho
    epsilon = hyper.epsilon
    accum = slots.accum * rho + grad * grad * (1 - rho)
    change = tf.sqrt(slots.accum_update + epsilon) * tf.math.rsqrt(accum + epsilon) * grad
    accum_update = slots.accum_update * rho + change * change * (1 - rho)
    return value - change * hyper.learning_rate, {"accum": accum, "accum_update": accum_update}


def _rmsprop(
    grad: Tensor, value: Tensor, slots: Values, hyper: Values, of_rows: bool = False
) -> NewValues:
    rounding = adam_base.AS_WRITTEN if of_rows else adam_base.AS_FUSED
    rms = adam_base.moving_average(slots.rms, grad * grad, hyper.decay, rounding)
    changes = {"rms": rms}
    divisor = rms
    if hyper.centered:
        mg = adam_base.moving_average(slots.mg, grad, hyper.decay, rounding)
        changes["mg"] = mg
        divisor = rms - mg * mg
    if of_rows:  # the kernel for sparse gradients
        change = tf.math.rsqrt(divisor + hyper.epsilon) * hyper.learning_rate * grad
    else:
        change = grad * hyper.learning_rate / tf.sqrt(divisor + hyper.epsilon)
    changes["momentum"] = slots.momentum * hyper.momentum + change
    return value - changes["momentum"], changes


def _ftrl(grad: Tensor, value: Tensor, slots: Values, hyper: Values) -> NewValues:
    accum = slots.accum + grad * grad
    root = _root(accum, hyper.learning_rate_power)
    old_root = _root(slots.accum, hyper.learning_rate_power)
    sigma = (root - old_root) / hyper.learning_rate
    linear = slots.linear + ((grad + 2 * hyper.l2_shrinkage * value) - sigma * value)
    quadratic = root / hyper.learning_rate + 2 * hyper.l2
    proximal = (tf.sign(linear) * hyper.l1 - linear) / quadratic
    new_value = tf.compat.v2.where(tf.abs(linear) > hyper.l1, proximal, tf.zeros_like(linear))
    return new_value, {"accum": accum, "linear": linear}


def _root(accum: Tensor, learning_rate_power: Tensor) -> Tensor:
    """Returns ``accum**-learning_rate_power``; the square root if the power is -0.5, the default.

    The power may change while training, so it is not compared in Python.
    """
    is_default = tf.equal(learning_rate_power, -0.5)
    return tf.compat.v2.where(is_default, tf.sqrt(accum), accum**-learning_rate_power)


def _refused_ftrl(optimizer: V1Optimizer) -> str:
    if optimizer._l2_shrinkage_regularization_strength <= 0:
        return ""
    return (
        "l2_shrinkage_regularization_strength is not 0 (with dense gradients, TensorFlow 2.4 "
        "multiplies the new value of the slot 'linear' by the learning rate)"
    )


def _adagrad_da(grad: Tensor, value: Tensor, slots: Values, hyper: Values) -> NewValues:
    step = hyper.global_step
    total = slots.gradient_accumulator + grad
    squares = slots.gradient_squared_accumulator + grad * grad
    shrunk = tf.sign(total) * tf.maximum(tf.abs(total) - hyper.l1 * step, 0)
    rate = hyper.learning_rate
    new_value = -rate * shrunk / (hyper.l2 * step * rate + tf.sqrt(squares))
    return new_value, {"gradient_accumulator": total, "gradient_squared_accumulator": squares}


def _proximal(grad: Tensor, value: Tensor, rate: Tensor, hyper: Values) -> Tensor:
    moved = value - rate * grad
    return tf.sign(moved) * tf.maximum(tf.abs(moved) - rate * hyper.l1, 0) / (1 + rate * hyper.l2)


def _proximal_adagrad(grad: Tensor, value: Tensor, slots: Values, hyper: Values) -> NewValues:
    accumulator = slots.accumulator + grad * grad
    rate = hyper.learning_rate * tf.math.rsqrt(accumulator)
    return _proximal(grad, value, rate, hyper), {"accumulator": accumulator}


def _proximal_gradient_descent(
    grad: Tensor, value: Tensor, slots: Values, hyper: Values
) -> NewValues:
    return _proximal(grad, value, hyper.learning_rate, hyper), {}


_RATE = {"learning_rate": "_learning_rate_tensor"}
_L1 = {"l1": "_l1_regularization_strength_tensor"}
_L1_AND_L2 = dict(_RATE, **_L1, l2="_l2_regularization_strength_tensor")

#: A dict from TensorFlow's classes to their `StockRule`.
RULES = {
    v1.AdadeltaOptimizer: StockRule(
        _adadelta, {"learning_rate": "_lr_t", "rho": "_rho_t", "epsilon": "_epsilon_t"}
    ),
    v1.AdagradDAOptimizer: StockRule(
        _adagrad_da,
        dict(
            _RATE,
            global_step="_global_step_on_worker",
            l1="_l1_regularization_strength",
            l2="_l2_regularization_strength",
        ),
    ),
    v1.AdagradOptimizer: StockRule(_adagrad, _RATE),
    v1.AdamOptimizer: StockRule(
        _adam,
        dict(learning_rate="_lr_t", beta1="_beta1_t", beta2="_beta2_t", epsilon="_epsilon_t"),
        sparse_function=functools.partial(_adam, rounding=adam_base.AS_IN_A_SESSION),
        whole_tensor=True,
        powers=True,
    ),
    v1.FtrlOptimizer: StockRule(
        _ftrl,
        dict(
            _RATE,
            **_L1,
            # Newer TensorFlow versions adjust l2 by an argument `beta`.
            l2=(
                "_adjusted_l2_regularization_strength_tensor",
                "_l2_regularization_strength_tensor",
            ),
            l2_shrinkage="_l2_shrinkage_regularization_strength_tensor",
            learning_rate_power="_learning_rate_power_tensor",
        ),
        refused=_refused_ftrl,
    ),
    v1.GradientDescentOptimizer: StockRule(_gradient_descent, _RATE),
    v1.MomentumOptimizer: StockRule(
        _momentum,
        dict(_RATE, momentum="_momentum_tensor"),
        flags={"use_nesterov": operator.attrgetter("_use_nesterov")},
        sparse_function=functools.partial(_momentum, of_rows=True),
    ),
    v1.ProximalAdagradOptimizer: StockRule(_proximal_adagrad, _L1_AND_L2),
    v1.ProximalGradientDescentOptimizer: StockRule(_proximal_gradient_descent, _L1_AND_L2),
    v1.RMSPropOptimizer: StockRule(
        _rmsprop,
        dict(_RATE, decay="_decay_tensor", momentum="_momentum_tensor", epsilon="_epsilon_tensor"),
        flags={"centered": operator.attrgetter("_centered")},
        sparse_function=functools.partial(_rmsprop, of_rows=True),
    ),
}


def updating_class(classes: Iterable[type], methods: Collection[str]) -> type:
    """Returns the first class that defines one of the update methods."""
    return next(cls for cls in classes if set(methods) & set(vars(cls)))


def scalars_of(rule: StockRule, optimizer: V1Optimizer) -> Dict[str, Tensor]:
    """Returns the hyperparameters of a training step, as a dict from name to tensor."""
    scalars = {}
    for name, attributes in rule.tensors.items():
        attributes = (attributes,) if isinstance(attributes, str) else attributes
        attribute = next(each for each in attributes if hasattr(optimizer, each))
        scalars[name] = tf.convert_to_tensor(getattr(optimizer, attribute))
    if rule.powers:
        powers = map(read_on_own_device, optimizer._get_beta_accumulators())
        scalars.update(zip(("beta1_power", "beta2_power"), powers))
    return scalars


def hyper_of(
    rule: StockRule, optimizer: V1Optimizer, scalars: Dict[str, Tensor], dtype: DType
) -> Values:
    """Returns `hyper` for a `StockFunction`: `scalars_of` the optimizer in a dtype, and flags."""
    tensors = {name: tf.cast(tensor, dtype) for name, tensor in scalars.items()}
    flags = {name: bool(flag(optimizer)) for name, flag in rule.flags.items()}
    return SimpleNamespace(**tensors, **flags)
