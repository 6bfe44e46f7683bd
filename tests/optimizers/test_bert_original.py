"""Compares our optimizers bit for bit with copies of the optimizers of BERT and ALBERT.

The file also tests BERT's learning rate schedule. In BERT's script, it is undefined whether the
schedule reads the global step before or after the increment (see docs/weight_decay.md).
"""

import functools

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import AdamWeightDecayOptimizer, LAMBOptimizer
from tests.support import problems, running
from tests.support.fed_training import FedTraining
from tests.support.pages import python_blocks
from tests.support.paths import DOCS
from tests.support.running import REF_AND_RESOURCE

v1 = tf.compat.v1
PAGE = DOCS / "weight_decay.md"
STEPS = 24
NUMBERS = {"learning_rate": 0.05, "weight_decay_rate": 0.01, "beta_1": 0.9, "beta_2": 0.98}
EPSILON = 1e-3


class AsWritten(v1.train.Optimizer):
    """Runs the operations of BERT's optimizer in the original order.

    With `layers`, runs the operations of ALBERT's optimizer. Like the originals, this class does
    not increment the global step.
    """

    def __init__(self, layers=False, rate=NUMBERS["learning_rate"]):
        super().__init__(False, "AsWritten")
        self.layers, self.rate = layers, rate

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        updates = []
        for grad, w in grads_and_vars:
            grad = tf.convert_to_tensor(grad)
            slots = [
                v1.get_variable(
                    f"{w.op.name}/adam_{slot}",
                    w.shape,
                    w.dtype.base_dtype,
                    v1.zeros_initializer(),
                    trainable=False,
                )
                for slot in "mv"
            ]
            updates += [
                variable.assign(value)
                for variable, value in zip([w, *slots], self.new_values(grad, w, *slots))
            ]
        return tf.group(*updates)

    def new_values(self, grad, w, m, v):
        beta_1, beta_2 = NUMBERS["beta_1"], NUMBERS["beta_2"]
        m = tf.multiply(beta_1, m) + tf.multiply(1.0 - beta_1, grad)
        v = tf.multiply(beta_2, v) + tf.multiply(1.0 - beta_2, tf.square(grad))
        direction = m / (tf.sqrt(v) + EPSILON)
        direction += NUMBERS["weight_decay_rate"] * w
        rate = self.rate
        if self.layers:
            norms = tf.norm(w, ord=2), tf.norm(direction, ord=2)
            one = tf.ones([], w.dtype.base_dtype)
            both = tf.logical_and(norms[0] > 0, norms[1] > 0)
            rate = v1.where(both, norms[0] / norms[1], one) * rate
        return w - rate * direction, m, v


@REF_AND_RESOURCE
@pytest.mark.parametrize(
    "ours, layers",
    [
        (AdamWeightDecayOptimizer, False),
        (functools.partial(LAMBOptimizer, bias_correction=False), True),
    ],
    ids=["BERT", "ALBERT"],
)
def test_every_variable_after_every_step(ours, layers, use_resource):
    problem = problems.everything("float32", (), STEPS)
    trainings = [
        FedTraining(make, problem, use_resource).train(0, STEPS)
        for make in (lambda _: ours(**NUMBERS, epsilon=EPSILON), lambda _: AsWritten(layers))
    ]
    for number, (mine, expected) in enumerate(zip(*trainings)):
        assert set(mine) == set(expected)
        for name in set(expected) - {"global_step"}:
            running.assert_equal(mine[name], expected[name], f"{name} after {number}")


# The learning rate schedule.

SCHEDULE = {"init_lr": 0.1, "num_train_steps": 10, "num_warmup_steps": 2}


def berts_schedule(step):
    """Returns the learning rate. The code is copied from BERT's script."""
    rate = tf.constant(SCHEDULE["init_lr"])
    total, warmup = SCHEDULE["num_train_steps"], SCHEDULE["num_warmup_steps"]
    rate = v1.train.polynomial_decay(rate, step, total, end_learning_rate=0.0, power=1.0)
    done, steps = tf.cast(step, tf.int32), tf.constant(warmup)
    warming = SCHEDULE["init_lr"] * (tf.cast(done, tf.float32) / tf.cast(steps, tf.float32))
    is_warmup = tf.cast(done < steps, tf.float32)
    return (1.0 - is_warmup) * rate + is_warmup * warming


def original(read_after_the_assignment):
    """Returns a function that updates w and increments the step.

    If `read_after_the_assignment`, the schedule reads the step after the increment. Otherwise, the
    schedule reads the step before the increment.
    """

    def train(pairs, step):
        if read_after_the_assignment:
            with tf.control_dependencies([step.assign(step + 1)]):
                rate = berts_schedule(step.read_value())
            return AsWritten(rate=rate).apply_gradients(pairs)
        rate = berts_schedule(step.read_value())
        with tf.control_dependencies([AsWritten(rate=rate).apply_gradients(pairs)]):
            return step.assign(step + 1)

    return train


def ours(rate_at):
    def train(pairs, step):
        arguments = dict(NUMBERS, learning_rate=rate_at(step), epsilon=EPSILON)
        return AdamWeightDecayOptimizer(**arguments).apply_gradients(pairs, step)

    return train


def trained(train):
    with tf.Graph().as_default(), v1.Session() as session:
        start = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
        w = v1.get_variable("w", initializer=start, use_resource=True)
        step = v1.get_variable(
            "global_step",
            [],
            tf.int64,
            v1.zeros_initializer(),
            trainable=False,
            use_resource=True,
            collections=[v1.GraphKeys.GLOBAL_STEP, v1.GraphKeys.GLOBAL_VARIABLES],
        )
        train_op = train([(tf.gradients(tf.reduce_sum(tf.square(w - 2.0)), w)[0], w)], step)
        session.run(v1.global_variables_initializer())
        values = [start] + [(session.run(train_op), session.run(w))[1] for _ in range(12)]
        assert session.run(step) == 12
        return np.array(values)


def rate_of_the_page():
    """Returns the learning rate function in docs/weight_decay.md."""
    names = {}
    for code in python_blocks(PAGE):
        exec(compile(code, str(PAGE), "exec"), names)
    assert "rate_at" in names, "docs/weight_decay.md does not define rate_at"
    return lambda step: names["rate_at"](step, **SCHEDULE)


def test_without_the_line_the_rate_is_that_of_the_step():
    values = trained(ours(berts_schedule))
    assert np.array_equal(values, trained(original(read_after_the_assignment=False)))
    assert np.array_equal(values[1], values[0]) and not np.array_equal(values[2], values[1])


def test_the_code_in_the_docs_repeats_the_original():
    rate_at = rate_of_the_page()
    values = trained(ours(lambda step: rate_at(step + 1)))
    assert np.array_equal(values, trained(original(read_after_the_assignment=True)))
    assert not np.array_equal(values[1], values[0])
    assert np.array_equal(trained(ours(rate_at)), trained(ours(berts_schedule)))


def test_the_rates_in_the_docs():
    rows = [
        line for line in PAGE.read_text(encoding="utf-8").splitlines() if "without the line" in line
    ]
    rates = {"rate_at" in row: row.strip("| ").split(" | ")[1:] for row in rows if row[0] == "|"}
    rate_at = rate_of_the_page()
    for is_next, numbers in rates.items():
        with tf.Graph().as_default(), v1.Session() as session:
            steps = [tf.constant(step + is_next, tf.int64) for step in range(6)]
            found = session.run([rate_at(step) for step in steps])
        np.testing.assert_allclose(found, [float(number) for number in numbers], atol=1e-7)
    assert len(rates) == 2
