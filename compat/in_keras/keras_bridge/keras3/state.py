"""The slots and shared variables of bridged Keras 3 optimizers (made by `to_keras`)."""

from __future__ import annotations

import contextlib
from typing import Any, Hashable, Iterable, List, Optional

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core.types import KerasVariable, Tensor, V1Optimizer, Variable

from ...keras_adapters import KERAS_3
from ...v1_optimizers.nesting import NewVariable, StateKey
from ...v1_optimizers.temporary_attributes import with_attributes
from ..protocol import StepsDone
from ..v1_in_keras import V1InKeras
from . import saving
from .contained import ContainsOptimizer

keras = versions.keras_3()


class Keras3State(ContainsOptimizer, saving.SavedUnderNames, V1InKeras, keras.optimizers.Optimizer):
    """A Keras 3 optimizer that owns the variables of a v1 optimizer.

    The methods set attributes in `vars(self)`, because Keras would track and save attributes that
    are set by assignment.
    """

    _adapter = KERAS_3

    @property
    def contained(self) -> V1Optimizer:
        return self._v1.optimizer

    def _init_state(self, **keras_arguments: Any):
        strategy = tf.distribute.get_strategy()
        if not versions.keras_3_distributes(strategy):
            raise ImportError(
                f"Keras {keras.__version__} is too old for {type(strategy).__name__}: its fit "
                "would multiply the gradients by the number of replicas. Install a newer Keras "
                "with: pip install -U keras"
            )
        vars(self).update(
            non_slots={},  # name -> tf.Variable
            _slots_of={},  # a variable's key -> slot name -> keras.Variable
            _slot_names=[],
            _saved=saving.SavedVariables(self),
        )
        super(V1InKeras, self).__init__(**keras_arguments)  # of Keras

    def build(self, variables: Iterable[KerasVariable]):
        variables = list(variables)
        for variable in variables:
            strategy = getattr(versions.tf_variable(variable), "distribute_strategy", None)
            if strategy is not None and strategy is not self._distribution_strategy:
                raise ValueError(
                    f"The variable {variable.name!r} was created in the scope of "
                    f"{type(strategy).__name__}, but the optimizer {self.name!r} was not. "
                    "Create the optimizer in the strategy's scope, too: with strategy.scope(): …"
                )
        super().build(variables)

    def _create_state(self, targets: List[Variable]):
        self._v1.create_slots(targets, are_new=True)

    def get_or_create_slot(self, variable: Variable, slot_name: str, new: NewVariable) -> Variable:
        slots = self._slots_of.setdefault(self._var_key(variable), {})
        if slot_name not in slots:
            if slot_name not in self._slot_names:
                self._slot_names.append(slot_name)
            with self._distribution_strategy.extended.colocate_vars_with(variable):
                name = f"{self.variable_name(variable).replace(':', '_')}_{slot_name}"
                slots[slot_name] = self._create(name, new)
            number = self._get_variable_index(variable)
            self._saved.add(f"slot_{number}_{slot_name}", slots[slot_name])
        return versions.tf_variable(slots[slot_name])

    def _new_shared(self, key: StateKey, name: str, value: Tensor) -> Variable:
        new = NewVariable(value.shape, value.dtype, lambda: value)
        variable = self._create(name, new, aggregation="only_first_replica")
        self._saved.add("shared_" + name, variable)
        return versions.tf_variable(variable)

    def existing_slot(self, variable: Variable, slot_name: str) -> Optional[Variable]:
        slot = self._slots_of.get(self._var_key(variable), {}).get(slot_name)
        return None if slot is None else versions.tf_variable(slot)

    def get_slot(self, variable: KerasVariable, slot_name: str) -> KerasVariable:
        """Returns a slot, as a keras.Variable.

        Raises:
          KeyError: the variable has no slot of that name, or the slot is not created yet.
        """
        return self._slots_of[self._var_key(variable)][slot_name]

    def get_slot_names(self) -> List[str]:
        """Returns the names of the slots; there are none before `build`."""
        return list(self._slot_names)

    @property
    def weights(self) -> List[Variable]:
        """All variables of this optimizer as tf.Variables, in the order of `variables`."""
        return [versions.tf_variable(variable) for variable in self.variables]

    def _create(self, name: str, new: NewVariable, **options: Any) -> KerasVariable:
        with with_attributes(self, {"creates_variables": True}):
            return self.add_variable(
                shape=tuple(new.shape.as_list()),
                dtype=tf.as_dtype(new.dtype).name,
                initializer=lambda shape, dtype=None: new.initial_value(),
                name=name.replace("/", "_"),
                **options,
            )

    def variable_name(self, variable: KerasVariable) -> str:
        """Returns a variable's path, such as "layer/kernel"; the name if there is no path."""
        original = variable
        if not versions.is_keras_3_variable(variable):
            with contextlib.suppress(KeyError):  # before `build`
                original = self._trainable_variables[self._get_variable_index(variable)]
        return getattr(original, "path", None) or original.name

    def steps_done(self) -> StepsDone:
        variable = versions.tf_variable(self._iterations)
        # If Keras accumulates gradients, `iterations` is smaller than `_iterations`.
        if self.gradient_accumulation_steps or tf.distribute.has_strategy():
            return StepsDone(variable, tf.convert_to_tensor(self.iterations))
        return StepsDone(variable, variable)

    def variable_key(self, variable: KerasVariable) -> Hashable:
        return self._var_key(versions.tf_variable(variable))

    def keys_with_slots(self) -> List[Hashable]:
        return list(self._slots_of)

    def trained_variables(self) -> List[KerasVariable]:
        return list(self._trainable_variables)
