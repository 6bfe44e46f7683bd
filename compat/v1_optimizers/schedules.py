"""Converts v1 learning rates and other hyperparameters that change with the global step for Keras.

A converted decay, such as `tf.compat.v1.train.exponential_decay`, reads the Keras optimizer's
`iterations` instead of the global step.
"""

import functools
import inspect

import tensorflow as tf

from legacy_opt import GlobalStepWarning, versions
from legacy_opt.core import argument_checks
from legacy_opt.core.graphs import operations_behind
from legacy_opt.core.hyperparameters import takes_step
from legacy_opt.core.user_warnings import warn


class ByIterations:
    """A v1 schedule that reads the optimizer's `iterations` instead of a global step."""

    def __init__(self, schedule, optimizer):
        self.schedule = schedule
        self.optimizer = optimizer

    def __call__(self):
        return self.schedule(self.optimizer.iterations)


def for_keras(rate, optimizer, keras):
    """Returns a learning rate as a Keras hyperparameter.

    Args:
      rate: a number, tensor, variable, Keras schedule, callable without arguments, or a result of
        `tf.compat.v1.train.exponential_decay(…, global_step, …)` and similar functions.
      optimizer: the Keras optimizer, whose `iterations` replace the global step.
      keras: the Keras package of that optimizer.

    Raises:
      TypeError: `rate` is something else.
      ValueError: `rate` is NaN, infinite or not a scalar; or it is a tensor of a graph while
        executing eagerly; or see `step_behind`.
    """
    rate = versions.tf_variable(rate)
    if isinstance(rate, keras.optimizers.schedules.LearningRateSchedule):
        return rate
    if callable(rate) and hasattr(rate, "get_config"):
        translated = _of_this_keras(rate, keras)
        if translated is None:
            raise TypeError(
                f"learning_rate={rate!r} belongs to a different Keras package than the optimizer, "
                f"which uses {keras.__name__}. Pass one of {keras.__name__}.optimizers.schedules."
            )
        return translated
    # In eager execution, v1's decay functions return `functools.partial(schedule, global_step)`. A
    # Keras optimizer increments its `iterations`, not that global step, so the schedule must be
    # called with `iterations`.
    if is_v1_decay(rate):
        return _of_this_keras(rate.func, keras) or ByIterations(rate.func, optimizer)
    if versions.is_symbolic(rate) and tf.executing_eagerly():
        raise ValueError(
            f"learning_rate={rate!r} is a tensor of a graph, which cannot be used while "
            "executing eagerly. Pass a number, a Keras schedule or a callable."
        )
    step_behind(rate)
    if callable(rate):
        _warn_of_a_step("The learning rate", rate)
    return argument_checks.hyperparameter("learning_rate", rate)


def at_step(schedule, step):
    """Returns the learning rate of a step, a float32 tensor.

    Args:
      schedule: a function that `for_keras` has returned. It takes the step, or no argument.
      step: the number of training steps done.
    """
    return tf.cast(schedule(step) if takes_step(schedule) else schedule(), tf.float32)


def is_v1_decay(rate):
    """Whether `rate` is the `functools.partial` that v1's decays return in eager execution."""
    if not isinstance(rate, functools.partial) or len(rate.args) != 1 or rate.keywords:
        return False
    (step,) = rate.args
    return isinstance(step, tf.Variable) and step.dtype.base_dtype.is_integer


def decays(optimizer, excluded):
    """Returns the schedules of the hyperparameters that are v1 decays, a dict by attribute.

    Warns of functions that may read a global step.

    Args:
      optimizer: the v1 optimizer.
      excluded: the attributes that contain the learning rate.
    """
    found = {}
    for attribute, value in vars(optimizer).items():
        if attribute in excluded:
            continue
        if is_v1_decay(value):
            found[attribute] = in_plain_numbers(value.func)
        elif argument_checks.is_function(value):
            _warn_of_a_step(f"{type(optimizer).__name__}.{attribute}", value)
    return found


def _of_this_keras(schedule, keras):
    """Converts a schedule to the class of the same name in `keras`; None if there is no such class.

    v1's decay functions create schedules of the Keras package inside TensorFlow. No other Keras
    package can save these schedules.
    """
    cls = getattr(keras.optimizers.schedules, type(schedule).__name__, None)
    return None if cls is None else in_plain_numbers(schedule, cls)


def in_plain_numbers(schedule, cls=None):
    """Returns a schedule whose tensors are replaced by numbers, so that any graph can use it.

    Args:
      schedule: a Keras schedule, or the function that v1's decay functions bind to a step. An
        object without `get_config` is returned unchanged.
      cls: the class of the new schedule; None takes the class of `schedule`.
    """
    if not hasattr(schedule, "get_config"):
        return schedule
    number = lambda item: item.numpy().item() if tf.is_tensor(item) else item  # noqa: E731
    settings = {}
    for name, value in schedule.get_config().items():
        settings[name] = [number(v) for v in value] if isinstance(value, list) else number(value)
    if settings.get("name", "") is None:  # v1's default, which Keras 3 does not take
        del settings["name"]
    return (cls or type(schedule)).from_config(settings)


def step_behind(rate):
    """Returns the step variable from which the tensor `rate` of a graph is computed, or None.

    The step variable is the graph's global step if `rate` depends on the global step. Otherwise it
    is the only integer scalar variable that `rate` depends on.

    Raises:
      ValueError: `rate` depends on several such variables, but not on the graph's global step.
    """
    if not versions.is_symbolic(rate):
        return None
    sources = operations_behind([rate])
    steps = [
        variable
        for variable in rate.graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)
        if variable.dtype.base_dtype.is_integer and variable.shape.rank == 0
        if (variable.handle.op if hasattr(variable, "handle") else variable.op) in sources
    ]
    global_step = tf.compat.v1.train.get_global_step(rate.graph)
    if any(step is global_step for step in steps):
        return global_step
    if len(steps) > 1:
        raise ValueError(
            f"learning_rate={rate!r} is computed from several integer variables: "
            f"{', '.join(step.name for step in steps)}. It is not clear which of them is the "
            "global step. Use tf.compat.v1.train.get_or_create_global_step."
        )
    return steps[0] if steps else None


def _warn_of_a_step(what, function):
    """Warns if a function reads an integer variable, which may be a global step."""
    try:
        names = inspect.getclosurevars(function)
    except (TypeError, ValueError):
        return
    for name, value in dict(names.globals, **names.nonlocals).items():
        if isinstance(value, tf.Variable) and value.dtype.base_dtype.is_integer:
            warn(
                f"{what} is a function that reads the variable {name} ({value.name}). If that is "
                "a global step, Keras does not increment it, and the function's result stays "
                "constant. Pass the result of tf.compat.v1.train.exponential_decay (or similar) "
                "directly, or as learning rate a Keras schedule: they follow "
                "optimizer.iterations.",
                GlobalStepWarning,
            )
