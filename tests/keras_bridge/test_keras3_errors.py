"""Tests errors of the Keras 3 bridge (`to_keras`)."""

import re

import numpy as np
import pytest
import tensorflow as tf

from tests.support.keras import keras_models
from tests.support.keras.keras_apis import KERAS_3 as api
from tests.support.keras.keras_apis import OPTIMIZER_V2
from tests.support.processes import programs

pytestmark = pytest.mark.keras3

v1 = tf.compat.v1.train
keras = api.keras
GradientDescent = v1.GradientDescentOptimizer
PROBLEM = keras_models.problem()
WAYS = pytest.mark.parametrize("way", ["function", "eager"])


def says(*parts):
    """Returns a pattern for a message that contains all the parts, in any order."""
    return "(?s)" + "".join(f"(?=.*{re.escape(part)})" for part in parts)


def apply_once(optimizer, way="eager", gradient=(1.0, 1.0), start=(1.0, 2.0)):
    """Applies one gradient and returns the variable's value."""
    variable = keras.Variable(np.array(start, "f"))

    def step():
        grad = tf.IndexedSlices(*gradient) if isinstance(gradient, list) else gradient
        optimizer.apply_gradients(
            [(tf.constant(grad) if isinstance(grad, tuple) else grad, variable)]
        )

    (tf.function(step) if way == "function" else step)()
    return variable.numpy()


# Variables and gradients.


def repr_in_a_function(variable):
    """Returns the repr of a Keras variable in a tf.function, or "value=" if repr fails."""
    shown = []

    def show():
        try:
            shown.append(repr(variable))
        except NotImplementedError:
            shown.append("value=")

    tf.function(show, autograph=False)()
    return shown[0]


@WAYS
@pytest.mark.parametrize("name", ["AdagradDecay", "Adam", "GradientDescent"])
def test_variables_unknown_at_build(name, way):
    """Keras' own error message names the variable, the reason and the solution."""
    known, unknown = keras.Variable([1.0], name="known"), keras.Variable([1.0], name="unknown")
    optimizer = api.bridged(name)
    optimizer.build([known])

    def step():
        optimizer.apply_gradients([(tf.ones([1]), unknown)])

    message = says("Unknown variable", "path=unknown", "originally built with", "new optimizer")
    # In older versions of Keras, the message contains the variable's value. In a tf.function, the
    # variable has no such value, so formatting the message raises NotImplementedError.
    old = way == "function" and "value=" in repr_in_a_function(unknown)
    error = NotImplementedError if old else ValueError
    with pytest.raises(error, match=None if old else message):
        (tf.function(step) if way == "function" else step)()
    assert (unknown.numpy(), int(optimizer.iterations.numpy())) == ([1.0], 0)
    with pytest.raises(ValueError, match=message):
        optimizer.build([known, unknown])
    optimizer.build([known])  # a second build with the same variables is accepted
    with pytest.raises(KeyError):
        optimizer.get_slot(unknown, "m")


def test_gradients_without_variables_and_before_build():
    with pytest.raises(ValueError, match=says("build(trainable_variables)")):
        api.bridged("Adam").apply([tf.ones([1])])


def test_too_few_gradients():
    optimizer = api.bridged("Adam")
    optimizer.build([keras.Variable([1.0]), keras.Variable([2.0])])
    with pytest.raises(ValueError, match=says("list of 1 gradients", "tracking 2")):
        optimizer.apply([tf.ones([1])])


@WAYS
@pytest.mark.parametrize("name", ["AdagradDecay", "Adam", "GradientDescent"])
def test_no_gradient_at_all(name, way):
    variable = keras.Variable([1.0])
    optimizer = api.bridged(name)

    def step():
        optimizer.apply_gradients([(None, variable)])

    with pytest.raises(ValueError, match="No gradients provided for any variable"):
        (tf.function(step) if way == "function" else step)()
    assert (variable.numpy(), int(optimizer.iterations.numpy())) == ([1.0], 0)


@WAYS
@pytest.mark.parametrize("shape", [[], [1], [3], [1, 2]])
@pytest.mark.parametrize("name", ["AdagradDecay", "Adam", "GradientDescent"])
def test_gradients_of_another_shape(name, shape, way):
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match="shape"):
        apply_once(api.bridged(name), way, tf.ones(shape))


# Stateless use.


@pytest.mark.parametrize("name", ["Adam", "GradientDescent"])
def test_stateless_use(name):
    variable = keras.Variable([1.0])
    optimizer = api.bridged(name)
    message = says(
        "updates variables in place", "cannot be used statelessly", "outside of a StatelessScope"
    )
    with keras.StatelessScope(), pytest.raises(ValueError, match=message):
        optimizer.build([variable])
    optimizer.build([variable])
    with keras.StatelessScope(), pytest.raises(ValueError, match=message):
        optimizer.apply([tf.ones([1])])
    with keras.StatelessScope(), pytest.raises(ValueError, match=message):
        optimizer.apply_gradients([(tf.ones([1]), variable)])
    with pytest.raises(ValueError, match=says("stateless_apply", "TensorFlow")):
        state = [variable.value for variable in optimizer.variables]
        optimizer.stateless_apply(state, [tf.ones([1])], [variable.value])
    assert variable.numpy() == [1.0]
    optimizer.apply([tf.ones([1])])
    np.testing.assert_allclose(variable.numpy(), [0.9], rtol=1e-6)


# Arguments.


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"decay": 0.1}, ValueError, says("decay=0.1", "schedule")),
        ({"gradient_accumulation_steps": 0}, ValueError, "gradient_accumulation_steps.*positive"),
        ({"gradient_accumulation_steps": 1}, ValueError, "gradient_accumulation_steps.*>= 2"),
        ({"gradient_accumulation_steps": 2.0}, TypeError, "gradient_accumulation_steps.*integer"),
        ({"use_ema": True, "ema_momentum": 1.5}, ValueError, "ema_momentum"),
        ({"use_ema": True, "ema_overwrite_frequency": 1.5}, ValueError, "ema_overwrite_frequency"),
        ({"weight_decay": -0.1}, ValueError, "weight_decay must not be negative, got -0.1"),
        ({"weight_decay": float("nan")}, ValueError, "weight_decay must be finite"),
        ({"weight_decay": "0.1"}, TypeError, "weight_decay must be a number"),
        ({"learning_rate": "0.1"}, TypeError, "learning_rate"),
        ({"learning_rate": float("nan")}, ValueError, "learning_rate"),
    ],
)
def test_wrong_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        api.bridged("Adam", **arguments)


class Rateless(v1.Optimizer):
    """An optimizer without a learning rate. Each update subtracts half the gradient."""

    def __init__(self):
        super().__init__(False, "Rateless")

    def _resource_apply_dense(self, grad, handle):
        return handle.assign_sub(0.5 * grad)


def test_no_weight_decay_without_a_learning_rate():
    with pytest.raises(ValueError, match=says("weight_decay=0.1", "learning rate")):
        api.bridged(Rateless(), lr_attr=False, weight_decay=0.1)


@pytest.mark.parametrize("name, setting", [("Momentum", "use_nesterov"), ("Adam", "use_locking")])
def test_arguments_that_cannot_change(name, setting):
    with pytest.raises(AttributeError, match=says(setting, "cannot be changed", "new optimizer")):
        setattr(api.bridged(name), setting, True)


# Optimizers that cannot be bridged.


def test_optimizers_that_contain_optimizers():
    syncing = v1.SyncReplicasOptimizer(GradientDescent(0.1), 1)
    with pytest.raises(ValueError, match=says("another optimizer")):
        api.bridged(syncing, lr_attr=False)


class CreatesAVariableInApply(GradientDescent):
    def _resource_apply_dense(self, grad, handle):
        tf.Variable(1.0, name="mine")
        return super()._resource_apply_dense(grad, handle)


class CreatesAVariableForSlots(GradientDescent):
    def _create_slots(self, var_list):
        tf.Variable(1.0, name="mine")


@WAYS
@pytest.mark.parametrize("cls", [CreatesAVariableInApply, CreatesAVariableForSlots])
def test_variables_created_while_training(cls, way):
    with pytest.raises(ValueError, match=says(cls.__name__, "mine", "no Keras checkpoint")):
        apply_once(api.bridged(cls(0.1)), way)


# A Keras 2 optimizer in a Keras 3 model, and the reverse.


def test_compiling_with_an_optimizer_of_the_other_keras():
    """The error message of Keras' compile contains the repr of the optimizer.

    The repr shows which `api` was passed to `to_keras`.
    """
    with pytest.raises(ValueError, match=says("AdamOptimizer", "Keras 2", "api='optimizer_v2'")):
        api.fed_model(PROBLEM).compile(OPTIMIZER_V2.bridged("Adam"), "mse")
    with pytest.raises(ValueError, match=says("AdamOptimizer", "Keras 3", "api='keras3'")):
        OPTIMIZER_V2.fed_model(PROBLEM).compile(api.bridged("Adam"), "mse")


# Processes with another Keras backend, and with tf_keras as tf.keras.

MAKES = """
import tensorflow as tf
from legacy_opt import compat
for api in ("auto", "keras3", "optimizer_v2"):
    try:
        made = compat.to_keras(tf.compat.v1.train.AdamOptimizer(), api=api)
    except Exception as error:
        print(api, type(error).__name__, error)
    else:
        base = type(made).__mro__
        print(api, "is an optimizer of", sorted({cls.__module__.split(".")[0] for cls in base}))
        variable = tf.Variable([1.0])
        made.apply_gradients([(tf.ones([1]), variable)])
        print(api, "trains", variable.numpy())
try:
    import keras
except Exception:
    print("import fails")
else:
    print("import of keras", keras.__version__)
"""

# For its NumPy backend, Keras imports jax but uses so little of it that a dummy module is enough.
WITH_A_HOLLOW_JAX = """
import importlib.abc, importlib.machinery, sys, types

class Hollow(types.ModuleType):
    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Hollow(name)

    def __call__(self, *arguments, **_):
        return arguments[0] if arguments and callable(arguments[0]) else self

class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("jax", "jaxlib"):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return Hollow(spec.name)

    def exec_module(self, module):
        pass

sys.meta_path.insert(0, Finder())
"""


def in_another_process(code, **environment):
    """Runs code in a new process. Returns a dict of the lines that the code prints for each api."""
    done = programs.run_in_new_python("-c", code, seconds=120, environment=environment)
    lines = done.stdout.splitlines()
    return {
        api: " ".join(line for line in lines if line.startswith(api + " "))
        for api in ("auto", "keras3", "optimizer_v2", "import")
    }


@pytest.mark.keras2
@pytest.mark.parametrize(
    "code",
    [WITH_A_HOLLOW_JAX + MAKES, pytest.param(MAKES, marks=pytest.mark.full)],
    ids=["a backend", "a backend that is not installed"],
)
def test_keras_3_on_another_backend(code):
    """With the backend numpy, `to_keras` raises an error for Keras 3, and works for Keras 2."""
    printed = in_another_process(code, KERAS_BACKEND="numpy")
    # Without jax, importing Keras fails. Some versions of Keras do not accept the hollow one.
    fails = printed["import"] == "import fails"
    reason = "KERAS_BACKEND is 'numpy'" if fails else "Keras has the backend numpy"
    for name in ("auto", "keras3"):
        message = rf"{name} ImportError .*({reason}).*KERAS_BACKEND=tensorflow"
        assert re.search(message, printed[name]), printed
    assert "optimizer_v2 trains [0.999]" in printed["optimizer_v2"], printed


@pytest.mark.keras2
def test_tf_keras_is_keras_2():
    """With TF_USE_LEGACY_KERAS, "auto" means Keras 2; "keras3" still works."""
    printed = in_another_process(MAKES, TF_USE_LEGACY_KERAS="1")
    for name, home in (("auto", "tf_keras"), ("keras3", "keras"), ("optimizer_v2", "tf_keras")):
        assert f"'{home}'" in printed[name] and name + " trains [0.999]" in printed[name], printed
