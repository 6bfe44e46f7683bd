"""Creates the optimizer for `optimize_loss` from a name, a class or a function."""

from __future__ import annotations

import inspect
from typing import Any, Callable, Dict

import tensorflow as tf

from legacy_opt.core import argument_checks
from legacy_opt.core.nearest_names import did_you_mean
from legacy_opt.core.types import Hyperparameter, V1Optimizer
from legacy_opt.optimizers import catalogue

v1 = tf.compat.v1


def _momentum(learning_rate: Hyperparameter) -> V1Optimizer:
    return v1.train.MomentumOptimizer(learning_rate, momentum=0.9)


def _maker_of(cls: Any) -> Callable[..., V1Optimizer]:
    """Returns `cls`, or a function that requires `global_step`, so that `_make` passes the step."""
    step = inspect.signature(cls).parameters.get("global_step")
    if step is None or step.default is step.empty:
        return cls
    return lambda learning_rate, global_step: cls(
        global_step=global_step, learning_rate=learning_rate
    )


# The optimizers of this package without a name below: they make no sense without a weight decay.
_NEED_A_WEIGHT_DECAY = ("AdamWOptimizer", "AdamWeightDecayOptimizer", "MomentumWOptimizer")

# The values are called with learning_rate=…, and also with global_step=… if they require it.
OPTIMIZER_CLS_NAMES: Dict[str, Callable[..., V1Optimizer]] = {
    # The entries of tf.contrib.layers.OPTIMIZER_CLS_NAMES.
    "Adagrad": v1.train.AdagradOptimizer,
    "Adam": v1.train.AdamOptimizer,
    "Ftrl": v1.train.FtrlOptimizer,
    "Momentum": _momentum,
    "RMSProp": v1.train.RMSPropOptimizer,
    "SGD": v1.train.GradientDescentOptimizer,
    **{
        name.replace("Optimizer", ""): _maker_of(getattr(catalogue, name))
        for name in catalogue.__all__
        if name not in _NEED_A_WEIGHT_DECAY
    },
}


_ALLOWED = (
    "a name, or a class or instance of tf.compat.v1.train.Optimizer, or a function that returns an "
    "instance"
)


def check_optimizer(optimizer: Any, learning_rate: Any) -> None:
    """Checks the arguments of `make_optimizer` before the graph is changed."""
    if isinstance(optimizer, v1.train.Optimizer):
        return
    is_class = isinstance(optimizer, type)
    is_other_class = is_class and not issubclass(optimizer, v1.train.Optimizer)
    if isinstance(optimizer, str):
        if optimizer not in OPTIMIZER_CLS_NAMES:
            raise ValueError(_unknown_name(optimizer))
    elif not callable(optimizer) or is_other_class:
        raise argument_checks.WrongTypeError(_no_optimizer("optimizer", _ALLOWED, optimizer))
    if learning_rate is None and (is_class or isinstance(optimizer, str)):
        maker = optimizer if is_class else OPTIMIZER_CLS_NAMES[optimizer]
        rate = inspect.signature(maker).parameters.get("learning_rate")
        # COCOB has no learning rate, Adafactor computes its own.
        if rate is None or rate.default is None:
            return
        raise ValueError(
            f"learning_rate is None, but optimizer={optimizer!r} requires one. Pass a number or "
            "tensor, or a function that creates the optimizer: optimizer=lambda: …"
        )


def make_optimizer(optimizer: Any, learning_rate: Any, global_step: Any) -> V1Optimizer:
    """Creates an optimizer from the `optimizer` argument of `optimize_loss`.

    If `learning_rate` is None, a function `optimizer` is called without arguments.
    """
    if isinstance(optimizer, v1.train.Optimizer):
        return optimizer
    if isinstance(optimizer, str):
        return _make(OPTIMIZER_CLS_NAMES[optimizer], repr(optimizer), learning_rate, global_step)
    if isinstance(optimizer, type):
        return _make(optimizer, optimizer.__name__, learning_rate, global_step)
    result = optimizer() if learning_rate is None else optimizer(learning_rate)
    return v1_optimizer(f"the result of the function optimizer={optimizer!r}", result)


def _make(
    maker: Callable[..., V1Optimizer], name: str, learning_rate: Any, global_step: Any
) -> V1Optimizer:
    """Creates an optimizer by calling a class or an entry of `OPTIMIZER_CLS_NAMES`."""
    arguments = {} if learning_rate is None else {"learning_rate": learning_rate}
    step = inspect.signature(maker).parameters.get("global_step")
    if step is not None and step.default is step.empty:
        if global_step is None:
            raise ValueError(
                f"optimizer {name} requires a global step, and this graph has none. Call "
                "tf.compat.v1.train.get_or_create_global_step() before, or pass global_step=…"
            )
        arguments["global_step"] = global_step
    try:
        inspect.signature(maker).bind(**arguments)
    except TypeError as error:
        raise TypeError(
            f"optimizer {name} requires other arguments than a learning rate ({error}). Pass "
            "learning_rate=None if it has none, or a function: optimizer=lambda learning_rate: …"
        ) from None
    return v1_optimizer(f"optimizer {name}", maker(**arguments))


def v1_optimizer(what: str, value: Any) -> V1Optimizer:
    """Returns `value` if it is a v1 optimizer; raises a TypeError if it is not."""
    if not isinstance(value, v1.train.Optimizer):
        text = _no_optimizer(what, "a tf.compat.v1.train.Optimizer", value)
        raise argument_checks.WrongTypeError(text)
    return value


def _no_optimizer(what: str, allowed: str, value: Any) -> str:
    text = f"{what} must be {allowed}, got {value!r} of type {type(value).__name__}."
    cls = value if isinstance(value, type) else type(value)
    if any("keras" in base.__module__.split(".") for base in cls.__mro__):
        text += " legacy_opt.compat.to_v1(…) converts a Keras optimizer to a v1 optimizer."
    return text


def _unknown_name(name: str) -> str:
    text = f"optimizer={name!r} is not one of the names {', '.join(OPTIMIZER_CLS_NAMES)}."
    stem = name[: -len("Optimizer")] if name.endswith("Optimizer") else name
    text += did_you_mean(stem, OPTIMIZER_CLS_NAMES)
    return text + (
        " If the optimizer requires more than a learning rate, pass a function: "
        "optimizer=lambda learning_rate: legacy_opt.AdamWOptimizer(1e-4, learning_rate)."
    )
