"""Tests that optax' own optimizers go on with the state of a recorded rule."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.tree_util import keystr

from legacy_opt.recorded import optax_own
from tests.recorded.references import check_grades, continued, new_state, refused

GRADES = {
    "AdaBeliefOptimizer": "exact",
    "AdadeltaOptimizer": "exact",
    "AdagradOptimizer": "exact",
    "AdamOptimizer": "rounding",
    "GradientDescentOptimizer": "exact",
    "LionOptimizer": "exact",
    "MomentumOptimizer": "exact",
    "RMSPropOptimizer": "rounding",
    "RectifiedAdamOptimizer": "exact",
    "YogiOptimizer": "rounding",
}


@pytest.mark.parametrize("name", GRADES)
def test_the_same_optimizer_goes_on(name, tmp_path):
    state, momentum, gradients, check = continued(name)
    own, path = optax_own.from_state(state, **momentum), tmp_path / "state.npz"
    assert own.grade.name == GRADES[name], own.grade
    optax_own.write(path, state, **momentum)
    with np.load(str(path)) as leaves:
        opt_state = jax.tree_util.tree_map_with_path(
            lambda place, _: jnp.asarray(leaves["opt_state" + keystr(place)]),
            own.transformation.init(own.params),
        )
    params = own.params
    for gradient in gradients:
        updates, opt_state = own.transformation.update({"w": gradient}, opt_state, params)
        params = optax.apply_updates(params, updates)
    check(np.asarray(params["w"]))


def test_other_optimizers_are_refused():
    state, other = new_state("AdamOptimizer"), new_state("NadamOptimizer")
    refused("optax.adam is another optimizer", optax_own.from_state, state, epsilon=0.1)
    refused("optax has no optimizer like NadamOptimizer", optax_own.from_state, other)


def test_the_worst_case_decides_on_a_grade():
    check_grades(lambda state: optax_own.from_state(state).grade)
