"""Tests what `make bench-leave` compares, the loops that are its limits, and its pages.

`tests/recorded/torch` and `jax` test its steps.
"""

import numpy as np
import pytest

import lanes
from benchmarks.gallery import files
from benchmarks.leave import cases, loops, pages, run
from legacy_opt import recorded
from tests.support.paths import ROOT

pytestmark = pytest.mark.once


def goals(library, case):
    found = [each for each in cases.COMPARISONS[library] if each.case == case]
    return {each.contestant: each.goal for each in found if each.goal is not None}


def test_the_goals():
    elementwise = ["LazyAdam", "AdamWeightDecay", "Momentum", "Adagrad", "AdagradDecay"]
    small = {f"native {name}": 1.0 for name in elementwise}
    assert goals("torch", cases.SMALL) == {**small, "native DiffGrad": 1.3, "fast Adam": 1.1}
    large = {f"native {name}": 1.05 for name in elementwise[:-1]}
    assert goals("torch", cases.LARGE) == {**large, "fast Adam": 1.1}
    assert goals("jax", cases.LARGE) == {
        **{f"native {name}": 1.0 for name in ("Adam", "AdamWeightDecay", "AdagradDecay")},
        "native LAMB": 2.0,
    }


def test_contestants_are_recorded_rules_or_loops():
    for comparisons in cases.COMPARISONS.values():
        for contestant in {name for each in comparisons for name in each[1:3]}:
            way, _, name = contestant.rpartition(" ")
            if way in ("native", "exact", "fast"):
                assert recorded.load(name + "Optimizer").groups
            else:
                assert way in ("C", "torch", "torch fused", "optax")


def case_of(name):
    return cases.CASES[name]._replace(count=1, shape=(300, 32))


@pytest.mark.parametrize("name", ["adam", "momentum", "lamb", "lars"])
def test_a_loop_computes_its_optimizer(name):
    w, g, m, v = (case_of(cases.LARGE).numbers(seed).astype("f8") for seed in range(4))
    v = v**2
    if name in ("adam", "lamb"):
        m, v = m + (g - m) * 0.1, v + (g * g - v) * 0.001
        update = m / (np.sqrt(v) + 1e-8)
    norm = np.linalg.norm
    if name == "adam":
        expected = w - 1e-3 * update
    elif name == "lamb":
        update += 0.01 * w
        expected = w - 1e-3 * norm(w) / norm(update) * update
    elif name == "momentum":
        expected = w - 1e-3 * (0.9 * m + g)
    else:
        expected = w - (0.9 * m + 1e-3 * norm(w) / norm(g) * (g + 0.01 * w))
    step = loops.step(name, case_of(cases.LARGE))
    step()
    (arrays,) = step.__defaults__[0]
    np.testing.assert_allclose(arrays[0], expected, rtol=1e-4, atol=1e-6)


def test_a_loop_over_rows_changes_only_these():
    case = case_of(cases.ROWS)._replace(rows=50)
    step = loops.step("Adam", case)
    step()
    (arrays,) = step.__defaults__[0]
    changed = (arrays[0] != case.numbers(0)).any(axis=1)
    np.testing.assert_array_equal(np.flatnonzero(changed), np.sort(case.ids()))


def test_a_step_is_timed_after_something_else():
    calls = []
    situation = run.Situation(lambda: calls.append("before"), lambda: calls.append("step"))
    assert len(situation.times(2)) == 2
    assert calls == ["before", "step"] * 2


def report(library):
    ratio = {"median": 1.2345, "lower": 1, "upper": 2}
    names = dict(workload="a case", optimizer="native A", compared_with="own A")
    facts = {
        library: "1.2",
        "threads": 2,
        "cpu": "a processor",
        "load": 0.25,
        "date": "2026-01-02T03",
    }
    results = [dict(names, ratio=ratio), dict(names, ratio=dict(ratio, median=12.3))]
    return {"environment": facts, "results": results}


def test_a_table_has_a_row_for_each_comparison():
    data = pages.collected({"torch": report("torch")})
    assert data["torch"]["rows"] == [["a case", "native A", "own A", 1.234, 12.3]]
    first, *_, last = pages.table(data, "torch").splitlines()
    assert first == "PyTorch (torch 1.2; 2 threads; a processor; load 0.2; 2026-01-02):"
    assert last == "| a case | native A | own A | 1.23 | 12 |"


def test_the_page_has_the_data_of_the_picture():
    text = (ROOT / pages.PAGE).read_text(encoding="utf-8")
    for library in pages.LIBRARIES:
        table = pages.table(files.read(pages.NAME), library)
        assert lanes.with_table(text, f"{pages.NAME}_{library}", table) == text
