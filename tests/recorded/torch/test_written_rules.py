"""Tests that rules written as functions are PyTorch's own, by proofs."""

import pytest
import torch

from legacy_opt import proofs
from legacy_opt.recorded.torch import RecordedOptimizer
from tests.recorded.written_rules import AMSGRAD, NESTEROV, RMSPROP


def rmsprop(parameters, learning_rate, decay, epsilon):
    return torch.optim.RMSprop(parameters, learning_rate, alpha=decay, eps=epsilon)


def nesterov(parameters, learning_rate, momentum):
    return torch.optim.SGD(parameters, learning_rate, momentum=momentum, nesterov=True)


def amsgrad(parameters, learning_rate, beta1, beta2, epsilon):
    return torch.optim.Adam(parameters, learning_rate, (beta1, beta2), epsilon, amsgrad=True)


def trained(proof, make, dtype):
    parameters = {
        name: torch.nn.Parameter(torch.tensor(each, dtype=dtype))
        for name, each in proof.start.variables.items()
    }
    optimizer = make(list(parameters.values()), **proof.hyperparameters[0])
    ends = {}
    for step, gradients in enumerate(proof.gradients, start=1):
        optimizer.param_groups[0]["lr"] = proof.hyperparameters[step - 1]["learning_rate"]
        for name, parameter in parameters.items():
            parameter.grad = torch.tensor(gradients[name], dtype=dtype)
        optimizer.step()
        ends[step] = {name: each.detach().numpy().copy() for name, each in parameters.items()}
    return ends


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("record", "make"), [(RMSPROP, rmsprop), (NESTEROV, nesterov), (AMSGRAD, amsgrad)]
)
def test_a_written_rule_is_that_of_pytorch(record, make, seed):
    proof = proofs.draw(record, seed)
    found = [trained(proof, make, dtype) for dtype in (torch.float32, torch.float64)]
    assert proofs.judge(proof.ends, *found).name in (proofs.EQUAL, proofs.ROUNDING)


def test_another_formula_is_not():
    def adam(parameters, learning_rate, beta1, beta2, epsilon):
        return torch.optim.Adam(parameters, learning_rate, (beta1, beta2), epsilon)

    proof = proofs.draw(AMSGRAD)
    verdict = proofs.judge(proof.ends, trained(proof, adam, torch.float32))
    assert verdict.name == proofs.DIFFERS


@pytest.mark.parametrize("level", ["native", "exact"])
@pytest.mark.parametrize("record", [RMSPROP, NESTEROV, AMSGRAD])
def test_a_written_rule_trains_with_the_bits_of_numpy(record, level):
    def make(parameters, **hyperparameters):
        return RecordedOptimizer(parameters, record, level=level, **hyperparameters)

    proof = proofs.draw(record)
    found = trained(proof, make, torch.float32)
    assert proofs.judge(proof.ends, found).name == proofs.EQUAL
