"""Runs a few random cases of tests/fuzz; `python -m tests.fuzz --cases 100000` runs many more."""

import collections

import numpy as np
import pytest

pytest.importorskip("hypothesis")
pytest.importorskip("tqdm")

from tests.fuzz import checking, training
from tests.fuzz.__main__ import Account, main, run_block
from tests.fuzz.cases import CASES, KNOWN, Fuzzed, Gradient, extremes_of


def test_random_cases():
    account = Account()
    # A seed does not determine all cases: hypothesis also draws constants of imported modules.
    for number in range(3):
        run_block(number, 12, account)
    assert not account.findings
    assert account.outcomes["compared"] > 10


@pytest.mark.full
def test_many_random_cases(capsys):
    assert not main(["--cases", "2000", "--seed", "1"])
    assert capsys.readouterr().out.splitlines()[-1].endswith("; 0 findings")


def fuzzed(name, shape=(3, 2), ids=None, way="eager", **arguments):
    """Returns a case of three training steps, in float32 by default."""
    last = arguments.pop("ids_of_the_last", ids)
    gradients = (Gradient(1, 1.0, ids), Gradient(2, 1.0, ids), Gradient(3, 1.0, last))
    kind = arguments.pop("kind", "usual")
    wrapper, dtype = arguments.pop("wrapper", ""), arguments.pop("dtype", "float32")
    return Fuzzed(
        name, wrapper, way, dtype, "w", shape, (gradients,), "int64", "int64", arguments, kind
    )


@pytest.mark.full
@pytest.mark.parametrize("name", list(CASES))
def test_every_extreme_number(name):
    for key in KNOWN[name]:
        for number in extremes_of(key):
            for ids in None, (2, 0, 2):
                checking.check(fuzzed(name, ids=ids, kind="extreme", **{key: number}))


# Cases that failed in the past, because of an error in the optimizer, in its oracle (a NumPy
# reference) or in the comparison.
FOUND = {
    "an id in a table whose rows are empty": fuzzed("AdamGS", (1, 0), (0,)),
    "more axes than GatherNd has": fuzzed("AdagradDecay", (2,) + (1,) * 7, (0, 1, 1)),
    "a value beyond float32": fuzzed("LazyAdam", learning_rate=1e300, kind="extreme"),
    "a value beyond float64": fuzzed("LazyAdam", learning_rate=10**400, kind="extreme"),
    "an integer beyond int64": fuzzed("LazyAdam", learning_rate=10**30, kind="extreme"),
    "a period beyond int64": fuzzed("AdagradDecay", accumulator_decay_step=2**63, kind="extreme"),
    "matrices below zero": fuzzed("Shampoo", mat_gbar_weight=-1e-3, kind="extreme"),
    "matrices replaced in each step": fuzzed("Shampoo", mat_gbar_decay=0.0, kind="extreme"),
    "a sparse gradient without ids, for a vector": fuzzed("Shampoo max_matrix_size", (5,), ()),
    "values that were NaN before a failing step": fuzzed(
        "AdagradDecayV2",
        ids=(0, 1),
        ids_of_the_last=(-1,),
        kind="extreme",
        learning_rate=-3e38,
        dtype="float16",
    ),
    "a kernel that loses digits by cancellation": fuzzed("LazyAdam", beta2=0.0, kind="extreme"),
}


@pytest.mark.parametrize("name", list(FOUND))
def test_earlier_findings_stay_fixed(name):
    checking.check(FOUND[name])


WRONG_BY_LITTLE = {
    "value": ("value", lambda array: array + array.dtype.type(1e-4)),
    "slot": ("v", lambda array: array * array.dtype.type(1.0001)),
    "global step": ("global_step", lambda array: array + 1),
    "dtype": ("m", lambda array: array.astype(np.float64)),
    "shape": ("m", lambda array: array[None]),
    "nan": ("value", lambda array: array * array.dtype.type(np.nan)),
}


@pytest.mark.parametrize("wrong", list(WRONG_BY_LITTLE))
def test_it_finds_wrong_values(wrong, monkeypatch):
    case = fuzzed("LazyAdam", ids=(0, 2, 2))
    assert checking.check(case) == {"compared": 1}
    key, change = WRONG_BY_LITTLE[wrong]
    look = training.InEager.look
    monkeypatch.setattr(
        training.InEager, "look", lambda self: dict(look(self), **{key: change(look(self)[key])})
    )
    with pytest.raises(checking.Finding):
        checking.check(case)


def test_it_finds_arguments_that_should_be_refused():
    with pytest.raises(checking.Finding, match="the constructor accepted"):
        checking.check(fuzzed("LazyAdam", learning_rate=0.1, kind="wrong"))


@pytest.mark.parametrize("way", ["eager", "session-ref"])
def test_it_finds_a_failed_step_that_changes_something(way, monkeypatch):
    case = fuzzed("LazyAdam", ids=(0, -1), way=way)
    assert checking.check(case) == {"failed cleanly": 1}
    # LARS uses a kernel of TensorFlow, which updates row 0 before it fails at the id -1. The check
    # accepts the changed row, because `checking.in_place` returns True for this case.
    case = case._replace(name="LARS")
    assert checking.check(case) == {"failed cleanly": 1}
    monkeypatch.setattr(checking, "in_place", lambda case: False)
    with pytest.raises(checking.Finding, match="a failed step changed"):
        checking.check(case)


def test_a_finding_has_the_error_of_the_reduced_draw(monkeypatch):
    def check(draw):
        raise checking.Finding(f"{len(draw.trainings)} trainings, the error is -1.5e-3")

    monkeypatch.setattr("tests.fuzz.__main__.check", check)
    account, draw = Account(), fuzzed("LazyAdam")
    account.run(draw._replace(trainings=draw.trainings * 2))
    assert list(account.findings) == [("LazyAdam", "", "Finding", "# trainings, the error is #")]
    ((reduced, error),) = account.findings.values()
    assert reduced == draw and str(error) == "1 trainings, the error is -1.5e-3"


def test_a_finding_is_printed_once_and_the_run_continues(monkeypatch, capsys):
    def check(case):
        if case.shape and not case.wrapper:  # in each hundred of draws
            raise checking.Finding(f"{case.shape[0]} is wrong")
        return collections.Counter(["compared"] * len(case.trainings))

    monkeypatch.setattr("tests.fuzz.__main__.check", check)
    monkeypatch.setattr("tests.fuzz.cases.CASES", {"LazyAdam": CASES["LazyAdam"]})
    assert main(["--cases", "300"])
    printed = capsys.readouterr().out.splitlines()
    assert printed[-1].endswith("; 1 findings") and int(printed[-1].split()[0]) >= 300
    (found,) = [line for line in printed if line.startswith("FOUND")]
    assert eval(found[len("FOUND ") :], {"Fuzzed": Fuzzed, "Gradient": Gradient}).name == "LazyAdam"
