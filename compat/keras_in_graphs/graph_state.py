"""The variables and updates of a Keras optimizer in one TF1 graph, or in eager execution."""

import contextlib

import tensorflow as tf

from legacy_opt import versions

from ..keras_adapters import adapter_of
from . import factories

v1 = tf.compat.v1
_MADE_FOR_GRAPHS = ("keras", "legacy_opt", "tensorflow", "tensorflow_core", "tf_keras")
_WORKS_IN_NO_GRAPH = ("gradient_accumulation_steps", "ema_overwrite_frequency")


class KerasOptimizerInGraph:
    """A Keras optimizer made for one graph (or eager execution), and the variables it has created.

    Args:
      make: a function that makes the Keras optimizer.
      name: the name of the v1 optimizer, which is part of the names of variables.

    Attributes:
      keras: the Keras optimizer.
      variables: the `tf.Variable`s that the Keras optimizer has created, in order of creation.
    """

    def __init__(self, make, name):
        self._name = name
        self.variables = []
        self._slots = {}  # slot name -> id of the trained variable -> slot variable
        self._slot_ids = set()
        self._built_for = []
        self._slot_being_made = None
        with self._making():
            self.keras = factories.checked(make())
        self._is_keras_3 = adapter_of(self.keras).generation == 3
        if versions.for_a_session():
            _check_for_a_session(self.keras)

    def check_generation(self, variable):
        """Raises a TypeError if a variable is one of Keras 3 and the optimizer is of Keras 2."""
        if versions.is_keras_3_variable(variable) and not self._is_keras_3:
            raise TypeError(
                f"{variable.name!r} is a variable of Keras 3, and this optimizer is of Keras "
                "2. Pass to_v1 an optimizer of Keras 3, or train the variable's tf.Variable: "
                "variable.value."
            )

    # The variables.

    @contextlib.contextmanager
    def _making(self):
        """A scope in which the optimizer's variables get v1 names and are recorded."""
        with contextlib.ExitStack() as stack:
            # Enter init_scope first, because the other scopes apply only to the graph that is
            # active when they are entered.
            stack.enter_context(tf.init_scope())
            stack.enter_context(tf.variable_creator_scope(self._make_variable))
            stack.enter_context(v1.name_scope(self._name + "/Initializer/"))
            yield

    def _make_variable(self, next_creator, **arguments):
        name = (arguments.get("name") or "variable").replace(":", "_")
        slot = self._slot_being_made or self._slot_in_keras_2(name)
        with contextlib.ExitStack() as stack:
            if slot is None:
                name = f"{self._name}/{name}"
            else:
                owner, slot_name = slot
                name = f"{_name_of(owner)}/{self._name}/{slot_name}"
                stack.enter_context(v1.colocate_with(owner))
            stack.enter_context(v1.name_scope(None))
            variable = next_creator(**dict(arguments, name=name))
        self.variables.append(variable)
        if slot is not None:
            # Keras does not record which axes a slot shares with its variable. Assume that a slot
            # of the same shape shares all axes, and that any other slot shares none.
            by_element = variable.shape.as_list() == owner.shape.as_list()
            axes = tuple(range(owner.shape.rank)) if by_element else ()
            versions.fit_slice_info(variable, owner, axes)
            self._slots.setdefault(slot_name, {})[owner._unique_id] = variable
            self._slot_ids.add(id(variable))
        return variable

    def _slot_in_keras_2(self, name):
        """Returns (variable, name of the slot) if Keras 2 is creating a slot; else None."""
        owner, _, slot_name = name.rpartition("/")
        for variable in self._built_for:
            if owner and not self._is_keras_3 and owner == variable._shared_name:
                return variable, slot_name
        return None

    def build(self, variables):
        """Creates the optimizer's state for these variables, if it does not exist yet.

        Raises:
          ValueError: the optimizer is of Keras 3 and was built for other variables.
        """
        targets = [versions.tf_variable(each) for each in variables]
        built = {each._unique_id for each in self._built_for}
        new = [each for each in targets if each._unique_id not in built]
        if not new:
            return
        if self._is_keras_3 and self._built_for:
            raise ValueError(
                f"{self._name} was built for {_names_of(self._built_for)}. Optimizers of Keras 3 "
                f"are built once, so this one cannot also train {_names_of(new)}. Train all "
                "variables in one step, or call to_v1 once for each list of variables."
            )
        before, self._built_for = self._built_for, self._built_for + new
        try:
            with self._making():
                if self._is_keras_3:
                    self._build_keras_3(variables)
                else:
                    versions.create_optimizer_weights(self.keras, targets)
        except BaseException:
            self._built_for = before
            raise

    def _build_keras_3(self, variables):
        with contextlib.ExitStack() as stack:
            for optimizer in _with_inner(self.keras):
                stack.enter_context(self._recording_slots(optimizer))
            self.keras.build(list(variables))
        self.keras.built = True

    @contextlib.contextmanager
    def _recording_slots(self, optimizer):
        """A scope that records the trained variable of each slot that Keras 3 creates."""
        add_slot, add_variable = optimizer.add_variable_from_reference, optimizer.add_variable

        def recording(reference_variable, name=None, *args, **kwargs):
            owner = versions.tf_variable(reference_variable)
            self._slot_being_made = owner, name or "var"
            try:
                return add_slot(reference_variable, name, *args, **kwargs)
            finally:
                self._slot_being_made = None

        def under_a_valid_name(*args, **kwargs):
            if kwargs.get("name"):  # some classes pass the full name of a trained variable
                kwargs["name"] = kwargs["name"].replace("/", "_").replace(":", "_")
            return add_variable(*args, **kwargs)

        methods = {"add_variable_from_reference": recording, "add_variable": under_a_valid_name}
        vars(optimizer).update(methods)  # bypasses Keras' tracking of attributes
        try:
            yield
        finally:
            for attribute in methods:
                del vars(optimizer)[attribute]

    def slot(self, variable, slot_name):
        """Returns the slot variable, or None."""
        key = getattr(versions.tf_variable(variable), "_unique_id", None)
        return self._slots.get(slot_name, {}).get(key)

    def slot_names(self):
        """Returns the names of the slots, sorted."""
        return sorted(self._slots)

    def variables_but_slots(self):
        """Returns the variables that are not slots, such as iterations and hyperparameters."""
        return [variable for variable in self.variables if id(variable) not in self._slot_ids]

    def key_of(self, variable):
        """Returns the name that a non-slot variable has in object-based checkpoints."""
        return _name_of(variable)[len(self._name) + 1 :].replace("/", "_")

    # Updates.

    def loss_scaling(self, variables):
        """Returns two functions: one scales a loss, the other divides gradients by the loss scale.

        Args:
          variables: the variables to train; None for the graph's trainable variables.
        """
        unchanged = lambda value: value  # noqa: E731
        if not self._is_keras_3:
            scale = getattr(self.keras, "get_scaled_loss", unchanged)
            return scale, getattr(self.keras, "get_unscaled_gradients", unchanged)
        if hasattr(self.keras, "inner_optimizer") and not self.keras.built:
            # Until the optimizer is built, Keras 3 scales with a constant instead of a variable.
            if variables is None and tf.executing_eagerly():
                raise ValueError(
                    f"{type(self.keras).__name__} needs var_list: its loss scale is a "
                    "variable that is created with the slots."
                )
            self.build(v1.trainable_variables() if variables is None else variables)
        return self.keras.scale_loss, unchanged

    def apply(self, pairs):
        """Applies the gradients. Returns an operation; None in eager execution."""
        optimizer = self.keras
        grads = _clipped(optimizer, [grad for grad, _ in pairs])
        pairs = list(zip(grads, [variable for _, variable in pairs]))
        if tf.executing_eagerly():
            optimizer.apply_gradients(pairs)
            return None
        with _alone(optimizer):
            if self._returns_operations:
                return optimizer.apply_gradients(pairs)

            # Keras 3 and user classes rely on statements running in order, which a tf.function
            # ensures.
            @tf.function(autograph=False, **self._function_options())
            def step():
                optimizer.apply_gradients(pairs)
                return tf.convert_to_tensor(versions.tf_variable(optimizer.iterations))

            return step().op

    @property
    def _returns_operations(self):
        """Whether the Keras optimizer supports TF1 graphs.

        This is true for Keras 2's own optimizers and for optimizers made by `to_keras`.
        """
        if self._is_keras_3:
            return versions.for_a_session() and hasattr(self.keras, "_apply_in_graph")
        home = type(self.keras).__module__.split(".")[0]
        wraps = hasattr(self.keras, "get_scaled_loss")
        return home in _MADE_FOR_GRAPHS and not wraps

    def _function_options(self):
        """Returns the arguments of `tf.function` that keep the function from being inlined.

        Grappler optimizes an inlined function together with the operations around the function,
        and this may change the last bits of the result. A function that uses variables of other
        processes is inlined nevertheless, because TensorFlow cannot run it otherwise.
        """
        elsewhere = any("/job:" in variable.device for variable in self._built_for)
        if not self._is_keras_3 or elsewhere or not versions.for_a_session():
            return {}
        return {"experimental_attributes": {"_noinline": True}}


@contextlib.contextmanager
def _alone(optimizer):
    """A scope in which Keras does not sum gradients over replicas; there is only one replica.

    The custom gradient of TensorFlow's sum would keep the graph alive forever.
    """
    unchanged = lambda pairs: list(pairs)  # noqa: E731
    replaced = []
    for each in _with_inner(optimizer):
        if hasattr(each, "_all_reduce_sum_gradients"):
            replaced.append((each, "_all_reduce_sum_gradients"))
        elif hasattr(each, "gradient_aggregator") and versions.own_aggregator(each) is None:
            replaced.append((each, "gradient_aggregator"))
    before = [vars(each).get(name) for each, name in replaced]
    for each, name in replaced:
        vars(each)[name] = unchanged
    try:
        yield
    finally:
        for (each, name), value in zip(replaced, before):
            if value is None:
                del vars(each)[name]
            else:
                vars(each)[name] = value


def _clipped(optimizer, grads):
    """Clips gradients if Keras' `apply_gradients` does not (Keras 2 up to TensorFlow 2.3)."""
    if hasattr(optimizer, "add_variable_from_reference"):
        return grads
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


def _check_for_a_session(optimizer):
    """Raises a ValueError for options that Keras accepts in a TF1 graph, but ignores there."""
    for each in _with_inner(optimizer):
        for option in _WORKS_IN_NO_GRAPH:
            if getattr(each, option, None):
                raise ValueError(
                    f"{option}={getattr(each, option)!r} works in no TF1 graph: Keras compares "
                    "a tensor with a number, and in a TF1 graph this comparison is always False."
                )


def _with_inner(optimizer):
    """Yields an optimizer and its inner optimizers."""
    while optimizer is not None:
        yield optimizer
        optimizer = getattr(optimizer, "inner_optimizer", None)


def _name_of(variable):
    return variable.name.split(":")[0]


def _names_of(variables):
    return ", ".join(repr(_name_of(variable)) for variable in variables)
