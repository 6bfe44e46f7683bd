"""A v1 optimizer whose state variables belong to a Keras optimizer.

`adopt` takes any `tf.compat.v1.train.Optimizer` and returns a copy with `Adopted` in front of its
class. The copy runs the optimizer's own code through TF1's contract (`_create_slots`, `_prepare`,
`_resource_apply_*`, `_finish`); what it wants to create or look up goes to its owner, the Keras
optimizer, which names, saves and restores the variables. The original is not touched. What an
`OptimizerWrapper` holds is adopted with it.
"""

import contextlib
import copy
import functools
import inspect
import pickle

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core import argument_checks
from legacy_opt.wrappers.base import OptimizerWrapper

from .. import messages
from .nesting import parts

v1 = tf.compat.v1
# What an adopted optimizer knows besides: the Keras optimizer; what that feeds it; its `Place`.
_BONDS = ("_owner", "_feed", "_place")


class Adopted:
    """Sends an optimizer's state variables to `self._owner`; mixed in before its class."""

    only_dense = True  # tells what sums gradients to make its slots beforehand

    def _adopt_slot(self, var, slot_name, *arguments):
        return self._owner.adopt_slot(var, self._place.slot(slot_name), *arguments)

    def _get_or_make_slot(self, var, val, slot_name, op_name):
        del op_name
        return self._adopt_slot(var, slot_name, val.shape, val.dtype.base_dtype, lambda: val)

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

        return self._adopt_slot(var, slot_name, shape, dtype, initial_value)

    def _zeros_slot(self, var, slot_name, op_name):
        del op_name
        dtype = var.dtype.base_dtype
        zeros = functools.partial(tf.zeros, var.shape, dtype)
        return self._adopt_slot(var, slot_name, var.shape, dtype, zeros)

    def _create_non_slot_variable(self, initial_value, name, colocate_with):
        del colocate_with
        return self._owner.adopt_non_slot(self._place, name, initial_value)

    def _get_non_slot_variable(self, name, graph=None):
        del graph
        return _component(self._owner.non_slots.get(self._place.shared(name)))

    def _non_slot_variables(self):
        return list(self._owner.non_slots.values())

    def own_slot(self, var, name):
        return _component(self._owner.adopted_slot(var, self._place.slot(name)))

    def get_slot(self, var, name):
        slot = self.own_slot(var, name)
        for inner in self.wrapped if isinstance(self, OptimizerWrapper) else ():
            slot = inner.get_slot(var, name) if slot is None else slot
        return slot

    def decays(self, variable):
        return self._owner.decays(variable)

    def variable_name(self, variable):
        return self._owner.name_of(variable)

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
        if _chosen_variables(self):
            raise pickle.PicklingError(
                "%s was made for certain variables, which in another process are others. Make it "
                "anew there." % type(self).__name__
            )
        return _readopt, (type(self).__bases__, vars(self).copy())

    def __deepcopy__(self, memo):
        for variable in _chosen_variables(self):
            memo.setdefault(id(variable), variable)  # unless that has been copied, too
        return _readopt(type(self).__bases__, copy.deepcopy(vars(self), memo))


class AdoptedInside(Adopted):
    """The same for what updates variables inside a wrapper, which calls its `apply_gradients`."""

    def _create_slots(self, var_list):
        with self._owner.step_fed_to(self):  # there: slots are made outside of functions
            super()._create_slots(var_list)

    def _prepare(self):
        with self._owner.hyperparameters_fed():
            super()._prepare()

    def _resource_apply_dense(self, grad, handle):
        return self._owner.update_dense(self, super()._resource_apply_dense, grad, handle)

    def _resource_apply_sparse_duplicate_indices(self, grad, handle, indices):
        update = super()._resource_apply_sparse_duplicate_indices
        return self._owner.update_sparse(self, update, grad, handle, indices)


def adopt(optimizer, owner, feeds):
    """Returns a copy of `optimizer` whose state belongs to `owner`.

    Args:
      optimizer: the v1 optimizer.
      owner: the Keras optimizer.
      feeds: a dict from the `id` of each optimizer that belongs together to its `feeding.Feed`.
    """

    def adopted(part, state):
        each = part.optimizer
        mixin = AdoptedInside if part.is_leaf and each is not optimizer else Adopted
        state.update(_owner=owner, _feed=feeds[id(each)], _place=part.place)
        return _readopt((mixin, type(each)), state)

    return _copies(optimizer, adopted)


def _copies(optimizer, make):
    """Copies an optimizer and all inside; `make` is called with a `Part` and the state of its copy.

    Returns:
      The copy of the optimizer.
    """
    made = {}
    for part in reversed(parts(optimizer)):
        made[id(part.optimizer)] = make(part, _fresh_state(part.optimizer, made))
    return made[id(optimizer)]


def _fresh_state(optimizer, copies):
    """Returns a copy of an optimizer's attributes, without its variables.

    Args:
      optimizer: the optimizer.
      copies: a dict from the `id` of those that it may hold to their copies.
    """
    state = {
        name: copied(value, copies)
        for name, value in vars(optimizer).items()
        if not name.startswith("_self_")  # what TensorFlow's checkpoints note of the original
    }
    state.update(_slots={}, _non_slot_dict={}, _deferred_slot_restorations={})
    return state


def fresh_copy(optimizer):
    """Returns a copy of a v1 optimizer without its variables, not adopted if the original is."""

    def plain(part, state):
        cls = type(part.optimizer)
        if isinstance(part.optimizer, Adopted):
            cls = original_class(part.optimizer)
            state = {name: value for name, value in state.items() if name not in _BONDS}
        made = object.__new__(cls)
        vars(made).update(state)
        if not part.is_leaf:
            made.track_wrapped()
        return made

    return _copies(optimizer, plain)


def original_class(adopted):
    """Returns the class of the optimizer that was adopted."""
    return type(adopted).__bases__[1]


@functools.lru_cache(maxsize=None)
def _adopted_class(mixin, original):
    # The same name: error messages of the optimizer tell it.
    return type(original.__name__, (mixin, original), {"__doc__": original.__doc__})


def _readopt(bases, state):
    adopted = object.__new__(_adopted_class(*bases))
    vars(adopted).update(state)
    return adopted


def _chosen_variables(optimizer):
    """Returns the variables that a wrapper's constructor was told to treat in some way."""
    if not isinstance(optimizer, OptimizerWrapper):
        return []
    state = [value for name, value in vars(optimizer).items() if name not in _BONDS]
    return list(_variables_in(state))


def _variables_in(value):
    if isinstance(value, tf.Variable) or versions.is_keras_3_variable(value):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _variables_in(item)


def copied(value, copies=()):
    """Copies containers, which the optimizer may change, but not what they hold.

    Args:
      value: anything.
      copies: a dict from the `id` of optimizers to those that take their places.
    """
    if type(value) is dict:
        return {key: copied(item, copies) for key, item in value.items()}
    if type(value) in (list, set):
        return type(value)(copied(item, copies) for item in value)
    if not copies:
        return value
    if isinstance(value, v1.train.Optimizer):
        return copies.get(id(value), value)
    if isinstance(value, tuple):
        items = [copied(item, copies) for item in value]
        return type(value)._make(items) if hasattr(value, "_make") else type(value)(items)
    return value


def starting_value(value):
    """Returns what a variable that all share starts from, as a tensor: v1 takes functions, too."""
    if argument_checks.is_function(value):
        value = value()
    return tf.convert_to_tensor(value)  # a Python float is float32, as in v1


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
        if messages.text_of(error):
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
            fused = optimizer._owner.uses_fused_kernels
            raise ValueError(
                "XLA has no kernel for %s, with which %s applies sparse gradients (embeddings). "
                "%s, or compile without XLA: jit_compile=False."
                % (
                    op.type,
                    name,
                    "Pass fused=False to to_keras"
                    if fused
                    else "Its class asks for that kernel itself, which fused=False cannot change: "
                    "write its sparse update with plain operations, as scatter_sub",
                )
            )
