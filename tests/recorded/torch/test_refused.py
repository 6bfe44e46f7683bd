"""Tests what recorded rules in PyTorch refuse, and that they change nothing then."""

import copy

import numpy as np
import pytest
import torch

from legacy_opt import recorded
from legacy_opt.recorded.torch import RecordedOptimizer
from tests.recorded import references
from tests.recorded.references import EVERY_RULE, LAZY_ADAM, refused

pytestmark = pytest.mark.filterwarnings("ignore:.* parameter group with duplicate parameters")


@EVERY_RULE
@pytest.mark.parametrize("by, level", [("name", "exact"), ("group", "native")])
def test_other_values_of_hyperparameters(name, by, level):
    """Records follow other values; where they cannot, these are refused."""
    record, hyper, gradients, expected = references.with_other_hyperparameters(name)
    group = {"lr" if name == "learning_rate" else name: each for name, each in hyper.items()}
    of_all, of_group = (hyper, {}) if by == "name" else ({}, group)
    parameter = torch.nn.Parameter(torch.ones(4, 3))
    groups = [{"params": [parameter], **of_group}]
    optimizer = RecordedOptimizer(groups, record, level=level, **of_all)
    for gradient in gradients:
        parameter.grad = torch.from_numpy(gradient)
        optimizer.step()
    assert np.array_equal(parameter.detach().numpy(), expected)
    refused("no hyperparameter 'nothing'", RecordedOptimizer, [parameter], record, nothing=1.0)
    refused("no hyperparameter 'x'", RecordedOptimizer, [{**groups[0], "x": 1}], record)
    for name in record.fixed:
        for given, kwargs in (groups, {name: 0.5}), ([{**groups[0], name: 0.5}], {}):
            refused(f"{name} was 0.0 when", RecordedOptimizer, given, record, **kwargs)
        RecordedOptimizer(groups, record, **{name: 0.0})
        optimizer.param_groups[0][name] = 0.5
        refused(f"{name} was 0.0 when", optimizer.step)
        optimizer.param_groups[0][name] = 0.0


def test_hyperparameters_of_groups():
    record = recorded.load("AdamOptimizer")
    groups = [{"params": [torch.nn.Parameter(torch.ones(2))], "beta1": each} for each in (0.5, 0.8)]
    optimizer = RecordedOptimizer(groups, record)
    powers = [each["beta1_power"] for each in optimizer.param_groups]
    assert torch.equal(torch.stack(powers), torch.tensor([0.5, 0.8]))
    refused("epsilon must be a number", RecordedOptimizer, [{**groups[0], "epsilon": "1"}], record)


def trained(record, level, *shape):
    """Returns a parameter and its optimizer after a step."""
    parameter = torch.nn.Parameter(torch.ones(*shape))
    optimizer = RecordedOptimizer([("w", parameter)], record, level=level)
    parameter.grad = torch.ones(*shape)
    optimizer.step()
    return parameter, optimizer


@pytest.mark.parametrize("level", ["native", "exact", "fast"])
@pytest.mark.parametrize(
    "name", ["AdamOptimizer", "LazyAdamOptimizer", "MomentumOptimizer", "AdafactorOptimizer"]
)
def test_slots_of_parameters_that_have_grown(name, level):
    """Kernels get no slots that do not fit, and no stale gradients."""
    record = recorded.load(name)
    parameter, optimizer = trained(record, level, 4, 3)
    shapes = [(90_000, 3), (3, 4), (2, 3)]
    for shape in shapes if name.startswith("Adaf") else [*shapes, (4,), (12,), (1, 3)]:
        other = trained(record, level, *shape)[1].state_dict()
        refused("expected float32 of the shape", optimizer.load_state_dict, other)
    before = copy.deepcopy(optimizer.state_dict())
    parameter.data = torch.ones(90_000, 3)
    refused("'w': the gradient is float32 of the shape [4, 3]", optimizer.step)
    parameter.grad = torch.ones(90_000, 3)
    refused("expected float32 of the shape", optimizer.step)
    parameter.grad = torch.sparse_coo_tensor([[80_000]], [[1.0] * 3], (90_000, 3))
    refused("expected float32 of the shape", optimizer.step)
    assert torch.equal(parameter.detach(), torch.ones(90_000, 3))
    assert str(optimizer.state_dict()) == str(before)
    del optimizer.state[parameter]  # the way out
    parameter.grad = torch.ones(90_000, 3)
    optimizer.step()


def test_slots_in_wrong_memory():
    parameter, optimizer = trained(recorded.load("AdamOptimizer"), "native", 4, 3)
    for wrong in (
        optimizer.state[parameter]["m"].t().contiguous().t(),
        optimizer.state[parameter]["v"],
        parameter.data,
        torch.ones(4, 3, dtype=torch.float64),
    ):
        optimizer.state[parameter]["m"] = wrong
        refused("'w/m'", optimizer.step)


@pytest.fixture
def pair():
    return [torch.nn.Parameter(torch.ones(2)) for _ in range(2)]


def test_arguments(pair):
    one, other = pair
    make = RecordedOptimizer
    refused("no hyperparameter 'rate'", make, [one], LAZY_ADAM, rate=0.1)
    refused("one of auto, exact, fast, native, got 'exakt'", make, [one], LAZY_ADAM, level="exakt")
    group = {"params": [one], "learning_rate": 9.0}
    refused("'learning_rate': write 'lr'", make, [group], LAZY_ADAM)
    groups = [{"params": [("w", each)]} for each in pair]
    refused("two parameters have the name 'w'", make, groups, LAZY_ADAM)
    for twice in [one, one], [("a", one), ("b", one)]:
        refused("a parameter occurs twice in a parameter group", make, twice, LAZY_ADAM)
    refused("cannot be 0.5", make, [one], references.OF_INTEGERS, learning_rate=0.5)


def test_groups_that_are_added(pair):
    one, other = pair
    optimizer = RecordedOptimizer([("w", one)], LAZY_ADAM)
    for problem, params in (
        ("a parameter occurs twice in a parameter group", [("a", other), ("b", other)]),
        ("two parameters have the name 'w'", [("w", other)]),
        ("float64", [("d", torch.nn.Parameter(torch.ones(2, dtype=torch.float64)))]),
    ):
        refused(problem, optimizer.add_param_group, {"params": params})
    assert len(optimizer.param_groups) == 1
    optimizer.add_param_group({"params": [("a", other)]})
    one.grad, other.grad = torch.ones(2), torch.ones(2)
    optimizer.step()
    assert torch.equal(one, other) and (one < 1).all()


def test_states_of_other_optimizers(pair):
    optimizer = RecordedOptimizer(pair, LAZY_ADAM)
    pair[0].grad = torch.ones(2)
    optimizer.step()
    adam = torch.optim.Adam(pair)
    refused("belongs to another optimizer", optimizer.load_state_dict, adam.state_dict())
    momentum = RecordedOptimizer(pair, recorded.load("MomentumOptimizer"))
    momentum.step()
    refused("belongs to another optimizer", optimizer.load_state_dict, momentum.state_dict())


def test_sparse_gradients(pair):
    one, other = pair
    before = one.detach().clone()
    one.grad = torch.ones(2)
    other.grad = torch.sparse_coo_tensor([[1]], [1.0], (2,))
    refused("sparse gradients: no rows", RecordedOptimizer(pair, references.WITHOUT_ROWS).step)
    other.grad = torch.sparse_coo_tensor([[-1]], [1.0], (2,), check_invariants=False)
    refused("is not in [0, 2)", RecordedOptimizer([other], LAZY_ADAM).step)
    assert torch.equal(one, before)
