"""Which v1 optimizers a bridge can take, and why not the others."""

import inspect

import tensorflow as tf

from legacy_opt import DecoupledWeightDecayExtension, MultiOptimizer, RuleOptimizer
from legacy_opt.wrappers.base import OptimizerWrapper

from .inspection import BASE, attributes
from .nesting import nested_optimizers


def check_class(optimizer):
    """Refuses optimizers of a kind that a bridge cannot drive, also inside of wrappers.

    Raises:
      TypeError: it is no v1 optimizer, or cannot update resource variables.
      ValueError: it holds another optimizer and is no `OptimizerWrapper`, or computes its gradients
        itself.
    """
    if not isinstance(optimizer, BASE):
        raise TypeError(
            f"to_keras takes a tf.compat.v1.train.Optimizer, got {optimizer!r} of type "
            f"{type(optimizer).__name__}.{_hint(optimizer)}"
        )
    for nested in nested_optimizers(optimizer):
        inside = () if nested.is_leaf else nested.optimizer.wrapped
        _check_one_class(nested.optimizer, inside)


def _check_one_class(optimizer, inside):
    cls = type(optimizer)
    for attribute, item in attributes(optimizer):
        if isinstance(item, BASE) and not any(item is each for each in inside):
            raise ValueError(
                f"{cls.__name__}.{attribute} is another optimizer, whose state the bridge "
                "would not own. Bridge that one itself."
            )
    if cls.compute_gradients not in _COMPUTE_NOTHING_ELSE:
        raise ValueError(
            f"{cls.__name__} overrides compute_gradients, which Keras never calls: it "
            "computes the gradients itself. Do that work between the tape and "
            "apply_gradients, in a train_step or loop of your own."
        )
    if not inside and cls._resource_apply_dense is BASE._resource_apply_dense:
        raise TypeError(
            f"{cls.__name__} does not define _resource_apply_dense(self, grad, handle), "
            "without which it updates ref variables only; Keras has resource variables. Add "
            "it (and _resource_apply_sparse(self, grad, handle, indices) for embeddings): as "
            "_apply_dense, with handle.handle and the Resource… kernels of tf.raw_ops."
        )


# They ask the optimizers inside, which are checked, too.
_COMPUTE_NOTHING_ELSE = tuple(
    cls.compute_gradients for cls in (BASE, OptimizerWrapper, MultiOptimizer)
)


def _hint(optimizer):
    if isinstance(optimizer, type):
        return " Pass an instance, not the class."
    if hasattr(optimizer, "iterations"):
        return " It is a Keras optimizer already."
    return ""


def check_variables(optimizer, fed):
    """Refuses optimizers that keep variables of their own, which no checkpoint would hold.

    Args:
      optimizer: the v1 optimizer.
      fed: the names of the attributes that the bridge feeds.

    Raises:
      ValueError: it holds a variable that was no argument of its constructor.
    """
    parameters = inspect.signature(type(optimizer).__init__).parameters
    for attribute, item in attributes(optimizer):
        if attribute in fed or attribute.lstrip("_") in parameters:
            continue
        if isinstance(item, tf.Variable):
            raise ValueError(
                f"{type(optimizer).__name__}.{attribute} is a variable ({item.name}), which "
                "no Keras checkpoint would hold. Create state in _create_slots with "
                "_create_non_slot_variable or _zeros_slot."
            )


# These check, warn and tell what will be applied, which a bridge does by `applying`.
_ONLY_PREPARE = tuple(
    vars(cls)["apply_gradients"] for cls in (BASE, RuleOptimizer, DecoupledWeightDecayExtension)
)


def overrides_apply_gradients(optimizer):
    """Whether the optimizer's class has an apply_gradients that must be called itself.

    Raises:
      ValueError: it has, and takes no global step.
    """
    functions = [vars(home).get("apply_gradients") for home in type(optimizer).__mro__]
    own = [function for function in functions if function and function not in _ONLY_PREPARE]
    if not own:
        return False
    if "global_step" not in inspect.signature(own[0]).parameters:
        raise ValueError(
            f"{type(optimizer).__name__}.apply_gradients takes no global_step, so the bridge "
            "cannot tell it the step."
        )
    return True
