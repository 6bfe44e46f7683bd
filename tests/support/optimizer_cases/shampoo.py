"""The NumPy reference (oracle) and the test cases of Shampoo."""

import functools

import numpy as np

import legacy_opt
from tests.support import oracles
from tests.support.optimizer_cases.case import Case, Original


class Shampoo(oracles.Oracle):
    """Shampoo, with one preconditioner for each axis.

    The preconditioner is a matrix, or only its diagonal if the axis is longer than
    `max_matrix_size`. Powers of matrices are computed in float64.
    """

    def __init__(
        self,
        value,
        name,
        learning_rate,
        epsilon,
        max_matrix_size=768,
        gbar_decay=0.0,
        gbar_weight=1.0,
        mat_gbar_decay=1.0,
        mat_gbar_weight=1.0,
        svd_interval=1,
        precond_update_interval=1,
        alpha=0.5,
        use_iterative_root=False,
    ):
        super().__init__(value, name)
        self.lr, self.epsilon, self.alpha = learning_rate, epsilon, alpha
        self.longest = max_matrix_size
        self.decay, self.weight = gbar_decay, gbar_weight
        self.mat_decay, self.mat_weight = mat_gbar_decay, mat_gbar_weight
        self.root_interval, self.interval = svd_interval, precond_update_interval
        self.power = power_by_iteration if use_iterative_root else power_by_eigenvalues
        self.shape = self.value.shape or (1,)
        self.wide = np.float64 if self.cast == np.float64 else np.float32
        self.slots = {"gbar": np.zeros_like(self.value)}
        for axis, length in enumerate(self.shape):
            matrix = length <= self.longest
            if matrix and svd_interval != 1:
                self.slots[f"H_{axis}"] = np.eye(length, dtype=self.wide)
            size = (length, length) if matrix else (length,)
            self.slots[f"Gbar_{axis}"] = np.zeros(size, self.wide)

    def apply(self, gradient, step):
        if hasattr(gradient, "ids") and (self.shape[0] <= self.longest or self.decay != 0):
            values, rows = oracles.sum_duplicates(*gradient)
            gradient = np.zeros_like(self.value)
            gradient[rows] = values
        super().apply(gradient, step)

    def update(self, g, at, step):
        g = np.reshape(g, self.shape if at is Ellipsis else g.shape).astype(self.wide)
        direction = g
        if at is Ellipsis:
            gbar = self.slots["gbar"]
            direction = self.decay * gbar.reshape(self.shape).astype(self.wide) + self.weight * g
            if self.decay != 0:
                gbar[...] = direction.reshape(gbar.shape)
        for axis, length in enumerate(self.shape):
            width = g.size // max(g.shape[axis], 1)  # reshape cannot infer -1 if g is empty
            slices = np.moveaxis(g, axis, 0).reshape(g.shape[axis], width)
            if length > self.longest:
                factor = self.diagonal_power(axis, slices, at)
                direction = np.moveaxis(np.moveaxis(direction, axis, -1) * factor, -1, axis)
            else:
                factor = self.matrix_power(axis, slices, step + 1)
                contracted = np.tensordot(direction, factor, axes=(axis, 0))
                direction = np.moveaxis(contracted, -1, axis)
        shape = self.value.shape if at is Ellipsis else g.shape
        self.value[at] -= (self.lr * direction).reshape(shape).astype(self.cast)

    def diagonal_power(self, axis, slices, at):
        total = self.slots[f"Gbar_{axis}"]
        here = at if axis == 0 else Ellipsis
        length = self.shape[axis] if at is Ellipsis and len(self.shape) > 1 else 1
        added = self.mat_weight * np.sum(slices * slices, axis=1) / length
        total[here] = self.mat_decay * total[here] + added
        power = np.zeros_like(total[here])
        positive = total[here] > 0
        power[positive] = total[here][positive] ** (-self.alpha / len(self.shape))
        return power

    def matrix_power(self, axis, slices, time):
        total, length = self.slots[f"Gbar_{axis}"], self.shape[axis]
        if time % self.interval == 0:
            weight = self.mat_weight * self.interval
            total[...] = self.mat_decay * total + weight * (slices @ slices.T)
        kept = self.slots.get(f"H_{axis}")
        if kept is not None and time % self.root_interval != 0:
            return kept
        damped = total.astype(np.float64) / length + self.epsilon * np.eye(length)
        power = self.power(damped, -self.alpha / len(self.shape)).astype(self.wide)
        if kept is not None:
            kept[...] = power
        return power


def power_by_eigenvalues(matrix, exponent):
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * values**exponent) @ vectors.T


def power_by_iteration(matrix, exponent):
    """Computes matrix**exponent from the matrix' square root, by Newton's iteration.

    `nearly_one` converges to the identity matrix. The iteration ends when no element of it differs
    from the identity matrix by more than 1e-6.
    """
    root = power_by_eigenvalues(matrix, 0.5)
    if len(root) == 1:
        return root ** (2 * exponent)
    p, one = int(round(-1 / (2 * exponent))), np.eye(len(root))
    scale = (1 + p) / (2 * np.linalg.norm(root))
    nearly_one, power = root * scale, one * scale ** (1 / p)
    while np.abs(nearly_one - one).max() > 1e-6:
        factor = ((p + 1) * one - nearly_one) / p
        nearly_one = np.linalg.matrix_power(factor, p) @ nearly_one
        power = power @ factor
    return power


# The scalar variable is left out, because tf.contrib.opt's Shampoo divides by the rank.
_TRAINED = ("matrix", "vector", "table", "bias", "cube")


def _shampoo(ulps, ref_only=False, variables=_TRAINED, **options):
    arguments = dict({"learning_rate": 0.1, "epsilon": 0.1}, **options)
    original = Original("ShampooOptimizer", variables, ref_only, ("float32",))
    oracle = functools.partial(Shampoo, **arguments)
    return Case(legacy_opt.ShampooOptimizer, arguments, oracle, ulps, original)


# 64 ulps (units in the last place), because the rounding errors of a matrix are a few ulps of its
# largest eigenvalue, but a negative power depends most on the smallest eigenvalue. With
# epsilon=0.1, the errors of the power are tens of times as large as those of the matrix.
CASES = {
    "Shampoo": _shampoo(64),
    "Shampoo averages": _shampoo(
        64, gbar_decay=0.9, gbar_weight=0.25, mat_gbar_decay=0.9, mat_gbar_weight=0.5
    ),
    # ref_only=True, because with resource variables tf.contrib.opt's Shampoo may read rows of the
    # diagonal before it has added the squared gradient to these rows.
    "Shampoo max_matrix_size": _shampoo(64, ref_only=True, max_matrix_size=4),
    "Shampoo svd_interval, use_iterative_root": _shampoo(
        64, svd_interval=5, precond_update_interval=3, use_iterative_root=True
    ),
}
