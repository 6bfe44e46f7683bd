"""Decoupled weight decay: in each update, variables shrink by a factor.

Each training step first computes the gradient g, then decays the variable w, then applies the
gradient with another optimizer, whose update is called `update` here::

    g = gradient(w)
    w -= weight_decay * w
    w -= update(g)

Unlike L2 regularization, the weight decay does not change the gradient. The weight decay is not
multiplied by the learning rate.

Source: Loshchilov and Hutter 2019 (SGDW, AdamW) and `tf.contrib.opt`, with the constructors,
arithmetic and variable names of `tf.contrib.opt`.
"""

from __future__ import annotations

import contextlib
import copyreg
import functools
import inspect
from typing import Any, Callable, Collection, Iterable, Iterator, List, NamedTuple, Optional, Type

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core import argument_checks, fused_kernels, gradient_checks, gradient_pairs
from legacy_opt.core.constructors import CheckedConstructors, checked
from legacy_opt.core.gradient_order import tensors_of, writes_after
from legacy_opt.core.hyperparameters import current_value, unrounded
from legacy_opt.core.shortened import quoted
from legacy_opt.core.step import TakesTurns, alone
from legacy_opt.core.types import (
    DType,
    GradsAndVars,
    Hyperparameter,
    Loss,
    Operation,
    Tensor,
    V1Optimizer,
    Variable,
)
from legacy_opt.core.update_methods import UpdateMethods
from legacy_opt.core.user_warnings import DifferenceFromOriginalWarning, warn
from legacy_opt.core.variable_access import Access, after, copied, here, is_resource, variable_op
from legacy_opt.core.variable_lists import parts_of

v1 = tf.compat.v1.train
SUFFIX = "WithDecoupledWeightDecay"
_CONTRIB_METHODS = ("_decay_weights_op", "_decay_weights_sparse_op")


class _DecayStep(NamedTuple):
    """The state of one training step of `DecoupledWeightDecayExtension`."""

    variables: Optional[List[Variable]] = None  # to decay; None means all
    passed_to_minimize: bool = False  # whether `variables` were passed to `minimize`
    has_decayed: bool = False  # whether the currently updated variable has decayed already


class DecoupledWeightDecayExtension(UpdateMethods, CheckedConstructors, TakesTurns):
    """Mixin that adds decoupled weight decay to an optimizer; list it as the first base class.

    If the class defines no constructor, it gets a constructor that takes `weight_decay`, then the
    arguments of the other base class. Slots and variable names are those of the other base class.

    A dense gradient decays the whole variable. A sparse gradient decays each row in the gradient
    once, even if the row's id is repeated. One call of `apply_gradients` (or `minimize`) computes
    all gradients first, then decays the variables, then updates the variables. (In
    `tf.contrib.opt`, it is random whether a gradient is computed before or after the decay.) If two
    calls run in the same `Session.run`, their order is not defined; to define it, use
    `tf.control_dependencies`.

    If the update of the other base class reads the variable, it reads the decayed value. A learning
    rate schedule does not change the weight decay. To change the weight decay, too, also pass a
    schedule as `weight_decay`.

    Improvements over `tf.contrib.opt` (`legacy-opt docs differences_from_originals` lists all
    differences; `legacy-opt run` and `patch_tensorflow` decay as tf.contrib does):

    * `minimize` obeys `decay_var_list`. (In tf.contrib, `minimize` decays all variables.)
    * A partitioned variable in `decay_var_list` means its partitions. (In tf.contrib, it means no
      variable.) An empty `decay_var_list` is an error. (In tf.contrib, it means all variables.)
    * `weight_decay` may be a callable, or a tensor whose dtype differs from the variable's dtype.
    * The rows in a sparse gradient decay with every optimizer. (In tf.contrib, they do not decay
      with optimizers that do not sum duplicate ids, such as GradientDescentOptimizer.)

    Example::

        v1 = tf.compat.v1

        class AdagradW(legacy_opt.DecoupledWeightDecayExtension, v1.train.AdagradOptimizer):
            pass

        with tf.Graph().as_default():
            kernel = v1.get_variable("kernel", [3, 2])
            optimizer = AdagradW(weight_decay=1e-4, learning_rate=0.1)
            train_op = optimizer.minimize(tf.reduce_sum(kernel), decay_var_list=[kernel])

    Args:
      weight_decay: the fraction by which variables shrink in each update: a number, scalar tensor
        or variable, or a callable that returns one of these. For float64 variables, a number is not
        rounded to float32.
      *args: arguments of the other base class.
      **kwargs: arguments of the other base class.

    Raises:
      TypeError: `weight_decay` is not a number, tensor, variable or callable without arguments.
        The error is also raised when a subclass is defined, if this class is not the first base
        class, or if the subclass overrides `_decay_weights_op` or `_decay_weights_sparse_op`,
        because this package, unlike tf.contrib, does not call these two methods.
      ValueError: `weight_decay` is NaN or infinite.
    """

    _set_by_constructor = "_decay_step"
    _suffix = SUFFIX  # ends the names of classes that `extended` makes

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        replacements = dict.fromkeys(_CONTRIB_METHODS, "override decayed or decays")
        gradient_checks.refuse_overrides(cls, replacements)
        extends_mixin = any(map(_is_mixin, cls.__bases__))
        if _is_mixin(cls) or not extends_mixin:
            return  # `cls` is no optimizer yet, or extends an optimizer that has been checked
        if not _is_mixin(cls.__bases__[0]):
            raise TypeError(
                f"{cls.__name__}: DecoupledWeightDecayExtension must be the first base class; "
                f"after {cls.__bases__[0].__name__} it would decay nothing."
            )
        if "__init__" not in vars(cls):
            cls.__init__ = checked(_constructor(cls))

    def __init__(self, weight_decay: Hyperparameter, *args: Any, **kwargs: Any) -> None:
        self._weight_decay = argument_checks.hyperparameter("weight_decay", weight_decay)
        self._weight_decay_tensor: Any = None
        self._decay_step = _DecayStep()
        self._has_told_of_minimize = False
        super().__init__(*args, **kwargs)

    def minimize(
        self,
        loss: Loss,
        global_step: Optional[Variable] = None,
        var_list: Optional[Iterable[Variable]] = None,
        gate_gradients: int = v1.Optimizer.GATE_OP,
        aggregation_method: Optional[int] = None,
        colocate_gradients_with_ops: bool = False,
        name: Optional[str] = None,
        grad_loss: Optional[Tensor] = None,
        decay_var_list: Optional[Collection[Variable]] = None,
    ) -> Optional[Operation]:
        """See `tf.compat.v1.train.Optimizer.minimize`.

        `decay_var_list` is a list, tuple or set of the variables to decay; None means all variables
        that are updated. In tf.contrib, `minimize` ignores `decay_var_list`. If this makes a
        difference, a `DifferenceFromOriginalWarning` is issued, once for each optimizer.

        Raises:
          TypeError: `decay_var_list` is not a list, tuple or set of variables; or an item of
            `var_list` is a Keras 3 variable, or not a variable.
          ValueError: `decay_var_list` is empty.
        """
        gradient_pairs.check_variables(type(self).__name__, var_list)
        with self.decaying_only(decay_var_list):
            if decay_var_list is not None:  # then `decaying_only` keeps other threads out
                self._set_decay_step(passed_to_minimize=True)
            return super().minimize(
                loss,
                global_step=global_step,
                var_list=var_list,
                gate_gradients=gate_gradients,
                aggregation_method=aggregation_method,
                colocate_gradients_with_ops=colocate_gradients_with_ops,
                name=name,
                grad_loss=grad_loss,
            )

    def apply_gradients(
        self,
        grads_and_vars: GradsAndVars,
        global_step: Optional[Variable] = None,
        name: Optional[str] = None,
        decay_var_list: Optional[Collection[Variable]] = None,
    ) -> Optional[Operation]:
        """See `tf.compat.v1.train.Optimizer.apply_gradients`, and `minimize` for `decay_var_list`.

        Raises:
          RuntimeError: the optimizer calls this method in its own training step.
          TypeError: `decay_var_list` is not a list, tuple or set of variables; see also
            `legacy_opt.core.gradient_pairs.protected`.
          ValueError: `decay_var_list` is empty; a gradient's shape does not fit its variable.
        """
        class_name = type(self).__name__
        with contextlib.ExitStack() as stack:
            stack.enter_context(alone(self, DecoupledWeightDecayExtension))
            stack.enter_context(self.decaying_only(decay_var_list))
            pairs = stack.enter_context(gradient_pairs.protected(class_name, grads_and_vars))
            stack.enter_context(self.applying(pairs, global_step))
            stack.enter_context(writes_after([grad for grad, _ in pairs]))
            done = super().apply_gradients(pairs, global_step=global_step, name=name)
            return versions.lock_global_step_increment(done)

    def _set_decay_step(self, **attributes: Any) -> None:
        self._decay_step = self._decay_step._replace(**attributes)

    def _distributed_apply(
        self, distribution: Any, grads_and_vars: Iterable[Any], *args: Any, **kwargs: Any
    ) -> Any:
        # Each replica computes gradients from its own copy of the variables. The decay changes all
        # copies, so it waits for the gradients of all replicas, which are in `grads_and_vars`.
        pairs = list(grads_and_vars)
        with self.applying(pairs):
            return super()._distributed_apply(distribution, pairs, *args, **kwargs)

    @contextlib.contextmanager
    def decaying_only(self, decay_var_list: Optional[Collection[Variable]]) -> Iterator[None]:
        """Scope in which only the variables in `decay_var_list` decay (None: no change).

        Raises the same errors as `minimize` for other values.
        """
        if decay_var_list is None:  # the list that was passed to `minimize` stays in effect
            yield
            return
        variables = self._as_variables(decay_var_list)
        with alone(self):
            before = self._decay_step
            self._set_decay_step(variables=variables)
            try:
                yield
            finally:
                self._decay_step = before

    @staticmethod
    def _as_variables(decay_var_list: Collection[Variable]) -> List[Variable]:
        """Checks the variables, and returns a list with partitions of partitioned variables."""
        if not isinstance(decay_var_list, (list, tuple, set, frozenset)):
            raise TypeError(
                "decay_var_list must be a list, tuple or set of variables, or None for all; got "
                f"{decay_var_list!r}."
            )
        variables = [part for item in decay_var_list for part in parts_of(item)]
        for item in variables:
            if not hasattr(item, "assign_sub"):
                raise TypeError(f"decay_var_list must contain only variables, got {item!r}.")
        if not variables:
            raise ValueError(
                "decay_var_list is empty. Pass None to decay all variables, or weight_decay=0 to "
                "the constructor to decay none."
            )
        return variables

    def _warn_of_decay_var_list(self) -> None:
        updated = [variable for grad, variable in self._step_pairs if grad is not None]
        to_decay = self._decay_step.variables or ()
        not_updated = [item.name for item in to_decay if not _is_among(item, updated)]
        if not_updated:
            warn(
                f"decay_var_list of {type(self).__name__} has variables that this step does "
                f"not update, and so does not decay: {quoted(sorted(not_updated))}.",
                UserWarning,
            )
        if self._decay_step.passed_to_minimize and not self._has_told_of_minimize:
            self._warn_of_minimize(updated)

    def _warn_of_minimize(self, updated: List[Variable]) -> None:
        not_decayed = [variable.name for variable in updated if not self.decays(variable)]
        if not_decayed:
            self._has_told_of_minimize = True
            warn(
                f"{type(self).__name__}.minimize obeys decay_var_list. The minimize of "
                "tf.contrib.opt ignores decay_var_list, and also decays "
                f"{quoted(sorted(not_decayed))}. To train as tf.contrib.opt does, "
                "omit decay_var_list. To decay only the variables in it, without this warning, "
                "call apply_gradients(optimizer.compute_gradients(loss), decay_var_list=…), which "
                "obeys it in both. See `legacy-opt docs differences_from_originals`.",
                DifferenceFromOriginalWarning,
            )

    def _prepare(self) -> None:
        if self._step_pairs:
            self._warn_of_decay_var_list()
        value = current_value("weight_decay", self._weight_decay)
        self._weight_decay_tensor = copied(tf.convert_to_tensor(value, name="weight_decay"))
        self._step_waits_for = _after_all_gradients(self._step_pairs)
        super()._prepare()

    # Every update method decays the variable, then calls the other base class's update method.

    def _run_update(
        self,
        base: Callable[..., Any],
        grad: Tensor,
        variable: Variable,
        access: Access,
        *arguments: Any,
    ) -> Any:
        if self._decay_step.has_decayed:
            return base(*arguments)
        done = self._step_kernels.update(grad, variable, access.indices)  # these kernels decay, too
        if done is not NotImplemented:
            return done
        with self.decayed(grad, variable, access):
            return super()._run_update(base, grad, variable, access, *arguments)

    def decays(self, variable: Variable) -> bool:
        """Whether a variable is among the variables to decay."""
        to_decay = self._decay_step.variables
        return to_decay is None or _is_among(variable, to_decay)

    @contextlib.contextmanager
    def decayed(self, grad: Tensor, variable: Variable, access: Access) -> Iterator[None]:
        """Decays a variable. The operations created in this scope, the update, run after the decay.

        Args:
          grad: the gradient; for a sparse gradient, the tensor of its values.
          variable: the variable.
          access: the part of the variable that decays: `legacy_opt.rule_writing.WholeVariable` or
            `legacy_opt.rule_writing.Rows`.
        """
        if self._decay_step.has_decayed or not self.decays(variable):
            yield
            return
        sparse = access.indices is not None
        grad = gradient_checks.gradient(type(self).__name__, grad, variable, sparse)
        dtype = variable.dtype.base_dtype
        factor = factor_of(self, self._weight_decay_tensor, dtype)
        decay = _decay_rows if sparse else _decay_whole
        runs_in_order = versions.runs_in_order()
        inputs = [] if runs_in_order else [grad, *self._step_waits_for]
        with after(*inputs):
            done = decay(variable, access, factor, self._use_locking)
        self._set_decay_step(has_decayed=True)
        try:
            # Where operations run in order, control dependencies would only change the last bits,
            # because TensorFlow does not regroup products across control dependencies.
            with after(None if runs_in_order else done):
                yield
        finally:
            self._set_decay_step(has_decayed=False)


def factor_of(optimizer: V1Optimizer, tensor: Tensor, dtype: DType) -> Tensor:
    """Returns `tensor`, the weight decay of this training step, in a variable's dtype.

    This is no method, because `to_keras` analyzes methods: if a method read the Python number,
    `to_keras` would assume that users cannot change the weight decay during training.
    """
    if dtype == tf.float32:
        return tf.cast(tensor, dtype)
    return unrounded(tensor, optimizer._weight_decay, dtype)


def _is_mixin(cls: type) -> bool:
    """Returns whether a class adds the weight decay to another base class."""
    return issubclass(cls, DecoupledWeightDecayExtension) and not issubclass(cls, v1.Optimizer)


def _decay_whole(
    variable: Variable, access: Access, factor: Tensor, use_locking: bool
) -> Operation:
    # This kernel computes var -= alpha * delta. `delta` is the variable's value, without a copy.
    apply = fused_kernels.find("GradientDescent", variable, sparse=False)
    target = variable.handle if is_resource(variable) else variable
    value = versions.read_value(variable)
    done = apply(var=target, alpha=factor, delta=value, use_locking=use_locking)
    return getattr(done, "op", done)


def _decay_rows(variable: Variable, access: Access, factor: Tensor, use_locking: bool) -> Operation:
    arguments = {"indices": access.indices, "updates": factor * access.read(variable)}
    if not is_resource(variable):
        arguments["use_locking"] = use_locking  # only operations for ref variables have it
    return variable_op("ScatterSub", variable, **arguments)


def _after_all_gradients(grads_and_vars: GradsAndVars) -> List[Operation]:
    """Returns a list with one operation that depends on all gradients; [] outside TF1 graphs."""
    if versions.runs_in_order():
        return []
    tensors = tensors_of(grad for grad, _ in grads_and_vars)
    return [tf.group(*map(here, tensors))] if tensors else []


def _is_among(variable: Variable, variables: Iterable[Variable]) -> bool:
    whole = versions.distributed_variable(variable)
    return any(versions.distributed_variable(item) is whole for item in variables)


def _constructor(cls: Any) -> Callable[..., None]:
    """Returns a constructor that takes `weight_decay`, then the other base class's arguments."""

    def __init__(self: Any, weight_decay: Hyperparameter, *args: Any, **kwargs: Any) -> None:
        super(cls, self).__init__(weight_decay, *args, **kwargs)

    signature = inspect.signature(super(DecoupledWeightDecayExtension, cls).__init__)
    self_parameter, *parameters = signature.parameters.values()
    if "weight_decay" in signature.parameters:
        raise TypeError(
            f"{cls.__name__}: its other base class has an argument weight_decay already, "
            "and the two arguments would be confused. Use that class as it is, or rename its "
            "argument in a subclass."
        )
    decay = inspect.Parameter("weight_decay", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    __init__.__signature__ = signature.replace(parameters=[self_parameter, decay, *parameters])
    return __init__


def extend_with_decoupled_weight_decay(base_optimizer: Type[V1Optimizer]) -> Type[V1Optimizer]:
    """Returns a class like `base_optimizer` with decoupled weight decay.

    The constructor of the returned class takes `weight_decay`, then the arguments of
    `base_optimizer`. `minimize` and `apply_gradients` take `decay_var_list`; see
    `DecoupledWeightDecayExtension`. All calls with the same `base_optimizer` return the same class.
    The class has an attribute `base_optimizer`.

    For example::

        AdagradW = extend_with_decoupled_weight_decay(tf.compat.v1.train.AdagradOptimizer)
        optimizer = AdagradW(weight_decay=1e-4, learning_rate=0.1)

    Args:
      base_optimizer: a subclass of `tf.compat.v1.train.Optimizer`.

    Returns:
      The class. In the example, its name is `AdagradOptimizerWithDecoupledWeightDecay`.

    Raises:
      TypeError: `base_optimizer` is not a subclass of `tf.compat.v1.train.Optimizer`, already has
        decoupled weight decay, or already has an argument `weight_decay`.
    """
    return extended(DecoupledWeightDecayExtension, base_optimizer)


@functools.lru_cache(maxsize=None)
def extended(extension: type, base_optimizer: Type[V1Optimizer]) -> Type[V1Optimizer]:
    """Returns a class made of an extension, which is no optimizer, and a base optimizer."""
    if not (isinstance(base_optimizer, type) and issubclass(base_optimizer, v1.Optimizer)):
        raise TypeError(
            "base_optimizer must be a subclass of tf.compat.v1.train.Optimizer, got "
            f"{base_optimizer!r}."
        )
    if issubclass(base_optimizer, DecoupledWeightDecayExtension):
        raise TypeError(f"{base_optimizer.__name__} has decoupled weight decay already.")
    contents = {
        "__module__": __name__,
        "__doc__": f"{base_optimizer.__name__} with decoupled weight decay.",
        "base_optimizer": base_optimizer,
    }
    name = base_optimizer.__name__ + extension._suffix
    metaclass = _pickled_by_bases(type(base_optimizer))
    return metaclass(name, (extension, base_optimizer), contents)


@functools.lru_cache(maxsize=None)
def _pickled_by_bases(metaclass: type) -> type:
    """Returns a metaclass whose classes are pickled as calls of `extended`."""

    def reduce_class(cls: Any) -> Any:
        if "base_optimizer" in vars(cls):
            return extended, cls.__bases__
        return cls.__qualname__  # a subclass of such a class, which pickle finds by its name

    pickled_by_bases = type(metaclass)("PickledByBases", (metaclass,), {})
    copyreg.pickle(pickled_by_bases, reduce_class)
    return pickled_by_bases
