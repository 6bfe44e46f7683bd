"""Compares the updates of each optimizer, on each device that TensorFlow finds, with NumPy.

    python -m legacy_opt.compat.check_devices

Each optimizer trains for three steps, with a dense and a sparse gradient; the latter has an id
twice. NumPy computes the same from a recorded rule. ShampooOptimizer and float16 have no records:
there, TensorFlow on the first CPU is the reference. Bad verdicts make the exit code 1.

Differences are in ulps, the distance of neighbouring numbers in [1, 2), where the weights start.
GPUs fuse multiplications and additions, and round divisions, roots and sums in other ways: weights
may move by an ulp or two per step. A wrong update moves them by tens (float16) to millions.

TensorFlow moves operations without a kernel for a device to another device, here as in a training.
The last column lists them, from the partitions of the graph that the devices have executed.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import platform
import re
import sys
import warnings
from typing import Any, Dict, Iterable, Optional, Set, Tuple

import numpy as np
import tensorflow as tf

import legacy_opt
from legacy_opt import recorded, versions
from legacy_opt.optimizers import catalogue, stock_rules
from legacy_opt.recorded.numpy import NumpyOptimizer, Rows

from .cli import native_diagnosis

v1 = tf.compat.v1
Weights = Dict[str, np.ndarray]
CONFIG = v1.ConfigProto(allow_soft_placement=True, gpu_options={"allow_growth": True})
CPU = "CPU:0"
DTYPES = ("float32", "float64", "float16")
LIMIT = 16  # ulps
UNSUPPORTED = re.compile("No OpKernel|does not match type|not in list of allowed values")
# Weights of float16, too, move by many ulps. No dtype rounds these numbers: TensorFlow 2.4 passes
# some in float64 and some rounded to float32.
ARGUMENTS = {"learning_rate": 0.125, "epsilon": 2**-7}
IDS = np.array([3, 1, 3])
_random = np.random.RandomState(0)
START = {name: _random.uniform(1.25, 1.75, [5, 3]) for name in ("dense", "sparse")}
GRADIENTS = [(_random.randn(5, 3), _random.randn(3, 3)) for _ in range(3)]


def made(cls: type) -> Any:
    """Returns an optimizer for the default graph."""
    v1.train.get_or_create_global_step()
    defaults = {name: each.default for name, each in inspect.signature(cls).parameters.items()}
    chosen = {name: value for name, value in ARGUMENTS.items() if defaults.get(name) is not None}
    return native_diagnosis.made(cls, **chosen)


@functools.lru_cache(maxsize=None)
def trained_by_numpy(cls: type, dtype: str) -> Optional[Weights]:
    """Returns the weights after the steps, or None if there is no record."""
    shapes = {name: list(array.shape) for name, array in START.items()}
    try:
        with tf.Graph().as_default():
            record = recorded.record(made(cls), shapes, dtype)
    except recorded.RecordError:
        return None
    weights = {name: array.astype(dtype) for name, array in START.items()}
    optimizer = NumpyOptimizer(record, weights)
    for dense, rows in GRADIENTS:
        optimizer.step({"dense": dense.astype(dtype), "sparse": Rows(IDS, rows.astype(dtype))})
    return weights


def trained_on(device: str, cls: type, dtype: str) -> Tuple[Weights, Set[str]]:
    """Returns the weights after the steps on a device, and the operations that ran elsewhere."""
    with tf.Graph().as_default(), tf.device("/device:" + device):
        optimizer = made(cls)
        dense, sparse = (
            v1.get_variable(name, initializer=tf.constant(array, dtype))
            for name, array in START.items()
        )
        given = [v1.placeholder(dtype, array.shape) for array in GRADIENTS[0]]
        rows = tf.IndexedSlices(given[1], tf.constant(IDS), tf.constant([5, 3]))
        pairs = [(given[0], dense), (rows, sparse)]
        step = optimizer.apply_gradients(pairs, global_step=v1.train.get_global_step())
        options, run = v1.RunOptions(output_partition_graphs=True), v1.RunMetadata()
        with v1.Session(config=CONFIG) as session:
            session.run(v1.global_variables_initializer())
            for arrays in GRADIENTS:
                session.run(step, dict(zip(given, arrays)), options, run)
            weights = session.run({"dense": dense, "sparse": sparse})
    # Names and types with an underscore belong to the Session: inputs, copies between devices.
    nodes = [each for graph in run.partition_graphs for each in graph.node]
    nodes = [each for each in nodes if each.name[0] != "_" and each.op[0] != "_"]
    return weights, {each.op for each in nodes if not each.device.endswith("/device:" + device)}


def compared(device: str, cls: type, dtype: str) -> Tuple[str, Set[str]]:
    """Returns the verdict on a training, and the operations that ran elsewhere."""
    try:
        found, elsewhere = trained_on(device, cls, dtype)
        expected = trained_by_numpy(cls, dtype)
        if expected is None and device == CPU:
            return "reference", elsewhere
        expected = expected or trained_on(CPU, cls, dtype)[0]
    except (TypeError, ValueError, tf.errors.OpError) as error:
        text = " ".join(str(error).split())
        return "unsupported" if UNSUPPORTED.search(text) else f"FAILS: {text:.200}", set()
    differences = [np.abs(np.float64(found[name]) - expected[name]) for name in START]
    ulps = np.max(differences) / np.finfo(dtype).eps
    text = "exact" if ulps == 0 else f"{ulps:.2g} ulp"
    return text if ulps <= LIMIT else "WRONG: " + text, elsewhere  # NaN is wrong, too


def main(classes: Iterable[type]) -> int:
    """Prints versions, devices and verdicts; returns 1 if a verdict is bad, else 0."""
    ours = f"legacy-opt {legacy_opt.__version__}, TensorFlow {versions.tensorflow_version()}"
    print(f"{ours}, Python {platform.python_version()}, {platform.platform()}")
    experimental = tf.config.experimental
    if hasattr(experimental, "get_device_details"):
        for each in tf.config.list_physical_devices():
            print(each.name, experimental.get_device_details(each))
    if hasattr(experimental, "enable_tensor_float_32_execution"):
        experimental.enable_tensor_float_32_execution(False)  # 10 bits, in ShampooOptimizer
    with v1.Session(config=CONFIG, graph=tf.Graph()) as session:
        devices = [each.name.partition("/device:")[2] for each in session.list_devices()]
        devices = [device for device in devices if not device.startswith("XLA_")]
    line = "{:7} {:33}" + " {:11}" * len(DTYPES) + " {}"
    print(line.format("device", "optimizer", *DTYPES, "not placed there"))
    bad = 0
    for device, cls in itertools.product(devices, classes):
        verdicts, operations = zip(*(compared(device, cls, dtype) for dtype in DTYPES))
        elsewhere = ", ".join(sorted(set().union(*operations)))
        print(line.format(device, cls.__name__, *verdicts, elsewhere).rstrip(), flush=True)
        bad += sum(verdict.startswith(("WRONG", "FAILS")) for verdict in verdicts)
    print(f"{bad} bad verdicts. Please file this output with the project's issues, bad or not.")
    return int(bad > 0)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    tf.get_logger().setLevel("ERROR")
    ours = [getattr(catalogue, name) for name in catalogue.__all__]
    sys.exit(main([*ours, *stock_rules.RULES]))
