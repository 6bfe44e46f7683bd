"""Moves states of trainings between files and PyTorch. Needs PyTorch, but no TensorFlow."""

from __future__ import annotations

from typing import Any, Iterator, Mapping, Optional, Tuple

import torch

from legacy_opt.recorded.records import RecordError
from legacy_opt.recorded.state_files import SavedState, check_rule, check_variable, named_variables
from legacy_opt.recorded.torch import RecordedOptimizer, in_tensorflow, named

__all__ = ["load_state", "state_of"]


def state_of(optimizer: RecordedOptimizer, names: Optional[Mapping[str, Any]] = None) -> SavedState:
    """Returns a copy of the state of an optimizer, with the axes of the TensorFlow variables.

    Example::

        from legacy_opt.recorded import state_files, torch_state

        names = {"dense/kernel": model.weight, "dense/bias": model.bias}
        state_files.write("state.npz", torch_state.state_of(optimizer, names))

    Args:
      optimizer: the `RecordedOptimizer`.
      names: a dict from names of variables to parameters. It is not necessary if the optimizer was
        created with names. Tensors that the optimizer does not train, such as moving averages, must
        have the axes of the TensorFlow variables.

    Raises:
      RecordError: a parameter has no name, or parameter groups have completed different steps.
    """
    record = optimizer.record
    variables, slots = {}, {}
    for name, parameter, view, is_trained in _named_parameters(optimizer, names):
        variables[name] = _array(view)
        if is_trained:
            slots[name] = {
                slot: _array(value) for slot, value in optimizer.slots(parameter, name).items()
            }
    keys = ["global_step", *record.shared]
    first, *others = optimizer.param_groups
    if any(not torch.equal(other[key], first[key]) for other in others for key in keys):
        raise RecordError("parameter groups have completed different steps")
    shared = {name: _array(first[name])[()] for name in record.shared}
    return SavedState(record, first["global_step"].item(), shared, variables, slots)


@torch.no_grad()
def load_state(
    optimizer: RecordedOptimizer, state: SavedState, names: Optional[Mapping[str, Any]] = None
) -> None:
    """Writes a state into the parameters and slots of an optimizer; see `state_of`.

    Raises:
      RecordError: a parameter has no name, or the state belongs to another rule or lacks a variable
        of the parameter's shape. Nothing has been changed.
    """
    check_rule(state, optimizer.record)
    found = list(_named_parameters(optimizer, names))
    for name, _, view, is_trained in found:
        check_variable(state, name, view, is_trained)
    for name, parameter, view, is_trained in found:
        view.copy_(torch.tensor(state.variables[name]))
        slots = optimizer.slots(parameter, name) if is_trained else {}
        for slot, value in slots.items():
            value.copy_(torch.tensor(state.slots[name][slot]))
    for group in optimizer.param_groups:
        group["global_step"].fill_(state.global_step)
        for name, value in state.shared.items():
            group[name].copy_(torch.tensor(value))


def _named_parameters(
    optimizer: RecordedOptimizer, names: Optional[Mapping[str, Any]]
) -> Iterator[Tuple[Any, ...]]:
    """Yields tuples (name, tensor, view with TensorFlow's axes, whether it is trained)."""
    trained = (
        (name, parameter, group)
        for group in optimizer.param_groups
        for name, parameter in named(group)
    )
    for name, tensor, group in named_variables(trained, names):
        yield name, tensor, in_tensorflow(tensor, group and group["axes"]), group is not None


def _array(tensor: Any) -> Any:
    return tensor.detach().cpu().numpy().copy()
