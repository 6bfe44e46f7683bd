"""Tests that proofs judge PyTorch's optimizers and users' classes."""

import json
import sys
import textwrap

import numpy as np
import pytest
import torch

from legacy_opt import proofs, recorded
from legacy_opt.compat import cli
from tests.recorded.references import refused, replayed, trained

START = {"initial_accumulator_value": "0.1", "eps": "0.0"}


def drawn(name, **options):
    return proofs.draw(recorded.load(name), **options)


@pytest.mark.parametrize(
    "rule, cls, mapping, expected",
    [
        ("MomentumOptimizer", "SGD", {}, "EQUAL"),
        ("MomentumOptimizer", "SGD", {"dampening": "0.5"}, ("DIFFERS", 2, "w")),
        ("MomentumOptimizer", "SGD", {"nesterov": "True"}, ("DIFFERS", 1, "w")),
        ("AdadeltaOptimizer", "Adadelta", {}, "ROUNDING"),
        ("AdagradOptimizer", "Adagrad", START, "ROUNDING"),
        ("AdagradOptimizer", "Adagrad", {}, ("DIFFERS", 1, "w")),  # its start and epsilon
        ("RMSPropOptimizer", "RMSprop", {}, ("DIFFERS", 1, "w")),  # its start and epsilon
        ("AdamOptimizer", "Adam", {}, ("DIFFERS", 1, "w")),  # epsilon after the correction
    ],
)
def test_optimizers_of_pytorch(rule, cls, mapping, expected):
    found = replayed(drawn(rule), f"torch:torch.optim:{cls}", **mapping)
    assert found == expected or found[0] == expected


@pytest.mark.parametrize("level", ["exact", "fast", "native"])
def test_recorded_trainings_from_any_state(level):
    names = {"w": "a/b/c:part_0", "b": "a/b/c:part_1"}
    for rule, rows, before in (("Adam", False, 4), ("AdagradDecay", True, 4), ("Adam", True, 0)):
        record = recorded.load(f"{rule}Optimizer")
        proof = trained(record, before, rows=rows, missing=True, new_names=names)
        report = proofs.replay(proof, proofs.find(f"legacy-opt:torch-{level}"))
        assert report.verdict.name in ("EQUAL", "ROUNDING" if level == "fast" else "")
        assert set(report.drift) > {*proof.start.variables} and report.notes == ()


def test_other_optimizers_from_any_state():
    """Where `torch_own` translates the state; others refuse."""
    momentum, adagrad = (trained(recorded.load(f"{x}Optimizer")) for x in ("Momentum", "Adagrad"))
    assert replayed(momentum, "torch:torch.optim:SGD")[0] in ("EQUAL", "ROUNDING")
    assert replayed(momentum, "torch:torch.optim:SGD", nesterov="True")[0] == "DIFFERS"
    assert replayed(adagrad, "torch:torch.optim:Adagrad", eps="0.0")[0] == "ROUNDING"
    refused("record from the first", replayed, momentum, "torch:torch.optim:RMSprop")
    lion = trained(recorded.load("LionOptimizer"))
    refused("PyTorch has no optimizer like Lion", replayed, lion, "torch:torch.optim:Adam")


def test_without_epsilon_adam_is_the_same():
    """It has no other difference than where epsilon is added."""
    proof = drawn("AdamOptimizer", hyperparameters={"epsilon": 0.0})
    assert replayed(proof, "torch:torch.optim:Adam")[0] == "ROUNDING"


def test_sparse_gradients():
    proof = drawn("AdagradOptimizer", rows=True)
    assert replayed(proof, "torch:torch.optim:Adagrad", **START)[0] == "ROUNDING"
    momentum = drawn("MomentumOptimizer", rows=True)  # only touched rows move
    assert replayed(momentum, "torch:torch.optim:SGD") == ("DIFFERS", 2, "table")
    problem = "cannot be judged: RuntimeError: Adam does not support sparse gradients"
    refused(problem, replayed, drawn("AdamOptimizer", rows=True), "torch:torch.optim:Adam")


MODULE = """
    import torch

    class Sound(torch.optim.Optimizer):
        def __init__(self, params, lr, mu):
            super().__init__(params, {"lr": lr, "mu": mu})

        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    self.update(group, p, self.state[p])

        def update(self, group, p, state):
            m = state.setdefault("m", torch.zeros_like(p))
            m.mul_(group["mu"]).add_(p.grad)
            p.data.sub_(group["lr"] * m)

    class InPlace(Sound):
        def update(self, group, p, state):
            super().update(group, p, state)
            p.grad.fill_(7)

    class Raises(Sound):
        def update(self, group, p, state):
            raise MemoryError("no room")

    class Exits(Sound):
        def update(self, group, p, state):
            raise SystemExit(3)

    class AtClassLevel(Sound):
        steps = 0

        def update(self, group, p, state):
            type(self).steps += 1
            p.data.sub_(group["lr"] / self.steps)

    class OneOfTwo(Sound):
        def update(self, group, p, state):
            if p.dim() == 2:
                super().update(group, p, state)

    class FirstRate(Sound):
        def __init__(self, params, lr, mu):
            super().__init__(params, lr, mu)
            self.lr = lr

        def update(self, group, p, state):
            super().update(dict(group, lr=self.lr), p, state)

    class AnotherName(Sound):
        def __init__(self, params, learning_rate, momentum, decay=0.0, rho=0.0):
            super().__init__(params, learning_rate, momentum)
            assert decay == 0.0

    class NoRate(Sound):
        def __init__(self, params, speed, mu):
            torch.optim.Optimizer.__init__(self, params, {"lr": speed, "mu": mu})

    class ByShape(Sound):
        def update(self, group, p, state):
            super().update(group, p, self.state.setdefault(p.shape, {}))

    MOMENTS = {}

    class OfTheModule(Sound):
        def update(self, group, p, state):
            place = [each is p for each in group["params"]].index(True)
            super().update(group, p, MOMENTS.setdefault(place, {}))
"""


@pytest.fixture
def user(tmp_path, monkeypatch):
    (tmp_path / "users_optimizers.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return "torch:users_optimizers:{}".format


def test_classes_of_users(user):
    proof = drawn("MomentumOptimizer")
    before = [{name: x.copy() for name, x in each.items()} for each in proof.gradients]
    momentum = {"mu": "momentum"}
    for name in "Sound", "InPlace":
        assert replayed(proof, user(name), **momentum)[0] == "EQUAL"
    for one, other in zip(before, proof.gradients):
        assert all(np.array_equal(one[name], other[name]) for name in one)
    assert replayed(proof, user("OneOfTwo"), **momentum) == ("DIFFERS", 1, "b")
    assert replayed(proof, user("FirstRate"), **momentum) == ("DIFFERS", 7, "w")
    for name, problem in (
        ("Raises", "cannot be judged: MemoryError: no room"),
        ("Exits", "cannot be judged: SystemExit: 3"),
        ("AtClassLevel", "it is random, or a training changes the next one"),
        ("OfTheModule", "it is random, or a training changes the next one"),
    ):
        refused(problem, replayed, proof, user(name), **momentum)
    assert replayed(proof, user("ByShape"), **momentum) == ("DIFFERS", 1, "c")
    assert replayed(proof, user("AnotherName"))[0] == "EQUAL"
    no_rate = dict(momentum, speed="learning_rate")
    refused("['speed'] change, but are no keys of ", replayed, proof, user("NoRate"), **no_rate)
    refused("the argument 'mu' has no value: pass --map mu=", replayed, proof, user("Sound"))
    refused("has no attribute 'Nothing'", replayed, proof, user("Nothing"))


def test_the_mode_of_denormal_numbers_is_restored():
    proof = drawn("GradientDescentOptimizer", steps=2)
    for flushes in False, True:
        torch.set_flush_denormal(flushes)
        try:
            assert replayed(proof._replace(flushes_denormals=not flushes), "legacy-opt:torch")
            assert bool((torch.tensor(1e-40) * 1) == 0) == flushes
        finally:
            torch.set_flush_denormal(False)


def test_the_command_needs_no_tensorflow(tmp_path, capsys):
    path = str(tmp_path / "adam.proof")
    assert cli.main(["prove", "draw", "AdamOptimizer", "--out", path]) == 0
    replay = ["prove", "replay", path, "--with"]
    assert cli.main([*replay, "legacy-opt:torch"]) == 0
    assert cli.main([*replay, "tf:legacy_opt:LazyAdamOptimizer"]) == 2
    assert "pip install tensorflow" in capsys.readouterr().err
    assert cli.main([*replay, "torch:torch.optim:Adam", "--json"]) == 1
    facts = json.loads(capsys.readouterr().out)
    assert (facts["verdict"], facts["step"], facts["variable"]) == ("DIFFERS", 1, "w")
    assert facts["cause"].startswith("epsilon is added after the bias correction, as in PyTorch")
    assert facts["notes"][0] == "arguments: lr=learning_rate, betas=beta1,beta2, eps=epsilon"
    assert "amsgrad=False" in facts["notes"][1]
    assert facts["versions"]["torch"] == torch.__version__
