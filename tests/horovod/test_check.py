"""Tests the program `tests.horovod.check` without Horovod."""

import numpy as np
import pytest

import legacy_opt
from tests.horovod import check, trainings
from tests.support.cases import optimizers_in, public_optimizers

pytestmark = pytest.mark.once

ONE, NEXT = np.float32([1, 0.25]), np.float32([1 + 2**-23, 0.25])
STEP = "w after step 0"


def test_every_public_optimizer_and_wrapper_is_checked():
    classes, wrapper = optimizers_in(legacy_opt).values(), legacy_opt.OptimizerWrapper
    wrappers = {each for each in classes if issubclass(each, wrapper)}
    names = {each.__name__ for each in {*public_optimizers(), *wrappers} - {wrapper}}
    assert names <= set(trainings.OPTIMIZERS)


@pytest.mark.parametrize(
    "ranks, equal, difference",
    [
        ([{"w": ONE, STEP: ONE}, {"w": ONE, STEP: ONE}], True, 0),
        ([{"w": ONE}, {"w": ONE}], True, 0),  # an Estimator has only final values
        ([{"w": NEXT}, {"w": NEXT}], True, 1),
        ([{"w": ONE}, {"w": NEXT}], False, 0),
        ([{"w": ONE, STEP: ONE}, {"w": ONE, STEP: NEXT}], False, 0),
        ([{"w": ONE, STEP: NEXT}, {"w": ONE, STEP: NEXT}], True, 1),
        ([{"v": ONE}, {"v": ONE}], False, np.inf),
        ([{"w": ONE[:1]}, {"w": ONE[:1]}], True, np.inf),
    ],
)
def test_differences_are_found(ranks, equal, difference):
    assert check.compare(ranks, {"w": ONE, STEP: ONE}) == (equal, difference)


def test_integers_must_be_equal():
    assert check.ulps(np.int64([3]), np.int64([3])) == 0
    assert check.ulps(np.int64([3]), np.int64([4])) == np.inf


def test_one_process_trains_with_the_mean_gradients():
    first, second = (trainings.problem_of(rank) for rank in range(2))
    assert not np.array_equal(first.values["table"], second.values["table"])
    rows = [problem.gradients[0]["table"] for problem in (first, second)]
    assert set(rows[0].ids) & set(rows[1].ids), "no id is in the gradients of both ranks"
    total = np.zeros([9, 3])
    for each in rows:
        for row, value in zip(each.ids, each.values):
            total[row] += value

    sparse, dense = (
        trainings.problem_of_one_process(2, trainings.Way(as_dense, False))
        for as_dense in (False, True)
    )
    np.testing.assert_array_equal(sparse.values["table"], first.values["table"])
    matrices = [problem.gradients[0]["matrix"] for problem in (first, second)]
    np.testing.assert_array_equal(sparse.gradients[0]["matrix"], sum(matrices) / 2)
    found = sparse.gradients[0]["table"]
    np.testing.assert_array_equal(found.ids, np.concatenate([each.ids for each in rows]))
    np.testing.assert_array_equal(found.values, np.concatenate([each.values for each in rows]) / 2)
    np.testing.assert_allclose(dense.gradients[0]["table"], total / 2, rtol=1e-6)
