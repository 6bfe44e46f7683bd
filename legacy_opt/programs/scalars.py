"""Finds the scalars of a training step, for records: hyperparameters and shared variables."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np
import tensorflow as tf

from legacy_opt.core import argument_checks
from legacy_opt.core.named_values import NamedValues
from legacy_opt.core.rule_application import checked_non_slots
from legacy_opt.core.types import Tensor, Variable
from legacy_opt.programs.formulas import Formulas, RuleFormulas
from legacy_opt.programs.program import UnsupportedError
from legacy_opt.programs.stock import StockFormulas
from legacy_opt.programs.weight_decay import DecayedFormulas

v1 = tf.compat.v1
_POWERS = ("beta1_power", "beta2_power")


class Given(NamedTuple):
    """The scalars from which those of a training step are computed.

    Attributes:
      hyperparameters: a dict from names to (tensor in the optimizer, value or None, attribute of
        the optimizer that has the value).
      shared: a dict from names to shared variables.
      global_step: the dtype of the global step, or None.
    """

    hyperparameters: Dict[str, Tuple[Tensor, Any, str]]
    shared: Dict[str, Variable]
    global_step: Optional[str]


def parts_of(formulas: Formulas) -> List[Formulas]:
    """Returns formulas and those that they extend, the innermost first."""
    parts = [formulas]
    while hasattr(parts[0], "base"):
        parts.insert(0, parts[0].base)
    return parts


def given(parts: Sequence[Formulas]) -> Given:
    """Finds the hyperparameters, shared variables and the global step that formulas read."""
    hyperparameters: Dict[str, Tuple[Tensor, Any, str]] = {}
    shared: Dict[str, Variable] = {}
    global_step = None
    for part in parts:
        optimizer = part.optimizer
        if isinstance(part, DecayedFormulas):
            tensor, value = optimizer._weight_decay_tensor, optimizer._weight_decay
            hyperparameters["weight_decay"] = tensor, value, "_weight_decay"
        elif isinstance(part, RuleFormulas):
            for name, tensor in optimizer._rule_step.tensors.items():
                value = getattr(optimizer, "_" + name, tensor)
                hyperparameters[name] = tensor, value, "_" + name
            shared = {name: optimizer._non_slot(name) for name in optimizer.non_slots()}
            step = optimizer._rule_step.global_step
            if step is not None and not isinstance(optimizer._global_step, (int, float)):
                global_step = step.dtype.base_dtype.name
        elif isinstance(part, StockFormulas):
            for name, tensor in part.scalars(tf.float32).items():
                if name == "global_step":
                    global_step = tensor.dtype.base_dtype.name
                elif name not in _POWERS:
                    attributes = part.rule.tensors[name]
                    last = attributes if isinstance(attributes, str) else attributes[-1]
                    value = re.sub("_tensor$|_t$", "", last)
                    hyperparameters[name] = tensor, _evaluated(tensor), value
            if part.rule.powers:
                powers = optimizer._get_beta_accumulators()
                shared = dict(zip(_POWERS, powers))
        else:
            raise UnsupportedError(f"{type(part).__name__} have no record")
    return Given(hyperparameters, shared, global_step)


def before(parts: Sequence[Formulas], given: Mapping[str, Tensor], dtype: Any) -> Dict[str, Tensor]:
    """Computes the scalars of the formulas from the given scalars."""
    scalars: Dict[str, Tensor] = {}
    for part in parts:
        if isinstance(part, DecayedFormulas):
            scalars.update(part.scalars_from(given["weight_decay"], dtype))
        elif isinstance(part, RuleFormulas):
            scalars.update(part.inputs_from(given, dtype).scalars())
        else:
            names = part.scalars(dtype)
            scalars.update((name, given[name]) for name in names)
            if "global_step" in scalars:  # AdagradDA counts the step that it does
                scalars["global_step"] += 1
    return scalars


def after(parts: Sequence[Formulas], given: Mapping[str, Tensor]) -> Dict[str, Tensor]:
    """Computes the new values of the shared variables."""
    new: Dict[str, Tensor] = {}
    for part in parts:
        optimizer = part.optimizer
        if isinstance(part, StockFormulas) and part.rule.powers:
            for beta in "beta1", "beta2":
                new[beta + "_power"] = given[beta + "_power"] * given[beta]
        elif isinstance(part, RuleFormulas) and optimizer.non_slots():
            values = {name: given[name] for name in optimizer.non_slots()}
            method = f"{type(optimizer).__name__}.update_non_slots"
            named = NamedValues.of(f"values of {method}", values)
            with part.step_from(given, tf.float32):
                hyper = optimizer.hyperparameters(tf.float32, non_slots=False)
                found = optimizer.update_non_slots(named, hyper)
            new.update(checked_non_slots(found, values, method))
    return new


def _evaluated(tensor: Tensor) -> Any:
    """Returns the value of a scalar; None if it depends on placeholders or variables."""
    try:
        with v1.Session() as session:
            return session.run(tensor).item()
    except tf.errors.OpError:
        return None


def number(value: Any, dtype: str) -> Optional[Union[bool, int, float]]:
    """Returns a hyperparameter as a number of its dtype; None if it is no number or constant."""
    if isinstance(value, tf.Tensor) and not tf.executing_eagerly() and value.op.type == "Const":
        return tf.make_ndarray(value.op.get_attr("value")).item()
    if value is None or argument_checks.is_tensor_like(value) or callable(value):
        return None
    numpy_dtype: Any = tf.as_dtype(dtype).as_numpy_dtype
    return np.asarray(value).astype(numpy_dtype).item()
