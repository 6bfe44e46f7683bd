"""Compares the updates of each optimizer, on each device that TensorFlow finds, with NumPy.

    python -m legacy_opt.compat.check_devices

Each optimizer trains for three steps, with a dense gradient and a sparse gradient that has an id
twice. NumPy computes the expected weights from a recorded rule. ShampooOptimizer and float16 have
no records: their reference is TensorFlow on the first CPU. Bad verdicts make the exit code 1.

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
# Large enough to move float16 weights by many ulps. Exact in each dtype, because TensorFlow 2.4
# passes some arguments in float64, and rounds others to float32.
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
        inputs = [v1.placeholder(dtype, array.shape) for array in GRADIENTS[0]]
        rows = tf.IndexedSlices(inputs[1], tf.constant(IDS), tf.constant([5, 3]))
        pairs = [(inputs[0], dense), (rows, sparse)]
        step = optimizer.apply_gradients(pairs, global_step=v1.train.get_global_step())
        options = v1.RunOptions(output_partition_graphs=True)
        metadata = v1.RunMetadata()
        with v1.Session(config=CONFIG) as session:
            session.run(v1.global_variables_initializer())
            for arrays in GRADIENTS:
                session.run(step, dict(zip(inputs, arrays)), options, metadata)
            weights = session.run({"dense": dense, "sparse": sparse})
    nodes = [each for graph in metadata.partition_graphs for each in graph.node]
    # The Session adds inputs and copies between devices. Their names or types begin with "_".
    nodes = [each for each in nodes if each.name[0] != "_" and each.op[0] != "_"]
    elsewhere = {each.op for each in nodes if not each.device.endswith("/device:" + device)}
    return weights, elsewhere


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
        verdict = "unsupported" if UNSUPPORTED.search(text) else f"FAILS: {text:.200}"
        return verdict, set()
    differences = [np.abs(np.float64(found[name]) - expected[name]) for name in START]
    ulps = np.max(differences) / np.finfo(dtype).eps
    text = "exact" if ulps == 0 else f"{ulps:.2g} ulp"
    verdict = text if ulps <= LIMIT else "WRONG: " + text  # NaN is wrong, too
    return verdict, elsewhere


def main(classes: Iterable[type]) -> int:
    """Prints versions, devices and verdicts; returns 1 if a verdict is bad, else 0."""
    packages = f"legacy-opt {legacy_opt.__version__}, TensorFlow {versions.tensorflow_version()}"
    print(f"{packages}, Python {platform.python_version()}, {platform.platform()}")
    experimental = tf.config.experimental
    if hasattr(experimental, "get_device_details"):
        for each in tf.config.list_physical_devices():
            print(each.name, experimental.get_device_details(each))
    if hasattr(experimental, "enable_tensor_float_32_execution"):
        experimental.enable_tensor_float_32_execution(False)  # Shampoo needs more than 10 bits
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
