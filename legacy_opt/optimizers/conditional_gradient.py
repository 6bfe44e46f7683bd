"""Conditional gradient (Frank-Wolfe): steps towards the border of a ball of radius `lambda_`.

The update of a variable w with the gradient g::

    w = learning_rate * w - (1 - learning_rate) * lambda_ * direction
    direction = g / (|g| + epsilon)    if ord is "fro", where |g| is the Frobenius (L2) norm of g
    direction = u * v^T                if ord is "nuclear": the first singular vectors of g

Source: `ConditionalGradient` of TensorFlow Addons, with the same constructor and formula; after
Yurtsever et al., https://arxiv.org/abs/1803.06453.
"""

from __future__ import annotations

from typing import Callable

import tensorflow as tf

from legacy_opt.core import argument_checks, norms
from legacy_opt.core.hyperparameters import wide_dtype
from legacy_opt.core.rule_optimizer import RuleOptimizer
from legacy_opt.core.types import Hyperparameter, Tensor, Variable
from legacy_opt.core.update import NewValue, RuleResult, Values


class ConditionalGradientOptimizer(RuleOptimizer):
    """Keeps each variable in a ball around 0 (`tfa.optimizers.ConditionalGradient`).

    A `learning_rate` near 1 gives small steps, and 0 the largest step, to the border of the ball.
    With a sparse gradient, only its own rows change, and its norm is that of these rows, after the
    gradients of equal ids are summed. Each partition of a partitioned variable has its own norm.
    Norms are computed in the variable's dtype: in float16, a norm of 256 or more is infinite.

    The optimizer has no slots. (That of TensorFlow Addons, `conditional_gradient`, is always zero.)
    Native kernels and recorded rules compute dense gradients with `ord="fro"`.

    Example::

        w = tf.Variable([1.0, 1.0])
        optimizer = legacy_opt.ConditionalGradientOptimizer(0.5, lambda_=10.0)
        optimizer.apply_gradients([(tf.constant([3.0, 4.0]), w)])  # half way to -10 * [0.6, 0.8]
        print(w.numpy())  # [-2.5 -3.5]

    Args:
      learning_rate: a number, scalar tensor or variable, or a callable that returns one of these.
        The same types are accepted for `lambda_` and `epsilon`.
      lambda_: the radius of the ball, in the norm that is named by `ord`.
      epsilon: added to the Frobenius norm; not negative.
      ord: "fro" for the Frobenius norm, or "nuclear" for the nuclear norm, the sum of the singular
        values, which needs variables of at most two axes.
      use_locking, name: see `LionOptimizer`; there are no slots.

    Raises:
      TypeError: an argument has the wrong type.
      ValueError: an argument is NaN or out of range, or a variable has too many axes for `ord`.
    """

    full_precision = ("epsilon",)

    def __init__(
        self,
        learning_rate: Hyperparameter,
        lambda_: Hyperparameter = 0.01,
        epsilon: Hyperparameter = 1e-7,
        ord: str = "fro",
        use_locking: bool = False,
        name: str = "ConditionalGradient",
    ) -> None:
        epsilon = argument_checks.not_negative("epsilon", epsilon)
        super().__init__(
            use_locking, name, learning_rate=learning_rate, lambda_=lambda_, epsilon=epsilon
        )
        if ord not in ("fro", "nuclear"):
            raise ValueError(f"ord must be 'fro' or 'nuclear', got {ord!r}.")
        self._ord = ord

    def pure_rule(self, variable: Variable, sparse: bool) -> Callable[..., RuleResult]:
        if sparse or self._ord == "nuclear":
            text = "only TensorFlow computes norms of rows of sparse gradients, and nuclear norms"
            raise NotImplementedError(text)
        return super().pure_rule(variable, sparse)

    def rule(self, grad: Tensor, value: Tensor, slots: Values, hyper: Values) -> RuleResult:
        if self._ord == "fro":
            direction = grad / (norms.euclidean(grad) + hyper.epsilon)
        else:
            direction = _top_singular_matrix(grad)
        length = (1 - hyper.learning_rate) * hyper.lambda_
        return NewValue(value * hyper.learning_rate - length * direction), {}


def _top_singular_matrix(grad: Tensor) -> Tensor:
    """Returns the product of the first left and the first right singular vector of a gradient."""
    if grad.shape.rank not in (0, 1, 2):
        raise ValueError(
            "ConditionalGradientOptimizer with ord='nuclear' trains variables of rank 0, 1 or 2, "
            f"got a gradient of shape {grad.shape}: reshape the variable, or pass ord='fro'."
        )
    matrix = grad if grad.shape.rank == 2 else tf.reshape(grad, [1, -1])
    _, u, v = tf.linalg.svd(tf.cast(matrix, wide_dtype(grad.dtype)), full_matrices=False)
    top = tf.matmul(u[:, :1], v[:, :1], transpose_b=True)
    return tf.reshape(tf.cast(top, grad.dtype), tf.shape(grad))
