"""Hides the differences between optimizers of Keras 2 and of Keras 3 in a TF1 graph."""

import contextlib

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core import dynamic_embeddings

from ..keras_adapters import adapter_of

_MADE_FOR_GRAPHS = ("keras", "legacy_opt", "tensorflow", "tensorflow_core", "tf_keras")


class Generation:
    """Builds and runs an optimizer of Keras 2 or of Keras 3.

    Args:
      optimizer: the Keras optimizer.

    Attributes:
      is_built_once: whether the optimizer can be built only once, so that it cannot train further
        variables later.
    """

    is_built_once = False

    def __init__(self, optimizer):
        self.optimizer = optimizer

    def check_trains(self, variable):
        """Raises a TypeError or ValueError if the optimizer cannot train a variable."""
        dynamic_embeddings.refuse_keras("to_v1", variable)

    def slot_in(self, name, variables):
        """Returns (trained variable, slot name) if `name` is the name of a slot; else None.

        Args:
          name: the name of a new variable of the optimizer.
          variables: the trained variables, one of which may have the slot.
        """
        raise NotImplementedError

    def build(self, variables, making_slot):
        """Creates the optimizer's state.

        Args:
          variables: the variables to train.
          making_slot: a function that takes a trained variable and a slot name, and returns a scope
            for the creation of this slot.
        """
        raise NotImplementedError

    def loss_scaling(self, build):
        """Returns two functions: the first scales a loss, the second unscales gradients.

        In Keras 3 the second function changes nothing, because `apply_gradients` unscales.

        Args:
          build: a function that creates the optimizer's state.
        """
        raise NotImplementedError

    def clipped(self, grads):
        """Clips gradients if the optimizer's `apply_gradients` does not clip them."""
        return grads

    def returns_operations(self):
        """Whether the optimizer's apply_gradients returns an operation of the graph.

        This is true for optimizers made by `to_keras`, and for Keras 2's own optimizers that do not
        scale the loss.
        """
        raise NotImplementedError

    def function_options(self):
        """Returns additional arguments for the `tf.function` that runs the training step."""
        return {}


class _Keras2(Generation):
    def check_trains(self, variable):
        super().check_trains(variable)
        if versions.is_keras_3_variable(variable):
            raise TypeError(
                f"{variable.name!r} is a variable of Keras 3, and this optimizer is of Keras "
                "2. Pass to_v1 an optimizer of Keras 3, or train the variable's tf.Variable: "
                "variable.value."
            )

    def slot_in(self, name, variables):
        owner, _, slot_name = name.rpartition("/")
        for variable in variables:
            if owner and owner == variable._shared_name:
                return variable, slot_name
        return None

    def build(self, variables, making_slot):
        targets = [versions.tf_variable(each) for each in variables]
        versions.create_optimizer_weights(self.optimizer, targets)

    def loss_scaling(self, build):
        scale = getattr(self.optimizer, "get_scaled_loss", _unchanged)
        return scale, getattr(self.optimizer, "get_unscaled_gradients", _unchanged)

    def clipped(self, grads):
        # Up to TensorFlow 2.3, Keras clips only gradients that it has computed itself.
        optimizer = self.optimizer
        if hasattr(optimizer, "_transform_gradients"):
            return grads
        if hasattr(optimizer, "_clip_gradients"):
            return optimizer._clip_gradients(grads)
        if getattr(optimizer, "clipnorm", None) is not None:
            grads = [tf.clip_by_norm(grad, optimizer.clipnorm) for grad in grads]
        if getattr(optimizer, "clipvalue", None) is not None:
            limit = optimizer.clipvalue
            grads = [tf.clip_by_value(grad, -limit, limit) for grad in grads]
        return grads

    def returns_operations(self):
        home = type(self.optimizer).__module__.split(".")[0]
        scales_loss = hasattr(self.optimizer, "get_scaled_loss")
        return home in _MADE_FOR_GRAPHS and not scales_loss


class _Keras3(Generation):
    is_built_once = True

    def slot_in(self, name, variables):
        return None  # `build` reports the slots to `making_slot`

    def build(self, variables, making_slot):
        with contextlib.ExitStack() as stack:
            for optimizer in with_inner(self.optimizer):
                stack.enter_context(_reporting_slots(optimizer, making_slot))
            self.optimizer.build(list(variables))
        self.optimizer.built = True

    def loss_scaling(self, build):
        if hasattr(self.optimizer, "inner_optimizer") and not self.optimizer.built:
            build()  # an unbuilt optimizer would scale with a constant, not a variable
        return self.optimizer.scale_loss, _unchanged

    def returns_operations(self):
        return versions.for_a_session() and hasattr(self.optimizer, "_apply_in_graph")

    def function_options(self):
        # Do not inline the function: Grappler would optimize its operations together with the
        # surrounding operations, which may change the last bits of the result.
        return {"experimental_attributes": {"_noinline": True}} if versions.for_a_session() else {}


_GENERATIONS = {2: _Keras2, 3: _Keras3}


def generation_of(optimizer):
    """Returns the `Generation` of a Keras optimizer."""
    return _GENERATIONS[adapter_of(optimizer).generation](optimizer)


def with_inner(optimizer):
    """Yields an optimizer and its inner optimizers."""
    while optimizer is not None:
        yield optimizer
        optimizer = getattr(optimizer, "inner_optimizer", None)


def _unchanged(value):
    return value


@contextlib.contextmanager
def _reporting_slots(optimizer, making_slot):
    """A context in which a Keras 3 optimizer creates each slot in a scope from `making_slot`."""
    add_slot, add_variable = optimizer.add_variable_from_reference, optimizer.add_variable

    def reporting(reference_variable, name=None, *args, **kwargs):
        with making_slot(versions.tf_variable(reference_variable), name or "var"):
            return add_slot(reference_variable, name, *args, **kwargs)

    def under_a_valid_name(*args, **kwargs):
        if kwargs.get("name"):  # some optimizers pass a trained variable's full name, with slashes
            kwargs["name"] = kwargs["name"].replace("/", "_").replace(":", "_")
        return add_variable(*args, **kwargs)

    methods = {"add_variable_from_reference": reporting, "add_variable": under_a_valid_name}
    vars(optimizer).update(methods)  # bypasses Keras' tracking of attributes
    try:
        yield
    finally:
        for attribute in methods:
            del vars(optimizer)[attribute]
