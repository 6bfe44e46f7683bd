"""Tests that `Recorder` records trainings of PyTorch, which the same class replays."""

import pytest
import torch

from legacy_opt import proofs, recorded
from legacy_opt.recorded.torch import RecordedOptimizer
from tests.recorded.references import refused

NAMES = {"table", "0.weight", "0.bias"}


def trained(folder, make, steps=6, sparse=False, change=lambda step, model: None, **options):
    """Returns the run that a recorder has written."""
    torch.manual_seed(0)
    table = torch.nn.Embedding(20, 5, sparse=sparse)
    model = torch.nn.Sequential(torch.nn.Linear(5, 1))
    names = {"table": table.weight, **dict(model.named_parameters())}
    optimizer = make([table.weight] if sparse else [*names.values()])
    recorder = proofs.Recorder(optimizer, names, **options)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    for step in range(steps):
        change(step, model)
        optimizer.zero_grad()
        model(table(torch.randint(0, 20, (8,)))).square().sum().backward()
        optimizer.step()
        schedule.step()
    recorder.write(folder / "run.proof")
    return proofs.read_run(folder / "run.proof")


@pytest.mark.parametrize(
    "name, arguments",
    [
        ("SGD", {"lr": 0.05, "momentum": 0.75, "nesterov": True}),
        ("Adam", {"lr": 0.05, "amsgrad": True}),
        ("Adagrad", {"lr": 0.05, "initial_accumulator_value": 0.1}),
        ("RMSprop", {"lr": 0.05, "centered": True}),
    ],
)
def test_the_same_class_is_equal(tmp_path, name, arguments):
    run = trained(tmp_path, lambda params: getattr(torch.optim, name)(params, **arguments))
    (proof,) = run.proofs.values()
    assert list(run.proofs) == [name] and set(proof.start.variables) == NAMES
    assert proof.hyperparameters[1]["lr"] == 0.05 * 0.9 and not proof.has_rule
    assert run.made["by"] == "recorder" and run.made["versions"]["torch"]
    target = f"torch:torch.optim:{name}"
    assert proofs.replay(proof, proofs.find(target), cause=False).verdict.name == "EQUAL"
    other = proofs.replay(proof, proofs.find(target, {"weight_decay": "0.01"}), cause=False)
    assert other.verdict.name == "DIFFERS"


def test_sparse_gradients(tmp_path):
    run = trained(tmp_path, lambda params: torch.optim.SparseAdam(params, lr=0.05), sparse=True)
    report = proofs.replay(
        run.proofs["SparseAdam"], proofs.find("torch:torch.optim:SparseAdam"), cause=False
    )
    assert report.verdict.name == "EQUAL"


def test_parameter_groups_are_proofs(tmp_path):
    def make(params):
        groups = [{"params": params[:1]}, {"params": params[1:], "betas": (0.5, 0.75)}]
        return torch.optim.Adam(groups, lr=0.05)

    run = trained(tmp_path, make)
    assert list(run.proofs) == ["Adam", "Adam_1"]
    assert run.proofs["Adam_1"].hyperparameters[0]["beta2"] == 0.75
    for proof in run.proofs.values():
        report = proofs.replay(proof, proofs.find("torch:torch.optim:Adam"), cause=False)
        assert report.verdict.name == "EQUAL"


def test_rules(tmp_path):
    """A recorded optimizer has its rule; other trainings may be compared with one."""
    record = recorded.load("AdamOptimizer")
    run = trained(tmp_path, lambda params: RecordedOptimizer([*zip("abc", params)], record))
    (proof,) = run.proofs.values()
    assert proof.record == record and set(proof.start.variables) == NAMES
    assert (
        proofs.replay(proof, proofs.find("legacy-opt:numpy"), cause=False).verdict.name == "EQUAL"
    )


@pytest.mark.parametrize(
    "nesterov, expected", [(False, {"EQUAL", "ROUNDING"}), (True, {"DIFFERS"})]
)
def test_a_training_and_a_rule(tmp_path, nesterov, expected):
    def make(params):
        return torch.optim.SGD(params, lr=0.05, momentum=0.5, nesterov=nesterov)

    proof = trained(tmp_path, make, record="MomentumOptimizer").proofs["SGD"]
    report = proofs.replay(proof, proofs.find("legacy-opt:numpy"), cause=False)
    assert report.verdict.name in expected
    assert any("is not that of the rule" in note for note in report.notes) == nesterov


def test_what_is_left_out(tmp_path):
    def sgd(params):
        return torch.optim.SGD(params, lr=0.05)

    def change(step, model):
        if step == 3:
            with torch.no_grad():
                model[0].bias.add_(1)

    run = trained(tmp_path, sgd, change=change)
    assert len(run.proofs["SGD"].gradients) == 3
    assert run.made["left_out"] == ["step 4 and later: '0.bias' was changed before"]


def test_bounds_and_bad_input(tmp_path):
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([parameter], lr=0.1, momentum=0.5)
    refused("steps must be a number from 1 to", proofs.Recorder, optimizer, steps=0)
    refused("not an optimizer of PyTorch, Keras", proofs.Recorder, parameter)
    refused("neither a file nor a recorded", proofs.Recorder, optimizer, record="Adamm")
    recorder = proofs.Recorder(optimizer, steps=2)
    refused("has seen no step of SGD", recorder.write, tmp_path / "x")
    refused("a closure cannot be recorded", optimizer.step, lambda: 0)
    for _ in range(3):
        parameter.grad = torch.ones(2)
        optimizer.step()
    assert recorder.run().made["left_out"] == ["step 3 and later: steps=2"]
    proofs.Recorder(optimizer)
    refused("make the recorder before the first step", optimizer.step)
