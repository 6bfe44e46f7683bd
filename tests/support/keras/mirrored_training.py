"""Trains under a tf.distribute strategy; compares the results with those of a Session.

The programs `tests.keras_bridge.mirrored` and `tests.clusters.strategies` use this module.
Their options are ``--keras3`` (Keras 3 instead of Keras 2) and ``--full`` (all optimizers). A
*bridged* optimizer is a Keras optimizer made by `to_keras` from a v1 optimizer.

The results must be equal bit for bit. `data` returns gradients that are small multiples of 1/8, so
their sums are exact in any order. Therefore two replicas must compute the same bits as a v1
optimizer that gets the summed gradients in a Session.
"""

import sys

import numpy as np
import tensorflow as tf

from legacy_opt import AdagradDecayOptimizer, AdagradDecayOptimizerV2, versions
from legacy_opt.compat import to_keras
from tests.support import problems, running
from tests.support.rules import MyDiffGradOptimizer

FULL, KERAS_3 = "--full" in sys.argv, "--keras3" in sys.argv
API = "keras3" if KERAS_3 else "optimizer_v2"

v1 = tf.compat.v1
STEPS, REPLICAS = 8, 2
DECAY = {"accumulator_decay_step": 3, "accumulator_decay_rate": 0.5}
OPTIMIZERS = {
    "gradient descent": lambda step, rate=0.25: v1.train.GradientDescentOptimizer(rate),
    "momentum": lambda step, rate=0.25: v1.train.MomentumOptimizer(rate, 0.9, use_nesterov=True),
    "adam": lambda step, rate=0.25: v1.train.AdamOptimizer(rate),
    "rmsprop": lambda step, rate=0.25: v1.train.RMSPropOptimizer(rate, momentum=0.5, centered=True),
    "ftrl": lambda step, rate=0.25: v1.train.FtrlOptimizer(rate, l1_regularization_strength=0.01),
    "adagrad": lambda step, rate=0.25: v1.train.AdagradOptimizer(rate),
    "adagrad decay": lambda step, rate=0.25: AdagradDecayOptimizer(rate, step, **DECAY),
    "adagrad decay v2": lambda step, rate=0.25: AdagradDecayOptimizerV2(rate, step, **DECAY),
    "adagrad da": lambda step, rate=0.25: v1.train.AdagradDAOptimizer(rate, step),
    "diffgrad": lambda step, rate=0.25: MyDiffGradOptimizer(rate),
}
FEW = ("adam", "adagrad decay v2")  # the optimizers to check without --full
SOME = tuple(OPTIMIZERS) if FULL else FEW
POWERS = {"adam": (0.9, 0.999), "diffgrad": (0.9, 0.999)}


def data(steps=STEPS):
    """Returns a dict of arrays for each step, as a list; element i of an array is for replica i."""
    random = np.random.RandomState(0)

    def draw(*shape):
        return random.randint(-8, 9, size=(REPLICAS,) + shape).astype("f") / 8

    found = []
    for _ in range(steps):
        ids = random.randint(0, 7, size=(REPLICAS, 4))
        ids[:, 0] = ids[0, 1]  # both replicas have this id, and the first replica has it twice
        found.append({"matrix": draw(4, 3), "scalar": draw(), "table": draw(4, 2), "ids": ids})
    return found


VALUES = {
    "matrix": np.linspace(-1, 1, 12).reshape(4, 3).astype("f"),
    "scalar": np.float32(0.3),
    "table": np.linspace(1, -1, 14).reshape(7, 2).astype("f"),
}


def summed(batch, replicas=REPLICAS):
    """Returns the sum of the gradients of the first `replicas` replicas."""
    return {
        "matrix": batch["matrix"][:replicas].sum(axis=0),
        "scalar": batch["scalar"][:replicas].sum(axis=0),
        "table": problems.Rows(
            np.concatenate(batch["table"][:replicas]), np.concatenate(batch["ids"][:replicas])
        ),
    }


def as_one(batch):
    """Merges the data of all replicas into data for a single replica."""
    gradients = summed(batch)
    table, ids = gradients.pop("table")
    return {name: value[None] for name, value in dict(gradients, table=table, ids=ids).items()}


def session(make, gradients, sparse=("table",)):
    """Trains in a Session; returns the `running.Trace`, with which tests compare their results."""
    problem = problems.Problem(VALUES, gradients, sparse, "float32")
    return running.session(problem, make, use_resource=True)


def state_of_session(make, gradients):
    """Trains in a Session; returns all variables by name after the last gradient."""
    found = {}

    def look(sess, optimizer, variables, number):
        if number == len(gradients):
            found.update((item.op.name, sess.run(item)) for item in v1.global_variables())

    # `running.session` calls `look` before each step. Therefore one additional step is needed, so
    # that `look` can read the values after the last gradient.
    problem = problems.Problem(VALUES, gradients + gradients[:1], ("table",), "float32")
    running.session(problem, make, use_resource=True, between=look)
    return found


def loss_here(variables, mine):
    """Returns a loss whose gradients are `mine`, the arrays of `data` for one replica."""
    loss = tf.reduce_sum(variables["matrix"] * mine["matrix"])
    loss += variables["scalar"] * mine["scalar"]
    return loss + tf.reduce_sum(tf.gather(variables["table"], mine["ids"]) * mine["table"])


def gradients_here(variables, batch):
    """Computes this replica's gradients; returns pairs of gradient and variable."""
    replica = tf.distribute.get_replica_context().replica_id_in_sync_group
    mine = {name: tf.gather(value, replica) for name, value in batch.items()}
    with tf.GradientTape() as tape:
        loss = loss_here(variables, mine)
    gradients = tape.gradient(loss, list(variables.values()))
    return list(zip(gradients, variables.values()))


class Loop:
    """A custom training loop: variables and an optimizer under a strategy.

    Args:
      strategy: the strategy.
      make: a function of the global step variable that returns the optimizer.
      apply: a function that each replica calls with the optimizer, the pairs of gradient and
        variable, and the global step variable.
    """

    def __init__(self, strategy, make, apply):
        self.strategy = strategy
        with strategy.scope():
            self.variables = {name: tf.Variable(value, name=name) for name, value in VALUES.items()}
            self.step = tf.Variable(
                np.int64(0),
                trainable=False,
                name="global_step",
                aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
            )
            self.optimizer = make(self.step)
        run = running.on_replicas(strategy)

        def in_replica(batch):
            apply(self.optimizer, gradients_here(self.variables, batch), self.step)

        self.train_step = tf.function(lambda batch: run(in_replica, args=(batch,)))

    def train(self, batches, expected):
        """Trains; asserts that all variables have the expected values after each training step."""
        for batch, wanted in zip(batches, expected):
            self.train_step({name: tf.constant(value) for name, value in batch.items()})
            for name, variable in self.variables.items():
                assert_everywhere(self.strategy, variable, wanted[name], name)

    def check_slots(self, trace):
        """Asserts that all slots have the values in a trace."""
        assert {slot_name for _, slot_name in trace.slots} == set(self.optimizer.get_slot_names())
        for (name, slot_name), value in trace.slots.items():
            variable, optimizer = self.variables[name], self.optimizer
            if isinstance(optimizer, v1.train.Optimizer):
                # On TensorFlow 1.15, get_slot(variable) returns the slot of only one replica.
                parts = self.strategy.experimental_local_results(variable)
                for part in parts:
                    assert_equal(optimizer.get_slot(part, slot_name).numpy(), value, slot_name)
            else:
                slot = optimizer.get_slot(variable, slot_name)
                assert_everywhere(self.strategy, slot, value, (name, slot_name))


def assert_equal(value, expected, what):
    """Asserts that two arrays have the same dtype, shape and elements."""
    assert value.dtype == expected.dtype and value.shape == expected.shape, what
    if not np.array_equal(value, expected):
        gap = np.max(np.abs(np.asarray(value, "d") - expected))
        raise AssertionError(f"{what} is off by {gap:g}")


def assert_everywhere(strategy, variable, expected, what):
    """Asserts that all copies of a variable in this process have the expected value."""
    parts = components(strategy, variable)
    # Strategies other than MirroredStrategy have one copy in each process.
    mirrored = isinstance(strategy, tf.distribute.MirroredStrategy)
    assert len(parts) == (REPLICAS if mirrored else 1), what
    for replica, part in enumerate(parts):
        value = part.numpy() if KERAS_3 else versions.keras_2().backend.get_value(part)
        assert_equal(value, np.asarray(expected), f"{what} on replica {replica}")


def components(strategy, variable):
    """Returns this process's copies of a distributed tf.Variable or keras.Variable."""
    if not callable(variable.value):  # a keras.Variable; its `value` is a tf.Variable
        variable = variable.value
    return strategy.experimental_local_results(variable)


def power(beta, steps=STEPS):
    """Returns the value of a beta power after `steps` training steps."""
    result = np.float32(beta)
    for _ in range(steps):
        result *= np.float32(beta)
    return result


def check_powers(strategy, variables, betas):
    """Asserts that each beta power has been multiplied by its beta once in each training step."""
    for beta, name in zip(betas, ("beta1_power", "beta2_power")):
        (variable,) = [item for item in variables if name in item.name]
        assert_everywhere(strategy, variable, power(beta), name)


def bridged(make, **arguments):
    """Returns a function that makes a bridged optimizer when called with the global step."""
    return lambda step: to_keras(make(step), api=API, **arguments)


def apply_bridged(optimizer, pairs, step):
    del step
    optimizer.apply_gradients(pairs)


def apply_v1(optimizer, pairs, step):
    optimizer.apply_gradients(pairs, global_step=step)


def check_optimizer(loop, name, convert=dict):
    """Trains; compares variables and slots with a Session; checks beta powers and `iterations`.

    Args:
      loop: the `Loop`.
      name: the optimizer, a key in `OPTIMIZERS`.
      convert: converts one step's data to the form that the loop's replicas expect.
    """
    batches = data()
    expected = session(OPTIMIZERS[name], [summed(batch) for batch in batches])
    loop.train([convert(batch) for batch in batches], expected.steps)
    loop.check_slots(expected)
    assert_everywhere(loop.strategy, loop.optimizer.iterations, np.int64(STEPS), "iterations")
    check_powers(loop.strategy, loop.optimizer.weights, POWERS.get(name, ()))


def keras_3_version():
    """Returns the version of Keras 3 as a tuple (major, minor)."""
    return tuple(int(number) for number in versions.keras_3().__version__.split(".")[:2])


def check_refused(strategy):
    """Asserts that `to_keras` raises an ImportError, because this Keras 3 is too old."""
    with strategy.scope():
        try:
            bridged(OPTIMIZERS["adam"])(None)
        except ImportError as error:
            assert f"is too old for {type(strategy).__name__}" in str(error), error
        else:
            raise AssertionError("to_keras raised no ImportError")


def run_checks(checks, strategy):
    """Runs checks and prints their names.

    With several replicas, Keras 3 before 3.8 does not divide the loss by the number of replicas, so
    `to_keras` must raise an error. Then `check_refused` replaces each check.
    """
    # `strategy` may be a ClusterCoordinator, which has an attribute `strategy`.
    replicas = getattr(strategy, "strategy", strategy).num_replicas_in_sync
    is_refused = KERAS_3 and replicas > 1 and keras_3_version() < (3, 8)
    for check in checks:
        (check_refused if is_refused else check)(strategy)
        print(check.__name__[len("check_") :], "passed", flush=True)
