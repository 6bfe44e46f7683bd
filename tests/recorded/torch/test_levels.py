"""Tests which level an optimizer of PyTorch chooses, and what it says."""

import copy
import logging
import warnings

import pytest
import torch

from legacy_opt.recorded import native
from legacy_opt.recorded.torch import RecordedOptimizer
from tests.recorded.references import LAZY_ADAM, refused


@pytest.fixture(autouse=True)
def says_again(caplog):
    native._log.cache_clear()
    caplog.set_level(logging.INFO, "legacy_opt")


def made(device="cpu", **arguments):
    """Returns an optimizer of two parameters that have gradients."""
    parameters = [torch.nn.Parameter(torch.ones(3, 2, device=device)) for _ in range(2)]
    for each in parameters:
        each.grad = torch.ones_like(each)
    return RecordedOptimizer(parameters, LAZY_ADAM, **arguments)


def stepped(optimizer, step=None):
    (step or optimizer.step)()
    return [each.detach().clone() for each in optimizer.param_groups[0]["params"]]


def test_native_is_chosen_in_the_memory_of_the_processor(caplog):
    optimizer, exact = made(), made(level="exact")
    assert (optimizer.level, exact.level, made(level="fast").level) == ("native", "exact", "fast")
    made()
    assert [each.getMessage() for each in caplog.records] == [
        'recorded rules: the level is "native"'
    ]
    assert all(map(torch.equal, stepped(optimizer), stepped(exact)))
    assert optimizer._kernels._known is not None  # kernels ran
    assert copy.deepcopy(optimizer).level == "native"
    optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(2))]})
    later = {"params": [torch.nn.Parameter(torch.ones(2, device="meta"))]}
    refused("native kernels cannot train on meta", optimizer.add_param_group, later)
    assert len(optimizer.param_groups) == 2


@pytest.mark.usefixtures("no_compiler")
def test_exact_is_chosen_where_there_is_no_kernel(caplog):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer, _ = made(), made()
    assert optimizer.level == "exact"
    (said,) = caplog.records
    assert said.levelno == logging.WARNING and "There is no C++ compiler" in said.getMessage()
    assert all(map(torch.equal, stepped(optimizer), stepped(made(level="exact"))))
    refused("There is no C++ compiler", made, level="native")


def test_exact_is_chosen_on_other_devices(caplog):
    assert made("meta").level == "exact"
    (said,) = caplog.records
    assert said.levelno == logging.INFO and "cannot train on meta" in said.getMessage()
    refused("native kernels cannot train on meta", made, "meta", level="native")


def test_a_parameter_that_moves_is_refused():
    optimizer = made()
    optimizer.step()
    parameter = optimizer.param_groups[0]["params"][0]
    moved = torch.nn.Parameter(torch.ones(3, 2, device="meta"))
    moved.grad = torch.ones(3, 2, device="meta")
    torch.utils.swap_tensors(parameter, moved)  # as in `Module.to`
    refused("native kernels cannot train on meta", optimizer.step)


def test_a_compiled_step_runs_kernels():
    optimizer = made()
    step = torch.compile(optimizer.step)
    exact = made(level="exact")
    for _ in range(3):
        assert all(map(torch.equal, stepped(optimizer, step), stepped(exact)))
    assert optimizer._kernels._known is not None
