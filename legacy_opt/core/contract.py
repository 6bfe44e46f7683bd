"""Lists the methods of an optimizer that are called where TensorFlow itself does not train.

An exit is a function of this package that copies or replaces an optimizer. If a class overrides a
method that an exit does not call, the result would train differently: `check` refuses the class.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import itertools
from typing import Any, Callable, Collection, Dict, Iterable, List, Optional, Sequence, Tuple, Type

import tensorflow as tf

# A loss, variables or None, and (gradient, variable) pairs. The objects may be stand-ins.
Case = Tuple[Any, Optional[List[Any]], Sequence[Tuple[Any, Any]]]
# How an exit treats a method that a user's class overrides.
CALLED, WHOLE, REFUSED = "called", "called as a whole", "refused"
ARGUMENTS = "refused, unless it only adds arguments"
IN_RULES = "called in a `RuleOptimizer`, else refused"
WITH_RESOURCE = "refused, unless the class overrides its `_resource` form, too"
# The methods by which TensorFlow's v1 optimizers update variables.
_RESOURCE = "_resource_apply_dense _resource_apply_sparse _resource_apply_sparse_duplicate_indices"
_REF = "_apply_dense _apply_sparse _apply_sparse_duplicate_indices"
UPDATE_METHODS = tuple(f"{_RESOURCE} {_REF}".split())
# {exits: {methods: the treatment by each exit, in the same order}}. The first exits take v1
# optimizers, the others OptimizerV2s.
TABLE = {
    ("to_keras", "record", "accelerate"): {
        "minimize": (ARGUMENTS, ARGUMENTS, CALLED),
        "compute_gradients _scale_loss": (REFUSED, REFUSED, CALLED),
        "apply_gradients": (WHOLE, REFUSED, CALLED),
        "_distributed_apply": (REFUSED, REFUSED, CALLED),
        "_create_slots _prepare": (CALLED, CALLED, CALLED),
        "_finish": (CALLED, REFUSED, CALLED),
        _RESOURCE: (CALLED, REFUSED, IN_RULES),
        _REF: (WITH_RESOURCE, REFUSED, IN_RULES),
        "_zeros_slot _get_or_make_slot _get_or_make_slot_with_initializer get_slot own_slot "
        "_slot_dict _create_non_slot_variable _get_non_slot_variable "
        "_non_slot_variables": (REFUSED, CALLED, CALLED),
    },
    ("to_v1", "Keras 3"): {
        "minimize": (ARGUMENTS, ARGUMENTS),
        "_compute_gradients _get_gradients get_gradients get_updates": (REFUSED, REFUSED),
        "_transform_loss": (REFUSED, REFUSED),
        "apply_gradients": (WHOLE, WHOLE),
        "_transform_unaggregated_gradients _aggregate_gradients _transform_gradients "
        f"_create_slots _prepare {_RESOURCE}": (CALLED, CALLED),
    },
}
_WAYS_OUT = {
    "record": "change loss and gradients where you compute them, or write a RuleOptimizer.",
    "to_keras": "do it in your own train_step or loop, in apply_gradients, or in another method "
    "that is called: _resource_apply_dense, _create_slots.",
    "to_v1": "do it in apply_gradients, or train with the Keras optimizer itself.",
    "Keras 3": "do it in apply_gradients or _transform_gradients, or train in tf_keras.",
}


def is_of_user(cls: type) -> bool:
    """Whether a class is a user's, that is, not of TensorFlow, Keras or this package."""
    trusted = ("legacy_opt", "tensorflow", "tensorflow_core", "keras", "tf_keras")
    # Classes in these modules count as users' classes: their compute_gradients does more.
    untrusted = (".keras_in_graphs.", ".contrib.optimizer_v2.")
    is_trusted = cls.__module__.partition(".")[0] in trusted
    return not is_trusted or any(each in cls.__module__ for each in untrusted)


def of_users(classes: Iterable[type], method: str) -> List[type]:
    """Returns the users' classes that define a method."""
    return [each for each in classes if method in vars(each) and is_of_user(each)]


def accepted(function: Callable, **given: Any) -> Dict[str, Any]:
    """Returns the keyword arguments in `given` that a function takes."""
    parameters = inspect.signature(function).parameters
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return given
    return {name: value for name, value in given.items() if name in parameters}


def check(exit_name: str, optimizer: Any, error: Type[Exception], ignored: Collection[str] = ()):
    """Refuses an optimizer with a method that an exit (a name in `TABLE`) does not call.

    Methods in `ignored` are not checked: the present training does not call them, either.
    """
    exits = next(exits for exits in TABLE if exit_name in exits)
    name = type(optimizer).__name__
    # The keyword arguments that the exit passes to `apply_gradients` besides `name`.
    given = {"global_step": None} if exit_name == "to_keras" else {}
    for methods, treatments in TABLE[exits].items():
        treatment = treatments[exits.index(exit_name)]
        for method in [each for each in methods.split() if each not in ignored]:
            users = of_users(type(optimizer).__mro__, method)
            if method in vars(optimizer):
                raise error(f"{name}.{method} was set on the object: define it in a subclass.")
            if users and treatment == WHOLE:
                function = vars(users[0])[method]
                try:
                    options = dict(accepted(function, name=None), **given)
                    inspect.signature(function).bind(None, [], **options)
                except TypeError as problem:
                    raise error(f"{name}.{method} cannot be called in Keras: {problem}.") from None
            if users and _is_refused(treatment, method, optimizer, users[0]):
                raise error(
                    f"{name} overrides {method}, which {exit_name} does not call. To train alike, "
                    f"{_WAYS_OUT[exit_name]} See `legacy-opt docs any_optimizer`."
                )


def _is_refused(treatment: str, method: str, optimizer: Any, user_class: type) -> bool:
    if treatment == WITH_RESOURCE:
        classes = type(optimizer).__mro__
        derived = classes[: classes.index(user_class) + 1]  # `user_class` and its subclasses
        return not any("_resource" + method in vars(each) for each in derived)
    return treatment == REFUSED or (treatment == ARGUMENTS and not _only_adds(optimizer))


def _only_adds(optimizer: Any) -> bool:
    """Whether `minimize` passes on the very objects that it gets, and does nothing else.

    For example, the AdamW of `tf.contrib.opt` and of TensorFlow Addons add `decay_var_list`. First,
    `minimize` gets opaque objects, which raise an error if it computes with the loss or reads a
    name. Then it gets real objects, because it may decide by their class, dtype, name or number.
    """
    # A user's __getattribute__ may change the attributes that the calls below read.
    if of_users(type(optimizer).__mro__[:-1], "__getattribute__"):  # without `object`
        return False
    try:
        for cases in (_opaque_cases, _real_cases):
            with tf.Graph().as_default():
                passes = all(_passes_on(optimizer, *case) for case in cases())
            if tf.executing_eagerly():  # a method may differ in eager code
                passes = passes and all(_passes_on(optimizer, *case) for case in cases())
            if not passes:
                return False
    except Exception:  # whatever the method raises
        return False
    return True


class _Opaque(tf.Variable):
    """A variable of which only the class and the dtype can be read."""

    dtype = tf.float32  # type: ignore[assignment]


def _opaque_cases() -> Iterable[Case]:
    variables = [object.__new__(_Opaque) for _ in range(2)]
    slices = tf.IndexedSlices(tf.zeros([1]), tf.zeros([1], tf.int32))
    pairs = ((object(), object()), (slices, object())) * 100
    _fill_collections(*variables)
    losses = (object(), object)  # in place of a tensor and of a function (the class is callable)
    for loss, given in itertools.product(losses, (None, variables)):
        yield loss, given, pairs


def _real_cases() -> Iterable[Case]:
    names = ("kernel", "bias", "embeddings", "gamma", "beta", "scalar") * 2
    ranks = (2, 1, 0) * 4
    variables = [tf.Variable(tf.zeros([2] * rank), name=name) for rank, name in zip(ranks, names)]
    losses = [tf.constant(1.0), tf.constant(1.0, tf.float16), tf.constant([1.0, 2.0])]
    slices = tf.IndexedSlices(tf.zeros([1, 2]), tf.zeros([1], tf.int32), tf.constant([2, 2]))
    gradients = [slices if name == "embeddings" else tf.zeros([2]) for name in names]
    _fill_collections(losses[0])
    for loss in losses + [lambda: losses[0]]:
        for number in (None, 1, 2, len(names)):
            given = variables[:number] if number else None
            yield loss, given, list(zip(gradients, variables))[:number]


def _fill_collections(*values: Any):
    """Adds values to each collection of the graph by which a method may decide."""
    if tf.executing_eagerly():
        return  # there are no collections
    keys = tf.compat.v1.GraphKeys
    of_variables = [keys.TRAINABLE_VARIABLES, keys.GLOBAL_VARIABLES, keys.MODEL_VARIABLES]
    others = [keys.LOSSES, keys.REGULARIZATION_LOSSES, keys.UPDATE_OPS]
    for key, value in itertools.product(of_variables + others, values):
        tf.compat.v1.add_to_collection(key, value)


def _passes_on(
    optimizer: Any, loss: Any, variables: Optional[List[Any]], pairs: Sequence[Tuple[Any, Any]]
) -> bool:
    """Whether `minimize` passes exactly these objects to the two methods that it should call."""
    cls = type(optimizer)
    root = [each for each in cls.__mro__ if "minimize" in vars(each)][-1]  # TensorFlow's or Keras'
    compute = "compute_gradients" if hasattr(root, "compute_gradients") else "_compute_gradients"
    train_op = None if tf.executing_eagerly() else tf.no_op()
    calls = []

    def stub(method: str, result: Any) -> Callable:
        def note_call(*args: Any, **kwargs: Any) -> Any:
            calls.append((method, _ids(args, kwargs)))
            return result

        return note_call

    tape = None if callable(loss) else object()  # Keras needs a tape unless the loss is a function
    given = accepted(root.minimize, global_step=object(), tape=tape)
    given = accepted(cls.minimize, **given)
    expected = [(compute, _ids([loss, variables, given.get("tape")], {}))]
    expected.append(("apply_gradients", _ids([pairs, given.get("global_step")], {})))
    graph = tf.compat.v1.get_default_graph()
    operation_count = len(graph.get_operations())
    before = {name: _copied(value) for name, value in vars(optimizer).items()}
    stubs = {compute: stub(compute, pairs), "apply_gradients": stub("apply_gradients", train_op)}
    probe = object.__new__(cls)
    vars(probe).update(before, **stubs)
    if compute == "compute_gradients":
        probe.minimize(loss, var_list=variables, **given)
    else:  # Keras passes the list by its position
        probe.minimize(loss, variables, **given)
    for name in {*vars(probe), *before}.difference(stubs):  # attributes must keep their objects
        old = before.get(name, getattr(cls, name, None))
        new = vars(probe)[name]
        if new is not old and (new or old):  # AdamW may replace False by None, or None by False
            return False
    plain = {name: value for name, value in before.items() if _is_plain(value)}
    is_unchanged = all(vars(optimizer)[name] == value for name, value in plain.items())
    adds_operations = len(graph.get_operations()) != operation_count
    return is_unchanged and calls == expected and not adds_operations


def _is_plain(value: Any) -> bool:
    return type(value) in (dict, list, set)


def _copied(value: Any) -> Any:
    """Returns a copy of an attribute that the call of a method could change."""
    if _is_plain(value) or is_of_user(type(value)):
        with contextlib.suppress(Exception):  # not everything can be copied
            return copy.copy(value)
    return value


def _ids(args: Iterable[Any], kwargs: Dict[str, Any]) -> Collection[int]:
    """Returns the ids of arguments that are objects, not options such as a name."""
    values = [*args, *kwargs.values()]
    return {id(each) for each in values if not isinstance(each, (type(None), bool, int, str))}
