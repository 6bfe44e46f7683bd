"""Tests native kernels in JAX on two devices, which are threads, in another process."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from legacy_opt import recorded
from legacy_opt.recorded.jax import JaxOptimizer, State
from legacy_opt.recorded.numpy import NumpyOptimizer
from legacy_opt.recorded.records import ROWS, RecordError, Scalar

RECORD = recorded.load("LAMBOptimizer")
LIMIT = dict(RECORD.hyperparameters, clip_norm=Scalar("float32", 1.5))
CLIPPED = RECORD._replace(clipping=ROWS, hyperparameters=LIMIT)
DRAW = np.random.RandomState(0)
HALVES, GRADIENTS = DRAW.randn(2, 40, 3).astype("f4"), DRAW.randn(3, 2, 40, 3).astype("f4")
OVER, SAME = PartitionSpec("x"), PartitionSpec()
STATE = State(SAME, SAME, SAME, OVER)


def in_numpy(record, half, gradients):
    """Returns half of the parameters after all steps."""
    weights = {"w": half.copy()}
    optimizer = NumpyOptimizer(record, weights)
    for gradient in gradients:
        optimizer.step({"w": gradient})
    return weights["w"]


def each_half(record):
    """Returns the parameters after steps in which each half has its own norm."""
    return np.array([in_numpy(record, half, GRADIENTS[:, i]) for i, half in enumerate(HALVES)])


def mesh():
    """Returns both devices."""
    return jax.make_mesh((2,), ("x",), axis_types=(AxisType.Auto,))


def shared_out(function, **specs):
    """Returns a function that runs on both devices."""
    return jax.jit(jax.shard_map(function, mesh=mesh(), **specs))


def the_default_level():
    assert JaxOptimizer(RECORD).level == "exact"


def pmap():
    optimizer = JaxOptimizer(RECORD, "native")
    w, state = HALVES, jax.tree.map(lambda x: jnp.stack([x, x]), optimizer.init(HALVES[0]))
    step = jax.pmap(optimizer.step, donate_argnums=(0, 1))
    for gradient in GRADIENTS:
        w, state = step(w, state, gradient)
    assert np.array_equal(w, each_half(RECORD))


def shard_map():
    """Each device has half of the parameters."""
    for record in RECORD, CLIPPED:
        optimizer = JaxOptimizer(record, "native")
        w, state = HALVES, optimizer.init(HALVES)
        step = shared_out(optimizer.step, in_specs=(OVER, STATE, OVER), out_specs=(OVER, STATE))
        for gradient in GRADIENTS:
            w, state = step(w, state, gradient)
        assert np.array_equal(w, each_half(record))


def replicated():
    """Both devices have the same parameters, and the sum of both gradients."""
    optimizer = JaxOptimizer(CLIPPED, "native")

    def train(w, state, gradient):
        return optimizer.step(w, state, jax.lax.psum(gradient[0], "x"))

    w, state = HALVES[0], optimizer.init(HALVES[0])
    step = shared_out(train, in_specs=(SAME, SAME, OVER), out_specs=(SAME, SAME))
    for gradient in GRADIENTS:
        w, state = step(w, state, gradient)
    assert np.array_equal(w, in_numpy(CLIPPED, HALVES[0], GRADIENTS.sum(1)))


def diverging():
    """Parameters that both devices have become different, by different gradients."""
    optimizer = JaxOptimizer(RECORD, "native")

    def train(w, gradients):
        state = optimizer.init(w)
        for gradient in gradients:
            w, state = optimizer.step(w, state, gradient[0])
        return w

    specs = (SAME, PartitionSpec(None, "x"))
    found = shared_out(train, in_specs=specs, out_specs=OVER)(HALVES[0], GRADIENTS)
    expected = [in_numpy(RECORD, HALVES[0], GRADIENTS[:, i]) for i in range(2)]
    assert np.array_equal(found.reshape(2, 40, 3), expected)
    with pytest.raises(ValueError, match="out_specs"):  # they are not the same
        shared_out(train, in_specs=specs, out_specs=SAME)(HALVES[0], GRADIENTS)


def refused():
    """XLA would gather the parameters, and update them on both devices."""
    optimizer = JaxOptimizer(RECORD, "native")
    state, step = optimizer.init(HALVES), jax.jit(optimizer.step)
    for spec in OVER, SAME:
        w = jax.device_put(HALVES, NamedSharding(mesh(), spec))
        for function in step, optimizer.step:
            with pytest.raises(RecordError, match="call the step in jax.shard_map"):
                function(w, state, w)
    w, state = jax.device_put((HALVES, state), jax.devices()[1])
    found, _ = step(w, state, w)
    assert found.devices() == {jax.devices()[1]}


FUNCTIONS = (the_default_level, pmap, shard_map, replicated, diverging, refused)
CASES = {each.__name__: each for each in FUNCTIONS}


@pytest.mark.parametrize("case", CASES)
def test_two_devices(case):
    flags = "--xla_force_host_platform_device_count=2"
    env = dict(os.environ, JAX_PLATFORMS="cpu", JAX_ENABLE_X64="1", XLA_FLAGS=flags)
    subprocess.run([sys.executable, "-m", __name__, case], env=env, check=True)


if __name__ == "__main__":
    CASES[sys.argv[1]]()
