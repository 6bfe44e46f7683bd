"""Tests that PyTorch's own optimizers go on with the state of a recorded rule."""

import numpy as np
import pytest
import torch

from legacy_opt import recorded
from legacy_opt.recorded import state_files, torch_own
from legacy_opt.recorded.numpy import NumpyOptimizer
from tests.recorded.references import check_grades, continued, new_state, refused

GRADES = {
    "AdadeltaOptimizer": "exact",
    "AdagradOptimizer": "rounding",
    "AdamOptimizer": "rounding",
    "GradientDescentOptimizer": "rounding",
    "MomentumOptimizer": "rounding",
    "RectifiedAdamOptimizer": "rounding",
}


@pytest.fixture
def parameters():
    return {"w": torch.nn.Parameter(torch.zeros(4, 3))}


@pytest.mark.parametrize("name", GRADES)
def test_the_same_optimizer_goes_on(name, tmp_path):
    state, momentum, gradients, check = continued(name)
    path = tmp_path / "state.pt"
    assert torch_own.write(path, state, **momentum).name == GRADES[name]
    saved = torch.load(path, weights_only=True)
    parameter = torch.nn.Parameter(saved["variables"]["w"])
    own = getattr(torch.optim, saved["class"])([parameter], lr=9.0)
    own.load_state_dict(saved["optimizer"])
    for gradient in gradients:
        parameter.grad = torch.from_numpy(gradient)
        own.step()
    check(parameter.detach().numpy())


def test_other_optimizers_are_refused(parameters):
    state, other = new_state("AdamOptimizer"), new_state("NadamOptimizer")
    from_state = torch_own.from_state
    refused("PyTorch's Adam is another optimizer", from_state, state, parameters, epsilon=0.1)
    refused("no optimizer like NadamOptimizer", from_state, other, parameters)
    refused("no other optimizer has these", from_state, state, parameters, beta2=1.0)
    half = {"w": torch.nn.Parameter(torch.zeros(4, 3, dtype=torch.bfloat16))}
    refused("expected bfloat16", from_state, state, half)
    decayed, plain = (recorded.load(name) for name in ("AdamWOptimizer", "AdamOptimizer"))
    named = decayed._replace(
        groups=(
            decayed.groups[0]._replace(variables={"w": (4, 3)}, ranks=None),
            plain.groups[0]._replace(variables={"table": (1001, 1000)}, ranks=None),
        )
    )
    both = {name: np.zeros(shape, "f4") for name, shape in (("w", (4, 3)), ("table", (1001, 1000)))}
    state = state_files.state_of(NumpyOptimizer(named, both))
    refused("PyTorch's AdamW is another optimizer", from_state, state, parameters)
    refused("the state has no variable 'v'", from_state, state, {"v": parameters["w"]})
    assert not parameters["w"].any()


def test_a_rule_that_clips_is_refused(parameters):
    state = new_state("LazyAdamOptimizer")
    clipping = state.record._replace(clipping=recorded.records.CLIPPINGS[0])
    clipped = state._replace(record=clipping)
    refused("no optimizer of PyTorch itself clips", torch_own.from_state, clipped, parameters)


def test_the_worst_case_decides_on_a_grade(parameters):
    check_grades(lambda state: torch_own.from_state(state, parameters).grade)
