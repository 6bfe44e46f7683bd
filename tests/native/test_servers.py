"""Tests native kernels on a parameter server, which is another process on this machine.

The operations library is the library of TensorFlow operations that run native kernels.
"""

import contextlib

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt.core.user_warnings import NativeKernelWarning
from legacy_opt.native import settings
from legacy_opt.native.runtime import cache, tensorflow_operations
from legacy_opt.programs.program import UnsupportedError
from tests.native.training import START, is_native
from tests.support.processes import programs
from tests.support.processes.local_cluster import free_addresses

pytestmark = pytest.mark.every_lane  # each TensorFlow version has its own operations library
v1 = tf.compat.v1
SERVER = """
import sys
import tensorflow as tf
import legacy_opt
if sys.argv[2] == "True":
    legacy_opt.native.enable()
server = tf.distribute.Server({"ps": [sys.argv[1]]}, "ps", 0, protocol="grpc")
print("started", flush=True)
server.join()
"""


@contextlib.contextmanager
def server(enabled=True, environment=()):
    """Starts a server process; yields the target of Sessions on the server."""
    (address,) = free_addresses(1)
    with programs.forked("-c", SERVER, address, enabled, environment=environment):
        yield "grpc://" + address


def trained(target, device, use_resource):
    """Returns the variables after three steps, by name, and the types of all operations."""
    with tf.Graph().as_default() as graph, tf.device(device):
        step = v1.train.get_or_create_global_step()
        table = v1.get_variable("table", initializer=START, use_resource=use_resource)
        bias = v1.get_variable("bias", initializer=START[0], use_resource=use_resource)
        grad = tf.IndexedSlices(tf.constant(START[:3] / 8), tf.constant([4, 1, 4]), START.shape)
        pairs = [(grad, table), (tf.constant(START[1] / 8), bias)]
        train_op = legacy_opt.LazyAdamOptimizer(0.1).apply_gradients(pairs, step)
        with v1.Session(target) as session:
            session.run(v1.global_variables_initializer())
            for _ in range(3):
                session.run(train_op)
            values = session.run({each.op.name: each for each in v1.global_variables()})
        return values, {each.type for each in graph.get_operations()}


@pytest.mark.parametrize("use_resource", [False, True])
def test_a_server_with_kernels(use_resource, fresh):
    with server() as target:
        legacy_opt.native.enable(require=True, target=target)
        actual, types = trained(target, "/job:ps/task:0", use_resource)
    assert is_native(types)
    expected, types = trained("", "", use_resource)
    assert is_native(types)
    np.testing.assert_equal(actual, expected)


def test_a_server_without_an_operations_library(fresh):
    with server(enabled=False) as target:
        legacy_opt.native.enable(require=True, target=target)
        message = "/job:ps/task:0 has no operations library: the process must call"
        with pytest.raises(UnsupportedError, match=message):
            trained(target, "/job:ps/task:0", True)
        legacy_opt.native.enable(target=target)
        with pytest.warns(NativeKernelWarning, match="without a native kernel: the process /job:p"):
            actual, types = trained(target, "/job:ps/task:0", True)
    assert not is_native(types)
    fresh.setenv("LEGACY_OPT_NATIVE", "off")
    fresh.setattr(settings, "_current", settings.Settings())
    np.testing.assert_equal(actual, trained("", "", True)[0])


def test_a_server_with_another_folder_of_kernels(fresh, tmp_path, kernels_folder):
    for path in kernels_folder.glob("operations-*.so"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    with server(environment={cache.FOLDER_VARIABLE: str(tmp_path)}) as target:
        legacy_opt.native.enable(require=True, target=target)
        message = r"does not have the kernel [0-9a-f]{32}\. Set the same folder"
        with pytest.raises(UnsupportedError, match=message):
            trained(target, "/job:ps/task:0", True)


def test_a_server_that_is_restarted_while_it_is_asked(fresh):
    """MonitoredTrainingSession waits for such a server, so building the graph must wait, too."""
    run, lost = v1.Session.run, [tf.errors.UnavailableError(None, None, "reset by peer")]

    def lossy(self, *args, **kwargs):
        if lost:
            raise lost.pop()
        return run(self, *args, **kwargs)

    with server() as target:
        legacy_opt.native.enable(require=True, target=target)
        fresh.setattr(tensorflow_operations, "_SECONDS_UNTIL_RETRY", 0)
        fresh.setattr(v1.Session, "run", lossy)
        _, types = trained(target, "/job:ps/task:0", True)
    assert is_native(types) and not lost
