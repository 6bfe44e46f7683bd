"""Tests of the files that save_v1_checkpoint writes, replaces or does not change.

The argument `like` is an old checkpoint. The new checkpoint gets the scopes, partitions and dtypes
of the old checkpoint.
"""

import re
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt.compat import CheckpointError, save_v1_checkpoint
from tests.support.checkpoints.v1_checkpoint_cases import (
    END,
    PARTS,
    SCOPES,
    adam,
    assert_restores,
    described,
    momentum,
    moved_over,
    trained_in_keras,
)
from tests.support.checkpoints.v1_checkpoints import APIS, BEFORE, EVERY_API, problem, tensors

v1 = tf.compat.v1


def listing(folder):
    """Returns a dict from the paths of all files under a folder to their contents."""
    files = [file for file in Path(str(folder)).rglob("*") if file.is_file()]
    return {str(file): file.read_bytes() for file in files}


def test_the_new_checkpoint_is_the_latest(tmp_path):
    training = trained_in_keras(problem(), momentum, APIS[-1])
    for number in (4, 8):
        path = str(tmp_path / (f"model.ckpt-{number}"))
        save_v1_checkpoint(path, training.variables, training.optimizer)
        assert tf.train.latest_checkpoint(str(tmp_path)) == path
    state = tf.train.get_checkpoint_state(str(tmp_path))
    assert [Path(each).name for each in state.all_model_checkpoint_paths] == [
        "model.ckpt-4",
        "model.ckpt-8",
    ]
    names = sorted(Path(name).name for name in listing(tmp_path))
    assert names == ["checkpoint"] + [
        f"model.ckpt-{number}.{part}"
        for number in (4, 8)
        for part in ("data-00000-of-00001", "index")
    ]


def test_a_checkpoint_is_overwritten_only_on_request(tmp_path):
    training = trained_in_keras(problem(), momentum, APIS[-1])
    path = str(tmp_path / "out")
    save_v1_checkpoint(path, training.variables, training.optimizer)
    before = listing(tmp_path)
    training.train(BEFORE, END)
    with pytest.raises(CheckpointError, match="overwrite") as caught:
        save_v1_checkpoint(path, training.variables, training.optimizer)
    assert path in str(caught.value)
    assert listing(tmp_path) == before
    save_v1_checkpoint(path, training.variables, training.optimizer, overwrite=True)
    assert tensors(path)["global_step"] == END
    names = sorted(Path(name).name for name in listing(tmp_path))
    assert names[0] == "checkpoint" and names[-1] == "out.index"
    shards = [re.fullmatch(r"out\.data-\d+-of-(\d+)", name).group(1) for name in names[1:-1]]
    assert len(shards) == int(shards[0]), "data files of the old checkpoint are left"
    assert_restores(path, training.state(), momentum)


def test_the_checkpoint_passed_as_like_may_be_overwritten(original, tmp_path):
    path = original(
        adam, parts=PARTS, scope=SCOPES["name scope"], extra={"ema": np.float32([1.5, 2.5])}
    )
    training = moved_over(path, adam, APIS[-1], ignore=["ema"])
    before = described(path)
    training.train(0, BEFORE)
    save_v1_checkpoint(path, training.variables, training.optimizer, like=path, overwrite=True)
    assert described(path) == before
    assert tensors(path)["ema"].tolist() == [1.5, 2.5]
    assert tensors(path)["global_step"] == 2 * BEFORE


def test_missing_folders_are_created(tmp_path):
    training = trained_in_keras(problem(), momentum, APIS[-1])
    path = tmp_path / "one" / "two" / "model"
    save_v1_checkpoint(path, training.variables, training.optimizer)
    assert tensors(path)["global_step"] == BEFORE


@EVERY_API
def test_nothing_is_written_if_like_does_not_fit(api, original, tmp_path):
    """The checkpoint `like` has one slot per variable (from Momentum). Adam needs two slots."""
    path = original(momentum)
    training = trained_in_keras(problem(), adam, api)
    before, arrays = listing(tmp_path), training.arrays()
    with pytest.raises(ValueError, match="table/Adam"):
        save_v1_checkpoint(
            tmp_path / "new" / "out", training.variables, training.optimizer, like=path
        )
    with pytest.raises(ValueError, match="table/Adam"):
        save_v1_checkpoint(path, training.variables, training.optimizer, like=path, overwrite=True)
    assert listing(tmp_path) == before and not (tmp_path / "new").exists()
    assert all(np.array_equal(a, b) for a, b in zip(training.arrays(), arrays))


def test_nothing_is_written_if_like_is_damaged(original, tmp_path):
    path = original(adam, extra={"zz": np.arange(9, dtype=np.float32)})
    training = moved_over(path, adam, APIS[-1], ignore=["zz"])
    data = Path(path + ".data-00000-of-00001")
    content = bytearray(data.read_bytes())
    content[-3] ^= 0xFF  # in "zz", the last tensor in alphabetical order
    data.write_bytes(bytes(content))
    before = listing(tmp_path)
    with pytest.raises(CheckpointError, match="zz|original"):
        save_v1_checkpoint(tmp_path / "out", training.variables, training.optimizer, like=path)
    assert listing(tmp_path) == before


@pytest.mark.parametrize("like", ["nothing", "an object checkpoint"])
def test_like_must_be_a_name_based_checkpoint(like, tmp_path):
    training = trained_in_keras(problem(), momentum, APIS[-1])
    other = str(tmp_path / "other")
    if like == "an object checkpoint":
        other = tf.train.Checkpoint(value=tf.Variable(1.0)).save(other)
    before = listing(tmp_path)
    with pytest.raises(ValueError, match=re.escape(other)):
        save_v1_checkpoint(tmp_path / "out", training.variables, training.optimizer, like=other)
    assert listing(tmp_path) == before
