"""Tests of load_v1_checkpoint with checkpoints that do not fit the model and its optimizer.

A leftover is a tensor without a matching variable, or a variable without a matching tensor. With
strict=True, an error lists all leftovers, and no variable is changed. With strict=False, all
tensors that are not leftovers are loaded.
"""

import re
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt.compat import CheckpointMismatch, load_v1_checkpoint, to_keras
from tests.support.checkpoints.v1_checkpoint_cases import (
    END,
    FRESH_AND_TRAINED,
    USED,
    adam,
    assert_refused,
    both,
    layout,
    training_of,
)
from tests.support.checkpoints.v1_checkpoints import (
    APIS,
    BEFORE,
    EVERY_API,
    assert_equal,
    assert_same_steps,
    problem,
    same,
    tensors,
    trained_in_v1,
    write_tensors,
)
from tests.support.keras.keras_cases import CASES

v1 = tf.compat.v1


@pytest.fixture(scope="module")
def fits(tmp_path_factory):
    """Returns the path of a checkpoint that fits the variables and optimizer of `training_of`."""
    return trained_in_v1(tmp_path_factory.mktemp("fits") / "model", problem(), adam)


@pytest.fixture
def arrays(fits):
    """Returns the arrays of the checkpoint `fits`. A test may change and save the arrays."""
    return tensors(fits)


# With strict=True.


def without(name):
    def change(arrays):
        del arrays[name]

    return change


def set_to(name, value):
    def change(arrays):
        arrays[name] = value

    return change


# {defect: (function that adds the defect to a dict of arrays, part that has the leftover ("model"
# or "checkpoint"), regular expressions that must match in the error message)}
WRONG = {
    "no variable": (without("table"), "model", ["table"]),
    "no slot": (without("table/Adam_1"), "model", ["table/Adam_1"]),
    "no shared variable": (without("beta2_power"), "model", ["beta2_power"]),
    "shape": (set_to("matrix", np.ones([5, 4], "f")), "model", ["matrix", r"\[5, 4\]"]),
    "rank": (set_to("matrix", np.ones([15], "f")), "model", ["matrix", r"\[15\]"]),
    "shape of a slot": (
        set_to("table/Adam", np.ones([8, 3], "f")),
        "model",
        ["table/Adam", r"\[8, 3\]"],
    ),
    "dtype": (set_to("table", np.ones([9, 3])), "model", ["table", "float64", "float32"]),
    "dtype of a slot": (
        set_to("table/Adam_1", np.ones([9, 3], np.int32)),
        "model",
        ["table/Adam_1", "int32"],
    ),
    "too much": (set_to("more/Adam", np.ones([2], "f")), "checkpoint", ["more/Adam", r"\[2\]"]),
}


@pytest.mark.in_turn(wrong=list(WRONG), api=APIS, used=USED)
def test_the_error_names_what_does_not_fit(wrong, api, used, arrays, tmp_path):
    change, side, patterns = WRONG[wrong]
    change(arrays)
    path = write_tensors(tmp_path / "wrong", arrays)
    error = assert_refused(path, training_of(used, api))
    for pattern in patterns:
        assert re.search(pattern, str(error)), (pattern, str(error))
    assert path in str(error) or Path(path).name in str(error)
    assert not error.report.complete
    left = {"model": error.report.left_in_model, "checkpoint": error.report.left_in_checkpoint}
    assert any(patterns[0] in str(leftover) for leftover in left[side])
    assert all(leftover.why for leftover in left[side])


@pytest.mark.in_turn(api=APIS, used=USED)
def test_the_report_lists_everything_and_the_message_few(api, used, arrays, tmp_path):
    for wrong in WRONG.values():
        if wrong[2][0] in arrays or wrong[1] == "checkpoint":
            wrong[0](arrays)
    arrays["nobody/knows"] = np.ones([3], np.int16)
    error = assert_refused(write_tensors(tmp_path / "wrong", arrays), training_of(used, api))
    assert len(str(error).splitlines()) <= 12
    everything = "\n".join(error.report.leftovers())
    for name in [
        "table",
        "table/Adam_1",
        "beta2_power",
        "matrix",
        "table/Adam",
        "more/Adam",
        "nobody/knows",
    ]:
        assert re.search(rf"(?<![\w/]){name}(?![\w/])", everything), (name, everything)


def test_ten_renamed_variables_are_a_guess_and_a_few_lines(tmp_path):
    shapes = [(number, 2) for number in range(1, 11)]
    values = {f"old/w{shape[0]}": np.ones(shape, "f4") for shape in shapes}
    slots = {f"{name}/Adam{end}": value for name, value in values.items() for end in ("", "_1")}
    values.update({name: np.float32(1) for name in ("beta1_power", "beta2_power")})
    path = write_tensors(tmp_path / "old", {**values, **slots, "global_step": np.int64(5)})
    variables = {f"new/w{shape[0]}": tf.Variable(np.zeros(shape, "f4")) for shape in shapes}
    optimizer = to_keras(v1.train.AdamOptimizer(0.1))
    with pytest.raises(CheckpointMismatch) as caught:
        load_v1_checkpoint(path, variables, optimizer)
    lines = str(caught.value).splitlines()
    assert lines[1].startswith("A guess") and '"new/w7": "old/w7"' in lines[1]
    assert len(lines) == 12 and lines.count("  … and 27 more, see the error's report") == 2
    assert len(caught.value.report.left_in_model) == 30  # variables and two slots of each
    names = {f"new/w{shape[0]}": f"old/w{shape[0]}" for shape in shapes}
    assert load_v1_checkpoint(path, variables, optimizer, names).complete


@pytest.mark.in_turn(api=APIS, used=USED)
def test_training_continues_unchanged_after_a_refused_load(api, arrays, used, tmp_path):
    del arrays["table/Adam_1"]
    path = write_tensors(tmp_path / "wrong", arrays)
    refused, other = training_of(used, api), training_of(used, api)
    assert_refused(path, refused)
    assert_same_steps(refused.train(BEFORE, END), other.train(BEFORE, END))
    assert_equal(refused.state(), other.state())


@pytest.mark.in_turn(name=["Generator", "RMSProp"], api=APIS, used=USED)
def test_another_optimizer(name, api, used, tmp_path):
    make = CASES[name].make if name in CASES else lambda step: adam(step, name=name)
    path = trained_in_v1(tmp_path / "model", problem(), make)
    message = str(assert_refused(path, training_of(used, api)))
    assert "table/Adam" in message and "table/" + name in message
    assert name in CASES or "name" in message, "the message should mention the optimizer's name"


@FRESH_AND_TRAINED
def test_adagrad_decay_needs_the_step(used, arrays, tmp_path):
    with_decay = tensors(trained_in_v1(tmp_path / "model", problem(), layout(2)))
    del with_decay["global_step"]
    path = write_tensors(tmp_path / "stepless", with_decay)
    assert "global_step" in str(assert_refused(path, training_of(used, APIS[0], layout(2))))


# With strict=False.


@FRESH_AND_TRAINED
@EVERY_API
def test_without_strict_the_rest_is_loaded(api, used, fits, arrays, tmp_path):
    del arrays["table/Adam_1"], arrays["beta1_power"]
    arrays["matrix"] = np.ones([5, 4], "f")
    arrays["more"] = np.ones([2], "f")
    path = write_tensors(tmp_path / "wrong", arrays)
    training = training_of(used, api)
    kept = training_of(used, api)
    if used == "fresh":
        kept.optimizer.learning_rate = 0.0
        load_v1_checkpoint(fits, kept.variables, kept.optimizer)
        kept = None
    before = None if kept is None else kept.state()
    report = load_v1_checkpoint(path, training.variables, training.optimizer, strict=False)
    state = training.state()
    for key, name in {
        ("table",): "table",
        ("table", "m"): "table/Adam",
        ("matrix", "m"): "matrix/Adam",
        ("matrix", "v"): "matrix/Adam_1",
        ("shared", "beta2_power"): "beta2_power",
        ("step",): "global_step",
    }.items():
        assert np.array_equal(state[key], arrays[name]), key
    if before is not None:
        for key in [("matrix",), ("table", "v"), ("shared", "beta1_power")]:
            assert np.array_equal(state[key], before[key]), key
    else:
        assert np.array_equal(state[("matrix",)], problem().values["matrix"])
        assert not state["table", "v"].any()
        assert state["shared", "beta1_power"] == np.float32(0.9)
    assert not report.complete
    left = {leftover.name for leftover in report.left_in_checkpoint}
    assert "more" in left and not left & {"table", "beta2_power"}
    text = str(report)
    for name in ("more", "beta1_power", "table/Adam_1", "matrix"):
        assert name in text
    assert len(report.left_in_model) == 3
    assert {transfer.source for transfer in report.transferred} == {
        "table",
        "table/Adam",
        "matrix/Adam",
        "matrix/Adam_1",
        "beta2_power",
        "global_step",
    }


@EVERY_API
def test_nothing_at_all_fits(api, tmp_path):
    path = write_tensors(tmp_path / "other", {"one": np.ones([2], "f")})
    training = training_of("fresh", api)
    report = load_v1_checkpoint(path, training.variables, training.optimizer, strict=False)
    assert report.transferred == () and not report.complete
    for name, value in problem().values.items():
        assert np.array_equal(training.variables[name].numpy(), value)


@EVERY_API
def test_ignored_tensors_may_be_left_over(api, arrays, tmp_path):
    arrays.update({"ema/table": np.ones([2], "f"), "words": np.array([b"a"]), "emma": np.ones(1)})
    path = write_tensors(tmp_path / "more", arrays)
    training = training_of("fresh", api)
    error = assert_refused(path, training, ignore=["ema/", "words$"])
    left = [leftover.name for leftover in error.report.left_in_checkpoint]
    assert left == ["emma"]
    report = load_v1_checkpoint(
        path, training.variables, training.optimizer, ignore=["ema/", "words$", "emm."]
    )
    assert report.complete and len(report.transferred) == len(arrays) - 3


@EVERY_API
def test_ignore_does_not_hide_missing_tensors(api, arrays, tmp_path):
    del arrays["table/Adam_1"]
    path = write_tensors(tmp_path / "wrong", arrays)
    assert "table/Adam_1" in str(assert_refused(path, training_of("fresh", api), ignore=[".*"]))


def test_ignored_tensors_with_a_counterpart_are_loaded(arrays, tmp_path):
    path = write_tensors(tmp_path / "fits_too", arrays)
    training = training_of("fresh", APIS[0])
    load_v1_checkpoint(path, training.variables, training.optimizer, ignore=[".*"])
    assert np.array_equal(training.state()["table", "m"], arrays["table/Adam"])


@EVERY_API
def test_the_report_of_what_fits(api, arrays, tmp_path):
    path = write_tensors(tmp_path / "fits_too", arrays)
    training = training_of("fresh", api)
    report = load_v1_checkpoint(path, training.variables, training.optimizer)
    assert report.complete and not report.left_in_model and not report.left_in_checkpoint
    by_source = {transfer.source: transfer for transfer in report.transferred}
    assert set(by_source) == set(arrays)
    lines = str(report).splitlines()
    for name, array in arrays.items():
        assert tuple(by_source[name].shape) == array.shape
        assert tf.as_dtype(by_source[name].dtype) == tf.as_dtype(array.dtype)
        assert any(re.search(rf"(?<![\w/]){name}(?![\w/])", line) for line in lines), name
    (slot,) = [line for line in lines if re.search(r"table/Adam_1\b", line)]
    assert "float32" in slot and "9" in slot and "3" in slot


def test_ignore_must_not_be_a_string(arrays, tmp_path):
    """A string is a sequence, too, but "more" must not mean ["m", "o", "r", "e"]."""
    arrays.update(more=np.ones([2], "f"), order=np.ones([2], "f"))
    path = write_tensors(tmp_path / "more", arrays)
    with pytest.raises((TypeError, CheckpointMismatch), match="ignore|order"):
        load_v1_checkpoint(path, *both(training_of("fresh", APIS[-1])), ignore="more")


def test_ignore_must_be_regular_expressions(arrays, tmp_path):
    path = write_tensors(tmp_path / "fits_too", arrays)
    for wrong in (["("], [3]):
        training = training_of("trained", APIS[-1])
        before = training.arrays()
        with pytest.raises((TypeError, ValueError), match="ignore"):
            load_v1_checkpoint(path, *both(training), ignore=wrong)
        assert same(training.arrays(), before)


# DeepRec.


@pytest.mark.in_turn(names=["table", "table/part_0"], used=USED)
def test_embedding_variables_of_deeprec_are_explained(names, used, arrays, tmp_path):
    for name in [name for name in arrays if name.split("/")[0] == "table"]:
        del arrays[name]
    for kind, array in {
        "keys": np.arange(9, dtype=np.int64),
        "values": np.ones([9, 3], "f"),
        "freqs": np.ones([9], np.int64),
        "versions": np.ones([9], np.int64),
        "partition_offset": np.arange(1001, dtype=np.int32),
    }.items():
        arrays[f"{names}-{kind}"] = array
        if kind != "partition_offset":
            arrays[f"{names}/Adam-{kind}"] = array
    path = write_tensors(tmp_path / "deeprec", arrays)
    message = str(assert_refused(path, training_of(used, APIS[-1])))
    assert "table: DeepRec's EmbeddingVariable" in message
    assert "no tensor 'table'" in message
    report = load_v1_checkpoint(path, *both(training_of("fresh", APIS[-1])), strict=False)
    assert "EmbeddingVariable" in str(report)
