"""Checks `legacy_opt.recorded.torch` with PyTorch: groups, schedules and saved state."""

import copy
import functools
import io
import itertools
import json
import tempfile
import types
from pathlib import Path

import numpy as np
import operation_records
import torch
from leave_checks import (
    check_grades,
    new_state,
    own_trainings,
    refused,
    run,
    with_other_hyperparameters,
)

from legacy_opt import recorded
from legacy_opt.recorded import state_files, torch_own, torch_state
from legacy_opt.recorded.numpy import NumpyOptimizer
from legacy_opt.recorded.torch import RecordedOptimizer

BATCHES = torch.randn(10, 5, 3, generator=torch.Generator().manual_seed(0))


def build(level="exact"):
    """Returns a model, an optimizer with two groups, and a learning rate schedule."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    kernels, biases = [model[0].weight, model[2].weight], [model[0].bias, model[2].bias]
    groups = [{"params": kernels, "axes": (1, 0)}, {"params": biases, "lr": 0.05}]
    record = recorded.load("LazyAdamOptimizer")
    optimizer = RecordedOptimizer(groups, record, level=level, learning_rate=0.01)
    return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)


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


def check_saved_state():
    """A training that continues from a file computes the same."""
    whole, first, second = build(), build(), build()
    train(*whole, BATCHES)
    train(*first, BATCHES[:4])
    file = io.BytesIO()
    torch.save([each.state_dict() for each in first], file)
    file.seek(0)
    for each, state in zip(second, torch.load(file, weights_only=True)):
        each.load_state_dict(state)
    train(*first, BATCHES[4:])  # must not change the second training
    train(*second, BATCHES[4:])
    for one, other, third in zip(*(each[0].parameters() for each in (whole, first, second))):
        assert torch.equal(one, other) and torch.equal(one, third)
    assert [group["lr"] for group in whole[1].param_groups] == [0.01 / 32, 0.05 / 32]
    assert whole[1].slots(whole[0][0].weight)["m"].shape == (3, 4)  # as in TensorFlow


def check_state_files():
    """A training continues from a state file, in PyTorch and in NumPy."""
    whole, first, second = build(), build(), build()
    train(*whole, BATCHES)
    train(*first, BATCHES[:4])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "state.npz")
        state_files.write(path, torch_state.state_of(first[1], dict(first[0].named_parameters())))
        state = state_files.read(path)
    assert state.variables["0.weight"].shape == (3, 4) and state.global_step == 4
    torch_state.load_state(second[1], state, dict(second[0].named_parameters()))
    second[2].load_state_dict(first[2].state_dict())
    for group, saved in zip(second[1].param_groups, first[1].param_groups):
        group["lr"] = saved["lr"]  # a state has no values of hyperparameters
    train(*second, BATCHES[4:])
    for one, other in zip(whole[0].parameters(), second[0].parameters()):
        assert torch.equal(one, other)
    weights = {name: state.variables[name].copy() for name in state.slots}
    in_numpy = NumpyOptimizer(state.record, weights)
    state_files.load_into(in_numpy, state)
    names = dict(first[0].named_parameters())
    for group in first[1].param_groups:
        group["lr"] = in_numpy.hyperparameters["learning_rate"]
    for parameter in names.values():
        parameter.grad = torch.ones_like(parameter)
    for _ in range(3):
        first[1].step()
        in_numpy.step({name: np.ones_like(array) for name, array in weights.items()})
    for name, array in torch_state.state_of(first[1], names).variables.items():
        assert np.array_equal(array, weights[name])


def check_variables_that_are_not_trained():
    """Moving averages are in a state, if they have names."""
    layer, norm = torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)
    record = recorded.load("LazyAdamOptimizer")
    optimizer = RecordedOptimizer([("w", layer.weight)], record)
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


def check_integers():
    """Counts keep their dtype, although PyTorch casts all state to the parameter's."""
    record = recorded.load("AdagradDecayOptimizer")
    parameters = [torch.nn.Parameter(torch.ones(3, 2)) for _ in range(2)]
    one, other = (RecordedOptimizer([each], record) for each in parameters)
    parameters[0].grad = torch.ones(3, 2)
    one.step()
    other.load_state_dict(one.state_dict())
    assert other.slots(parameters[1])["accumulator_decay_power"].dtype == torch.int64


def check_sparse_gradients():
    """Rows without a gradient do not change, and equal ids are added."""
    table = torch.nn.Embedding(10, 3, sparse=True)
    before = table.weight.detach().clone()
    optimizer = RecordedOptimizer(table.parameters(), recorded.load("LazyAdamOptimizer"))
    table(torch.tensor([1, 1, 3])).sum().backward()
    optimizer.step()
    changed = (table.weight.detach() != before).any(1)
    assert changed.tolist() == [number in (1, 3) for number in range(10)]
    m = optimizer.slots(table.weight)["m"][:, 0]
    assert torch.allclose(m[[0, 1, 3]], torch.tensor([0.0, 0.2, 0.1]))


def check_native_level():
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
    copied = copy.deepcopy(native[1])
    for one, other in zip(native[1].param_groups, copied.param_groups):
        for parameter in one["params"] + other["params"]:
            parameter.grad = torch.ones_like(parameter)
    for each in native[1], copied:
        each.step()
    for one, other in zip(native[1].param_groups, copied.param_groups):
        assert all(map(torch.equal, one["params"], other["params"]))


def check_copies():
    """Copies and pickles train as the original."""
    model, optimizer, _ = build()
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    file = io.BytesIO()
    torch.save(optimizer, file)
    file.seek(0)
    copies = [copy.deepcopy(optimizer), torch.load(file, weights_only=False)]
    for each in [optimizer, *copies]:
        for group in each.param_groups:
            for parameter in group["params"]:  # copies have no gradients
                parameter.grad = torch.ones_like(parameter)
        each.step()
    for each in copies:
        for group, own in zip(each.param_groups, optimizer.param_groups):
            assert all(map(torch.equal, group["params"], own["params"]))


def check_slots_that_exchange_values():
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
    optimizer = RecordedOptimizer([parameter], record, momentum=1.0)
    parameter.grad = torch.ones(2)
    for _ in range(3):
        optimizer.step()
    slots = optimizer.slots(parameter)
    assert (slots["momentum"].tolist(), slots["old"].tolist()) == ([3, 3], [2, 2])


def check_order_of_equal_ids():
    """A compiled step adds the rows of an id in their order, too."""
    torch.manual_seed(0)
    parameter = torch.nn.Parameter(torch.zeros(100, 4))
    record = recorded.load("GradientDescentOptimizer")
    step = RecordedOptimizer([parameter], record, learning_rate=1.0).step
    ids, rows = torch.randint(0, 50, (1, 20000)), torch.randn(20000, 4)
    found = []
    for each in [step] + 9 * [torch.compile(step)]:
        parameter.data.zero_()
        parameter.grad = torch.sparse_coo_tensor(ids, rows, parameter.shape)
        each()
        found.append(parameter.detach().clone())
    assert all(torch.equal(each, found[0]) for each in found)


def check_empty():
    """Parameters without elements are left alone."""
    for name in "LAMBOptimizer", "AdafactorOptimizer", "AdagradDecayOptimizer":
        parameter = torch.nn.Parameter(torch.ones(0, 3))
        parameter.grad = torch.ones(0, 3)
        RecordedOptimizer([parameter], recorded.load(name)).step()


def check_hyperparameters():
    """Records follow other values, given by name or by group; others are refused."""
    for record, hyper, gradients, expected in with_other_hyperparameters():
        group = {"lr" if name == "learning_rate" else name: each for name, each in hyper.items()}
        for level, of_all, of_group in ("exact", hyper, {}), ("native", {}, group):
            parameter = torch.nn.Parameter(torch.ones(4, 3))
            groups = [{"params": [parameter], **of_group}]
            optimizer = RecordedOptimizer(groups, record, level=level, **of_all)
            for gradient in gradients:
                parameter.grad = torch.from_numpy(gradient)
                optimizer.step()
            assert np.array_equal(parameter.detach().numpy(), expected), (record.optimizer, level)
        refused("no hyperparameter 'nothing'", RecordedOptimizer, [parameter], record, nothing=1.0)
        refused("no hyperparameter 'x'", RecordedOptimizer, [{**groups[0], "x": 1}], record)
        for name in record.fixed:
            for given, kwargs in (groups, {name: 0.5}), ([{**groups[0], name: 0.5}], {}):
                refused(f"{name} was 0.0 when", RecordedOptimizer, given, record, **kwargs)
            RecordedOptimizer(groups, record, **{name: 0.0})
            optimizer.param_groups[0][name] = 0.5
            refused(f"{name} was 0.0 when", optimizer.step)
    record = recorded.load("AdamOptimizer")
    groups = [{"params": [torch.nn.Parameter(torch.ones(2))], "beta1": each} for each in (0.5, 0.8)]
    optimizer = RecordedOptimizer(groups, record)
    powers = [each["beta1_power"] for each in optimizer.param_groups]
    assert torch.equal(torch.stack(powers), torch.tensor([0.5, 0.8]))
    refused("epsilon must be a number", RecordedOptimizer, [{**groups[0], "epsilon": "1"}], record)


GRADES = {
    "AdadeltaOptimizer": "exact",
    "AdagradOptimizer": "rounding",
    "AdamOptimizer": "rounding",
    "GradientDescentOptimizer": "rounding",
    "MomentumOptimizer": "rounding",
}


def check_own_optimizers():
    """PyTorch's own optimizers go on with a state, if they are the same; else they are refused."""
    for name, state, momentum, gradients, check in own_trainings(GRADES):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "state.pt")
            assert torch_own.write(path, state, **momentum).name == GRADES[name], name
            saved = torch.load(path, weights_only=True)
        parameter = torch.nn.Parameter(saved["variables"]["w"])
        own = getattr(torch.optim, saved["class"])([parameter], lr=9.0)
        own.load_state_dict(saved["optimizer"])
        for gradient in gradients:
            parameter.grad = torch.from_numpy(gradient)
            own.step()
        check(parameter.detach().numpy())
    parameters = {"w": torch.nn.Parameter(torch.zeros(4, 3))}
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


def check_scales():
    """The worst case decides on a grade: small gradients, or rates that fall."""
    parameters = {"w": torch.nn.Parameter(torch.zeros(4, 3))}
    check_grades(lambda state: torch_own.from_state(state, parameters).grade)


def check_slots_that_do_not_fit():
    """Kernels get no slots of parameters that have grown, and no stale gradients."""
    for level, name in itertools.product(
        ("native", "exact", "fast"),
        ("AdamOptimizer", "LazyAdamOptimizer", "MomentumOptimizer", "AdafactorOptimizer"),
    ):
        record = recorded.load(name)

        def trained(*shape, level=level, record=record):
            parameter = torch.nn.Parameter(torch.ones(*shape))
            optimizer = RecordedOptimizer([("w", parameter)], record, level=level)
            parameter.grad = torch.ones(*shape)
            optimizer.step()
            return parameter, optimizer

        parameter, optimizer = trained(4, 3)
        shapes = [(90_000, 3), (3, 4), (2, 3)]
        for shape in shapes if name.startswith("Adaf") else [*shapes, (4,), (12,), (1, 3)]:
            other = trained(*shape)[1].state_dict()
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
    parameter, optimizer = trained(4, 3, level="native", record=recorded.load("AdamOptimizer"))
    for wrong in (
        optimizer.state[parameter]["m"].t().contiguous().t(),
        optimizer.state[parameter]["v"],
        parameter.data,
        torch.ones(4, 3, dtype=torch.float64),
    ):
        optimizer.state[parameter]["m"] = wrong
        refused("'w/m'", optimizer.step)


def check_groups_that_come_later():
    """A group goes on with the step and the powers of the others, as variables of TensorFlow do."""
    for level in ("exact", "native"):
        record = recorded.load("AdamOptimizer")
        weights = {name: np.ones((3, 2), "f4") for name in "ab"}
        in_numpy = NumpyOptimizer(record, weights)
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
            in_numpy.step(gradients)
        state = torch_state.state_of(optimizer)
        assert state.global_step == 20
        assert all(np.array_equal(state.variables[name], weights[name]) for name in "ab"), level
        other = {"params": [("c", torch.nn.Parameter(torch.ones(3, 2)))], "beta1": 0.5}
        refused("must have the betas", optimizer.add_param_group, other)
        groups = [{"params": [("a", a)]}, dict(other, params=[("b", b)])]
        powers = [each["beta1_power"] for each in RecordedOptimizer(groups, record).param_groups]
        np.testing.assert_array_equal(powers, np.array([0.9, 0.5], "f4"))


def check_errors():
    """Wrong arguments raise errors that name them, and change nothing."""
    record = recorded.load("LazyAdamOptimizer")
    one, other = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    refused("no hyperparameter 'rate'", RecordedOptimizer, [one], record, rate=0.1)
    refused(
        "one of exact, fast, native, got 'exakt'", RecordedOptimizer, [one], record, level="exakt"
    )
    group = {"params": [one], "learning_rate": 9.0}
    refused("'learning_rate': write 'lr'", RecordedOptimizer, [group], record)
    groups = [{"params": [("w", each)]} for each in (one, other)]
    refused("two parameters have the name 'w'", RecordedOptimizer, groups, record)
    for twice in [one, one], [("a", one), ("b", one)]:
        refused("a parameter occurs twice in a parameter group", RecordedOptimizer, twice, record)
    optimizer = RecordedOptimizer([("w", one)], record)
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
    clipping = record._replace(clipping=recorded.records.CLIPPINGS[0])
    clipped = types.SimpleNamespace(record=clipping, variables={"w": np.zeros((4, 3), "f4")})
    refused("no optimizer of PyTorch itself clips", torch_own.from_state, clipped, {})
    integer = record._replace(
        hyperparameters=dict(
            record.hyperparameters, learning_rate=recorded.records.Scalar("int32", 1)
        )
    )
    refused("cannot be 0.5", RecordedOptimizer, [one], integer, learning_rate=0.5)

    optimizer = RecordedOptimizer([one, other], record)
    one.grad = torch.ones(2)
    optimizer.step()
    adam = torch.optim.Adam([one, other])
    refused("belongs to another optimizer", optimizer.load_state_dict, adam.state_dict())
    momentum = RecordedOptimizer([one, other], recorded.load("MomentumOptimizer"))
    momentum.step()
    refused("belongs to another optimizer", optimizer.load_state_dict, momentum.state_dict())
    before = one.detach().clone()
    dense = record._replace(groups=(record.groups[0]._replace(sparse="no rows", ranks=(0, None)),))
    optimizer = RecordedOptimizer([one, other], dense)
    other.grad = torch.sparse_coo_tensor([[1]], [1.0], (2,))
    refused("no update for sparse gradients: no rows", optimizer.step)
    other.grad = torch.sparse_coo_tensor([[-1]], [1.0], (2,), check_invariants=False)
    refused("is not in [0, 2)", RecordedOptimizer([other], record).step)
    assert torch.equal(one, before)


def check_operations():
    """Each operation has the bits of NumPy; "fast" computes each, too."""
    for name, record in operation_records.records():
        gradient, value = map(torch.from_numpy, operation_records.operands(name, record.dtype))
        expected = operation_records.in_numpy(name, record)
        for level in "exact", "native", "fast":
            parameter = torch.nn.Parameter(value.clone())
            parameter.grad = gradient
            RecordedOptimizer([("w", parameter)], record, level=level).step()
            found = parameter.detach().numpy()
            assert level == "fast" or operation_records.same(found, expected), (name, level)


if __name__ == "__main__":
    run(
        [
            check_operations,
            check_saved_state,
            check_state_files,
            check_variables_that_are_not_trained,
            check_integers,
            check_sparse_gradients,
            check_native_level,
            check_copies,
            check_slots_that_exchange_values,
            check_order_of_equal_ids,
            check_empty,
            check_hyperparameters,
            check_own_optimizers,
            check_scales,
            check_slots_that_do_not_fit,
            check_groups_that_come_later,
            check_errors,
        ]
    )
