"""RuleOptimizer: the base class of optimizers that are written as one update rule.

A TF 1 optimizer has to implement four update methods (for ref and resource variables, with dense
and sparse gradients), slot creation, the conversion of hyperparameters to tensors, and `_finish`.
`RuleOptimizer` implements all of them. A subclass adds only a constructor and the method `rule`.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, ClassVar, Dict, Iterable, Iterator, List, Optional, Tuple, Union

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core import argument_checks, gradient_checks, rule_application, variable_access
from legacy_opt.core import global_step as steps
from legacy_opt.core.constructors import CheckedConstructors
from legacy_opt.core.gradient_pairs import check_variables, protected
from legacy_opt.core.hyperparameters import current_value, unrounded
from legacy_opt.core.kernel_hook import kernels_for
from legacy_opt.core.named_values import NamedValues
from legacy_opt.core.slots import Slot, checked_layouts
from legacy_opt.core.step import Inputs, Step, TakesTurns, alone
from legacy_opt.core.types import (
    DType,
    GlobalStep,
    GradAndVar,
    Gradient,
    GradsAndVars,
    Hyperparameter,
    Loss,
    Operation,
    Tensor,
    Variable,
)
from legacy_opt.core.update import RuleResult, Update, Values
from legacy_opt.core.user_warnings import UseLockingWarning, warn
from legacy_opt.core.variable_access import Access


class RuleOptimizer(CheckedConstructors, TakesTurns, tf.compat.v1.train.Optimizer):
    """Base class for optimizers that are written as one rule.

    Example::

        class DampedAdagradOptimizer(legacy_opt.RuleOptimizer):
            '''w -= learning_rate * g / (sqrt(accumulator) + epsilon)'''

            def __init__(self, learning_rate, epsilon=1e-3, use_locking=False, name="Damped"):
                super().__init__(use_locking, name, learning_rate=learning_rate, epsilon=epsilon)

            slots = {"accumulator": legacy_opt.Slot(initial_value=0.1)}

            def rule(self, grad, value, slots, hyper):
                accumulator = slots.accumulator + grad * grad
                change = hyper.learning_rate * grad / (tf.sqrt(accumulator) + hyper.epsilon)
                return change, {"accumulator": accumulator}

        w = tf.Variable([1.0, 2.0])
        train_op = DampedAdagradOptimizer(0.1).apply_gradients([(tf.constant([1.0, 2.0]), w)])

    This optimizer is a `tf.compat.v1.train.Optimizer` and works wherever TensorFlow's optimizers
    work: in a Session with ref or resource variables, in a MonitoredTrainingSession, in an
    Estimator, in eager code and in a `tf.function`. For sparse gradients the same rule runs on the
    touched rows, with duplicate ids already summed.

    A subclass declares:

    * `slots`: a dict from slot name to `legacy_opt.Slot` (or `RowSlot`, `ScalarSlot`,
      `TensorSlot`). To choose slots per variable, or from constructor arguments, override the
      method `slot_layouts` instead. Slot variables are created in the order of the dict, and named
      after the variable and the optimizer: ``w/Damped``, then ``w/Damped_1``.
    * hyperparameters: the keyword arguments of ``super().__init__``. A hyperparameter may be a
      number, tensor, variable or callable. It is stored as ``self._<name>``, converted to a tensor
      once per training step, and passed to the rule as ``hyper.<name>`` in the variable's dtype.
      As in TF 1, a Python float is first converted to a float32 tensor. So the rule of a float64
      variable gets a rounded number, except for hyperparameters whose names are in
      `full_precision`. Flags (True or False) are not hyperparameters but plain attributes.
    * `whole_tensor = True` if the rule needs the whole tensor, for example for a norm. Sparse
      gradients are then made dense.
    * `uses_global_step = True` if the rule needs the global step. Then `hyper.global_step` is the
      number of completed training steps, in the dtype of the global step variable. A rule usually
      casts the number: ``tf.cast(hyper.global_step, grad.dtype)``. If the user passes no
      `global_step` to `minimize` or `apply_gradients`, a `GlobalStepWarning` is issued, because the
      global step may stay constant. Programs that increment the global step themselves set
      ``optimizer.global_step_is_advanced = True`` to prevent the warning.
    * `prefers_advanced_step = True` if the rule should read the `global_step` passed to
      `apply_gradients`, even if the graph has another global step.
    * `allows_constant_step = True` if the constructor's `global_step` may be a number.
    * `non_slots` and `update_non_slots`: methods for values that all variables share, such as
      Adam's powers of beta.
    * `once_per_step`: a method for values that are computed once in each training step.
    * `fused`: a method that runs a whole update as one TensorFlow kernel. If the user sets
      ``optimizer.use_fused_kernels = False``, the rule runs instead.
    * `apply_update`: a method in place of `rule`, for updates that are hard to write as a pure
      function.

    If the user sets ``optimizer.native = "auto"`` (or "require"), rules run as compiled kernels, in
    place of `fused` or of TensorFlow's operations: see `legacy_opt.native`.

    Args:
      use_locking: whether TensorFlow's fused kernels and native kernels lock the variables. Updates
        without these kernels do not lock; if `use_locking` is True, a `UseLockingWarning` is
        issued.
      name: the name of the optimizer, also used in the names of the slots.
      global_step: the int32 or int64 variable that counts the training steps, for a rule with
        `uses_global_step`; None means the graph's global step.
      **hyperparameters: the hyperparameters and their values.

    Raises:
      TypeError: a hyperparameter is not a number, tensor, variable or callable without arguments.
      ValueError: a hyperparameter is NaN or infinite, or has the name of an attribute that
        TensorFlow uses; or `name` is empty.
    """

    slots: ClassVar[Dict[str, Slot]] = {}
    whole_tensor: ClassVar[bool] = False
    full_precision: Iterable[str] = ()
    uses_global_step: bool = False
    prefers_advanced_step: ClassVar[bool] = False
    allows_constant_step: ClassVar[bool] = False
    global_step_is_advanced: bool = False
    use_fused_kernels: bool = True
    native: Optional[str] = None
    _set_by_constructor = "_hyperparameter_names"
    updates_together: ClassVar[bool] = True  # whether kernels may update variables in groups

    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        # An inherited `fused` computes the inherited rule, not a rule that `cls` defines.
        newest = next(each for each in cls.__mro__ if {"rule", "fused"} & set(vars(each)))
        if "fused" not in vars(newest) and cls.fused is not RuleOptimizer.fused:
            cls.use_fused_kernels = vars(cls).get("use_fused_kernels", False)

    def __init__(
        self,
        use_locking: bool,
        name: str,
        global_step: Union[GlobalStep, float, None] = None,
        **hyperparameters: Hyperparameter,
    ) -> None:
        super().__init__(
            argument_checks.boolean("use_locking", use_locking), argument_checks.text("name", name)
        )
        self._global_step = argument_checks.integer_step(
            "global_step", global_step, constant=self.allows_constant_step
        )
        self._hyperparameter_names = tuple(hyperparameters)
        self._rule_step = Step(tensors={}, prepared={})
        self._new_steps = steps.NewStep()
        for key, value in hyperparameters.items():
            if hasattr(self, "_" + key):
                raise ValueError(f"A hyperparameter cannot be named {key!r}: choose another name.")
            setattr(self, "_" + key, argument_checks.hyperparameter(key, value))

    # Methods for subclasses to override.

    def rule(self, grad: Tensor, value: Tensor, slots: Values, hyper: Values) -> RuleResult:
        """Computes one update, as a pure function of the arguments.

        Args:
          grad: the gradient; it has the shape of the variable, or ``[n, …]`` for n touched rows.
          value: the value of the variable or of its touched rows, in the shape and dtype of `grad`.
          slots: the slots' values as attributes; `legacy_opt.Slot` describes the shapes.
          hyper: hyperparameters and non-slot values as scalars of the variable's dtype, and
            `global_step` in the dtype of the step variable.

        Returns:
          A pair of the change and a dict. The change, a tensor of the shape and dtype of `value`,
          is subtracted from the variable, unless it is a `NewValue`. The dict maps slot names to
          new values, or to an `Addition` or `Fading`. Other slots do not change.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must define rule(grad, value, slots, hyper) or "
            "apply_update(update)."
        )

    def sparse_rule(self, grad: Tensor, value: Tensor, slots: Values, hyper: Values) -> RuleResult:
        """Computes the update of n touched rows. By default, this method calls `rule`."""
        return self.rule(grad, value, slots, hyper)

    def needs_whole_tensor(self, variable: Variable) -> bool:
        """Whether sparse gradients of `variable` are made dense; by default, `whole_tensor`."""
        return self.whole_tensor

    def slot_layouts(self, variable: Variable) -> Dict[str, Slot]:
        """Returns the slots of `variable`, a dict from name to `legacy_opt.Slot`."""
        return self.slots

    def non_slots(self) -> Dict[str, Hyperparameter]:
        """Returns the shared (non-slot) variables: a dict from name to initial value."""
        return {}

    def update_non_slots(self, values: Values, hyper: Values) -> Dict[str, Tensor]:
        """Computes the shared variables' new values, once per training step, after all updates.

        Args:
          values: the shared variables' values as attributes, in the shared variables' dtypes.
          hyper: the hyperparameters as attributes, in float32.

        Returns:
          A dict from name to new value.
        """
        return {}

    def once_per_step(self, hyper: Values) -> Dict[str, Tensor]:
        """Computes values that all updates of a training step share, once, before the updates.

        Args:
          hyper: the hyperparameters and `global_step` as attributes: scalar tensors that are not
            cast. (A number is a float32 tensor.)

        Returns:
          A dict from name to a scalar tensor. Rules and `fused` read a value as an attribute of
          `hyper`, in the dtype in which this method returns it.
        """
        return {}

    def fused(self, update: Update) -> Optional[Operation]:
        """Runs a whole `Update` as one TensorFlow kernel (see `legacy_opt.rule_writing`).

        Returns:
          An operation (None when executing eagerly). If there is no such kernel: `NotImplemented`,
          and the rule runs instead.
        """
        return NotImplemented

    def prepare_step(self, grads_and_vars: List[Tuple[Gradient, Variable]]) -> Dict[int, Any]:
        """Does work for many variables at once, before these variables are updated.

        Overriding this method is only an optimization, because the method is not called under a
        distribution strategy, or if a caller uses `_prepare` and the update methods without
        `apply_gradients` or `applying`. In these cases `Update.prepared` is None.

        Args:
          grads_and_vars: list of (gradient, variable) pairs in which no gradient is None.

        Returns:
          A dict from ``id(variable)`` to any value, which becomes the variable's `Update.prepared`.
        """
        return {}

    def pure_rule(self, variable: Variable, sparse: bool) -> Callable[..., RuleResult]:
        """Returns the whole update of a variable as a pure function: `rule` or `sparse_rule`.

        Native kernels compute this function. If a subclass overrides `apply_update`, there is no
        such function by default, and so there are no kernels. To have kernels, the subclass must
        also override this method and return a function with the same results.

        Args:
          variable: the variable.
          sparse: whether the gradient is sparse. If the optimizer needs the whole tensor, the
            function gets the whole tensor for sparse gradients, too.

        Raises:
          NotImplementedError: the subclass overrides `apply_update`.
        """
        refuse_overridden(self, RuleOptimizer, "apply_update", "_update_for")
        gets_rows = sparse and not self.needs_whole_tensor(variable)
        return self.sparse_rule if gets_rows else self.rule

    def apply_update(self, update: Update) -> Optional[Operation]:
        """Applies the rule to one variable: reads, computes, then writes.

        Override this method for updates that are hard to write as a pure rule. `Update.access` has
        methods to read, assign, add to and subtract from the touched rows of a variable or slot;
        `Update.access.whole` has the same methods for all rows. Use `tf.control_dependencies`, so
        that all reads end before the first write.

        Args:
          update: the `Update`.

        Returns:
          An operation; None when executing eagerly.
        """
        if self._use_locking:
            warn(
                f"{type(self).__name__} updates {update.variable.name!r} without locks "
                "although use_locking=True: its rule consists of several operations, and "
                "only a single operation can lock.",
                UseLockingWarning,
            )
        rule = self.sparse_rule if update.sparse else self.rule
        layouts = self.slot_layouts(update.variable)
        return rule_application.apply_rule(rule, layouts, update, type(self).__name__)

    # Methods of TF 1's Optimizer.

    def minimize(
        self,
        loss: Loss,
        global_step: Optional[Variable] = None,
        var_list: Optional[Iterable[Variable]] = None,
        *args: Any,
        **kwargs: Any,
    ) -> Optional[Operation]:
        """See `tf.compat.v1.train.Optimizer.minimize`.

        Raises:
          TypeError: an item of `var_list` is not a variable, or is a Keras 3 variable.
        """
        check_variables(type(self).__name__, var_list)
        return super().minimize(loss, global_step, var_list, *args, **kwargs)

    def apply_gradients(
        self,
        grads_and_vars: GradsAndVars,
        global_step: Optional[Variable] = None,
        name: Optional[str] = None,
    ) -> Optional[Operation]:
        """See `tf.compat.v1.train.Optimizer.apply_gradients`.

        Raises:
          RuntimeError: the optimizer calls this method in its own training step.
          TypeError: see `legacy_opt.core.gradient_pairs.protected`; also if the optimizer cannot
            train variables of a dtype.
          ValueError: a gradient's shape does not fit its variable.
        """
        class_name = type(self).__name__
        with contextlib.ExitStack() as stack:
            stack.enter_context(alone(self, RuleOptimizer))
            pairs = stack.enter_context(protected(class_name, grads_and_vars))
            stack.enter_context(self.applying(pairs, global_step))
            if self.uses_global_step and not self.global_step_is_advanced:
                step = self.global_step_variable()
                incremented = self._rule_step.incremented_step
                steps.warn_if_step_is_constant(class_name, self._global_step, step, incremented)
            done = super().apply_gradients(pairs, global_step=global_step, name=name)
            return versions.lock_global_step_increment(done)

    @contextlib.contextmanager
    def applying(
        self, grads_and_vars: List[GradAndVar], global_step: Optional[Variable] = None
    ) -> Iterator[None]:
        """Scope of a training step, in which `_prepare` passes all gradients to `prepare_step`.

        `apply_gradients` and the Keras optimizers of `legacy_opt.compat.to_keras` enter this scope.

        Args:
          grads_and_vars: list of (gradient, variable) pairs.
          global_step: the variable that `apply_gradients` increments, or None if it increments no
            variable. (A wrapper around this optimizer may increment the global step instead.)
        """
        step = steps.step_of_wrapper() if global_step is None else global_step
        self._rule_step = self._rule_step._replace(pairs=grads_and_vars, incremented_step=step)
        try:
            yield
        finally:
            self._rule_step = self._rule_step.after()

    def _create_slots(self, var_list: Iterable[Variable]):
        class_name = type(self).__name__
        for variable in var_list:
            gradient_checks.trainable_dtype(class_name, variable, self._valid_dtypes())
        layouts = [checked_layouts(class_name, self.slot_layouts(each), each) for each in var_list]
        method = f"{class_name}.non_slots"
        non_slots = rule_application.checked_initial_values(method, self.non_slots())
        if var_list and non_slots:
            # All workers must choose the same device, so names decide, not the order of the list.
            first = min(var_list, key=lambda variable: variable.name)
            for name, initial_value in non_slots.items():
                self._create_non_slot_variable(initial_value, name, colocate_with=first)
        for variable, layouts_of_variable in zip(var_list, layouts):
            for name, layout in layouts_of_variable.items():
                layout.create(self, variable, name, self._name)

    def _create_or_restore_slot_variable(
        self, slot_variable_position: Any, slot_name: str, variable: Variable
    ):
        # An object-based checkpoint also restores slots that do not exist yet. TensorFlow would
        # create these slots with the variable's shape and dtype, which are wrong for some slots.
        if tf.executing_eagerly() and slot_name in self.slot_layouts(variable):
            self._create_slots([variable])
        super()._create_or_restore_slot_variable(slot_variable_position, slot_name, variable)

    def _prepare(self):
        tensors = {}
        for name in self._hyperparameter_names:
            value = current_value(name, getattr(self, "_" + name))
            # A copy, because a hyperparameter may be a variable that this training step updates.
            tensors[name] = variable_access.copied(tf.convert_to_tensor(value, name=name))
        self._rule_step = self._rule_step._replace(tensors=tensors, global_step=None, prepared={})
        if self.uses_global_step:
            step = self.global_step_variable()
            tensor = tf.convert_to_tensor(step)
            if step.dtype != step.dtype.base_dtype:
                # The value of a ref variable is the variable's buffer, which another thread may
                # change during this training step. The maximum with the dtype's lowest value is a
                # copy. tf.identity is not enough, because Grappler moves it behind the casts of the
                # global step, and then two casts could read different values.
                tensor = tf.maximum(tensor, tensor.dtype.min)
            tensor = steps.checked_for_overflow(type(self).__name__, tensor)
            self._rule_step = self._rule_step._replace(global_step=tensor)
        self._rule_step = self._rule_step._replace(once=self._once_per_step())
        pairs = self._rule_step.pairs
        kernels = kernels_for(self, pairs, RuleOptimizer)
        self._rule_step = self._rule_step._replace(kernels=kernels)
        # If kernels are on, `_apply` prepares the pairs for which there is no kernel.
        if pairs is not None and not kernels.are_on and not tf.distribute.has_strategy():
            pairs = [(grad, variable) for grad, variable in pairs if grad is not None]
            self._rule_step = self._rule_step._replace(prepared=self.prepare_step(pairs))

    def _once_per_step(self) -> Dict[str, Tensor]:
        method = f"{type(self).__name__}.once_per_step"
        values = dict(self._rule_step.tensors)
        if self._rule_step.global_step is not None:
            values["global_step"] = self._rule_step.global_step
        once = self.once_per_step(NamedValues.of(f"hyper of {method}", values))
        return rule_application.checked_once_per_step(method, once, [*values, *self.non_slots()])

    def _apply_dense(self, grad: Tensor, var: Variable) -> Any:
        return self._apply(grad, var, variable_access.WholeVariable())

    def _resource_apply_dense(self, grad: Tensor, handle: Variable) -> Any:
        return self._apply(grad, handle, variable_access.WholeVariable())

    def _apply_sparse(self, grad: tf.IndexedSlices, var: Variable) -> Any:
        return self._apply(grad.values, var, variable_access.Rows(grad.indices))

    def _resource_apply_sparse(self, grad: Tensor, handle: Variable, indices: Tensor) -> Any:
        return self._apply(grad, handle, variable_access.Rows(indices))

    def _finish(self, update_ops: List[Any], name_scope: str) -> Any:
        names = list(self.non_slots())
        if not names:
            return super()._finish(update_ops, name_scope)
        with variable_access.after(*update_ops):
            variables = {name: self._non_slot(name) for name in names}
            values = {name: variable.read_value() for name, variable in variables.items()}
            hyper = self.hyperparameters(tf.float32, non_slots=False)
            method = f"{type(self).__name__}.update_non_slots"
            named_values = NamedValues.of(f"values of {method}", values)
            new_values = self.update_non_slots(named_values, hyper)
            new_values = rule_application.checked_non_slots(new_values, values, method)
        with variable_access.after(*new_values.values()):
            writes = []
            for name, value in new_values.items():
                with tf.device(variables[name].device):
                    writes.append(variables[name].assign(value, read_value=False))
        return tf.group(*(list(update_ops) + writes), name=name_scope)

    # From TensorFlow's update methods to `rule`.

    def _apply(self, grad: Tensor, variable: Variable, access: Access) -> Any:
        kernels = self._rule_step.kernels
        if not kernels.has_started:
            pairs_without_kernel = kernels.start()
            with variable_access.on_any_device():
                prepared = self.prepare_step(pairs_without_kernel)
            self._rule_step = self._rule_step._replace(prepared=prepared)
        done = kernels.update(grad, variable, access.indices)
        if done is not NotImplemented:
            return done
        sparse = access.indices is not None
        grad = gradient_checks.gradient(type(self).__name__, grad, variable, sparse)
        grad = variable_access.here(grad)
        if versions.static_shape(variable).num_elements() == 0:
            return tf.no_op()
        densified = sparse and self.needs_whole_tensor(variable)
        if densified:
            shape = tf.cast(variable_access.variable_shape(variable), access.indices.dtype)
            grad = tf.scatter_nd(access.indices[:, tf.newaxis], grad, shape)
            access = variable_access.WholeVariable()
        update = self._update_for(grad, variable, access)._replace(densified=densified)
        done = self.fused(update) if self.use_fused_kernels else NotImplemented
        return self.apply_update(update) if done is NotImplemented else done

    def _update_for(self, grad: Tensor, variable: Variable, access: Access) -> Update:
        """Returns the `Update` of one variable, whose slots must exist already."""
        slots = {name: self.get_slot(variable, name) for name in self.slot_layouts(variable)}
        prepared = self._rule_step.prepared.get(id(variable))
        hyper = self.hyper_for(variable)
        slots = NamedValues.of(f"slots of {type(self).__name__}", slots)
        return Update(grad, variable, slots, hyper, access, prepared)

    def hyper_for(self, variable: Variable) -> Values:
        """Returns the hyperparameters of one variable's rule; see `hyperparameters`."""
        return self.hyperparameters(variable.dtype.base_dtype)

    def variable_name(self, variable: Variable) -> str:
        """Returns a variable's name, which optimizers compare with patterns of names."""
        return self._name_in_keras(variable)

    @staticmethod
    def _name_in_keras(variable: Variable) -> str:
        # Copies that `to_keras` creates override this method.
        return versions.distributed_variable(variable).name  # the same name in all replicas

    def hyperparameters(self, dtype: DType, non_slots: bool = True) -> Values:
        """Returns the hyperparameters in this training step as attributes: scalars of `dtype`.

        `global_step` is not cast. `non_slots`: whether to include the non-slot variables' values.
        """
        inputs = self._rule_step.inputs or self._inputs([dtype], non_slots)
        return inputs.hyper(f"hyper of {type(self).__name__}", dtype, non_slots)

    def _inputs(self, dtypes: Iterable[DType], non_slots: bool = True) -> Inputs:
        step = self._rule_step
        read = variable_access.read_on_own_device
        names = self.non_slots() if non_slots else ()
        return Inputs(
            tensors=step.tensors,
            non_slots={name: read(self._non_slot(name)) for name in names},
            exact={dtype: self._exact_values(dtype) for dtype in dtypes},
            global_step=step.global_step,
            once=step.once,
        )

    def _exact_values(self, dtype: DType) -> Dict[str, Tensor]:
        """Returns {name: scalar of `dtype`} for the hyperparameters in `full_precision`."""
        names = self.full_precision if dtype == tf.float64 else ()
        tensors = self._rule_step.tensors
        return {name: unrounded(tensors[name], self._given_value(name), dtype) for name in names}

    def _given_value(self, name: str) -> Hyperparameter:
        """Returns a hyperparameter as it was given, before it is rounded to float32."""
        return getattr(self, "_" + name)

    def _non_slot(self, name: str) -> Any:
        with tf.init_scope():
            graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
            return self._get_non_slot_variable(name, graph=graph)

    def global_step_variable(self) -> GlobalStep:
        """Returns the global step that the rule reads.

        The global step is the first of the following that exists:

        1. the constructor's `global_step` (a number becomes a constant tensor)
        2. the graph's global step
        3. the `global_step` passed to `apply_gradients` of this optimizer or of a wrapper around it
        4. a new global step

        With `prefers_advanced_step`, item 3 comes before item 2.

        Raises:
          ValueError: the constructor's global_step belongs to another graph.
        """
        step = self._global_step
        if isinstance(step, (int, float)):
            return tf.constant(step, tf.int64 if isinstance(step, int) else tf.float32)
        if step is None and self.prefers_advanced_step:
            step = self._rule_step.incremented_step
        if step is None:
            step = steps.find_global_step()
        if step is None:
            step = self._rule_step.incremented_step
        if step is None:
            step = self._new_steps.get()
        steps.check_graph_of_step(type(self).__name__, step)
        return step


def refuse_overridden(optimizer: RuleOptimizer, base: type, *names: str) -> None:
    """Raises a NotImplementedError if an optimizer's class overrides a method of `base`."""
    cls = type(optimizer)
    overridden = [name for name in names if getattr(cls, name) is not getattr(base, name)]
    if overridden:
        raise NotImplementedError(f"{cls.__name__} overrides {' and '.join(overridden)}")
