"""Tests of `legacy-opt convert` between two name-based checkpoints."""

import json
import os

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from tests.support.checkpoints import v1_checkpoints as training
from tests.support.checkpoints.v1_checkpoints import assert_equal, tensors, write_tensors
from tests.support.processes.command_line import ROOT

v1 = tf.compat.v1
DECAY = dict(accumulator_decay_step=2, accumulator_decay_rate=0.5)
DECAY_V1 = ["--to", "adagrad-decay-v1"]


def adam(step):
    return v1.train.AdamOptimizer(0.01)


def decaying_v1(step):
    return legacy_opt.AdagradDecayOptimizer(0.1, step, **DECAY)


def decaying_v2(step):
    return legacy_opt.AdagradDecayOptimizerV2(0.1, step, **DECAY)


def draw(*shape, dtype=np.float32):
    return np.random.RandomState(len(shape) + sum(shape)).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("saver", [{"write_version": 1}, {"write_version": 1, "sharded": True}, {}])
def test_v1_format_becomes_v2_format(tmp_path, screen, saver):
    problem = training.problem()
    (tmp_path / "old").mkdir()
    source = training.trained_in_v1(tmp_path / "old" / "model", problem, adam, saver=saver)
    before = tensors(source)
    result = screen.json("convert", source, tmp_path / "new" / "model")
    assert_equal(tensors(tmp_path / "new" / "model"), before)
    assert sorted(each["source"] for each in result["transferred"]) == sorted(before)
    assert (result["written"], result["complete"], result["to"]) == (True, True, "v1")
    assert tf.train.latest_checkpoint(str(tmp_path / "new")) == str(tmp_path / "new" / "model")
    expected = training.continued_in_v1(source, problem, adam)
    actual = training.continued_in_v1(str(tmp_path / "new" / "model"), problem, adam)
    assert_equal(actual[2], expected[2])
    training.assert_same_steps(actual[1], expected[1])


def in_parts():
    """Returns two dicts of the same tensors: a variable, its slots and the global step.

    In the first dict, the variable and its slots are split into 3 partitions. The second dict has
    unpartitioned tensors.
    """
    whole = {name: draw(8, 4) * scale for scale, name in enumerate(["x", "x/Adam", "x/Adam_1"], 1)}
    parts = {}
    for number, rows in enumerate([slice(0, 3), slice(3, 6), slice(6, 8)]):
        for name, value in whole.items():
            parts[name.replace("x", f"x/part_{number}")] = value[rows]
        parts[f"x/part_{number}/AdamAsync_2"] = np.float32(0.5)
    whole.update({"x/AdamAsync_2": np.float32(0.5), "global_step": np.int64(7)})
    parts["global_step"] = whole["global_step"]
    return parts, whole


def test_parts_become_one_tensor(tmp_path, screen):
    parts, whole = in_parts()
    source = write_tensors(tmp_path / "old", parts)
    result = screen.json("convert", source, tmp_path / "new")
    assert_equal(tensors(tmp_path / "new"), whole)
    notes = {each["target"]: each["note"] for each in result["transferred"]}
    assert notes == dict(dict.fromkeys(whole, "3 parts"), global_step="")
    with tf.Graph().as_default(), v1.Session() as session:
        partitioned = v1.get_variable("x", [8, 4], partitioner=v1.fixed_size_partitioner(4))
        v1.train.Saver().restore(session, str(tmp_path / "new"))
        np.testing.assert_array_equal(session.run(tf.convert_to_tensor(partitioned)), whole["x"])


def test_parts_cut_along_columns(tmp_path, screen):
    value = draw(4, 5)
    write_tensors(tmp_path / "old", {"x/part_0": value[:, :3], "x/part_1": value[:, 3:]})
    assert screen.run("convert", tmp_path / "old", tmp_path / "new")[0] == 0
    assert_equal(tensors(tmp_path / "new"), {"x": value})


def test_parts_that_disagree_are_refused(tmp_path, screen):
    parts, _ = in_parts()
    parts["x/part_1/AdamAsync_2"] = np.float32(0.25)
    write_tensors(tmp_path / "old" / "model", parts)
    words = screen.refused("convert", tmp_path / "old" / "model", tmp_path / "new")
    assert "x/part_0/AdamAsync_2" in words and "the parts have different values" in words
    assert os.listdir(str(tmp_path)) == ["old"]


def test_slots_of_parts_are_put_together_if_the_variable_is_saved_whole(tmp_path, screen):
    arrays = {"w": draw(4, 2), "tower/w/rows_0_to_1_of_4/AdamAsync_2": np.float32(1)}
    arrays["tower/w/rows_1_to_4_of_4/AdamAsync_2"] = np.float32(1)
    for number, (first, last) in enumerate([(0, 1), (1, 4)]):
        arrays[f"w/part_{number}/adam_m"] = draw(4, 2)[first:last]
    write_tensors(tmp_path / "old", arrays)
    (tmp_path / "map.json").write_text('{"w": "v"}')
    words = ("convert", tmp_path / "old", tmp_path / "new", "--name-map", tmp_path / "map.json")
    assert screen.run(*words)[0] == 0
    expected = {"v": arrays["w"], "v/adam_m": draw(4, 2), "tower/v/AdamAsync_2": np.float32(1)}
    assert_equal(tensors(tmp_path / "new"), expected)


def test_slots_of_parts_of_an_unknown_optimizer_are_refused(tmp_path, screen):
    """The ranges in the names are not numbers, so the slots cannot be put together."""
    arrays = {"w": draw(4, 2)}
    for first, last in [(0, 1), (1, 4)]:
        arrays[f"w/rows_{first}_to_{last}_of_4/MyOptimizer"] = draw(4, 2)[first:last]
    write_tensors(tmp_path / "old" / "model", arrays)
    words = screen.refused("convert", tmp_path / "old", tmp_path / "new")
    assert "has its own w/MyOptimizer" in words and "cannot be joined" in words
    (tmp_path / "map.json").write_text('{"w/MyOptimizer": null}')
    words = ("convert", tmp_path / "old", tmp_path / "new", "--name-map", tmp_path / "map.json")
    assert screen.run(*words)[0] == 0
    assert_equal(tensors(tmp_path / "new"), {"w": arrays["w"]})


def test_decay_counts_of_parts_cut_along_columns_are_refused(tmp_path, screen):
    arrays = {}
    for number, columns in enumerate([3, 2]):
        part = f"x/part_{number}"
        arrays.update({part: draw(4, columns), part + "/AdagradDecay": draw(4, columns)})
        arrays[part + "/AdagradDecay_1"] = np.arange(4)
    write_tensors(tmp_path / "old" / "model", arrays)
    words = screen.refused("convert", tmp_path / "old", tmp_path / "new")
    assert "each part of x has its own x/AdagradDecay_1" in words
    assert os.listdir(str(tmp_path)) == ["old"]


def test_decay_counts_of_parts_become_those_of_one_variable(tmp_path, screen):
    counts = np.arange(1, 9)
    parts = {}
    for number, (first, last) in enumerate([(0, 3), (3, 8)]):
        part = f"x/part_{number}"
        of_part = np.zeros((last - first, 4), np.int64)
        of_part.reshape(-1)[: last - first] = counts[first:last]
        size = last - first
        parts.update({part: draw(size, 4), part + "/AdagradDecay": draw(size, 4)})
        parts[part + "/AdagradDecay_1"] = of_part
    write_tensors(tmp_path / "old", parts)
    assert screen.run("convert", tmp_path / "old", tmp_path / "new")[0] == 0
    expected = np.zeros((8, 4), np.int64)
    expected.reshape(-1)[:8] = counts
    np.testing.assert_array_equal(tensors(tmp_path / "new")["x/AdagradDecay_1"], expected)


@pytest.fixture
def named(tmp_path):
    """Saves two variables and their Adam slots, which are in a scope; returns {name: array}."""
    arrays = {"beta1_power": np.float32(0.5), "beta2_power": np.float32(0.9)}
    for name in ("a/w", "b"):
        arrays[name] = draw(3, 2)
        arrays[f"OptimizeLoss/{name}/Adam"] = draw(3, 2) + 1
        arrays[f"OptimizeLoss/{name}/Adam_1"] = draw(3, 2) + 2
    write_tensors(tmp_path / "old" / "model", arrays)
    return arrays


def write_map(tmp_path, name_map):
    path = tmp_path / "old" / "names.json"
    path.write_text(json.dumps(name_map))
    return path


def test_new_names_apply_to_slots(tmp_path, screen, named):
    name_map = write_map(
        tmp_path,
        {
            "a/w": "layer/kernel",
            "beta1_power": "beta1_power_1",
            "OptimizeLoss/layer/kernel/Adam_1": "odd",
            "OptimizeLoss/b/Adam": "b/m",
        },
    )
    source = tmp_path / "old" / "model"
    assert screen.run("convert", source, tmp_path / "new", "--name-map", name_map)[0] == 0
    names = {
        "a/w": "layer/kernel",
        "OptimizeLoss/a/w/Adam": "OptimizeLoss/layer/kernel/Adam",
        "OptimizeLoss/a/w/Adam_1": "odd",
        "OptimizeLoss/b/Adam": "b/m",
        "beta1_power": "beta1_power_1",
    }
    expected = {names.get(name, name): value for name, value in named.items()}
    assert_equal(tensors(tmp_path / "new"), expected)


def test_null_leaves_a_variable_and_its_slots_out(tmp_path, screen, named):
    name_map = write_map(tmp_path, {"b": None})
    source = tmp_path / "old" / "model"
    result = screen.json("convert", source, tmp_path / "new", "--name-map", name_map)
    left_out = {"b", "OptimizeLoss/b/Adam", "OptimizeLoss/b/Adam_1"}
    assert set(tensors(tmp_path / "new")) == set(named) - left_out
    assert {note.split(": ")[1] for note in result["notes"]} == left_out


@pytest.mark.parametrize(
    ["content", "words"],
    [
        ('{"c": "d"}', "The name map has 'c', but no tensor in"),
        ('{"a/w": "b"}', "Two tensors would be called 'b'"),
        ("{", "cannot be read"),
        ('["a/w"]', "must be one object"),
        ('{"a/w": 3}', "must be one object"),
    ],
)
def test_bad_name_maps(tmp_path, screen, named, content, words):
    path = tmp_path / "old" / "names.json"
    path.write_text(content)
    result = screen.refused(
        "convert", tmp_path / "old" / "model", tmp_path / "new", "--name-map", path
    )
    assert words in result
    assert os.listdir(str(tmp_path)) == ["old"]


@pytest.mark.pairwise(use_resource=[False, True], parts=[0, 3], to=[1, 2])
def test_training_continues_in_the_other_decay_layout(tmp_path, screen, use_resource, parts, to):
    make, other = (decaying_v1, decaying_v2) if to == 2 else (decaying_v2, decaying_v1)
    problem, options = training.problem(), dict(use_resource=use_resource, parts=parts)
    source = training.trained_in_v1(tmp_path / "old", problem, make, **options)
    words = ("convert", source, tmp_path / "new", "--to", f"adagrad-decay-v{to}")
    assert screen.run(*words)[0] == 0
    _, expected, end = training.continued_in_v1(source, problem, make, **options)
    _, actual, new_end = training.continued_in_v1(tmp_path / "new", problem, other, **options)
    training.assert_same_steps(actual, expected)
    for key in end:
        if "power" not in key[-1]:
            np.testing.assert_array_equal(new_end[key], end[key], str(key))
    counts = [value for key, value in end.items() if "power" in key[-1]]
    assert counts and all(np.max(value) > 0 for value in counts)


def test_decay_layouts_round_trip(tmp_path, screen):
    source = training.trained_in_v1(tmp_path / "old", training.problem(), decaying_v1)
    to = "adagrad-decay-v%d"
    assert screen.run("convert", source, tmp_path / "two", "--to", to % 2)[0] == 0
    assert screen.run("convert", tmp_path / "two", tmp_path / "one", "--to", to % 1)[0] == 0
    assert_equal(tensors(tmp_path / "one"), tensors(source))
    two = tensors(tmp_path / "two")
    for name in training.problem().values:
        assert two[name + "/AdagradDecay_1"].shape == two[name].shape[:1]
    assert screen.run("convert", tmp_path / "two", tmp_path / "same", "--to", to % 2)[0] == 0
    assert_equal(tensors(tmp_path / "same"), two)


def test_decay_counts_of_a_scalar(tmp_path, screen):
    arrays = {"x": np.float32(1), "x/AdagradDecay": np.float32(2), "x/AdagradDecay_1": np.int64(3)}
    write_tensors(tmp_path / "old", arrays)
    for to in ("adagrad-decay-v1", "adagrad-decay-v2"):
        assert screen.run("convert", tmp_path / "old", tmp_path / to, "--to", to)[0] == 0
        assert_equal(tensors(tmp_path / to), arrays)


def test_decay_counts_beyond_the_rows_are_refused(tmp_path, screen):
    arrays = {"x": draw(3, 2), "x/AdagradDecay": draw(3, 2)}
    arrays["x/AdagradDecay_1"] = np.arange(6).reshape(3, 2)
    write_tensors(tmp_path / "old" / "model", arrays)
    words = screen.refused(
        "convert", tmp_path / "old", tmp_path / "new", "--to", "adagrad-decay-v2"
    )
    assert "x/AdagradDecay_1 cannot be converted: there are counts beyond" in words
    assert os.listdir(str(tmp_path)) == ["old"]


@pytest.fixture
def bad(tmp_path):
    """Returns a folder with the valid checkpoint `good`, and with files that `convert` refuses."""
    folder = tmp_path / "old"
    write_tensors(folder / "good", {"x": draw(3000, 2), "y": draw(5)})
    data = (folder / "good.data-00000-of-00001").read_bytes()
    index = (folder / "good.index").read_bytes()

    def write(name, index, data):
        (folder / (name + ".index")).write_bytes(index)
        (folder / (name + ".data-00000-of-00001")).write_bytes(data)

    write("truncated", index, data[:100])
    write("corrupt", index[: len(index) // 2], data)
    write("damaged", index, data[:2000] + b"x" * 4 + data[2004:])
    (folder / "text.txt").write_text("no checkpoint at all, but some lines of text\n" * 9)
    (folder / "empty").write_bytes(b"")
    (folder / "keras.h5").write_bytes(b"")
    keys = {
        "emb/part_0-keys": draw(4),
        "emb/part_0-values": draw(4, 2),
        "emb/part_0-freqs": draw(4),
    }
    write_tensors(folder / "deeprec", keys)
    return folder


@pytest.mark.parametrize(
    ["name", "options", "words"],
    [
        ("missing", [], "no such checkpoint"),
        ("truncated", [], "truncated"),
        ("corrupt", [], "corrupt"),
        ("damaged", [], "corrupt"),
        ("text.txt", [], "is a text file"),
        ("empty", [], "is empty"),
        ("deeprec", [], "'emb' cannot be converted: DeepRec's EmbeddingVariable"),
        ("good", DECAY_V1, "no counts of AdagradDecay"),
        ("good", ["--to", "keras"], "needs --model module:function"),
        ("good", ["--optimizer", "module:make"], "have their v1 names already"),
        ("good", ["--like", "other"], "--like needs --model."),
        ("good", DECAY_V1 + ["--like", "other"], "--like has no meaning with --to adagrad-decay"),
        ("good", DECAY_V1 + ["--model", "a:b"], "no meaning with --to adagrad-decay-v1."),
        ("good", ["--model", "a:b", "--optimizer", "a:c"], "no meaning with --to v1 and --model."),
        ("good", ["--partial"], "--partial has no meaning here"),
        ("keras.h5", [], "Keras file, and only its model knows the names of the variables: pass"),
        ("keras.h5", DECAY_V1, "Before --to adagrad-decay-v1, convert it with --to v1"),
        ("good", ["--name-map", "missing.json"], "name map 'missing.json' cannot be read"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(tmp_path, screen, bad, name, options, words):
    before = sorted(os.listdir(str(bad)))
    result = screen.refused("convert", bad / name, tmp_path / "new" / "out", *options)
    assert words in result
    assert os.listdir(str(tmp_path)) == ["old"]
    assert sorted(os.listdir(str(bad))) == before


def test_a_dry_run_reports_the_same_and_writes_nothing(tmp_path, screen, bad):
    words = ("convert", bad / "good", tmp_path / "new")
    rehearsed = screen.json(*words, "--dry-run")
    output = screen.run(*words, "--dry-run")[1]
    assert output.splitlines()[-1].startswith(f"would be written: {tmp_path / 'new'}, ")
    assert os.listdir(str(tmp_path)) == ["old"]
    assert rehearsed == dict(screen.json(*words), written=False)
    assert "--overwrite" in screen.refused(*words, "--dry-run")


def test_an_existing_destination_needs_overwrite(tmp_path, screen, bad):
    write_tensors(tmp_path / "new", {"z": draw(2)})
    source = bad / "good"
    assert "--overwrite" in screen.refused("convert", source, tmp_path / "new")
    assert_equal(tensors(tmp_path / "new"), {"z": draw(2)})
    assert screen.run("convert", source, tmp_path / "new", "--overwrite")[0] == 0
    assert_equal(tensors(tmp_path / "new"), tensors(source))
    (tmp_path / "folder").mkdir()
    assert "is a folder" in screen.refused("convert", source, tmp_path / "folder", "--overwrite")


def test_the_report_lists_the_converted_tensors(tmp_path, screen, bad):
    code, output, errors = screen.run("convert", bad / "good", tmp_path / "new")
    assert (code, errors) == (0, "")
    assert output.splitlines()[2:] == [
        "x     x   float32  [3000, 2]",
        "y     y   float32  [5]",
        f"written: {tmp_path / 'new'}, 2 tensors",
    ]


def test_the_recorded_truncated_checkpoint_is_refused(tmp_path, screen, monkeypatch):
    monkeypatch.chdir(tmp_path)
    truncated = ROOT / "tests" / "data" / "truncated"
    assert "is truncated" in screen.refused("convert", truncated, "out")
    assert os.listdir(str(tmp_path)) == []
