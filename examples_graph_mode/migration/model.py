"""The migrated model and its optimizers, for migration_story.py and `legacy-opt convert --model`.

The model is the network of flights_session.py with softsign in place of relu, because two
TensorFlow versions round differently. With relu, a rounding error can change the sign of a unit's
input. Then two correct trainings diverge (after about 1,400 steps, by 0.1 in a prediction).
Softsign is smooth, so rounding errors stay small and do not hide other differences. Tanh and
sigmoid are smooth, too, but some TensorFlow versions round them differently in prediction and in
training.
"""

from flights.keras_model import build_model, keras, weights_of
from flights.model import LEARNING_RATES, Settings, build_optimizer
from legacy_opt.compat import to_keras

SCOPE = "flights"  # the variable scope of the graph
FIELDS, FEATURES, VOCABULARY_SIZE = 11, 11, 10741
SETTINGS = {
    name: Settings(name, LEARNING_RATES[name], activation="softsign")
    for name in ("Adagrad", "AdagradDecay")
}
# The functions below, as arguments of `legacy-opt convert --model`.
FUNCTIONS = {"Adagrad": "migration.model:adagrad", "AdagradDecay": "migration.model:adagrad_decay"}


def v1_optimizer(name):
    """Returns the v1 optimizer of the TF1 program, for `to_keras`."""
    return build_optimizer(SETTINGS[name], global_step=None)


def model_and_optimizer(name):
    """Returns a new Keras model, and the optimizer `name`, converted to Keras."""
    keras.backend.clear_session()  # otherwise the weights of each further model get other names
    settings = SETTINGS[name]
    sizes = FIELDS, FEATURES, VOCABULARY_SIZE, settings.embedding_dim
    return build_model(*sizes, activation=settings.activation), to_keras(v1_optimizer(name))


def adagrad():
    """Returns the model and Adagrad."""
    return model_and_optimizer("Adagrad")


def adagrad_decay():
    """Returns the model and AdagradDecay."""
    return model_and_optimizer("AdagradDecay")


def names_in_graph(model):
    """Returns the name map of the model: a dict from Keras' names to the names in the graph.

    The dict also contains the global step. It contains no slots, because `load_v1_checkpoint` and
    `save_v1_checkpoint` derive the names of the slots from the names of the variables.
    """
    names = {keras_name(weight): f"{SCOPE}/{name}" for name, weight in weights_of(model).items()}
    return dict(names, global_step=SCOPE + "/global_step")


def keras_name(weight):
    """Returns Keras' name of a weight, such as "wide/bias"."""
    return getattr(weight, "path", None) or weight.name.split(":")[0]
