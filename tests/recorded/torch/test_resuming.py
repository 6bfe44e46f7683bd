"""Tests comparisons of states of PyTorch around a save and a load."""

import numpy as np
import pytest
import torch

from legacy_opt import proofs, recorded
from legacy_opt.compat import cli
from legacy_opt.recorded import state_files, torch_own
from legacy_opt.recorded.numpy import NumpyOptimizer
from tests.proofs.test_resuming import first_of


def saved(path):
    torch.manual_seed(0)
    layers = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.ones(2, 3)).square().sum().backward()
        optimizer.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, str(path))
    return model, optimizer


def test_states_of_pytorch(tmp_path):
    path = tmp_path / "saved.pt"
    model, optimizer = saved(path)
    assert proofs.resume(path, {"model": model, "optimizer": optimizer})[:3] == ("EQUAL", 2, [])
    cold = torch.optim.Adam(model.parameters(), 0.2)
    findings = proofs.resume(path, {"model": model, "optimizer": cold}).findings
    assert findings[0].text == "step of 0.weight is missing"
    assert findings[-1].text == "lr of 1.bias is 0.2 instead of 0.1"
    one, two = model
    other = torch.optim.Adam([*two.parameters(), *one.parameters()], 0.1)
    other.load_state_dict(optimizer.state_dict())
    found = first_of(path, {"model": model, "optimizer": other})
    assert found.text == "exp_avg of 0.weight has the value of exp_avg of 1.weight"
    resumed = proofs.resume(path, other)
    assert (
        resumed.notes[0] == "parameters were compared in their order: the names of one are unknown"
    )
    optimizer.state[one.weight]["exp_avg"] = optimizer.state[one.weight]["exp_avg"].bfloat16()
    torch.save(optimizer.state_dict(), str(tmp_path / "after.pt"))
    found = first_of(path, tmp_path / "after.pt")
    assert found[:3] == ("0.weight", "exp_avg", "cast")


def test_buffers_do_not_hide_another_order(tmp_path):
    model, optimizer = saved(tmp_path / "saved.pt")
    one, two = model
    other = torch.optim.Adam([*two.parameters(), *one.parameters()], 0.1)
    other.load_state_dict(optimizer.state_dict())
    one.register_buffer("mask", torch.ones(5))
    before = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    found = first_of(before, {"model": model, "optimizer": other})
    assert found.text == "exp_avg of 0.weight has the value of exp_avg of 1.weight"
    assert proofs.resume(before, before).notes == []
    before["model"]["0.mask"] = torch.ones(3)  # of the shape of a bias
    note = "parameters were compared in their order: their names are unknown"
    assert proofs.resume(before, before).notes == [note]


def test_files_of_own_optimizers(tmp_path):
    variables = {name: np.ones((3, 2), "float32") for name in "wb"}
    optimizer = NumpyOptimizer(recorded.load("AdagradOptimizer"), variables, learning_rate=0.1)
    optimizer.step({name: np.arange(6, dtype="float32").reshape(3, 2) for name in "wb"})
    path, other = tmp_path / "own.pt", tmp_path / "other.pt"
    torch_own.write(path, state_files.state_of(optimizer), learning_rate=0.1)
    content = torch.load(str(path), weights_only=True)
    torch.save(content, str(other))
    assert proofs.resume(path, other).findings == []
    content["optimizer"]["state"][0]["sum"].fill_(0.1)
    torch.save(content, str(other))
    assert first_of(path, other).text == "sum of w is lost: all elements are 0.1"


def test_a_model_alone(tmp_path):
    model, optimizer = saved(tmp_path / "a.pt")
    assert first_of(model, model.state_dict()) is None
    found = first_of({"model": model, "optimizer": optimizer}, model)
    assert found.text == "step of 0.weight is missing"


def test_exit_codes(tmp_path, capsys):
    path = str(tmp_path / "a.pt")
    _, optimizer = saved(path)
    other = str(tmp_path / "b.pt")
    for group in optimizer.param_groups:
        group["lr"] = 0.5
    torch.save(optimizer.state_dict(), other)
    assert cli.main(["prove", "resume", path, path]) == 0
    assert cli.main(["prove", "resume", path, other]) == 1
    output = capsys.readouterr().out.splitlines()
    assert output[:3] == [
        "EQUAL",
        "DIFFERS: before the first step, after step 2",
        "lr of 0.weight is 0.5 instead of 0.1",
    ]
    with open(other, "wb") as file:
        file.write(b"no file of PyTorch")
    assert cli.main(["prove", "resume", path, other]) == 2
    assert "b.pt' cannot be read: " in capsys.readouterr().err


WEIGHTS = {"w": torch.arange(4.0), "b": torch.arange(2.0)}


def optimizer_of(lr=0.1, **values):
    group = {"lr": lr, "betas": (0.9, 0.99), "weight_decay": 0.5, "params": [0, 1], **values}
    slots = {i: {"exp_avg": x + 1} for i, x in enumerate(WEIGHTS.values())}
    return {"state": slots, "param_groups": [group]}


def without(content, name):
    return {key: each for key, each in content.items() if key != name}


SGD = dict(optimizer_of(), state={})
ADAM = optimizer_of()
NO_DECAY = dict(ADAM, param_groups=[without(ADAM["param_groups"][0], "weight_decay")])
TENSORS = optimizer_of(betas=(torch.tensor(0.5), torch.tensor([0.25])))
NESTED = dict(ADAM, state={0: {"pre": {"0": torch.arange(3.0)}}, 1: {}})
NESTED_2 = dict(ADAM, state={0: {"pre": {"0": torch.arange(3.0) * 2}}, 1: {}})


@pytest.mark.parametrize(
    "before, after, texts",
    [
        (
            {"model": WEIGHTS, "a": SGD},
            {"model": WEIGHTS},
            [
                f"{key} of {name} is missing"
                for name in "wb"
                for key in ("lr", "betas[0]", "betas[1]", "weight_decay")
            ],
        ),
        (
            {"model": WEIGHTS, "a": ADAM},
            {"model": WEIGHTS, "a": NO_DECAY},
            ["weight_decay of w is missing", "weight_decay of b is missing"],
        ),
        (
            {"model": WEIGHTS, "a": ADAM},
            {"model": WEIGHTS, "a": optimizer_of(torch.tensor([0.75]))},
            ["lr of w is 0.75 instead of 0.1", "lr of b is 0.75 instead of 0.1"],
        ),
        (
            {"model": WEIGHTS, "a": ADAM},
            {"model": WEIGHTS, "a": TENSORS},
            [
                f"betas[{i}] of {name} is {new} instead of {old}"
                for name in "wb"
                for i, (new, old) in enumerate([(0.5, 0.9), (0.25, 0.99)])
            ],
        ),
        (
            {"model": WEIGHTS, "a": NESTED},
            {"model": WEIGHTS, "a": NESTED_2},
            ["pre.0 of w differs in 2 of 3 elements"],
        ),
        (
            {"model": WEIGHTS, "a": dict(ADAM, extra={"ema": torch.arange(3.0)})},
            {"model": WEIGHTS, "a": dict(ADAM, extra={"ema": torch.arange(3.0) * 2})},
            ["extra.ema of a differs in 2 of 3 elements"],
        ),
        (
            {"model": WEIGHTS, "flags": {"ema": True, "name": "x"}},
            {"model": WEIGHTS, "flags": {"ema": False, "name": "y"}},
            ["ema of flags is False instead of True", "name of flags is y instead of x"],
        ),
        (dict(WEIGHTS, version=1), dict(without(WEIGHTS, "w"), version=1), ["w is missing"]),
        ({"model": WEIGHTS, "gan": WEIGHTS}, {"model": WEIGHTS}, ["gan is missing"]),
        ({"w": torch.eye(3).to_sparse()}, {"w": torch.eye(3)}, []),
    ],
)
def test_nothing_is_dropped_or_overwritten(tmp_path, before, after, texts):
    for name, content in (("a.pt", before), ("b.pt", after)):
        torch.save(content, str(tmp_path / name))
    resumed = proofs.resume(tmp_path / "a.pt", tmp_path / "b.pt")
    assert [each.text for each in resumed.findings] == texts
    assert resumed.notes == []


@pytest.mark.parametrize(
    "content, error",
    [
        (dict(WEIGHTS, **{"module.w": torch.ones(3)}), "two values for 'w'"),
        ({"model": WEIGHTS, "a": ADAM, "b": ADAM}, "two values for 'exp_avg of w'"),
        ({"w": torch.zeros(1).expand(10**6, 10**6)}, "'w' would need 4,000,000,000,000 bytes"),
        (
            {"model": WEIGHTS, "a": dict(ADAM, state={7: {"step": 1}})},
            r"a.pt': it cannot be read \(KeyError: 7\)",
        ),
        (torch.nn.Linear(1, 1), "other things than tensors and numbers"),
    ],
)
def test_files_that_cannot_be_read(tmp_path, content, error):
    path = tmp_path / "a.pt"
    torch.save(content, str(path))
    with pytest.raises(proofs.ProofError, match=error) as caught:
        proofs.resume(path, path)
    assert "weights_only" not in str(caught.value)
