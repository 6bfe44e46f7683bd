"""LARS: Momentum with a learning rate of its own for each variable, for large batches.

    trust = eeta * |w| / (|g| + weight_decay * |w| + epsilon);  1 where |w| or |g| is 0
    momentum = mu * momentum + learning_rate * trust * (g + weight_decay * w)
    w -= momentum

From You, Gitman and Ginsburg, "Large Batch Training of Convolutional Networks"
(https://arxiv.org/abs/1708.03888). This is `LARSOptimizer` of TensorFlow 1's `tf.contrib.opt`: its
constructor, slot, variable names and arithmetic are kept.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Optional, Sequence, Tuple

import tensorflow as tf

from legacy_opt.core import argument_checks, fused_kernels
from legacy_opt.core.hyperparameters import tensor_of
from legacy_opt.core.rule_optimizer import RuleOptimizer
from legacy_opt.core.slots import Slot
from legacy_opt.core.types import Hyperparameter, Operation, Tensor, Variable
from legacy_opt.core.update import RuleResult, Update
from legacy_opt.core.variable_access import Access


class LARSOptimizer(RuleOptimizer):
    """Layer-wise adaptive rate scaling (`tf.contrib.opt.LARSOptimizer`).

    It has one slot, `momentum` (`w/LARSOptimizer`): like the variable, starts at zero. The learning
    rate is part of it, so a change of the learning rate acts on new gradients alone.

    As in the original, a sparse gradient gets neither trust ratio nor weight decay, whatever
    `skip_list` says: touched rows are updated by plain Momentum (``momentum = mu * momentum + g;
    w -= learning_rate * momentum``). A variable that gets both kinds of gradients in turn mixes the
    two meanings of its slot. Each part of a partitioned variable has a norm and a trust ratio of
    its own. Dense updates of float64 variables use numbers as they are, sparse ones rounded to
    float32. Norms are taken in the variable's dtype, so in float16, whose largest number is 65504,
    one of 256 and more is infinite (in the original, too): train such variables in float32.

    Unlike the original, a dense update also takes a callable `learning_rate`, and tensors of
    another dtype than the variable's.

    Args:
      learning_rate: a number, scalar tensor, variable, or callable that returns one.
      momentum: the factor mu, not negative.
      weight_decay: not negative.
      eeta: the trust coefficient.
      epsilon: is added to the trust ratio's divisor.
      name: the name of the optimizer and its slot.
      skip_list: a list of strings, or None. A variable with one of them in its name (`w.name`, as
        in "dense/bias:0") gets neither trust ratio nor weight decay. In Keras 3 it is the
        variable's path, which tells all the layers that it is in, and ":0".
      use_nesterov: whether to look ahead: ``w -= learning_rate * trust * (g + weight_decay * w) +
        mu * momentum``.

    Raises:
      TypeError: an argument has the wrong type.
      ValueError: an argument is NaN or out of its range.
    """

    slots = {"momentum": Slot()}
    full_precision = ("learning_rate", "momentum", "weight_decay", "eeta", "epsilon")
    # As the original keeps them.
    _learning_rate_tensor, _momentum_tensor = map(tensor_of, ("learning_rate", "momentum"))

    def __init__(
        self,
        learning_rate: Hyperparameter,
        momentum: Hyperparameter = 0.9,
        weight_decay: Hyperparameter = 0.0001,
        eeta: Hyperparameter = 0.001,
        epsilon: Hyperparameter = 0.0,
        name: str = "LARSOptimizer",
        skip_list: Optional[Sequence[str]] = None,
        use_nesterov: bool = False,
    ) -> None:
        super().__init__(
            False,
            name,
            learning_rate=learning_rate,
            momentum=argument_checks.not_negative("momentum", momentum),
            weight_decay=argument_checks.not_negative("weight_decay", weight_decay),
            eeta=eeta,
            epsilon=epsilon,
        )
        self._skip_list = _texts("skip_list", skip_list)
        self._use_nesterov = argument_checks.boolean("use_nesterov", use_nesterov)

    def update_for(self, grad: Tensor, variable: Variable, access: Access) -> Update:
        """Returns the update as one of Momentum: of the scaled gradient at a learning rate of 1."""
        update = super().update_for(grad, variable, access)
        hyper = update.hyper
        if update.sparse:
            for name in ("learning_rate", "momentum"):
                setattr(hyper, name, tf.cast(self._rule_step.tensors[name], grad.dtype))
            return update
        rate, grad = self.compute_lr(grad, variable)
        hyper.learning_rate = tf.ones([], grad.dtype)
        return update._replace(grad=grad * rate)

    def compute_lr(self, grad: Tensor, var: Variable) -> Tuple[Tensor, Tensor]:
        """Returns the learning rate of a variable, and its dense gradient with weight decay.

        Called with every dense gradient; subclasses may override it, as in the original.
        """
        hyper = self.hyperparameters(var.dtype.base_dtype)
        rate, name = hyper.learning_rate, self.variable_name(var)
        name = name if ":" in name else name + ":0"  # paths of Keras 3 have none
        if not any(text in name for text in self._skip_list or ()):
            value = tf.convert_to_tensor(var)
            rate *= _trust_ratio(grad, value, hyper)
            grad += hyper.weight_decay * value
        return rate, grad

    def rule(
        self, grad: Tensor, value: Tensor, slots: SimpleNamespace, hyper: SimpleNamespace
    ) -> RuleResult:
        momentum = slots.momentum * hyper.momentum + grad
        step = grad + momentum * hyper.momentum if self._use_nesterov else momentum
        return hyper.learning_rate * step, {"momentum": momentum}

    def fused(self, update: Update) -> Optional[Operation]:
        return fused_kernels.apply(
            "Momentum",
            update,
            accum=update.slots.momentum,
            lr=update.hyper.learning_rate,
            momentum=update.hyper.momentum,
            use_nesterov=self._use_nesterov,
        )


def _trust_ratio(grad, value, hyper):
    """Returns the factor of the learning rate, a scalar."""
    value_norm, grad_norm = tf.norm(value, ord=2), tf.norm(grad, ord=2)
    decay = hyper.weight_decay * value_norm
    # The order in which the original's Session adds: it moves a constant epsilon to the decay, but
    # not in 16 bits. The maximum changes nothing, but keeps graphs from moving anything.
    if grad.dtype.size == 2:
        divisor = tf.maximum(grad_norm + decay, grad.dtype.min) + hyper.epsilon
    else:
        divisor = grad_norm + tf.maximum(decay + hyper.epsilon, grad.dtype.min)
    there = tf.logical_and(value_norm > 0, grad_norm > 0)
    ratio = hyper.eeta * value_norm / divisor
    return tf.compat.v2.where(there, ratio, tf.ones_like(ratio))


def _texts(name, values):
    """Returns `values` as a list, or None, if it is one of strings."""
    if values is None:
        return None
    texts = values if isinstance(values, str) else list(values)
    if texts is values or not all(isinstance(text, str) for text in texts):
        raise TypeError(f"{name} must be a list of strings or None, got {values!r}.")
    return texts
