"""What every optimizer class has to do, tried with one case of each.

Wrong arguments and gradients, odd shapes, other dtypes, learning rates of all kinds, several
graphs, partitioned variables, object checkpoints.
"""

import inspect

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from tests import problems, running
from tests.cases import CASES, one_of_each_class
from tests.problems import Problem, Rows
from tests.test_every_optimizer import assert_close, run_oracles

v1 = tf.compat.v1
CLASSES = one_of_each_class()
EVERY_CLASS = pytest.mark.parametrize("name", CLASSES)
COUNTED_CLASSES = pytest.mark.parametrize("number, name", list(enumerate(CLASSES)))
SESSIONS = ("session-ref", "session-resource")


def in_turn(options, number, full):
    """Returns one of the options; all of them in the full run."""
    return options if full else [options[number % len(options)]]


def make(name, step=None, **overrides):
    """Returns a new optimizer, which stays silent about steps that nobody advances."""
    optimizer = CASES[name].make(step, **overrides)
    optimizer.global_step_is_advanced = True
    return optimizer


# Arguments.

# None is one of their values: the graph's own step, no clipping.
MAY_BE_NONE = ("clipping_threshold", "global_step")


def arguments_of(name):
    """Returns the constructor's arguments, and what the case or else the default gives for each."""
    signature = inspect.signature(CASES[name].optimizer.__init__).parameters
    return {
        key: CASES[name].arguments.get(key, parameter.default)
        for key, parameter in signature.items()
        if key != "self" and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    }


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


@EVERY_CLASS
def test_numbers_are_checked_by_the_constructor(name):
    signature = inspect.signature(CASES[name].optimizer.__init__).parameters
    numbers = [key for key, value in arguments_of(name).items() if is_number(value)]
    if is_checked_by_others(name):
        numbers = ["weight_decay"]
    assert numbers
    for key in numbers:
        wrong = [float("nan"), float("inf"), "0.1", [0.5], True]
        if signature[key].default is not None and key not in MAY_BE_NONE:
            wrong.append(None)
        for value in wrong:
            with pytest.raises((TypeError, ValueError), match=key):
                CASES[name].optimizer(**dict(required(name), **{key: value}))
                pytest.fail("%s=%r was taken" % (key, value))


def required(name):
    """Returns arguments with which a constructor can be called."""
    arguments = dict(CASES[name].arguments)
    if "global_step" in arguments_of(name):
        arguments["global_step"] = None
    return arguments


def is_checked_by_others(name):
    """Whether the class extends one that is not of this package."""
    base = getattr(CASES[name].optimizer, "base_optimizer", None)
    return base is not None and base.__module__.split(".")[0] != "legacy_opt"


@EVERY_CLASS
def test_flags_and_names_are_checked_by_the_constructor(name):
    arguments = arguments_of(name)
    if is_checked_by_others(name):
        return
    flags = [key for key, value in arguments.items() if isinstance(value, bool)]
    wrong = dict.fromkeys(flags, ("yes", 1, None))
    if "name" in arguments:
        wrong["name"] = ("", 3, None)
    for key, values in wrong.items():
        for value in values:
            with pytest.raises((TypeError, ValueError), match=key):
                CASES[name].optimizer(**dict(required(name), **{key: value}))
                pytest.fail("%s=%r was taken" % (key, value))


# Gradients.


@COUNTED_CLASSES
def test_gradients_that_do_not_fit_fail_while_the_graph_is_built(number, name, full):
    for use_resource in in_turn([False, True], number, full):
        with tf.Graph().as_default():
            w = v1.get_variable("scope/w", [4, 3], use_resource=use_resource)
            optimizer = make(name, v1.train.get_or_create_global_step())
            for gradient, error in [
                (tf.zeros([4, 3], tf.float64), TypeError),
                (tf.zeros([3, 4]), ValueError),
                (tf.zeros([12]), ValueError),
                (tf.IndexedSlices(tf.zeros([2, 4]), [0, 1]), ValueError),
                (tf.IndexedSlices(tf.zeros([2, 3], tf.float16), [0, 1]), TypeError),
            ]:
                with pytest.raises(error, match="scope/w"):
                    optimizer.apply_gradients([(gradient, w)])
                    pytest.fail("%r was taken" % gradient)


@COUNTED_CLASSES
def test_a_step_that_fails_changes_nothing(number, name, full):
    """Ids that do not exist, gradients that cannot be computed, shapes that turn out wrong."""
    for use_resource in in_turn([True, False], number, full):
        with tf.Graph().as_default():
            tables = [
                v1.get_variable(key, initializer=tf.ones([4, 2]), use_resource=use_resource)
                for key in ("dense", "table")
            ]
            step = v1.train.get_or_create_global_step()
            dense, rows = v1.placeholder(tf.float32), v1.placeholder(tf.float32, [None, 2])
            ids = v1.placeholder(tf.int64, [None])
            sparse = tf.IndexedSlices(v1.check_numerics(rows, "of rows"), ids)
            optimizer = make(name, step)
            pairs = [(v1.check_numerics(dense, "dense"), tables[0]), (sparse, tables[1])]
            apart = [optimizer.apply_gradients([pair], global_step=step) for pair in pairs]
            state = v1.global_variables()
            right, two, nan = np.ones([4, 2]), np.ones([2, 2]), float("nan")
            # TensorFlow's sparse kernel for Momentum finds a wrong id where it gets to it.
            wrong = 1 if isinstance(optimizer, legacy_opt.LARSOptimizer) else 2
            with v1.Session() as sess:
                sess.run(v1.global_variables_initializer())
                sess.run(apart[0], {dense: right})
                sess.run(apart[1], {rows: two, ids: [3, 3]})
                before = sess.run(state)
                for train_op, feed in [
                    (apart[1], {rows: two[:wrong], ids: [1, 4][-wrong:]}),
                    (apart[1], {rows: two, ids: [-1, 1]}),
                    (apart[1], {rows: two * nan, ids: [0, 1]}),
                    (apart[0], {dense: right * nan}),
                    (apart[0], {dense: 1.0}),
                    (apart[0], {dense: np.ones([4, 1])}),
                ]:
                    with pytest.raises(tf.errors.InvalidArgumentError):
                        sess.run(train_op, feed)
                    for variable, one, other in zip(state, before, sess.run(state)):
                        np.testing.assert_array_equal(one, other, err_msg=variable.op.name)


# Shapes and dtypes.


def odd_problem(dtype="float32", steps=4):
    """Variables without elements, with one, of ranks 0 to 4; gradients without rows."""
    random = np.random.RandomState(1)
    cast = problems.numpy_dtype(dtype)
    dense = {
        "scalar": (),
        "empty": (0,),
        "single": (1,),
        "one_by_one": (1, 1),
        "no_rows": (0, 3),
        "no_columns": (3, 0),
        "block": (2, 1, 3),
        "rank_4": (3, 1, 2, 1),
    }
    tables = {"row": (1, 3), "table": (5, 1), "cube": (3, 2, 1)}

    def draw(*shape):
        return np.asarray(random.randn(*shape)).astype(cast)

    gradients = []
    for number in range(steps):
        step = {key: draw(*shape) for key, shape in dense.items()}
        for key, shape in tables.items():
            ids = random.randint(0, shape[0], size=[1, 0, 3, 5][number % 4])
            step[key] = Rows(draw(len(ids), *shape[1:]), ids.astype(np.int64))
        gradients.append(step)
    values = {key: draw(*shape) for key, shape in {**dense, **tables}.items()}
    return Problem(values, gradients, tuple(tables), dtype)


@COUNTED_CLASSES
def test_odd_shapes(number, name, full):
    problem = odd_problem()
    expected = run_oracles(name, problem)
    for way in in_turn(list(running.WAYS), number, full):
        trace = running.WAYS[way](problem, CASES[name].make)
        assert_close(trace, *expected, CASES[name].ulps, "float32")


@COUNTED_CLASSES
def test_shapes_that_nobody_knows_before_the_graph_runs(number, name, full):
    problem = problems.everything(steps=3)
    for use_resource in in_turn([False, True], number, full):
        known = running.session(problem, CASES[name].make, use_resource)
        if isinstance(make(name), NEED_SHAPES):
            with pytest.raises(ValueError, match="shape of variable 'matrix:0' is unknown"):
                session_of_unknown_shapes(problem, CASES[name].make, use_resource)
            continue
        unknown = session_of_unknown_shapes(problem, CASES[name].make, use_resource)
        for one, other in zip(unknown, known.steps):
            for key, value in other.items():
                # Without shapes the graph is not rewritten in the same way.
                np.testing.assert_allclose(one[key], value, 1e-5, 1e-6, err_msg=key)


# They choose the shapes of their slots by the rank of the variable.
NEED_SHAPES = (legacy_opt.AdafactorOptimizer, legacy_opt.ShampooOptimizer)


def session_of_unknown_shapes(problem, make_optimizer, use_resource):
    """Runs variables and gradients of unknown shape; returns the values after each step."""
    with tf.Graph().as_default():
        step = running._global_step("int64", use_resource)
        variables, placeholders, pairs = {}, {}, []
        for key, value in problem.values.items():
            initial = v1.placeholder_with_default(tf.constant(value), None)
            variables[key] = v1.get_variable(
                key, initializer=initial, validate_shape=False, use_resource=use_resource
            )
            placeholders[key] = gradient = v1.placeholder(value.dtype)
            if key in problem.sparse:
                placeholders[key] = (gradient, v1.placeholder(tf.int64, [None]))
                gradient = tf.IndexedSlices(*placeholders[key])
            pairs.append((gradient, variables[key]))
        optimizer = make_optimizer(step)
        train_op = optimizer.apply_gradients(pairs, global_step=step)
        trained = [step] + list(variables.values())
        others = [variable for variable in v1.global_variables() if variable not in trained]
        values = []
        with v1.Session() as sess:
            sess.run([variable.initializer for variable in trained])
            sess.run([variable.initializer for variable in others])
            for gradients in problem.gradients:
                sess.run(train_op, running._feed(placeholders, gradients))
                values.append(sess.run(variables))
        return values


def with_int32_ids(problem):
    gradients = [
        {
            key: Rows(gradient.values, gradient.ids.astype(np.int32))
            if key in problem.sparse
            else gradient
            for key, gradient in step.items()
        }
        for step in problem.gradients
    ]
    return problem._replace(gradients=gradients)


@EVERY_CLASS
def test_ids_and_the_global_step_may_be_int32(name):
    problem = problems.everything(only=("vector", "table", "bias"), steps=6)
    results = []
    for step_dtype, one in [("int64", problem), ("int32", with_int32_ids(problem))]:
        variables = {key: tf.Variable(value, name=key) for key, value in one.values.items()}
        step = tf.Variable(tf.constant(0, step_dtype), trainable=False)
        optimizer = CASES[name].make(step)
        for gradients in one.gradients:
            tensors = tf.nest.map_structure(tf.constant, running._plain(gradients))
            pairs = running._as_gradients(one, tensors, variables)
            optimizer.apply_gradients(pairs, global_step=step)
        assert int(step.numpy()) == one.steps
        results.append([variable.numpy() for variable in variables.values()])
    for one, other in zip(*results):
        np.testing.assert_array_equal(one, other)


@COUNTED_CLASSES
def test_bfloat16(number, name, full):
    """8 bits for a number: near what float32 makes of the same, and the same in all ways."""
    problem = problems.everything("bfloat16", steps=3)
    ways = ["session-ref", "session-resource", "eager", "function"]
    traces = {
        way: running.WAYS[way](problem, CASES[name].make)
        for way in (ways if full else [ways[number % 4], ways[(number + 1) % 4]])
    }
    first, *others = traces
    for way in others:
        running.assert_same(traces[way], traces[first], way)
    wide = problem._replace(
        values={key: value.astype("f") for key, value in problem.values.items()},
        gradients=[
            {
                key: Rows(gradient.values.astype("f"), gradient.ids)
                if key in problem.sparse
                else gradient.astype("f")
                for key, gradient in step.items()
            }
            for step in problem.gradients
        ],
        dtype="float32",
    )
    expected = running.session_resource(wide, CASES[name].make)
    running.assert_steps_close(
        [{k: v.astype("f") for k, v in step.items()} for step in traces[first].steps],
        expected.steps,
        rtol=0.1,
        atol=0.1,
    )


# Learning rates.

RATES = {
    "tensor": tf.constant,
    "variable": lambda rate: v1.get_variable("rate", initializer=rate, trainable=False),
    "callable": lambda rate: lambda: rate,
    "callable that returns a tensor": lambda rate: lambda: tf.constant(rate),
}


@COUNTED_CLASSES
def test_a_learning_rate_of_any_kind_gives_the_bits_of_the_number(number, name, full):
    if CASES[name].arguments.get("learning_rate") is None:
        assert "learning_rate" in arguments_of(name)
        return
    problem = problems.everything(only=("matrix", "table"), steps=5)
    rate = CASES[name].arguments["learning_rate"]
    for way in in_turn(SESSIONS, number, full):
        expected = running.WAYS[way](problem, CASES[name].make)
        for kind, rate_of in RATES.items():

            def with_rate(step, rate_of=rate_of):
                return CASES[name].make(step, learning_rate=rate_of(rate))

            running.assert_same(running.WAYS[way](problem, with_rate), expected, kind)


# Graphs.


@EVERY_CLASS
def test_one_optimizer_in_several_graphs(name):
    optimizer = make(name)
    results = []
    for _ in range(2):
        with tf.Graph().as_default():
            w = v1.get_variable("w", initializer=[[1.0, 2.0]])
            step = v1.train.get_or_create_global_step()
            gradient = tf.constant([[1.0, -0.5]])
            train_op = optimizer.apply_gradients([(gradient, w)], global_step=step)
            with v1.Session() as sess:
                sess.run(v1.global_variables_initializer())
                for _ in range(3):
                    sess.run(train_op)
                results.append(sess.run(v1.global_variables()))
            assert {variable.graph for variable in optimizer.variables()} == {w.graph}
    assert len(results[0]) == len(results[1])
    for one, other in zip(*results):
        np.testing.assert_array_equal(one, other)


@EVERY_CLASS
def test_minimising_twice_shares_the_slots(name):
    problem = problems.everything(only=("matrix", "table"), steps=6)
    with tf.Graph().as_default():
        variables = running._variables(problem, False)
        step = running._global_step("int64", False)
        placeholders = running._placeholders(problem)
        optimizer = CASES[name].make(step)
        pairs = running._as_gradients(problem, placeholders, variables)
        train_ops = []
        for _ in range(2):
            train_ops.append(optimizer.apply_gradients(pairs, global_step=step))
            train_ops.append(len(v1.global_variables()))
        first, count, second, count_again = train_ops
        assert count == count_again
        with v1.Session() as sess:
            sess.run(v1.global_variables_initializer())
            for number, gradients in enumerate(problem.gradients):
                feed = running._feed(placeholders, gradients)
                sess.run(second if number % 2 else first, feed)
            last = sess.run(variables)
    expected = running.session_ref(problem, CASES[name].make)
    for key, value in expected.steps[-1].items():
        np.testing.assert_array_equal(last[key], value, err_msg=key)


# Checkpoints.


def of_whole_tensors(name):
    """Whether an update of a part depends on the whole."""
    return getattr(make(name), "whole_tensor", False)


@COUNTED_CLASSES
def test_partitioned_variables_and_their_checkpoint(number, name, full, tmp_path):
    """Parts train as the whole does, and a checkpoint of them goes on."""
    problem = problems.everything(only=("table", "bias", "cube"), steps=6)
    for use_resource in in_turn([False, True], number, full):
        whole, _ = train_in_parts(name, problem, None, use_resource, tmp_path)
        parts, path = train_in_parts(name, problem, 2, use_resource, tmp_path)
        if not of_whole_tensors(name):
            for key in problem.values:  # vector code rounds otherwise than the code for the rest
                np.testing.assert_allclose(whole[key], parts[key], 1e-6, 1e-6, err_msg=key)
        restored, _ = train_in_parts(name, problem, 2, use_resource, tmp_path, path)
        assert set(restored) == set(parts)
        for key, value in parts.items():
            np.testing.assert_array_equal(restored[key], value, err_msg=key)


def train_in_parts(name, problem, parts, use_resource, folder, path=None):
    """Trains, with a checkpoint half-way, or goes on from one.

    Returns:
      All variables by their names in a checkpoint, and the path of the one half-way.
    """
    partitioner = v1.fixed_size_partitioner(parts) if parts else None
    half = problem.steps // 2
    with tf.Graph().as_default():
        tables, ids, weights = {}, {}, {}
        for key, value in problem.values.items():
            initial = v1.constant_initializer(1.0)
            tables[key] = v1.get_variable(
                key,
                value.shape,
                None,
                initial,
                None,
                None,
                partitioner=partitioner,
                use_resource=use_resource,
            )
            ids[key] = v1.placeholder(tf.int64, [None])
            weights[key] = v1.placeholder(tf.float32, (None,) + value.shape[1:])
        rows = {
            key: v1.nn.embedding_lookup(tables[key], ids[key], partition_strategy="div")
            for key in tables
        }
        loss = tf.add_n([tf.reduce_sum(rows[key] * weights[key]) for key in tables])
        step = v1.train.get_or_create_global_step()
        train_op = CASES[name].make(step).minimize(loss, global_step=step)
        saver = v1.train.Saver()
        with v1.Session() as sess:
            sess.run(v1.global_variables_initializer())
            if path is not None:
                saver.restore(sess, path)
            for number, gradients in enumerate(problem.gradients):
                if path is not None and number < half:
                    continue
                feed = {ids[key]: gradients[key].ids for key in ids}
                feed.update({weights[key]: gradients[key].values for key in weights})
                sess.run(train_op, feed)
                if number + 1 == half:
                    path_half = saver.save(sess, str(folder / ("half%s" % parts)))
            last = saver.save(sess, str(folder / ("last%s" % parts)))
    reader = v1.train.NewCheckpointReader(last)
    values = {key: reader.get_tensor(key) for key in reader.get_variable_to_shape_map()}
    return values, (path or path_half)


class Eager:
    """An optimizer and its variables in eager code, and their object checkpoint."""

    def __init__(self, name, problem):
        self.problem = problem
        self.variables = {
            key: tf.Variable(value, name=key) for key, value in problem.values.items()
        }
        self.step = tf.Variable(0, dtype=tf.int64, trainable=False)
        self.optimizer = CASES[name].make(self.step)
        self.checkpoint = tf.train.Checkpoint(
            optimizer=self.optimizer, step=self.step, **self.variables
        )

    def train(self, first, last):
        for gradients in self.problem.gradients[first:last]:
            tensors = tf.nest.map_structure(tf.constant, running._plain(gradients))
            pairs = running._as_gradients(self.problem, tensors, self.variables)
            self.optimizer.apply_gradients(pairs, global_step=self.step)
        return self

    def state(self):
        slots = running.slots_of(self.optimizer, self.variables)
        return {k: variable.numpy() for k, variable in {**self.variables, **slots}.items()}


@COUNTED_CLASSES
def test_object_checkpoints_in_eager_code(number, name, full, tmp_path):
    problem = problems.everything(only=("matrix", "scalar", "table"), steps=6)
    unstopped = Eager(name, problem).train(0, 3)
    path = unstopped.checkpoint.save(str(tmp_path / "object"))
    expected = unstopped.train(3, 6).state()
    for steps_before in in_turn([0, 2], number, full):  # restored slots exist already, or not yet
        restored = Eager(name, problem).train(0, steps_before)
        restored.checkpoint.restore(path)
        state = restored.train(3, 6).state()
        assert set(state) == set(expected)
        for key, value in expected.items():
            np.testing.assert_array_equal(state[key], value, err_msg=str(key))
