"""Sparse updates that XLA can compile, for TensorFlow's own v1 optimizers.

XLA lacks the fused ResourceSparseApply… kernels, which these optimizers call. The functions here
apply the formulas from the kernels' documentation to the rows that have gradients. The last bits
may differ from the kernels' results. TensorFlow's Adam and GradientDescent are not in `RULES`,
because they do not use these kernels.
"""

import tensorflow as tf

from legacy_opt import DecoupledWeightDecayExtension
from legacy_opt.core.variable_access import Rows

v1 = tf.compat.v1.train


def _tensor(optimizer, name, like):
    return tf.cast(getattr(optimizer, name), like.dtype)


def _momentum(optimizer, g, w, slots):
    rate = _tensor(optimizer, "_learning_rate_tensor", g)
    mu = _tensor(optimizer, "_momentum_tensor", g)
    accum = slots["momentum"] * mu + g
    update = rate * (g + mu * accum) if optimizer._use_nesterov else rate * accum
    return w - update, {"momentum": accum}


def _adagrad(optimizer, g, w, slots):
    accum = slots["accumulator"] + g * g
    rate = _tensor(optimizer, "_learning_rate_tensor", g)
    return w - rate * g * tf.math.rsqrt(accum), {"accumulator": accum}


def _adadelta(optimizer, g, w, slots):
    rate, rho, epsilon = (_tensor(optimizer, n, g) for n in ("_lr_t", "_rho_t", "_epsilon_t"))
    accum = rho * slots["accum"] + (1 - rho) * g * g
    update = tf.sqrt(slots["accum_update"] + epsilon) * tf.math.rsqrt(accum + epsilon) * g
    accum_update = rho * slots["accum_update"] + (1 - rho) * update * update
    return w - rate * update, {"accum": accum, "accum_update": accum_update}


def _rmsprop(optimizer, g, w, slots):
    names = ("_learning_rate_tensor", "_decay_tensor", "_momentum_tensor", "_epsilon_tensor")
    rate, decay, mu, epsilon = (_tensor(optimizer, name, g) for name in names)
    rms = slots["rms"] + (1 - decay) * (g * g - slots["rms"])
    changes = {"rms": rms}
    divisor = rms + epsilon
    if optimizer._centered:
        mg = changes["mg"] = slots["mg"] + (1 - decay) * (g - slots["mg"])
        divisor -= mg * mg
    changes["momentum"] = mu * slots["momentum"] + rate * g * tf.math.rsqrt(divisor)
    return w - changes["momentum"], changes


def _ftrl(optimizer, g, w, slots):
    rate = _tensor(optimizer, "_learning_rate_tensor", g)
    power = _tensor(optimizer, "_learning_rate_power_tensor", g)
    l1 = _tensor(optimizer, "_l1_regularization_strength_tensor", g)
    # Newer versions of the class have an argument beta, and adjust l2 by it.
    adjusted = hasattr(optimizer, "_adjusted_l2_regularization_strength_tensor")
    l2_name = f"_{'adjusted_' if adjusted else ''}l2_regularization_strength_tensor"
    l2 = _tensor(optimizer, l2_name, g)
    shrinkage = _tensor(optimizer, "_l2_shrinkage_regularization_strength_tensor", g)
    accum = slots["accum"] + g * g
    sigma = (accum**-power - slots["accum"] ** -power) / rate
    linear = slots["linear"] + g + 2 * shrinkage * w - sigma * w
    quadratic = accum**-power / rate + 2 * l2
    proximal = (tf.sign(linear) * l1 - linear) / quadratic
    new = tf.compat.v2.where(tf.abs(linear) > l1, proximal, tf.zeros_like(linear))
    return new, {"accum": accum, "linear": linear}


def _adagrad_da(optimizer, g, w, slots):
    del w
    rate = _tensor(optimizer, "_learning_rate_tensor", g)
    step = tf.cast(optimizer._global_step_on_worker, g.dtype)
    l1, l2 = optimizer._l1_regularization_strength, optimizer._l2_regularization_strength
    total = slots["gradient_accumulator"] + g
    squares = slots["gradient_squared_accumulator"] + g * g
    shrunk = tf.sign(total) * tf.maximum(tf.abs(total) - tf.cast(l1, g.dtype) * step, 0)
    new = -rate * shrunk / (tf.cast(l2, g.dtype) * step * rate + tf.sqrt(squares))
    return new, {"gradient_accumulator": total, "gradient_squared_accumulator": squares}


def _proximal(optimizer, g, w, rate):
    l1 = _tensor(optimizer, "_l1_regularization_strength_tensor", g)
    l2 = _tensor(optimizer, "_l2_regularization_strength_tensor", g)
    moved = w - rate * g
    return tf.sign(moved) * tf.maximum(tf.abs(moved) - rate * l1, 0) / (1 + rate * l2)


def _proximal_adagrad(optimizer, g, w, slots):
    accum = slots["accumulator"] + g * g
    rate = _tensor(optimizer, "_learning_rate_tensor", g) * tf.math.rsqrt(accum)
    return _proximal(optimizer, g, w, rate), {"accumulator": accum}


def _proximal_gradient_descent(optimizer, g, w, slots):
    del slots
    return _proximal(optimizer, g, w, _tensor(optimizer, "_learning_rate_tensor", g)), {}


RULES = {
    v1.AdadeltaOptimizer: _adadelta,
    v1.AdagradDAOptimizer: _adagrad_da,
    v1.AdagradOptimizer: _adagrad,
    v1.FtrlOptimizer: _ftrl,
    v1.MomentumOptimizer: _momentum,
    v1.ProximalAdagradOptimizer: _proximal_adagrad,
    v1.ProximalGradientDescentOptimizer: _proximal_gradient_descent,
    v1.RMSPropOptimizer: _rmsprop,
}


def rule_for(optimizer_class):
    """Returns the function in `RULES` for the sparse update of a v1 class, or None."""
    for cls in optimizer_class.__mro__:
        if cls in RULES:
            return RULES[cls]
        if cls is DecoupledWeightDecayExtension:
            continue  # `apply_sparse` applies the weight decay of this class
        own = {"_resource_apply_sparse", "_resource_apply_sparse_duplicate_indices"} & set(
            vars(cls)
        )
        if own:  # a subclass that overrides the sparse update
            return None
    return None


def apply_sparse(rule, optimizer, grad, variable, indices):
    """Updates the rows `indices` of `variable` and of its slots with a function of `RULES`.

    Args:
      rule: the function that `rule_for` returned.
      optimizer: the v1 optimizer, after its `_prepare`.
      grad: one gradient row for each of `indices`, shape ``[n, …]``.
      variable: the resource variable.
      indices: row numbers without duplicates, shape ``[n]``.

    Returns:
      An operation; None when executing eagerly.
    """
    rows = Rows(indices)
    if isinstance(optimizer, DecoupledWeightDecayExtension):
        with optimizer.decayed(grad, variable, rows):
            return _apply_rows(rule, optimizer, grad, variable, rows)
    return _apply_rows(rule, optimizer, grad, variable, rows)


def _apply_rows(rule, optimizer, grad, variable, rows):
    slots = {name: optimizer.get_slot(variable, name) for name in optimizer.get_slot_names()}
    slots = {name: slot for name, slot in slots.items() if slot is not None}
    seen = {name: rows.read(slot) for name, slot in slots.items()}
    new, changes = rule(optimizer, grad, rows.read(variable), seen)
    with tf.control_dependencies([new] + list(changes.values())):
        written = [rows.assign(variable, new)]
        written += [rows.assign(slots[name], value) for name, value in changes.items()]
    return tf.group(*written)
