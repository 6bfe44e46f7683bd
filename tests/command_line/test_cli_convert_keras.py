"""Tests of `legacy-opt convert --model` between v1 checkpoints and Keras files."""

import json
import os

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import recorded, versions
from legacy_opt.compat import custom_objects
from tests.support.checkpoints.v1_checkpoints import assert_equal, tensors
from tests.support.processes.command_line import start, with_users_module

v1 = tf.compat.v1
KERAS_3 = versions.keras_facts()["generation"] == 3
# Up to TensorFlow 2.10, files named .keras are HDF5 files.
H5_IN_DISGUISE = not hasattr(tf.keras.models.Model, "get_compile_config")
# {file ending: whether Keras saves the optimizer's state in such files}. See docs/keras.md.
# The ending "" means a checkpoint of tf.train.Checkpoint.
KEPT = {".h5": True, ".keras": KERAS_3 or H5_IN_DISGUISE, ".weights.h5": KERAS_3, "": True}
USERS_MODULE = """
import tensorflow as tf
from legacy_opt.compat import to_keras
keras = tf.keras
def build(optimizer=tf.compat.v1.train.AdamOptimizer, before=lambda inputs: inputs):
    inputs = keras.Input((3,))
    model = keras.Model(inputs, keras.layers.Dense(2, name="layer")(before(inputs)))
    # Keras 3 loads .h5 files only if the loss is an object.
    model.compile(to_keras(optimizer(0.01)), keras.losses.MeanSquaredError())
    print("output of the user's module")
    return model
def pair():
    model = build()
    return model, model.optimizer
def other():
    return build(tf.compat.v1.train.AdagradOptimizer)
def sgd():
    return build(tf.compat.v1.train.GradientDescentOptimizer)
def with_code():
    return build(before=keras.layers.Lambda(lambda inputs: inputs + undefined_in_other_programs))
undefined_in_other_programs = 1.0
def nothing():
    return 3
"""


@pytest.fixture
def screen(capsys, tmp_path, monkeypatch):
    return with_users_module("users_model", USERS_MODULE, capsys, tmp_path, monkeypatch)


def train(session_steps, restore=None, save=None):
    """Trains in a Session; returns {variable name: final value}."""
    with tf.Graph().as_default():
        kernel = v1.get_variable("layer/kernel", [3, 2], use_resource=True)
        bias = v1.get_variable("layer/bias", [2], use_resource=True)
        step = v1.train.get_or_create_global_step()
        x = tf.constant(np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3))
        loss = tf.reduce_sum(tf.square(tf.matmul(x, kernel) + bias - 1.0))
        train_op = v1.train.AdamOptimizer(0.01).minimize(loss, step)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            if restore is not None:
                v1.train.Saver().restore(session, str(restore))
            for _ in range(session_steps):
                session.run(train_op)
            if save is not None:
                v1.train.Saver().save(session, str(save), write_meta_graph=False)
            return session.run({each.op.name: each for each in v1.global_variables()})


@pytest.fixture
def source(tmp_path):
    train(5, save=tmp_path / "v1")
    return tmp_path / "v1"


def options(*words, model="build"):
    return ("--model", "users_model:" + model) + words


def test_a_dry_run_reports_the_same_and_writes_nothing(tmp_path, screen, source):
    keras, back = tmp_path / "new" / "keras.h5", tmp_path / "new" / "back"
    to_keras = ("convert", source, keras, *options())
    rehearsed = screen.json(*to_keras, "--dry-run")
    assert not keras.parent.exists()
    assert rehearsed == dict(screen.json(*to_keras), written=False)
    files = sorted(os.listdir(str(keras.parent)))
    rehearsed = screen.json("convert", keras, back, *options(), "--dry-run")
    assert sorted(os.listdir(str(keras.parent))) == files
    assert rehearsed == dict(screen.json("convert", keras, back, *options()), written=False)


@pytest.mark.parametrize("ending", sorted(KEPT))
def test_to_keras_and_back(tmp_path, screen, source, ending):
    """Keras cannot load the Lambda layer from a file, so `convert` takes the layer from --model."""
    keras, back = tmp_path / ("keras" + ending), tmp_path / "back"
    to_keras = ("convert", source, keras) + options("--to", "keras", model="with_code")
    if not KEPT[ending]:
        result = screen.json(*to_keras, code=1)
        assert (
            not result["written"] and "the optimizer's state" in result["left_in_source"][0]["name"]
        )
        assert not keras.exists()
        result = screen.json(*(to_keras + ("--partial",)), code=1)
        assert result["written"] and keras.exists()
        words = ("convert", keras, back) + options(model="with_code")
        assert "contains no state of an optimizer" in screen.refused(*words)
        return
    result = screen.json(*to_keras)
    assert result["written"] and len(result["transferred"]) == 9
    assert not [name for name in os.listdir(str(tmp_path)) if name.endswith(".writing")]
    assert screen.json("convert", keras, back, *options(model="with_code"))["complete"]
    assert_equal(tensors(back), tensors(source))
    assert_equal(train(5, restore=back), train(5, restore=source))


def test_export_takes_the_state_from_keras(tmp_path, screen, source):
    rule, keras, state = (tmp_path / name for name in ("rule.json", "keras.h5", "state.npz"))
    with tf.Graph().as_default():
        recorded.save(recorded.record(v1.train.AdamOptimizer(0.01)), rule)
    screen.json("convert", source, keras, *options())
    facts = screen.json("export", keras, *options("--rule", rule, "--out", state))
    assert (facts["step"], facts["not_trained"]) == (5, [])
    screen.json("export", source, "--rule", rule, "--out", tmp_path / "direct.npz")
    assert_equal(*(dict(np.load(str(tmp_path / name))) for name in ("state.npz", "direct.npz")))
    names = tmp_path / "names.json"
    names.write_text('{"layer/kernel": null}')
    screen.json("export", keras, *options("--rule", rule, "--out", state, "--overwrite"))
    words = options("--rule", rule, "--out", state, "--overwrite", "--name-map", names)
    assert "layer/kernel" not in screen.json("export", keras, *words)["variables"]
    words = options("--rule", rule, "--out", tmp_path / "no.npz", model="other")
    assert "keras.h5" in screen.refused("export", keras, *words)
    assert not (tmp_path / "no.npz").exists()


def test_keras_loads_the_written_files(tmp_path, screen, source):
    screen.json("convert", source, tmp_path / "keras.h5", *options("--to", "keras"))
    path = str(tmp_path / "keras.h5")
    model = tf.keras.models.load_model(path, custom_objects=custom_objects())
    np.testing.assert_array_equal(model.get_weights()[0], tensors(source)["layer/kernel"])
    assert int(model.optimizer.iterations.numpy()) == 5
    (tmp_path / "there").mkdir()
    screen.json("convert", source, tmp_path / "there" / "ckpt", *options("--to", "keras"))
    names = {"ckpt.index", "ckpt.data-00000-of-00001"}
    assert set(os.listdir(str(tmp_path / "there"))) == names


def test_a_function_that_returns_a_pair_and_a_name_map(tmp_path, screen, source):
    (tmp_path / "map.json").write_text('{"layer/kernel": "w", "layer/bias": "b"}')
    screen.json("convert", source, tmp_path / "keras", *options("--to", "keras", model="pair"))
    words = options("--name-map", "map.json", model="pair")
    screen.json("convert", tmp_path / "keras", tmp_path / "back", *words)
    names = {"layer/kernel": "w", "layer/bias": "b"}
    expected = {}
    for name, value in tensors(source).items():
        for old, new in names.items():
            name = name.replace(old, new)
        expected[name] = value
    assert_equal(tensors(tmp_path / "back"), expected)


def test_without_to_the_ending_of_dst_decides(tmp_path, screen, source):
    keras, back = tmp_path / "keras.h5", tmp_path / "back"
    assert screen.json("convert", source, keras, *options())["to"] == "keras"
    assert tf.keras.models.load_model(str(keras), custom_objects=custom_objects())
    assert screen.json("convert", keras, back, *options())["to"] == "v1"
    assert_equal(tensors(back), tensors(source))


@pytest.mark.parametrize("ending", [".keras", ".h5", ".weights.h5"])
@pytest.mark.parametrize(
    "words, way_out",
    [
        ((), "--model module:function"),
        (("--to", "v1"), "--to keras"),
        (("--to", "adagrad-decay-v1"), "--to keras"),
        (("--to", "v1", "--model", "users_model:build"), "--to keras"),
    ],
)
def test_no_v1_checkpoint_gets_the_name_of_a_keras_file(
    tmp_path, screen, source, words, way_out, ending
):
    before = set(os.listdir(str(tmp_path)))
    error = screen.refused("convert", source, tmp_path / ("x" + ending), *words)
    assert "x" + ending in error and way_out in error
    assert set(os.listdir(str(tmp_path))) == before


def test_the_guessed_name_map_is_used(tmp_path, screen, source):
    (tmp_path / "map.json").write_text('{"layer/kernel": "tower/w", "layer/bias": "b"}')
    renamed, keras, back = (tmp_path / name for name in ("renamed", "keras.h5", "back"))
    screen.json("convert", source, renamed, "--name-map", "map.json")
    result = screen.json("convert", renamed, keras, *options("--name-map", "guess"))
    assert result["complete"]
    (note,) = [note for note in result["notes"] if "guess" in note]
    assert '{"layer/kernel": "tower/w", "layer/bias": "b"}' in note
    words = options("--name-map", "guess", "--like", renamed)
    assert screen.json("convert", keras, back, *words)["complete"]
    assert_equal(tensors(back), tensors(renamed))


def test_a_guess_that_is_not_enough_is_an_error(tmp_path, screen, source):
    (tmp_path / "map.json").write_text('{"layer/kernel": "w", "beta1_power": "strange"}')
    screen.json("convert", source, tmp_path / "renamed", "--name-map", "map.json")
    words = options("--name-map", "guess")
    result = screen.json("convert", tmp_path / "renamed", tmp_path / "keras.h5", *words, code=1)
    assert not result["written"]
    assert [each["name"] for each in result["left_in_source"]] == ["strange"]


@pytest.mark.parametrize("words, needed", [((), "--model"), (options(), "--like")])
def test_a_guess_needs_something_to_compare_with(tmp_path, screen, source, words, needed):
    screen.json("convert", source, tmp_path / "keras.h5", *options("--to", "keras"))
    old = tmp_path / "keras.h5" if words else source
    error = screen.refused("convert", old, tmp_path / "new", *words, "--name-map", "guess")
    assert f"--name-map guess needs {needed}" in error


@pytest.mark.parametrize("argument", ["", "name_map="])
@pytest.mark.parametrize("python", [False, True])
def test_the_suggested_name_map_can_be_pasted(tmp_path, screen, source, python, argument):
    """A name map may be JSON. It may also be a Python dict, as suggested by older messages."""
    new = {"layer/kernel": "tower/w", "layer/bias": "b"}
    (tmp_path / "map.json").write_text(json.dumps(new))
    assert screen.run("convert", source, "renamed", "--name-map", "map.json")[0] == 0
    words = ("convert", "renamed", "keras") + options("--to", "keras")
    (note,) = screen.json(*words, code=1)["notes"]
    suggested = note.partition("name_map=")[2]
    assert json.loads(suggested) == new
    text = argument + (repr(new) if python else suggested)
    (tmp_path / "pasted.json").write_text(text, encoding="utf-8")
    assert screen.json(*words + ("--name-map", "pasted.json"))["complete"]


def test_a_model_in_place_of_a_function(tmp_path, screen, source):
    """If --model names a model, `convert` must not call it, although Keras models are callable."""
    (tmp_path / "built_model.py").write_text("import users_model\nmodel = users_model.build()\n")
    words = "--to", "keras", "--model", "built_model:model"
    screen.json("convert", source, tmp_path / "keras", *words)
    screen.json("convert", tmp_path / "keras", tmp_path / "back", *options())
    assert_equal(tensors(tmp_path / "back"), tensors(source))


def test_the_option_like(tmp_path, screen, source):
    screen.json("convert", source, tmp_path / "keras", *options("--to", "keras"))
    words = options("--like", source)
    screen.json("convert", tmp_path / "keras", tmp_path / "back", *words)
    assert_equal(tensors(tmp_path / "back"), tensors(source))


def test_a_model_with_another_optimizer(tmp_path, screen, source):
    words = ("convert", source, tmp_path / "keras") + options("--to", "keras", model="other")
    result = screen.json(*words, code=1)
    assert not result["written"]
    left = {each["name"] for each in result["left_in_source"]}
    assert {"layer/kernel/Adam", "beta1_power"} <= left
    assert screen.json(*(words + ("--partial",)), code=1)["written"]


@pytest.mark.parametrize("ending", sorted(ending for ending in KEPT if KEPT[ending]))
def test_a_file_with_the_state_of_another_optimizer(tmp_path, screen, source, ending):
    keras = tmp_path / ("keras" + ending)
    screen.json("convert", source, keras, *options("--to", "keras"))
    screen.refused("convert", keras, tmp_path / "back", *options(model="other"))
    assert not (tmp_path / "back.index").exists()


def test_the_option_ignore(tmp_path, screen, source):
    words = ("convert", source, tmp_path / "keras") + options("--to", "keras", model="other")
    words += ("--ignore", "layer/.*/Adam", "--ignore", "beta[12]_power$")
    result = screen.json(*words, code=1)
    assert result["left_in_source"] == []
    assert {each["name"] for each in result["missing_in_source"]} == {
        "layer/kernel, slot accumulator",
        "layer/bias, slot accumulator",
    }
    code, output, errors = screen.run(*words)
    assert (code, errors) == (1, "") and "Nothing was written." in output
    assert all(word in output for word in ("--ignore", "--partial", "--name-map"))
    assert "strict=" not in output and "ignore=" not in output


def test_ignored_leftovers_leave_the_conversion_complete(tmp_path, screen, source):
    words = ("convert", source, tmp_path / "keras") + options("--to", "keras", model="sgd")
    assert not screen.json(*words, code=1)["written"]
    result = screen.json(*(words + ("--ignore", ".*Adam", "--ignore", "beta")))
    assert result["written"] and result["complete"] and len(result["transferred"]) == 3


@pytest.mark.parametrize(
    ["words", "message"],
    [
        (("v1", "out") + options("--to", "keras", model="nothing"), "must return a Keras model"),
        (("v1", "out") + options("--to", "keras", model="missing"), "there is no 'missing' in it"),
        (("v1", "out", "--model", "no_such:build", "--to", "keras"), "No module named 'no_such'"),
        (("none", "out") + options("--to", "keras"), "no such checkpoint"),
        (("v1", "out") + options(), "is a name-based v1 checkpoint already"),
        (("none.keras", "out") + options(), "there is no such file"),
        (("bad.keras", "out") + options(), "cannot be loaded by Keras"),
        (("bad.keras", "out"), "pass --model"),
        (("v1", "out") + options("--to", "keras", "--ignore", "["), "is not a regular expression"),
        (("v1", "out") + options("--ignore", "x"), "--ignore has no meaning with --to v1"),
        (("v1", "out") + options("--to", "keras", "--name-map", "misspelled.json"), "layer/kernle"),
        (
            ("v1", "out") + options("--to", "keras", "--name-map", "twice.json"),
            "name_map gives two",
        ),
        (("v1", "x.KERAS") + options(), "lower case (.keras)"),
        (("v1", "x.Weights.H5") + options(), "lower case (.h5)"),
        (("v1", "x.H5", "--to", "v1"), "lower case (.h5)"),
        (("bad.KERAS", "out") + options(), "lower case (.keras)"),
        (("bad.KERAS", "out"), "lower case (.keras)"),
        (("v1", "x.keras/") + options(), "Add the name of the file to write"),
        (("v1", "new/"), "Add the name of the file to write"),
        (("v1", ""), "Add the name of the file to write"),
    ],
)
def test_bad_input(tmp_path, screen, source, words, message):
    (tmp_path / "bad.keras").write_text("no file of Keras")
    (tmp_path / "bad.KERAS").write_text("no file of Keras")
    (tmp_path / "twice.json").write_text('{"layer/kernel": "w", "layer/bias": "w"}')
    (tmp_path / "misspelled.json").write_text('{"layer/kernle": "w"}')
    before = sorted(os.listdir(str(tmp_path)))
    assert message in screen.refused("convert", *words)
    after = [name for name in sorted(os.listdir(str(tmp_path))) if name != "__pycache__"]
    assert after == [name for name in before if name != "__pycache__"]


@pytest.mark.parametrize("words", [(), options("--to", "keras")])
def test_a_destination_that_ends_in_index_is_a_prefix(tmp_path, screen, source, words):
    result = screen.json("convert", source, "z.index", *words)
    assert result["destination"] == "z"
    assert (tmp_path / "z.index").exists() and not (tmp_path / "z.index.index").exists()
    assert "'z.index' exists already" in screen.refused("convert", source, "z.index", *words)


def daily_on_tensorflow_1(test):
    return pytest.mark.contrib(test) if versions.has_contrib() else pytest.mark.full(test)


@daily_on_tensorflow_1
def test_convert_in_a_new_process(tmp_path, screen, source):
    """On TensorFlow 1.15, a new process is in graph mode, and Keras uses a Session."""
    words = ("convert", source, tmp_path / "keras.h5") + options("--to", "keras")
    process = start(*words, cwd=str(tmp_path))
    output, errors = process.communicate()
    assert (process.returncode, errors) == (0, "")
    assert "output of the user" not in output and "\x1b" not in output
    assert screen.json("convert", "keras.h5", tmp_path / "back", *options())["complete"]
    assert_equal(tensors(tmp_path / "back"), tensors(source))
