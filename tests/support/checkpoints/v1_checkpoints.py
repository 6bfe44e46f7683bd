"""TF1 graphs that save and restore Saver checkpoints, and Keras trainings of the same variables.

`V1Training` trains with a v1 optimizer in a Session, and uses TensorFlow's Saver. Its results are
the expected values. `KerasTraining` trains the same variables with the bridged optimizer (made by
`to_keras`). By default, its variables are initially zero. In both classes, `state` returns a dict
with the keys ``(variable,)``, ``(variable, slot)``, ``("shared", name)`` and ``("step",)``.
"""

import contextlib

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import versions
from legacy_opt.compat import to_keras
from legacy_opt.compat.in_keras.side_by_side import training_function
from tests.support import running
from tests.support.keras import keras_apis, keras_ways

v1 = tf.compat.v1
KERAS_3 = versions.keras_facts()["generation"] == 3
APIS = ("optimizer_v2",) + (("keras3",) if KERAS_3 else ())
EVERY_API = pytest.mark.parametrize("api", APIS)
BEFORE, AFTER = 4, 8  # steps before and after the checkpoint
NO_SCOPE = contextlib.ExitStack


def problem(names=("matrix", "table"), dtype="float32"):
    """Makes a problem with these variables, and gradients for all steps of a test."""
    return keras_ways.mixed(dtype, names, BEFORE + AFTER)


def keras_of(api):
    """Returns the Keras module of an `api`."""
    return keras_apis.keras_2() if api == "optimizer_v2" else versions.keras_3()


class V1Training:
    """A TF1 graph of a problem's variables and their optimizer, in a Session.

    Args:
      problem: the `Problem`.
      make: a function from the global step (or None) to the optimizer.
      use_resource: whether to use resource variables instead of ref variables.
      scope: a function that returns the scope in which apply_gradients is called.
      step: the name of the global step; None for a graph without a global step.
      step_dtype: the dtype of the global step.
      parts: the number of partitions of each variable, by rows; 0 for unpartitioned variables.
      extra: a dict from names to values of further variables, which are not trained.
      only: the names of the variables that `make`'s optimizer trains; None for all.
      other: None, or a function like `make` that returns a second optimizer. The second optimizer
        trains the variables that are not in `only`.
    """

    def __init__(
        self,
        problem,
        make,
        use_resource=True,
        scope=NO_SCOPE,
        step="global_step",
        step_dtype="int64",
        parts=0,
        extra=None,
        only=None,
        other=None,
    ):
        self.problem = problem
        self.variables = self._make_variables(use_resource, parts)
        for name, value in (extra or {}).items():
            v1.get_variable(name, initializer=tf.constant(value), trainable=False)
        self.step = None if step is None else _step(step, step_dtype, use_resource)
        self.placeholders = running._placeholders(problem)
        first = tuple(only or self.variables)
        rest = tuple(name for name in self.variables if name not in first)
        self.optimizer = make(self.step)
        self._trained_by_first = first
        updates = []
        with scope():
            updates.append(self._apply(self.optimizer, first, self.step))
            if other is not None:
                updates.append(self._apply(other(self.step), rest, None))
        self.train_op = tf.group(*updates)

    def _make_variables(self, use_resource, parts):
        partitioner = v1.fixed_size_partitioner(parts) if parts else None
        return {
            name: v1.get_variable(
                name,
                value.shape,
                tf.as_dtype(value.dtype),
                v1.constant_initializer(value) if not parts else _slices_of(value),
                use_resource=use_resource,
                partitioner=partitioner,
            )
            for name, value in self.problem.values.items()
        }

    def _apply(self, optimizer, names, step):
        chosen = {name: self.variables[name] for name in names}
        if not any(_is_in_parts(variable) for variable in chosen.values()):
            pairs = running._as_gradients(self.problem, self.placeholders, chosen)
            return optimizer.apply_gradients(pairs, step)
        total = 0.0
        for name, variable in chosen.items():
            gradient = self.placeholders[name]
            if name in self.problem.sparse:
                values, ids = gradient
                read = v1.nn.embedding_lookup(variable, ids, partition_strategy="div")
                total += tf.reduce_sum(read * values)
            else:
                total += tf.reduce_sum(tf.convert_to_tensor(variable) * gradient)
        return optimizer.minimize(total, step, [p for v in chosen.values() for p in _parts(v)])

    def start(self):
        """Initializes all variables."""
        self.session.run(v1.global_variables_initializer())

    @property
    def session(self):
        return v1.get_default_session()

    def train(self, first, last):
        """Runs the steps from `first` to `last` - 1; returns the variables after each step."""
        after = []
        for gradients in self.problem.gradients[first:last]:
            self.session.run(self.train_op, running._feed(self.placeholders, gradients))
            after.append({name: self._value(v) for name, v in self.variables.items()})
        return after

    def save(self, path, var_list=None, **options):
        """Writes a checkpoint with TensorFlow's Saver and returns the checkpoint's path."""
        saver = v1.train.Saver(var_list, **options)
        return saver.save(self.session, str(path), write_meta_graph=False)

    def restore(self, path, var_list=None):
        """Restores the variables in `var_list` (None for all) with TensorFlow's Saver."""
        v1.train.Saver(var_list).restore(self.session, str(path))

    def by_name(self):
        """Returns the graph's variables by name; each partition is a separate variable."""
        return {variable.op.name: variable for variable in v1.global_variables()}

    def put(self, state):
        """Assigns the values of a `state` to the variables, without a checkpoint."""
        for variable in v1.global_variables():
            variable.load(state[self._key_of(variable)], self.session)

    def _key_of(self, variable):
        """Returns the key in a `state` for a variable of the graph."""
        for name, trained in self.variables.items():
            if variable is trained:
                return (name,)
            for slot in self.optimizer.get_slot_names():
                if variable is self.optimizer.get_slot(trained, slot):
                    return (name, slot)
        return ("step",) if variable is self.step else ("shared", variable.op.name)

    def state(self):
        """Returns the state of `optimizer` and of the variables that it trains."""
        state = {(name,): self._value(self.variables[name]) for name in self._trained_by_first}
        for slot in self.optimizer.get_slot_names():
            for name in self._trained_by_first:
                parts = [self.optimizer.get_slot(p, slot) for p in _parts(self.variables[name])]
                state[name, slot] = self._joined(parts)
        for (name, _), variable in sorted(self.optimizer._non_slot_dict.items(), key=str):
            state["shared", name] = self.session.run(variable)
        if self.step is not None:
            state[("step",)] = np.int64(self.session.run(self.step))
        return state

    def _value(self, variable):
        return self._joined(_parts(variable))

    def _joined(self, parts):
        values = self.session.run(parts)
        return values[0] if len(values) == 1 else np.concatenate(values)


def _step(name, dtype, use_resource):
    return v1.get_variable(
        name,
        [],
        tf.as_dtype(dtype),
        v1.zeros_initializer(tf.as_dtype(dtype)),
        trainable=False,
        use_resource=use_resource,
        collections=[v1.GraphKeys.GLOBAL_VARIABLES, v1.GraphKeys.GLOBAL_STEP],
    )


def _slices_of(value):
    def initializer(shape, dtype=None, partition_info=None):
        offset = partition_info.var_offset
        return tf.constant(value[tuple(slice(o, o + n) for o, n in zip(offset, shape))])

    return initializer


def _is_in_parts(variable):
    return hasattr(variable, "as_tensor")


def _parts(variable):
    return list(variable) if _is_in_parts(variable) else [variable]


@contextlib.contextmanager
def v1_training(*args, config=None, **options):
    """Makes a `V1Training` in a new graph and Session, for a `with` block."""
    with tf.Graph().as_default(), v1.Session(config=config):
        training = V1Training(*args, **options)
        training.start()
        yield training


def trained_in_v1(path, *args, saver=None, **options):
    """Trains for `BEFORE` steps in a Session and saves a checkpoint; returns the checkpoint's path.

    Args:
      path: the prefix of the checkpoint.
      *args: arguments of `V1Training`.
      saver: arguments of the Saver.
      **options: arguments of `V1Training`.
    """
    with v1_training(*args, **options) as training:
        training.train(0, BEFORE)
        return training.save(path, **(saver or {}))


def continued_in_v1(path, *args, **options):
    """Restores a checkpoint in a new Session and trains for `AFTER` steps.

    Returns:
      The restored state, the values after each step, and the final state.
    """
    with v1_training(*args, **options) as training:
        training.restore(path)
        restored = training.state()
        return restored, training.train(BEFORE, BEFORE + AFTER), training.state()


def continued_from(state, *args, **options):
    """Trains for `AFTER` steps in a new Session that starts from a `state`.

    Returns:
      The state at the start, the values after each step, and the final state.
    """
    with v1_training(*args, **options) as training:
        training.put(state)
        return state, training.train(BEFORE, BEFORE + AFTER), training.state()


class KerasTraining:
    """Trains a problem's variables in Keras with a bridged optimizer.

    Args:
      problem: the `Problem`.
      make: a function that returns the v1 optimizer; it is called with None.
      api: the argument `api` of `to_keras`.
      variables: the variables by name; None to create them.
      start: a factor; the variables start with the problem's values times this factor.
      **arguments: further arguments of `to_keras`.
    """

    def __init__(self, problem, make, api, variables=None, start=0, **arguments):
        self.problem = problem
        self.optimizer = to_keras(make(None), api=api, **arguments)
        self.variables = variables or keras_variables(problem, api, start)
        self._in_function = None

    def train(self, first, last, way="function"):
        """Runs the steps from `first` to `last` - 1; returns the variables after each step."""
        if self._in_function is None:
            signature = [running.signature(self.problem)]
            self._in_function = training_function(self._one_step, signature)
        step = self._one_step if way == "eager" else self._in_function
        after = []
        for gradients in self.problem.gradients[first:last]:
            step(tf.nest.map_structure(tf.constant, running._plain(gradients)))
            after.append({name: variable.numpy() for name, variable in self.variables.items()})
        return after

    def _one_step(self, tensors):
        pairs = running._as_gradients(self.problem, tensors, self.variables)
        self.optimizer.apply_gradients(pairs)

    def state(self):
        """Returns the variables and the optimizer's state."""
        state = {(name,): variable.numpy() for name, variable in self.variables.items()}
        for key, slot in keras_ways._slots(self.optimizer, self.variables).items():
            state[key] = slot.numpy()
        for name, variable in self.optimizer.non_slots.items():
            state["shared", name] = variable.numpy()
        state[("step",)] = np.int64(self.optimizer.iterations.numpy())
        return state

    def arrays(self):
        """Returns copies of all current values, for a later comparison."""
        weights = [versions.tf_variable(weight) for weight in self.optimizer.weights]
        kept = list(self.variables.values()) + weights
        return [np.array(variable.numpy()) for variable in kept]


def keras_variables(problem, api, start=0):
    """Makes a problem's variables; returns them by name."""
    make = tf.Variable if api == "optimizer_v2" else keras_ways.keras_variable
    return {
        name: make(value * value.dtype.type(start), name=name, dtype=value.dtype)
        for name, value in problem.values.items()
    }


def tensors(path):
    """Returns the arrays that TensorFlow reads from a checkpoint, by name."""
    reader = tf.train.load_checkpoint(str(path))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def write_tensors(path, arrays):
    """Writes a dict of arrays to a Saver checkpoint; returns the checkpoint's path."""
    with tf.Graph().as_default(), v1.Session() as sess:
        for name, array in arrays.items():
            constant = v1.constant_initializer(array)
            v1.get_variable(name, array.shape, tf.as_dtype(array.dtype), constant)
        sess.run(v1.global_variables_initializer())
        return v1.train.Saver().save(sess, str(path), write_meta_graph=False)


def assert_equal(actual, expected, what=""):
    """Asserts that two dicts of arrays have equal keys, dtypes, shapes and values."""
    assert set(actual) == set(expected), (what, set(actual) ^ set(expected))
    for key, value in expected.items():
        one, other = np.asarray(actual[key]), np.asarray(value)
        assert (one.dtype, one.shape) == (other.dtype, other.shape), (what, key)
        if not np.array_equal(one, other):
            gap = np.max(np.abs(one.astype(np.float64) - other.astype(np.float64)))
            raise AssertionError(f"{what} {key}: largest difference {gap:g}")


def assert_same_steps(actual, expected):
    """Asserts that two trainings have equal values after each step, and change each variable."""
    assert len(actual) == len(expected) == AFTER
    for number, (one, other) in enumerate(zip(actual, expected)):
        assert_equal(one, other, f"after step {number}")
    for name in expected[0]:
        assert not np.array_equal(expected[0][name], expected[-1][name]), name


def same(one, other):
    """Returns whether two lists of arrays are equal bit for bit."""
    assert len(one) == len(other)
    return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in zip(one, other))
