"""A v1 optimizer whose state variables belong to a Keras optimizer.

`adopt` takes any `tf.compat.v1.train.Optimizer` and returns a copy with `Adopted` in front of its
class. The copy runs the optimizer's own code through TF1's contract (`_create_slots`, `_prepare`,
`_resource_apply_*`, `_finish`); what it wants to create or look up goes to its owner, the Keras
optimizer, which names, saves and restores the variables. The original is not touched.
"""

import contextlib
import functools
import inspect
import numbers

import tensorflow as tf

from legacy_opt import RuleOptimizer, versions

BASE = tf.compat.v1.train.Optimizer
LEARNING_RATE_ATTRIBUTES = ("_learning_rate", "_lr", "learning_rate", "lr")
STEP_ATTRIBUTE = "_global_step"
# What TensorFlow's base class keeps in an instance.
_BASE_ATTRIBUTES = frozenset(vars(BASE(False, "base")))


class Adopted:
    """Sends an optimizer's state variables to `self._owner`; mixed in before its class."""

    def _get_or_make_slot(self, var, val, slot_name, op_name):
        del op_name
        return self._owner.adopt_slot(var, slot_name, val.shape, val.dtype.base_dtype, lambda: val)

    def _get_or_make_slot_with_initializer(
        self, var, initializer, shape, dtype, slot_name, op_name
    ):
        del op_name
        shape = tf.TensorShape(shape)
        if isinstance(initializer, type):
            initializer = initializer()

        def initial_value():
            if shape.is_fully_defined() and not _takes_nothing(initializer):
                return initializer(shape.as_list(), dtype=dtype)
            return initializer()

        return self._owner.adopt_slot(var, slot_name, shape, dtype, initial_value)

    def _zeros_slot(self, var, slot_name, op_name):
        del op_name
        dtype = var.dtype.base_dtype
        zeros = functools.partial(tf.zeros, var.shape, dtype)
        return self._owner.adopt_slot(var, slot_name, var.shape, dtype, zeros)

    def _create_non_slot_variable(self, initial_value, name, colocate_with):
        del colocate_with
        return self._owner.adopt_non_slot(name, initial_value)

    def _get_non_slot_variable(self, name, graph=None):
        del graph
        return _component(self._owner.non_slots.get(name))

    def _non_slot_variables(self):
        return list(self._owner.non_slots.values())

    def get_slot(self, var, name):
        return _component(self._owner.adopted_slot(var, name))

    def get_slot_names(self):
        return sorted(self._owner.get_slot_names())

    def variables(self):
        return list(self._owner.weights)

    def _slot_dict(self, slot_name):
        raise ValueError(
            "%s keeps its state in _slot_dict(%r), which no Keras checkpoint would hold. Create it "
            "with _zeros_slot, _get_or_make_slot or _get_or_make_slot_with_initializer."
            % (type(self).__name__, slot_name)
        )

    def __reduce__(self):
        return _readopt, (type(self).__mro__[2], vars(self).copy())


def adopt(optimizer, owner):
    """Returns a copy of `optimizer` whose state belongs to `owner`."""
    return _readopt(type(optimizer), dict(fresh_state(optimizer), _owner=owner))


def fresh_state(optimizer):
    """Returns a copy of an optimizer's attributes, without its variables."""
    state = {
        name: _copied(value)
        for name, value in vars(optimizer).items()
        if not name.startswith("_self_")  # what TensorFlow's checkpoints note of the original
    }
    state.update(_slots={}, _non_slot_dict={}, _deferred_slot_restorations={})
    return state


def original_class(adopted):
    """Returns the class of the optimizer that was adopted."""
    return type(adopted).__mro__[2]


@functools.lru_cache(maxsize=None)
def _adopted_class(original):
    # The same name: error messages of the optimizer tell it.
    return type(original.__name__, (Adopted, original), {"__doc__": original.__doc__})


def _readopt(original, state):
    adopted = object.__new__(_adopted_class(original))
    vars(adopted).update(state)
    return adopted


def _copied(value):
    """Copies containers, which the optimizer may change, but not what they hold."""
    if type(value) is dict:
        return {key: _copied(item) for key, item in value.items()}
    if type(value) in (list, set):
        return type(value)(_copied(item) for item in value)
    return value


def _takes_nothing(function):
    try:
        return not inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def _component(variable):
    """Returns the component to update, where one replica of many is being updated."""
    if variable is None or not tf.distribute.has_strategy():
        return variable
    return versions.own_component(variable)


@contextlib.contextmanager
def no_foreign_variables(optimizer, owner):
    """Refuses variables that an optimizer creates past its owner: no checkpoint would hold them."""

    def create(next_creator, **arguments):
        if not owner.creates_variables:
            raise ValueError(
                "%s creates a variable itself (%s), which no Keras checkpoint would hold. Create "
                "state in _create_slots with _create_non_slot_variable, _zeros_slot or "
                "_get_or_make_slot."
                % (type(optimizer).__name__, arguments.get("name") or "without a name")
            )
        return next_creator(**arguments)

    with contextlib.ExitStack() as stack:
        stack.enter_context(tf.variable_creator_scope(create))
        with tf.init_scope():  # where variables of a tf.function are created
            stack.enter_context(tf.variable_creator_scope(create))
        yield


@contextlib.contextmanager
def sparse_updates_explained(optimizer):
    """Explains what is missing where a sparse update cannot be built.

    Raises:
      NotImplementedError: the optimizer has no sparse update.
      ValueError: the update has no kernel in XLA, for which it is being built.
    """
    name = type(optimizer).__name__
    xla = versions.compiling_with_xla()
    graph = tf.compat.v1.get_default_graph() if xla else None
    before = set(graph.get_operations()) if xla else ()
    try:
        yield
    except NotImplementedError as error:
        if str(error):
            raise
        raise NotImplementedError(
            "%s cannot apply sparse gradients (embeddings): it does not define "
            "_resource_apply_sparse(self, grad, handle, indices)." % name
        ) from error
    if not xla:
        return
    for op in graph.get_operations():
        if op in before:
            continue
        if op.type == "Unique" and not versions.xla_compiles_unique():
            raise ValueError(
                "The XLA of TensorFlow %s cannot sum the gradients of equal ids: it has no kernel "
                "for Unique, with which %s applies sparse gradients (embeddings). Compile "
                "without XLA, jit_compile=False, or use a newer TensorFlow."
                % (versions.tensorflow_version(), name)
            )
        if op.type.startswith("ResourceSparseApply"):
            raise ValueError(
                "XLA has no kernel for %s, with which %s applies sparse gradients (embeddings). "
                "Pass fused=False to to_keras, or compile without XLA: jit_compile=False."
                % (op.type, name)
            )


# What a bridge has to know of an optimizer before it can feed it.


def learning_rate_attributes(optimizer, lr_attr=None):
    """Returns the names of the attributes that hold the learning rate, one or several.

    Args:
      optimizer: the v1 optimizer.
      lr_attr: the user's word: a name; False if there is no learning rate; None to look.

    Raises:
      ValueError: none was found, or several that differ.
    """
    state, name = vars(optimizer), type(optimizer).__name__
    if lr_attr is False:
        return ()
    if lr_attr is not None:
        if lr_attr not in state:
            raise ValueError("lr_attr=%r: %s has no such attribute." % (lr_attr, name))
        return (lr_attr,)
    found = tuple(key for key in LEARNING_RATE_ATTRIBUTES if state.get(key) is not None)
    if not found:
        raise ValueError(
            "%s has none of the attributes %s, so its learning rate would stay what it is. Name "
            "its own with lr_attr=…, or pass lr_attr=False if it has no learning rate."
            % (name, ", ".join(LEARNING_RATE_ATTRIBUTES))
        )
    if any(state[key] is not state[found[0]] for key in found):
        raise ValueError(
            "%s has several attributes that could be its learning rate: %s. Name it with lr_attr=…."
            % (name, ", ".join(found))
        )
    return found


def step_attribute(optimizer, global_step_attr=None, others=()):
    """Returns the name of the attribute that holds the global step, or None if there is none.

    Args:
      optimizer: the v1 optimizer.
      global_step_attr: the user's word, or None to look.
      others: attributes that are known to be something else.

    Raises:
      ValueError: an attribute looks like a step, but has an unknown name.
    """
    state, name = vars(optimizer), type(optimizer).__name__
    if global_step_attr is not None:
        if global_step_attr not in state:
            raise ValueError(
                "global_step_attr=%r: %s has no such attribute." % (global_step_attr, name)
            )
        return global_step_attr
    for key, value in state.items():
        if key == STEP_ATTRIBUTE or key in others or key in _BASE_ATTRIBUTES:
            continue
        if STEP_ATTRIBUTE in state and isinstance(value, tf.Tensor):
            continue  # what _prepare made of the step where the optimizer has trained already
        if _is_integer_scalar(value) or (
            "global_step" in key and isinstance(value, numbers.Integral)
        ):
            raise ValueError(
                "%s.%s looks like a global step, which would stand still. Say "
                "global_step_attr=%r if it is, or keep it as a plain number if not."
                % (name, key, key)
            )
    return STEP_ATTRIBUTE if STEP_ATTRIBUTE in state else None


def _is_integer_scalar(value):
    if not isinstance(value, (tf.Variable, tf.Tensor)):
        return False
    return value.dtype.base_dtype.is_integer and value.shape.rank in (None, 0)


def hyperparameters(optimizer, fed):
    """Finds the hyperparameters that can be set while training.

    They are the numbers that `_prepare` makes tensors of anew in each step. Those that it compares
    or reckons with in Python stay numbers, and so do those that an update method reads itself:
    Ftrl chooses its kernel by the shrinkage, once.

    Args:
      optimizer: the v1 optimizer.
      fed: a dict from the names of the attributes that are fed anyway to a dtype.

    Returns:
      A dict from the constructor's argument to its number, which is in the attribute `_<argument>`.
    """
    reads = _reads_of_prepare(optimizer, fed) - _named_while_updating(type(optimizer))
    parameters = constructor_arguments(type(optimizer))
    found = {}
    for key, value in vars(optimizer).items():
        is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
        is_argument = key[:1] == "_" and key[1:] in parameters
        if is_number and is_argument and key in reads and key not in fed:
            found[key[1:]] = value
    return found


def constructor_arguments(cls):
    """Returns the names of the arguments that a class and its base classes are made with."""
    names = set()
    for home in cls.__mro__[: cls.__mro__.index(BASE)]:
        if "__init__" in vars(home):
            names.update(inspect.signature(home.__init__).parameters)
    return names - {"self"}


class _Watched(float):
    """A number that tells when Python compares it or reckons with it and another number."""

    note = None  # called then


def _watch(operation):
    def watched(self, *others):
        if all(isinstance(other, numbers.Real) for other in others):
            self.note()
        return operation(self, *others)

    return watched


for _name in [
    "add",
    "radd",
    "sub",
    "rsub",
    "mul",
    "rmul",
    "truediv",
    "rtruediv",
    "pow",
    "rpow",
    "neg",
    "lt",
    "le",
    "gt",
    "ge",
    "eq",
    "bool",
]:
    setattr(_Watched, "__%s__" % _name, _watch(getattr(float, "__%s__" % _name)))
_Watched.__hash__ = float.__hash__


def _reads_of_prepare(optimizer, fed):
    """Returns the names of the attributes that `_prepare` reads and makes tensors of."""
    reads, reckoned = set(), set()

    class Reader(type(optimizer)):
        def __getattribute__(self, name):
            reads.add(name)
            return super().__getattribute__(name)

    reader = object.__new__(Reader)
    for name, value in vars(optimizer).items():
        if isinstance(value, float):
            value = _Watched(value)
            value.note = functools.partial(reckoned.add, name)
        vars(reader)[name] = _copied(value)
    with tf.Graph().as_default():
        for name, dtype in fed.items():
            vars(reader)[name] = tf.zeros([], dtype)
        # What it needs may be there only while it trains; what it has read by then is read.
        with contextlib.suppress(Exception):
            reads.clear()
            reader._prepare()
    return reads - reckoned


# Methods that run before training, or tell what there is.
_PREPARING = ("__init__", "_prepare", "_create_slots", "slot_layouts", "non_slots", "get_config")


def _named_while_updating(cls):
    """Returns the names that occur in the code of a class's update methods."""
    names = set()
    for home in cls.__mro__[: cls.__mro__.index(BASE)]:
        for name, method in vars(home).items():
            for function in (
                method,
                getattr(method, "fget", None),
                getattr(method, "__func__", None),
            ):
                if name in _PREPARING or not hasattr(function, "__code__"):
                    continue
                codes = [function.__code__]
                while codes:
                    code = codes.pop()
                    names.update(code.co_names)
                    codes.extend(item for item in code.co_consts if isinstance(item, type(code)))
    return names


def check_class(optimizer):
    """Refuses optimizers of a kind that a bridge cannot drive.

    Raises:
      TypeError: it is no v1 optimizer, or cannot update resource variables.
      ValueError: it holds another optimizer, or computes its gradients itself.
    """
    if not isinstance(optimizer, BASE):
        raise TypeError(
            "to_keras takes a tf.compat.v1.train.Optimizer, got %r of type %s.%s"
            % (optimizer, type(optimizer).__name__, _hint(optimizer))
        )
    cls = type(optimizer)
    for attribute, item in _attributes(optimizer):
        if isinstance(item, BASE):
            raise ValueError(
                "%s.%s is another optimizer, whose state the bridge would not own. Bridge that "
                "one itself." % (cls.__name__, attribute)
            )
    if cls.compute_gradients is not BASE.compute_gradients:
        raise ValueError(
            "%s overrides compute_gradients, which Keras never calls: it computes the gradients "
            "itself. Do that work in a gradient transformer instead." % cls.__name__
        )
    if cls._resource_apply_dense is BASE._resource_apply_dense:
        raise TypeError(
            "%s does not define _resource_apply_dense(self, grad, handle), without which it "
            "updates ref variables only; Keras has resource variables. Add it (and "
            "_resource_apply_sparse(self, grad, handle, indices) for embeddings): as _apply_dense, "
            "with handle.handle and the Resource… kernels of tf.raw_ops." % cls.__name__
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
    for attribute, item in _attributes(optimizer):
        if attribute in fed or attribute.lstrip("_") in parameters:
            continue
        if isinstance(item, tf.Variable):
            raise ValueError(
                "%s.%s is a variable (%s), which no Keras checkpoint would hold. Create state "
                "in _create_slots with _create_non_slot_variable or _zeros_slot."
                % (type(optimizer).__name__, attribute, item.name)
            )


def _attributes(optimizer):
    """Yields the names and values of an optimizer's attributes, containers item by item."""
    for attribute, value in vars(optimizer).items():
        if attribute not in _BASE_ATTRIBUTES:
            value = list(value.values()) if isinstance(value, dict) else value
            for item in value if isinstance(value, (list, tuple)) else [value]:
                yield attribute, item


def overrides_apply_gradients(optimizer):
    """Whether the optimizer's class has an apply_gradients that must be called itself.

    Raises:
      ValueError: it has, and takes no global step.
    """
    function = type(optimizer).apply_gradients
    # RuleOptimizer's checks and warns only.
    if function in (BASE.apply_gradients, RuleOptimizer.apply_gradients):
        return False
    if "global_step" not in inspect.signature(function).parameters:
        raise ValueError(
            "%s.apply_gradients takes no global_step, so the bridge cannot tell it the step."
            % type(optimizer).__name__
        )
    return True
