"""Which methods of an optimizer's class are called, and how, where TensorFlow itself does not train.

An exit is a function of this package that copies or replaces an optimizer. If a class overrides a
method that an exit does not call, the result would train differently: `refusal` says so.
"""

from __future__ import annotations

import inspect
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

import tensorflow as tf

CALLED, WHOLE, REFUSED = "called", "called as a whole", "refused"
ARGUMENTS = "refused, unless it only adds arguments"
IN_RULES = "called in a `RuleOptimizer`, else refused"

# The methods by which TensorFlow's v1 optimizers update variables.
_RESOURCE = "_resource_apply_dense _resource_apply_sparse _resource_apply_sparse_duplicate_indices"
_UPDATES = f"{_RESOURCE} _apply_dense _apply_sparse _apply_sparse_duplicate_indices"
UPDATE_METHODS = tuple(_UPDATES.split())
# For each kind of optimizer, its exits and a dict from methods to how the exits call them.
TABLE: Mapping[str, Tuple[Sequence[str], Mapping[str, Sequence[str]]]] = {
    "v1": (
        ("to_keras", "record", "accelerate"),
        {
            "minimize": (ARGUMENTS, ARGUMENTS, CALLED),
            "compute_gradients _scale_loss": (REFUSED, REFUSED, CALLED),
            "apply_gradients": (WHOLE, REFUSED, CALLED),
            "_distributed_apply": (REFUSED, REFUSED, CALLED),
            "_create_slots _prepare": (CALLED, CALLED, CALLED),
            "_finish": (CALLED, REFUSED, CALLED),
            _UPDATES: (CALLED, REFUSED, IN_RULES),
            "_zeros_slot _get_or_make_slot _get_or_make_slot_with_initializer get_slot "
            "_create_non_slot_variable _get_non_slot_variable": (REFUSED, CALLED, CALLED),
        },
    ),
    "OptimizerV2": (
        ("to_v1", "Keras 3"),
        {
            "minimize": (ARGUMENTS, ARGUMENTS),
            "_compute_gradients _get_gradients get_gradients get_updates _transform_loss": (
                *(REFUSED, REFUSED),
            ),
            "apply_gradients": (WHOLE, WHOLE),
            "_transform_unaggregated_gradients _aggregate_gradients _transform_gradients "
            f"_create_slots _prepare {_RESOURCE}": (CALLED, CALLED),
        },
    ),
}
_WAYS_OUT = {
    "to_keras": "Change the loss, or the gradients between the tape and apply_gradients, in your "
    "own train_step or loop; or the gradients in the class's apply_gradients, which is called as a "
    "whole. Make slots in _create_slots.",
    "record": "Write it into the rule of a RuleOptimizer, or record an optimizer without it, and "
    "change the loss and the gradients where you train with the record.",
    "to_v1": "Compute the same in apply_gradients, or train with the Keras optimizer itself.",
    "Keras 3": "Compute the same in apply_gradients or _transform_gradients, or train in tf_keras.",
}
_TRUSTED = ("legacy_opt", "tensorflow", "tensorflow_core", "keras", "tf_keras")


def of_users(classes: Iterable[type], method: str) -> List[type]:
    """Returns those of the classes that define a method, and are users' own."""
    found = [each for each in classes if method in vars(each)]
    return [each for each in found if each.__module__.partition(".")[0] not in _TRUSTED]


def accepted(function: Callable[..., Any], **given: Any) -> Dict[str, Any]:
    """Returns those of the keyword arguments that a function takes."""
    parameters = inspect.signature(function).parameters
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return given
    return {name: value for name, value in given.items() if name in parameters}


def refusal(exit_name: str, optimizer: Any, ignored: Sequence[str] = ()) -> Optional[str]:
    """Returns why an exit must refuse an optimizer, or None.

    Args:
      exit_name: the name of the exit in `TABLE`.
      optimizer: the optimizer.
      ignored: methods that are not called where the optimizer trains at present, either.
    """
    cls = type(optimizer)
    for exits, rows in TABLE.values():
        for methods, how in rows.items() if exit_name in exits else ():
            called = how[exits.index(exit_name)]
            for method in [each for each in methods.split() if each not in ignored]:
                if method in vars(optimizer):
                    return (
                        f"{cls.__name__}.{method} was set on the object, of which {exit_name} makes "
                        "a copy. Define the method in a subclass."
                    )
                users = of_users(cls.__mro__, method)
                if users and called == WHOLE:
                    missing = _missing_argument(vars(users[0])[method], optimizer, exit_name)
                    if missing:
                        return f"{cls.__name__}.{method}: {missing}"
                elif users and (
                    called == REFUSED or called == ARGUMENTS and not _only_adds_arguments(optimizer)
                ):
                    return (
                        f"{cls.__name__} overrides {method}, which {exit_name} does not call, so it "
                        f"would train differently. {_WAYS_OUT[exit_name]}"
                    )
    return None


def _missing_argument(function: Callable[..., Any], optimizer: Any, exit_name: str) -> str:
    """Returns why an exit cannot call apply_gradients as TensorFlow does; "" if it can."""
    given = accepted(function, global_step=None, name=None) if exit_name == "to_keras" else {}
    if exit_name == "to_keras" and "global_step" not in given:
        return "it has no parameter global_step, so Keras cannot pass its iterations."
    try:
        inspect.signature(function).bind(optimizer, [], **given)
    except TypeError as error:
        return f"{error}, which nobody gives in Keras. Give it a default, or set an attribute."
    return ""


def _only_adds_arguments(optimizer: Any) -> bool:
    """Whether `minimize` passes on the very objects that it gets, and does nothing else.

    For example, the AdamW of `tf.contrib.opt` and of TensorFlow Addons add `decay_var_list`.
    """
    try:
        return all(_passes_on(optimizer, is_function) for is_function in (False, True))
    except Exception:  # it computes with what it gets
        return False


def _passes_on(optimizer: Any, is_function: bool) -> bool:
    root = [each for each in type(optimizer).__mro__ if "minimize" in vars(each)][-1]
    compute = "compute_gradients" if hasattr(root, "compute_gradients") else "_compute_gradients"
    calls: List[Tuple[str, Dict[str, Any]]] = []

    def noting(method: str, result: Any) -> Callable[..., Any]:
        def note(*args: Any, **kwargs: Any) -> Any:
            kwargs = {name: each for name, each in kwargs.items() if each is not None}
            bound = inspect.signature(getattr(root, method)).bind(None, *args, **kwargs)
            calls.append((method, dict(bound.arguments)))
            return result

        return note

    with tf.Graph().as_default() as graph:
        tensor, variable = tf.zeros([]), tf.compat.v1.get_variable("v", [], use_resource=True)
        loss, pairs = (lambda: tensor) if is_function else tensor, [(tensor, variable)]
        options = {"global_step": object(), "grad_loss": object(), "tape": object()}
        given = accepted(type(optimizer).minimize, **accepted(root.minimize, **options))
        probe = object.__new__(type(optimizer))
        before = {name: _copied(value) for name, value in vars(optimizer).items()}
        vars(probe).update({name: _copied(value) for name, value in before.items()})
        stubs = {compute: noting(compute, pairs), "apply_gradients": noting("apply_gradients", 0)}
        vars(probe).update(stubs)
        size = len(graph.get_operations())
        if compute == "compute_gradients":
            probe.minimize(loss, var_list=[variable], **given)
        else:  # Keras passes the list by its position
            probe.minimize(loss, [variable], **given)
        (first, computed), (second, applied) = calls
        step = given.pop("global_step", None)
        return (
            (first, second) == (compute, "apply_gradients")
            and len(graph.get_operations()) == size
            and all(computed[name] is value for name, value in [("loss", loss), *given.items()])
            and [id(each) for each in computed["var_list"]] == [id(variable)]
            and [tuple(map(id, pair)) for pair in applied["grads_and_vars"]]
            == [(id(tensor), id(variable))]
            and applied.get("global_step") is step
            and all(
                value is before.get(name) or not value or value == before[name]
                for name, value in vars(probe).items()
                if name not in stubs
            )
        )


def _copied(value: Any) -> Any:
    return type(value)(value) if type(value) in (dict, list, set) else value
