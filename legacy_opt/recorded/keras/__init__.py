"""Trains models of Keras 3 with a recorded rule, on JAX and PyTorch. Needs no TensorFlow."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

import keras

from legacy_opt.recorded.arrays.interpreter import given_hyperparameters, started, stored_shape
from legacy_opt.recorded.arrays.library import ALL_LEVELS, check_level
from legacy_opt.recorded.reading import loads
from legacy_opt.recorded.records import Record, RecordError
from legacy_opt.recorded.writing import dumps

__all__ = ["RecordedOptimizer"]

if not hasattr(keras, "ops"):
    raise ImportError(
        f"Keras 3 is not installed; this is Keras {keras.__version__}. Run pip install 'keras>=3' "
        "where JAX or PyTorch is installed."
    )

_RATE = "learning_rate"


@keras.saving.register_keras_serializable(package="legacy_opt")
class RecordedOptimizer(keras.optimizers.Optimizer):
    """An optimizer of Keras whose update is a recorded rule.

    If the record is for variables of certain names, these are the paths of Keras, such as
    "model/dense/kernel". Schedules, clipping, averages and accumulation of gradients are those of
    Keras. The global step is `iterations`.

    Keras on JAX has only dense gradients, also of embeddings. A rule that updates only touched rows
    needs `tables`: in these variables, a row is touched if its gradient is not zero.

    Example::

        import keras
        from legacy_opt import recorded
        from legacy_opt.recorded.keras import RecordedOptimizer

        record = recorded.load("LazyAdamOptimizer")
        layers = [keras.layers.Embedding(1000, 8), keras.layers.Dense(1)]
        model = keras.Sequential(layers, name="model")
        tables = ["model/embedding/embeddings"]
        model.compile(RecordedOptimizer(record, 0.01, tables=tables), "mse")

    Args:
      record: the `legacy_opt.recorded.Record`, or its JSON text.
      learning_rate: a float, a `keras.optimizers.schedules.LearningRateSchedule`, or a function
        without arguments; None for the record's value. Keras rounds a float to
        `keras.config.floatx()`.
      level: "auto", "exact", "fast" or "native", as in `legacy_opt.recorded.jax` and
        `legacy_opt.recorded.torch`.
      hyperparameters: a dict from names to other values of other hyperparameters.
      tables: the paths of variables in which rows with a gradient of zero are not updated.
      **kwargs: other arguments of `keras.optimizers.Optimizer`.

    Attributes:
      record: the `Record`.
      level: the level; "auto" until it is chosen.

    Raises:
      RecordError: the backend of Keras is neither JAX nor PyTorch, a hyperparameter is unknown or
        has no value, or JAX needs `jax_enable_x64` for the record.
      ValueError: `level` is unknown.
    """

    def __init__(
        self,
        record: Union[Record, str],
        learning_rate: Any = None,
        level: str = "auto",
        hyperparameters: Optional[Mapping[str, float]] = None,
        tables: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        record = loads(record) if isinstance(record, str) else record
        given = dict(hyperparameters or {})
        for name in {*record.hyperparameters, *record.fixed}:
            if kwargs.get(name) is not None:
                raise RecordError(
                    f"{name} is Keras' own here: pass hyperparameters={{{name!r}: …}}"
                )
        if learning_rate is not None:
            given[_RATE] = learning_rate
        values = given_hyperparameters(record, given, functions=callable(learning_rate))
        rate = values.pop(_RATE, 0.0)
        super().__init__(rate if callable(rate) else float(rate), **kwargs)
        check_level(level, ALL_LEVELS)
        # Keras would track, and copy, dicts in attributes.
        self._rule = _rule_of_backend()(record, level, values, tuple(tables))

    @property
    def record(self) -> Record:
        """The record."""
        return self._rule.record

    @property
    def level(self) -> str:
        """The level; "auto" until the first step chooses it."""
        return (self._rule.optimizer or self._rule).level

    @property
    def learning_rate(self) -> Any:
        """The learning rate of this step. If the record does not follow it, it cannot be set."""
        return super().learning_rate

    @learning_rate.setter
    def learning_rate(self, rate: Any) -> None:
        if _RATE not in self.record.hyperparameters:
            raise AttributeError(
                f"the record of {self.record.optimizer} does not follow a learning rate"
            )
        given = {**self._rule.hyperparameters, _RATE: rate}
        given_hyperparameters(self.record, given, functions=callable(rate))
        keras.optimizers.Optimizer.learning_rate.fset(self, rate)

    @property
    def shared(self) -> Mapping[str, Any]:
        """A dict from names of shared variables to variables of Keras."""
        return self._rule.shared

    @property
    def trained(self) -> List[Any]:
        """The variables that the optimizer updates."""
        return list(self._trainable_variables)

    def slots(self, variable: Any) -> Mapping[str, Any]:
        """Returns the slots of a variable, a dict from names to variables of Keras."""
        return self._rule.slots[variable.path]

    def set_global_step(self, step: int) -> None:
        """Sets the number of completed steps."""
        self._iterations.assign(step * (self.gradient_accumulation_steps or 1))

    def build(self, variables: List[Any]) -> None:
        """Creates the slots and shared variables; see `keras.optimizers.Optimizer`.

        Raises:
          RecordError: the record does not fit a variable, or two variables have the same path.
        """
        rule = self._rule
        record = started(rule.record, {**rule.hyperparameters, _RATE: self.learning_rate})
        for variable in variables:
            if variable.path in rule.slots:
                raise RecordError(f"two variables have the path {variable.path!r}")
            rule.slots[variable.path] = self._new_slots(variable, record)
        for path in rule.tables:
            if path not in rule.slots:
                raise RecordError(
                    f"tables has {path!r}, but the variables are {sorted(rule.slots)}"
                )
        for name, scalar in record.shared.items():
            rule.shared[name] = self._new((), scalar.value, scalar.dtype, name)
        super().build(variables)

    def _new_slots(self, variable: Any, record: Record) -> Dict[str, Any]:
        dtype = keras.backend.standardize_dtype(variable.dtype)
        group = record.group_of(variable.path, variable.shape, dtype)
        prefix = variable.path.replace("/", "_")
        slots = {}
        for name, slot in group.slots.items():
            shape = stored_shape(slot.layout, variable.shape)
            # How the variable is distributed among devices.
            layout = getattr(variable, "_layout", None) if shape == variable.shape else None
            slots[name] = self._new(shape, slot.initial, slot.dtype, f"{prefix}_{name}", layout)
        return slots

    def _new(self, shape: Any, value: Any, dtype: str, name: str, layout: Any = None) -> Any:
        initializer = keras.initializers.Constant(value)
        dtype = self._rule.dtype_of(dtype)
        return self.add_variable(shape, initializer, dtype, layout=layout, name=name)

    def _backend_update_step(
        self, grads: Sequence[Any], trainable_variables: Sequence[Any], learning_rate: Any
    ) -> None:
        # Not `update_step`, which gets one variable: scalars and clipping are for all variables.
        rate = keras.ops.convert_to_tensor(learning_rate)
        step = keras.ops.convert_to_tensor(self.iterations)
        self._rule.step(grads, trainable_variables, rate, step)

    def get_config(self) -> Dict[str, Any]:
        """Returns the arguments; the record is JSON text."""
        rule = self._rule
        config = {
            **super().get_config(),
            "record": dumps(rule.record),
            "level": rule.level,
            "hyperparameters": dict(rule.hyperparameters),
            "tables": list(rule.tables),
        }
        if _RATE not in rule.record.hyperparameters:
            del config[_RATE]
        return config


@dataclasses.dataclass(eq=False)
class _Rule:
    """The rule of an optimizer; `step` of the subclasses runs it on a backend."""

    record: Record
    level: str
    hyperparameters: Mapping[str, Any]  # without the learning rate
    tables: Sequence[str]  # paths of variables
    # Slots by the path of their variable and by name, and shared variables by name.
    slots: Dict[str, Dict[str, Any]] = dataclasses.field(default_factory=dict)
    shared: Dict[str, Any] = dataclasses.field(default_factory=dict)
    optimizer: Any = dataclasses.field(default=None, init=False)  # of the backend

    def given(self, rate: Any) -> Dict[str, Any]:
        """Returns the hyperparameters of a step."""
        rates = {_RATE: rate} if _RATE in self.record.hyperparameters else {}
        return {**self.hyperparameters, **rates}

    def dtype_of(self, dtype: str) -> str:
        """Returns the dtype of Keras' variable for a slot or shared variable of this dtype."""
        return dtype


@dataclasses.dataclass(eq=False)
class _InJax(_Rule):
    def __post_init__(self) -> None:
        from legacy_opt.recorded.jax import JaxOptimizer

        self.optimizer = JaxOptimizer(self.record, self.level, **self.given(1))

    def dtype_of(self, dtype: str) -> str:
        from legacy_opt.recorded.jax.library import dtype_of

        return dtype_of(dtype).name

    def step(self, grads: Sequence[Any], variables: Sequence[Any], rate: Any, step: Any) -> None:
        from legacy_opt.recorded.jax import State

        paths = [variable.path for variable in variables]
        in_order = collections.OrderedDict  # JAX sorts other dicts; clipping adds in this order
        params = in_order((variable.path, variable.value) for variable in variables)
        names = {name for path in paths for name in self.slots[path]}
        slots = {
            name: in_order(
                (path, self.slots[path][name].value if name in self.slots[path] else None)
                for path in paths
            )
            for name in names
        }
        shared = {name: variable.value for name, variable in self.shared.items()}
        gradients = in_order(
            (path, _rows_in_jax(grad) if path in self.tables else grad)
            for path, grad in zip(paths, grads)
        )
        state = State(step, self.given(rate), shared, slots)
        params, state = self.optimizer.step(params, state, gradients)
        for variable in variables:
            variable.assign(params[variable.path])
            for name, slot in self.slots[variable.path].items():
                slot.assign(state.slots[name][variable.path])
        for name, variable in self.shared.items():
            variable.assign(state.shared[name])


def _rows_in_jax(gradient: Any) -> Any:
    """Returns the rows of a gradient that are not zero, as `Rows`."""
    import jax.numpy as jnp

    from legacy_opt.recorded.jax import Rows

    is_touched = jnp.any(gradient != 0, axis=tuple(range(1, gradient.ndim)))
    return Rows(jnp.where(is_touched, jnp.arange(len(gradient)), -1), gradient)


class _InTorch(_Rule):
    def step(self, grads: Sequence[Any], variables: Sequence[Any], rate: Any, step: Any) -> None:
        import torch

        from legacy_opt.recorded.torch import RecordedOptimizer

        # In each step, the optimizer of PyTorch gets the tensors of Keras, and changes them.
        parameters = [variable.value for variable in variables]
        known = self.optimizer.param_groups[0]["params"] if self.optimizer else []
        if [*map(id, known)] != [*map(id, parameters)]:
            named = [(variable.path, each) for variable, each in zip(variables, parameters)]
            self.optimizer = RecordedOptimizer(named, self.record, self.level, **self.given(1))
        (group,) = self.optimizer.param_groups
        group[_RATE if "lr" in self.record.hyperparameters else "lr"] = rate
        group["global_step"] = step.detach().clone()
        group.update((name, variable.value) for name, variable in self.shared.items())
        old_grads = [parameter.grad for parameter in parameters]
        with torch.no_grad():
            for variable, parameter, grad in zip(variables, parameters, grads):
                slots = self.slots[variable.path]
                self.optimizer.state[parameter] = {name: slots[name].value for name in slots}
                is_table = variable.path in self.tables and not grad.is_sparse
                parameter.grad = _rows_in_torch(grad) if is_table else grad
            self.optimizer.step()
        for parameter, grad in zip(parameters, old_grads):
            parameter.grad = grad


def _rows_in_torch(gradient: Any) -> Any:
    """Returns the rows of a gradient that are not zero, as a sparse tensor."""
    import torch

    ids = torch.nonzero((gradient != 0).reshape(len(gradient), -1).any(1))[:, 0]
    return torch.sparse_coo_tensor(ids[None], gradient[ids], gradient.shape)


def _rule_of_backend() -> Any:
    backend = keras.backend.backend()
    if backend not in ("jax", "torch"):
        raise RecordError(
            f"the backend of Keras is {backend!r}, but recorded rules train on 'jax' and 'torch'; "
            "on TensorFlow, use legacy_opt.compat.to_keras"
        )
    return {"jax": _InJax, "torch": _InTorch}[backend]
