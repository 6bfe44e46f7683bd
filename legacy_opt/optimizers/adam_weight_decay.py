"""BERT's Adam: decoupled weight decay, no bias correction.

    m = beta_1 * m + (1 - beta_1) * g
    v = beta_2 * v + (1 - beta_2) * g**2
    w -= learning_rate * (m / (sqrt(v) + epsilon) + weight_decay_rate * w)

Source: `AdamWeightDecayOptimizer` in BERT's optimization.py (Devlin et al. 2018), which was copied
into most projects that build on BERT. `legacy_opt.optimizers.lamb` extends it.
"""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Dict, Optional, Sequence, Tuple

import tensorflow as tf

from legacy_opt.core import argument_checks
from legacy_opt.core.hyperparameters import alias_of, complement
from legacy_opt.core.rule_optimizer import RuleOptimizer
from legacy_opt.core.slots import Slot
from legacy_opt.core.types import DType, Hyperparameter, Tensor, Variable
from legacy_opt.core.update import RuleResult


class AdamWeightDecayOptimizer(RuleOptimizer):
    """The Adam that BERT was trained with (google-research/bert).

    **This optimizer increments `global_step`, so delete two lines of your script.** In BERT's
    repository `apply_gradients` ignores its argument `global_step`, and `create_optimizer`
    increments the global step after the call::

        train_op = optimizer.apply_gradients(zip(grads, tvars), global_step=global_step)
        new_global_step = global_step + 1                                          # delete
        train_op = tf.group(train_op, [global_step.assign(new_global_step)])       # delete

    Here `apply_gradients` and `minimize` increment the variable passed to them, like every
    optimizer of TensorFlow 1. If both lines stay, every training step is counted twice: the
    training ends after half of its steps, and the learning rate falls twice as fast. If the lines
    cannot be deleted, pass no `global_step`. `legacy-opt audit` reports such lines. (In BERT's code
    the two lines race with the learning rate schedule, which mostly reads the incremented step:
    docs/weight_decay.md.)

    Slots: `m` and `v`, in the variables `w/adam_m` and `w/adam_v`, with the variable's shape and
    dtype, initialized to zero. There are no variables for powers of beta. Checkpoints of BERT's
    class can be restored. Like in BERT's class there is no bias correction.

    Sparse gradients are made dense, like in BERT's class, so that every training step changes and
    decays all rows of a table. (`LazyAdamOptimizer` updates only rows with a gradient.) BERT's
    class trains only float32 variables; this class also trains other dtypes.

    Variables whose name matches one of `exclude_from_weight_decay` do not decay. Subclasses may
    override `_do_use_weight_decay(param_name)` and `_get_variable_name(param_name)`, and may read
    the arguments, except `name`, as attributes of the same names (`self.learning_rate`).

    Args:
      learning_rate: a number, scalar tensor or variable, or a callable that returns one of these.
        The same types are accepted for `weight_decay_rate`, `beta_1`, `beta_2` and `epsilon`.
      weight_decay_rate: each update subtracts this fraction of a variable, times the learning rate.
      beta_1: decay factor of `m`, at least 0 and less than 1.
      beta_2: decay factor of `v`, at least 0 and less than 1.
      epsilon: added to the square root of `v`; not negative.
      exclude_from_weight_decay: a list of regular expressions, searched for in the variables'
        names (without ":0"), or None.
      name: the name of the optimizer.

    Raises:
      TypeError: an argument has the wrong type.
      ValueError: an argument is NaN, out of range or an invalid regular expression.
    """

    slots = {"m": Slot(op_name="adam_m"), "v": Slot(op_name="adam_v")}
    whole_tensor = True
    full_precision = ("learning_rate", "weight_decay_rate", "beta_1", "beta_2", "epsilon")

    # BERT's class has these attributes without an underscore.
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

    def hyperparameters(self, dtype: DType, non_slots: bool = True) -> SimpleNamespace:
        hyper = super().hyperparameters(dtype, non_slots)
        for beta in ("beta_1", "beta_2"):
            # Python computes 1 - 0.999 in float64, because float32 would lose digits.
            rest = complement(self._rule_step.tensors[beta], getattr(self, "_" + beta), dtype)
            setattr(hyper, "rest_" + beta, rest)
        return hyper

    def hyper_for(self, variable: Variable) -> SimpleNamespace:
        hyper = super().hyper_for(variable)
        self.choose_by_name(hyper, self._get_variable_name(self.variable_name(variable)))
        return hyper

    def choose_by_name(self, hyper: SimpleNamespace, name: str) -> None:
        """Sets `hyper.decays` to whether the variable of this name decays."""
        hyper.decays = self._do_use_weight_decay(name)

    def rule(
        self, grad: Tensor, value: Tensor, slots: SimpleNamespace, hyper: SimpleNamespace
    ) -> RuleResult:
        direction, moments = self.direction(grad, value, slots, hyper)
        return hyper.learning_rate * direction, moments

    def direction(
        self, grad: Tensor, value: Tensor, slots: SimpleNamespace, hyper: SimpleNamespace
    ) -> Tuple[Tensor, Dict[str, Tensor]]:
        """Returns the update before the learning rate is applied, and the new moments."""
        m = hyper.beta_1 * slots.m + hyper.rest_beta_1 * grad
        v = hyper.beta_2 * slots.v + hyper.rest_beta_2 * tf.square(grad)
        mean, mean_square = self.estimates(m, v, hyper)
        direction = mean / (tf.sqrt(mean_square) + hyper.epsilon)
        if hyper.decays:
            direction += hyper.weight_decay_rate * value
        return direction, {"m": m, "v": v}

    def estimates(self, m: Tensor, v: Tensor, hyper: SimpleNamespace) -> Tuple[Tensor, Tensor]:
        """Returns the moments to use in the update; LAMB corrects their bias here."""
        del hyper
        return m, v

    def _do_use_weight_decay(self, param_name):
        rate = self._weight_decay_rate
        if not (argument_checks.is_tensor_like(rate) or rate):
            return False
        return not matches(self.exclude_from_weight_decay, param_name)

    def _get_variable_name(self, param_name):
        return re.sub(r":\d+$", "", param_name)


def matches(patterns, name):
    """Whether one of these regular expressions is found in a name; `patterns` may be None."""
    return any(re.search(pattern, name) for pattern in patterns or ())
