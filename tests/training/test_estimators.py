"""Tests `compat.estimator`, which has the same Estimators on every TensorFlow version."""

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import versions
from legacy_opt.compat import estimator
from tests.support import estimators

v1 = tf.compat.v1
IS_REVIVED = not versions.has_own_estimator()
IDS = np.array([0, 1, 2, 1, 0, 2, 2, 1], np.int64)
LABELS = np.array([0, 1, 1, 1, 0, 1, 1, 0], np.int64)


def input_fn():
    return tf.data.Dataset.from_tensor_slices(({"id": IDS}, LABELS)).batch(4)


def config():
    return estimator.RunConfig(tf_random_seed=1, log_step_count_steps=None)


@estimators.needed
def test_names_are_tensorflows_own_or_the_packages():
    assert estimator is legacy_opt.compat.estimator
    assert {"Estimator", "RunConfig", "DNNClassifier", "train_and_evaluate"} <= set(dir(estimator))
    if IS_REVIVED:
        home = estimator.Estimator.__module__
        assert home == "tensorflow_estimator.python.estimator.estimator"
        assert not hasattr(tf, "estimator")
        public = {name for name in dir(estimator) if not name.startswith("_")}
        assert public == set(estimator.estimator_names.NAMES)
    else:
        assert estimator.Estimator is v1.estimator.Estimator
    with pytest.raises(AttributeError, match="compat.estimator' .* 'RunConfg'. .* 'RunConfig'"):
        _ = estimator.RunConfg
    assert not hasattr(estimator, "no_such_name")


@estimators.needed
def test_estimators_do_not_change_keras():
    before = versions.keras_facts()
    assert estimator.Estimator
    assert versions.keras_facts() == before


@pytest.mark.once
@pytest.mark.parametrize(
    "package, version, message",
    [
        ("tensorflow-estimator", None, "has no Estimators, and tensorflow-estimator is not"),
        ("tensorflow-estimator", "2.13.0", "tensorflow-estimator 2.13.0 does not work with"),
        ("tf-keras", None, "has no Estimators, and tf-keras is not installed"),
        ("tf-keras", "1.2.0", "tf-keras 1.2.0 does not work with TensorFlow"),
    ],
)
def test_missing_and_wrong_packages(package, version, message, monkeypatch):
    minor = ".".join(tf.__version__.split(".")[:2])
    installed = {"tensorflow-estimator": "2.15.0", "tf-keras": minor + ".1", package: version}
    monkeypatch.setattr(versions.estimators, "has_own_estimator", lambda: False)
    monkeypatch.setattr(versions.estimators, "_installed_version", installed.get)
    command = versions.pip_command("tensorflow-estimator", "tf-keras")
    assert command.startswith("pip install --no-deps tensorflow-estimator==2.15.0 ")
    with pytest.raises(ImportError) as caught:
        _ = estimator.RunConfig
    assert message in str(caught.value) and command in str(caught.value)
    assert versions.estimator_problem() == str(caught.value)
    assert not hasattr(estimator, "no_such_name")
    with pytest.raises(AttributeError, match="'RunConfg'. Did you mean 'RunConfig'"):
        _ = estimator.RunConfg
    assert {"Estimator", "RunConfig"} <= set(dir(estimator))
    with pytest.raises(AttributeError) as caught:
        _ = versions.estimators.LazyModule("tensorflow.estimator", versions.estimator).RunConfig
    assert message in str(caught.value) and command in str(caught.value)


@estimators.needed
@pytest.mark.parametrize("text", ["{'cluster'", "[]", ""])
def test_tf_config_must_be_a_json_object(text, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(ValueError, match="environment variable TF_CONFIG is wrong"):
        _ = estimator.RunConfig


if IS_REVIVED:

    @estimators.needed
    @pytest.mark.parametrize("argument", ["train_distribute", "eval_distribute"])
    def test_no_strategy_in_a_cluster(argument, monkeypatch):
        cluster = '{"cluster": {"chief": ["a:1"]}, "task": {"type": "chief", "index": 0}}'
        monkeypatch.setenv("TF_CONFIG", cluster)
        strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
        with pytest.raises(ValueError, match=argument + ".* cannot be used in a cluster"):
            estimator.RunConfig(**{argument: strategy})


@estimators.needed
@pytest.mark.parametrize(
    "name",
    [
        "DNNRegressor",
        pytest.param("BaselineClassifier", marks=pytest.mark.full),
        pytest.param("LinearRegressor", marks=pytest.mark.full),
    ],
)
def test_other_canned_estimators(name, tmp_path):
    """Trains, resumes, evaluates and predicts; an uninterrupted training must give equal state."""
    column = tf.feature_column.categorical_column_with_identity("id", 3)
    options = {
        "BaselineClassifier": {},
        "LinearRegressor": {"feature_columns": [column]},
        "DNNRegressor": {
            "feature_columns": [tf.feature_column.embedding_column(column, 2)],
            "hidden_units": [3],
        },
    }[name]

    def trained(folder, stops):
        for last in stops:
            optimizer = legacy_opt.AdagradDecayOptimizer(0.1, None, accumulator_decay_step=2)
            made = getattr(estimator, name)(
                model_dir=str(folder), config=config(), optimizer=optimizer, **options
            )
            made.train(lambda: input_fn().repeat(), max_steps=last)
        return made, {each: made.get_variable_value(each) for each in made.get_variable_names()}

    resumed, state = trained(tmp_path / "resumed", (2, 4))
    _, whole = trained(tmp_path / "whole", (4,))
    assert state["global_step"] == 4 and any("AdagradDecay" in each for each in state)
    assert set(state) == set(whole)
    for each, value in whole.items():
        np.testing.assert_array_equal(state[each], value, err_msg=each)
    assert np.isfinite(resumed.evaluate(input_fn)["loss"])
    assert len(list(resumed.predict(input_fn))) == len(IDS)


@estimators.needed
def test_boosted_trees_where_tensorflow_has_them(tmp_path):
    if not hasattr(estimator, "BoostedTreesClassifier"):
        assert not versions.has_contrib()
        return
    column = tf.feature_column.bucketized_column(tf.feature_column.numeric_column("x"), [0.5])
    made = estimator.BoostedTreesClassifier(
        [column], n_batches_per_layer=1, n_trees=1, max_depth=1, model_dir=str(tmp_path)
    )

    def data():
        return tf.data.Dataset.from_tensors(({"x": [[0.0], [1.0]]}, [[0], [1]])).repeat()

    made.train(data, max_steps=2)
    assert made.evaluate(data, steps=1)["accuracy"] == 1
