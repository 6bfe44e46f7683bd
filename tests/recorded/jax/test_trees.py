"""Tests parameters of JAX in trees: masks, several transformations, names, and saved states."""

import collections

import jax
import numpy as np
import optax
import pytest

from legacy_opt import recorded
from legacy_opt.recorded import jax_state, state_files
from legacy_opt.recorded.jax import JaxOptimizer
from legacy_opt.recorded.optax import from_record
from tests.recorded.jax import ones
from tests.recorded.references import LAZY_ADAM, refused, through_a_file


def test_trees():
    """Parameters may be any tree; None is no gradient; transformations of optax may mask some."""
    Pair = collections.namedtuple("Pair", "first second")
    params = Pair([ones(2), None], {"x": ones(())})
    optimizer = from_record(LAZY_ADAM)
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


def test_names():
    """Records by names take the keys of the path to a parameter."""
    group = LAZY_ADAM.groups[0]._replace(ranks=None, variables={"dense/kernel": (3, 2)})
    optimizer = JaxOptimizer(LAZY_ADAM._replace(groups=(group,)), "exact")
    optimizer.init({"dense": {"kernel": ones((3, 2))}})
    refused("no update for a variable 'dense/bias'", optimizer.init, {"dense": {"bias": ones(2)}})


MOMENTUM = recorded.load("MomentumOptimizer")


def masked():
    return optax.masked(from_record(LAZY_ADAM), {"a": True, "b": False, "c": True})


def several():
    transformations = {
        "adam": from_record(LAZY_ADAM),
        "momentum": from_record(MOMENTUM),
        "adam too": from_record(LAZY_ADAM, learning_rate=0.5),
    }
    return optax.multi_transform(transformations, {"a": "adam", "b": "momentum", "c": "adam too"})


def go_on(optimizer, params, state, steps):
    """Returns parameters and state after some steps."""
    for step in range(steps):
        gradients = jax.tree.map(lambda each, step=step: each * 0 + step + 1, params)
        updates, state = optimizer.update(gradients, state, params)
        params = optax.apply_updates(params, updates)
    return params, state


PARAMS = {name: np.full((3, 2), i, "f4") for i, name in enumerate("abc")}


@pytest.mark.parametrize(
    "make, records", [(masked, {"ac": LAZY_ADAM}), (several, {"ac": LAZY_ADAM, "b": MOMENTUM})]
)
def test_states_of_parts_of_trees_are_saved_and_go_on(make, records, tmp_path):
    optimizer = make()
    first, state = go_on(optimizer, PARAMS, optimizer.init(PARAMS), 5)
    expected, _ = go_on(optimizer, first, state, 3)
    new, new_state = PARAMS, optimizer.init(PARAMS)
    for names, record in records.items():
        saved = through_a_file(tmp_path, jax_state.state_of(record, state, first))
        assert set(saved.slots) == set(names) and set(saved.variables) == set("abc")
        assert saved.global_step == 5
        new_state, new = jax_state.load_state(record, saved, new_state, new)
    found, _ = go_on(optimizer, new, new_state, 3)
    assert jax.tree.all(jax.tree.map(np.array_equal, found, expected))
    refused("has 0 states", jax_state.state_of, recorded.load("FtrlOptimizer"), state, first)


def test_parts_that_completed_different_steps():
    optimizer = several()
    params, state = go_on(optimizer, PARAMS, optimizer.init(PARAMS), 5)
    inner = state.inner_states["adam"].inner_state
    state.inner_states["adam"] = state.inner_states["adam"]._replace(
        inner_state=inner._replace(count=inner.count + 1)
    )
    refused("completed different steps", jax_state.state_of, LAZY_ADAM, state, params)


def test_states_that_do_not_fit():
    """Names that occur twice, slots of other shapes and steps that are no whole numbers."""
    record = MOMENTUM
    optimizer = JaxOptimizer(record, "exact")
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
