"""Compares trainings with recorded rules, without TensorFlow, with native kernels in a Session.

    python -m tests.tools.leave reference FOLDER          with TensorFlow: trains, and writes files
    python tests/tools/leave.py check FOLDER TARGET     without TensorFlow

`make leave` runs this program. TARGET is numpy, native, torch, torch-fast, torch-native or
torch-compile. The program prints a table, and fails if a bit differs (torch-fast: if a weight
differs by more than its bound).
"""

import functools
import sys
from pathlib import Path

import numpy as np

STEPS = 20
SHAPES = {"matrix": (211, 173), "vector": (173,), "table": (1000, 16)}
DTYPES = ("float32", "float64")
TARGETS = ("numpy", "native", "torch", "torch-fast", "torch-native", "torch-compile")
# The largest difference of a weight in units in the last place of the largest weight (torch-fast).
FAST = 4.0


def gradients(dtype):
    """Yields the gradients of each step: a dict from names to arrays or pairs (ids, values)."""
    random = np.random.RandomState(1)
    for _ in range(STEPS):
        ids = random.randint(0, 200, 64)
        yield {
            "matrix": random.randn(*SHAPES["matrix"]).astype(dtype),
            "vector": random.randn(*SHAPES["vector"]).astype(dtype),
            "table": (ids, random.randn(64, SHAPES["table"][1]).astype(dtype)),
        }


def start(dtype):
    """Returns the initial values of the variables."""
    random = np.random.RandomState(0)
    return {name: random.randn(*shape).astype(dtype) for name, shape in SHAPES.items()}


def trained_names(record):
    """Returns the names of the variables for which the record has an update."""
    kinds = {"matrix": "dense", "vector": "dense", "table": "sparse"}
    groups = {name: record.group_of(name, shape) for name, shape in SHAPES.items()}
    return [name for name in SHAPES if not isinstance(getattr(groups[name], kinds[name]), str)]


# --- with TensorFlow


def reference(folder):
    """Trains each optimizer of the catalogue with native kernels, and writes what it computes."""
    import tensorflow as tf

    import legacy_opt
    from legacy_opt import recorded
    from tests.tools import rules

    folder.mkdir(parents=True, exist_ok=True)
    print(f"TensorFlow {tf.__version__}")

    def clipped(sum_duplicates):
        inner = legacy_opt.LazyAdamOptimizer(0.01)
        return legacy_opt.ClipByGlobalNormOptimizer(inner, 9.0, sum_duplicates=sum_duplicates)

    makers = {
        name: functools.partial(rules.make, cls)
        for name, cls in sorted(rules.classes().items())
        if name not in rules.WITHOUT_RULE
    }
    makers["LazyAdam, clipped"] = lambda: clipped(True)
    makers["LazyAdam, rows clipped"] = lambda: clipped(False)
    for name, make in makers.items():
        for dtype in DTYPES:
            with tf.Graph().as_default():
                record = recorded.record(make(), dtype=dtype)
            recorded.save(record, folder / f"{name}.{dtype}.json")
            with tf.Graph().as_default():
                optimizer = legacy_opt.native.accelerate(make(), require=True)
                arrays = in_a_session(tf, optimizer, trained_names(record), dtype)
            np.savez(str(folder / f"{name}.{dtype}.npz"), **arrays)


def in_a_session(tf, optimizer, names, dtype):
    """Returns the values of variables and slots after the training: a dict from names."""
    v1 = tf.compat.v1
    values = start(dtype)
    variables = {
        name: v1.get_variable(
            name, SHAPES[name], dtype, v1.constant_initializer(values[name]), use_resource=True
        )
        for name in names
    }
    fed, pairs = {}, []
    for name, variable in variables.items():
        if name == "table":
            fed[name] = v1.placeholder(tf.int64, [64]), v1.placeholder(dtype, [64, 16])
            grad = tf.IndexedSlices(fed[name][1], fed[name][0], variable.shape)
        else:
            grad = fed[name] = v1.placeholder(dtype, SHAPES[name])
        pairs.append((grad, variable))
    train = optimizer.apply_gradients(pairs, v1.train.get_or_create_global_step())
    found = dict(variables)
    for slot_name in optimizer.get_slot_names():
        for name, variable in variables.items():
            slot = optimizer.get_slot(variable, slot_name)
            if slot is not None:
                found[f"{name}.{slot_name}"] = slot
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        for step in gradients(dtype):
            feed = {}
            for name in names:
                if name == "table":
                    feed.update(zip(fed[name], step[name]))
                else:
                    feed[fed[name]] = step[name]
            session.run(train, feed)
        return session.run(found)


# --- without TensorFlow


def with_numpy(record, names, dtype, target):
    """Trains NumPy arrays; returns variables and slots."""
    from legacy_opt.recorded.native import NativeOptimizer
    from legacy_opt.recorded.numpy import NumpyOptimizer, Rows

    weights = {name: value for name, value in start(dtype).items() if name in names}
    optimizer = (NativeOptimizer if target == "native" else NumpyOptimizer)(record, weights)
    for step in gradients(dtype):
        step = {name: step[name] for name in names}
        optimizer.step(dict(step, table=Rows(*step["table"])) if "table" in step else step)
    slots = {
        f"{name}.{slot}": array
        for name, its in optimizer.state.slots.items()
        for slot, array in its.items()
    }
    return dict(weights, **slots)


def with_torch(record, names, dtype, target):
    """Trains PyTorch parameters; returns variables and slots."""
    import torch

    from legacy_opt.recorded.torch import RecordedOptimizer

    values = start(dtype)
    parameters = {name: torch.nn.Parameter(torch.from_numpy(values[name].copy())) for name in names}
    level = target[len("torch-") :]
    level = level if level in ("fast", "native") else "exact"
    optimizer = RecordedOptimizer(list(parameters.items()), record, level=level)
    step = torch.compile(optimizer.step) if target == "torch-compile" else optimizer.step
    for grads in gradients(dtype):
        for name, parameter in parameters.items():
            grad = grads[name]
            if name == "table":
                ids, rows = (torch.from_numpy(each) for each in grad)
                parameter.grad = torch.sparse_coo_tensor(ids[None], rows, parameter.shape)
            else:
                parameter.grad = torch.from_numpy(grad)
        step()
    found = {name: parameter.detach().numpy() for name, parameter in parameters.items()}
    for name, parameter in parameters.items():
        for slot, tensor in optimizer.slots(parameter).items():
            found[f"{name}.{slot}"] = tensor.numpy()
    return found


def check(folder, target):
    """Prints a table; returns whether all trainings agree."""
    from legacy_opt import recorded

    if "tensorflow" in sys.modules:
        raise SystemExit("TensorFlow was imported")
    try:
        import tensorflow  # noqa: F401
    except ImportError:
        pass
    else:
        raise SystemExit("this environment has TensorFlow: choose one without")
    rows, fits = [], True
    for path in sorted(folder.glob("*.json")):
        name, dtype = path.name.split(".")[:2]
        if target == "torch-compile" and dtype == "float64":
            continue
        record = recorded.load(path)
        names = trained_names(record)
        with np.load(str(path.with_suffix(".npz"))) as file:
            expected = dict(file)
        if target in ("numpy", "native"):
            found = with_numpy(record, names, dtype, target)
        else:
            found = with_torch(record, names, dtype, target)
        assert set(found) == set(expected), set(found) ^ set(expected)
        wrong = {key for key in expected if not np.array_equal(found[key], expected[key])}
        units = max(
            np.max(np.abs(found[key] - expected[key])) / np.spacing(np.max(np.abs(expected[key])))
            for key in names
        )
        is_right = units <= FAST if target == "torch-fast" else not wrong
        fits = fits and is_right
        verdict = "equal" if not wrong else f"{len(wrong)} of {len(expected)} arrays differ"
        rows.append(f"{name:34}{dtype:9}{target:15}{verdict:28}{units:12.1f}")
        print(rows[-1], flush=True)
    equal = sum(" equal " in row for row in rows)
    print(f"{target}: {equal} of {len(rows)} trainings have the bits of native kernels")
    return fits and bool(rows)


if __name__ == "__main__":
    command, folder, *target = sys.argv[1:]
    if command == "reference":
        reference(Path(folder))
    elif not check(Path(folder), *target):
        sys.exit(1)
