"""Tests Shampoo: values computed by hand, slots, functions of the step, intervals, and errors."""

import functools
import warnings

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import GlobalStepWarning, ShampooOptimizer, versions
from legacy_opt.optimizers import shampoo_matrices
from tests.support import running
from tests.support.running import REF_AND_RESOURCE

v1 = tf.compat.v1


def trained(optimizer, gradients, start):
    """Applies gradients to one eager variable; returns the variable."""
    w = tf.Variable(start)
    for gradient in gradients:
        optimizer.apply_gradients([(gradient, w)])
    return w


@REF_AND_RESOURCE
def test_two_steps_by_hand(use_resource):
    # Learning rate 1, epsilon 0, w 0. The gradient g is diag(2, 8), so all matrices are diagonal.
    # The update is (L / 2)**(-1/4) g (R / 2)**(-1/4), where 2 is the length of each axis, and L and
    # R (slots Gbar_0 and Gbar_1) are the sums of g g^T and g^T g over all steps.
    # Step 1: L = R = diag(4, 64). L / 2 = diag(2, 32). So g is divided by diag(sqrt(2), sqrt(32)):
    #         2 / sqrt(2) = sqrt(2);  8 / sqrt(32) = sqrt(2)
    # Step 2: L / 2 = diag(4, 64):    2 / 2 = 1;  8 / 8 = 1
    with tf.Graph().as_default():
        w = v1.get_variable("w", initializer=tf.zeros([2, 2]), use_resource=use_resource)
        optimizer = ShampooOptimizer(epsilon=0.0)
        train_op = optimizer.apply_gradients([(tf.constant([[2.0, 0.0], [0.0, 8.0]]), w)])
        names = [variable.op.name for variable in v1.global_variables()]
        assert names == ["w", "w/Shampoo", "w/Shampoo_1", "w/Shampoo_2"]
        slots = [optimizer.get_slot(w, name) for name in ("gbar", "Gbar_0", "Gbar_1")]
        assert [slot.op.name for slot in slots] == names[1:]
        with running.started() as sess:
            sess.run(train_op)
            np.testing.assert_allclose(sess.run(w), -np.sqrt(2) * np.eye(2), atol=1e-6)
            sess.run(train_op)
            np.testing.assert_allclose(sess.run(w), -(np.sqrt(2) + 1) * np.eye(2), atol=1e-6)
            gbar, left, right = sess.run(slots)
    np.testing.assert_array_equal(gbar, np.zeros([2, 2]))  # not used with gbar_decay=0
    np.testing.assert_array_equal(left, np.diag([8.0, 128.0]))
    np.testing.assert_array_equal(right, left)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_slots_with_svd_interval(dtype):
    with tf.Graph().as_default():
        w = v1.get_variable("w", [2, 5], dtype)
        optimizer = ShampooOptimizer(max_matrix_size=3, svd_interval=2)
        optimizer._create_slots([w])
        found = [(slot.op.name, slot.shape.as_list()) for slot in v1.global_variables()[1:]]
        h = optimizer.get_slot(w, "H_0")
        wide = "float64" if dtype == "float64" else "float32"
        assert optimizer.get_slot(w, "gbar").dtype.base_dtype == dtype
        assert h.dtype.base_dtype == optimizer.get_slot(w, "Gbar_1").dtype.base_dtype == wide
        with running.started() as sess:
            np.testing.assert_array_equal(sess.run(h), np.eye(2))
    assert found == [
        ("w/Shampoo", [2, 5]),  # gbar
        ("w/Shampoo_1", [2, 2]),  # H_0
        ("w/Shampoo_2", [2, 2]),  # Gbar_0
        ("w/Shampoo_3", [5]),  # Gbar_1
    ]


def test_defaults_of_the_original():
    optimizer = ShampooOptimizer()
    kept = {key: getattr(optimizer, "_" + key) for key in ("gbar_decay", "gbar_weight", "alpha")}
    assert kept == {"gbar_decay": 0.0, "gbar_weight": 1.0, "alpha": 0.5}
    assert optimizer._max_matrix_size == 768 and optimizer._epsilon == 1e-4
    assert optimizer._learning_rate == 1.0 and optimizer.get_name() == "Shampoo"


def test_powers_are_computed_at_their_interval():
    # In the first update, the power H is the identity. In the second update, H is computed from the
    # sum of both squared gradients: [[4 + 4]] ** -0.5.
    step, w = tf.Variable(0, dtype=tf.int64), tf.Variable([0.0])
    optimizer = ShampooOptimizer(step, epsilon=0.0, svd_interval=2)
    for expected in [-2], [-2 - 2 / np.sqrt(8)]:
        optimizer.apply_gradients([(tf.constant([2.0]), w)], global_step=step)
        np.testing.assert_allclose(w.numpy(), expected, rtol=1e-6)


def test_functions_of_the_step():
    seen = []

    def rate(T):
        seen.append((float(T), T.dtype))
        return 1 / T

    step = tf.Variable(4, dtype=tf.int64)
    optimizer = ShampooOptimizer(step, learning_rate=rate, epsilon=0.0)
    w = tf.Variable([0.0])
    optimizer.apply_gradients([(tf.constant([3.0]), w)], global_step=step)
    assert seen == [(5.0, tf.float32)]
    np.testing.assert_allclose(w.numpy(), [-1 / 5], rtol=1e-6)  # 3 / sqrt(9) / 5


def test_a_scalar_is_a_vector_of_one_element():
    gradients = [1.0, -2.0, 4.0]
    scalar = trained(ShampooOptimizer(), [tf.constant(g) for g in gradients], 0.5)
    vector = trained(ShampooOptimizer(), [tf.constant([g]) for g in gradients], [0.5])
    assert scalar.shape == [] and scalar.numpy() == vector.numpy()[0]


@pytest.mark.parametrize("exponent", [-0.5, -0.25, -1 / 6])
@pytest.mark.parametrize(
    "power", [shampoo_matrices.power_by_svd, shampoo_matrices.power_by_iteration]
)
def test_powers_of_matrices(power, exponent):
    factor = np.random.RandomState(0).randn(4, 4)
    matrix = factor @ factor.T
    values, vectors = np.linalg.eigh(matrix + 0.1 * np.eye(4))
    expected = (vectors * values**exponent) @ vectors.T
    found = power(tf.constant(matrix), 4, exponent, 0.1).numpy()
    # The iterations of power_by_iteration stop at an error of 1e-6.
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def one_step(make, gradient):
    """Applies a gradient to a ref variable of zeros in a Session; returns the variable's value."""
    with tf.Graph().as_default():
        optimizer = make()
        w = v1.get_variable("w", initializer=tf.zeros_like(gradient), use_resource=False)
        train_op = optimizer.apply_gradients([(tf.constant(gradient), w)])
        return running.after(train_op, w)


def test_iterations_for_small_matrices_stop_too_early_as_in_the_original():
    # For a gradient of 0.5 I (I is the 25 x 25 identity), both matrices are 0.25 I / 25 = 0.01 I.
    # The exact power -1/4 of 0.01 I is 3.16 I, so the update should be 0.5 * 3.16 ** 2 = 5. But the
    # iterations for the square root return their start value 0.01 I / sqrt(0.05) instead of 0.1 I.
    # (0.05 = 0.01 * 5 is the Frobenius norm of 0.01 I.) The power -1/2 of this start value is
    # 4.73 I. So the update is more than twice as large as it should be.
    gradient = 0.5 * np.eye(25, dtype=np.float32)
    power = (0.01 / np.sqrt(0.05)) ** -0.5
    assert round(power, 2) == 4.73 and round(0.01**-0.25, 2) == 3.16
    for iterates, expected in (False, 5.0), (True, 0.5 * power**2):
        options = {"epsilon": 0.0, "use_iterative_root": iterates}
        step = -one_step(functools.partial(ShampooOptimizer, **options), gradient)
        np.testing.assert_allclose(step, expected * np.eye(25), rtol=1e-5, atol=1e-5)
    if versions.has_contrib():
        original = functools.partial(tf.contrib.opt.ShampooOptimizer, **options)
        np.testing.assert_array_equal(step, -one_step(original, gradient))


def test_rows_without_a_gradient_in_a_long_table_stay():
    rows = tf.IndexedSlices(tf.constant([[3.0], [4.0]]), tf.constant([2, 0]), tf.constant([4, 1]))
    w = trained(ShampooOptimizer(max_matrix_size=2), [rows], [[1.0]] * 4).numpy()
    assert w[1] == w[3] == 1 and w[0] < 1 and w[2] < 1


def test_only_arguments_that_depend_on_the_step_warn():
    w = tf.Variable([1.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error", GlobalStepWarning)
        ShampooOptimizer().apply_gradients([(tf.constant([1.0]), w)])
    for dependent in {"svd_interval": 2}, {"alpha": lambda T: 0.5}:
        with pytest.warns(GlobalStepWarning, match="constant global_step=0"):
            ShampooOptimizer(**dependent).apply_gradients([(tf.constant([1.0]), w)])


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"svd_interval": 0}, "svd_interval must be at least 1"),
        ({"precond_update_interval": 0.5}, "precond_update_interval must be at least 1"),
        ({"epsilon": -1e-4}, "epsilon must be at least 0"),
        ({"mat_gbar_decay": -0.1}, "mat_gbar_decay must be at least 0"),
        ({"mat_gbar_weight": -1}, "mat_gbar_weight must be at least 0"),
        ({"max_matrix_size": 0}, "max_matrix_size must be positive"),
    ],
)
def test_values_out_of_range(arguments, message):
    with pytest.raises(ValueError, match=message):
        ShampooOptimizer(**arguments)


def test_arguments_that_do_not_fit_a_variable():
    with pytest.raises(ValueError, match=r"rank / \(2 \* alpha\)"):
        trained(ShampooOptimizer(alpha=0.4, use_iterative_root=True), [tf.ones([2])], [1.0, 1.0])
    with pytest.raises(TypeError, match="alpha must be a number"):
        ShampooOptimizer(alpha=lambda T: 0.5, use_iterative_root=True)
    rows = tf.IndexedSlices(tf.ones([1]), tf.constant([1]), tf.constant([3]))
    with pytest.raises(ValueError, match="mat_gbar_decay=1.0, got 0.9"):
        trained(ShampooOptimizer(max_matrix_size=2, mat_gbar_decay=0.9), [rows], [1.0, 1.0, 1.0])
