"""Converts hyperparameters of v1 that change with the global step, for Keras.

A converted decay, such as `tf.compat.v1.train.exponential_decay`, reads the Keras optimizer's
`iterations` instead of the global step.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Set

import tensorflow as tf

import legacy_opt
from legacy_opt import CyclicalLearningRate, GlobalStepWarning, versions
from legacy_opt.core import argument_checks
from legacy_opt.core.graphs import integer_variables_behind, source_of
from legacy_opt.core.hyperparameters import takes_nothing, takes_step
from legacy_opt.core.types import GlobalStep, KerasOptimizer, KerasSchedule, Tensor, V1Optimizer
from legacy_opt.core.user_warnings import warn

Rate = Any  # a learning rate: a number, tensor, variable, Keras schedule or function
KerasPackage = Any  # tf.keras, tf_keras or keras
# Packages that contain TensorFlow's and Keras' classes of schedules.
_HOMES = ("keras", "tensorflow", "tensorflow_core", "tf_keras", "keras_core")


class ByIterations:
    """A v1 schedule that reads the optimizer's `iterations` instead of a global step."""

    def __init__(self, schedule: KerasSchedule, optimizer: KerasOptimizer):
        self.schedule = schedule
        self.optimizer = optimizer

    def __call__(self) -> Tensor:
        return self.schedule(self.optimizer.iterations)


def for_keras(rate: Rate, optimizer: KerasOptimizer, keras: KerasPackage) -> Rate:
    """Returns a learning rate as a hyperparameter of `optimizer`, which is of the package `keras`.

    The rate may be a number, tensor, variable, Keras schedule, callable without arguments, a
    `CyclicalLearningRate`, or a result of `tf.compat.v1.train.exponential_decay(…, global_step, …)`
    and similar functions. Other objects raise a TypeError, and numbers that are NaN, infinite or no
    scalar, and tensors of a graph while executing eagerly, a ValueError.
    """
    rate = versions.tf_variable(rate)
    if isinstance(rate, keras.optimizers.schedules.LearningRateSchedule):
        return rate
    if isinstance(rate, CyclicalLearningRate):
        return cyclical(rate, keras)
    if callable(rate) and hasattr(rate, "get_config"):
        translated = _of_this_keras(rate, keras)
        if translated is not None:
            return translated
        raise TypeError(
            f"learning_rate={rate!r} belongs to a different Keras package than the optimizer, "
            f"which uses {keras.__name__}. Pass one of {keras.__name__}.optimizers.schedules."
        )
    # In eager execution, v1's decay functions return `functools.partial(schedule, global_step)`. A
    # Keras optimizer does not increment this step: call the schedule with `iterations` instead.
    if is_v1_decay(rate):
        return _of_this_keras(rate.func, keras) or ByIterations(rate.func, optimizer)
    if versions.is_symbolic(rate) and tf.executing_eagerly():
        raise ValueError(
            f"learning_rate={rate!r} is a tensor of a graph, which cannot be used while "
            "executing eagerly. Pass a number, a Keras schedule or a callable."
        )
    if callable(rate) and not versions.for_a_session():
        _warn_of_a_step("The learning rate", rate)
    return argument_checks.hyperparameter("learning_rate", rate)


def cyclical(schedule: CyclicalLearningRate, keras: KerasPackage) -> KerasSchedule:
    """Returns a copy of a `CyclicalLearningRate` that is a schedule of the package `keras`."""
    cls: Any = cyclical_class(type(schedule), keras)
    made = cls.__new__(cls)
    vars(made).update(vars(schedule))
    return made


@functools.lru_cache(maxsize=None)
def cyclical_class(cls: type, keras: KerasPackage) -> type:
    """Returns the subclass of `cls`, a `CyclicalLearningRate`, for the schedules of `keras`."""
    bases = cls, keras.optimizers.schedules.LearningRateSchedule
    # Keras passes the step: `takes_step` of the new class.
    made = type(cls.__name__, bases, {"__call__": lambda self, step: cls.__call__(self, step)})
    versions.register_with(keras, made)
    return made


def cyclical_classes(keras: KerasPackage) -> List[type]:
    """Returns the classes of cyclical schedules that files of `keras` name; registers them."""
    names = "Triangular", "Triangular2", "Exponential"
    return [cyclical_class(getattr(legacy_opt, f"{x}CyclicalLearningRate"), keras) for x in names]


def at_step(schedule: Rate, step: GlobalStep) -> Tensor:
    """Returns the learning rate of a step, a float32 tensor; the schedule is from `for_keras`."""
    rate = schedule(tf.convert_to_tensor(step)) if takes_step(schedule) else schedule()
    return tf.cast(rate, tf.float32)


def is_v1_decay(rate: Rate) -> bool:
    """Whether `rate` is the `functools.partial` that v1's decays return in eager execution.

    A partial of any other function counts if its integer variable has the name of a step.
    """
    if not isinstance(rate, functools.partial) or len(rate.args) != 1 or rate.keywords:
        return False
    (step,) = rate.args
    if not isinstance(step, tf.Variable) or not step.dtype.base_dtype.is_integer:
        return False
    is_named_step = any(word in step.name.lower() for word in ("step", "iter"))
    return is_named_step or _is_of_keras(rate.func) or hasattr(rate.func, "get_config")


def _is_of_keras(schedule: Any) -> bool:
    """Whether a schedule's class is TensorFlow's or Keras' own."""
    return type(schedule).__module__.split(".")[0] in _HOMES


def _in_any_graph(schedule: KerasSchedule, step: GlobalStep) -> Tensor:
    """Calls a v1 decay; in a graph that cannot capture eager tensors, with numbers instead."""
    can_capture = tf.executing_eagerly() or hasattr(tf.compat.v1.get_default_graph(), "capture")
    if not can_capture:
        schedule = in_plain_numbers(schedule)
    return schedule(step)


def decays(
    optimizer: V1Optimizer, excluded: Iterable[str]
) -> Dict[str, Callable[[GlobalStep], Any]]:
    """Returns the hyperparameters that are v1 decays, a dict from attributes to functions.

    The functions take the step, and return the attribute's value. Warns of other functions that may
    read a global step. `excluded` are the attributes with the learning rate.
    """
    found = {}
    computed = getattr(optimizer, "_computed_attributes", ())
    for attribute, value in vars(optimizer).items():
        if attribute in excluded or attribute in computed:
            continue
        if any(map(is_v1_decay, _items(value))):
            found[attribute] = functools.partial(_bound_to, value)
        elif argument_checks.is_function(value) and not versions.for_a_session():
            _warn_of_a_step(f"{type(optimizer).__name__}.{attribute}", value)
    return found


def _bound_to(value: Any, step: GlobalStep) -> Any:
    """Binds a v1 decay, or all v1 decays in a container, to another step."""
    if is_v1_decay(value):
        return functools.partial(_in_any_graph, value.func, step)
    return _mapped(functools.partial(_bound_to, step=step), value)


def _items(value: Any) -> List[Any]:
    """Returns the items of a list, tuple or dict, also of nested ones, or the value itself."""
    if type(value) in (list, tuple):
        return [item for each in value for item in _items(each)]
    if type(value) is dict:
        return _items(list(value.values()))
    return [value]


def _mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """Applies a function to the items of a list, tuple or dict; returns other values unchanged."""
    if type(value) in (list, tuple):
        return type(value)(map(function, value))
    if type(value) is dict:
        return {key: function(each) for key, each in value.items()}
    return value


def depends_on_graph(value: Any) -> bool:
    """Whether an attribute has a tensor of the TF1 graph, or a function that may return one."""
    return versions.for_a_session() and any(map(_is_of_graph, _items(value)))


def _is_of_graph(value: Any) -> bool:
    # A tensor of another graph is left over from an earlier training.
    return _is_getter(value) or (versions.is_symbolic(value) and _is_outer(value.graph))


def _is_getter(value: Any) -> bool:
    return takes_nothing(value) and not inspect.isclass(value)


def checked(value: Any, check: Callable[[Tensor], None]) -> Any:
    """Calls `check` for each tensor of the TF1 graph in an attribute's value; returns the value.

    Functions in the value are replaced by functions that check their results.
    """
    if _is_getter(value):
        return lambda: checked(called_outside(value), check)
    if versions.is_symbolic(value) and _is_outer(value.graph):
        check(value)
    return _mapped(lambda each: checked(each, check), value)


def called_outside(function: Callable[[], Any]) -> Any:
    """Calls a function in the TF1 graph itself, not in the graph of Keras' function.

    In the TF1 graph, ref variables can be read, and a step is read before Keras increments it.
    """
    with tf.init_scope():
        return function()


def _is_outer(graph: tf.Graph) -> bool:
    """Whether a graph is the current graph, or contains it as the graph of a function."""
    current = tf.compat.v1.get_default_graph()
    while current is not None and current is not graph:
        current = getattr(current, "outer_graph", None)
    return current is graph


def _of_this_keras(schedule: KerasSchedule, keras: KerasPackage) -> Optional[KerasSchedule]:
    """Converts a schedule to the class of the same name in `keras`; None if that is impossible.

    v1's decay functions create schedules of the Keras package inside TensorFlow. No other Keras
    package can save these schedules. Schedules of users or with variables are not converted.
    """
    cls = getattr(keras.optimizers.schedules, type(schedule).__name__, None)
    if cls is None or not _is_of_keras(schedule):
        return None
    settings = schedule.get_config().values()
    if any(isinstance(each, tf.Variable) for value in settings for each in _items(value)):
        return None
    return in_plain_numbers(schedule, cls)


def in_plain_numbers(schedule: Any, cls: Optional[type] = None) -> Any:
    """Returns a schedule whose tensors are replaced by numbers, so that any graph can use it.

    `schedule` is a schedule, or a function that v1 binds to a step. A user's schedule is returned
    unchanged. The new schedule is of the class `cls` and stores Python numbers. If `cls` is None,
    the new schedule is of the same class and stores NumPy's numbers, which keep the dtype.
    """
    if not hasattr(schedule, "get_config") or not _is_of_keras(schedule):
        return schedule

    def number(item: Any) -> Any:
        if not tf.is_tensor(item):
            return item
        return item.numpy() if cls is None else item.numpy().item()

    settings = {}
    for name, value in schedule.get_config().items():
        settings[name] = [number(v) for v in value] if isinstance(value, list) else number(value)
    if settings.get("name", "") is None:  # v1's default, which Keras 3 does not take
        del settings["name"]
    return (cls or type(schedule)).from_config(settings)


def check_follows(tensor: Tensor, own: Iterable[tf.Variable]):
    """Raises a ValueError if a hyperparameter is computed from a step that Keras does not count.

    Such a step is any integer scalar variable except the Keras optimizer's variables, `own`.
    """
    # A distributed variable has the variables of the replicas in `values`.
    known = {source_of(part) for each in own for part in getattr(each, "values", (each,))}
    others = sorted(each.name for each in integer_variables_behind(tensor) if each not in known)
    if others:
        raise ValueError(
            f"A hyperparameter, {tensor.name}, is computed from the integer variable {others[0]}, "
            "but it is not known whether this optimizer increments it. If it does, pass the "
            "variable: to_keras(…, global_step=…). If something else increments it, or it is no "
            "global step, pass global_step=None. Or pass a schedule of Keras as learning_rate, "
            "which follows the optimizer's iterations."
        )


def _warn_of_a_step(name: str, function: Callable):
    """Warns if a function may read an integer variable, which may be a global step."""
    variable = next(_integer_variables(function, set(), depth=4), None)
    if variable is not None:
        warn(
            f"{name} is a function that may read the variable {variable.name}. If that is a global "
            "step, Keras does not increment it, and the function's result stays constant. Pass the "
            "result of tf.compat.v1.train.exponential_decay (or similar) directly, or as learning "
            "rate a Keras schedule: they follow optimizer.iterations.",
            GlobalStepWarning,
        )


def _integer_variables(thing: Any, seen: Set[int], depth: int) -> Iterator[tf.Variable]:
    """Yields the integer scalar variables that a function or an object refers to."""
    if id(thing) in seen or depth < 0 or len(seen) > 10000:
        return
    seen.add(id(thing))
    if not isinstance(thing, tf.Variable):
        for each in _parts(thing):
            yield from _integer_variables(each, seen, depth - 1)
    elif thing.dtype.base_dtype.is_integer and thing.shape.rank == 0:
        yield thing


def _parts(thing: Any) -> List[Any]:
    """Returns what a function or an object refers to: closures, globals, defaults, attributes.

    Models and layers are left out: their integer variables are usually no global steps.
    """
    if isinstance(thing, (list, tuple)):
        return list(thing[:100])
    if isinstance(thing, dict):
        return list(thing.values())[:100]
    if isinstance(thing, functools.partial):
        return [thing.func, *thing.args, *thing.keywords.values()]
    if inspect.ismethod(thing):
        return [thing.__self__, thing.__func__]
    if inspect.isfunction(thing):
        try:
            names = inspect.getclosurevars(thing)
        except ValueError:  # a variable of the closure has no value yet
            return []
        defaults = [*(thing.__defaults__ or ()), *(thing.__kwdefaults__ or {}).values()]
        return [*names.globals.values(), *names.nonlocals.values(), *defaults]
    if inspect.ismodule(thing) or inspect.isclass(thing) or tf.is_tensor(thing):
        return []
    if hasattr(type(thing), "trainable_variables"):  # a model or layer
        return []
    return list(getattr(thing, "__dict__", {}).values())
