"""`accelerate`: enables native kernels for an optimizer, also for optimizers of TensorFlow."""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
from typing import Any, Dict, Iterator, Optional, Tuple, Type

from legacy_opt.core import contract, gradient_pairs
from legacy_opt.core.step import alone
from legacy_opt.core.types import GradsAndVars, Operation, V1Optimizer
from legacy_opt.core.update_methods import UpdateMethods
from legacy_opt.optimizers import catalogue, decay_of_contrib
from legacy_opt.programs.optimizers import has_stock_rule, may_have_kernels

# The classes that train exactly like the classes of the same names in `tf.contrib.opt`.
OF_CONTRIB: Dict[str, Type[V1Optimizer]] = {
    cls.__name__: cls
    for cls in (
        catalogue.AdaMaxOptimizer,
        catalogue.AdamGSOptimizer,
        decay_of_contrib.AdamWOptimizer,
        catalogue.AddSignOptimizer,
        catalogue.LARSOptimizer,
        catalogue.LazyAdamGSOptimizer,
        catalogue.LazyAdamOptimizer,
        decay_of_contrib.MomentumWOptimizer,
        catalogue.NadamOptimizer,
        catalogue.PowerSignOptimizer,
        catalogue.RegAdagradOptimizer,
    )
}


def accelerate(optimizer: V1Optimizer, require: bool = False) -> V1Optimizer:
    """Lets an optimizer run its updates by native kernels.

    The constructor arguments, slots, variable names and checkpoints of the optimizer do not change.
    The results differ in the last bits where TensorFlow's kernels approximate square roots (see
    `legacy-opt docs native`).

    Args:
      optimizer: an optimizer of this package, or of `tf.contrib.opt` on TensorFlow 1.15; or one of
        TensorFlow's Adadelta, Adagrad, AdagradDA, Adam, Ftrl, GradientDescent, Momentum,
        ProximalAdagrad, ProximalGradientDescent and RMSProp optimizers; or an instance of a
        subclass that does not override update methods. If `optimizer` is a wrapper, the optimizers
        inside the wrapper are accelerated.
      require: whether an update without a kernel raises an error. By default, such an update runs
        without a kernel, with a `NativeKernelWarning`.

    Returns:
      The same object, possibly with another class: a class of TensorFlow is replaced by a subclass
      of the same name, and a class of `tf.contrib.opt` by this package's class of the same name
      (for AdamW and MomentumW, by a subclass that ignores `decay_var_list` where tf.contrib does).

    Raises:
      TypeError: `optimizer` is not a `tf.compat.v1.train.Optimizer`; or the update methods of its
        class are neither TensorFlow's nor generated from a rule; or it is an optimizer of
        `tf.contrib.opt` that has created slots already. If the error is raised, nothing has been
        changed.
    """
    if not isinstance(optimizer, V1Optimizer):
        raise TypeError(
            f"accelerate takes a tf.compat.v1.train.Optimizer, got {optimizer!r} of type "
            f"{type(optimizer).__name__}."
        )
    optimizers = list(_nested(optimizer))
    leaves = [each for each in optimizers if not getattr(each, "wrapped", ())]  # no wrappers
    ours_by_id = {id(each): _like_contrib(each) for each in leaves if _is_of_contrib(each)}
    for each in leaves:
        is_known = may_have_kernels(type(each)) or id(each) in ours_by_id
        if not (is_known or has_stock_rule(type(each))):
            raise TypeError(f"There are no native kernels for {type(each).__name__}{_why(each)}")
    for each in leaves:
        if id(each) in ours_by_id:
            # The object that the user has becomes an optimizer of this package.
            ours = ours_by_id[id(each)]
            each.__class__ = type(ours)
            each.__dict__ = vars(ours)
        elif not may_have_kernels(type(each)):
            each.__class__ = _accelerated(type(each))
    for each in optimizers:
        each.native = "require" if require else "auto"
    return optimizer


def _why(optimizer: V1Optimizer) -> str:
    """Returns why there are no kernels, as the end of an error message."""
    if type(optimizer)._apply_dense is V1Optimizer._apply_dense:
        return ", because it has no update methods. Accelerate the optimizer that it contains."
    return (
        ", because it has update methods of its own. Write its update as a "
        "legacy_opt.RuleOptimizer (see `legacy-opt docs write_an_optimizer`)."
    )


def _nested(optimizer: Any) -> Iterator[V1Optimizer]:
    """Yields an optimizer and, if it is a wrapper, all optimizers inside the wrapper."""
    yield optimizer
    for each in getattr(optimizer, "wrapped", ()):
        yield from _nested(each)


def _is_of_contrib(optimizer: V1Optimizer) -> bool:
    cls = type(optimizer)
    return cls.__module__.startswith("tensorflow.contrib.opt.") and cls.__name__ in OF_CONTRIB


def _like_contrib(optimizer: V1Optimizer) -> V1Optimizer:
    """Returns this package's optimizer with the same arguments as a `tf.contrib.opt` optimizer."""
    cls = OF_CONTRIB[type(optimizer).__name__]
    state = vars(optimizer)
    if state.get("_slots") or state.get("_non_slot_dict"):
        raise TypeError(
            f"accelerate: the given {cls.__name__} has created slots already. Call accelerate "
            "before minimize and apply_gradients."
        )
    contract.check("accelerate", optimizer, TypeError)
    # Most arguments are in attributes with the same name after an underscore.
    arguments = {name[1:]: value for name, value in state.items()}
    if "lr" in arguments:
        arguments["learning_rate"] = arguments["lr"]
    if "logbase" in arguments:  # PowerSign
        arguments["base"] = math.exp(arguments["logbase"])
    names = inspect.signature(cls).parameters
    if names.keys() - arguments.keys():
        raise TypeError(f"The constructor of {cls.__name__} has not ended yet.")
    return cls(**{name: arguments[name] for name in names})


class Accelerated(UpdateMethods):
    """Mixin that `accelerate` adds to the class of an optimizer."""

    def apply_gradients(
        self, grads_and_vars: GradsAndVars, *args: Any, **kwargs: Any
    ) -> Optional[Operation]:
        """See `tf.compat.v1.train.Optimizer.apply_gradients`."""
        class_name = type(self).__name__
        with contextlib.ExitStack() as stack:
            stack.enter_context(alone(self, Accelerated))
            pairs = stack.enter_context(gradient_pairs.protected(class_name, grads_and_vars))
            stack.enter_context(self.applying(pairs))
            return super().apply_gradients(pairs, *args, **kwargs)

    def __reduce__(self) -> Tuple[Any, ...]:
        _, original_class = type(self).__bases__  # see `_accelerated`
        return _restored, (original_class,), vars(self).copy()


@functools.lru_cache(maxsize=None)
def _accelerated(cls: Type[V1Optimizer]) -> Type[V1Optimizer]:
    names = ("__doc__", "__module__", "__qualname__")
    attributes = {name: getattr(cls, name) for name in names}
    return type(cls.__name__, (Accelerated, cls), attributes)


def _restored(cls: Type[V1Optimizer]) -> V1Optimizer:
    return object.__new__(_accelerated(cls))
