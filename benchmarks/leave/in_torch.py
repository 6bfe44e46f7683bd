"""Makes steps of optimizers in PyTorch."""

import torch

from legacy_opt import recorded
from legacy_opt.recorded.torch import RecordedOptimizer

_FACTORS = torch.ones(2, 1000, 1000)


def facts():
    """Returns a dict of facts that the results depend on."""
    return {"torch": torch.__version__, "threads": torch.get_num_threads()}


def operation():
    """Multiplies two matrices in all threads."""
    torch.mm(*_FACTORS)


def step(way, name, case):
    """Returns a function that runs one step of an optimizer with new parameters."""
    parameters = [torch.nn.Parameter(torch.from_numpy(case.numbers(0))) for _ in range(case.count)]
    for parameter in parameters:
        values = torch.from_numpy(case.numbers(1, rows_only=bool(case.rows)))
        if case.rows:
            ids = torch.from_numpy(case.ids())[None]
            values = torch.sparse_coo_tensor(ids, values, case.shape, check_invariants=False)
        parameter.grad = values
    if not way.startswith("torch"):
        return RecordedOptimizer(parameters, recorded.load(name + "Optimizer"), level=way).step
    words = {"fused": True} if way == "torch fused" else {}
    words.update({"momentum": 0.9} if name == "SGD" else {})
    return getattr(torch.optim, name)(parameters, lr=0.001, **words).step
