"""Tests recorded trainings: their files, and proofs that start in the middle of a training."""

import itertools

import numpy as np
import pytest

from legacy_opt import proofs, recorded
from legacy_opt.recorded import state_files
from legacy_opt.recorded.numpy import NumpyOptimizer
from legacy_opt.recorded.proofs import files
from legacy_opt.recorded.proofs.reference import is_fresh, run, with_bars
from tests.recorded.references import trained

ADAM = recorded.load("AdamOptimizer")


@pytest.mark.parametrize("name", ["AdamOptimizer", "AdagradDecayOptimizer", "NadamOptimizer"])
@pytest.mark.parametrize("before", [0, 4])
def test_a_rule_goes_on_from_any_state(name, before):
    proof = trained(recorded.load(name), before, rows=name == "AdagradDecayOptimizer")
    assert is_fresh(proof) == (before == 0)
    for step, found in enumerate(run(proof), start=1):
        for variable, array in found.items():
            np.testing.assert_array_equal(array, proof.ends[step].values[variable])
    judged = with_bars(proof)
    found = dict(enumerate(run(proof), start=1))
    assert proofs.judge(judged.ends, found).name == proofs.EQUAL
    wide = dict(enumerate(run(proof, proof.record.in_dtype("float64")), start=1))
    assert proofs.judge(judged.ends, wide).error.ratio <= 3
    cold = proof._replace(
        start=state_files.state_of(
            NumpyOptimizer(proof.record, dict(proof.start.variables), **proof.hyperparameters[0])
        )
    )
    verdict = proofs.judge(judged.ends, dict(enumerate(run(cold), start=1)))
    assert verdict.name == (proofs.EQUAL if before == 0 else proofs.DIFFERS)


def test_a_warm_state_at_step_0_is_not_fresh():
    proof = trained(ADAM)
    assert not is_fresh(proof._replace(start=proof.start._replace(global_step=0)))


def test_a_drawn_proof_is_not_written_as_a_run(tmp_path):
    drawn = proofs.draw(ADAM, steps=2)
    with pytest.raises(proofs.ProofError, match="Adam: a proof with error bars"):
        proofs.write_run(tmp_path / "x", proofs.Run({"Adam": drawn}))
    assert not list(tmp_path.iterdir())


def test_a_run_that_is_written_is_read_as_it_was(tmp_path):
    inputs = [
        {"x:0": np.ones((2, 3), "f4"), "names:0": np.array([[b"a"], [b"\xc3\xa9b"]])},
        {"x:0": np.zeros((0, 3), "f4"), "flag:0": np.array(True), "names:0": np.array(b"abc")},
    ]
    found = {"Adam": trained(ADAM), "Adam_1": trained(ADAM, 0, rows=True)}
    written = proofs.Run(found, [1.5, np.nan, 2.0], inputs, {"by": "record", "left_out": ["x"]})
    proofs.write_run(tmp_path / "x", written)
    read = proofs.read_run(tmp_path / "x")
    assert list(read.proofs) == ["Adam", "Adam_1"] and read.made == written.made
    np.testing.assert_array_equal(read.losses, written.losses)
    for one, other in itertools.zip_longest(read.inputs, inputs):
        assert sorted(one) == sorted(other)
        for name, array in other.items():
            assert one[name].dtype == array.dtype
            np.testing.assert_array_equal(one[name], array)
    for name, proof in found.items():
        again = read.proofs[name]
        assert again.last.global_step == proof.last.global_step
        np.testing.assert_equal(again.last.slots, proof.last.slots)
        np.testing.assert_equal(again.ends, proof.ends)
        np.testing.assert_equal(again.gradients, proof.gradients)


def test_a_drawn_proof_is_a_run_of_one(tmp_path):
    proofs.write(tmp_path / "x", proofs.draw(ADAM, steps=2))
    assert list(proofs.read_run(tmp_path / "x").proofs) == ["AdamOptimizer"]


def test_a_run_is_no_single_proof(tmp_path):
    proofs.write_run(tmp_path / "x", proofs.Run({"Adam": trained(ADAM)}))
    with pytest.raises(proofs.ProofError, match="read_run"):
        proofs.read(tmp_path / "x")


def test_an_optimizer_without_a_rule(tmp_path):
    group = ADAM.groups[0]._replace(dense="no rule", sparse="no rule")
    proof = trained(ADAM)
    start = proof.start._replace(record=ADAM._replace(groups=(group,)))
    proof = proof._replace(start=start, last=None)
    proofs.write_run(tmp_path / "x", proofs.Run({"Own": proof}))
    assert not proofs.read_run(tmp_path / "x").proofs["Own"].has_rule


@pytest.mark.parametrize(
    "change, problem",
    [
        (lambda a: a.pop("losses"), "'losses' is missing"),
        (lambda a: a.update({"input/1/y:0": np.ones(1)}), "unknown arrays"),
        (lambda a: a.pop("input/1/x:0"), "'input/1/x:0' is missing"),
        (lambda a: a.pop("proof/0/proof"), "not a proof"),
        (lambda a: a.update({"run": np.frombuffer(b"{}", np.uint8)}), "wrong parts"),
        (lambda a: a.update({"proof/0/values/1/b": np.ones(9, "f4")}), "expected float32"),
    ],
)
def test_forged_runs_are_refused(tmp_path, change, problem):
    path = tmp_path / "x"
    run_of_one = proofs.Run({"Adam": trained(ADAM)}, [1.0], [{"x:0": np.ones(2)}])
    proofs.write_run(path, run_of_one)
    arrays = state_files.load_npz(str(path), path.stat().st_size)
    change(arrays)
    files.write_arrays(path, arrays.items())
    with pytest.raises(proofs.ProofError) as caught:
        proofs.read_run(path)
    assert problem in str(caught.value)
