"""LARS: Momentum with a separate learning rate for each variable, for large batches.

The update of a variable w with the gradient g, where ``|x|`` is the L2 norm of x::

    trust = eeta * |w| / (|g| + weight_decay * |w| + epsilon);  1 if |w| or |g| is 0
    momentum = mu * momentum + learning_rate * trust * (g + weight_decay * w)
    w -= momentum

Source: `LARSOptimizer` of TensorFlow 1's `tf.contrib.opt`, with the same constructor, slot,
variable names and arithmetic; after You, Gitman and Ginsburg, "Large Batch Training of
Convolutional Networks" (https://arxiv.org/abs/1708.03888).
"""

from __future__ import annotations

from typing import Callable, Iterable, Optional, Sequence, Tuple, Union

import tensorflow as tf

from legacy_opt.core import argument_checks, fused_kernels, norms
from legacy_opt.core.hyperparameters import tensor_of
from legacy_opt.core.named_values import changed
from legacy_opt.core.rule_optimizer import refuse_overridden
from legacy_opt.core.slots import Slot
from legacy_opt.core.types import DType, Hyperparameter, Operation, Tensor, Variable
from legacy_opt.core.update import RuleResult, Update, Values
from legacy_opt.core.variable_access import Access
from legacy_opt.optimizers.name_patterns import PatternsOptimizer


class LARSOptimizer(PatternsOptimizer):
    """Layer-wise adaptive rate scaling (`tf.contrib.opt.LARSOptimizer`).

    The optimizer has one slot, `momentum` (`w/LARSOptimizer`), with the variable's shape and dtype,
    initialized to zero. Dense gradients are multiplied by the learning rate before they are added
    to the slot, so a new learning rate affects only new gradients.

    As in tf.contrib, sparse gradients are applied without trust ratio and weight decay, to all
    variables. The rows in the gradient are updated by plain Momentum: ``momentum = mu * momentum +
    g; w -= learning_rate * momentum``. If a variable has dense and sparse gradients, its slot
    contains terms with and without the learning rate, because only dense gradients are multiplied
    by the learning rate before the addition.

    Each partition of a partitioned variable has its own norm and trust ratio. For float64
    variables, dense updates use hyperparameters in full precision, but sparse updates round
    hyperparameters to float32. As in tf.contrib, norms are computed in the variable's dtype. In
    float16, where the largest number is 65504, a norm of 256 or more is therefore infinite. Train
    variables with such norms in float32.

    Unlike in tf.contrib, a dense update also accepts a callable `learning_rate`, and tensors whose
    dtype differs from the variable's dtype.

    Example::

        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            w = tf.compat.v1.get_variable("w", initializer=[300.0, 400.0])  # of norm 500
            optimizer = legacy_opt.LARSOptimizer(1.0, weight_decay=0.0, eeta=0.001)
            train_op = optimizer.apply_gradients([(tf.constant([6e5, 8e5]), w)])
            session.run(tf.compat.v1.global_variables_initializer())
            session.run(train_op)  # the change has norm 0.5, whatever the norm of the gradient
            print(session.run(w))  # [299.7 399.6]

    Args:
      learning_rate: a number, scalar tensor or variable, or a callable that returns one of these.
      momentum: the factor mu, not negative.
      weight_decay: the factor of the variable that is added to the gradient, not negative.
      eeta: the trust coefficient.
      epsilon: added to the divisor of the trust ratio.
      name: the name of the optimizer and its slot.
      skip_list: a list of strings, or None. A variable whose name (`w.name`, for example
        "dense/bias:0") contains one of the strings is updated without trust ratio and weight decay.
        In Keras 3 the name is the path and ":0". The first step warns of unmatched strings.
      use_nesterov: whether to use Nesterov momentum: ``w -= learning_rate * trust * (g +
        weight_decay * w) + mu * momentum``.

    Raises:
      TypeError: an argument has the wrong type.
      ValueError: an argument is NaN or out of range.
    """

    slots = {"momentum": Slot()}
    _pattern_attributes = ("_skip_list",)
    _matches = staticmethod(lambda text, name: text in name)
    full_precision = ("learning_rate", "momentum", "weight_decay", "eeta", "epsilon")
    # Private attributes of the class in tf.contrib, which subclasses may read.
    _learning_rate_tensor = tensor_of("learning_rate")
    _momentum_tensor = tensor_of("momentum")

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
        check = argument_checks.not_negative
        factors = argument_checks.checked(check, momentum=momentum, weight_decay=weight_decay)
        others = dict(factors, eeta=eeta, epsilon=epsilon)
        super().__init__(False, name, learning_rate=learning_rate, **others)
        self._skip_list = _texts("skip_list", skip_list)
        self._use_nesterov = argument_checks.boolean("use_nesterov", use_nesterov)

    def _update_for(self, grad: Tensor, variable: Variable, access: Access) -> Update:
        """Returns an `Update` for `rule`, which computes plain Momentum.

        A dense gradient is multiplied by the learning rate here, so the rule gets a rate of 1.
        """
        update = super()._update_for(grad, variable, access)
        if update.sparse:
            return update._replace(hyper=self._rounded(update.hyper, grad.dtype))
        rate, grad = self.compute_lr(grad, variable)
        return update._replace(grad=grad * rate, hyper=_with_rate_1(update.hyper, grad.dtype))

    def _rounded(self, hyper: Values, dtype: DType) -> Values:
        """Returns the hyperparameters of a sparse update in float32, like tf.contrib's class."""
        rounded = {}
        for name in ("learning_rate", "momentum"):
            narrow = tf.cast(getattr(hyper, name), self._rule_step.tensors[name].dtype)
            rounded[name] = tf.cast(narrow, dtype)
        return changed(hyper, **rounded)

    def pure_rule(self, variable: Variable, sparse: bool) -> Callable[..., RuleResult]:
        refuse_overridden(self, LARSOptimizer, "apply_update", "compute_lr", "_update_for")

        def dense_update(grad: Tensor, value: Tensor, slots: Values, hyper: Values) -> RuleResult:
            rate, grad = _rate_and_gradient(grad, value, hyper)
            return self.rule(grad * rate, value, slots, _with_rate_1(hyper, grad.dtype))

        def sparse_update(grad: Tensor, value: Tensor, slots: Values, hyper: Values) -> RuleResult:
            return self.sparse_rule(grad, value, slots, self._rounded(hyper, grad.dtype))

        return sparse_update if sparse else dense_update

    def compute_lr(self, grad: Tensor, var: Variable) -> Tuple[Tensor, Tensor]:
        """Returns the learning rate of a variable, and its dense gradient with weight decay.

        Every update with a dense gradient calls this method. Subclasses may override the method.
        """
        return _rate_and_gradient(grad, var, self.hyper_for(var))

    def _name_to_match(self, variable: Variable) -> str:
        name = self.variable_name(variable)
        return name if ":" in name else name + ":0"  # Keras 3's paths have no ":0"

    def hyper_for(self, variable: Variable) -> Values:
        name = self._name_to_match(variable)
        is_skipped = any(text in name for text in self._skip_list or ())
        return changed(super().hyper_for(variable), adapts=not is_skipped)

    def rule(self, grad: Tensor, value: Tensor, slots: Values, hyper: Values) -> RuleResult:
        momentum = slots.momentum * hyper.momentum + grad
        change = momentum
        if self._use_nesterov:
            change = grad + momentum * hyper.momentum
        return hyper.learning_rate * change, {"momentum": momentum}

    def fused(self, update: Update) -> Optional[Operation]:
        return fused_kernels.apply(
            "Momentum",
            update,
            accum=update.slots.momentum,
            lr=update.hyper.learning_rate,
            momentum=update.hyper.momentum,
            use_nesterov=self._use_nesterov,
        )


def _with_rate_1(hyper: Values, dtype: DType) -> Values:
    return changed(hyper, learning_rate=tf.ones([], dtype))


def _rate_and_gradient(
    grad: Tensor, variable: Union[Tensor, Variable], hyper: Values
) -> Tuple[Tensor, Tensor]:
    """Returns the learning rate of a variable, and its dense gradient with weight decay."""
    if not hyper.adapts:
        return hyper.learning_rate, grad
    value = tf.convert_to_tensor(variable)
    rate = hyper.learning_rate * _trust_ratio(grad, value, hyper)
    return rate, grad + hyper.weight_decay * value


def _trust_ratio(grad: Tensor, value: Tensor, hyper: Values) -> Tensor:
    """Returns the factor of the learning rate, a scalar."""
    value_norm = norms.euclidean(value)
    grad_norm = norms.euclidean(grad)
    decay = hyper.weight_decay * value_norm
    # The divisor is |g| + decay + epsilon. In a Session with tf.contrib's class, Grappler reorders
    # this sum: it first adds a constant epsilon to the decay, except for 16-bit dtypes. The same
    # order is used here. The maximum changes no value, but prevents Grappler from reordering.
    if grad.dtype.size == 2:
        divisor = tf.maximum(grad_norm + decay, grad.dtype.min) + hyper.epsilon
    else:
        divisor = grad_norm + tf.maximum(decay + hyper.epsilon, grad.dtype.min)
    are_positive = tf.logical_and(value_norm > 0, grad_norm > 0)
    ratio = hyper.eeta * value_norm / divisor
    return tf.compat.v2.where(are_positive, ratio, tf.ones_like(ratio))


def _texts(name: str, values: Optional[Iterable[str]]) -> Optional[Sequence[str]]:
    """Returns an iterable of strings as a list, and None as None; else raises a TypeError."""
    if values is None:
        return None
    texts = list(values)
    if isinstance(values, str) or not all(isinstance(text, str) for text in texts):
        raise TypeError(f"{name} must be a list of strings or None, got {values!r}.")
    return texts
