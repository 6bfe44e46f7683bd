"""LazyAdam: Adam in which a sparse gradient updates only the rows in the gradient.

The update of a variable w with the gradient g, for the t-th time (from 1)::

    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g**2
    w -= learning_rate * sqrt(1 - beta2**t) / (1 - beta1**t) * m / (sqrt(v) + epsilon)

Source: `tf.contrib.opt.LazyAdamOptimizer` of TensorFlow 1.15.
"""

from __future__ import annotations

from legacy_opt.optimizers.adam_base import AdamBase


class LazyAdamOptimizer(AdamBase):
    """Adam whose sparse updates cost time only for the rows in the gradient (tf.contrib.opt).

    With dense gradients, the results are bit for bit those of `tf.compat.v1.train.AdamOptimizer`.
    With a sparse gradient, TensorFlow's optimizer changes every row of the table, but this
    optimizer changes only the rows in the gradient, and the moments of these rows. The powers of
    beta change in every training step.

    Slots, in this order, named after the optimizer (`w/Adam`, `w/Adam_1`): `m` and `v`, with the
    variable's shape and dtype, initialized to zero. All variables share `beta1_power` and
    `beta2_power`, float32 scalars initialized to `beta1` and `beta2`. The variables are the same as
    those of `tf.compat.v1.train.AdamOptimizer`, so each of the two optimizers can continue from
    checkpoints of the other optimizer.

    Example::

        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            table = tf.compat.v1.get_variable("table", initializer=[1.0, 1.0, 1.0])
            loss = tf.reduce_sum(tf.gather(table, [0, 2]))
            train_op = legacy_opt.LazyAdamOptimizer(0.1).minimize(loss)
            session.run(tf.compat.v1.global_variables_initializer())
            session.run(train_op)
            print(session.run(table).round(3))  # [0.9 1.  0.9]

    Args:
      learning_rate: a number, scalar tensor or variable, or a callable that returns one of these.
        The same types are accepted for `beta1`, `beta2` and `epsilon`.
      beta1, beta2: decay factors of `m` and `v`, at least 0 and less than 1.
      epsilon: added to the square root of `v`; not negative ("epsilon hat" in Adam's paper). For
        float16 variables pass 1e-4 or more: the default rounds to 0 in float16, and 0 / 0 is NaN.
      use_locking: whether native kernels, and TensorFlow's Adam kernel for dense gradients, lock
        the variables while they write.
      name: the name of the optimizer and its slots.

    Raises:
      TypeError: an argument has the wrong type.
      ValueError: an argument is NaN or out of range.
    """
