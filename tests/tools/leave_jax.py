"""Checks `legacy_opt.recorded.jax` and `.optax` with JAX: schedules, rows, saved state, errors."""

import collections
import functools
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import operation_records
import optax
from jax.tree_util import keystr
from leave_checks import (
    check_grades,
    new_state,
    own_trainings,
    refused,
    run,
    with_other_hyperparameters,
)

from legacy_opt import recorded
from legacy_opt.recorded import jax_state, optax_own, state_files
from legacy_opt.recorded.jax import JaxOptimizer, Rows, State
from legacy_opt.recorded.numpy import NumpyOptimizer
from legacy_opt.recorded.numpy import Rows as NumpyRows
from legacy_opt.recorded.optax import from_record

RANDOM = np.random.RandomState(0)
GRADIENTS = [
    {"dense": {"bias": RANDOM.randn(2).astype("f4"), "kernel": RANDOM.randn(3, 2).astype("f4")}}
    for _ in range(10)
]
ones = functools.partial(jnp.ones, dtype="float32")  # not float64, with jax_enable_x64
zeros = functools.partial(jnp.zeros, dtype="float32")
NAMES = {"bias": "dense/bias", "kernel": "dense/kernel"}


def build(name="LazyAdamOptimizer", **hyperparameters):
    """Returns an optimizer in a chain of optax, its compiled step, its state and parameters."""
    optimizer = optax.chain(optax.identity(), from_record(recorded.load(name), **hyperparameters))
    params = {"dense": {"bias": zeros(2), "kernel": ones((3, 2))}}

    @jax.jit
    def step(gradients, state, params):
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

    return step, optimizer.init(params), params


def in_numpy(name="LazyAdamOptimizer"):
    """Returns the same training in NumPy: a function, the weights and the optimizer."""
    weights = {"dense/bias": np.zeros(2, "f4"), "dense/kernel": np.ones((3, 2), "f4")}
    optimizer = NumpyOptimizer(recorded.load(name), weights)

    def step(gradients, **hyperparameters):
        optimizer.hyperparameters.update(hyperparameters)
        optimizer.step({f"dense/{key}": each for key, each in gradients["dense"].items()})

    return step, weights, optimizer


def same(params, weights):
    """Returns whether parameters in JAX have the bits of weights in NumPy."""
    own = {f"dense/{key}": np.asarray(each) for key, each in params["dense"].items()}
    return all(own[key].tobytes() == each.tobytes() for key, each in weights.items())


def check_rates():
    """Rates change between steps, and nothing is compiled again."""
    step, state, params = build()
    other, weights, _ = in_numpy()
    for i, gradients in enumerate(GRADIENTS):
        rate = np.float32(0.1 / (i + 1))
        state = optax.tree_utils.tree_set(state, learning_rate=jnp.asarray(rate))
        params, state = step(gradients, state, params)
        other(gradients, learning_rate=rate)
    assert same(params, weights) and step._cache_size() == 1


def check_schedules():
    """Schedules of optax are computed from the number of completed steps."""
    schedule = optax.piecewise_constant_schedule(0.5, {2: 0.5, 4: 0.5})
    step, state, params = build(learning_rate=schedule)
    other, weights, _ = in_numpy()
    for i, gradients in enumerate(GRADIENTS):
        params, state = step(gradients, state, params)
        other(gradients, learning_rate=[0.5, 0.25, 0.125][(i >= 2) + (i >= 4)])
        assert state[1].hyperparams["learning_rate"] == schedule(i)
    assert same(params, weights) and step._cache_size() == 1


def check_state_files():
    """A training continues from a state file, in JAX and in NumPy."""
    record = recorded.load("LazyAdamOptimizer")
    step, state, params = build()
    for gradients in GRADIENTS[:4]:
        params, state = step(gradients, state, params)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "state.npz")
        state_files.write(path, jax_state.state_of(record, state, params, NAMES))
        saved = state_files.read(path)
    assert saved.global_step == 4 and set(saved.variables) == set(NAMES)
    _, new_state, new_params = build()
    new_state, new_params = jax_state.load_state(record, saved, new_state, new_params, NAMES)
    assert jax.tree.structure(new_state) == jax.tree.structure(state)
    weights = {name: saved.variables[name].copy() for name in saved.slots}
    optimizer = NumpyOptimizer(record, weights)
    state_files.load_into(optimizer, saved)
    for gradients in GRADIENTS[4:]:
        params, state = step(gradients, state, params)
        new_params, new_state = step(gradients, new_state, new_params)
        optimizer.step(gradients["dense"])
    for each in (params, new_params):
        assert same(each, {NAMES[name]: each for name, each in weights.items()})


def check_rows():
    """Rows of all lazy rules: repeated ids, ids that are padding, and empty tables."""
    for name in recorded.catalogue():
        record = recorded.load(name)
        if isinstance(record.group_of("w", (50, 4)).sparse, str):
            continue
        table = np.ones((50, 4), "f4")
        weights = {"w": table.copy()}
        in_numpy = NumpyOptimizer(record, weights)
        optimizer = JaxOptimizer(record)
        state, step = optimizer.init(table), jax.jit(optimizer.update_rows)
        for _ in range(3):
            ids = RANDOM.randint(0, 20, 300)
            values = (RANDOM.randn(300, 4) * 10.0 ** RANDOM.randint(-5, 5, (300, 4))).astype("f4")
            in_numpy.step({"w": NumpyRows(ids, values)})
            ids = np.concatenate([ids, [-1, 50, 2**31 - 1]])
            values = np.concatenate([values, np.full((3, 4), np.nan, "f4")])
            table, state = step(table, state, ids, values)
        assert np.asarray(table).tobytes() == weights["w"].tobytes(), name
        for slot, expected in in_numpy.state.slots["w"].items():
            assert np.array_equal(state.slots[slot], expected), (name, slot)
    optimizer = JaxOptimizer(recorded.load("LazyAdamOptimizer"))
    for shape, ids in (((0, 3), []), ((3, 0), [1]), ((3, 2), [])):
        table, values = ones(shape), ones((len(ids), *shape[1:]))
        rows = Rows(jnp.array(ids, jnp.int32), values)
        new, _ = optimizer.step([table], optimizer.init([table]), [rows])
        assert np.array_equal(new[0], table)


def check_clipping():
    """Rows and dense gradients are clipped together, with and without padding."""
    inner = recorded.load("LazyAdamOptimizer")
    limit = recorded.records.Scalar("float32", 1.5)
    hyperparameters = dict(inner.hyperparameters, clip_norm=limit)
    for kind in recorded.records.CLIPPINGS:
        record = inner._replace(clipping=kind, hyperparameters=hyperparameters)
        weights = {"w": np.ones((9, 2), "f4"), "b": np.ones(2, "f4")}
        params = collections.OrderedDict((name, each.copy()) for name, each in weights.items())
        in_numpy, optimizer = NumpyOptimizer(record, weights), JaxOptimizer(record)
        state, step = optimizer.init(params), jax.jit(optimizer.step)
        for _ in range(5):
            ids, values = RANDOM.randint(0, 5, 12), RANDOM.randn(12, 2).astype("f4")
            b = RANDOM.randn(2).astype("f4")
            in_numpy.step({"w": NumpyRows(ids, values), "b": b})
            padded = Rows(np.append(ids, -1), np.append(values, [[7, 7]], 0).astype("f4"))
            gradients = collections.OrderedDict(w=padded, b=b)
            params, state = step(params, state, gradients)
        assert all(np.array_equal(params[name], each) for name, each in weights.items()), kind


def check_gradients_that_are_products():
    """XLA does not merge the product of the caller with the sums of the rule."""
    record = recorded.load("MomentumOptimizer")
    optimizer = JaxOptimizer(record)
    a, b = (RANDOM.randn(1000).astype("f4") for _ in range(2))
    weights = {"w": np.ones(1000, "f4")}
    in_numpy, w = NumpyOptimizer(record, weights), weights["w"].copy()
    state = optimizer.init(w)
    step = jax.jit(lambda w, state: optimizer.step(w, state, a * b))
    for _ in range(5):
        in_numpy.step({"w": a * b})
        w, state = step(w, state)
    assert np.array_equal(w, weights["w"])


def check_denormals():
    """XLA makes denormal numbers zero on processors, as native kernels do."""
    for name in ("MomentumOptimizer", "GradientDescentOptimizer", "LazyAdamOptimizer"):
        record = recorded.load(name)
        weights = {"w": np.full(64, 2e-38, "f4")}
        in_numpy = NumpyOptimizer(record, weights, learning_rate=1.0)
        optimizer, w = JaxOptimizer(record, learning_rate=1.0), weights["w"].copy()
        state, step = optimizer.init(w), jax.jit(optimizer.step)
        for _ in range(5):
            gradient = (RANDOM.rand(64) * 2e-38).astype("f4")
            in_numpy.step({"w": gradient})
            w, state = step(w, state, gradient)
        assert np.asarray(w).tobytes() == weights["w"].tobytes(), name


def check_trees():
    """Parameters may be any tree; None is no gradient; transformations of optax may mask some."""
    Pair = collections.namedtuple("Pair", "first second")
    params = Pair([ones(2), None], {"x": ones(())})
    optimizer = from_record(recorded.load("LazyAdamOptimizer"))
    state = optimizer.init(params)
    gradients = Pair([ones(2), None], {"x": None})
    updates, state = jax.jit(optimizer.update)(gradients, state, params)
    new = optax.apply_updates(params, updates)
    assert np.all(new.first[0] < 1) and new.second["x"] == 1 and state.count == 1
    masked = optax.masked(optimizer, Pair([True, None], {"x": False}))
    gradients = Pair([ones(2), None], {"x": ones(())})
    others, _ = masked.update(gradients, masked.init(params), params)
    assert np.array_equal(others.first[0], updates.first[0]) and others.second["x"] == 1
    doubled = optax.tree_utils.tree_map_params(optimizer, lambda each: 2 * each, state)
    assert np.array_equal(doubled.slots["m"].first[0], 2 * state.slots["m"].first[0])


def check_names():
    """Records by names take the keys of the path to a parameter."""
    record = recorded.load("LazyAdamOptimizer")
    group = record.groups[0]._replace(ranks=None, variables={"dense/kernel": (3, 2)})
    optimizer = JaxOptimizer(record._replace(groups=(group,)))
    optimizer.init({"dense": {"kernel": ones((3, 2))}})
    refused("no update for a variable 'dense/bias'", optimizer.init, {"dense": {"bias": ones(2)}})


GRADES = {
    "AdadeltaOptimizer": "exact",
    "AdagradOptimizer": "exact",
    "AdamOptimizer": "rounding",
    "GradientDescentOptimizer": "exact",
    "MomentumOptimizer": "exact",
    "RMSPropOptimizer": "rounding",
}


def check_own_optimizers():
    """optax' own optimizers go on with a state, if they are the same; else they are refused."""
    for name, state, momentum, gradients, check in own_trainings(GRADES):
        own = optax_own.from_state(state, **momentum)
        assert own.grade.name == GRADES[name], (name, own.grade)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "state.npz")
            optax_own.write(path, state, **momentum)
            with np.load(str(path)) as leaves:
                opt_state = jax.tree_util.tree_map_with_path(
                    functools.partial(leaf_of, leaves), own.transformation.init(own.params)
                )
        params = own.params
        for gradient in gradients:
            updates, opt_state = own.transformation.update({"w": gradient}, opt_state, params)
            params = optax.apply_updates(params, updates)
        check(np.asarray(params["w"]))
    state, other = new_state("AdamOptimizer"), new_state("NadamOptimizer")
    refused("optax.adam is another optimizer", optax_own.from_state, state, epsilon=0.1)
    refused("optax has no optimizer like NadamOptimizer", optax_own.from_state, other)


def check_scales():
    """The worst case decides on a grade: small gradients, or rates that fall."""
    check_grades(lambda state: optax_own.from_state(state).grade)


def through_a_file(*arguments):
    """Returns a state that was written and read."""
    with tempfile.TemporaryDirectory() as folder:
        state_files.write(Path(folder, "state.npz"), jax_state.state_of(*arguments))
        return state_files.read(Path(folder, "state.npz"))


def check_parts_of_trees():
    """States of masked and of several transformations are saved, and go on."""
    adam, momentum = (recorded.load(name) for name in ("LazyAdamOptimizer", "MomentumOptimizer"))
    params = {name: ones((3, 2)) * i for i, name in enumerate("abc")}
    labels = {"a": "adam", "b": "momentum", "c": "adam too"}
    transformations = {
        "adam": from_record(adam),
        "momentum": from_record(momentum),
        "adam too": from_record(adam, learning_rate=0.5),
    }
    for optimizer, records in (
        (optax.masked(from_record(adam), {"a": True, "b": False, "c": True}), {"ac": adam}),
        (optax.multi_transform(transformations, labels), {"ac": adam, "b": momentum}),
    ):

        def go_on(params, state, steps, optimizer=optimizer):
            for step in range(steps):
                gradients = jax.tree.map(lambda each, step=step: each * 0 + step + 1, params)
                updates, state = optimizer.update(gradients, state, params)
                params = optax.apply_updates(params, updates)
            return params, state

        first, state = go_on(params, optimizer.init(params), 5)
        expected, _ = go_on(first, state, 3)
        new, new_state = params, optimizer.init(params)
        for names, record in records.items():
            saved = through_a_file(record, state, first)
            assert set(saved.slots) == set(names) and set(saved.variables) == set("abc")
            assert saved.global_step == 5
            new_state, new = jax_state.load_state(record, saved, new_state, new)
        found, _ = go_on(new, new_state, 3)
        assert jax.tree.all(jax.tree.map(np.array_equal, found, expected))
        refused("has 0 states", jax_state.state_of, recorded.load("FtrlOptimizer"), state, first)
    inner = state.inner_states["adam"].inner_state
    state.inner_states["adam"] = state.inner_states["adam"]._replace(
        inner_state=inner._replace(count=inner.count + 1)
    )
    refused("completed different steps", jax_state.state_of, adam, state, first)


def check_states_that_do_not_fit():
    """Names that occur twice, slots of other shapes and steps that are no whole numbers."""
    record = recorded.load("MomentumOptimizer")
    optimizer = JaxOptimizer(record)
    params = {"a": {"b": ones(2)}, "a/b": ones(2)}
    state = optimizer.init(params)
    refused("two parameters have the name 'a/b'", jax_state.state_of, record, state, params)
    params = {"a": ones((4, 3)), "b": ones((4, 3))}
    state = optimizer.init(params)
    names = {"b": "a"}
    refused("two parameters have the name 'b'", jax_state.state_of, record, state, params, names)
    saved = jax_state.state_of(record, state, params)
    slots = dict(saved.slots, a={"momentum": np.ones((3, 4), "f4")})
    for problem, wrong in (
        ("'a/momentum' is float32 of the shape [3, 4]", saved._replace(slots=slots)),
        ("must be a whole number, got 1.5", saved._replace(global_step=1.5)),
    ):
        refused(problem, jax_state.load_state, record, wrong, state, params)
    slots = {"momentum": dict(state.slots["momentum"], b=ones((3, 4)))}
    refused("expected", optimizer.step, params, state._replace(slots=slots), params)
    half = jax_state.state_of(record, state._replace(count=ones(()) * 1.5), params)
    refused("whole number", state_files.write, "state.npz", half)


def leaf_of(leaves, place, leaf):
    """Returns a leaf of optax' state from a file."""
    del leaf
    return jnp.asarray(leaves["opt_state" + keystr(place)])


def check_errors():
    """Wrong arguments raise errors that name them."""
    record = recorded.load("LazyAdamOptimizer")
    refused("no hyperparameter 'rate'", from_record, record, rate=0.1)
    refused("one of exact, fast, got 'exakt'", from_record, record, level="exakt")
    integer = recorded.records.Scalar("int32", 1)
    hyperparameters = dict(record.hyperparameters, learning_rate=integer)
    integers = record._replace(hyperparameters=hyperparameters)
    refused("cannot be 0.5", from_record, integers, learning_rate=0.5)
    scheduled = from_record(integers, learning_rate=lambda step: 0.5 * step)
    refused("learning_rate was an integer", scheduled.init, ones(2))

    optimizer = from_record(record)
    params = {"w": ones((3, 2))}
    refused("'w' has the dtype float16", optimizer.init, {"w": jnp.ones(2, "float16")})
    state = optimizer.init(params)
    refused("params is None", optimizer.update, params, state)
    refused("of the shape [2]", optimizer.update, {"w": ones(2)}, state, params)
    rows = {"w": Rows(jnp.ones(1, int), ones((1, 2)))}
    refused("for Rows, use JaxOptimizer.step", optimizer.update, rows, state, params)
    step = JaxOptimizer(record).step
    refused("ids must be integers", step, params, state, {"w": Rows(*2 * [ones((1, 2))])})
    changed = state._replace(hyperparams={"rate": 1.0})
    refused("hyperparams must be ['beta1'", optimizer.update, params, changed, params)
    dense = record._replace(groups=(record.groups[0]._replace(sparse="no rows", ranks=(0, None)),))
    refused("sparse gradients: no rows", JaxOptimizer(dense).step, params, state, rows)

    saved = jax_state.state_of(record, state, params)
    masked = optax.masked(optimizer, {"w": True, "m": False})
    both = dict(params, m=ones(2))
    names = {"moving_mean": "m"}
    averages = jax_state.state_of(record, masked.init(both), both, names)
    assert set(averages.variables) == {"w", "moving_mean"}
    problem = "the state has no variable 'moving_mean'"
    refused(problem, jax_state.load_state, record, saved, masked.init(both), both, names)
    other = recorded.load("MomentumOptimizer")
    refused("belongs to another rule", jax_state.load_state, other, saved, state, params)
    refused("state has 'w', but", jax_state.load_state, record, saved, state, {"x": params["w"]})
    refused("has 'y', but there is no", jax_state.state_of, record, state, params, {"x": "y"})
    refused("has 0 states", jax_state.state_of, record, optax.adam(0.1).init(params), params)
    refused("has 2 states", jax_state.state_of, record, [state, state], params)
    ftrl = recorded.load("FtrlOptimizer")._replace(dtype="float64")
    refused("does not subtract an update", from_record, ftrl)


def check_without_x64():
    """Without jax_enable_x64, records that need it are refused, and others have the same bits."""
    wide = recorded.load("AdamOptimizer")._replace(dtype="float64")
    refused("has variables of float64", JaxOptimizer, wide)
    needed = []
    for name in recorded.catalogue():
        try:
            JaxOptimizer(recorded.load(name))
        except recorded.RecordError as error:
            assert "jax_enable_x64" in str(error), error
            needed.append(name)
        from_record(recorded.load(name), "fast").init(ones((2, 2)))
    print("need float64:", *needed)
    refused("except in float64: set", from_record, recorded.load("AdamWOptimizer"))
    step, state, params = build()
    other, weights, _ = in_numpy()
    for gradients in GRADIENTS:
        params, state = step(gradients, state, params)
        other(gradients)
    assert same(params, weights) and isinstance(state[1], State)


def check_hyperparameters():
    """Records follow other values, numbers and schedules; others are refused."""
    for record, hyper, gradients, expected in with_other_hyperparameters():
        schedules = {
            name: lambda count, each=each: each + 0 * count for name, each in hyper.items()
        }
        optimizer, params = JaxOptimizer(record, **schedules), {"w": ones((4, 3))}
        state, step = jax.jit(optimizer.init)(params), jax.jit(optimizer.step)
        transformation, its_params = from_record(record, **hyper), {"w": ones((4, 3))}
        its_state, update = transformation.init(its_params), jax.jit(transformation.update)
        for gradient in gradients:
            params, state = step(params, state, {"w": gradient})
            updates, its_state = update({"w": gradient}, its_state, its_params)
            its_params = optax.apply_updates(its_params, updates)
        for found in params, its_params:
            assert np.array_equal(found["w"], expected), record.optimizer
        for name in record.fixed:
            for wrong in 0.5, lambda count: 0.0 * count:
                refused(f"{name} was 0.0 when", JaxOptimizer, record, **{name: wrong})
                refused(f"{name} was 0.0 when", from_record, record, **{name: wrong})
            its = state._replace(hyperparams={**state.hyperparams, name: jnp.float32(0.5)})
            refused("hyperparams must be", optimizer.step, params, its, {"w": gradients[0]})


def check_signs():
    """A value by whose sign Python decides becomes no other one, also in compiled steps."""
    record = recorded.load("AddSignOptimizer")._replace(nonzero=("alpha",))
    params, gradients = {"w": ones(2)}, {"w": ones(2)}
    optimizer, transformation = JaxOptimizer(record), from_record(record)
    state, step, update = optimizer.init(params), jax.jit(optimizer.step), transformation.update
    for value, is_right in (0.5, True), (0.0, False), (-0.5, False), (np.nan, False):
        its = optax.tree_utils.tree_set(state, alpha=jnp.float32(value))
        found = step(params, its, gradients)[0], jax.jit(update)(gradients, its, params)[0]
        for each in found:
            assert np.isfinite(each["w"]).all() if is_right else np.isnan(each["w"]).all(), value
        if value <= 0:
            refused("to 0 or another sign", optimizer.step, params, its, gradients)
    plain = JaxOptimizer(recorded.load("AddSignOptimizer"), alpha=0.5)
    expected, _ = jax.jit(plain.step)(params, plain.init(params), gradients)
    its = optax.tree_utils.tree_set(state, alpha=jnp.float32(0.5))
    assert np.array_equal(step(params, its, gradients)[0]["w"], expected["w"])


def check_operations():
    """Each operation has the bits of NumPy when XLA compiles it; "fast" computes each, too."""
    for name, record in operation_records.records():
        gradient, value = operation_records.operands(name, record.dtype)
        expected = operation_records.in_numpy(name, record)
        for level in "exact", "fast":
            optimizer, params = JaxOptimizer(record, level), {"w": value}
            step, state = jax.jit(optimizer.step), optimizer.init(params)
            found = np.asarray(step(params, state, {"w": gradient})[0]["w"])
            assert level == "fast" or operation_records.same(found, expected), name


CHECKS = (
    check_operations,
    check_signs,
    check_rates,
    check_schedules,
    check_state_files,
    check_rows,
    check_clipping,
    check_gradients_that_are_products,
    check_denormals,
    check_trees,
    check_names,
    check_hyperparameters,
    check_own_optimizers,
    check_scales,
    check_parts_of_trees,
    check_states_that_do_not_fit,
    check_errors,
)

if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    checks = CHECKS
    if "without_x64" in sys.argv:
        checks = [check_without_x64]
    else:
        subprocess.run([sys.executable, *sys.argv, "without_x64"], check=True, env=os.environ)
        jax.config.update("jax_enable_x64", True)
    run(checks)
