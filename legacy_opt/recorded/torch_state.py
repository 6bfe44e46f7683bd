"""Moves states of trainings between files and PyTorch. Needs PyTorch, but no TensorFlow."""

from __future__ import annotations

from typing import Any, Dict, Iterator, Mapping, Optional, Tuple

import torch

from legacy_opt.recorded.records import RecordError
from legacy_opt.recorded.state_files import SavedState, check_rule, check_variable, distinct
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
        created with names.

    Raises:
      RecordError: a parameter has no name, or parameter groups have completed different steps.
    """
    record = optimizer.record
    variables, slots = {}, {}
    for name, parameter, axes in _named_parameters(optimizer, names):
        variables[name] = _array(in_tensorflow(parameter, axes))
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
      RecordError: a parameter has no name, or the state belongs to another rule, or does not have a
        variable with the parameter's shape. Nothing has been changed.
    """
    check_rule(state, optimizer.record)
    found = list(_named_parameters(optimizer, names))
    for name, parameter, axes in found:
        check_variable(state, name, in_tensorflow(parameter, axes).shape)
    for name, parameter, axes in found:
        in_tensorflow(parameter, axes).copy_(torch.tensor(state.variables[name]))
        for slot, value in optimizer.slots(parameter, name).items():
            value.copy_(torch.tensor(state.slots[name][slot]))
    for group in optimizer.param_groups:
        group["global_step"].fill_(state.global_step)
        for name, value in state.shared.items():
            group[name].copy_(torch.tensor(value))


def _named_parameters(
    optimizer: RecordedOptimizer, names: Optional[Mapping[str, Any]]
) -> Iterator[Tuple[Any, ...]]:
    """Returns the name, the parameter and the axes of each parameter."""
    given: Dict[int, str] = {id(parameter): name for name, parameter in (names or {}).items()}
    return distinct(
        (given.get(id(parameter), name), parameter, group["axes"])
        for group in optimizer.param_groups
        for name, parameter in named(group)
    )


def _array(tensor: Any) -> Any:
    return tensor.detach().cpu().numpy().copy()
