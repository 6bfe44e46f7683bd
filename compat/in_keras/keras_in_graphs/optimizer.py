"""to_v1: makes a v1 optimizer (a `tf.compat.v1.train.Optimizer`) from a Keras optimizer."""

from __future__ import annotations

import re
import weakref
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple, Union

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core import argument_checks
from legacy_opt.core.gradient_order import writes_after
from legacy_opt.core.graphs import attached
from legacy_opt.core.types import (
    GradAndVar,
    Gradient,
    GradsAndVars,
    KerasOptimizer,
    KerasVariable,
    Loss,
    Operation,
    V1Optimizer,
    Variable,
)
from legacy_opt.core.variable_access import after

from ..keras_adapters.base import refuse_ref_variable
from . import factories
from .graph_state import KerasOptimizerInGraph

v1 = tf.compat.v1
# The name of the attribute in which a graph stores the Keras optimizers that were made for it.
_GRAPH_ATTRIBUTE = "_legacy_opt_keras_optimizers"


def to_v1(
    optimizer_or_factory: Union[KerasOptimizer, Callable[[], KerasOptimizer], str],
    name: Optional[str] = None,
) -> V1Optimizer:
    """Returns a v1 optimizer that computes what a Keras optimizer computes, bit for bit.

    The result can be used like any `tf.compat.v1.train.Optimizer`: its `minimize` takes a
    `global_step`, and it works in a Session, in a MonitoredTrainingSession and in an Estimator. It
    also works in eager execution and in `tf.function`. For each graph, the result makes a new Keras
    optimizer. The slots, hyperparameters and `iterations` of this Keras optimizer are global
    variables, so a Saver saves and restores them.

    If the argument was made by `to_keras`, and uses no options of Keras (such as clipping) and no
    Keras schedule, the result is a copy of the v1 optimizer that was passed to `to_keras`, with the
    current hyperparameters.

    Args:
      optimizer_or_factory: a Keras optimizer, whose current settings are copied, but not its state;
        or a function without arguments that makes a Keras optimizer, and is called once for each
        graph; or the class of a Keras optimizer; or the name of the class, such as "adam".
      name: the name of the v1 optimizer, which is part of the names of its variables. The default
        is "KerasOptimizer" for a function, and otherwise the name of the Keras optimizer. If Keras
        has chosen this name (such as adam_1), the default is the name of the class.

    Returns:
      A `tf.compat.v1.train.Optimizer`.

    Raises:
      ImportError: the required Keras is not installed.
      TypeError: the argument is not a Keras optimizer, or has one of the classes that are new in
        Keras 2.11. These classes cannot run in a TF1 graph.
      ValueError: the settings of a Keras optimizer cannot be read completely. In this case, pass a
        function.
    """
    optimizer_or_pair = factories.find(optimizer_or_factory)
    if isinstance(optimizer_or_pair, v1.train.Optimizer):
        if name is not None:
            optimizer_or_pair._name = name
        return optimizer_or_pair
    make, default_name = optimizer_or_pair
    if name is None:
        name = re.sub(r"[^A-Za-z0-9_./-]", "_", default_name)  # valid in names of operations
    return KerasInV1(make, name)


class KerasInV1(v1.train.Optimizer):
    """A v1 optimizer that applies gradients with one Keras optimizer per graph; see `to_v1`."""

    def __init__(self, make: factories.Make, name: str):
        super().__init__(use_locking=False, name=name)
        self._make = make
        self._of_eager = None  # the `KerasOptimizerInGraph` of eager execution
        # tf.train.Checkpoint's values for slots that do not exist yet: a dict from the `_unique_id`
        # of the trained variable to a list of (slot name, checkpoint position).
        self._restorations = {}

    @property
    def keras_optimizer(self) -> KerasOptimizer:
        """The Keras optimizer of the current graph, or of eager execution."""
        return self._graph_state().keras

    def new_keras_optimizer(self) -> KerasOptimizer:
        """Returns a new Keras optimizer with the same settings, for `to_keras`.

        Raises:
          ValueError: the optimizer has trained in eager code, or in the current graph.
        """
        graph_state = getattr(v1.get_default_graph(), _GRAPH_ATTRIBUTE, {}).get(self)
        if any(each is not None and each.has_trained for each in (self._of_eager, graph_state)):
            raise ValueError(
                f"{self.get_name()} was made by to_v1 and has trained already, and the result of "
                "to_keras would start with new state. To go on with the state, use the Keras "
                "optimizer in it: optimizer.keras_optimizer. To start anew, pass a new optimizer."
            )
        return factories.checked(self._make())

    def _graph_state(self) -> KerasOptimizerInGraph:
        """Returns the `KerasOptimizerInGraph` of the current graph, and makes it on first use."""
        with tf.init_scope():
            if tf.executing_eagerly():
                if self._of_eager is None:
                    self._of_eager = KerasOptimizerInGraph(self._make, self.get_name())
                return self._of_eager
            # Store the `KerasOptimizerInGraph` in the graph. If `self` referred to it, the graph
            # would stay in memory as long as `self`.
            graph = v1.get_default_graph()
            optimizers = attached(graph, _GRAPH_ATTRIBUTE, weakref.WeakKeyDictionary)
            if self not in optimizers:
                optimizers[self] = KerasOptimizerInGraph(self._make, self.get_name())
            return optimizers[self]

    # Training.

    def compute_gradients(
        self,
        loss: Loss,
        var_list: Any = None,
        gate_gradients: int = v1.train.Optimizer.GATE_OP,
        aggregation_method: Optional[int] = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: Any = None,
    ) -> List[GradAndVar]:
        """Returns (gradient, variable) pairs; see `tf.compat.v1.train.Optimizer`.

        If the Keras optimizer scales the loss, the returned gradients are unscaled in Keras 2. In
        Keras 3 they are still scaled, because Keras 3 unscales them in `apply_gradients`.

        Raises:
          TypeError: `var_list` has an item that is not a variable; or it has a variable of Keras 3,
            and the optimizer is of Keras 2.
        """
        _refuse_strategies()
        graph_state = self._graph_state()
        if var_list is not None:
            var_list = tf.nest.flatten(var_list)
        for each in var_list or ():
            if not argument_checks.is_tensor_like(versions.tf_variable(each)):
                raise TypeError(f"var_list must contain only variables, got {each!r}.")
            graph_state.check_trains(each)
        variables = None if var_list is None else list(map(versions.tf_variable, var_list))
        scale, unscale = graph_state.loss_scaling(var_list)
        scaled = (lambda: scale(loss())) if argument_checks.is_function(loss) else scale(loss)
        pairs = super().compute_gradients(
            scaled,
            variables,
            gate_gradients,
            aggregation_method,
            colocate_gradients_with_ops,
            grad_loss,
        )
        targets = [variable for _, variable in pairs] if var_list is None else var_list
        return list(zip(unscale([grad for grad, _ in pairs]), targets))

    def apply_gradients(
        self,
        grads_and_vars: GradsAndVars,
        global_step: Optional[KerasVariable] = None,
        name: Optional[str] = None,
    ) -> Optional[Operation]:
        """Updates variables, then increments `global_step`; see `tf.compat.v1.train.Optimizer`.

        Raises:
          TypeError: an item is not a variable; or it is a variable of Keras 3, and the optimizer is
            of Keras 2.
          ValueError: there are no gradients; a variable is a ref variable; or the optimizer is of
            Keras 3 and was built for other variables.
        """
        _refuse_strategies()
        pairs = _with_gradients(grads_and_vars)
        variables = [variable for _, variable in pairs]
        graph_state = self._graph_state()
        for variable in variables:
            graph_state.check_trains(variable)
        graph_state.build(variables)
        self._restore_created(graph_state, variables)
        with v1.name_scope(name, self.get_name()) as scope:
            with writes_after([grad for grad, _ in pairs]):
                operation = graph_state.apply(pairs)
            if global_step is not None:
                step = versions.tf_variable(global_step)
                with after(operation), v1.colocate_with(step):
                    operation = step.assign_add(1, name=scope or None, read_value=False)
            elif operation is not None:
                operation = tf.group(operation, name=scope)
        if not tf.executing_eagerly():
            v1.add_to_collection(v1.GraphKeys.TRAIN_OP, operation)
        return operation

    # State.

    def get_slot(self, var: KerasVariable, name: str) -> Optional[Variable]:
        """Returns the slot variable with this name in Keras, or None."""
        return self._graph_state().slot(var, name)

    def get_slot_names(self) -> List[str]:
        """Returns the sorted names of the slots in the current graph."""
        return self._graph_state().slot_names()

    def variables(self) -> List[Variable]:
        """Returns the variables that the Keras optimizer created in this graph, sorted by name."""
        return sorted(self._graph_state().variables, key=lambda variable: variable.name)

    # Object-based checkpoints read the non-slot variables from `_non_slot_dict`. In TensorFlow's
    # own v1 optimizers this dict has the variables of all graphs; here it has only the variables of
    # the current graph.

    @property
    def _non_slot_dict(self) -> Dict[Tuple[str, Optional[tf.Graph]], Variable]:
        with tf.init_scope():
            graph = None if tf.executing_eagerly() else v1.get_default_graph()
        graph_state = self._graph_state()
        return {
            (graph_state.key_of(each), graph): each for each in graph_state.variables_but_slots()
        }

    @_non_slot_dict.setter
    def _non_slot_dict(self, value: Any):
        pass  # ignores the empty dict that the constructor of the base class assigns

    def _create_or_restore_slot_variable(
        self, slot_variable_position: Any, slot_name: str, variable: KerasVariable, **kwargs: Any
    ):
        slot = self.get_slot(variable, slot_name)
        if slot is None:
            owner = versions.tf_variable(variable)
            waiting = self._restorations.setdefault(owner._unique_id, [])
            waiting.append((slot_name, slot_variable_position))
        else:
            slot_variable_position.restore(slot)

    def _restore_created(
        self, graph_state: KerasOptimizerInGraph, variables: Iterable[KerasVariable]
    ):
        """Gives newly created variables the values that tf.train.Checkpoint has read for them."""
        for variable in graph_state.variables_but_slots():
            self._handle_deferred_dependencies(graph_state.key_of(variable), variable)
        for variable in map(versions.tf_variable, variables):
            waiting = self._restorations.pop(variable._unique_id, [])
            # The latest restore comes first: TensorFlow then ignores the earlier ones.
            for slot_name, position in sorted(waiting, key=lambda item: -item[1].restore_uid):
                position.restore(self.get_slot(variable, slot_name))


def _with_gradients(grads_and_vars: GradsAndVars) -> List[Tuple[Gradient, Variable]]:
    """Returns the pairs that have gradients; see `KerasInV1.apply_gradients` for its errors."""
    all_pairs = list(grads_and_vars)
    if not all_pairs:
        raise ValueError("No variables provided.")
    pairs = [(grad, variable) for grad, variable in all_pairs if grad is not None]
    if not pairs:
        raise ValueError(
            f"No gradients provided for any variable: {[str(each) for _, each in all_pairs]}."
        )
    for _, variable in pairs:
        target = versions.tf_variable(variable)
        if not isinstance(target, tf.Variable):
            raise TypeError(f"Keras optimizers cannot update {variable!r}: it is not a variable.")
        refuse_ref_variable(target)
    return [(_as_gradient(grad), variable) for grad, variable in pairs]


def _as_gradient(grad: Any) -> Gradient:
    grad = v1.convert_to_tensor_or_indexed_slices(grad)
    if isinstance(grad, tf.IndexedSlices) and grad.dense_shape is not None:
        shape = tf.convert_to_tensor(grad.dense_shape)  # because Keras 3 reads dense_shape.dtype
        grad = tf.IndexedSlices(grad.values, grad.indices, shape)
    return grad


def _refuse_strategies():
    if tf.distribute.has_strategy():
        raise ValueError(
            "Optimizers made by to_v1 cannot be used with "
            f"{type(tf.distribute.get_strategy()).__name__}. Use the Keras optimizer itself there."
        )
