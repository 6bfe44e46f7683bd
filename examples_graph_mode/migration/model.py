"""The model that moves, with its optimizers; `legacy-opt convert --model` takes it from here, too.

It is the network of flights_session.py with softsign where that has relu. Two TensorFlows round
differently, and relu has a kink: once a rounding puts a unit on the other side of it, two trainings
part for good (after 1,400 steps or so, by 0.1 in a prediction), although one is as right as the
other. Without a kink a rounding stays one, so that anything else shows. (With tanh or sigmoid some
TensorFlows round otherwise when they only predict than when they train.)
"""

from flights.keras_model import build_model, keras, weights_of
from flights.model import LEARNING_RATES, Settings, build_optimizer
from legacy_opt.compat import to_keras

SCOPE = "flights"  # the variable scope of the graph
FIELDS, FEATURES, VOCABULARY_SIZE = 11, 11, 10741
SETTINGS = {
    name: Settings(name, LEARNING_RATES["mlp"][name], activation="softsign")
    for name in ("Adagrad", "AdagradDecay")
}
# The functions below, for each optimizer.
FUNCTIONS = {"Adagrad": "migration.model:adagrad", "AdagradDecay": "migration.model:adagrad_decay"}


def v1_optimizer(name):
    """Returns the optimizer as the TF1 program makes it, for `to_keras`."""
    return build_optimizer(SETTINGS[name], global_step=None)


def model_and_optimizer(name):
    """Returns the Keras model, new, and the optimizer of that name as one of Keras."""
    keras.backend.clear_session()  # or the weights of a second model have other names
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
    """Returns a dict from what Keras calls the weights and the step to what the graph calls them.

    The names of the slots follow from those.
    """
    names = {keras_name(weight): f"{SCOPE}/{name}" for name, weight in weights_of(model).items()}
    return dict(names, global_step=SCOPE + "/global_step")


def keras_name(weight):
    """Returns the name that Keras gives to a weight: "wide/bias"."""
    return getattr(weight, "path", None) or weight.name.split(":")[0]
