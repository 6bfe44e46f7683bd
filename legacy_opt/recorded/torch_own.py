"""Translates states to PyTorch's own optimizers, where one is the same. Needs PyTorch."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, NamedTuple

import numpy as np
import torch

from legacy_opt.recorded import counterparts
from legacy_opt.recorded.counterparts import Arrays, Grade, Gradients, Rates, Setting
from legacy_opt.recorded.records import RecordError
from legacy_opt.recorded.state_files import SavedState
from legacy_opt.recorded.writing import PathLike, replaced

_Hyper = Mapping[str, float]


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
      grade: how near its training is, for dense gradients.
    """

    optimizer: Any
    grade: Grade


def _sgd(state: SavedState, hyper: _Hyper) -> List[Setting]:
    arguments = {"lr": hyper["learning_rate"], "momentum": hyper.get("momentum", 0.0)}
    if "momentum" not in hyper:
        return [Setting("SGD", arguments, {}, state.global_step)]
    slots = {"momentum_buffer": "momentum"}
    return [
        Setting("SGD", dict(arguments, nesterov=nesterov), slots, state.global_step)
        for nesterov in ([False, True] if hyper["momentum"] > 0 else [False])
    ]


def _adam(state: SavedState, hyper: _Hyper) -> List[Setting]:
    name = "AdamW" if "weight_decay" in hyper else "Adam"
    found = counterparts.adam_settings(name, state, hyper)
    arguments = dict(found.arguments)
    renamed = {"lr": arguments.pop("learning_rate"), "eps": arguments.pop("epsilon"), **arguments}
    return [found._replace(arguments=renamed, slots={"exp_avg": "m", "exp_avg_sq": "v"})]


def _adagrad(state: SavedState, hyper: _Hyper) -> List[Setting]:
    arguments = {"lr": hyper["learning_rate"], "eps": 0.0}
    return [Setting("Adagrad", arguments, {"sum": "accumulator"}, state.global_step)]


def _adadelta(state: SavedState, hyper: _Hyper) -> List[Setting]:
    arguments = {"lr": hyper["learning_rate"], "rho": hyper["rho"], "eps": hyper["epsilon"]}
    slots = {"square_avg": "accum", "acc_delta": "accum_update"}
    return [Setting("Adadelta", arguments, slots, state.global_step)]


_SETTINGS: Dict[str, Callable[[SavedState, _Hyper], List[Setting]]] = {
    "AdadeltaOptimizer": _adadelta,
    "AdagradOptimizer": _adagrad,
    "AdamOptimizer": _adam,
    "AdamWOptimizer": _adam,
    "GradientDescentOptimizer": _sgd,
    "LazyAdamOptimizer": _adam,
    "MomentumOptimizer": _sgd,
}


def from_state(
    state: SavedState, parameters: Mapping[str, Any], **hyperparameters: float
) -> TorchOwn:
    """Returns PyTorch's own optimizer with a state, if its training is the same up to rounding.

    The parameters get the values of the variables. The comparison is for dense gradients: rows
    without a gradient are another matter (PyTorch's own optimizers mostly refuse sparse gradients).

    Args:
      state: the state.
      parameters: a dict from names of variables to parameters, of the variables' shapes.
      **hyperparameters: other values of hyperparameters.

    Raises:
      RecordError: PyTorch has no such optimizer, or its training differs: the message says by how
        much; or a parameter does not fit. Nothing has been changed.
    """
    for name, parameter in parameters.items():
        dtype = str(parameter.dtype).rpartition(".")[2]
        known = state.variables.get(name) if name in state.slots else None
        if known is None or (known.shape, known.dtype) != (tuple(parameter.shape), dtype):
            raise RecordError(
                f"the state has no trained variable {name!r} of the shape {list(parameter.shape)} "
                f"and the dtype {dtype}"
            )

    setting, grade = counterparts.chosen(
        state, "PyTorch", "PyTorch's {}", _SETTINGS, _train, hyperparameters
    )
    return TorchOwn(_optimizer(state, setting, parameters), grade)


def write(path: PathLike, state: SavedState, **hyperparameters: float) -> Grade:
    """Writes a state for PyTorch's own optimizer into a file; see `from_state`.

    `torch.load` reads a dict: "variables" (from names to tensors), "optimizer" (the `state_dict`),
    "class" (the name of the class in `torch.optim`) and "names" (of the parameters, in the order of
    the optimizer).

    Args:
      path: the file, which is complete or not written.
      state: the state.
      **hyperparameters: see `from_state`.

    Returns:
      The grade.

    Raises:
      RecordError: see `from_state`.
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
    slots = counterparts.slot_arrays(state, setting)
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(torch.from_numpy(np.array(state.variables[name])))
            own = optimizer.state[parameter]
            if setting.name != "SGD":
                own["step"] = torch.tensor(float(setting.step))
            for slot, arrays in slots.items():
                own[slot] = torch.from_numpy(np.array(arrays[name])).to(parameter.device)
    return optimizer


def _train(state: SavedState, setting: Setting, gradients: Gradients, rates: Rates) -> Arrays:
    parameters = {
        name: torch.nn.Parameter(torch.from_numpy(np.array(array)))
        for name, array in state.variables.items()
    }
    optimizer = _optimizer(state, setting, parameters)
    for each, optimizer.param_groups[0]["lr"] in zip(gradients, rates):
        for name, parameter in parameters.items():
            parameter.grad = torch.from_numpy(np.array(each[name]))
        optimizer.step()
    return {name: parameter.detach().numpy() for name, parameter in parameters.items()}
