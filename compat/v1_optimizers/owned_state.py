"""A v1 optimizer whose state variables belong to a Keras optimizer.

`adopt` takes any `tf.compat.v1.train.Optimizer` and returns a copy with `Adopted` in front of its
class. The copy runs the optimizer's own code through TF1's contract (`_create_slots`, `_prepare`,
`_resource_apply_*`, `_finish`); what it wants to create or look up goes to its owner, the Keras
optimizer, which names, saves and restores the variables. The original is not touched. What an
`OptimizerWrapper` holds is adopted with it.
"""

import copy
import functools
import inspect
import pickle

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.wrappers.base import OptimizerWrapper

from .copying import BONDS, chosen_variables, copy_all

v1 = tf.compat.v1


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
            f"{type(self).__name__} keeps its state in _slot_dict({slot_name!r}), which no "
            "Keras checkpoint would hold. Create it with _zeros_slot, _get_or_make_slot or "
            "_get_or_make_slot_with_initializer."
        )

    def __reduce__(self):
        if chosen_variables(self):
            raise pickle.PicklingError(
                f"{type(self).__name__} was made for certain variables, which in another "
                "process are others. Make it anew there."
            )
        return _readopt, (type(self).__bases__, vars(self).copy())

    def __deepcopy__(self, memo):
        for variable in chosen_variables(self):
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

    return copy_all(optimizer, adopted)


def fresh_copy(optimizer):
    """Returns a copy of a v1 optimizer without its variables, not adopted if the original is."""

    def plain(part, state):
        cls = type(part.optimizer)
        if isinstance(part.optimizer, Adopted):
            cls = original_class(part.optimizer)
            state = {name: value for name, value in state.items() if name not in BONDS}
        made = object.__new__(cls)
        vars(made).update(state)
        if not part.is_leaf:
            made.track_wrapped()
        return made

    return copy_all(optimizer, plain)


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
