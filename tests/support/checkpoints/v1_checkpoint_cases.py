"""Optimizers, scopes, partitions and models for tests of name-based (Saver) checkpoints."""

import contextlib
import re

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import AdagradDecayOptimizer, AdagradDecayOptimizerV2
from legacy_opt.compat import CheckpointMismatch, load_v1_checkpoint
from tests.support.checkpoints.v1_checkpoints import (
    AFTER,
    BEFORE,
    KerasTraining,
    assert_equal,
    assert_same_steps,
    continued_in_v1,
    problem,
    same,
    tensors,
    trained_in_v1,
    v1_training,
)
from tests.support.keras import keras_ways
from tests.support.keras.keras_cases import CASES, CONTRIB, KerasCase
from tests.support.keras.row_adagrad import RowAdagrad

v1 = tf.compat.v1
ALL = dict(CASES, RowAdagrad=KerasCase(RowAdagrad, lambda step: RowAdagrad(0.1)))
# The daily run has one case of each class outside tf.contrib.opt, and a second case of RMSProp,
# which has more slots. Other cases of the same class have similar checkpoints. The checkpoints of
# tf.contrib.opt's classes are like those of legacy_opt's classes.
FIRST = {case.optimizer: name for name, case in reversed(list(ALL.items()))}
DAILY = (set(FIRST.values()) - set(CONTRIB)) | {"RMSProp centered, momentum"}
EVERY_OPTIMIZER = [
    name if name in DAILY else pytest.param(name, marks=pytest.mark.full) for name in ALL
]
PARTS = 3  # the number of partitions of a partitioned variable
USED = ("fresh", "trained")
DECAYING = {1: AdagradDecayOptimizer, 2: AdagradDecayOptimizerV2}
END = BEFORE + AFTER


def adam(step=None, name="Adam"):
    return v1.train.AdamOptimizer(0.05, 0.9, 0.98, 1e-3, name=name)


def momentum(step=None):
    return v1.train.MomentumOptimizer(0.1, 0.9)


def layout(number):
    """Returns a function that makes AdagradDecay with layout 1 or layout 2 of its decay counts."""
    return lambda step: DECAYING[number](0.3, step, 0.2, 3, 0.5)


def problem_for(case, dtype="float32"):
    return problem(case.only or ("matrix", "table"), dtype)


def assert_goes_on(path, training, expected, way="function", **options):
    """Loads a checkpoint and continues training; asserts that all values are as `expected`.

    `expected` is the result of `continued_in_v1` or `continued_from`.
    """
    restored, steps, end = expected
    report = load_v1_checkpoint(path, training.variables, training.optimizer, **options)
    assert report.complete
    assert_equal(training.state(), restored, "loaded")
    assert_same_steps(training.train(BEFORE, END, way), steps)
    assert_equal(training.state(), end, "at the end")
    return report


def round_trip(path, one_problem, make, api, options=None, make_keras=None, **loading):
    """Trains in a TF1 graph; asserts that further steps in Keras and in a graph are equal."""
    options = options or {}
    path = trained_in_v1(path, one_problem, make, **options)
    options = {name: value for name, value in options.items() if name != "saver"}
    expected = continued_in_v1(path, one_problem, make, **options)
    training = KerasTraining(one_problem, make_keras or make, api)
    return assert_goes_on(path, training, expected, **loading)


def way_of(name):
    """Returns a way to train in Keras, and the configuration of a Session with equal results."""
    # For these two optimizers, the result of TensorFlow's graph rewriting depends on whether the
    # learning rate is a constant (in a Session) or a variable (in Keras). So these optimizers train
    # without graph rewriting.
    if name in ("contrib.opt AdamW", "RowAdagrad"):
        return "eager", keras_ways.WITHOUT_REWRITING
    return "function", None


def variable_scope():
    return v1.variable_scope("OptimizeLoss")


def name_scope():
    return v1.name_scope("train_op")


@contextlib.contextmanager
def both_scopes():
    with variable_scope(), name_scope():
        yield


SCOPES = {"variable scope": variable_scope, "name scope": name_scope, "both": both_scopes}


def trained_in_parts(path, one_problem, make, part_by_part=False, number=PARTS, **options):
    """Trains partitioned variables and saves a checkpoint.

    If `part_by_part` is true, each partition is saved under a separate name.

    Returns:
      The checkpoint's path, and the saved state, in which the partitions are joined.
    """
    with v1_training(one_problem, make, parts=number, **options) as training:
        training.train(0, BEFORE)
        state = training.state()
        path = training.save(path, training.by_name() if part_by_part else None)
    for name in one_problem.values:
        counts = state.get((name, "accumulator_decay_power"))
        if counts is not None and counts.ndim > 1:
            state[name, "accumulator_decay_power"] = counted_by_the_whole(counts, number)
    return path, state


def counted_by_the_whole(counts, number=PARTS):
    """Converts AdagradDecay's decay counts of a partitioned variable to counts of a whole variable.

    In layout 1, element r of the flattened slot is the count of row r. In the slot of a partition,
    row 0 is the first row of the partition.
    """
    rows = [part.reshape(-1)[: len(part)] for part in np.array_split(counts, number)]
    whole = np.zeros_like(counts)
    whole.reshape(-1)[: len(counts)] = np.concatenate(rows)
    return whole


RENAMED = {"matrix": "tower_0/w", "table": "tower_0/emb/weights"}


def moved(name):
    first, _, rest = name.partition("/")
    return RENAMED.get(first, first) + ("/" + rest if rest else "")


class Net:
    """A functional, Sequential or subclassed model (`kind`) of Keras 2 or Keras 3."""

    SHAPES = {
        "dense/kernel": (4, 3),
        "dense/bias": (3,),
        "norm/gamma": (3,),
        "norm/beta": (3,),
        "out/kernel": (3, 1),
        "out/bias": (1,),
    }

    def __init__(self, keras, kind):
        layers = keras.layers
        self.dense = layers.Dense(3, name="dense")
        self.norm = layers.BatchNormalization(name="norm")
        self.out = layers.Dense(1, name="out")
        stack = [self.dense, self.norm, self.out]
        if kind == "functional":
            tensor = inputs = keras.Input([4])
            for layer in stack:
                tensor = layer(tensor)
            self.model = keras.Model(inputs, tensor)
        elif kind == "Sequential":
            self.model = keras.Sequential(stack, name="net")
        else:
            self.model = _subclassed(keras, stack)
        self.model(np.zeros([1, 4], "f"))

    @staticmethod
    def v1_name(name):
        """Converts a variable's name in Keras to its name in a TF1 graph.

        In some versions of Keras, the name begins with the name of a Sequential or subclassed
        model. TensorFlow 1.15 appends numbers to the names of layers in functional models.
        """
        return re.sub(r"^net/|_\d+(?=/)", "", name)

    def trained(self):
        """Returns a dict from names in a TF1 graph to trainable variables."""
        return {
            "dense/kernel": self.dense.kernel,
            "dense/bias": self.dense.bias,
            "norm/gamma": self.norm.gamma,
            "norm/beta": self.norm.beta,
            "out/kernel": self.out.kernel,
            "out/bias": self.out.bias,
        }

    def averages(self):
        return {
            "norm/moving_mean": self.norm.moving_mean.numpy(),
            "norm/moving_variance": self.norm.moving_variance.numpy(),
        }


def _subclassed(keras, stack):
    class Subclassed(keras.Model):
        def __init__(self):
            super().__init__(name="net")
            self.stack = stack

        def call(self, inputs, training=False):
            for layer in self.stack:
                inputs = layer(inputs)
            return inputs

    return Subclassed()


def net_problem():
    base = keras_ways.problems.make("dense", steps=END)
    random = np.random.RandomState(5)

    def draw():
        return {name: random.randn(*shape).astype("f") for name, shape in Net.SHAPES.items()}

    return base._replace(values=draw(), gradients=[draw() for _ in range(END)], sparse=())


AVERAGES = {
    "norm/moving_mean": np.float32([0.5, -1.5, 2.25]),
    "norm/moving_variance": np.float32([3.5, 0.125, 1.75]),
}


# Checkpoints and arguments for which loading raises an error.

FRESH_AND_TRAINED = pytest.mark.parametrize("used", USED)


def training_of(used, api, make=adam, one_problem=None):
    one_problem = problem() if one_problem is None else one_problem
    training = KerasTraining(one_problem, make, api, start=1)
    if used == "trained":
        training.train(0, 2)
    return training


def assert_refused(path, training, error=CheckpointMismatch, given=None, optimizer=None, **options):
    """Asserts that loading raises an error and changes no variable; returns the error."""
    given = training.variables if given is None else given
    optimizer = training.optimizer if optimizer is None else optimizer
    before = training.arrays()
    with pytest.raises(error) as caught:
        load_v1_checkpoint(path, given, optimizer, **options)
    assert type(caught.value) is error
    assert same(training.arrays(), before)
    return caught.value


def both(training):
    return training.variables, training.optimizer


# Checkpoints written from Keras.


def described(path):
    """Returns {name: (dtype, shape)} for the arrays that TensorFlow reads from a checkpoint."""
    return {name: (array.dtype, array.shape) for name, array in tensors(path).items()}


def trained_in_keras(one_problem, make, api, way="function", **options):
    training = KerasTraining(one_problem, make, api, start=1, **options)
    training.train(0, BEFORE, way)
    return training


def assert_goes_on_in_v1(path, training, make, way="function", config=None, **options):
    """Restores a checkpoint in a graph; asserts that further steps equal those of `training`."""
    saved, steps, end = training.state(), training.train(BEFORE, END, way), training.state()
    with v1_training(training.problem, make, config=config, **options) as session:
        session.restore(path)
        assert_equal(session.state(), saved, "restored")
        assert_same_steps(session.train(BEFORE, END), steps)
        assert_equal(session.state(), end, "at the end")


def assert_restores(path, state, make, var_list=None, **options):
    """Restores a checkpoint in a graph; asserts that the restored state equals `state`."""
    with v1_training(problem(), make, **options) as session:
        session.restore(path, None if var_list is None else var_list(session))
        assert_equal(session.state(), state)


def moved_over(path, make, api, one_problem=None, **options):
    """Loads a checkpoint into a new `KerasTraining`; returns the training."""
    training = KerasTraining(problem() if one_problem is None else one_problem, make, api)
    load_v1_checkpoint(path, training.variables, training.optimizer, **options)
    return training
