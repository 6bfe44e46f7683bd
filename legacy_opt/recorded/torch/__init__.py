"""Trains PyTorch parameters with a recorded rule. Needs PyTorch, but no TensorFlow.

There are three levels. "native" runs native kernels (`legacy-opt docs native`) on parameters in the
memory of the processor, in place. "exact" computes the same bits with PyTorch: square roots,
elementary functions and sums are computed in float64. "fast" leaves these functions to PyTorch; the
results then differ in the last bits. Denormal numbers become zero in native kernels, and in PyTorch
after `torch.set_flush_denormal(True)`. By default, the level is "native" if all parameters are in
the memory of the processor and there are kernels, else "exact".
"""

from __future__ import annotations

import collections
from typing import Any, Callable, Dict, Iterable, Mapping, Optional, Sequence, Tuple

import torch

from legacy_opt.recorded.arrays import clipping, interpreter
from legacy_opt.recorded.arrays.interpreter import check_array, check_slots, stored_shape
from legacy_opt.recorded.arrays.library import ALL_LEVELS, AUTO, NATIVE, check_level
from legacy_opt.recorded.native import level_for
from legacy_opt.recorded.records import CLIP_NORM, Group, Record, RecordError, Scalar
from legacy_opt.recorded.torch import batches
from legacy_opt.recorded.torch.columns import Checked, Columns
from legacy_opt.recorded.torch.kernels import TensorKernels
from legacy_opt.recorded.torch.library import TorchLibrary, TorchRows

__all__ = ["RecordedOptimizer"]

# PyTorch's learning rate schedules change this value of a parameter group.
_RATE, _NAME_OF_RATE = "learning_rate", "lr"
# Keys of parameter groups that are neither hyperparameters nor shared variables.
_RESERVED = {"params", "param_names", "axes", "global_step", "initial_lr"}
_OPTIONAL = {"param_names", "initial_lr"}  # a saved group may lack them


class RecordedOptimizer(torch.optim.Optimizer):
    """An optimizer whose update is a recorded rule.

    Parameter groups may have the record's hyperparameters as keys (`lr` is the `learning_rate`),
    and `axes`: a permutation such that the TensorFlow variable is ``parameter.permute(axes)``. It
    is (1, 0) for the weight of a Linear layer. If sparse gradients update only touched rows in
    TensorFlow, they do so here.

    Example::

        import torch
        from legacy_opt import recorded
        from legacy_opt.recorded.torch import RecordedOptimizer

        model = torch.nn.Linear(3, 2)
        record = recorded.load("LazyAdamOptimizer")
        optimizer = RecordedOptimizer(model.parameters(), record, learning_rate=0.01)
        model(torch.ones(4, 3)).sum().backward()
        optimizer.step()

    Args:
      params: parameters, pairs (name, parameter), or dicts of parameter groups, as in PyTorch. If
        the record is for variables of certain names, the names are necessary.
      record: the `legacy_opt.recorded.Record`.
      level: "native", "exact", "fast", or "auto": "native" if it is possible, else "exact". The log
        `legacy_opt` then says which, as a warning if there are no kernels. The choice is for
        parameters that are added later, too.
      **hyperparameters: other values of hyperparameters.

    Attributes:
      record: the record.
      level: "native", "exact" or "fast".

    Raises:
      RecordError: the record does not fit a parameter, a hyperparameter has no value, or `level` is
        "native", and there is no kernel, or a parameter is not in the memory of the processor.
      ValueError: `level` is unknown.
    """

    def __init__(
        self, params: Iterable[Any], record: Record, level: str = "auto", **hyperparameters: Any
    ) -> None:
        check_level(level, ALL_LEVELS)
        self.record = record
        self._library = TorchLibrary(level)
        self._kernels = TensorKernels(record) if level == NATIVE else None
        self._checked = Checked()
        values = interpreter.given_hyperparameters(record, hyperparameters)
        for name in {*values, *record.shared} & _RESERVED:
            raise RecordError(f"{name!r} cannot be a key of a parameter group: PyTorch uses it")
        defaults = {self._key(name): value for name, value in values.items()}
        super().__init__(params, dict(defaults, axes=None))
        self.level = self._chosen_level() if level == AUTO else level

    def _chosen_level(self) -> str:
        pairs = [(each, *pair) for each in self.param_groups for pair in named(each)]
        devices = {str(parameter.device) for _, _, parameter in pairs}
        groups = [self._group_of(name, each, group["axes"]) for group, name, each in pairs]
        kernels = TensorKernels(self.record)
        level = level_for(kernels.kernels, groups, ", ".join(sorted(devices - {"cpu"})))
        self._kernels = kernels if level == NATIVE else None
        return level

    def __getstate__(self) -> Dict[str, Any]:
        # PyTorch copies and pickles only the attributes of its base class.
        names = ("record", "level", "_library", "_kernels", "_checked")
        return {**super().__getstate__(), **{name: getattr(self, name) for name in names}}

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        """Adds a parameter group; see `torch.optim.Optimizer`.

        A later group goes on with the step and the shared variables of the first group.

        Raises:
          RecordError: the record does not fit a parameter, a parameter or a name occurs twice, or a
            key is no hyperparameter that the record follows (the rate is "lr"). Nothing has been
            added.
        """
        if _RATE in param_group and self._key(_RATE) != _RATE:
            raise RecordError(f"a parameter group has {_RATE!r}: write {_NAME_OF_RATE!r}")
        known = {*_RESERVED, *self.record.shared, *map(self._key, self.record.hyperparameters)}
        others = {key: value for key, value in param_group.items() if key not in known}
        values = self._values({**self.defaults, **param_group})
        interpreter.given_hyperparameters(self.record, {**values, **others})
        super().add_param_group(param_group)
        try:
            self._check_and_start(self.param_groups[-1])
        except BaseException:
            self.param_groups.pop()
            raise

    def _check_and_start(self, group: Dict[str, Any]) -> None:
        if len(set(group["params"])) < len(group["params"]):  # PyTorch only warns
            raise RecordError("a parameter occurs twice in a parameter group")
        # The values are tensors: for a number, torch.compile would compile each step again.
        for name, start in self._starts(group).items():
            group.setdefault(name, start)
        for name, parameter in named(group):
            recorded_group = self._group_of(name, parameter, group["axes"])
            if self._kernels is not None:
                if parameter.device.type != "cpu":
                    raise RecordError(f"native kernels cannot train on {parameter.device}")
                self._kernels.kernels.compile(recorded_group)
        names = [name for each in self.param_groups for name, _ in named(each)]
        for name, count in collections.Counter(names).items():
            if count > 1 and name is not None:
                raise RecordError(f"two parameters have the name {name!r}")

    def _starts(self, group: Dict[str, Any]) -> Dict[str, Any]:
        """Returns the step and the shared variables with which a parameter group begins."""
        first = self.param_groups[0]
        shared = interpreter.started(self.record, self._values(group)).shared
        shared_of_first = interpreter.started(self.record, self._values(first)).shared
        if first.get("global_step", 0) > 0:
            if shared != shared_of_first:
                raise RecordError(
                    "a parameter group that is added after steps must have the betas and initial "
                    "values of the first group"
                )
            return {name: first[name].clone() for name in ("global_step", *shared)}
        scalars = {"global_step": Scalar("int64", 0), **shared}
        return {
            name: self._library.constant(each.value, each.dtype) for name, each in scalars.items()
        }

    def _key(self, name: str) -> str:
        """Returns the key of a hyperparameter in parameter groups."""
        is_rate = name == _RATE and _NAME_OF_RATE not in self.record.hyperparameters
        return _NAME_OF_RATE if is_rate else name

    def _values(self, group: Mapping[str, Any]) -> Dict[str, Any]:
        """Returns the values of the hyperparameters in a parameter group."""
        return {name: group[self._key(name)] for name in self.record.hyperparameters}

    def _group_of(self, name: Optional[str], parameter: Any, axes: Any) -> Group:
        dtype = str(parameter.dtype).rpartition(".")[2]
        return self.record.group_of(name or "a parameter", _shape(parameter, axes), dtype)

    @torch.no_grad()
    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """Performs one step; see `torch.optim.Optimizer`."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        given = [self._given(group) for group in self.param_groups]
        scalars = [
            interpreter.run_function(self._library, self.record.before, each) for each in given
        ]
        if self._kernels is not None:
            self._run_kernels(given, scalars)
        else:
            self._run(given, scalars)
        for group, group_given in zip(self.param_groups, given):
            after = interpreter.run_function(self._library, self.record.after, group_given)
            for name, value in after.items():
                group[name][...] = value  # compiled functions lose `copy_` to a float64 scalar
            group["global_step"].add_(1)
        return loss

    def _run(self, given: Sequence[Any], scalars: Sequence[Any]) -> None:
        """Updates all parameters by operations of PyTorch."""
        columns, update_of = self._columns()
        if torch.compiler.is_compiling():
            updates = [update_of(i) for i in range(len(columns.groups))]
        else:
            updates = self._checked.updates(columns, update_of)
        found = [[] for _ in self.param_groups]
        for number, update in zip(columns.groups, updates):
            found[number].append(update)
        if self.record.clipping is not None:
            found = self._clipped(found, given)
        for of_group, group_updates in zip(scalars, found):
            batches.run(self._library, group_updates, of_group)

    @torch.compiler.disable
    def _run_kernels(self, given: Sequence[Any], scalars: Sequence[Any]) -> None:
        scalars = [{name: each.numpy() for name, each in group.items()} for group in scalars]
        clips = self.record.clipping is not None
        limits = [each[CLIP_NORM].numpy() if clips else None for each in given]
        self._kernels.run(*self._columns(), scalars, limits)

    def _columns(self) -> Tuple[Columns, Callable[[int], interpreter.ArrayUpdate]]:
        """Returns the parameters with gradients, and the function `update_of` of `Checked`."""
        rows = [
            (i, name, parameter)
            for i, group in enumerate(self.param_groups)
            for name, parameter in named(group)
            if parameter.grad is not None
        ]
        numbers, names, parameters = zip(*rows) if rows else ((), (), ())
        axes = [tuple(group["axes"] or ()) for group in self.param_groups]
        gradients = [each.grad for each in parameters]
        slots = [*map(self.state.__getitem__, parameters)]

        def update_of(i: int) -> interpreter.ArrayUpdate:
            return self._update_of(names[i], parameters[i], axes[numbers[i]])

        return Columns(parameters, gradients, slots, names, axes, numbers), update_of

    def _given(self, group: Mapping[str, Any]) -> Dict[str, Any]:
        """Returns the scalars of a step that `before` and `after` read."""
        record = self.record
        fixed = {name: group[name] for name in record.fixed if name in group}
        interpreter.given_hyperparameters(record, {**self._values(group), **fixed})  # checks them
        scalars = {**record.hyperparameters, **record.shared}
        dtypes = {name: scalar.dtype for name, scalar in scalars.items()}
        if record.global_step is not None:
            dtypes["global_step"] = record.global_step
        return {name: self._scalar(group[self._key(name)], dtypes[name]) for name in dtypes}

    def _scalar(self, value: Any, dtype: str) -> Any:
        if not isinstance(value, torch.Tensor):
            return self._library.constant(value, dtype)
        return self._library.cast(value.clone(), dtype)  # the step changes shared variables

    def slots(self, parameter: Any, name: Optional[str] = None) -> Dict[str, Any]:
        """Returns the slots of a parameter, a dict from names to tensors; creates them if needed.

        The slots have the axes of the TensorFlow variable.
        """
        state = self.state[parameter]
        if not state:
            ((param_group, known_name),) = [
                (group, each_name)
                for group in self.param_groups
                for each_name, each in named(group)
                if each is parameter
            ]
            shape = _shape(parameter, param_group["axes"])
            record = interpreter.started(self.record, self._values(param_group))
            group = record.group_of(name or known_name or "a parameter", shape)
            for slot_name, slot in group.slots.items():
                state[slot_name] = torch.full(
                    stored_shape(slot.layout, shape),
                    slot.initial,
                    dtype=getattr(torch, slot.dtype),
                    device=parameter.device,
                )
        return state

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Restores the state; see `torch.optim.Optimizer`.

        Raises:
          RecordError: it is the state of another optimizer, or of parameters of other shapes.
            Nothing has been changed.
        """
        loaded = {}
        for group, saved in zip(self.param_groups, state_dict["param_groups"]):
            unequal = sorted(set(group) - set(saved) - _OPTIONAL)  # keys, and names of slots
            for (name, parameter), number in zip(named(group), saved["params"]):
                recorded_group = self._group_of(name, parameter, group["axes"])
                found = state_dict["state"].get(number, {})
                if found:
                    unequal += sorted(set(recorded_group.slots) ^ set(found))
                if found and not unequal:
                    check_slots(f"{name}", recorded_group, _shape(parameter, group["axes"]), found)
                    loaded[parameter] = found
            if unequal:
                raise RecordError(
                    f"the state belongs to another optimizer: {unequal[0]!r} is only in one of them"
                )
        super().load_state_dict(state_dict)
        # PyTorch casts all state to the dtype of the parameter, but counts are integers.
        for parameter, slots in loaded.items():
            for slot_name, tensor in slots.items():
                copied = tensor.detach().clone(memory_format=torch.contiguous_format)
                self.state[parameter][slot_name] = copied.to(parameter.device)

    def _update_of(self, name: Optional[str], parameter: Any, axes: Any) -> interpreter.ArrayUpdate:
        """Returns the update of a parameter that has a gradient. Changes nothing."""
        group = self._group_of(name, parameter, axes)
        gradient = parameter.grad
        shown_name = name or "a parameter"
        check_array(f"{shown_name!r}: the gradient", gradient, parameter.dtype, parameter.shape)
        if gradient.is_sparse:
            if axes:
                raise RecordError("a parameter with a sparse gradient cannot have axes")
            gradient = TorchRows.of(gradient, parameter.shape[0])
        else:
            gradient = in_tensorflow(gradient, axes)
        variable = in_tensorflow(parameter, axes)
        slots = self.slots(parameter, name)
        return interpreter.ArrayUpdate.of(shown_name, group, variable, gradient, slots)

    def _clipped(
        self, updates: Sequence[Sequence[interpreter.ArrayUpdate]], given: Sequence[Any]
    ) -> Sequence[Sequence[interpreter.ArrayUpdate]]:
        """Clips the gradients of all parameter groups by one norm, of all these gradients."""
        flat = [each for group in updates for each in group]
        limits = [scalars[CLIP_NORM] for scalars, group in zip(given, updates) for _ in group]
        clipped = iter(clipping.clipped_by_global_norm(self._library, self.record, flat, limits))
        return [[next(clipped) for _ in group] for group in updates]


def named(group: Mapping[str, Any]) -> Iterable[Tuple[Optional[str], Any]]:
    """Yields pairs (name or None, parameter) of a parameter group."""
    parameters: Sequence[Any] = group["params"]
    names = group.get("param_names") or [None] * len(parameters)
    return zip(names, parameters)


def in_tensorflow(parameter: Any, axes: Any) -> Any:
    """Returns a view of a parameter, or of its gradient, with the axes of TensorFlow's variable."""
    return parameter.permute(axes) if axes else parameter


def _shape(parameter: Any, axes: Any) -> Sequence[int]:
    """Returns the shape of the TensorFlow variable."""
    return [parameter.shape[i] for i in axes] if axes else parameter.shape
