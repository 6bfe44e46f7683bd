"""Tests pipelines with custom and canned Estimators: early stopping, export, warm starts."""

import re

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import compat, versions
from legacy_opt.compat import estimator
from tests.support import estimators, running

v1 = tf.compat.v1
pytestmark = estimators.needed
IDS = np.array([[1, 5], [5, 0], [8, 1], [2, 2], [7, 5], [3, 4]], np.int64)
X = np.array([[0.5], [-1.0], [2.0], [0.0], [1.5], [-0.5]], np.float32)
LABELS = np.array([[1.0], [0.0], [0.0], [1.0], [1.0], [0.0]], np.float32)


def input_fn(batch=2):
    """Returns a dataset that repeats the data in the same order."""
    features = {"one": IDS[:, :1], "other": IDS[:, 1:], "x": X}
    return tf.data.Dataset.from_tensor_slices((features, LABELS)).repeat().batch(batch)


def few_inputs():
    return input_fn(6).take(1)


def config(**options):
    return estimator.RunConfig(
        tf_random_seed=1,
        log_step_count_steps=None,
        session_config=running.AS_WRITTEN,
        **options,
    )


def state(path):
    """Returns a checkpoint's tensors by name, without the flag of the early-stopping hook."""
    reader = v1.train.NewCheckpointReader(path)
    names = set(reader.get_variable_to_shape_map()) - {"signal_early_stopping/STOP"}
    return {name: reader.get_tensor(name) for name in names}


def decays_every_two_steps(step=None, **options):
    return legacy_opt.AdagradDecayOptimizerV2(
        0.1, step, accumulator_decay_step=2, accumulator_decay_rate=0.5, **options
    )


# --- Custom Estimators.


def logits_of(features):
    table = v1.get_variable("table", [9, 4], initializer=v1.random_normal_initializer(seed=2))
    weights = v1.get_variable("weights", [9, 1], initializer=v1.random_normal_initializer(seed=3))
    pairs = tf.concat([features["one"], features["other"]], axis=1)
    inputs = tf.concat([tf.reshape(tf.gather(table, pairs), [-1, 8]), features["x"]], axis=1)
    return tf.matmul(inputs, weights)


def model_fn(features, labels, mode, params):
    logits = logits_of(features)
    predictions = {"probability": tf.sigmoid(logits)}
    loss = train_op = None
    if labels is not None:
        each = tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)
        loss = tf.reduce_mean(each)
    if mode == estimator.ModeKeys.TRAIN:
        step = v1.train.get_global_step()
        train_op = params["make"](step).minimize(loss, global_step=step)
    return estimator.EstimatorSpec(mode, predictions, loss, train_op)


def custom(directory, make, warm_start=None, **options):
    return estimator.Estimator(
        model_fn, str(directory), config(**options), {"make": make}, warm_start
    )


def serving_input():
    receivers = {
        "one": v1.placeholder(tf.int64, [None, 1]),
        "other": v1.placeholder(tf.int64, [None, 1]),
        "x": v1.placeholder(tf.float32, [None, 1]),
    }
    return estimator.export.ServingInputReceiver(receivers, receivers)


def in_a_session(make, steps):
    """Trains the custom Estimators' model in a Session; returns all variables by name."""
    with tf.Graph().as_default():
        v1.set_random_seed(1)
        v1.train.get_or_create_global_step()
        features, labels = v1.data.make_one_shot_iterator(input_fn()).get_next()
        spec = model_fn(features, labels, estimator.ModeKeys.TRAIN, {"make": make})
        with running.started(config=running.AS_WRITTEN) as session:
            for _ in range(steps):
                session.run(spec.train_op)
            return session.run({each.op.name: each for each in v1.global_variables()})


def wrapped(step):
    """Returns two nested wrappers around an optimizer that reads the global step."""
    inner = decays_every_two_steps(step)
    return legacy_opt.MultiOptimizer(
        [(legacy_opt.clip_gradients_by_norm(inner, 0.05), "table")],
        default=legacy_opt.LazyAdamOptimizer(0.1),
    )


@pytest.mark.parametrize(
    "make", [pytest.param(decays_every_two_steps, marks=pytest.mark.full), wrapped]
)
def test_train_evaluate_stop_early_export_and_resume(make, tmp_path):
    trained = custom(tmp_path, make, save_checkpoints_steps=4)
    stop = estimator.experimental.stop_if_lower_hook(
        trained, "loss", threshold=100.0, min_steps=8, run_every_secs=None, run_every_steps=1
    )
    bar = legacy_opt.ProgressBarHook(total_steps=50, disable=True)
    exporter = estimator.LatestExporter("latest", serving_input)
    metrics, exported = estimator.train_and_evaluate(
        trained,
        estimator.TrainSpec(input_fn, max_steps=50, hooks=[stop, bar]),
        estimator.EvalSpec(
            few_inputs, steps=None, exporters=[exporter], start_delay_secs=0, throttle_secs=0
        ),
    )
    # The early-stopping hook reads the global step in the same Session.run that increments it, so
    # the hook may read the value before or after the increment.
    steps = int(metrics["global_step"])
    assert 8 <= steps <= 10
    np.testing.assert_equal(state(trained.latest_checkpoint()), in_a_session(make, steps))
    assert_serves(exported[0], trained)

    # A new Estimator reads its input from the start, so skip the batches that were used.
    again = custom(tmp_path, make)
    again.train(lambda: input_fn().skip(steps), max_steps=12)
    np.testing.assert_equal(state(again.latest_checkpoint()), in_a_session(make, 12))


def assert_serves(directory, trained):
    """Asserts that the exported model has no slots, and predicts the same as the Estimator."""
    rows = trained.predict(few_inputs)
    expected = np.array([row["probability"] for row in rows])
    with tf.Graph().as_default(), v1.Session() as session:
        loaded = v1.saved_model.loader.load(session, ["serve"], directory.decode())
        signature = loaded.signature_def["serving_default"]
        feed = {"one": IDS[:, :1], "other": IDS[:, 1:], "x": X}
        feed = {signature.inputs[name].name: value for name, value in feed.items()}
        output = signature.outputs["probability"].name
        np.testing.assert_array_equal(session.run(output, feed), expected)
        names = {each.op.name for each in v1.global_variables()}
        assert names == {"global_step", "table", "weights"}


# --- Warm starts.


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Returns the checkpoint of an Estimator after 6 steps."""
    directory = tmp_path_factory.mktemp("trained")
    trained = custom(directory, decays_every_two_steps)
    trained.train(input_fn, max_steps=6)
    return trained.latest_checkpoint()


def warm_started(trained, directory, variables, steps):
    settings = estimator.WarmStartSettings(trained, vars_to_warm_start=variables)
    started = custom(directory, decays_every_two_steps, settings)
    started.train(input_fn, steps=steps)
    return state(started.latest_checkpoint())


def everything(trained, directory):
    """Checks that a warm start with all variables continues the training."""
    found = warm_started(trained, directory, [".*"], 3)
    np.testing.assert_equal(found, in_a_session(decays_every_two_steps, 9))


def variables_alone(trained, directory):
    """Checks that slots start anew if `vars_to_warm_start` is a string instead of a list."""
    before, after = state(trained), warm_started(trained, directory, ".*", 1)
    assert after["global_step"] == 1
    assert_rows(after["table/AdagradDecay"], np.full([9, 4], 0.1, np.float32))
    assert_rows(after["table"], before["table"])


def slots_but_no_counts(trained, directory):
    """Checks that decay counts and the global step start at 0 if a warm start omits them."""
    before = state(trained)
    assert before["table/AdagradDecay_1"].max() == 3
    after = warm_started(trained, directory, ["table:", "weights:", ".*/AdagradDecay:"], 1)
    assert after["global_step"] == 1 and after["table/AdagradDecay_1"].max() == 0
    for name in "table", "table/AdagradDecay":
        assert_rows(after[name], before[name])


@pytest.mark.parametrize("check", [everything, variables_alone, slots_but_no_counts])
def test_warm_starts(check, trained, tmp_path):
    check(trained, tmp_path)


def assert_rows(actual, expected):
    """Asserts that rows 1 and 5 differ, and that rows without a gradient in step 0 are equal."""
    others = [2, 3, 4, 6, 7, 8]
    np.testing.assert_array_equal(actual[others], expected[others])
    assert np.all(actual[[1, 5]] != expected[[1, 5]])


# --- Canned Estimators.


class Reads(v1.train.SessionRunHook):
    """Reads all variables by name when a training starts and ends.

    A test cannot read the checkpoint instead, because TensorFlow's checkpoint reader cannot read
    partitioned slots of canned Estimators, although TensorFlow can restore them.
    """

    def begin(self):
        self.variables = {each.op.name: each for each in v1.global_variables()}

    def after_create_session(self, session, coord):
        self.before = session.run(self.variables)

    def end(self, session):
        self.after = session.run(self.variables)


def columns(kind):
    one, other = (
        tf.feature_column.categorical_column_with_identity(name, 9) for name in ("one", "other")
    )
    if kind == "linear":
        return [one, other]
    with tf.Graph().as_default():
        shared = tf.compat.v2.feature_column.shared_embeddings([one, other], dimension=4)
    return [*shared, tf.feature_column.numeric_column("x")]


def options_of(kind, optimizer, parted):
    """Returns the arguments of a canned classifier, with an optimizer for each of its models."""
    partitioner = {}
    if parted:
        name = "partitioner" if kind == "Linear" else "input_layer_partitioner"
        partitioner = {name: v1.fixed_size_partitioner(2)}
    if kind == "Linear":
        return dict(partitioner, feature_columns=columns("linear"), optimizer=optimizer())
    if kind == "DNN":
        layers = {"feature_columns": columns("dnn"), "hidden_units": [3]}
        return dict(partitioner, optimizer=optimizer(), **layers)
    return dict(
        partitioner,
        linear_feature_columns=columns("linear"),
        linear_optimizer=optimizer(),
        dnn_feature_columns=columns("dnn"),
        dnn_optimizer=optimizer(),
        dnn_hidden_units=[3],
    )


def advanced_elsewhere():
    made = decays_every_two_steps()
    made.global_step_is_advanced = True  # the Estimator increments the step itself
    return made


def made_in_the_graph():
    """Returns a function that the Estimator calls after it has created the global step."""
    return lambda: decays_every_two_steps(v1.train.get_global_step())


def clipped():
    return legacy_opt.clip_gradients_by_norm(decays_every_two_steps(), 0.5)


def bridged():
    return compat.to_keras(decays_every_two_steps(), api="optimizer_v2")


DAILY = {"v1 DNNLinearCombined": advanced_elsewhere, "v2 DNNLinearCombined": bridged}
FULL = {
    "v1 DNN": made_in_the_graph,
    "v1 DNN in parts": clipped,
    "v1 Linear": decays_every_two_steps,
    "v1 Linear in parts": made_in_the_graph,
    "v1 DNNLinearCombined in parts": advanced_elsewhere,
    "v2 DNN": bridged,
    "v2 Linear": bridged,
}
CANNED = [pytest.param(*each, id=each[0]) for each in DAILY.items()]
CANNED += [pytest.param(*each, id=each[0], marks=pytest.mark.full) for each in FULL.items()]


@pytest.mark.parametrize("name, make", CANNED)
def test_a_canned_estimator_trains_decays_and_resumes(name, make, tmp_path, recwarn):
    version, kind = name.split()[:2]
    canned = getattr(versions.estimator(version), kind + "Classifier")
    made = []

    def optimizer():
        made.append(make())
        return made[-1]

    reads = [Reads(), Reads()]
    for read, last in zip(reads, (4, 7)):
        options = options_of(kind, optimizer, name.endswith("in parts"))
        trained = canned(model_dir=str(tmp_path), config=config(), **options)
        hooks = [read]
        if make is not made_in_the_graph:
            hooks.append(legacy_opt.SlotSummaryHook(made[-1], str(tmp_path)))
        trained.train(input_fn, hooks=hooks, max_steps=last)
    np.testing.assert_equal(reads[1].before, reads[0].after)
    assert reads[1].after["global_step"] == 7
    check_decays(reads[1].after, kind)
    assert not [w for w in recwarn if issubclass(w.category, legacy_opt.GlobalStepWarning)]


def check_decays(variables, kind):
    """Checks the decay counts after 7 steps; the last 3 steps read the input from its start."""
    batches = [IDS.reshape([3, 2, 2])[step % 3] for step in (0, 1, 2, 3, 0, 1, 2)]
    expected = {
        "one/weights": decays([batch[:, 0] for batch in batches]),
        "other/weights": decays([batch[:, 1] for batch in batches]),
        "shared_embedding": decays(batches),
        "bias": decays([[0]] * 7),
        "kernel": decays([[0]] * 7),
    }
    counts = {}
    for name in sorted(variables):
        if re.search("/(AdagradDecay_1|accumulator_decay_power)$", name):
            counts.setdefault(re.sub(r"/part_\d+", "", name), []).append(variables[name])
    assert len(counts) >= {"Linear": 3, "DNN": 4, "DNNLinearCombined": 7}[kind]
    for name, parts in counts.items():
        (part,) = [part for part in expected if part in name]
        found = np.concatenate(parts)
        np.testing.assert_array_equal(found, expected[part][: len(found)], err_msg=name)


def decays(visits):
    """Returns how often the accumulator of each of 9 rows decays: at most once per update.

    Args:
      visits: for each training step, the rows with a gradient.
    """
    counts = np.zeros(9, int)
    for step, ids in enumerate(visits):
        for row in np.unique(ids):
            counts[row] += (step + 1) // 2 > counts[row]
    return counts
