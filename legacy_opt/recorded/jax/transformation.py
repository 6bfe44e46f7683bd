"""Makes transformations of optax from recorded rules. Needs optax, but no TensorFlow."""

from __future__ import annotations

from typing import Any, Callable, Tuple, Union

import jax
import jax.numpy as jnp
import optax

from legacy_opt.programs.program import Program
from legacy_opt.recorded.arrays.library import NATIVE, check_level
from legacy_opt.recorded.jax import JaxOptimizer, State
from legacy_opt.recorded.jax.updates import Rows, addend, is_subtraction
from legacy_opt.recorded.records import Record, RecordError

__all__ = ["State", "from_record"]


def from_record(
    record: Record, level: str = "exact", **hyperparameters: Union[float, Callable[[Any], Any]]
) -> optax.GradientTransformation:
    """Makes a transformation whose updates change parameters by a recorded rule.

    If no other transformation follows, `optax.apply_updates(params, updates)` gives the same bits
    as native kernels. The state is a `State`; a state of `optax.chain` contains it. As with
    `optax.inject_hyperparams`, JAX does not compile again for new values in `hyperparams`.

    The rules of AdagradDA, AdamW, Ftrl, MomentumW, ProximalAdagrad and ProximalGradientDescent do
    not subtract an update from the parameter. Their updates are new minus old parameters; for
    float32, the updates are float64. They are exact if the new parameter is zero or at least 2**-28
    of the old one. For float64, use `JaxOptimizer`.

    Example::

        import jax.numpy as jnp
        import optax
        from legacy_opt import recorded
        from legacy_opt.recorded.optax import from_record

        params = {"w": jnp.array([1.0, 2.0])}
        record = recorded.load("LazyAdamOptimizer")
        optimizer = from_record(record, learning_rate=optax.cosine_decay_schedule(0.01, 100))
        state = optimizer.init(params)
        updates, state = optimizer.update({"w": jnp.array([0.1, 0.2])}, state, params)
        params = optax.apply_updates(params, updates)

    Args:
      record: the `legacy_opt.recorded.Record`.
      level: "exact" or "fast".
      **hyperparameters: other values of hyperparameters: numbers or schedules.

    Raises:
      RecordError: see `JaxOptimizer`; or `level` is "native"; or it is "exact", and no update gives
        the same bits.
      ValueError: `level` is unknown.
    """
    if level == NATIVE:
        raise RecordError(
            "native kernels change parameters, which a transformation of optax cannot do: use "
            'JaxOptimizer.step, or pass level="exact"'
        )
    check_level(level)
    optimizer = JaxOptimizer(record, level, **hyperparameters)
    if level == "exact":
        _check_updates(record)

    def update(updates: Any, state: State, params: Any = None) -> Tuple[Any, State]:
        if params is None:
            raise ValueError("params is None: call update(gradients, state, params)")
        if any(map(_is_rows, jax.tree.leaves(updates, is_leaf=_is_rows))):
            raise RecordError("updates of optax are dense: for Rows, use JaxOptimizer.step")
        return optimizer.stepped(params, state, updates, update=addend, unchanged=_no_change)

    return optax.GradientTransformation(optimizer.init, update)


def _is_rows(x: Any) -> bool:
    return isinstance(x, Rows)


def _no_change(value: Any) -> Any:
    return jnp.full_like(value, -0.0)  # adding +0 would change the sign of -0


def _check_updates(record: Record) -> None:
    programs = [each.dense for each in record.groups if isinstance(each.dense, Program)]
    if all(map(is_subtraction, programs)):
        return
    reason = (
        f"the rule of {record.optimizer} does not subtract an update from the parameter, and no "
        "update has its bits"
    )
    way_out = 'use JaxOptimizer.step, or pass level="fast"'
    if record.dtype == "float64":
        raise RecordError(f"{reason}: {way_out}")
    if not jax.config.jax_enable_x64:
        raise RecordError(f"{reason}, except in float64: set jax_enable_x64, {way_out}")
