"""Tests drawn proofs: sound implementations are not blamed, and edits of rules are noticed."""

import random

import numpy as np
import pytest

from legacy_opt import proofs, recorded
from legacy_opt.recorded import formulas
from legacy_opt.recorded.proofs.edits import power
from legacy_opt.recorded.proofs.reference import run, with_ends
from tests.recorded.proofs.reordered import reordered
from tests.recorded.written_rules import AMSGRAD, RMSPROP

pytestmark = pytest.mark.once  # needs no TensorFlow
CATALOGUE = sorted(recorded.catalogue())
ADAM = recorded.load("LazyAdamOptimizer")


def trained(proof, record):
    return dict(enumerate(run(proof, record), start=1))


def verdict(proof, record):
    wide = record.in_dtype("float64")
    return proofs.judge(proof.ends, trained(proof, record), trained(proof, wide))


@pytest.mark.parametrize("extreme", [False, True])
@pytest.mark.parametrize("name", CATALOGUE)
def test_another_order_of_operations_is_rounding(name, extreme, full):
    record = recorded.load(name)
    for seed in range(10 if full else 1):
        rows = bool(seed % 2) and not isinstance(record.groups[0].sparse, str)
        proof = proofs.draw(record, seed, rows=rows, extreme=extreme)
        assert verdict(proof, record).name == proofs.EQUAL
        other = reordered(record, random.Random(seed))
        assert verdict(proof, other).name in (proofs.EQUAL, proofs.ROUNDING)


def test_most_reordered_rules_have_other_bits():
    others = [reordered(recorded.load(name), random.Random(0)) for name in CATALOGUE]
    names = [
        verdict(proofs.draw(recorded.load(name)), other).name
        for name, other in zip(CATALOGUE, others)
    ]
    assert names.count(proofs.ROUNDING) > 20


def test_digits_that_float32_loses_in_one_minus_beta_are_rounding():
    """For its recorded betas, BERT's optimizer subtracts in Python, so that no digits are lost."""

    def berts(grad, value, slots, hyper):
        m = hyper.beta_1 * slots.m + (1 - hyper.beta_1) * grad
        v = hyper.beta_2 * slots.v + (1 - hyper.beta_2) * grad * grad
        update = m / (formulas.sqrt(v) + hyper.epsilon) + hyper.weight_decay_rate * value
        return value - hyper.learning_rate * update, {"m": m, "v": v}

    record = recorded.load("AdamWeightDecayOptimizer")
    values = {name: each.value for name, each in record.hyperparameters.items()}
    proof = proofs.draw(record, steps=60, hyperparameters=values)
    found = verdict(proof, recorded.rule(berts, {"m": 0.0, "v": 0.0}, values))
    assert found.name == proofs.ROUNDING and found.wide.ratio < 1e-6


def test_extreme_gradients_end_in_infinities_and_nan_that_are_judged():
    proof = proofs.draw(ADAM, rows=True, extreme=True)
    values = np.concatenate([np.ravel(each["other"].values) for each in proof.gradients])
    assert np.isnan(values).any() and np.isinf(values).any()
    assert {np.float32(1e-40), np.float32(-1e-44)} <= set(values)
    found = trained(proof, ADAM)
    assert proofs.judge(proof.ends, found).name == proofs.EQUAL
    assert np.isnan(found[10]["other"]).any() and np.isfinite(found[10]["other"]).any()
    skipped = {
        step: dict(each, other=np.where(np.isnan(each["other"]), 0, each["other"]))
        for step, each in found.items()
    }
    assert proofs.judge(proof.ends, skipped).name == proofs.DIFFERS


def test_a_dense_extreme_proof_has_a_variable_that_stays_finite():
    proof = proofs.draw(recorded.load("LAMBOptimizer"), extreme=True)
    assert np.isfinite(proof.ends[10].values["w"]).all()
    assert np.isnan(proof.ends[10].values["c"]).sum() == 1


def test_a_proof_may_start_late_in_a_training():
    record = recorded.load("AdagradDecayOptimizer")  # decays every 100,000 steps
    late = proofs.draw(record, global_step=99_995)
    early = late._replace(start=late.start._replace(global_step=0))
    assert late.start.global_step == 99_995
    assert proofs.judge(late.ends, trained(late, record)).name == proofs.EQUAL
    error = proofs.judge(late.ends, trained(early, record)).error
    assert error.ratio > proofs.BOUND and error.step == 5


@pytest.mark.parametrize("rows", [False, True])
def test_a_drawn_proof_notices_what_one_normal_step_does_not(rows, tmp_path):
    proof = proofs.draw(ADAM, rows=rows, power=True)
    noticed, live = proof.made["power"]["all"]
    assert noticed / live >= 0.99 and live > 250
    by_kind = {kind: each for kind, each in proof.made["power"].items() if kind != "all"}
    assert np.sum(list(by_kind.values()), axis=0).tolist() == [noticed, live]
    assert ("ids" in by_kind) == rows
    proofs.write(tmp_path / "proof.npz", proof)
    assert proofs.read(tmp_path / "proof.npz").made == proof.made
    if not rows:
        first = proof._replace(ends={1: proof.ends[1]})
        noticed_in_one_step = sum(each for each, _ in power([first], [proof]).values())
        assert noticed_in_one_step < 0.9 * live


def test_gradients_of_zeros_notice_little():
    proof = proofs.draw(RMSPROP)
    zeros = [{name: 0 * each for name, each in step.items()} for step in proof.gradients]
    start = proof.start._replace(
        variables={name: 0 * each for name, each in proof.start.variables.items()}
    )
    blind = proof._replace(start=start, gradients=zeros)
    found = power([with_ends(blind, range(1, 11))], [proof])
    assert sum(noticed for noticed, _ in found.values()) < 10
    assert sum(live for _, live in found.values()) > 80


def test_edits_that_change_nothing_do_not_count():
    found = power([proofs.draw(AMSGRAD)])
    assert found["maximum"] == (1, 1)  # of m; the largest values of v and top are top


def test_hyperparameters_that_hide_their_use_get_other_values():
    def decayed(grad, value, slots, hyper):
        mean = hyper.momentum * slots.mean + (1 - hyper.dampening) * grad * hyper.scale
        return value - hyper.lr * (mean + hyper.decay * value), {"mean": mean}

    values = {"lr": 0.1, "momentum": 0.9, "dampening": 0.0, "scale": 1.0, "decay": 0.0}
    schedule = proofs.draw(recorded.rule(decayed, {"mean": 0.0}, values)).hyperparameters
    assert not {0.0, 1.0}.intersection(schedule[0].values())
    assert schedule[9]["lr"] == schedule[0]["lr"] / 2


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_with_which_nothing_can_be_told_are_refused(value):
    with pytest.raises(proofs.ProofError, match="beta1 must be a finite number"):
        proofs.draw(ADAM, hyperparameters={"beta1": value})


@pytest.mark.parametrize("name", CATALOGUE)
def test_no_drawn_value_is_the_recorded_one(name):
    record = recorded.load(name)
    for key, value in proofs.draw(record, steps=1).hyperparameters[0].items():
        assert value != record.hyperparameters[key].value


@pytest.mark.parametrize("value", [0.5, 5.0, 100.0, 1.2, 0.1, 0.9, 0.999, -0.5, 1e-7, 0.75, 2.0])
def test_a_drawn_value_is_near_and_short(value):
    (found,) = proofs.draw(_scaled(value), steps=1).hyperparameters[0].values()
    assert found not in (value, 0, 1) and 0.5 <= found / value <= 2
    assert float(np.float32(found)) == found and found * 2**40 % 1 == 0


def test_a_class_that_ignores_a_hyperparameter_differs():
    proof = proofs.draw(_scaled(0.5))
    assert verdict(proof, _scaled(0.5, is_used=False)).name == proofs.DIFFERS


def _scaled(value, is_used=True):
    def scaled(grad, value, slots, hyper):
        return value - (hyper.scale if is_used else 0.5 + 0 * hyper.scale) * grad, {}

    return recorded.rule(scaled, {}, {"scale": value})


def test_hyperparameters_with_the_names_of_arguments():
    names = ["seed", "steps", "rows", "ends", "global_step_", "extreme", "power"]

    def summed(grad, value, slots, hyper):
        return value - sum(hyper[each] for each in names) * grad, {}

    rule = recorded.rule(summed, {}, dict.fromkeys(names, 0.25))
    proof = proofs.draw(rule, power=True, hyperparameters={"power": 0.5})
    assert proof.hyperparameters[0]["power"] == 0.5 and proof.made["power"]["all"][1] > 10


@pytest.mark.parametrize("name", ["learning_rate", "lr", "step_size"])
def test_the_rate_changes(name):
    rule = recorded.rule(lambda g, x, slots, hyper: (x - hyper[name] * g, {}), {}, {name: 0.1})
    found = [each[name] for each in proofs.draw(rule).hyperparameters]
    assert found == [2**-6] * 6 + [2**-7] * 4
