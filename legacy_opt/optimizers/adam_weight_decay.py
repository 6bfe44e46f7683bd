"""BERT's Adam: decoupled weight decay, no bias correction.

    m = beta_1 * m + (1 - beta_1) * g
    v = beta_2 * v + (1 - beta_2) * g**2
    w -= learning_rate * (m / (sqrt(v) + epsilon) + weight_decay_rate * w)

Source: `AdamWeightDecayOptimizer` in BERT's optimization.py (Devlin et al. 2018), which was copied
into most code that grew from it. `legacy_opt.optimizers.lamb` shares what is here.
"""

from __future__ import annotations

import dis
import functools
import re
from types import SimpleNamespace
from typing import ContextManager, Dict, List, Optional, Sequence, Tuple

import tensorflow as tf

from legacy_opt.core import argument_checks
from legacy_opt.core.hyperparameters import alias_of, complement
from legacy_opt.core.rule_optimizer import RuleOptimizer
from legacy_opt.core.slots import Slot
from legacy_opt.core.types import DType, GradAndVar, Hyperparameter, Tensor, Variable
from legacy_opt.core.update import RuleResult, Update
from legacy_opt.core.user_warnings import GlobalStepWarning, users_frame, warn
from legacy_opt.core.variable_access import Access


class AdamWeightDecayOptimizer(RuleOptimizer):
    """Adam as BERT was trained with (google-research/bert).

    **It advances `global_step`, so delete a line of your script.** The class in BERT's repository
    ignores the `global_step` that `apply_gradients` is given, and BERT's `create_optimizer` makes
    up for that right behind the call::

        train_op = optimizer.apply_gradients(zip(grads, tvars), global_step=global_step)
        new_global_step = global_step + 1                                          # delete
        train_op = tf.group(train_op, [global_step.assign(new_global_step)])       # delete

    Here `apply_gradients` and `minimize` advance the step that they are given, as every optimizer
    of TensorFlow does. With the two lines left in, steps would count twice: half the training, with
    a learning rate that falls twice as fast. (In the original, whose lines race, BERT's schedule
    mostly takes the rate of the next step: docs/weight_decay.md.) Scripts that cannot be changed
    there pass no `global_step`. A `GlobalStepWarning` is raised where the code of the function that
    calls `apply_gradients` with a step also seems to assign that step, or one with "step" in its
    name. That is a guess: what another function assigns, or under another name, is not seen.

    Slots: `m` and `v`, in the variables `w/adam_m` and `w/adam_v`, of the variable's shape and
    dtype, starting at zero. There are no powers of beta: a checkpoint of the original restores,
    and its first steps are as much too large or small as ever.

    Sparse gradients are made dense, as the original does: all rows of a table move and decay in
    every step. (`LazyAdamOptimizer` leaves alone what is not touched.) The original trains float32
    only.

    Variables whose name matches one of `exclude_from_weight_decay` do not decay. Subclasses may
    override `_do_use_weight_decay(param_name)` and `_get_variable_name(param_name)`, and find the
    arguments under their own names (`self.learning_rate`).

    Args:
      learning_rate: a number, scalar tensor, variable, or callable that returns one; so are
        `weight_decay_rate`, `beta_1`, `beta_2` and `epsilon`.
      weight_decay_rate: how much of a variable, times the learning rate, is taken off in each step.
      beta_1: how much of `m` stays, from 0 to below 1.
      beta_2: how much of `v` stays, from 0 to below 1.
      epsilon: what is added to the root of `v`, not negative.
      exclude_from_weight_decay: a list of regular expressions, searched for in the variables'
        names (without ":0"), or None.
      name: the name of the optimizer.

    Raises:
      TypeError: an argument has the wrong type.
      ValueError: an argument is NaN or out of its range, or no regular expression.
    """

    slots = {"m": Slot(op_name="adam_m"), "v": Slot(op_name="adam_v")}
    whole_tensor = True
    full_precision = ("learning_rate", "weight_decay_rate", "beta_1", "beta_2", "epsilon")

    # Without the underscore, as BERT's class keeps them.
    learning_rate = alias_of("learning_rate")
    weight_decay_rate = alias_of("weight_decay_rate")
    beta_1 = alias_of("beta_1")
    beta_2 = alias_of("beta_2")
    epsilon = alias_of("epsilon")

    def __init__(
        self,
        learning_rate: Hyperparameter,
        weight_decay_rate: Hyperparameter = 0.0,
        beta_1: Hyperparameter = 0.9,
        beta_2: Hyperparameter = 0.999,
        epsilon: Hyperparameter = 1e-6,
        exclude_from_weight_decay: Optional[Sequence[str]] = None,
        name: str = "AdamWeightDecayOptimizer",
    ) -> None:
        super().__init__(
            False,
            name,
            learning_rate=learning_rate,
            weight_decay_rate=weight_decay_rate,
            beta_1=argument_checks.decay_factor("beta_1", beta_1),
            beta_2=argument_checks.decay_factor("beta_2", beta_2),
            epsilon=argument_checks.not_negative("epsilon", epsilon),
        )
        self.exclude_from_weight_decay = argument_checks.patterns(
            "exclude_from_weight_decay", exclude_from_weight_decay
        )

    def applying(
        self, grads_and_vars: List[GradAndVar], global_step: Optional[Variable] = None
    ) -> ContextManager[None]:
        if global_step is not None:
            self._warn_if_counted_twice(global_step)
        return super().applying(grads_and_vars, global_step)

    def _warn_if_counted_twice(self, global_step):
        frame = users_frame()
        if frame is not None and _assigns(frame, global_step):
            warn(
                f"{type(self).__name__} advances the global_step that it is given, which "
                f"BERT's own class does not, and {frame.f_code.co_name}, which passes it, "
                "seems to assign a step as well. If that is global_step, every step counts "
                "twice: delete that line (in BERT's create_optimizer "
                "`global_step.assign(new_global_step)`), or pass no global_step.",
                GlobalStepWarning,
            )

    def hyperparameters(self, dtype: DType, non_slots: bool = True) -> SimpleNamespace:
        hyper = super().hyperparameters(dtype, non_slots)
        for beta in ("beta_1", "beta_2"):
            # 1 - 0.999 as Python computes it; in float32 it would be another number.
            rest = complement(self._rule_step.tensors[beta], getattr(self, "_" + beta), dtype)
            setattr(hyper, "rest_" + beta, rest)
        return hyper

    def update_for(self, grad: Tensor, variable: Variable, access: Access) -> Update:
        update = super().update_for(grad, variable, access)
        name = self._get_variable_name(self.variable_name(variable))
        self.choose_by_name(update.hyper, name)
        return update

    def choose_by_name(self, hyper: SimpleNamespace, name: str) -> None:
        """Notes in `hyper` what a rule cannot know: how the variable of this name is treated."""
        hyper.decays = self._do_use_weight_decay(name)

    def rule(
        self, grad: Tensor, value: Tensor, slots: SimpleNamespace, hyper: SimpleNamespace
    ) -> RuleResult:
        direction, moments = self.direction(grad, value, slots, hyper)
        return hyper.learning_rate * direction, moments

    def direction(
        self, grad: Tensor, value: Tensor, slots: SimpleNamespace, hyper: SimpleNamespace
    ) -> Tuple[Tensor, Dict[str, Tensor]]:
        """Returns the step without the learning rate, and the new moments."""
        m = hyper.beta_1 * slots.m + hyper.rest_beta_1 * grad
        v = hyper.beta_2 * slots.v + hyper.rest_beta_2 * tf.square(grad)
        mean, mean_square = self.estimates(m, v, hyper)
        direction = mean / (tf.sqrt(mean_square) + hyper.epsilon)
        if hyper.decays:
            direction += hyper.weight_decay_rate * value
        return direction, {"m": m, "v": v}

    def estimates(self, m: Tensor, v: Tensor, hyper: SimpleNamespace) -> Tuple[Tensor, Tensor]:
        """Returns what the moments are taken for."""
        del hyper
        return m, v

    def _do_use_weight_decay(self, param_name):
        rate = self._weight_decay_rate
        if not (argument_checks.is_tensor_like(rate) or rate):
            return False
        return not matches(self.exclude_from_weight_decay, param_name)

    def _get_variable_name(self, param_name):
        return re.sub(r":\d+$", "", param_name)


def _assigns(frame, step):
    """Whether a function's code has step.assign…(…) or assign…(step, …)."""

    def is_step(name):
        return "step" in name or frame.f_locals.get(name) is step

    return any(map(is_step, _names_beside_assign(frame.f_code)))


@functools.lru_cache(maxsize=None)  # eager code comes here in every step
def _names_beside_assign(code):
    """Returns the names that a code loads just before or after an assign."""
    loaded = []
    for instruction in dis.get_instructions(code):
        if "LOAD" in instruction.opname and instruction.opname != "LOAD_CONST":
            names = instruction.argval  # one instruction of newer Pythons loads several
            loaded += names if isinstance(names, tuple) else [str(names)]
    return [
        name
        for i, assign in enumerate(loaded)
        if assign in ("assign", "assign_add")
        for name in loaded[max(i - 1, 0) : i + 2 : 2]
    ]


def matches(patterns, name):
    """Whether one of some regular expressions, or None, is found in a name."""
    return any(re.search(pattern, name) for pattern in patterns or ())
