"""Classes of Keras 2 that are registered in Keras 3, as users do for a `.keras` file."""

import tensorflow as tf

from legacy_opt import versions
from tests.support.keras.optimizers_v2 import Heavy, schedules

register = versions.keras_3().saving.register_keras_serializable


@register()
class Warm(schedules.LearningRateSchedule):
    """A rate that rises."""

    def __init__(self, top=0.5):
        self.top = top

    def __call__(self, step):
        return self.top * tf.minimum(1.0, (tf.cast(step, tf.float32) + 1.0) / 4.0)

    def get_config(self):
        return {"top": self.top}


@register("mine", name="fast")
class Quick(Warm):
    """Has another name in files."""


@register()
class Heavier(Heavy):
    """An optimizer inside another one."""
