"""A Keras optimizer in one TF1 graph, or in eager execution: its variables, and one step of it."""

import contextlib

import tensorflow as tf

from legacy_opt import versions

from . import factories

v1 = tf.compat.v1
_MADE_FOR_GRAPHS = ("keras", "legacy_opt", "tensorflow", "tensorflow_core", "tf_keras")
_WORKS_IN_NO_GRAPH = ("gradient_accumulation_steps", "ema_overwrite_frequency")


class OfOneGraph:
    """A Keras optimizer, and what it has made in the graph for which it was made.

    Attributes:
      keras: the Keras optimizer.
      variables: the `tf.Variable`s that it has made, in that order.
    """

    def __init__(self, make, name):
        self._name = name
        self.variables = []
        self._slots = {}  # slot name -> id of the variable it belongs to -> tf.Variable
        self._slot_ids = set()
        self._built_for = []
        self._slot_being_made = None
        with self._making():
            self.keras = factories.checked(make())
        self._is_keras_3 = versions.kind_of_keras_optimizer(self.keras) == "keras3"
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
        """The scope in which variables get names as v1 gives them, and are noted."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(tf.init_scope())  # first: the others are of a graph
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
            # Keras does not declare what a slot has of its variable. One of another shape may have
            # anything.
            by_element = variable.shape.as_list() == owner.shape.as_list()
            axes = tuple(range(owner.shape.rank)) if by_element else ()
            versions.fit_slice_info(variable, owner, axes)
            self._slots.setdefault(slot_name, {})[owner._unique_id] = variable
            self._slot_ids.add(id(variable))
        return variable

    def _slot_in_keras_2(self, name):
        """Returns the variable and the slot's name where Keras 2 makes a slot, else None."""
        owner, _, slot_name = name.rpartition("/")
        for variable in self._built_for:
            if owner and not self._is_keras_3 and owner == variable._shared_name:
                return variable, slot_name
        return None

    def build(self, variables):
        """Makes the state for these variables.

        Raises:
          ValueError: an optimizer of Keras 3 was built for others.
        """
        targets = [versions.tf_variable(each) for each in variables]
        known = {each._unique_id for each in self._built_for}
        new = [each for each in targets if each._unique_id not in known]
        if not new:
            return
        if self._is_keras_3 and self._built_for:
            raise ValueError(
                f"{self._name} has been trained with {_names_of(self._built_for)}, and "
                f"optimizers of Keras 3 are built once, so it cannot train {_names_of(new)}, "
                "too. Train all of them in one step, or call to_v1 once for each list of "
                "variables."
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
                stack.enter_context(self._noting_slots(optimizer))
            self.keras.build(list(variables))
        self.keras.built = True

    @contextlib.contextmanager
    def _noting_slots(self, optimizer):
        """The scope in which it is known for which variable Keras 3 makes a slot."""
        add_slot, add_variable = optimizer.add_variable_from_reference, optimizer.add_variable

        def noting(reference_variable, name=None, *args, **kwargs):
            owner = versions.tf_variable(reference_variable)
            self._slot_being_made = owner, name or "var"
            try:
                return add_slot(reference_variable, name, *args, **kwargs)
            finally:
                self._slot_being_made = None

        def under_a_valid_name(*args, **kwargs):
            if kwargs.get("name"):  # some give it the whole name of a variable
                kwargs["name"] = kwargs["name"].replace("/", "_").replace(":", "_")
            return add_variable(*args, **kwargs)

        mine = {"add_variable_from_reference": noting, "add_variable": under_a_valid_name}
        vars(optimizer).update(mine)  # past Keras, which tracks what is assigned
        try:
            yield
        finally:
            for attribute in mine:
                del vars(optimizer)[attribute]

    def slot(self, variable, slot_name):
        """Returns the slot, or None."""
        key = getattr(versions.tf_variable(variable), "_unique_id", None)
        return self._slots.get(slot_name, {}).get(key)

    def slot_names(self):
        """Returns the names of the slots, sorted."""
        return sorted(self._slots)

    def variables_but_slots(self):
        """Returns iterations, hyperparameters and other variables that belong to no single one."""
        return [variable for variable in self.variables if id(variable) not in self._slot_ids]

    def key_of(self, variable):
        """Returns the name under which object-based checkpoints know a variable that is no slot."""
        return _name_of(variable)[len(self._name) + 1 :].replace("/", "_")

    # One step.

    def loss_scaling(self, variables):
        """Returns functions that scale a loss, and that take the scale out of gradients.

        Args:
          variables: those to be trained; None for the graph's trainable variables.
        """
        nothing = lambda value: value  # noqa: E731
        if not self._is_keras_3:
            scale = getattr(self.keras, "get_scaled_loss", nothing)
            return scale, getattr(self.keras, "get_unscaled_gradients", nothing)
        if hasattr(self.keras, "inner_optimizer") and not self.keras.built:
            # Before, it would take the scale for a constant.
            if variables is None and tf.executing_eagerly():
                raise ValueError(
                    f"{type(self.keras).__name__} needs var_list: its loss scale is a "
                    "variable, made with the others."
                )
            self.build(v1.trainable_variables() if variables is None else variables)
        return self.keras.scale_loss, nothing

    def apply(self, pairs):
        """Updates variables. Returns an operation; executing eagerly None."""
        optimizer = self.keras
        grads = _clipped(optimizer, [grad for grad, _ in pairs])
        pairs = list(zip(grads, [variable for _, variable in pairs]))
        if tf.executing_eagerly():
            optimizer.apply_gradients(pairs)
            return None
        with _alone(optimizer):
            if self._returns_operations:
                return optimizer.apply_gradients(pairs)

            # Here all is done in the order in which it is written, which others rely on.
            @tf.function(autograph=False, **self._function_options())
            def step():
                optimizer.apply_gradients(pairs)
                return tf.convert_to_tensor(versions.tf_variable(optimizer.iterations))

            return step().op

    @property
    def _returns_operations(self):
        """Whether the optimizer is made for graphs: one of Keras 2 itself, or a bridged one."""
        if self._is_keras_3:
            return versions.for_a_session() and hasattr(self.keras, "_apply_in_graph")
        home = type(self.keras).__module__.split(".")[0]
        wraps = hasattr(self.keras, "get_scaled_loss")
        return home in _MADE_FOR_GRAPHS and not wraps

    def _function_options(self):
        """Lets TensorFlow rewrite Keras 3's step by itself: inlined, it may get other bits.

        A function that is not inlined cannot reach variables in other processes.
        """
        elsewhere = any("/job:" in variable.device for variable in self._built_for)
        if not self._is_keras_3 or elsewhere or not versions.for_a_session():
            return {}
        return {"experimental_attributes": {"_noinline": True}}


@contextlib.contextmanager
def _alone(optimizer):
    """Spares gradients the sum over replicas, of which there is one.

    TensorFlow's custom gradient there would keep the graph alive for good.
    """
    as_it_is = lambda pairs: list(pairs)  # noqa: E731
    lent = []
    for each in _with_inner(optimizer):
        if hasattr(each, "_all_reduce_sum_gradients"):
            lent.append((each, "_all_reduce_sum_gradients"))
        elif hasattr(each, "gradient_aggregator") and versions.own_aggregator(each) is None:
            lent.append((each, "gradient_aggregator"))
    before = [vars(each).get(name) for each, name in lent]
    for each, name in lent:
        vars(each)[name] = as_it_is
    try:
        yield
    finally:
        for (each, name), value in zip(lent, before):
            if value is None:
                del vars(each)[name]
            else:
                vars(each)[name] = value


def _clipped(optimizer, grads):
    """Clips where Keras does so only where it computes gradients itself: to TensorFlow 2.3."""
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
    """Refuses what Keras would take without a word, and then not do."""
    for each in _with_inner(optimizer):
        for option in _WORKS_IN_NO_GRAPH:
            if getattr(each, option, None):
                raise ValueError(
                    f"{option}={getattr(each, option)!r} works in no TF1 graph: Keras asks "
                    "there whether a tensor equals a number in a way that is always false."
                )


def _with_inner(optimizer):
    """Yields an optimizer, and that which it wraps."""
    while optimizer is not None:
        yield optimizer
        optimizer = getattr(optimizer, "inner_optimizer", None)


def _name_of(variable):
    return variable.name.split(":")[0]


def _names_of(variables):
    return ", ".join(repr(_name_of(variable)) for variable in variables)
