"""Tests `ScipyOptimizerInterface` against SciPy and plain numbers, and the hook of its base."""

import sys

import numpy as np
import pytest
import tensorflow as tf
from scipy import optimize

import legacy_opt
from legacy_opt import ExternalOptimizerInterface, ScipyOptimizerInterface
from tests.support.running import REF_AND_RESOURCE

v1 = tf.compat.v1
TARGET = np.arange(6.0).reshape(3, 2) - 2.0


class Problem:
    """The squared distance of a table, read by `tf.gather`, to a fed multiple of `TARGET`."""

    def __init__(self, use_resource=False, partitioned=False):
        with v1.variable_scope("", use_resource=use_resource):
            options = {"partitioner": v1.fixed_size_partitioner(2)} if partitioned else {}
            self.table = v1.get_variable(
                "table", [3, 2], tf.float64, v1.ones_initializer(), **options
            )
            self.unused = v1.get_variable("unused", [], tf.float64, v1.ones_initializer())
        self.factor = v1.placeholder(tf.float64, [])
        whole = tf.convert_to_tensor(self.table)
        rows = whole if partitioned else tf.gather(self.table, [0, 1, 2])
        self.loss = tf.reduce_sum(tf.square(rows - self.factor * TARGET))
        self.sum, self.first = tf.reduce_sum(whole), whole[0, 0]
        self.fed = {self.factor: 2.0}


@pytest.fixture
def session():
    with tf.Graph().as_default(), v1.Session() as session:
        yield session


@REF_AND_RESOURCE
@pytest.mark.parametrize("partitioned", [False, True])
def test_it_computes_what_scipy_computes_without_tensorflow(use_resource, partitioned, session):
    problem = Problem(use_resource, partitioned)
    optimizer = ScipyOptimizerInterface(problem.loss, method="CG", options={"maxiter": 1})
    session.run(v1.global_variables_initializer())
    steps, losses = [], []
    optimizer.minimize(
        feed_dict=problem.fed,
        fetches=[problem.loss],
        step_callback=lambda x: steps.append(np.array(x)),
        loss_callback=losses.append,
    )

    def loss_and_gradient(x):
        distance = x[:6] - 2 * TARGET.ravel()
        return np.sum(distance**2), np.append(2 * distance, 0)

    expected = optimize.minimize(
        loss_and_gradient, np.ones(7), jac=True, method="CG", options={"maxiter": 1}
    )
    table, unused = session.run([tf.convert_to_tensor(problem.table), problem.unused])
    np.testing.assert_allclose(table.ravel(), expected.x[:6], rtol=1e-15)
    assert unused == 1
    assert len(losses) == expected.nfev and len(steps) == expected.nit == 1
    np.testing.assert_array_equal(steps[0][:6], table.ravel())


@REF_AND_RESOURCE
def test_bounds_of_all_shapes(use_resource, session):
    problem = Problem(use_resource)
    bounds = {problem.table: ([-1.0, None], [[9.0], [1.0], [np.inf]]), problem.unused: (2, 3)}
    optimizer = ScipyOptimizerInterface(problem.loss, var_to_bounds=bounds)
    session.run(v1.global_variables_initializer())
    optimizer.minimize(session, problem.fed)
    expected = [[-1, -2], [0, 1], [4, 6]]  # of [[-4, -2], [0, 2], [4, 6]]
    np.testing.assert_allclose(session.run(problem.table), expected, atol=1e-6)
    assert session.run(problem.unused) == 2


@REF_AND_RESOURCE
def test_constraints(use_resource, session):
    problem = Problem(use_resource)
    optimizer = ScipyOptimizerInterface(
        problem.loss,
        [problem.table],
        equalities=[problem.sum - 12.0],
        inequalities=[problem.first + 30.0],
        method="SLSQP",
        tol=1e-12,
    )
    session.run(v1.global_variables_initializer())
    optimizer.minimize(session, problem.fed)
    # The inequality has no effect. Each element grows by 1, because the sum of [[-4, -2], …] is 6.
    np.testing.assert_allclose(session.run(problem.table), 2 * TARGET + 1, atol=1e-6)
    session.run(problem.table.assign(np.zeros([3, 2])))
    optimizer = ScipyOptimizerInterface(
        problem.loss, inequalities=[problem.first + 1.0], method="SLSQP"
    )
    optimizer.minimize(session, problem.fed)
    np.testing.assert_allclose(session.run(problem.table)[0], [-1, -2], atol=1e-6)


class Hooked(ExternalOptimizerInterface):
    def _minimize(
        self,
        initial_val,
        loss_grad_func,
        equality_funcs,
        equality_grad_funcs,
        inequality_funcs,
        inequality_grad_funcs,
        packed_bounds,
        step_callback,
        optimizer_kwargs,
    ):
        vector = initial_val + 1
        self.seen = loss_grad_func(vector), packed_bounds, optimizer_kwargs
        self.constraints = [
            each[0](vector) for each in (equality_funcs, inequality_funcs, inequality_grad_funcs)
        ]
        step_callback(vector)
        if optimizer_kwargs.get("fails"):
            raise KeyboardInterrupt
        return vector


@REF_AND_RESOURCE
def test_the_hook_of_subclasses(use_resource, session):
    w = v1.get_variable("w", initializer=[1.0, 2.0], use_resource=use_resource)
    loss = tf.reduce_sum(tf.square(w))
    hooked = Hooked(loss, [w], [loss - 13.0], [w[1]], {w: (0.0, 9.0)}, rate=0.5)
    session.run(v1.global_variables_initializer())
    session.graph.finalize()
    options = v1.RunOptions(timeout_in_ms=10000)
    hooked.minimize(session, options=options)
    (value, gradient), bounds, arguments = hooked.seen
    assert (value, list(gradient), arguments) == (13.0, [4.0, 6.0], {"rate": 0.5})
    assert bounds == [(0, 9), (0, 9)]
    (equality,), (inequality,), (gradient,) = hooked.constraints
    assert (equality, inequality, list(gradient)) == (0.0, 3.0, [0.0, 1.0])
    np.testing.assert_array_equal(session.run(w), [2, 3])


def test_a_failure_gives_the_old_values_back(session):
    w = v1.get_variable("w", initializer=[1.0, 2.0])
    hooked = Hooked(tf.reduce_sum(w), [w], [w[0]], [w[0]], fails=True)
    session.run(v1.global_variables_initializer())
    with pytest.raises(KeyboardInterrupt):
        hooked.minimize(session)
    np.testing.assert_array_equal(session.run(w), [1, 2])


def test_wrong_arguments(session):
    w, b = v1.get_variable("w", initializer=1.0), v1.get_variable("b", [], tf.float64)
    loss = tf.square(w)
    with pytest.raises(ValueError, match="variables of one dtype, got .*b"):
        ScipyOptimizerInterface(loss)
    with pytest.raises(ValueError, match="var_to_bounds: a bound of 'w.*' is NaN"):
        ScipyOptimizerInterface(loss, [w], var_to_bounds={w: (np.nan, 1.0)})
    with pytest.raises(ValueError, match="var_to_bounds: each key must be one of the variables"):
        ScipyOptimizerInterface(loss, [w], var_to_bounds={b: (0, 1)})
    with pytest.raises(ValueError, match="sets 'bounds' itself .bounds from var_to_bounds"):
        ScipyOptimizerInterface(loss, [w], bounds=[(0, 1)])
    with pytest.raises(NotImplementedError, match="must define _minimize"):
        session.run(v1.global_variables_initializer())
        ExternalOptimizerInterface(loss, [w]).minimize(session)


def test_without_a_session_or_a_graph():
    with tf.Graph().as_default():
        w = v1.get_variable("w", initializer=1.0)
        optimizer = ScipyOptimizerInterface(tf.square(w))
        with pytest.raises(ValueError, match="no default Session: pass session="):
            optimizer.minimize()
    if tf.executing_eagerly():
        with pytest.raises(RuntimeError, match="needs a TF1 graph"):
            ScipyOptimizerInterface(tf.constant(1.0), [tf.Variable(1.0)])


def test_without_scipy(session, monkeypatch):
    w = v1.get_variable("w", initializer=1.0)
    optimizer = ScipyOptimizerInterface(tf.square(w))
    session.run(v1.global_variables_initializer())
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(ImportError, match=r'pip install "legacy-opt\[scipy\]"'):
        optimizer.minimize(session)


def test_importing_the_package_does_not_import_scipy():
    assert legacy_opt.ScipyOptimizerInterface.__module__ == "legacy_opt.training.scipy_interface"
    assert "optimize" not in vars(sys.modules["legacy_opt.training.scipy_interface"])
