"""Trains with optimizers whose hyperparameters change between training steps.

A training starts with a case's arguments. Every `PHASE` steps, another argument gets another value.
Before the last `PHASE` steps, all arguments get their first values again. `fresh` computes the
expected values: at each change, it creates a new optimizer with the new arguments, as numbers. This
optimizer gets the slots of the previous one, and runs eagerly, without native kernels.
"""

import functools
import math
import numbers
from typing import Any, Callable, NamedTuple

import numpy as np
import tensorflow as tf

import legacy_opt
from legacy_opt.programs.program import UnsupportedError
from tests.support import arguments, running
from tests.support.keras import keras_models
from tests.support.keras.keras_apis import APIS
from tests.support.keras.keras_cases import CASES, OURS, TENSORFLOW

v1 = tf.compat.v1
PHASE = 2


def _names():
    """Returns a case of each class, and cases with slots that the first case lacks."""
    first = {}
    for name, case in {**TENSORFLOW, **OURS}.items():
        first.setdefault(case.optimizer, name)
    others = [
        "RMSProp centered, momentum",
        "Adafactor learning_rate, beta1",
        "Shampoo svd_interval, use_iterative_root",
    ]
    return [*first.values(), *others]


NAMES = _names()
# These arguments choose the slots, so that they cannot change in a training.
_OF_SLOTS = ("amsgrad", "centered", "factored", "max_matrix_size", "gbar_decay")
_OF_SLOTS_AT = (("beta1", 0.0), ("svd_interval", 1))
_NOT_FOR_VALUES = ("use_locking",)
# TensorFlow's optimizers that do not call callables.
_NO_CALLABLES = (
    v1.train.AdagradDAOptimizer,
    v1.train.FtrlOptimizer,
    v1.train.ProximalAdagradOptimizer,
    v1.train.ProximalGradientDescentOptimizer,
)
# Older TensorFlows multiply a sparse gradient by the constructor's argument, whatever it is.
_GRADIENT_DESCENT = v1.train.GradientDescentOptimizer
_SPARSE_BY_NUMBERS = (
    "_learning_rate_tensor"
    not in _GRADIENT_DESCENT._resource_apply_sparse_duplicate_indices.__code__.co_names
)
_OTHER_NUMBERS = {
    "epsilon2": 4.0,  # Adafactor's lower bound of a scale
    "sma_threshold": 8.0,  # more than the length of the average
    "total_steps": 40,  # more than those of the training
}
_OTHERS: Any = {
    "decay_rate": 0.6,
    "exclude_from_layer_adaptation": ["table"],
    "exclude_from_weight_decay": ["matrix"],
    "sign_decay_fn": lambda step: 0.5,
    "skip_list": ["matrix"],
}
# Attributes whose name or value differs from the argument's.
_ATTRIBUTES: Any = {"base": ("_logbase", math.log)}


def is_number(value):
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _other(name, value):
    """Returns another value for an argument; None if there is none."""
    if name in _OF_SLOTS + _NOT_FOR_VALUES or (name, value) in _OF_SLOTS_AT:
        return None
    if isinstance(value, bool):
        return not value
    if is_number(value):
        if name in _OTHER_NUMBERS:
            return _OTHER_NUMBERS[name]
        if "epsilon" in name:
            return 0.25
        if name == "alpha":  # Shampoo's iterative roots take powers of two only
            return value / 2
        if isinstance(value, int):
            return 2 if value > 2 else value + 1
        return value * 0.75 if value else 0.0625
    if name == "decay_rate" and value is None:
        return None
    return _OTHERS.get(name)


def _order(argument):
    """Returns a sort key: some changes would have no effect after others."""
    # LAMB's bias correction hardly changes later steps, and the default of
    # `exclude_from_layer_adaptation` is the argument `exclude_from_weight_decay`.
    first = argument in ("bias_correction", "exclude_from_layer_adaptation")
    return argument == "multiply_by_parameter_scale", not first


@functools.lru_cache(maxsize=None)
def changes_of(name):
    """Returns a case's changes: a dict from argument to a pair, the first and the other value."""
    noted = {}

    def note(values):
        noted.update(values)
        return values

    arguments.changed(CASES[name], note)(None)
    noted = {key: noted[key] for key in sorted(noted, key=_order)}
    others = {key: (value, _other(key, value)) for key, value in noted.items()}
    return {key: pair for key, pair in others.items() if pair[1] is not None}


class Plan(NamedTuple):
    """When the values of a case change.

    Attributes:
      changes: see `changes_of`.
    """

    changes: dict

    @property
    def steps(self):
        return PHASE * (len(self.changes) + 2)

    def at(self, number):
        """Returns the values that change before a step, a dict from argument to value."""
        phase, rest = divmod(number, PHASE)
        if rest or not phase:
            return {}
        if phase <= len(self.changes):
            argument = list(self.changes)[phase - 1]
            return {argument: self.changes[argument][1]}
        return {argument: first for argument, (first, _) in self.changes.items()}

    def what(self, number):
        """Returns a description of a step, for error messages."""
        phase = number // PHASE
        words = ["nothing", *self.changes, "everything back"]
        return f"step {number} ({words[phase]} has changed)"


def plan(name):
    return Plan(changes_of(name))


@functools.lru_cache(maxsize=None)
def problem_of(name, dtype):
    problem = keras_models.problem(steps=plan(name).steps, rows=4)

    def cast(gradient):
        if isinstance(gradient, tuple):
            return gradient._replace(values=gradient.values.astype(dtype))
        return gradient.astype(dtype)

    return problem._replace(
        values={key: cast(value) for key, value in problem.values.items()},
        gradients=[{key: cast(value) for key, value in step.items()} for step in problem.gradients],
        dtype=dtype,
    )


def _global_step():
    return tf.Variable(0, dtype=tf.int64, trainable=False)


def _applying(step):
    def apply(optimizer, gradients, variables):
        optimizer.apply_gradients(keras_models.pairs(gradients, variables), global_step=step)

    return apply


@functools.lru_cache(maxsize=None)
def fresh(name, dtype, changed):
    """Returns the expected steps if the arguments in the tuple `changed` change."""
    schedule, step = plan(name), _global_step()
    now, made = {}, []

    def between(_, number):
        change = {key: value for key, value in schedule.at(number).items() if key in changed}
        if not number or change:
            now.update(change)
            make = arguments.changed(CASES[name], lambda values: {**values, **now})
            optimizer = make(step)
            if made:
                optimizer._slots, optimizer._non_slot_dict = (
                    made[-1]._slots,
                    made[-1]._non_slot_dict,
                )
            made.append(optimizer)

    def apply(_, gradients, variables):
        _applying(step)(made[-1], gradients, variables)

    problem = problem_of(name, dtype)
    return keras_models.loop(problem, None, "eager", between, apply)[0].steps


def with_setting(optimizer, setting):
    """Sets the setting of native kernels of a v1 optimizer."""
    if setting != "off":
        legacy_opt.native.accelerate(optimizer, require=setting == "require")
    return optimizer


# Sources: how an optimizer gets new values.


class Attributes:
    """Sets attributes of a v1 optimizer."""

    def __init__(self, name, setting, step):
        self.optimizer = with_setting(CASES[name].make(step), setting)
        self.firsts, self.refused, self.last = {}, set(), None

    @property
    def changed(self):
        return [argument for argument in self.firsts if argument not in self.refused]

    def set(self, argument, value):
        attribute, convert = _ATTRIBUTES.get(argument, (None, lambda value: value))
        candidates = [attribute, "_" + argument, argument]
        if argument == "learning_rate":
            candidates += ["_lr", "lr"]
        attribute = next(each for each in candidates if each in vars(self.optimizer))
        if argument in self.firsts:
            # The constructor may have stored another value than the argument's.
            setattr(self.optimizer, attribute, self.firsts[argument])
        else:
            self.firsts[argument] = getattr(self.optimizer, attribute)
            setattr(self.optimizer, attribute, convert(value))
            self.last = argument

    def refuse(self):
        """Undoes the last change, for which there is no kernel."""
        if self.last is None or self.last in self.refused:
            return False
        self.refused.add(self.last)
        self.set(self.last, None)
        return True


class Given:
    """Gives variables, or what reads variables, to the constructor, where it takes them.

    Args:
      name: the case.
      setting: the setting of native kernels.
      step: the global step.
      kind: a key of `GIVE`.
      in_keras: whether `to_keras` gets the optimizer.
    """

    def __init__(self, name, setting, step, kind, in_keras=False):
        self.variables = {}
        case, give = CASES[name], GIVE[kind]
        for argument, (value, _) in changes_of(name).items():
            if is_number(value) and _may_be_given(case, argument, value, kind, setting, in_keras):
                variable = tf.compat.v2.Variable(
                    value if isinstance(value, int) else np.float32(value), trainable=False
                )
                if self._takes(case, step, argument, give(variable)):
                    self.variables[argument] = variable
        given = {argument: give(variable) for argument, variable in self.variables.items()}
        make = arguments.changed(case, lambda values: {**values, **given})
        self.optimizer = with_setting(make(step), setting)

    @staticmethod
    def _takes(case, step, argument, value):
        try:
            arguments.changed(case, lambda values: {**values, argument: value})(step)
        except (TypeError, ValueError):
            return False
        return True

    @property
    def changed(self):
        return list(self.variables)

    def set(self, argument, value):
        if argument in self.variables:
            self.variables[argument].assign(value)

    def load(self, sess, argument, value):
        if argument in self.variables:
            self.variables[argument].load(value, sess)


def _may_be_given(case, argument, value, kind, setting, in_keras):
    """Returns False where TensorFlow's or our optimizers raise an error only in the first step."""
    if case.optimizer is _GRADIENT_DESCENT and _SPARSE_BY_NUMBERS:
        return setting != "off" or in_keras
    if argument.startswith("initial_") or argument == "l2_shrinkage_regularization_strength":
        return False
    if "callable" in kind and issubclass(case.optimizer, _NO_CALLABLES):
        return in_keras and argument == "learning_rate"
    # `to_keras` refuses integer variables, which look like a global step.
    return not (in_keras and isinstance(value, int))


GIVE: Any = {
    "variable": lambda variable: variable,
    "callable": lambda variable: lambda: variable,
    "tensor": lambda variable: variable + tf.zeros_like(variable),
    "callable of a tensor": lambda variable: lambda: variable + tf.zeros_like(variable),
}


# Ways to train. Each returns the steps and the arguments that have changed.


def in_a_session(name, dtype, setting, source, use_resource=True):
    kind = "tensor" if source == "attribute" else source
    sources, schedule = [], plan(name)

    def make(step):
        sources.append(Given(name, setting, step, kind))
        return sources[0].optimizer

    def between(sess, optimizer, variables, number):
        for argument, value in schedule.at(number).items():
            sources[0].load(sess, argument, value)

    problem = problem_of(name, dtype)
    trace = running.session(problem, make, use_resource, between)
    return trace.steps, sources[0].changed


def _loop(name, dtype, source, way, optimizer, apply=None):
    schedule = plan(name)

    def between(_, number):
        for argument, value in schedule.at(number).items():
            source.set(argument, value)

    problem = problem_of(name, dtype)
    trace, again = keras_models.loop(problem, optimizer, way, between, apply)
    assert way == "eager" or again == 0
    return trace.steps, source.changed


def in_v1(name, dtype, setting, source, way):
    step = _global_step()
    apply = _applying(step)
    if source == "attribute" and way == "eager":
        made = Attributes(name, setting, step)
        apply = _or_refusing(apply, made)
    else:
        kind = "callable of a tensor" if source == "attribute" else source
        made = Given(name, setting, step, kind)
    return _loop(name, dtype, made, way, made.optimizer, apply)


def _or_refusing(apply, attributes):
    """Undoes a change and applies the gradients again, if kernels are required but missing."""

    def apply_or_refuse(*arguments):
        try:
            apply(*arguments)
        except UnsupportedError:
            if not attributes.refuse():
                raise
            apply(*arguments)

    return apply_or_refuse


class KerasAttributes:
    """Sets attributes of a Keras optimizer; notes the arguments that can be set."""

    def __init__(self, name, setting, api):
        self.optimizer = api.bridged(with_setting(CASES[name].make(None), setting))
        self.changed, self.errors = [], {}

    def set(self, argument, value):
        if argument in self.errors:
            return
        try:
            setattr(self.optimizer, argument, value)
        except (AttributeError, RuntimeError) as error:
            self.errors[argument] = str(error)
            assert argument in str(error)
        else:
            self.changed.append(argument)


def in_keras(name, dtype, setting, source, api, way):
    api = APIS[api]
    if source == "attribute":
        made = KerasAttributes(name, setting, api)
        optimizer = made.optimizer
    else:
        made = Given(name, setting, None, source, in_keras=True)
        optimizer = api.bridged(made.optimizer)
    if way == "fit":
        return _fit(name, made, api, optimizer)
    return _loop(name, dtype, made, way, optimizer)


def _fit(name, source, api, optimizer):
    schedule = plan(name)

    class Changing(api.keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            for argument, value in schedule.at(batch).items():
                source.set(argument, value)

    trace, _ = api.fit(problem_of(name, "float32"), optimizer, [Changing()])
    return trace.steps, source.changed


class Way(NamedTuple):
    """A way to train; `dtypes` are the dtypes that it supports."""

    run: Callable
    dtypes: tuple = ("float32", "float64")


def _keras(api, way, **options):
    return Way(functools.partial(in_keras, api=api, way=way), **options)


def run(name, way, source, setting, dtype):
    """Trains a case; returns the dtype, the steps and the arguments that have changed."""
    # TensorFlow's proximal optimizers take float32 rates only.
    if dtype not in WAYS[way].dtypes or "Proximal" in name:
        dtype = "float32"
    steps, changed = WAYS[way].run(name, dtype, setting, source)
    return dtype, steps, tuple(each for each in changes_of(name) if each in changed)


WAYS = {
    "session-ref": Way(functools.partial(in_a_session, use_resource=False)),
    "session-resource": Way(in_a_session),
    "function": Way(functools.partial(in_v1, way="function")),
    "eager": Way(functools.partial(in_v1, way="eager")),
    "keras2 function": _keras("optimizer_v2", "function"),
    "keras2 eager": _keras("optimizer_v2", "eager"),
    "keras2 fit": _keras("optimizer_v2", "fit", dtypes=("float32",)),
    "keras3 function": _keras("keras3", "function"),
    "keras3 eager": _keras("keras3", "eager"),
    "keras3 fit": _keras("keras3", "fit", dtypes=("float32",)),
}
SETTINGS = ("off", "auto", "require")
