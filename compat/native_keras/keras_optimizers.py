"""What Keras 2 and Keras 3 each keep of an optimizer, bridged or their own, and where."""

import contextlib
import functools
import numbers

import numpy as np
import tensorflow as tf

from legacy_opt import versions

from ..v1_optimizers import graph_names, schedules


def side_of(optimizer):
    """Returns the `_Keras2` or `_Keras3` that an optimizer belongs to, or None for anything else.

    Raises:
      ValueError: it is one of Keras 3, in a TF1 graph.
    """
    if graph_names.is_bridged(optimizer):
        cls = _Keras3 if optimizer._kind[1] == "keras3" else _Keras2
        return cls()
    for cls in (_Keras3, _Keras2):
        with contextlib.suppress(ImportError):
            if isinstance(optimizer, cls.find_base()):
                return cls()
    return None


class _Side:
    """What both have in common."""

    def class_of(self, name):
        """Returns Keras' own optimizer class."""
        for home in (self.keras.optimizers, getattr(self.keras.optimizers, "legacy", None)):
            cls = getattr(home, name, None)
            if isinstance(cls, type) and issubclass(cls, self.base):
                return cls
        raise ValueError(f"{self.keras.__name__} has no {name}.")

    def build(self, optimizer, variables):
        """Creates an optimizer's state for these variables."""
        versions.create_optimizer_weights(optimizer, variables)

    def scope(self, optimizer):
        """The scope of the distribution strategy that an optimizer was made in."""
        strategy = getattr(optimizer, "_distribution_strategy", None)
        if strategy is None or tf.distribute.has_strategy():
            return contextlib.ExitStack()
        return strategy.scope()

    def is_schedule(self, rate):
        """Whether a learning rate is a schedule of this Keras."""
        return isinstance(rate, self.keras.optimizers.schedules.LearningRateSchedule)

    def rate(self, optimizer):
        """Returns the learning rate: a number, a schedule or a function of the user's own.

        Raises:
          ValueError: it is something that Keras' own optimizers would not keep.
        """
        rate = self.raw_rate(optimizer)
        if self.is_schedule(rate):
            return rate
        is_function = callable(rate) and not isinstance(rate, tf.Variable)
        ours = is_function and type(rate).__module__.startswith("legacy_opt")
        if versions.is_symbolic(rate) or ours or schedules.is_v1_decay(rate):
            raise ValueError(
                f"The learning rate is {rate!r}, which Keras' own optimizers cannot keep. "
                "Give the optimizer a number or a Keras schedule first: "
                "optimizer.learning_rate = …."
            )
        if is_function and not versions.is_keras_3_variable(rate):
            return rate
        return self._rate_number(optimizer, rate)

    def _rate_number(self, optimizer, rate):
        if graph_names.is_bridged(optimizer):
            rate = optimizer._current_number("learning_rate")
        elif not isinstance(rate, numbers.Real):
            rate = versions.value_of(rate)
        number, single = float(rate), np.float32(rate)
        # The shortest number that is the same in float32, if it comes from there.
        return float(str(single)) if single == number else number


class _Keras2(_Side):
    generation, api = 2, "optimizer_v2"
    find_base = staticmethod(versions.optimizer_v2)

    def __init__(self):
        self.keras = versions.keras_2()
        self.base = self.find_base()
        self.name = "tf_keras" if self.keras.__name__ == "tf_keras" else "tf.keras"

    def raw_rate(self, optimizer):
        return optimizer._hyper["learning_rate"]

    def rate_now(self, optimizer):
        """Returns the learning rate of the next step, a number."""
        return float(self.keras.backend.get_value(optimizer._decayed_lr(tf.float32)))

    def base_arguments(self, optimizer):
        """Returns the arguments that all optimizers of this Keras take, where they are given."""
        names = ("clipnorm", "clipvalue", "global_clipnorm")
        found = {name: getattr(optimizer, name, None) for name in names}
        found["decay"] = optimizer._initial_decay or None
        found["gradient_aggregator"] = versions.own_aggregator(optimizer)
        found["gradient_transformers"] = getattr(optimizer, "gradient_transformers", None) or None
        return {name: given for name, given in found.items() if given is not None}

    def is_built(self, bridged):
        """Whether a bridged optimizer knows variables that it trains."""
        return bool(bridged._slot_order)

    def variables_of(self, bridged, given):
        """Returns the variables that a bridged optimizer has state for, a list.

        Args:
          bridged: the optimizer.
          given: the user's word, or None.

        Raises:
          ValueError: the optimizer has state for others than are given, or they are gone.
        """
        if given is None:
            known = [bridged._trained.get(key) for key in bridged._slot_order]
            if any(variable is None for variable in known):
                raise ValueError(
                    "Variables that the optimizer has trained are gone. Pass those that are left "
                    "to train: variables=model.trainable_variables."
                )
            return known
        keys = [versions.slot_key(variable) for variable in given]
        if any(key not in keys for key in bridged._slot_order):
            raise ValueError(_OTHERS % (len(bridged._slot_order), len(given)))
        self.build(bridged, given)  # those that it has not trained yet
        return given

    def awaits_state(self, bridged):
        """Whether there is state that is restored only when the optimizer is built."""
        # Slots that were restored before the first step are there, but their order is not known.
        return bool(bridged._slots) or any(bridged._deferred_slot_restorations.values())

    def slots(self, plain, variables, names):
        """Returns a dict from those of the names that Keras' own has to its slots, by variable."""
        return {
            name: [plain.get_slot(variable, name) for variable in variables]
            for name in names
            if name in plain.get_slot_names()
        }

    def trained_by(self, plain, given):
        """Returns the variables that one of Keras' own optimizers has state for."""
        is_awaited = any(plain._deferred_slot_restorations.values())
        if not plain._slots and not is_awaited and not given:
            return []
        if given is None:
            raise ValueError(
                "A Keras 2 optimizer does not know the variables that its state belongs to. Pass "
                "them: variables=model.trainable_variables."
            )
        if is_awaited or not plain._slots:
            self.build(plain, given)
        if plain._slots and set(plain._slots) != {
            versions.slot_key(variable) for variable in given
        }:
            raise ValueError(_OTHERS % (len(plain._slots), len(given)))
        return given

    def configure(self, source, target):
        """Gives a new optimizer what no argument of its class tells."""

    def pairs(self, source, target):
        """Yields the variables that bridged and Keras' own optimizers both have of Keras'."""
        yield source.iterations, target.iterations


class _Keras3(_Side):
    generation, api, name = 3, "keras3", "keras"

    @staticmethod
    def find_base():
        return versions.keras_3().optimizers.Optimizer

    def __init__(self):
        self.keras = versions.keras_3()
        self.base = self.find_base()
        if versions.for_a_session():
            raise ValueError(
                "Keras 3 has no session of its own, so its variables cannot be read or assigned in "
                "a TF1 graph. Call this where TensorFlow executes eagerly."
            )

    def raw_rate(self, optimizer):
        return optimizer._learning_rate

    def rate_now(self, optimizer):
        return float(np.asarray(optimizer.learning_rate))

    def base_arguments(self, optimizer):
        defaults = self.base(learning_rate=0.0, name="defaults").get_config()
        found = {
            name: getattr(optimizer, name) for name in set(defaults) - {"name", "learning_rate"}
        }
        return {name: given for name, given in found.items() if given != defaults[name]}

    def is_built(self, bridged):
        return bool(bridged._trainable_variables)

    def variables_of(self, bridged, given):
        known = list(bridged._trainable_variables)
        if given is not None and {id(each) for each in given} != {id(each) for each in known}:
            raise ValueError(_OTHERS % (len(known), len(given)))
        return known

    def awaits_state(self, bridged):
        return bridged._awaited is not None or bool(bridged._later)

    def slots(self, plain, variables, names):
        # Keras calls them "<variable>_<slot>" or "<slot>", and orders them otherwise in other
        # versions. Before them come those that all its optimizers may have.
        head = 1 + versions.is_keras_3_variable(plain._learning_rate)
        head += len(variables) * (bool(plain.use_ema) + bool(plain.gradient_accumulation_steps))
        own = plain.variables[head:]
        found = {
            name: [each for each in own if ("_" + each.name).endswith("_" + name)] for name in names
        }
        return {name: slots for name, slots in found.items() if slots}

    def trained_by(self, plain, given):
        awaits_state = functools.partial(versions.awaits_restoration, plain._variables)
        if not plain.built and given:
            self.build(plain, given)  # which restores what a checkpoint has left for then
            if awaits_state():
                raise ValueError(
                    "The checkpoint that was restored into this optimizer holds more state "
                    f"than the {len(given)} of `variables` have."
                )
        elif not plain.built:
            if awaits_state():
                raise ValueError(AWAITS)
            return []
        return self.variables_of(plain, given)

    def configure(self, source, target):
        for name, given in vars(source).items():
            if name.startswith("_exclude_from_weight_decay"):
                setattr(target, name, given)

    def pairs(self, source, target):
        yield source._iterations, target._iterations
        for name in ("_model_variables_moving_average", "_accumulated_gradients"):
            yield from zip(getattr(source, name, ()), getattr(target, name, ()))


AWAITS = (
    "A checkpoint was restored into this optimizer, whose state is there only when its variables "
    "are known. Pass them: variables=model.trainable_variables."
)
_OTHERS = "The optimizer has state for %d variables, which are others than the %d of `variables`."
