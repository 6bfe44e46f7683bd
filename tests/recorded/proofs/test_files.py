"""Tests files of proofs; tests/tools/mutate_proofs.py damages thousands of them."""

import json

import numpy as np
import pytest

from legacy_opt import proofs, recorded
from legacy_opt.recorded import state_files
from legacy_opt.recorded.numpy import Rows
from legacy_opt.recorded.proofs import files

ADAM = recorded.load("AdamOptimizer")


def same(one, other):
    return np.array_equal(np.nan_to_num(one), np.nan_to_num(other))


@pytest.mark.parametrize("extreme", [False, True])
@pytest.mark.parametrize("rows", [False, True])
def test_a_proof_that_is_written_is_read_as_it_was(tmp_path, rows, extreme):
    proof = proofs.draw(ADAM, rows=rows, extreme=extreme, steps=3, ends=[1, 3])
    proofs.write(tmp_path / "x", proof)
    read = proofs.read(tmp_path / "x")
    assert read.start.record == proof.start.record
    assert read._replace(start=0, gradients=0, ends=0) == proof._replace(
        start=0, gradients=0, ends=0
    )
    for one, other in zip(read.gradients, proof.gradients):
        for name, each in other.items():
            assert all(map(same, one[name], each)) if rows else same(one[name], each)
    for step, end in proof.ends.items():
        for one, other in zip(read.ends[step], end):
            assert all(same(one[name], each) for name, each in other.items())


def test_steps_without_a_gradient(tmp_path):
    proof = proofs.draw(ADAM, steps=3)
    proof.gradients[1]["b"] = None
    proofs.write(tmp_path / "x", proof)
    assert [sorted(each) for each in proofs.read(tmp_path / "x").gradients] == [
        ["b", "c", "w"],
        ["c", "w"],
        ["b", "c", "w"],
    ]


def test_each_bit_counts(tmp_path):
    proofs.write(tmp_path / "x", proofs.draw(ADAM, steps=1))
    content = (tmp_path / "x").read_bytes()
    for place in range(0, len(content), len(content) // 100):
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        (tmp_path / "y").write_bytes(damaged)
        with pytest.raises(proofs.ProofError, match="a damaged one"):
            proofs.read(tmp_path / "y")


def forged(path, changes):
    """Writes a proof with other arrays and a right hash."""
    proofs.write(path, proofs.draw(ADAM, steps=2))
    arrays = state_files.load_npz(str(path), path.stat().st_size)
    head = json.loads(arrays["proof"].tobytes().decode())
    for key, value in changes.items():
        if key in head:
            head[key] = value
        else:
            arrays[key] = value
    arrays["proof"] = np.frombuffer(json.dumps(head).encode(), np.uint8)
    state_files.save_npz(path, arrays.items())
    files.add_hash(path)


@pytest.mark.parametrize(
    "changes, problem",
    [
        ({"bars/1/b": np.zeros(8, "f4")}, "error bars must be positive"),
        ({"bars/1/b": np.full(8, np.nan, "f4")}, "error bars must be positive"),
        ({"hyperparameters": {"beta1": ["0x1p-1"] * 2}}, "are not those of the rule"),
        ({"hyperparameters": {"beta1": "01"}}, "wrong hyperparameters"),
        ({"made": {"power": {"all": "x"}}}, "wrong power"),
        ({"made": {"x": float("nan")}}, "wrong parts"),
        ({"steps": 10**9}, "wrong steps"),
        ({"values/1/b": np.zeros(9, "f4")}, "expected float32 of the shape [8]"),
        ({"values/7/b": np.zeros(8, "f4")}, "unknown arrays"),
    ],
)
def test_forged_files_are_refused(tmp_path, changes, problem):
    forged(tmp_path / "x", changes)
    with pytest.raises(proofs.ProofError) as caught:
        proofs.read(tmp_path / "x")
    assert problem in str(caught.value)


def test_too_many_steps_for_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_MOST_BYTES", 100)
    with pytest.raises(proofs.ProofError, match="10 steps are too many"):
        proofs.write(tmp_path / "x", proofs.draw(ADAM))
    assert not list(tmp_path.iterdir())


def test_one_kind_of_gradients(tmp_path):
    proof = proofs.draw(ADAM, steps=2)
    proof.gradients[1]["w"] = Rows(np.array([1]), np.ones((1, 8), "f4"))
    with pytest.raises(proofs.ProofError, match="dense and sparse gradients"):
        proofs.write(tmp_path / "x", proof)


@pytest.mark.parametrize(
    "parts, problem",
    [
        ({"hyperparameters": [{"learning_rate": np.nan}] * 2}, "wrong hyperparameters"),
        ({"gradients": [{}, {}]}, "wrong gradients or ends"),
        ({"ends": {}}, "wrong gradients or ends"),
    ],
)
def test_proofs_that_can_tell_nothing_are_refused(tmp_path, parts, problem):
    proof = proofs.draw(recorded.load("GradientDescentOptimizer"), steps=2)
    proofs.write(tmp_path / "x", proof._replace(**parts))
    with pytest.raises(proofs.ProofError, match=problem):
        proofs.read(tmp_path / "x")
