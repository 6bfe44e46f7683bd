"""The adapter of Keras 3."""

import functools

import numpy as np

from legacy_opt import versions

from .base import AWAITS, KerasAdapter, other_variables


class Adapter(KerasAdapter):
    """See `KerasAdapter`."""

    generation, api, title = 3, "keras3", "Keras 3"

    @property
    def name(self):
        return "keras"

    @property
    def keras(self):
        return versions.keras_3()

    @property
    def base(self):
        return self.keras.optimizers.Optimizer

    def check_readable(self):
        if versions.for_a_session():
            raise ValueError(
                "Keras 3 has no Session, so its variables cannot be read or assigned in a TF1 "
                "graph. Call this function where TensorFlow executes eagerly."
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

    def variables_of(self, bridged, given):
        return _checked(bridged.trained_variables(), given)

    def slots(self, plain, variables, names):
        # The order of slots depends on the version of Keras, so find them by their names:
        # "<variable>_<slot>" or "<slot>". Before the slots, `plain.variables` has the variables
        # that all optimizers may have: iterations, learning rate, moving averages, accumulated
        # gradients.
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
            self.build(plain, given)  # also restores state from a checkpoint that was loaded before
            if awaits_state():
                raise ValueError(
                    "The checkpoint that was restored into this optimizer contains more state "
                    f"than the {len(given)} variables in `variables` need."
                )
        elif not plain.built:
            if awaits_state():
                raise ValueError(AWAITS)
            return []
        return _checked(list(plain._trainable_variables), given)

    def configure(self, source, target):
        for name, given in vars(source).items():
            if name.startswith("_exclude_from_weight_decay"):
                setattr(target, name, given)

    def pairs(self, source, target):
        yield source._iterations, target._iterations
        for name in ("_model_variables_moving_average", "_accumulated_gradients"):
            yield from zip(getattr(source, name, ()), getattr(target, name, ()))


def _checked(known, given):
    """Returns `known`; raises a ValueError if `given` is a list of other variables.

    Args:
      known: the variables for which an optimizer is built.
      given: the variables that the user passed, or None.
    """
    if given is not None and {id(each) for each in given} != {id(each) for each in known}:
        raise other_variables(len(known), len(given))
    return known
