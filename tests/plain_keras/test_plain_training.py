"""Tests training that continues after to_plain_keras and after from_plain_keras.

to_plain_keras translates a v1 optimizer to one of Keras' own optimizers. from_plain_keras does the
reverse. Each translation has a grade: "exact", "rounding" or "differs".
"""

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt.compat import from_plain_keras
from tests.plain_keras import plain_training
from tests.plain_keras.plain_training import CASES, EVERY_CASE, HALF, figures, to_plain
from tests.support import running
from tests.support.keras import keras_apis, keras_models
from tests.support.keras.keras_apis import KERAS_3, OPTIMIZER_V2
from tests.support.processes import programs

v1 = tf.compat.v1
# Translations of these optimizers to Keras 2 have the grade "exact".
EXACT = ("GradientDescent", "Adadelta", "RMSProp", "Ftrl")
# Optimizers that change only the rows that the batch uses. The optimizers' counterparts in Keras 3
# also change other rows.
MOVES_ROWS = ("AdaMax", "Adadelta", "LazyAdam", "Momentum", "RMSProp", "Ftrl")
# Optimizers that use squares or maxima of gradients. If an id is repeated in the batch, the
# optimizers' counterparts in Keras 3 compute other values.
SQUARES = ("AdaMax", "Adadelta", "Adagrad", "Adam", "LazyAdam", "RMSProp", "RegAdagrad", "Ftrl")


def problem_for(api, steps=2 * HALF):
    """Returns a problem with only dense gradients for Keras 3, or with repeated ids for Keras 2."""
    make = plain_training.dense_problem if api is KERAS_3 else plain_training.sparse_problem
    return make(steps)


@keras_apis.in_turn("name", EVERY_CASE)
def test_training_continues_as_in_a_session(api, name):
    case, problem = CASES[name], problem_for(api)
    translation, after, _ = plain_training.handed_over(
        case,
        problem,
        api.bridged(case.make(None)),
        lambda optimizer, _: to_plain(api, optimizer),
    )
    plain = translation.optimizer
    assert type(plain) is getattr(api.optimizers, type(plain).__name__)
    assert int(plain.iterations.numpy()) == problem.steps
    expected = plain_training.session(case, problem).steps[HALF:]
    if api is KERAS_3:
        plain_training.assert_as_graded(translation, after, expected)
        # The report also measures sparse gradients and a change of the learning rate. These
        # measurements do not count for the grade.
        found = figures(translation)
        assert (found["some rows"] == "differs") == name.startswith(MOVES_ROWS)
        assert (found["repeated ids"] == "differs") == name.startswith(SQUARES)
        assert (found["learning rate changed"] == "differs") == name.startswith("Momentum")
    elif "Lazy" in name:  # Keras' Adam moves all rows of the table
        assert translation.grade == figures(translation)["some rows"] == "differs"
        after, expected = (
            [{"matrix": step["matrix"]} for step in run] for run in (after, expected)
        )
        running.assert_steps_close(after, expected, **plain_training.TOLERANCE)
    else:
        plain_training.assert_as_graded(translation, after, expected)
        assert (translation.grade == "exact") == name.startswith(EXACT)


@pytest.mark.parametrize("name", ["Adagrad", "Adam", "RMSProp"])
def test_a_v1_optimizer_starts_as_in_a_session_where_its_variables_are_known(api, name):
    case, problem = CASES[name], problem_for(api, HALF)
    variables = keras_models.variables_of(problem)
    known = list(variables.values())
    translation = to_plain(api, case.make(None), variables=known)
    after = plain_training.train(translation.optimizer, variables, problem, 0, HALF)
    plain_training.assert_as_graded(translation, after, plain_training.session(case, problem).steps)


@keras_apis.in_turn("name", EVERY_CASE)
def test_there_and_back(api, name):
    case, problem = CASES[name], problem_for(api)

    def there_and_back(optimizer, variables):
        plain = to_plain(api, optimizer).optimizer
        # In Keras 3, `plain` already stores its variables.
        known = None if api is KERAS_3 else variables
        back = from_plain_keras(plain, case.make(None), variables=known)
        unused = api is KERAS_3 and name in ("RMSProp", "RMSProp centered")
        plain_training.assert_same_state(
            name, back.optimizer, optimizer, variables, "momentum" if unused else None
        )
        return back

    back, after, _ = plain_training.handed_over(
        case, problem, api.bridged(case.make(None)), there_and_back
    )
    expected = plain_training.session(case, problem).steps[HALF:]
    if "Momentum" in name:
        running.assert_steps_close(after, expected, rtol=1e-5, atol=1e-6)
    else:
        plain_training.assert_equal_steps(after, expected)


# Models.


def test_fit_continues_with_a_recompiled_model(api):
    problem = keras_models.problem(2 * HALF)
    first = problem._replace(gradients=problem.gradients[:HALF])
    second = problem._replace(gradients=problem.gradients[HALF:])
    # With sparse gradients, SGD is the only optimizer of Keras 3 that equals its v1 counterpart.
    name = "GradientDescent" if api is KERAS_3 else "RMSProp"
    _, model = api.fit(first, api.bridged(name))
    translation = to_plain(api, model.optimizer, sparse=True)
    model.compile(translation.optimizer, keras_models.the_output)
    recorder = api.recorder()
    keras_models.fit_data(model, second, 1, [recorder])
    assert translation.grade == "exact"
    expected = keras_models.session(name, problem).steps[HALF:]
    plain_training.assert_equal_steps(recorder.steps, expected)
    # Converts back to the bridged optimizer, and compiles the model again.
    back = from_plain_keras(
        model.optimizer, keras_models.make(name), variables=model.trainable_variables
    )
    model.compile(back.optimizer, keras_models.the_output)
    keras_models.fit_data(model, second, 1, [])
    assert int(back.optimizer.iterations.numpy()) == 3 * HALF


CONTINUE = (
    plain_training.WITHOUT_THE_PACKAGE
    + """
def iterations():
    optimizer = model.optimizer
    return optimizer.get_weights()[0] if {keras_2} else optimizer.iterations.numpy()

model = keras.models.load_model(sys.argv[1])
assert iterations() == 3
model.fit(np.ones((4, 2), "f"), np.ones((4, 1), "f"), batch_size=4, epochs=2, verbose=0)
assert iterations() == 5
np.savez(sys.argv[1] + ".npz", *model.get_weights())
model.save(sys.argv[1])
"""
)


def test_a_saved_model_loads_without_this_package(api, tmp_path):
    def fit(model, epochs):
        data = np.ones((4, 2), "f"), np.ones((4, 1), "f")
        model.fit(*data, batch_size=4, epochs=epochs, verbose=0)

    if api is KERAS_3:
        optimizer, file = v1.train.MomentumOptimizer(0.1, 0.9), "model.keras"
    else:  # to_plain_keras replaces the momentum 0 by the smallest float, which the file must keep
        optimizer, file = v1.train.RMSPropOptimizer(0.1), "model.h5"
    keras = api.keras
    inputs = keras.Input((2,))
    model = keras.Model(inputs, keras.layers.Dense(1)(inputs))
    model.compile(api.bridged(optimizer), "mse")
    fit(model, 3)
    model.compile(to_plain(api, model.optimizer).optimizer, "mse")
    path = str(tmp_path / file)
    model.save(path)
    home = "tf.keras" if keras is tf.keras or api is KERAS_3 else "__import__('tf_keras')"
    code = CONTINUE.format(keras=home, keras_2=api is OPTIMIZER_V2)
    done = programs.run_in_new_python("-c", code, path, seconds=120, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    fit(model, 2)
    with np.load(path + ".npz") as there:
        for weights, key in zip(model.get_weights(), there.files):
            np.testing.assert_allclose(weights, there[key], rtol=1e-6)
    loaded = keras.models.load_model(path).optimizer
    if api is OPTIMIZER_V2:
        assert 0 <= loaded.get_config()["momentum"] < 1e-44 and loaded._momentum
