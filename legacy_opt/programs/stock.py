"""The formulas of TensorFlow's own v1 optimizers."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Callable, Dict

import tensorflow as tf

from legacy_opt.core.slots import Slot
from legacy_opt.core.types import DType, Tensor, V1Optimizer, Variable
from legacy_opt.optimizers.stock_rules import StockRule, hyper_of, scalars_of
from legacy_opt.programs.formulas import Formulas, Tensors
from legacy_opt.programs.program import ASSIGN, UnsupportedError
from legacy_opt.programs.scalars import Given, evaluated
from legacy_opt.programs.trace import Results

_POWERS = ("beta1_power", "beta2_power")


class StockFormulas(Formulas):
    """The formulas of one of TensorFlow's v1 optimizers; `rule` is the rule of the class."""

    def __init__(self, optimizer: V1Optimizer, rule: StockRule) -> None:
        super().__init__(optimizer)
        self.rule = rule

    def slot_layouts(self, variable: Variable) -> Dict[str, Slot]:
        optimizer = self.optimizer
        names = sorted(optimizer.get_slot_names())
        return {name: Slot() for name in names if optimizer.get_slot(variable, name) is not None}

    def needs_whole_tensor(self, variable: Variable) -> bool:
        return self.rule.whole_tensor

    def _scalars(self, dtype: DType) -> Tensors:
        return scalars_of(self.rule, self.optimizer)

    def given(self) -> Given:
        hyperparameters = {}
        global_step = None
        for name, tensor in self.scalars(tf.float32).items():
            if name == "global_step":
                global_step = tensor.dtype.base_dtype.name
            elif name not in _POWERS:
                attributes = self.rule.tensors[name]
                # Ftrl has several attributes: only the last is l2 itself, not adjusted by beta.
                attribute = attributes if isinstance(attributes, str) else attributes[-1]
                attribute_of_value = re.sub("_tensor$|_t$", "", attribute)
                hyperparameters[name] = tensor, evaluated(tensor), attribute_of_value
        powers = self.optimizer._get_beta_accumulators() if self.rule.powers else ()
        return Given(hyperparameters, dict(zip(_POWERS, powers)), global_step)

    def before(self, given: Tensors, dtype: DType) -> Tensors:
        scalars = {name: given[name] for name in self.scalars(dtype)}
        if "global_step" in scalars:  # AdagradDA counts the current step, too
            scalars["global_step"] += 1
        return scalars

    def after(self, given: Tensors) -> Tensors:
        betas = ("beta1", "beta2") if self.rule.powers else ()
        return {f"{beta}_power": given[f"{beta}_power"] * given[beta] for beta in betas}

    def function(self, variable: Variable, sparse: bool) -> Callable[..., Results]:
        why_refused = self.rule.refused(self.optimizer)
        if why_refused:
            raise UnsupportedError(why_refused)
        function = self.rule.function_for(sparse)

        def update(grad: Tensor, value: Tensor, slots: Tensors, scalars: Tensors) -> Results:
            hyper = hyper_of(self.rule, self.optimizer, scalars, grad.dtype)
            new_value, new_slots = function(grad, value, SimpleNamespace(**slots), hyper)
            changes = {name: (ASSIGN, new, None) for name, new in new_slots.items()}
            return Results(None, changes, new_value)

        return update
