"""Tests trainings with recorded rules in JAX and optax, against NumPy, in compiled steps."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from legacy_opt import recorded
from legacy_opt.recorded import jax_state
from legacy_opt.recorded.jax import JaxOptimizer, Rows, State
from legacy_opt.recorded.numpy import NumpyOptimizer
from legacy_opt.recorded.numpy import Rows as NumpyRows
from legacy_opt.recorded.optax import from_record
from legacy_opt.recorded.records import CLIP_NORM, SUMMED_ROWS, Scalar
from tests.recorded.jax import ones
from tests.recorded.references import EVERY_RULE, LAZY_ADAM, in_numpy, refused, through_a_file

RANDOM = np.random.RandomState(0)
GRADIENTS = [
    {"dense": {"bias": RANDOM.randn(2).astype("f4"), "kernel": RANDOM.randn(3, 2).astype("f4")}}
    for _ in range(10)
]
NAMES = {"bias": "dense/bias", "kernel": "dense/kernel"}


def build(**hyperparameters):
    """Returns an optimizer in a chain of optax, its compiled step, its state and parameters."""
    rule = from_record(LAZY_ADAM, **hyperparameters)
    optimizer = optax.chain(optax.identity(), rule)
    params = {"dense": {"bias": jnp.zeros(2, "float32"), "kernel": ones((3, 2))}}

    @jax.jit
    def step(gradients, state, params):
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

    return step, optimizer.init(params), params


def chain_in_numpy():
    """Returns the same training in NumPy: a function, and the weights."""
    weights = {"dense/bias": np.zeros(2, "f4"), "dense/kernel": np.ones((3, 2), "f4")}
    optimizer = NumpyOptimizer(LAZY_ADAM, weights)

    def step(gradients, **hyperparameters):
        optimizer.hyperparameters.update(hyperparameters)
        optimizer.step({f"dense/{key}": each for key, each in gradients["dense"].items()})

    return step, weights


def same(params, weights):
    """Returns whether parameters in JAX have the bits of weights in NumPy."""
    own = {f"dense/{key}": np.asarray(each) for key, each in params["dense"].items()}
    return all(own[key].tobytes() == each.tobytes() for key, each in weights.items())


def test_rates_change_and_nothing_is_compiled_again():
    step, state, params = build()
    other, weights = chain_in_numpy()
    for i, gradients in enumerate(GRADIENTS):
        rate = np.float32(0.1 / (i + 1))
        state = optax.tree_utils.tree_set(state, learning_rate=jnp.asarray(rate))
        params, state = step(gradients, state, params)
        other(gradients, learning_rate=rate)
    assert same(params, weights) and step._cache_size() == 1


def test_schedules_of_optax():
    """Schedules of optax are computed from the number of completed steps."""
    schedule = optax.piecewise_constant_schedule(0.5, {2: 0.5, 4: 0.5})
    step, state, params = build(learning_rate=schedule)
    other, weights = chain_in_numpy()
    for i, gradients in enumerate(GRADIENTS):
        params, state = step(gradients, state, params)
        other(gradients, learning_rate=[0.5, 0.25, 0.125][(i >= 2) + (i >= 4)])
        assert state[1].hyperparams["learning_rate"] == schedule(i)
    assert same(params, weights) and step._cache_size() == 1


def test_a_training_goes_on_from_a_state_file_in_jax_and_numpy(tmp_path):
    step, state, params = build()
    for gradients in GRADIENTS[:4]:
        params, state = step(gradients, state, params)
    saved = through_a_file(tmp_path, jax_state.state_of(LAZY_ADAM, state, params, NAMES))
    assert saved.global_step == 4 and set(saved.variables) == set(NAMES)
    _, new_state, new_params = build()
    new_state, new_params = jax_state.load_state(LAZY_ADAM, saved, new_state, new_params, NAMES)
    assert jax.tree.structure(new_state) == jax.tree.structure(state)
    optimizer, weights = in_numpy(saved)
    for gradients in GRADIENTS[4:]:
        params, state = step(gradients, state, params)
        new_params, new_state = step(gradients, new_state, new_params)
        optimizer.step(gradients["dense"])
    for each in (params, new_params):
        assert same(each, {NAMES[name]: each for name, each in weights.items()})


@pytest.mark.parametrize("name", ["LazyAdamOptimizer", "AdamOptimizer", "LAMBOptimizer"])
def test_rows_with_repeated_ids_and_padding(name):
    record, table = recorded.load(name), np.ones((50, 4), "f4")
    weights = {"w": table.copy()}
    reference = NumpyOptimizer(record, weights)
    optimizer = JaxOptimizer(record, "exact")
    state, step = optimizer.init(table), jax.jit(optimizer.update_rows)
    for _ in range(3):
        ids = RANDOM.randint(0, 20, 300)
        values = (RANDOM.randn(300, 4) * 10.0 ** RANDOM.randint(-5, 5, (300, 4))).astype("f4")
        reference.step({"w": NumpyRows(ids, values)})
        ids = np.concatenate([ids, [-1, 50, 2**31 - 1]])
        values = np.concatenate([values, np.full((3, 4), np.nan, "f4")])
        table, state = step(table, state, ids, values)
    assert np.asarray(table).tobytes() == weights["w"].tobytes()
    for slot, expected in reference.state.slots["w"].items():
        assert np.array_equal(state.slots[slot], expected), slot


@pytest.mark.parametrize("shape, ids", [((0, 3), []), ((3, 0), [1]), ((3, 2), [])])
def test_rows_of_empty_tables(shape, ids):
    optimizer = JaxOptimizer(LAZY_ADAM, "exact")
    table, values = ones(shape), ones((len(ids), *shape[1:]))
    rows = Rows(jnp.array(ids, jnp.int32), values)
    new, _ = optimizer.step([table], optimizer.init([table]), [rows])
    assert np.array_equal(new[0], table)


@pytest.mark.parametrize("kind", recorded.records.CLIPPINGS)
def test_clipping(kind):
    """Rows and dense gradients are clipped together, with and without padding."""
    limit = recorded.records.Scalar("float32", 1.5)
    hyperparameters = dict(LAZY_ADAM.hyperparameters, clip_norm=limit)
    record = LAZY_ADAM._replace(clipping=kind, hyperparameters=hyperparameters)
    weights = {"w": np.ones((9, 2), "f4"), "b": np.ones(2, "f4")}
    params = collections.OrderedDict((name, each.copy()) for name, each in weights.items())
    reference, optimizer = NumpyOptimizer(record, weights), JaxOptimizer(record, "exact")
    state, step = optimizer.init(params), jax.jit(optimizer.step)
    for _ in range(5):
        ids, values = RANDOM.randint(0, 5, 12), RANDOM.randn(12, 2).astype("f4")
        b = RANDOM.randn(2).astype("f4")
        reference.step({"w": NumpyRows(ids, values), "b": b})
        padded = Rows(np.append(ids, -1), np.append(values, [[7, 7]], 0).astype("f4"))
        gradients = collections.OrderedDict(w=padded, b=b)
        params, state = step(params, state, gradients)
    assert all(np.array_equal(params[name], each) for name, each in weights.items())


def test_gradients_that_are_products():
    """XLA does not merge the product of the caller with the sums of the rule."""
    record = recorded.load("MomentumOptimizer")
    optimizer = JaxOptimizer(record, "exact")
    a, b = (RANDOM.randn(1000).astype("f4") for _ in range(2))
    weights = {"w": np.ones(1000, "f4")}
    reference, w = NumpyOptimizer(record, weights), weights["w"].copy()
    state = optimizer.init(w)
    step = jax.jit(lambda w, state: optimizer.step(w, state, a * b))
    for _ in range(5):
        reference.step({"w": a * b})
        w, state = step(w, state)
    assert np.array_equal(w, weights["w"])


@pytest.mark.parametrize(
    "name", ["MomentumOptimizer", "GradientDescentOptimizer", "LazyAdamOptimizer"]
)
def test_denormals(name):
    """XLA makes denormal numbers zero on processors, as native kernels do."""
    record = recorded.load(name)
    weights = {"w": np.full(64, 2e-38, "f4")}
    reference = NumpyOptimizer(record, weights, learning_rate=1.0)
    optimizer, w = JaxOptimizer(record, "exact", learning_rate=1.0), weights["w"].copy()
    state, step = optimizer.init(w), jax.jit(optimizer.step)
    for _ in range(5):
        gradient = (RANDOM.rand(64) * 2e-38).astype("f4")
        reference.step({"w": gradient})
        w, state = step(w, state, gradient)
    assert np.asarray(w).tobytes() == weights["w"].tobytes()


def test_signs():
    """A value by whose sign Python decides becomes no other one, also in compiled steps."""
    record = recorded.load("AddSignOptimizer")._replace(nonzero=("alpha",))
    params, gradients = {"w": ones(2)}, {"w": ones(2)}
    optimizer, transformation = JaxOptimizer(record, "exact"), from_record(record)
    state, step, update = optimizer.init(params), jax.jit(optimizer.step), transformation.update
    for value, is_right in (0.5, True), (0.0, False), (-0.5, False), (np.nan, False):
        its = optax.tree_utils.tree_set(state, alpha=jnp.float32(value))
        found = step(params, its, gradients)[0], jax.jit(update)(gradients, its, params)[0]
        for each in found:
            assert np.isfinite(each["w"]).all() if is_right else np.isnan(each["w"]).all(), value
        if value <= 0:
            refused("to 0 or another sign", optimizer.step, params, its, gradients)
    plain = JaxOptimizer(recorded.load("AddSignOptimizer"), "exact", alpha=0.5)
    expected, _ = jax.jit(plain.step)(params, plain.init(params), gradients)
    its = optax.tree_utils.tree_set(state, alpha=jnp.float32(0.5))
    assert np.array_equal(step(params, its, gradients)[0]["w"], expected["w"])


@pytest.fixture
def without_x64():
    with jax.enable_x64(False):
        yield


@EVERY_RULE
def test_records_that_need_x64(name, without_x64):
    record = recorded.load(name)
    try:
        JaxOptimizer(record, "exact")
    except recorded.RecordError as error:
        assert "jax_enable_x64" in str(error)
    from_record(record, "fast").init(ones((2, 2)))


def test_refused_without_x64(without_x64):
    wide = recorded.load("AdamOptimizer")._replace(dtype="float64")
    refused("has variables of float64", JaxOptimizer, wide)
    refused("jax_enable_x64", JaxOptimizer, recorded.load("LAMBOptimizer"))
    refused("except in float64: set", from_record, recorded.load("AdamWOptimizer"))


def test_the_same_bits_without_x64(without_x64):
    step, state, params = build()
    other, weights = chain_in_numpy()
    for gradients in GRADIENTS:
        params, state = step(gradients, state, params)
        other(gradients)
    assert same(params, weights) and isinstance(state[1], State)


@pytest.mark.parametrize("level", ["exact", "native"])
def test_the_sign_of_zero_of_summed_rows(level):
    record = recorded.load("GradientDescentOptimizer")
    norm = {**record.hyperparameters, CLIP_NORM: Scalar("float32", 1.0)}
    record = record._replace(hyperparameters=norm, clipping=SUMMED_ROWS)
    ids, rows = np.array([1]), np.full((1, 2), -0.0, "f4")
    weights = {"w": np.full((3, 2), -0.0, "f4")}
    optimizer, params = JaxOptimizer(record, level), {"w": jnp.asarray(weights["w"])}
    rows_in_jax = {"w": Rows(jnp.asarray(ids), jnp.asarray(rows))}
    params, _ = optimizer.step(params, optimizer.init(params), rows_in_jax)
    NumpyOptimizer(record, weights).step({"w": NumpyRows(ids, rows)})
    assert np.array_equal(np.signbit(params["w"]), np.signbit(weights["w"]))
