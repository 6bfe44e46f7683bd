"""Tests trainings with recorded rules in PyTorch: groups, schedules and saved state."""

import copy
import functools
import io
import json

import numpy as np
import pytest
import torch

from legacy_opt import recorded
from legacy_opt.recorded import torch_state
from legacy_opt.recorded.numpy import NumpyOptimizer
from legacy_opt.recorded.torch import RecordedOptimizer
from tests.recorded.references import LAZY_ADAM, in_numpy, refused, through_a_file

BATCHES = torch.randn(10, 5, 3, generator=torch.Generator().manual_seed(0))


def build(level="exact"):
    """Returns a model, an optimizer with two groups, and a learning rate schedule."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    kernels, biases = [model[0].weight, model[2].weight], [model[0].bias, model[2].bias]
    groups = [{"params": kernels, "axes": (1, 0)}, {"params": biases, "lr": 0.05}]
    optimizer = RecordedOptimizer(groups, LAZY_ADAM, level=level, learning_rate=0.01)
    return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)


def loaded(saved, weights_only=True):
    """Returns an object that was saved and loaded."""
    file = io.BytesIO()
    torch.save(saved, file)
    file.seek(0)
    return torch.load(file, weights_only=weights_only)


def train(model, optimizer, schedule, batches):
    """Trains with a closure."""

    def loss_of(batch):
        optimizer.zero_grad()
        loss = model(batch).pow(2).sum()
        loss.backward()
        return loss

    for batch in batches:
        assert optimizer.step(functools.partial(loss_of, batch)) > 0
        schedule.step()


def step_with_ones(*optimizers):
    """Makes a step with gradients of ones; all optimizers must then have the same parameters."""
    found = []
    for optimizer in optimizers:
        parameters = [each for group in optimizer.param_groups for each in group["params"]]
        for parameter in parameters:  # copies have no gradients
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        found.append(parameters)
        assert all(map(torch.equal, found[0], parameters))


def test_a_training_goes_on_from_a_file():
    whole, first, second = build(), build(), build()
    train(*whole, BATCHES)
    train(*first, BATCHES[:4])
    for each, state in zip(second, loaded([each.state_dict() for each in first])):
        each.load_state_dict(state)
    train(*first, BATCHES[4:])  # must not change the second training
    train(*second, BATCHES[4:])
    for one, other, third in zip(*(each[0].parameters() for each in (whole, first, second))):
        assert torch.equal(one, other) and torch.equal(one, third)
    assert [group["lr"] for group in whole[1].param_groups] == [0.01 / 32, 0.05 / 32]
    assert whole[1].slots(whole[0][0].weight)["m"].shape == (3, 4)  # as in TensorFlow


def test_a_training_goes_on_from_a_state_file_in_pytorch_and_numpy(tmp_path):
    whole, first, second = build(), build(), build()
    train(*whole, BATCHES)
    train(*first, BATCHES[:4])
    names = dict(first[0].named_parameters())
    state = through_a_file(tmp_path, torch_state.state_of(first[1], names))
    assert state.variables["0.weight"].shape == (3, 4) and state.global_step == 4
    torch_state.load_state(second[1], state, dict(second[0].named_parameters()))
    second[2].load_state_dict(first[2].state_dict())
    for group, saved in zip(second[1].param_groups, first[1].param_groups):
        group["lr"] = saved["lr"]  # a state has no values of hyperparameters
    train(*second, BATCHES[4:])
    for one, other in zip(whole[0].parameters(), second[0].parameters()):
        assert torch.equal(one, other)
    optimizer, weights = in_numpy(state)
    for group in first[1].param_groups:
        group["lr"] = optimizer.hyperparameters["learning_rate"]
    for _ in range(3):
        step_with_ones(first[1])
        optimizer.step({name: np.ones_like(array) for name, array in weights.items()})
    for name, array in torch_state.state_of(first[1], names).variables.items():
        assert np.array_equal(array, weights[name])


def test_variables_that_are_not_trained():
    """Moving averages are in a state, if they have names."""
    layer, norm = torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)
    optimizer = RecordedOptimizer([("w", layer.weight)], LAZY_ADAM, "exact")
    names = {"net/moving_mean": norm.running_mean, "kernel": layer.weight, "b": layer.bias}
    norm.running_mean.fill_(7)
    state = torch_state.state_of(optimizer, names)
    assert set(state.slots) == {"kernel"} and set(state.variables) == set(names)
    for tensor in names.values():
        tensor.detach().zero_()
    torch_state.load_state(optimizer, state, names)
    for name, tensor in names.items():
        assert np.array_equal(tensor.detach().numpy(), state.variables[name])
    assert norm.running_mean.tolist() == [7] * 4
    for problem, name, tensor in (
        ("the state has no variable 'x'", "x", norm.running_mean),
        ("'b' is float32 of the shape [3], expected float32 of the shape [4]", "b", torch.ones(3)),
        ("'b' is float64", "b", torch.ones(4, dtype=torch.float64)),
    ):
        wrong = {"kernel": layer.weight, name: tensor}
        refused(problem, torch_state.load_state, optimizer, state, wrong)
    wrong = {"w": norm.running_mean}
    refused("two parameters have the name 'w'", torch_state.state_of, optimizer, wrong)


def test_integers():
    """Counts keep their dtype, although PyTorch casts all state to the parameter's."""
    record = recorded.load("AdagradDecayOptimizer")
    parameters = [torch.nn.Parameter(torch.ones(3, 2)) for _ in range(2)]
    one, other = (RecordedOptimizer([each], record, "exact") for each in parameters)
    parameters[0].grad = torch.ones(3, 2)
    one.step()
    other.load_state_dict(one.state_dict())
    assert other.slots(parameters[1])["accumulator_decay_power"].dtype == torch.int64


def test_rows_without_a_gradient_do_not_change_and_equal_ids_are_added():
    table = torch.nn.Embedding(10, 3, sparse=True)
    before = table.weight.detach().clone()
    optimizer = RecordedOptimizer(table.parameters(), LAZY_ADAM, "exact")
    table(torch.tensor([1, 1, 3])).sum().backward()
    optimizer.step()
    changed = (table.weight.detach() != before).any(1)
    assert changed.tolist() == [number in (1, 3) for number in range(10)]
    m = optimizer.slots(table.weight)["m"][:, 0]
    assert torch.allclose(m[[0, 1, 3]], torch.tensor([0.0, 0.2, 0.1]))


def test_native_level():
    """Native kernels compute the same, also with axes, which are not contiguous."""
    exact, native = build(), build("native")
    for each in exact, native:
        train(*each, BATCHES)
    assert all(map(torch.equal, *(each[0].parameters() for each in (exact, native))))
    assert native[0][0].weight._version > 0
    parameter = torch.nn.Parameter(torch.ones(3))
    parameter.grad_dtype = None
    parameter.grad = torch.ones(3, dtype=torch.float64)
    refused("the gradient is float64", RecordedOptimizer([parameter], native[1].record).step)
    step_with_ones(native[1], copy.deepcopy(native[1]))


def test_copies_and_pickles_train_as_the_original():
    _, optimizer, _ = build()
    step_with_ones(optimizer)
    copies = [copy.deepcopy(optimizer), loaded(optimizer, weights_only=False)]
    step_with_ones(optimizer, *copies)


def test_slots_that_exchange_values():
    """A slot that takes the old value of another slot does not get the new one."""
    document = json.loads(recorded.dumps(recorded.load("MomentumOptimizer")))
    for group in document["groups"]:
        program = group["dense"]
        group["slots"]["old"] = dict(group["slots"]["momentum"], suffix="old")
        (node,) = [
            i for i, each in enumerate(program["nodes"]) if each[4:] == [["slot", "momentum"]]
        ]
        program["changes"]["old"] = ["assign", node]
    record = recorded.loads(json.dumps(document))
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = RecordedOptimizer([parameter], record, "exact", momentum=1.0)
    parameter.grad = torch.ones(2)
    for _ in range(3):
        optimizer.step()
    slots = optimizer.slots(parameter)
    assert (slots["momentum"].tolist(), slots["old"].tolist()) == ([3, 3], [2, 2])


def test_order_of_equal_ids():
    """A compiled step adds the rows of an id in their order, too."""
    torch.manual_seed(0)
    parameter = torch.nn.Parameter(torch.zeros(100, 4))
    record = recorded.load("GradientDescentOptimizer")
    step = RecordedOptimizer([parameter], record, "exact", learning_rate=1.0).step
    ids, rows = torch.randint(0, 50, (1, 20000)), torch.randn(20000, 4)
    found = []
    for each in [step] + 9 * [torch.compile(step)]:
        parameter.data.zero_()
        parameter.grad = torch.sparse_coo_tensor(ids, rows, parameter.shape)
        each()
        found.append(parameter.detach().clone())
    assert all(torch.equal(each, found[0]) for each in found)


@pytest.mark.parametrize("name", ["LAMBOptimizer", "AdafactorOptimizer", "AdagradDecayOptimizer"])
def test_parameters_without_elements_are_left_alone(name):
    parameter = torch.nn.Parameter(torch.ones(0, 3))
    parameter.grad = torch.ones(0, 3)
    RecordedOptimizer([parameter], recorded.load(name), "exact").step()


@pytest.mark.parametrize("level", ["exact", "native"])
def test_groups_that_come_later(level):
    """A group goes on with the step and the powers of the others, as variables of TensorFlow do."""
    record = recorded.load("AdamOptimizer")
    weights = {name: np.ones((3, 2), "f4") for name in "ab"}
    reference = NumpyOptimizer(record, weights)
    a, b = (torch.nn.Parameter(torch.ones(3, 2)) for _ in range(2))
    optimizer = RecordedOptimizer([("a", a)], record, level=level)
    for step in range(20):
        gradients = {"a": np.full((3, 2), step + 1, "f4")}
        if step == 10:
            optimizer.add_param_group({"params": [("b", b)]})
        if step >= 10:
            gradients["b"] = gradients["a"] / 2
            b.grad = torch.from_numpy(gradients["b"])
        a.grad = torch.from_numpy(gradients["a"])
        optimizer.step()
        reference.step(gradients)
    state = torch_state.state_of(optimizer)
    assert state.global_step == 20
    assert all(np.array_equal(state.variables[name], weights[name]) for name in "ab")
    other = {"params": [("c", torch.nn.Parameter(torch.ones(3, 2)))], "beta1": 0.5}
    refused("must have the betas", optimizer.add_param_group, other)
    groups = [{"params": [("a", a)]}, dict(other, params=[("b", b)])]
    powers = [
        each["beta1_power"] for each in RecordedOptimizer(groups, record, "exact").param_groups
    ]
    np.testing.assert_array_equal(powers, np.array([0.9, 0.5], "f4"))
