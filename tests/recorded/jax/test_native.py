"""Tests native kernels in JAX against NumPy, in compiled steps on one device."""

import concurrent.futures
import os
import pickle
import platform
import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from legacy_opt import recorded
from legacy_opt.native.runtime import cache, xla
from legacy_opt.recorded import native
from legacy_opt.recorded.jax import JaxOptimizer, Rows, kernels
from legacy_opt.recorded.numpy import NumpyOptimizer
from legacy_opt.recorded.numpy import Rows as NumpyRows
from legacy_opt.recorded.optax import from_record
from tests.recorded.jax import ones
from tests.recorded.references import EVERY_RULE, LAZY_ADAM, refused, with_two_rates

LAMB = recorded.load("LAMBOptimizer")
SHAPES = {"empty": (0, 3), "matrix": (37, 5), "table": (50, 4), "vector": (300,), "wide": (70001,)}
IN_ANOTHER_PROCESS = """
import sys
import jax
import jax.numpy as jnp
import numpy as np
from legacy_opt import recorded
from legacy_opt.recorded.jax import JaxOptimizer

jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
optimizer = JaxOptimizer(recorded.load("LazyAdamOptimizer"), "native")
params = {"w": jnp.linspace(-1, 1, 9, dtype="float32")}
state = optimizer.init(params)
leaves, tree = jax.tree.flatten((params, state, params))
step = jax.jit(lambda *leaves: jax.tree.leaves(optimizer.step(*tree.unflatten(leaves))))
for _ in range(3):
    leaves = [*step(*leaves), leaves[-1]]
print([np.asarray(each).tobytes().hex() for each in leaves])
"""


def with_dtype(record, dtype):
    """Returns a record of the catalogue, all of whose numbers have this dtype."""
    return recorded.loads(recorded.dumps(record).replace("float32", dtype))


def in_numpy(gradients):
    """Returns gradients for `NumpyOptimizer.step`, without padding."""
    found = {}
    for name, each in gradients.items():
        if isinstance(each, Rows):
            is_row = (each.ids >= 0) & (each.ids < SHAPES[name][0])
            each = NumpyRows(each.ids[is_row], each.values[is_row])
        if each is not None:
            found[name] = each
    return found


def gradients_of(record, dtype, draw, dense=False):
    """Returns gradients for SHAPES; those of the table are rows if the record has such updates."""
    found = {name: draw.randn(*shape).astype(dtype) for name, shape in SHAPES.items()}
    if not dense and not isinstance(record.group_of("table", SHAPES["table"], dtype).sparse, str):
        ids = np.concatenate([[-1, 50], draw.randint(0, 20, 30), [2**31 - 1]])
        values = (draw.randn(33, 4) * 10.0 ** draw.randint(-5, 5, (33, 4))).astype(dtype)
        found["table"] = Rows(ids, values)
    return found


def same(params, state, weights, reference):
    """Returns whether parameters and slots in JAX have the bits of those in NumPy."""
    slots = [
        (state.slots[slot][name], array)
        for name, its in reference.state.slots.items()
        for slot, array in its.items()
    ]
    pairs = [(params[name], each) for name, each in weights.items()] + slots
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs)


def start(dtype="float32"):
    """Returns initial values for SHAPES."""
    draw = np.random.RandomState(1)
    return {name: draw.randn(*shape).astype(dtype) for name, shape in SHAPES.items()}


@pytest.mark.parametrize(
    "dtype, donated", [("float32", (0, 1)), ("float64", ()), ("float64", (0, 1))]
)
@EVERY_RULE
def test_every_rule(name, dtype, donated):
    """All parameters are updated in one operation, dense ones and rows; one has no gradient."""
    record, weights = with_dtype(recorded.load(name), dtype), start(dtype)
    draw, reference = np.random.RandomState(0), NumpyOptimizer(record, weights)
    optimizer = JaxOptimizer(record, "native")
    params = jax.tree.map(jnp.array, start(dtype))
    state, step = optimizer.init(params), jax.jit(optimizer.step, donate_argnums=donated)
    for i in range(3):
        gradients = gradients_of(record, dtype, draw, dense=i == 1)
        if i == 1:
            gradients["vector"] = None
        reference.step(in_numpy(gradients))
        addresses = {each: array.unsafe_buffer_pointer() for each, array in params.items()}
        before = params
        params, state = step(params, state, gradients)
        if donated:
            for each in "matrix", "wide":
                assert params[each].unsafe_buffer_pointer() == addresses[each]
        else:
            assert not any(each.is_deleted() for each in before.values())
    assert same(params, state, weights, reference)


@pytest.mark.parametrize("kind", recorded.records.CLIPPINGS)
@pytest.mark.parametrize("name", ["LazyAdamOptimizer", "LAMBOptimizer", "AdamWeightDecayOptimizer"])
def test_clipping(name, kind):
    record = recorded.load(name)
    hyperparameters = dict(
        record.hyperparameters, clip_norm=recorded.records.Scalar("float32", 9.0)
    )
    record = record._replace(clipping=kind, hyperparameters=hyperparameters)
    draw, weights = np.random.RandomState(0), start()
    reference, optimizer = NumpyOptimizer(record, weights), JaxOptimizer(record, "native")
    params = start()
    state, step = optimizer.init(params), jax.jit(optimizer.step)
    for _ in range(3):
        gradients = gradients_of(record, "float32", draw)
        rows = gradients["table"]
        gradients["table"] = Rows(rows.ids[2:], rows.values[2:])  # padding must be last
        reference.step(in_numpy(gradients))
        params, state = step(params, state, gradients)
    assert same(params, state, weights, reference)
    empty = dict.fromkeys(params)
    assert step(params, state, empty)[1].count == 4


@pytest.mark.parametrize("record", [LAZY_ADAM, LAMB])
def test_steps_in_other_functions(record):
    """Steps in scan, cond and map, without jit, and in two threads."""
    draw, weights = np.random.RandomState(0), {"w": start()["matrix"]}
    gradients = draw.randn(4, *SHAPES["matrix"]).astype("f4")
    reference, optimizer = NumpyOptimizer(record, weights), JaxOptimizer(record, "native")
    params = {"w": weights["w"].copy()}
    state = optimizer.init(params)
    for gradient in gradients:
        reference.step({"w": gradient})

    def body(both, gradient):
        return optimizer.step(*both, {"w": gradient}), None

    def conditional(both, gradient):
        step = jax.lax.cond(gradient[0, 0] < 9, lambda: body(both, gradient)[0], lambda: both)
        return step, None

    for function in body, conditional:
        train = jax.jit(lambda both, function=function: jax.lax.scan(function, both, gradients)[0])
        assert same(*train((params, state)), weights, reference)
    both = (params, state)
    for i, gradient in enumerate(gradients):
        with jax.disable_jit(i == 0):
            both, _ = body(both, gradient)
    assert same(*both, weights, reference)

    many = jax.tree.map(lambda each: jnp.stack([each, each]), (params, state))
    found = jax.lax.map(lambda both: body(both, gradients[0])[0], many)
    expected = jax.tree.map(
        lambda each: jnp.stack([each, each]), body((params, state), gradients[0])[0]
    )
    assert all(map(np.array_equal, *map(jax.tree.leaves, (found, expected))))
    step = jax.jit(optimizer.step)

    def in_a_thread(_):
        both = params, state
        for gradient in np.tile(gradients, [25, 1, 1]):
            both = step(*both, {"w": gradient})
        return np.asarray(both[0]["w"])

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        one, *others = pool.map(in_a_thread, range(3))
    assert all(np.array_equal(one, each) for each in others)


@pytest.mark.parametrize("donated", [(), (0, 1)])
def test_one_array_in_several_places(donated):
    """A parameter is its own gradient; two parameters, or slots, are the same array."""
    optimizer, exact = JaxOptimizer(LAZY_ADAM, "native"), JaxOptimizer(LAZY_ADAM, "exact")

    def step(optimizer, w, state):
        params = {"a": w, "b": w, "c": state.slots["m"]["a"] + 0, "d": w}
        slots = {"m": dict(state.slots["m"], d=w), "v": dict(state.slots["v"], d=w * w)}
        return optimizer.step(params, state._replace(slots=slots), dict(params, c=w))

    found = []
    for each in optimizer, exact:
        w = jnp.linspace(-1, 1, 70001, dtype="float32")
        state = each.init(dict.fromkeys("abcd", w))
        compiled = jax.jit(step, static_argnums=0, donate_argnums=[1 + i for i in donated])
        for _ in range(2):
            params, state = compiled(each, w, state)
            w = params["a"] + 0
        found.append((params, state))
    assert all(map(np.array_equal, *map(jax.tree.leaves, found)))


def test_rows_of_empty_tables():
    optimizer = JaxOptimizer(LAZY_ADAM, "native")
    for shape, ids in ((0, 3), []), ((3, 0), [1]), ((3, 2), []), ((3, 2), [-1, 3]):
        table = ones(shape)
        rows = Rows(jnp.array(ids, jnp.int32), ones((len(ids), *shape[1:])))
        new, _ = optimizer.step([table], optimizer.init([table]), [rows])
        assert np.array_equal(new[0], table)


def test_without_x64():
    """Only scalars and the norm need x64: kernels have their own numbers of 64 bits."""
    record = recorded.load("LARSOptimizer")
    with jax.enable_x64(False):
        weights, params = {"w": start()["matrix"]}, {"w": start()["matrix"]}
        refused("jax_enable_x64", JaxOptimizer, record, "exact")
        refused("has numbers of int64", JaxOptimizer, LAMB, "native")
        reference, optimizer = NumpyOptimizer(record, weights), JaxOptimizer(record, "native")
        state = optimizer.init(params)
        for gradient in np.random.RandomState(0).randn(3, 37, 5).astype("f4"):
            reference.step({"w": gradient})
            params, state = jax.jit(optimizer.step)(params, state, {"w": gradient})
        assert same(params, state, weights, reference)


def test_copies():
    params = {"w": ones(3)}
    optimizer = JaxOptimizer(LAZY_ADAM, "native")
    state = optimizer.init(params)
    copied = pickle.loads(pickle.dumps(optimizer))
    one, two = (jax.jit(each.step)(params, state, params)[0] for each in (optimizer, copied))
    assert np.array_equal(one["w"], two["w"])


def test_what_is_refused(monkeypatch):
    refused("a transformation of optax cannot do", from_record, LAZY_ADAM, "native")
    optimizer, params = JaxOptimizer(LAZY_ADAM, "native"), {"w": ones(3)}
    state = optimizer.init(params)

    def loss(params):
        return optimizer.step(params, state, params)[0]["w"].sum()

    refused("native kernels have no gradients", jax.grad(loss), params)
    refused("cannot run in jax.vmap", jax.vmap(loss), {"w": ones((2, 3))})
    traced = jax.jit(optimizer.step).trace(params, state, params)
    refused("train on processors only", traced.lower, lowering_platforms=("cuda",))
    for name in "typeof", "ffi":  # the newest of both first
        monkeypatch.delattr(jax, name)
        refused(f"it has no jax.{name}", JaxOptimizer, LAZY_ADAM, "native")
        assert JaxOptimizer(LAZY_ADAM).level == "exact"


@pytest.fixture
def without_library(monkeypatch, tmp_path):
    """No library is loaded, and none can be compiled."""
    kernels._library.cache_clear()
    monkeypatch.setenv("CXX", "none")
    monkeypatch.setenv(cache.FOLDER_VARIABLE, str(tmp_path / "kernels"))
    yield monkeypatch
    kernels._library.cache_clear()


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
def test_unsigned_ids(dtype):
    table, gradient = ones((4, 2)), np.ones((2, 2), "f4")
    optimizer = JaxOptimizer(LAZY_ADAM, "native")
    state, found = optimizer.init(table), []
    for ids in np.array([3, 1], dtype), jnp.array([3, 1]):
        found.append(optimizer.update_rows(table, state, ids, gradient)[0])
    assert np.array_equal(*found)


def test_what_has_no_rows_and_what_is_no_number():
    optimizer = JaxOptimizer(LAZY_ADAM, "native")
    state = optimizer.init(ones(()))
    refused("has no rows", optimizer.update_rows, ones(()), state, np.array([0]), ones(1))
    state = state._replace(hyperparams=dict(state.hyperparams, learning_rate=ones(2)))
    refused("learning_rate must be a number", optimizer.step, ones(()), state, ones(()))


def test_kernels_with_the_same_source_and_other_scalars():
    record = with_two_rates()
    weights = {name: np.ones(5, np.float32) for name in "wb"}
    reference, optimizer = NumpyOptimizer(record, weights), JaxOptimizer(record, "native")
    params = {name: ones(5) for name in "wb"}
    state = optimizer.init(params)
    reference.step(params)
    params, state = jax.jit(optimizer.step)(params, state, params)
    assert all(np.array_equal(params[name], weights[name]) for name in "wb")


def test_the_default_level():
    assert JaxOptimizer(LAZY_ADAM).level == "native"


def test_the_default_level_without_a_compiler(without_library, caplog):
    native._log.cache_clear()
    assert JaxOptimizer(LAZY_ADAM).level == "exact"
    assert 'the level is "exact", which is slower than "native"' in caplog.text
    assert "no C++ compiler" in caplog.text


def test_libraries_of_the_wheel(without_library, tmp_path):
    """The library of legacy-opt-native is used, except with a JAX that has an older interface."""
    refused("no C++ compiler", JaxOptimizer(LAZY_ADAM, "native").init, {"w": ones(3)})
    text = Path(jax.ffi.include_dir(), xla.HEADER).read_text()
    folders = {}
    for minor in 0, 1, 2:
        folders[minor] = str(tmp_path / str(minor))
        header = Path(folders[minor], xla.HEADER)
        header.parent.mkdir(parents=True)
        header.write_text(re.sub(r"(define XLA_FFI_API_MINOR) \d+", rf"\1 {minor}", text))
    xla.compile_file(["c++"], tmp_path, folders[1], platform.machine())
    without_library.setattr(cache, "prebuilt_folder", lambda: tmp_path)
    for minor in 1, 2:
        assert xla.library(folders[minor])._name == str(tmp_path / xla.names(folders[1])[0])
    with pytest.raises(cache.NoCompilerError, match="no C"):
        xla.library(folders[0])


def test_stored_computations(tmp_path):
    """A step that another process has compiled finds the kernels of this process."""

    def run():
        command = [sys.executable, "-c", IN_ANOTHER_PROCESS, str(tmp_path)]
        env = dict(os.environ, JAX_PLATFORMS="cpu")
        return subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE).stdout

    def stored():
        return {each.name for each in tmp_path.iterdir() if not each.name.endswith("-atime")}

    first, compiled = run(), stored()
    assert run() == first and stored() == compiled and compiled


def test_a_kernel_that_is_not_loaded():
    """A step that was exported, and is not traced in this process, has the key of its kernel."""
    bind = kernels._PRIMITIVE.bind
    with pytest.raises(Exception, match=f"has not loaded the native kernel {'0' * 32}"):
        bind(jnp.zeros(()), ones(3), results=1, keys="0" * 32, updates=())
