"""Tests wrong arguments and gradients, unusual shapes, int32 ids and bfloat16 with every class.

Each optimizer class is tested with one case (a set of constructor arguments).
tests/optimizers/test_every_class_in_graphs.py tests graphs and checkpoints.
"""

import functools
import inspect

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from tests.support import ending_datasets, problems, running
from tests.support.cases import CASES
from tests.support.every_class import CLASSES, EVERY_CLASS, Eager, make
from tests.support.oracle_runs import assert_close, run_oracles
from tests.support.problems import Problem, Rows

v1 = tf.compat.v1


# Arguments.

# None is a valid value for these arguments: it means no clipping, or the graph's global step.
MAY_BE_NONE = ("clipping_threshold", "global_step")


def arguments_of(name):
    """Returns the constructor arguments by name: the case's value, or else the default value."""
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
        wrong = [float("nan"), float("inf"), "0.1", [0.5], True, 1j]
        wrong += [tf.constant([0.1]), tf.constant("0.1")]
        if signature[key].default is not None and key not in MAY_BE_NONE:
            wrong.append(None)
        for value in wrong:
            with pytest.raises((TypeError, ValueError), match=key):
                CASES[name].optimizer(**dict(required(name), **{key: value}))
                pytest.fail(f"{key}={value!r} was accepted")


def required(name):
    """Returns valid arguments for the constructor."""
    arguments = dict(CASES[name].arguments)
    if "global_step" in arguments_of(name):
        arguments["global_step"] = None
    return arguments


def is_checked_by_others(name):
    """Returns whether the class adds weight decay to one of TensorFlow's optimizers.

    TensorFlow's constructor then receives all arguments except `weight_decay`, and does not check
    every argument.
    """
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
                pytest.fail(f"{key}={value!r} was accepted")


# Gradients.


@pytest.mark.in_turn(name=CLASSES, use_resource=[False, True])
def test_gradients_of_a_wrong_shape_or_dtype_fail_while_the_graph_is_built(name, use_resource):
    with tf.Graph().as_default():
        w = v1.get_variable("scope/w", [4, 3], use_resource=use_resource)
        optimizer = make(name, v1.train.get_or_create_global_step())
        for gradient, error, words in [
            (tf.zeros([4, 3], tf.float64), TypeError, "'scope/w:0'.*float64.*float32"),
            (tf.zeros([3, 4]), ValueError, r"'scope/w:0'.*\(3, 4\).*\(4, 3\)"),
            (tf.zeros([12]), ValueError, "'scope/w:0'"),
            (tf.IndexedSlices(tf.zeros([2, 4]), [0, 1]), ValueError, "sparse.*'scope/w:0'"),
            (
                tf.IndexedSlices(tf.zeros([2, 3], tf.float16), [0, 1]),
                TypeError,
                "'scope/w:0'.*float16",
            ),
        ]:
            with pytest.raises(error, match=words):
                optimizer.apply_gradients([(gradient, w)])
                pytest.fail(f"{gradient!r} was accepted")


@pytest.mark.in_turn(name=CLASSES, use_resource=[True, False])
def test_a_step_that_fails_changes_nothing(name, use_resource):
    """Runs training steps with ids out of range, NaN in gradients, and wrong shapes."""
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
        # LARS uses TensorFlow's sparse Momentum kernel, which updates rows until it finds a wrong
        # id. Therefore LARS gets only a wrong id. Other classes get a right id before a wrong id.
        wrong = 1 if isinstance(optimizer, legacy_opt.LARSOptimizer) else 2
        with running.started() as sess:
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
                (apart[0], {dense: np.ones([8])}),
            ]:
                with pytest.raises(tf.errors.InvalidArgumentError):
                    sess.run(train_op, feed)
                for variable, one, other in zip(state, before, sess.run(state)):
                    np.testing.assert_array_equal(one, other, err_msg=variable.op.name)


@pytest.mark.in_turn(name=CLASSES, way=list(ending_datasets.WAYS))
def test_a_step_at_the_end_of_a_dataset_changes_nothing(name, way):
    problem = problems.everything(only=("matrix", "table"), steps=3)
    assert not ending_datasets.changed(way, problem, functools.partial(make, name))


# Shapes and dtypes.


def odd_problem(steps=3):
    """Returns a problem with ranks 0 to 4, an empty variable, and a step without gradient rows."""
    random = np.random.RandomState(1)
    dense = {"scalar": (), "one": (1,), "no_rows": (0, 3), "rank_4": (3, 1, 2, 1)}
    tables = {"row": (1, 3), "cube": (5, 1, 3)}

    def draw(*shape):
        return np.asarray(random.randn(*shape)).astype("f")

    gradients = []
    for number in range(steps):
        step = {key: draw(*shape) for key, shape in dense.items()}
        for key, shape in tables.items():
            ids = random.randint(0, shape[0], size=[1, 0, 3][number % 3])
            step[key] = Rows(draw(len(ids), *shape[1:]), ids.astype(np.int64))
        gradients.append(step)
    values = {key: draw(*shape) for key, shape in {**dense, **tables}.items()}
    return Problem(values, gradients, tuple(tables), "float32")


@pytest.mark.in_turn(name=CLASSES, way=list(running.WAYS))
def test_odd_shapes(name, way):
    problem = odd_problem()
    expected = run_oracles(name, problem)
    trace = running.WAYS[way](problem, CASES[name].make)
    assert_close(trace, *expected, CASES[name].ulps, "float32")


@pytest.mark.in_turn(name=CLASSES, use_resource=[False, True])
def test_shapes_that_are_known_at_run_time_only(name, use_resource):
    problem = problems.everything(only=("matrix", "vector", "table"), steps=3)
    if isinstance(make(name), NEED_SHAPES):
        with pytest.raises(ValueError, match="variable 'matrix:0'.* static shape"):
            session_of_unknown_shapes(problem, CASES[name].make, use_resource)
    else:
        trace = session_of_unknown_shapes(problem, CASES[name].make, use_resource)
        assert_close(trace, *run_oracles(name, problem), CASES[name].ulps, "float32")


# The slots of these classes depend on the rank of the variable.
NEED_SHAPES = (legacy_opt.AdafactorOptimizer, legacy_opt.ShampooOptimizer)


def session_of_unknown_shapes(problem, make_optimizer, use_resource):
    """Trains with variables and gradients whose shapes are unknown in the graph."""
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
            # The trained variables are initialized first, because TensorFlow's optimizers read
            # them to initialize slots.
            sess.run([variable.initializer for variable in trained])
            sess.run([variable.initializer for variable in others])
            for gradients in problem.gradients:
                sess.run(train_op, running._feed(placeholders, gradients))
                values.append(sess.run(variables))
            slots = running.slots_of(optimizer, variables)
            return running.Trace(values, {key: sess.run(slot) for key, slot in slots.items()})


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
    problem = with_int32_ids(problems.everything(only=("vector", "table", "bias"), steps=4))
    training = Eager(name, problem, tf.int32).train(0, problem.steps)
    assert int(training.step.numpy()) == problem.steps
    values, _ = run_oracles(name, problem)
    trace = running.Trace([training.values()], {})
    assert_close(trace, values[-1:], {}, CASES[name].ulps * problem.steps, "float32")


@pytest.mark.in_turn(name=CLASSES, way=["session-resource", "eager", "function"])
def test_bfloat16(name, way):
    """Checks that the results are close to float32 results, and equal to a Session's results."""
    problem = problems.everything("bfloat16", ("matrix", "scalar", "table"), steps=3)
    case = CASES[name]
    trace = running.WAYS[way](problem, case.make)
    # In some cases, graph rewriting groups products differently in a tf.function than in a Session.
    if not (case.regrouped and way == "function"):
        session = running.session(problem, case.make, config=running.config_of(way))
        running.assert_same(trace, session, way)
    expected, _ = run_oracles(name, in_float32(problem))
    steps = [{key: value.astype("f") for key, value in step.items()} for step in trace.steps]
    running.assert_steps_close(steps, expected, rtol=0.1, atol=0.1)


def in_float32(problem):
    def wide(gradient):
        if isinstance(gradient, Rows):
            return Rows(gradient.values.astype("f"), gradient.ids)
        return gradient.astype("f")

    values = {key: value.astype("f") for key, value in problem.values.items()}
    gradients = [{key: wide(g) for key, g in step.items()} for step in problem.gradients]
    return problem._replace(values=values, gradients=gradients, dtype="float32")
