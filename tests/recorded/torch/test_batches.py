"""Tests that steps which join small tensors, and cut large ones, compute the bits of NumPy."""

import numpy as np
import pytest
import torch

from legacy_opt import recorded
from legacy_opt.recorded.numpy import NumpyOptimizer, Rows
from legacy_opt.recorded.torch import RecordedOptimizer, batches

# The shapes of TensorFlow's variables, and the axes of the parameter.
SHAPES = {
    "small": ([3, 4], None),
    "scalar": ([], None),
    "empty": ([0, 3], None),
    "table": ([40, 2], None),  # with a sparse gradient, if the rule has one
    "large": ([50, 7], None),
    "transposed": ([5, 3], (1, 0)),
    "large, transposed": ([31, 11], (1, 0)),
    "wide, transposed": ([2, 3, 200], (2, 0, 1)),
    "vector": ([333], None),
    "of no gradient": ([3, 2], None),
    "last": ([9], None),
}


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(batches, "_ELEMENTS", 50)


def made(name, random):
    """Returns a parameter and a contiguous array of the same values."""
    shape, axes = SHAPES[name]
    array = random.randn(*shape).astype("f4") if shape else np.array(0.5, "f4")
    return torch.nn.Parameter(in_torch(array, axes)), array


def in_torch(array, axes):
    """Returns a tensor of which ``permute(axes)`` is the array; the copies are contiguous."""
    transposed = array if axes is None else array.transpose(np.argsort(axes))
    return torch.from_numpy(np.array(transposed, order="C"))


def gradient_of(name, array, record, step, random):
    """Returns the gradient of a parameter and that of an array, or None."""
    if name == "of no gradient" or (name == "last" and step == 1):
        return None, None
    if name == "table" and not isinstance(record.group_of(name, array.shape).sparse, str):
        ids, rows = random.randint(0, 40, 9), random.randn(9, 2).astype("f4")
        tensors = torch.from_numpy(ids[None]), torch.from_numpy(rows.copy())
        return torch.sparse_coo_tensor(*tensors, array.shape), Rows(ids, rows)
    gradient = np.array(random.randn(*array.shape), "f4")
    if name == "vector":
        gradient[[5, 105, 225]] = np.nan, np.inf, 0
    return in_torch(gradient, SHAPES[name][1]), gradient


@pytest.mark.parametrize("name", sorted(recorded.catalogue()))
@pytest.mark.usefixtures("small_parts")
def test_joined_and_cut_tensors_train_as_in_numpy(name):
    record, random = recorded.load(name), np.random.RandomState(0)
    pairs = {each: made(each, random) for each in SHAPES}
    groups = [
        {
            "params": [(each, pairs[each][0]) for each in SHAPES if SHAPES[each][1] == axes],
            "axes": axes,
        }
        for axes in (None, (1, 0), (2, 0, 1))
    ]
    optimizer = RecordedOptimizer(groups, record, level="exact")
    reference = NumpyOptimizer(record, {each: array for each, (_, array) in pairs.items()})
    for step in range(4):
        gradients = {}
        for each, (parameter, array) in pairs.items():
            parameter.grad, gradients[each] = gradient_of(each, array, record, step, random)
        optimizer.step()
        reference.step({each: grad for each, grad in gradients.items() if grad is not None})
    for each, (parameter, array) in pairs.items():
        axes = SHAPES[each][1]
        found = parameter.detach().permute(axes) if axes else parameter.detach()
        np.testing.assert_array_equal(found.numpy(), array, each)
        if array.size and each != "of no gradient":
            for slot, values in optimizer.slots(parameter, each).items():
                expected = reference.state.slots[each][slot]
                np.testing.assert_array_equal(values.numpy(), expected, f"{each}/{slot}")


@pytest.mark.parametrize("level", ["exact", "fast"])
@pytest.mark.usefixtures("small_parts")
def test_gradients_that_share_memory_with_their_parameter(level):
    """A cut tensor must not change the gradient of its next part."""
    record, memory = recorded.load("MomentumOptimizer"), torch.arange(500.0)
    alone = torch.nn.Parameter(memory[10:].clone())
    alone.grad = memory[:-10].clone()
    shared = torch.nn.Parameter(memory[10:])
    shared.grad = memory[:-10]
    RecordedOptimizer([alone], record, level=level, learning_rate=0.5).step()
    RecordedOptimizer([shared], record, level=level, learning_rate=0.5).step()
    assert torch.equal(alone, shared)


@pytest.mark.parametrize("level", ["exact", "native"])
def test_tensors_that_change_between_steps(level):
    """What is known of tensors holds only for these tensors."""
    record = recorded.load("LazyAdamOptimizer")
    one, other = (torch.nn.Parameter(torch.ones(4)) for _ in range(2))
    optimizer = RecordedOptimizer([one, other], record, level=level)
    for each in one, other:
        each.grad = torch.ones(4)
    optimizer.step()
    one.data = torch.full((4,), 5.0)  # is trained, not the old memory
    optimizer.state[other]["m"] = torch.zeros(4)
    optimizer.step()
    assert (one < 5).all() and (optimizer.state[other]["m"] > 0).all()
    one.data, one.grad = torch.ones(5), None
    one.grad = torch.ones(5)
    with pytest.raises(recorded.RecordError, match=r"expected float32 of the shape \[5\]"):
        optimizer.step()
    one.data, one.grad = torch.ones(4), None
    one.grad = torch.ones(4)
    del optimizer.state[other]["m"]
    with pytest.raises(recorded.RecordError, match="has no slot 'm'"):
        optimizer.step()


def test_parts_of_the_usual_size():
    """The tensors have several parts in threads, and a rest."""
    record, random = recorded.load("AdaBeliefOptimizer"), np.random.RandomState(0)
    arrays = {str(i): random.randn(size).astype("f4") for i, size in enumerate([300_007, 9, 5000])}
    parameters = [
        (name, torch.nn.Parameter(torch.from_numpy(each.copy()))) for name, each in arrays.items()
    ]
    optimizer = RecordedOptimizer(parameters, record, level="exact")
    reference = NumpyOptimizer(record, arrays)
    slots = optimizer.slots(parameters[1][1])
    optimizer.state[parameters[1][1]] = dict(reversed(list(slots.items())))  # another order
    for _ in range(2):
        gradients = {name: random.randn(*each.shape).astype("f4") for name, each in arrays.items()}
        for name, parameter in parameters:
            parameter.grad = torch.from_numpy(gradients[name])
        optimizer.step()
        reference.step(gradients)
    for name, parameter in parameters:
        np.testing.assert_array_equal(parameter.detach().numpy(), arrays[name])
        for slot, values in optimizer.slots(parameter, name).items():
            np.testing.assert_array_equal(values.numpy(), reference.state.slots[name][slot])


@pytest.mark.parametrize("level", ["exact", "fast", "native"])
def test_gradients_that_are_negative_views(level):
    """PyTorch may store the negative of a tensor."""
    parameters = [torch.nn.Parameter(torch.ones(4)) for _ in range(3)]
    optimizer = RecordedOptimizer(
        parameters, recorded.load("GradientDescentOptimizer"), level=level, learning_rate=1.0
    )
    for sign in 1, -1, 1, -1, -1:
        for each in parameters:
            gradient = torch.full((4,), 2.0)
            each.grad = torch._neg_view(gradient) if sign < 0 else gradient
        optimizer.step()
    assert all(each.tolist() == [3.0] * 4 for each in parameters)


@pytest.mark.parametrize("level", ["exact", "native"])
def test_parameters_of_different_programs(level):
    record = recorded.load("MomentumOptimizer")
    (group,), program = record.groups, record.groups[0].dense
    nodes = list(program.nodes)
    nodes[program.value] = nodes[program.value]._replace(operation="Add")
    other = group._replace(ranks=(2, None), dense=program._replace(nodes=tuple(nodes)))
    record = record._replace(groups=(group._replace(ranks=(0, 1)), other))
    arrays = {str(i): np.ones([2] * (i % 2 + 1), np.float32) for i in range(6)}
    parameters = [(name, torch.nn.Parameter(torch.from_numpy(arrays[name]))) for name in arrays]
    optimizer = RecordedOptimizer(parameters, record, level=level, learning_rate=0.5)
    for _, each in parameters:
        each.grad = torch.ones_like(each)
    optimizer.step()
    for _, each in parameters:
        assert (each == (0.5 if each.dim() == 1 else 1.5)).all()
