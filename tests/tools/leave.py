"""Compares trainings with recorded rules, without TensorFlow, with native kernels in a Session.

    python -m tests.tools.leave reference FOLDER          with TensorFlow: trains, and writes files
    python tests/tools/leave.py check FOLDER TARGET     without TensorFlow

`make leave` runs this program. TARGET is one of TARGETS. The program prints a table, and fails if a
bit differs; with a target in BOUNDS, if a weight differs by more than its bound; with the control
jax-naive, which XLA compiles as it likes, if a training has the bits.
"""

import collections
import functools
import os
import sys
from pathlib import Path

import numpy as np

STEPS = 20
SHAPES = {"matrix": (211, 173), "vector": (173,), "table": (1000, 16)}
DTYPES = ("float32", "float64")
# `torch.compile` takes half a minute for each.
COMPILED = ("AdaBeliefOptimizer", "AdagradDecayOptimizer", "AdamOptimizer", "LAMBOptimizer")
COMPILED += ("LazyAdam, clipped", "NovoGradOptimizer")
TARGETS = ("numpy", "native", "torch", "torch-fast", "torch-native", "torch-compile")
TARGETS_IN_JAX = ("jax", "jax-native", "optax", "optax-fast", "keras", "jax-naive")
# The largest difference of a weight in units in the last place of the largest weight.
BOUNDS = {"torch-fast": 4.0, "optax-fast": 8.0}
CONTROL = "jax-naive"
# Rules that do not subtract an update; in float64, no update of optax has their bits.
NO_UPDATES = ("AdagradDAOptimizer", "AdamWOptimizer", "FtrlOptimizer", "MomentumWOptimizer")
NO_UPDATES += ("ProximalAdagradOptimizer", "ProximalGradientDescentOptimizer")
NO_UPDATES += ("COCOBOptimizer", "ConditionalGradientOptimizer")
# Targets with which a clipped training differs, because they train the table by itself, or not.
WITHOUT_CLIPPING = ("optax", "optax-fast", "keras")


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
    if target == "torch-compile":
        torch._dynamo.reset()  # after some compiled functions, the others would not be compiled
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


def with_jax(record, names, dtype, target):
    """Trains JAX arrays in a compiled function; returns variables and slots."""
    import jax

    from legacy_opt.recorded.jax import JaxOptimizer, Rows

    # An OrderedDict keeps the order of the variables, in which squares are added to a norm.
    params = collections.OrderedDict((name, start(dtype)[name]) for name in names)
    levels = {"jax": "exact", "jax-native": "native", "jax-naive": "fast"}
    optimizer = JaxOptimizer(record, levels[target])
    state, step = optimizer.init(params), jax.jit(optimizer.step)
    for grads in gradients(dtype):
        grads = collections.OrderedDict((name, grads[name]) for name in names)
        if "table" in grads:
            grads["table"] = Rows(*grads["table"])
        params, state = step(params, state, grads)
    assert step._cache_size() == 2  # NumPy's arrays, and JAX's
    return of_jax(params, state)


def of_jax(params, state):
    """Returns variables and slots."""
    found = {name: np.asarray(value) for name, value in params.items()}
    for slot, tree in state.slots.items():
        found.update({f"{n}.{slot}": np.asarray(a) for n, a in tree.items() if a is not None})
    return found


def with_optax(record, names, dtype, target):
    """Trains JAX arrays with updates of optax, and the rows of the table by themselves."""
    import jax
    import optax

    from legacy_opt.recorded.jax import JaxOptimizer
    from legacy_opt.recorded.optax import from_record

    level = "fast" if target == "optax-fast" else "exact"
    params = {name: start(dtype)[name] for name in names}
    tables = {name: params.pop(name) for name in names if name == "table"}
    optimizer, of_rows = from_record(record, level), JaxOptimizer(record, level)
    state, its_state = optimizer.init(params), of_rows.init(tables)

    @jax.jit
    def step(grads, state, params):
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    update_rows = jax.jit(of_rows.update_rows)
    for grads in gradients(dtype):
        if tables:
            tables, its_state = update_rows(tables, its_state, *grads["table"])
        params, state = step({name: grads[name] for name in params}, state, params)
    return {**of_jax(params, state), **of_jax(tables, its_state)}


def with_keras(record, names, dtype, target):
    """Trains variables of Keras in a compiled function of JAX; returns variables and slots."""
    del target
    import jax
    import keras

    from legacy_opt.recorded.keras import RecordedOptimizer

    keras.config.set_floatx(dtype)  # of the learning rate
    values = start(dtype)
    variables = [keras.Variable(values[name], dtype=dtype, name=name) for name in names]
    optimizer = RecordedOptimizer(record)
    optimizer.build(variables)
    step = jax.jit(optimizer.stateless_apply)
    own, trained = [each.value for each in optimizer.variables], [each.value for each in variables]
    for grads in gradients(dtype):
        trained, own = step(own, [grads[name] for name in names], trained)
    for variable, value in zip([*variables, *optimizer.variables], [*trained, *own]):
        variable.assign(value)
    found = {variable.name: variable for variable in variables}
    for variable in variables:
        for slot, its in optimizer.slots(variable).items():
            found[f"{variable.name}.{slot}"] = its
    return {name: np.asarray(each) for name, each in found.items()}


def trainer(target):
    """Returns the function that trains with a target."""
    if target in TARGETS_IN_JAX:
        os.environ["KERAS_BACKEND"] = "jax"
        import jax

        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_enable_x64", True)
    kind = target.split("-")[0]
    trainers = {"numpy": with_numpy, "native": with_numpy, "torch": with_torch, "jax": with_jax}
    return dict(trainers, optax=with_optax, keras=with_keras)[kind]


def is_possible(target, record):
    """Returns whether a target can train with a record."""
    if record.dtype == "float64" and target == "torch-compile":
        return False
    if record.dtype == "float64" and target == "optax" and record.optimizer in NO_UPDATES:
        return False
    return record.clipping is None or target not in WITHOUT_CLIPPING


def check(folder, target):
    """Prints a table; returns whether agreement is as it should be."""
    from legacy_opt import recorded

    if "tensorflow" in sys.modules:
        raise SystemExit("TensorFlow was imported")
    try:
        import tensorflow  # noqa: F401
    except ImportError:
        pass
    else:
        raise SystemExit("this environment has TensorFlow: choose one without")
    train = trainer(target)
    rows, fits = [], True
    for path in sorted(folder.glob("*.json")):
        name, dtype = path.name.split(".")[:2]
        record = recorded.load(path)
        names = trained_names(record)
        if not is_possible(target, record) or (target == "torch-compile" and name not in COMPILED):
            continue
        with np.load(str(path.with_suffix(".npz"))) as file:
            expected = dict(file)
        if target == "keras":
            names = [name for name in names if name != "table"]
            expected = {key: each for key, each in expected.items() if key.split(".")[0] in names}
        found = train(record, names, dtype, target)
        assert set(found) == set(expected), set(found) ^ set(expected)
        wrong = {key for key in expected if not np.array_equal(found[key], expected[key])}
        units = max(
            np.max(np.abs(found[key] - expected[key])) / np.spacing(np.max(np.abs(expected[key])))
            for key in names
        )
        is_right = units <= BOUNDS[target] if target in BOUNDS else not wrong
        fits = fits and is_right != (target == CONTROL)
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
