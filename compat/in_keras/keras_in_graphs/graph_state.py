"""The variables and updates of a Keras optimizer in one TF1 graph, or in eager execution."""

from __future__ import annotations

import contextlib
import re
from typing import Any, Callable, ContextManager, Iterator, List, Optional, Sequence, Tuple

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core import dynamic_embeddings
from legacy_opt.core.shortened import quoted
from legacy_opt.core.types import Gradient, KerasOptimizer, KerasVariable, Operation, Variable

from ..keras_adapters import adapter_of
from ..keras_adapters.base import LossScaling, with_inner
from ..v1_optimizers.temporary_attributes import with_attributes
from . import factories

v1 = tf.compat.v1

# The name of an unnamed variable, such as the product in Nadam. Keras 3 numbers all such variables
# of a process, but names in checkpoints must not depend on the process's other variables.
_UNNAMED = re.compile(r"variable(_\d+)?$")


class KerasOptimizerInGraph:
    """A Keras optimizer made for one graph (or for eager execution), and its variables.

    `make` makes the Keras optimizer. `name` is the name of the v1 optimizer, which is part of the
    names of variables.
    """

    def __init__(self, make: factories.Make, name: str):
        self._name = name
        self.variables = []  # that the Keras optimizer has created, in order of creation
        self._slots = {}  # slot name -> id of the trained variable -> slot variable
        self._slot_ids = set()
        self._built_for = []
        self._slot_being_made = None
        self._unnamed = 0
        with self._making():
            self.keras = factories.checked(make())
        self.adapter = adapter_of(self.keras)
        if versions.for_a_session():
            self.adapter.check_graph_options(self.keras)

    @property
    def has_trained(self) -> bool:
        """Whether the optimizer has created the state of any trained variable."""
        return bool(self._built_for)

    # The variables.

    @tf.autograph.experimental.do_not_convert  # AutoGraph warns of methods with only a docstring
    def check_trains(self, variable: KerasVariable):
        """Raises a TypeError or ValueError if the optimizer cannot train a variable."""
        dynamic_embeddings.refuse_keras("to_v1", variable)
        self.adapter.check_trains(variable)

    @contextlib.contextmanager
    def _making(self) -> Iterator[None]:
        """A scope in which new variables get v1 names and are added to `self.variables`."""
        # Enter init_scope first, because the other scopes apply only to the graph that is active
        # when they are entered.
        scope = self._name + "/Initializer/"
        with tf.init_scope(), tf.variable_creator_scope(self._make_variable), v1.name_scope(scope):
            yield

    def _make_variable(self, next_creator: Callable[..., Variable], **arguments: Any) -> Variable:
        name = (arguments.get("name") or "variable").replace(":", "_")
        if _UNNAMED.match(name):
            name = f"variable_{self._unnamed}" if self._unnamed else "variable"
            self._unnamed += 1
        slot = self._slot_being_made
        if slot is None and self._built_for:
            slot = self.adapter.slot_in(name, self._built_for)
        with contextlib.ExitStack() as stack:
            if slot is None:
                name = f"{self._name}/{name}"
            else:
                owner, slot_name = slot
                name = f"{_name_of(owner)}/{self._name}/{slot_name}"
                stack.enter_context(v1.colocate_with(owner))
            stack.enter_context(v1.name_scope(None))
            variable = next_creator(**dict(arguments, name=name))
        self.variables.append(variable)
        if slot is not None:
            # For partitioned variables, a Saver must know which axes of the slot are axes of the
            # variable. Keras does not record them: assume all if the shapes are equal, else none.
            has_equal_shape = variable.shape.as_list() == owner.shape.as_list()
            axes = tuple(range(owner.shape.rank)) if has_equal_shape else ()
            versions.fit_slice_info(variable, owner, axes)
            self._slots.setdefault(slot_name, {})[owner._unique_id] = variable
            self._slot_ids.add(id(variable))
        return variable

    def build(self, variables: List[KerasVariable]):
        """Creates the optimizer's state for variables that have no state yet."""
        targets = [versions.tf_variable(each) for each in variables]
        built = {each._unique_id for each in self._built_for}
        new = [each for each in targets if each._unique_id not in built]
        if not new:
            return
        if self.adapter.is_built_once and self._built_for:
            raise ValueError(
                f"{self._name} was built for {_names_of(self._built_for)}. Optimizers of Keras 3 "
                f"are built once, so this one cannot also train {_names_of(new)}. Train all "
                "variables in one step, or call to_v1 once for each list of variables."
            )
        before = self._built_for
        self._built_for = before + new
        try:
            with self._making(), _reading_initial_values(self._built_for):
                self.adapter.build_in_graph(self.keras, variables, self._making_slot)
        except BaseException:
            self._built_for = before
            raise

    def _making_slot(self, owner: Variable, slot_name: str) -> ContextManager:
        """Returns a scope for the creation of a variable's slot."""
        return with_attributes(self, {"_slot_being_made": (owner, slot_name)})

    def slot(self, variable: KerasVariable, slot_name: str) -> Optional[Variable]:
        """Returns the slot variable, or None."""
        key = getattr(versions.tf_variable(variable), "_unique_id", None)
        return self._slots.get(slot_name, {}).get(key)

    def slot_names(self) -> List[str]:
        """Returns the names of the slots, sorted."""
        return sorted(self._slots)

    def variables_but_slots(self) -> List[Variable]:
        """Returns the variables that are not slots, such as iterations and hyperparameters."""
        return [variable for variable in self.variables if id(variable) not in self._slot_ids]

    def key_of(self, variable: Variable) -> str:
        """Returns the name that a non-slot variable has in object-based checkpoints."""
        return _name_of(variable)[len(self._name) + 1 :].replace("/", "_")

    # Updates.

    def loss_scaling(self, variables: Optional[List[KerasVariable]]) -> LossScaling:
        """See `KerasAdapter.loss_scaling`; None means the graph's trainable variables."""

        def build():
            if variables is None and tf.executing_eagerly():
                raise ValueError(
                    f"{type(self.keras).__name__} needs var_list: its loss scale is a "
                    "variable that is created with the slots."
                )
            self.build(v1.trainable_variables() if variables is None else variables)

        return self.adapter.loss_scaling(self.keras, build)

    def apply(self, pairs: Sequence[Tuple[Gradient, KerasVariable]]) -> Optional[Operation]:
        """Applies the gradients. Returns an operation; None in eager execution."""
        optimizer = self.keras
        grads = self.adapter.clipped(optimizer, [grad for grad, _ in pairs])
        pairs = list(zip(grads, [variable for _, variable in pairs]))
        if tf.executing_eagerly():
            optimizer.apply_gradients(pairs)
            return None
        with _without_sums_over_replicas(optimizer):
            if self.adapter.returns_operations(optimizer):
                return optimizer.apply_gradients(pairs)

            # The code of Keras 3 and of user classes requires that statements run in order. In a
            # graph, only a tf.function ensures this order.
            @tf.function(autograph=False)
            def step() -> tf.Tensor:
                optimizer.apply_gradients(pairs)
                return tf.convert_to_tensor(versions.tf_variable(optimizer.iterations))

            return step().op


def _reading_initial_values(variables: List[Variable]) -> ContextManager:
    """Returns a scope in which reading one of the variables of a graph gives its initial value.

    The initial value of a slot may be a variable's value. A Session may run the initializer of the
    slot before the variable's initializer, or again after training.
    """
    scope = contextlib.ExitStack()
    if versions.for_a_session():
        for each in variables:
            read = {"_read_variable_op": lambda *_, each=each: tf.identity(each.initial_value)}
            scope.enter_context(with_attributes(each, read))
    return scope


@contextlib.contextmanager
def _without_sums_over_replicas(optimizer: KerasOptimizer) -> Iterator[None]:
    """A scope in which Keras does not sum gradients over replicas.

    With only one replica no sum is needed, and the custom gradient of TensorFlow's sum would keep
    the graph in memory forever.
    """
    with contextlib.ExitStack() as stack:
        for each in with_inner(optimizer):
            if hasattr(each, "_all_reduce_sum_gradients"):
                stack.enter_context(with_attributes(each, {"_all_reduce_sum_gradients": list}))
            elif hasattr(each, "gradient_aggregator") and versions.own_aggregator(each) is None:
                stack.enter_context(with_attributes(each, {"gradient_aggregator": list}))
        yield


def _name_of(variable: Variable) -> str:
    return variable.name.split(":")[0]


def _names_of(variables: List[Variable]) -> str:
    return quoted(map(_name_of, variables))
