"""Creates the optimizer for `optimize_loss` from a name, a class or a function."""

from __future__ import annotations

import inspect
from typing import Callable, Dict

import tensorflow as tf

from legacy_opt.core import argument_checks
from legacy_opt.core.nearest_names import did_you_mean
from legacy_opt.core.types import V1Optimizer
from legacy_opt.optimizers.adafactor import AdafactorOptimizer
from legacy_opt.optimizers.adagrad_decay import AdagradDecayOptimizer, AdagradDecayOptimizerV2
from legacy_opt.optimizers.adam_async import AdamAsyncOptimizer
from legacy_opt.optimizers.adam_gs import AdamGSOptimizer, LazyAdamGSOptimizer
from legacy_opt.optimizers.adamax import AdaMaxOptimizer
from legacy_opt.optimizers.add_sign_power_sign import AddSignOptimizer, PowerSignOptimizer
from legacy_opt.optimizers.diffgrad import DiffGradOptimizer
from legacy_opt.optimizers.lamb import LAMBOptimizer
from legacy_opt.optimizers.lars import LARSOptimizer
from legacy_opt.optimizers.lazy_adam import LazyAdamOptimizer
from legacy_opt.optimizers.nadam import NadamOptimizer
from legacy_opt.optimizers.reg_adagrad import RegAdagradOptimizer
from legacy_opt.optimizers.shampoo import ShampooOptimizer

v1 = tf.compat.v1


def _momentum(learning_rate):
    return v1.train.MomentumOptimizer(learning_rate, momentum=0.9)


def _adam_gs(learning_rate, global_step):
    return AdamGSOptimizer(global_step, learning_rate)


def _lazy_adam_gs(learning_rate, global_step):
    return LazyAdamGSOptimizer(global_step, learning_rate)


def _shampoo(learning_rate, global_step):
    return ShampooOptimizer(global_step, learning_rate=learning_rate)


# The values are called with learning_rate=…, and also with global_step=… if they require it.
OPTIMIZER_CLS_NAMES: Dict[str, Callable[..., V1Optimizer]] = {
    # The entries of tf.contrib.layers.OPTIMIZER_CLS_NAMES.
    "Adagrad": v1.train.AdagradOptimizer,
    "Adam": v1.train.AdamOptimizer,
    "Ftrl": v1.train.FtrlOptimizer,
    "Momentum": _momentum,
    "RMSProp": v1.train.RMSPropOptimizer,
    "SGD": v1.train.GradientDescentOptimizer,
    # Optimizers of this package, except wrappers and variants with weight decay, such as AdamW.
    "AdaMax": AdaMaxOptimizer,
    "Adafactor": AdafactorOptimizer,
    "AdagradDecay": AdagradDecayOptimizer,
    "AdagradDecayV2": AdagradDecayOptimizerV2,
    "AdamAsync": AdamAsyncOptimizer,
    "AdamGS": _adam_gs,
    "AddSign": AddSignOptimizer,
    "DiffGrad": DiffGradOptimizer,
    "LAMB": LAMBOptimizer,
    "LARS": LARSOptimizer,
    "LazyAdam": LazyAdamOptimizer,
    "LazyAdamGS": _lazy_adam_gs,
    "Nadam": NadamOptimizer,
    "PowerSign": PowerSignOptimizer,
    "RegAdagrad": RegAdagradOptimizer,
    "Shampoo": _shampoo,
}


def check_optimizer(optimizer, learning_rate):
    """Checks the arguments of `make_optimizer` before the graph is changed.

    Raises:
      TypeError: `optimizer` is not a name, a function, a v1 optimizer, or a class of v1 optimizers.
      ValueError: the name is unknown, or the learning rate is None and the named optimizer or the
        class requires one.
    """
    is_class = isinstance(optimizer, type)
    if isinstance(optimizer, v1.train.Optimizer):
        return
    if isinstance(optimizer, str):
        if optimizer not in OPTIMIZER_CLS_NAMES:
            raise ValueError(_unknown_name(optimizer))
    elif not callable(optimizer) or (is_class and not issubclass(optimizer, v1.train.Optimizer)):
        raise argument_checks.WrongTypeError(_no_optimizer("optimizer", optimizer))
    if learning_rate is None and (is_class or isinstance(optimizer, str)):
        maker = optimizer if is_class else OPTIMIZER_CLS_NAMES[optimizer]
        rate = inspect.signature(maker).parameters.get("learning_rate")
        if rate is not None and rate.default is None:  # Adafactor
            return
        raise ValueError(
            f"learning_rate is None, but optimizer={optimizer!r} requires one. Pass a number or "
            "tensor, or a function that creates the optimizer: optimizer=lambda: …"
        )


def make_optimizer(optimizer, learning_rate, global_step):
    """Creates an optimizer from the `optimizer` argument of `optimize_loss`.

    Args:
      optimizer: a name in `OPTIMIZER_CLS_NAMES`, a class, a function, or an instance.
      learning_rate: a number, tensor or variable. If it is None and `optimizer` is a function, the
        function is called without arguments.
      global_step: the global step, a variable or tensor, or None.

    Returns:
      A `tf.compat.v1.train.Optimizer`.

    Raises:
      TypeError: a class requires further arguments, or a function does not return a v1 optimizer.
      ValueError: an optimizer requires the global step, but `global_step` is None.
    """
    if isinstance(optimizer, v1.train.Optimizer):
        return optimizer
    if isinstance(optimizer, str):
        return _make(OPTIMIZER_CLS_NAMES[optimizer], repr(optimizer), learning_rate, global_step)
    if isinstance(optimizer, type):
        return _make(optimizer, optimizer.__name__, learning_rate, global_step)
    made = optimizer() if learning_rate is None else optimizer(learning_rate)
    return v1_optimizer(f"the result of the function optimizer={optimizer!r}", made)


def _make(maker, name, learning_rate, global_step):
    """Creates an optimizer by calling a class or an entry of `OPTIMIZER_CLS_NAMES`."""
    arguments = {} if learning_rate is None else {"learning_rate": learning_rate}
    parameters = inspect.signature(maker).parameters
    if "global_step" in parameters and parameters["global_step"].default is inspect.Parameter.empty:
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
            f"optimizer {name} requires more than a learning rate ({error}). Pass a function: "
            "optimizer=lambda learning_rate: …"
        ) from None
    return v1_optimizer(f"optimizer {name}", maker(**arguments))


def v1_optimizer(what, value):
    """Returns `value` if it is a v1 optimizer.

    Raises:
      TypeError: `value` is not a v1 optimizer.
    """
    if not isinstance(value, v1.train.Optimizer):
        raise argument_checks.WrongTypeError(_no_optimizer(what, value))
    return value


def _no_optimizer(what, value):
    text = f"{what} must be a tf.compat.v1.train.Optimizer"
    if what == "optimizer":
        text = (
            "optimizer must be a name, or a class or instance of tf.compat.v1.train.Optimizer, or "
            "a function that returns an instance"
        )
    text += f", got {value!r} of type {type(value).__name__}."
    cls = value if isinstance(value, type) else type(value)
    if any("keras" in base.__module__.split(".") for base in cls.__mro__):
        text += " legacy_opt.compat.to_v1(…) converts a Keras optimizer to a v1 optimizer."
    return text


def _unknown_name(name):
    text = f"optimizer={name!r} is not one of the names {', '.join(OPTIMIZER_CLS_NAMES)}."
    stem = name[: -len("Optimizer")] if name.endswith("Optimizer") else name
    return text + (
        f"{did_you_mean(stem, OPTIMIZER_CLS_NAMES)}"
        " If the optimizer requires more than a learning rate, pass a function: "
        "optimizer=lambda learning_rate: legacy_opt.AdamWOptimizer(1e-4, learning_rate)."
    )
