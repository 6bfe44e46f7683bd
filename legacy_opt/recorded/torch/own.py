"""Translates states to PyTorch's own optimizers, where one is the same. Needs PyTorch."""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple

import numpy as np
import torch

from legacy_opt.durable_files import PathLike, replaced
from legacy_opt.recorded.arrays.interpreter import check_array
from legacy_opt.recorded.neighbours import TORCH, grading
from legacy_opt.recorded.neighbours.grading import Arrays, Grade, Gradients, Rates, Setting
from legacy_opt.recorded.state_files import SavedState, check_variable

__all__ = ["TorchOwn", "from_state"]


class TorchOwn(NamedTuple):
    """One of PyTorch's own optimizers, with the state of a recorded rule.

    Example::

        from legacy_opt.recorded import state_files, torch_own

        state = state_files.read("state.npz")
        names = {"dense/kernel": model.weight, "dense/bias": model.bias}
        own = torch_own.from_state(state, names)
        print(own.grade)
        own.optimizer.step()

    Attributes:
      optimizer: the `torch.optim.Optimizer`.
      grade: how near the training is to the rule's, for dense gradients.
    """

    optimizer: Any
    grade: Grade


def from_state(
    state: SavedState, parameters: Mapping[str, Any], **hyperparameters: float
) -> TorchOwn:
    """Returns PyTorch's own optimizer with a state, if its training is the same up to rounding.

    The parameters get the values of the variables. The comparison is for dense gradients, because
    PyTorch's own optimizers mostly refuse sparse ones.

    Args:
      state: the state.
      parameters: a dict from names of variables to parameters, of the variables' shapes.
      **hyperparameters: other values of hyperparameters.

    Raises:
      RecordError: PyTorch has no such optimizer, or its training differs: the message says by how
        much; or a parameter does not fit. Nothing has been changed.
    """
    for name, parameter in parameters.items():
        check_variable(state, name, parameter)
        check_array(repr(name), state.variables[name], parameter.dtype, parameter.shape)
    setting, grade = grading.chosen(state, TORCH, "PyTorch's {}", _train, hyperparameters)
    return TorchOwn(_optimizer(state, setting, parameters), grade)


def write(path: PathLike, state: SavedState, **hyperparameters: float) -> Grade:
    """Writes a state for PyTorch's own optimizer into a file; returns the grade.

    `torch.load` reads a dict: "variables" (from names to tensors), "optimizer" (the `state_dict`),
    "class" (the name of the class in `torch.optim`) and "names" (of the parameters, in the order of
    the optimizer). The file is complete or not written. Raises errors like `from_state`.
    """
    tensors = {name: torch.from_numpy(np.array(each)) for name, each in state.variables.items()}
    parameters = {name: torch.nn.Parameter(tensors[name]) for name in state.slots}
    own = from_state(state, parameters, **hyperparameters)
    content = {
        "variables": tensors,
        "optimizer": own.optimizer.state_dict(),
        "class": type(own.optimizer).__name__,
        "names": list(parameters),
    }
    with replaced(path) as temporary:
        torch.save(content, temporary)
    return own.grade


def _optimizer(state: SavedState, setting: Setting, parameters: Mapping[str, Any]) -> Any:
    optimizer = getattr(torch.optim, setting.name)(list(parameters.values()), **setting.arguments)
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(torch.from_numpy(np.array(state.variables[name])))
            slots = optimizer.state[parameter]
            if setting.name != "SGD":
                slots["step"] = torch.tensor(float(setting.step))
            for ours, theirs in setting.slots.items():
                array = np.array(state.slots[name][ours])
                slots[theirs] = torch.from_numpy(array).to(parameter.device)
    return optimizer


def _train(state: SavedState, setting: Setting, gradients: Gradients, rates: Rates) -> Arrays:
    parameters = {
        name: torch.nn.Parameter(torch.from_numpy(np.array(array)))
        for name, array in state.variables.items()
    }
    optimizer = _optimizer(state, setting, parameters)
    for each, rate in zip(gradients, rates):
        optimizer.param_groups[0]["lr"] = rate
        for name, parameter in parameters.items():
            parameter.grad = torch.from_numpy(np.array(each[name]))
        optimizer.step()
    return {name: parameter.detach().numpy() for name, parameter in parameters.items()}
