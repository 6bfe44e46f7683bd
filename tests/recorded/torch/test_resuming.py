"""Tests comparisons of states of PyTorch around a save and a load."""

import numpy as np
import torch

from legacy_opt import proofs, recorded
from legacy_opt.compat import cli
from legacy_opt.recorded import state_files, torch_own
from legacy_opt.recorded.numpy import NumpyOptimizer
from tests.proofs.test_resuming import first_of, trained


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


def test_axes_of_torch(tmp_path):
    state, _ = trained()
    kernel = next(name for name, x in state.variables.items() if x.ndim == 2)
    slots, variables = {}, {}
    for i, (name, each) in enumerate(state.slots.items()):
        turned = [x.T.copy() for x in (state.variables[name], each["m"], each["v"])]
        variables[name], m, v = map(torch.from_numpy, turned)
        slots[i] = {"step": torch.tensor(3.0), "exp_avg": m, "exp_avg_sq": v}
    group = {"lr": 0.1, "params": list(slots)}
    theirs = {"model": variables, "optimizer": {"state": slots, "param_groups": [group]}}
    resumed = proofs.resume(state, theirs)
    assert resumed.findings == []
    assert f"{kernel} has its axes in the order [1, 0]" in resumed.notes
    number = list(state.slots).index(kernel)
    slots[number]["exp_avg"] = slots[number]["exp_avg"].t().reshape(slots[number]["exp_avg"].shape)
    found = first_of(state, theirs)
    assert found[:3] == (kernel, "exp_avg", "transposed")


def test_files_of_own_optimizers(tmp_path):
    variables = {name: np.ones((3, 2), "float32") for name in "wb"}
    optimizer = NumpyOptimizer(recorded.load("AdagradOptimizer"), variables, learning_rate=0.1)
    optimizer.step({name: np.arange(6, dtype="float32").reshape(3, 2) for name in "wb"})
    state, path = state_files.state_of(optimizer), tmp_path / "own.pt"
    torch_own.write(path, state, learning_rate=0.1)
    assert proofs.resume(state, path).findings == []
    content = torch.load(str(path), weights_only=True)
    content["optimizer"]["state"][0]["sum"].fill_(0.1)
    torch.save(content, str(path))
    assert first_of(state, path).text == "sum of w is lost: all elements are 0.1"


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
