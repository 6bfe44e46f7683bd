"""What a Keras optimizer must offer to own the state of a v1 optimizer."""


class StateOwner:
    """Interface between `V1Driver` and the bridged Keras optimizers of `keras2` and `keras3`.

    Attributes:
      creates_variables: whether the Keras optimizer itself is creating a variable at the moment.
      non_slots: a dict from names to the shared (non-slot) variables, `tf.Variable`s.
      is_built_once: whether no variables can be added once the optimizer is built.
      weights: a list of all its variables.
      get_slot_names(): returns the names of the slots that exist.
    """

    creates_variables = False
    is_built_once = False
    _v1 = None  # the `V1Driver`; None while Keras' own constructor runs
    _adapter = None  # the `KerasAdapter` of its Keras

    def __repr__(self):
        if self._v1 is None:
            return super().__repr__()
        name = type(self._v1.optimizer).__name__
        title, api = self._adapter.title, self._adapter.api
        return f"<{name}, bridged to {title} by to_keras(…, api={api!r})>"

    def get_or_create_slot(self, variable, slot_name, shape, dtype, initial_value):
        """Returns a slot variable; creates it, or restores it from a checkpoint, if there is none.

        Args:
          variable: the `tf.Variable` that it belongs to.
          slot_name: its name.
          shape: its shape, which may differ from the variable's.
          dtype: its dtype, likewise.
          initial_value: a function without arguments that returns its initial value, a tensor.
        """
        raise NotImplementedError

    def get_or_create_shared(self, key, name, initial_value):
        """Returns a shared variable; creates it, or restores it, if there is none.

        Args:
          key: the `StateKey` of the optimizer that needs it.
          name: its name there.
          initial_value: its initial value, or a function that returns it.
        """
        raise NotImplementedError

    def existing_slot(self, variable, slot_name):
        """Returns a slot of a `tf.Variable`, or None."""
        raise NotImplementedError

    def variable_name(self, variable):
        """Returns the name by which a rule selects variables; the same in all replicas."""
        raise NotImplementedError

    def decays(self, variable):
        """Whether v1's weight decay applies to a variable, for all that Keras was asked to do."""
        del variable
        return True

    def present_value(self, name):
        """Returns a hyperparameter as it is now: a number, or the configuration of a schedule."""
        raise NotImplementedError

    def steps_done(self):
        """Returns the `StepsDone` of this optimizer."""
        raise NotImplementedError

    def variable_key(self, variable):
        """Returns the key of a variable among `keys_with_slots`."""
        raise NotImplementedError

    def keys_with_slots(self):
        """Returns the keys of the variables that have slots, in the order of training."""
        raise NotImplementedError

    @property
    def has_trained(self):
        """Whether it was built for variables or has trained some."""
        raise NotImplementedError

    def trained_variables(self):
        """Returns the variables that it was built for or has trained, in that order.

        Raises:
          ValueError: some are deleted.
        """
        raise NotImplementedError

    def awaits_state(self):
        """Whether there is state that is restored only when the optimizer is built."""
        raise NotImplementedError
