"""V1Driver: runs a v1 optimizer inside a Keras optimizer, which owns the variables.

The driver calls the methods that `tf.compat.v1.train.Optimizer` defines (`_prepare`,
`_resource_apply_dense`, `_finish`, …) and does not depend on a version of Keras. The v1 optimizer
is a leaf, which updates variables itself, or a wrapper, which contains other v1 optimizers. A
bridged optimizer is a Keras optimizer that `to_keras` made, and has one driver. In each training
step, the bridged optimizer runs::

    with driver.step(pairs, rate, hyperparameters):
        driver.update_dense(gradient, variable)  # for each variable
        driver.finish(distribution, variables)
"""

from __future__ import annotations

import contextlib
import numbers
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Type, Union

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core import duplicate_ids, dynamic_embeddings, gradient_checks
from legacy_opt.core.global_step import find_global_step, found_as_global_step
from legacy_opt.core.hyperparameters import unrounded
from legacy_opt.core.step import alone
from legacy_opt.core.types import DType, GradAndVar, Operation, Tensor, V1Optimizer, Variable
from legacy_opt.core.variable_access import after

from ..v1_optimizers import copying, nesting, owned_state, schedules
from ..v1_optimizers.study import BridgeSettings, StepInputs
from ..v1_optimizers.temporary_attributes import restore, with_attributes
from . import refusals, sparse_updates_for_xla
from .hyperparameter_values import HyperparameterValues
from .protocol import GlobalStep, StateOwner

Hyperparameters = Dict[str, Tensor]  # by their names


class _RunningStep(NamedTuple):
    """The state of one training step."""

    pairs: List[GradAndVar]
    rate: Optional[Tensor]  # Keras' learning rate, float32; None if the v1 optimizer has none
    hyperparameters: Hyperparameters  # the other hyperparameters
    update_ops: List[Operation]  # the operations that update variables


class V1Driver:
    """Runs a copy of a v1 optimizer inside a Keras optimizer.

    A bridged optimizer keeps its driver in the attribute `_v1`. Other packages read everything
    about the v1 optimizer from the driver. The v1 optimizer itself does not change.
    """

    def __init__(
        self,
        optimizer: V1Optimizer,
        settings: BridgeSettings,
        owner: StateOwner,
        global_step: GlobalStep,
    ):
        self.owner = owner
        self.settings = settings._replace(inputs={})
        self.global_step = global_step  # a variable is the `iterations` of `owner` already
        self._step = None  # the `_RunningStep` that is running
        self.optimizer = owned_state.copy_with_state_in(optimizer, self, settings.inputs)
        self._nested = [each.optimizer for each in nesting.nested_optimizers(self.optimizer)]
        leaves = nesting.leaves(self.optimizer)
        # The only leaf: `optimizer` itself, or the leaf in a wrapper.
        self.leaf = leaves[0] if len(leaves) == 1 else None
        self.values = HyperparameterValues(self.settings, owner, self.optimizer, self.leaf)
        for leaf in leaves:
            if not self.uses_fused_kernels and hasattr(leaf, "use_fused_kernels"):
                leaf.use_fused_kernels = False

    @property
    def original_class(self) -> Type[V1Optimizer]:
        """The class of the v1 optimizer."""
        return owned_state.original_class(self.optimizer)

    @property
    def uses_fused_kernels(self) -> bool:
        """Whether to use TensorFlow's fused kernels; the argument `fused` of `to_keras`."""
        return self.settings.options.fused

    @property
    def depends_on_step(self) -> bool:
        """Whether the v1 optimizer's updates depend on the number of training steps done."""
        inputs = [each._step_inputs for each in self._nested]
        if any(each.depends_on_step for each in inputs):
            return True
        if not hasattr(self.global_step, "assign_add"):
            return False
        # A tensor of the graph may be computed from this variable.
        return any(each.graph_tensors or (each.rates and not each.by_keras) for each in inputs)

    @property
    def updates_together(self) -> bool:
        """Whether native kernels may update variables of this training step in groups.

        Otherwise the kernels wait for calls of `run_dense` and `run_sparse`. These methods cast the
        learning rate to dtypes other than float32, and if `fused` is False, replace updates.
        """
        if self._step is None or not self.uses_fused_kernels:
            return False
        return all(variable.dtype.base_dtype == tf.float32 for _, variable in self._step.pairs)

    # One training step.

    @contextlib.contextmanager
    def step(
        self, pairs: List[GradAndVar], rate: Optional[Tensor], hyperparameters: Hyperparameters
    ):
        """Prepares the optimizer for one training step; resets temporary attributes afterwards.

        If the v1 optimizer overrides `apply_gradients`, the override prepares the optimizer: call
        `V1Driver.apply_gradients` within this scope instead of `update_dense`, `update_sparse` and
        `finish`. See `_RunningStep` for the arguments.
        """
        delegates = self.settings.delegates_apply_gradients
        if delegates:
            refusals.check_one_replica(self.optimizer)
        only_owned = refusals.no_foreign_variables(self.optimizer, self.owner)
        running = _RunningStep(pairs, rate, hyperparameters, update_ops=[])
        applying = contextlib.ExitStack()
        if hasattr(self.optimizer, "applying") and not delegates:
            # In this scope, `RuleOptimizer._prepare` passes all pairs to `prepare_step`.
            applying = self.optimizer.applying(pairs)
        with alone(self.optimizer), self._with_step_inputs(running), applying, only_owned:
            if not delegates:
                self.prepare(self.optimizer, self.optimizer)
                self._step.update_ops.clear()
            yield

    @tf.autograph.experimental.do_not_convert  # converting would take seconds and change nothing
    def apply_gradients(
        self, pairs: List[GradAndVar], global_step: Variable, name: Optional[str] = None
    ):
        """Calls the v1 optimizer's apply_gradients, and increments `global_step`."""
        step = None if self.global_step is None else global_step
        scope = contextlib.ExitStack()
        if self.leaf is self.optimizer:  # for a leaf in a wrapper, `NestedStateInKeras` does this
            scope = self.with_hyperparameters()
        with scope:
            done = owned_state.apply_and_count(self.optimizer, self.optimizer, pairs, step, name)
        if step is not None:
            return done
        with after(done):
            return global_step.assign_add(1, read_value=False)

    def prepare(self, optimizer: V1Optimizer, bound: Any):
        """Calls `_prepare` of an optimizer; see `owned_state.apply_and_count` for the arguments."""
        with self.with_hyperparameters():
            bound._prepare()
        if versions.for_a_session():  # `_prepare` may have read a step of the graph
            schedules.checked(dict(vars(optimizer)), self._check_follows)

    def update_dense(self, grad: Tensor, variable: Variable):
        """Updates a variable. Returns an operation; None when executing eagerly."""
        update = self.optimizer._resource_apply_dense
        return self._noted(self.run_dense(self.optimizer, update, grad, variable))

    def update_sparse(self, grad: Tensor, variable: Variable, indices: Tensor):
        """Updates rows of a variable. Returns an operation; None when executing eagerly."""
        update = self.optimizer._resource_apply_sparse_duplicate_indices
        return self._noted(self.run_sparse(self.optimizer, update, grad, variable, indices))

    def run_dense(self, optimizer: V1Optimizer, update: Callable, grad: Tensor, variable: Variable):
        """Runs `update`, a method of `optimizer` (`self.optimizer` or a nested optimizer)."""
        _check_dtype(optimizer, grad, variable)
        with self._with_rate_of_dtype(optimizer, grad.dtype):
            return update(grad, variable)

    def run_sparse(
        self,
        optimizer: V1Optimizer,
        update: Callable,
        grad: Tensor,
        variable: Variable,
        indices: Tensor,
    ):
        """Updates rows with `update`, a method of `optimizer`.

        If `fused` is False and `update` would call a kernel that XLA lacks, this method runs
        operations that XLA can compile, instead of `update`.
        """
        _check_dtype(optimizer, grad, variable)
        rule = None
        if not self.uses_fused_kernels:
            rule = sparse_updates_for_xla.rule_for(owned_state.original_class(optimizer))
        with refusals.sparse_updates_explained(optimizer):
            if rule is None:
                with self._with_rate_of_dtype(optimizer, grad.dtype):
                    return update(grad, variable, indices)
            summed = duplicate_ids.summed(tf.IndexedSlices(grad, indices))
            return sparse_updates_for_xla.apply_sparse(
                rule, optimizer, summed.values, variable, summed.indices
            )

    def _noted(self, op: Optional[Operation]):
        if op is not None:
            self._step.update_ops.append(op)
        return op

    def finish(self, distribution: tf.distribute.Strategy, variables: List[Variable]):
        """Calls `_finish` of the v1 optimizer after all updates of a training step."""
        # In the cross-replica context, `_finish` runs once for all replicas. If Keras has not
        # merged the replicas, each replica calls `_finish` separately.
        arguments = (self.optimizer, self._step.update_ops)
        if tf.distribute.has_strategy() and tf.distribute.in_cross_replica_context():
            extended = distribution.extended
            devices = extended.non_slot_devices(variables)
            return extended.update_non_slot(devices, _finish, args=arguments, group=False)
        return _finish(*arguments)

    def _check_follows(self, tensor: Tensor):
        if isinstance(self.global_step, str):
            own = [*self.owner.weights, self.owner.steps_done().variable]
            schedules.check_follows(tensor, own)

    # Slots.

    def create_slots(self, variables: List[Variable], are_new: bool):
        """Creates missing slots of variables, and missing shared (non-slot) variables.

        `are_new` says whether a slot is missing. If so, the current hyperparameters are set first,
        because the slots' initial values may depend on them.
        """
        for each in variables:
            dynamic_embeddings.refuse_keras("to_keras", each)
        numbers = {}
        if are_new and tf.executing_eagerly() and not tf.distribute.has_strategy():
            numbers = {"_" + name: self.values.current(name) for name in self.values.other_names()}
        only_owned = refusals.no_foreign_variables(self.optimizer, self.owner)
        # The global step is set, because some slots have its dtype.
        with with_attributes(self.leaf, numbers), self.with_step_of(*self._nested), only_owned:
            self.optimizer._create_slots(list(variables))

    # Attributes of the optimizer that are replaced temporarily.

    @contextlib.contextmanager
    def _with_step_inputs(self, step: _RunningStep):
        """Sets the learning rate and the global step of all nested optimizers within this scope.

        Afterwards, resets the learning rates, and all attributes that contain tensors of a graph,
        because these tensors are invalid in other graphs. Other attributes that an optimizer has
        assigned keep their new values.
        """
        if self._step is not None:  # another replica's thread has set the attributes
            yield
            return
        before = [copying.copied(vars(each)) for each in self._nested]
        self._step = step
        try:
            for each in self._nested:
                vars(each).update(self._rate_attributes(each._step_inputs))
            with self.with_step_of(*self._nested):
                yield
        finally:
            self._step = None
            for each, earlier in zip(self._nested, before):
                restore(vars(each), earlier, rates=each._step_inputs.rates)

    def _rate_attributes(self, inputs: StepInputs) -> Dict[str, Optional[Tensor]]:
        """Returns a dict from the names of learning rate attributes to this step's rate."""
        if not inputs.rate_changes:
            return {}
        rate = self._step.rate
        if not inputs.by_keras:
            rate = schedules.at_step(inputs.schedule, self.owner.steps_done().now)
        return dict.fromkeys(inputs.rates, rate)

    def _with_rate_of_dtype(self, optimizer: V1Optimizer, dtype: DType):
        """Casts the learning rate attributes to a gradient's dtype within this scope.

        This is for update methods that read these attributes; most update methods instead read a
        tensor that `_prepare` has made. Outside Keras, no cast is necessary, because the attribute
        is a Python number, which works with any dtype and is not rounded to float32.
        """
        inputs = optimizer._step_inputs
        if dtype == tf.float32 or not inputs.rate_changes:
            return contextlib.ExitStack()
        number = self.values.exact.get("learning_rate") if inputs.by_keras else None
        rates = {}
        for attribute in inputs.rates:
            rate = vars(optimizer)[attribute]
            rates[attribute] = tf.cast(rate, dtype)
            if dtype == tf.float64 and isinstance(number, numbers.Real):
                rates[attribute] = unrounded(rate, number, dtype)
        return with_attributes(optimizer, rates)

    def with_hyperparameters(self):
        """Sets the leaf's hyperparameters to tensors of this training step within this scope."""
        present = self._step.hyperparameters
        return with_attributes(self.leaf, {"_" + name: value for name, value in present.items()})

    @contextlib.contextmanager
    def with_step_of(self, *optimizers: V1Optimizer):
        """Sets the global step, and attributes that depend on it, within this scope."""
        variable, step = self.owner.steps_done()
        with contextlib.ExitStack() as stack:
            for each in optimizers:
                values = self._step_attributes(each, variable, step)
                stack.enter_context(with_attributes(each, values))
            stack.enter_context(self._found_by_tensorflow(step))
            yield

    def _step_attributes(
        self, optimizer: V1Optimizer, variable: Variable, step: Union[Variable, Tensor]
    ) -> Dict[str, Any]:
        """Returns the attributes of one optimizer that depend on the global step, as a dict."""
        inputs = optimizer._step_inputs
        values: Dict[str, Any] = {attribute: decay(step) for attribute, decay in inputs.decays}
        if versions.for_a_session():
            for attribute in (*inputs.rates, *inputs.graph_tensors):
                value = vars(optimizer)[attribute]
                values[attribute] = schedules.checked(value, self._check_follows)
        if self.global_step is not None:
            values.update(dict.fromkeys(inputs.counts, variable))
            if inputs.step is not None:
                values[inputs.step] = _of_dtype(step, inputs.step_dtype)
        return values

    @contextlib.contextmanager
    def _found_by_tensorflow(self, step: Union[Variable, Tensor]):
        """Lets `tf.compat.v1.train.get_global_step` find the step within this scope."""
        if not isinstance(self.global_step, str):  # TensorFlow finds the graph's global step itself
            yield
            return
        step_of_graph = None
        attributes_before = []
        if self.settings.step_dtype.is_integer:
            step = _of_dtype(step, self.settings.step_dtype)
        if versions.for_a_session():
            step_of_graph = find_global_step()
            step = step if step_of_graph is None else tf.identity(step)
        elif not hasattr(step, "assign"):  # a tensor, which an optimizer may store
            attributes_before = [dict(vars(each)) for each in self._nested]
        with found_as_global_step(step):
            yield
        for each, earlier in zip(self._nested, attributes_before):
            names = [name for name, value in vars(each).items() if value is step]
            restore(vars(each), earlier, names)  # a later step must find its own tensor
        if step_of_graph is not None and step.consumers():  # an update uses the step
            with tf.init_scope():
                self._check_follows(tf.convert_to_tensor(step_of_graph))


def _of_dtype(step: Union[Variable, Tensor], dtype: DType) -> Union[Variable, Tensor]:
    return step if step.dtype.base_dtype == dtype else tf.cast(step, dtype)


def _check_dtype(optimizer: V1Optimizer, grad: Tensor, variable: Variable):
    # With a wrong dtype, some kernels of TensorFlow abort the process.
    gradient_checks.gradient_dtype(type(optimizer).__name__, grad, variable)


def _finish(optimizer: V1Optimizer, update_ops: List[Operation]):
    return optimizer._finish(list(update_ops), "update")
