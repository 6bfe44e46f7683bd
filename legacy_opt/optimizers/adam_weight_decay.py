"""BERT's Adam: Adam with decoupled weight decay, and without bias correction.

The update of a variable w with the gradient g::

    m = beta_1 * m + (1 - beta_1) * g
    v = beta_2 * v + (1 - beta_2) * g**2
    w -= learning_rate * (m / (sqrt(v) + epsilon) + weight_decay_rate * w)

Source: `AdamWeightDecayOptimizer` in BERT's optimization.py (Devlin et al. 2018). Most projects
that build on BERT contain a copy of this file.
"""

from __future__ import annotations

import re
from typing import Dict, Optional, Sequence, Tuple

import tensorflow as tf

from legacy_opt.core import argument_checks
from legacy_opt.core.hyperparameters import alias_of, complement
from legacy_opt.core.named_values import changed
from legacy_opt.core.slots import Slot
from legacy_opt.core.types import DType, Hyperparameter, Tensor, Variable
from legacy_opt.core.update import RuleResult, Values
from legacy_opt.optimizers.name_patterns import PatternsOptimizer


class AdamWeightDecayOptimizer(PatternsOptimizer):
    """The Adam that BERT was trained with (google-research/bert).

    **This optimizer increments `global_step`, so delete two lines of your script.** In BERT's
    repository `apply_gradients` ignores its argument `global_step`, and `create_optimizer`
    increments the global step after the call::

        train_op = optimizer.apply_gradients(zip(grads, tvars), global_step=global_step)
        new_global_step = global_step + 1                                          # delete
        train_op = tf.group(train_op, [global_step.assign(new_global_step)])       # delete

    In this class, `apply_gradients` and `minimize` increment the variable that is passed as
    `global_step`, as in every optimizer of TensorFlow 1. If you do not delete the two lines, every
    training step is counted twice: the training ends after half of its steps, and the learning rate
    falls twice as fast. If you cannot delete the lines, pass no `global_step`. `legacy-opt audit`
    reports such lines. (In BERT's repository, the learning rate schedule may read the global step
    before or after these two lines increment it; in most steps it reads the incremented value. See
    `legacy-opt docs weight_decay`.)

    Slots: `m` and `v`, in the variables `w/adam_m` and `w/adam_v`, with the variable's shape and
    dtype, initialized to zero. Checkpoints of BERT's class can be restored. As in BERT's class,
    there is no bias correction, and so there are no variables for powers of beta.

    As in BERT's class, sparse gradients are made dense, so every training step changes and decays
    all rows of a table. (`LazyAdamOptimizer` updates only the rows in the gradient.) BERT's class
    trains only float32 variables; this class also trains other dtypes.

    Variables whose names match a pattern in `exclude_from_weight_decay` do not decay. The first
    step warns of patterns that match none of its variables. Subclasses may override
    `_do_use_weight_decay(param_name)` and `_get_variable_name(param_name)`, and may read each
    argument except `name` as an attribute of the same name (`self.learning_rate`).

    Example::

        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            kernel = tf.compat.v1.get_variable("kernel", initializer=[9.0])
            bias = tf.compat.v1.get_variable("bias", initializer=[9.0])
            optimizer = legacy_opt.AdamWeightDecayOptimizer(
                0.1, weight_decay_rate=0.1, exclude_from_weight_decay=["bias"]
            )
            train_op = optimizer.minimize(tf.reduce_sum(kernel + bias))
            session.run(tf.compat.v1.global_variables_initializer())
            session.run(train_op)
            print(session.run(tf.concat([kernel, bias], 0)).round(3))  # [8.594 8.684]

    Args:
      learning_rate: a number, scalar tensor or variable, or a callable that returns one of these.
        The same types are accepted for `weight_decay_rate`, `beta_1`, `beta_2` and `epsilon`.
      weight_decay_rate: each update subtracts ``learning_rate * weight_decay_rate * w``.
      beta_1, beta_2: decay factors of `m` and `v`, at least 0 and less than 1.
      epsilon: added to the square root of `v`; not negative.
      exclude_from_weight_decay: a list of regular expressions, or None. The expressions are
        searched for in the variables' names (without ":0").
      name: the name of the optimizer.

    Raises:
      TypeError: an argument has the wrong type.
      ValueError: an argument is NaN, out of range or an invalid regular expression.
    """

    slots = {"m": Slot(op_name="adam_m"), "v": Slot(op_name="adam_v")}
    whole_tensor = True
    _pattern_attributes = ("exclude_from_weight_decay",)
    _decays_at_zero = False  # records set True, to follow a rate that is 0 at first
    full_precision = ("learning_rate", "weight_decay_rate", "beta_1", "beta_2", "epsilon")

    # The names of these attributes in BERT's class.
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
        rates = {"learning_rate": learning_rate, "weight_decay_rate": weight_decay_rate}
        betas = argument_checks.checked(argument_checks.decay_factor, beta_1=beta_1, beta_2=beta_2)
        epsilon = argument_checks.not_negative("epsilon", epsilon)
        super().__init__(False, name, **rates, **betas, epsilon=epsilon)
        self.exclude_from_weight_decay = argument_checks.patterns(
            "exclude_from_weight_decay", exclude_from_weight_decay
        )

    def _exact_values(self, dtype: DType) -> Dict[str, Tensor]:
        values = super()._exact_values(dtype)
        for beta in ("beta_1", "beta_2"):
            # ``1 - beta`` is computed in Python (float64), because float32 would lose digits.
            tensor = self._rule_step.tensors[beta]
            values["rest_" + beta] = complement(tensor, self._given_value(beta), dtype)
        return values

    def _name_to_match(self, variable: Variable) -> str:
        return self._get_variable_name(self.variable_name(variable))

    def hyper_for(self, variable: Variable) -> Values:
        flags = self._flags_of(self._name_to_match(variable))
        return changed(super().hyper_for(variable), **flags)

    def _flags_of(self, name: str) -> Dict[str, bool]:
        """Returns the flags that depend on a variable's name, for `hyper` of its rule."""
        return {"decays": self._do_use_weight_decay(name)}

    def rule(self, grad: Tensor, value: Tensor, slots: Values, hyper: Values) -> RuleResult:
        direction, moments = self.direction(grad, value, slots, hyper)
        return hyper.learning_rate * direction, moments

    def direction(
        self, grad: Tensor, value: Tensor, slots: Values, hyper: Values
    ) -> Tuple[Tensor, Dict[str, Tensor]]:
        """Returns the update without the learning rate, and the new moments."""
        m = hyper.beta_1 * slots.m + hyper.rest_beta_1 * grad
        v = hyper.beta_2 * slots.v + hyper.rest_beta_2 * tf.square(grad)
        mean, mean_square = self.estimates(m, v, hyper)
        direction = mean / (tf.sqrt(mean_square) + hyper.epsilon)
        if hyper.decays:
            direction += hyper.weight_decay_rate * value
        return direction, {"m": m, "v": v}

    def estimates(self, m: Tensor, v: Tensor, hyper: Values) -> Tuple[Tensor, Tensor]:
        """Returns the moments to use in the update. The class for LAMB corrects their bias here."""
        return m, v

    def _do_use_weight_decay(self, param_name: str) -> bool:
        rate = self._weight_decay_rate
        may_decay = argument_checks.is_tensor_like(rate) or rate or self._decays_at_zero
        if not may_decay:
            return False
        return not matches(self.exclude_from_weight_decay, param_name)

    def _get_variable_name(self, param_name: str) -> str:
        return re.sub(r":\d+$", "", param_name)


def matches(patterns: Optional[Sequence[str]], name: str) -> bool:
    """Whether one of the regular expressions in `patterns` (or None) is found in `name`."""
    return any(re.search(pattern, name) for pattern in patterns or ())
